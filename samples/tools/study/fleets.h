/*
 * fleets.h - one run of federated: a fleet with the real client and server, a row for each round.
 */
#ifndef SAMPLES_STUDY_FLEETS_H
#define SAMPLES_STUDY_FLEETS_H

#include "grid.h"

/* How large a fleet is, and how long it runs. */
typedef struct fleet_extent {
    int64_t n_clients, cohort, rounds, epochs, n_examples;
    double target;
} fleet_extent;

/* One run of a fleet. */
typedef struct fleet_case {
    const char *model, *dataset, *partition, *algorithm;
    char rule[128]; /* how the batch came about, as the tables have it */
    const grid_variant *variant;
    fleet_extent size;
    grid_rate rate;
    uint64_t seed;
    bool is_tuning, has_held_out;
    bool drops_last; /* as convergence does: a batch that takes in a remainder is larger than what
                        was planned for */
    dunlin_validation held_out;
    const char *group;      /* of the tuning table */
    int32_t image;          /* height and width that the network takes; 0: those of the data */
    char title[128];        /* of the data set, as the tables have it; "": only a run knows it */
    bool is_made;           /* its examples are; of a case with a title */
    int64_t n_test, n_held; /* examples that models are judged on; 0: not known */
    const char *precision;  /* NULL: the study compares none */
    const char *grad_bits;  /* in place of a rate; NULL: the rate */
} fleet_case;

/* The study's own rate for a batch. */
double fleets_rule(int64_t batch);

/* Runs it and adds its rows. */
void fleets_run(study *at, const fleet_case *what);

/* One job of it. */
void fleets_offer(study *at, const fleet_case *what);

/* The lists of the flags over one network and its data set. */
void fleets_offer_grid(study *at, const char *model);

#endif
