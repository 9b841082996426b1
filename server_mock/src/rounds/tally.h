/*
 * tally.h - what the contributions of a round say, summed up for its row.
 */
#ifndef DUNLIN_SERVER_TALLY_H
#define DUNLIN_SERVER_TALLY_H

#include "state/context.h"

/* Zero-initialise. */
typedef struct dunlin__server_tally {
    double weight_sum;
    double metric_weights[DUNLIN_N_METRICS];
    double metric_sums[DUNLIN_N_METRICS];
    size_t n_within; /* updates that were within the bound before they were clipped... */
    size_t n_beyond; /* ...and that were not */
} dunlin__server_tally;

/* A contribution as a commit tells of it: weight, at most the task's cap, steps, metrics. Of a
 * private round only that there is one. The rest is 0. */
dunlin__contribution_row dunlin__server_tally_contribution(const dunlin__server *server,
                                                           uint64_t round, int64_t client_index,
                                                           const dunlin__commit_request *commit);

/* To be called in the order of client indices: sums of numbers with a point depend on it. */
void dunlin__server_tally_add(dunlin__server_tally *tally,
                              const dunlin__contribution_row *contribution);

/* Sets weight_sum, metrics, has_clip_within and clip_within. */
void dunlin__server_tally_fill(const dunlin__server_tally *tally, dunlin__round_row *row);

#endif
