/*
 * central.h - one run of convergence: training on one machine, judged on the way.
 */
#ifndef SAMPLES_STUDY_CENTRAL_H
#define SAMPLES_STUDY_CENTRAL_H

#include "grid.h"

typedef struct central_run {
    const grid_variant *variant;
    const char *model, *dataset;
    bool is_tuning;    /* judged on what is held out, else on the test split */
    bool has_held_out; /* something is */
    dunlin_validation held_out;
    uint64_t seed;
    grid_rate rate;
    int64_t epochs, max_examples, max_test; /* 0: all */
    int64_t looks;                          /* in an epoch */
    const char *group;                      /* of the tuning table */
    const char *precision;                  /* NULL: the study compares none */
    const char *grad_bits;                  /* stages of it, in place of a rate; NULL: the rate */
} central_run;

/* The study's own rate for a batch. */
double central_rule(int64_t batch);

/* Trains, and adds a row for each look; what diverges has one row without accuracy at the end. */
void central_train(study *at, const study_subject *subject, const central_run *run);

#endif
