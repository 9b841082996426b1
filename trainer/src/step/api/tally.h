/*
 * tally.h - sums over the examples of a call, output by output, and metrics of them.
 */
#ifndef DUNLIN_STEP_TALLY_H
#define DUNLIN_STEP_TALLY_H

#include "step/context/context.h"

#include <dunlin/pixels.h>

#define DUNLIN_MAX_LOSS_SUMS (DUNLIN_NET_MAX_OUTPUTS * DUNLIN_N_LOSS_SUMS)

/* Of one output. */
typedef struct dunlin_output_tally {
    int64_t n_counted; /* rows */
    double weight, loss, right, right5;
} dunlin_output_tally;

typedef struct dunlin_tally {
    int64_t n;         /* examples */
    int64_t n_counted; /* rows of all outputs */
    dunlin_output_tally of[DUNLIN_NET_MAX_OUTPUTS];
    const dunlin_answer_counts *counts; /* of an evaluation: what is counted; NULL: nothing */
    float *rank_room;                   /* as that of the run */
    uint32_t output;                    /* of a prediction: which is wanted */
} dunlin_tally;

/* Adds the sums of a run, DUNLIN_N_LOSS_SUMS of each output. */
void dunlin__tally_add(dunlin_tally *total, const dunlin_step_graph *step,
                       const dunlin_step_run *run, const double *sums);

/* The loss of a run: the weighted sum of those of its outputs. */
double dunlin__tally_loss(const dunlin_step_graph *step, const dunlin_step_run *run,
                          const double *sums);

/* Metrics of the call, in `out_metrics` (NULL: not wanted), and those of each output in the
 * trainer. The loss is that of all outputs, the rest is of the first. */
void dunlin__tally_metrics(dunlin_trainer *trainer, const dunlin_tally *total,
                           dunlin_metrics *out_metrics);

#endif
