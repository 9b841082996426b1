/*
 * lineage.h - which model each round began from, and which models are bad.
 *
 * The model of round r is the base that its close published: the file of round r + 1. A round whose
 * model is bad is taken back, and so is every later one that began from it; the next round begins
 * from the newest good model. All calls are made under the server's lock.
 */
#ifndef DUNLIN_SERVER_LINEAGE_H
#define DUNLIN_SERVER_LINEAGE_H

#include "state/context.h"

/* A closed round, or NULL. */
dunlin__round_row *dunlin__lineage_find(const dunlin__server *server, uint64_t round);

/* True if the model of the round was taken back. That of round 0, the first weights, never is. */
bool dunlin__lineage_is_bad(const dunlin__server *server, uint64_t round);

/* What an evaluation says of a model. */
typedef struct dunlin__verdict {
    bool is_evaluated; /* there are figures */
    double accuracy;
    double loss;
    bool is_bad;                      /* the model is to be taken back */
    char why[DUNLIN_ROUND_WHY_BYTES]; /* it is bad, or there are no figures; "" */
} dunlin__verdict;

/* Judges the outcome of an evaluation: its figures, or a failure (status not OK). With SCAFFOLD no
 * model is taken back, for the devices' variates cannot be. */
dunlin__verdict dunlin__lineage_judge(const dunlin__server *server, const dunlin_error *failure,
                                      double accuracy, double loss);

/* A model to go on from. */
typedef struct dunlin__good_model {
    uint64_t round; /* whose it is; 0: the first weights */
    uint64_t file;  /* the number of its file */
} dunlin__good_model;

/* The newest that was evaluated well (without a test set: that was not taken back), else the first
 * weights, else the oldest that is there. */
dunlin__good_model dunlin__lineage_newest_good(const dunlin__server *server);

/* True if the file of this number is there, with as many weights as the model has. */
bool dunlin__lineage_has_file(const dunlin__server *server, uint64_t number);

/* Takes back the model of a closed round and of all that began from it, and stores that. */
DUNLIN_NODISCARD dunlin_status dunlin__lineage_take_back(dunlin__server *server, uint64_t round,
                                                         const char *why, dunlin_error *error);

/* Takes up the bases that can be fetched after a start. Where the newest is not there or not whole,
 * the round that made it is taken back, if there is a good one of this task to go on from; else the
 * failure is that of the newest. */
DUNLIN_NODISCARD dunlin_status dunlin__lineage_load(dunlin__server *server, dunlin_error *error);

#endif
