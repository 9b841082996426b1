/*
 * plain_run.h - runs a training graph in its own order with one malloc per tensor: an independent
 * implementation that shares nothing with the planner, the lowering and the executor.
 *
 * Everything that is not persistent is filled with NaN before a step, so what an op forgets to
 * write shows; blocks have their exact size, so AddressSanitizer sees what an op writes beyond.
 */
#ifndef DUNLIN_TESTS_PLAIN_RUN_H
#define DUNLIN_TESTS_PLAIN_RUN_H

#include "graph/build.h"

typedef struct plain_run {
    const dunlin_net *net;
    dunlin_step_graph *graph;
    int64_t max_batch;
    size_t n_threads;
    void **tensors;        /* by tensor; batched ones hold max_batch samples */
    float **gradients;     /* by parameter, ONNX's order, of the last step; NULL: not trained */
    int64_t slice_samples; /* 0: the whole batch in one slice. Only for graphs without a barrier. */
    const float *logits_gradient; /* max_batch x classes, put in place of the loss's; or NULL */
    bool recomputes;              /* runs the map part of every op that allows it twice */
    bool checks_in_place; /* runs every op that may work in place so too: INTERNAL if bits differ */
} plain_run;

/* `net` must outlive the run. Asserts on out of memory. */
DUNLIN_NODISCARD dunlin_status plain_run_open(plain_run *plain, const dunlin_net *net,
                                              const dunlin_step_build_options *options,
                                              int64_t max_batch, dunlin_error *error);
void plain_run_close(plain_run *plain);

/* Parameters in ONNX's order. */
void plain_run_set_param(plain_run *plain, uint32_t param, const float *values);
void plain_run_get_param(const plain_run *plain, uint32_t param, float *out_values);

/* One step, or one evaluation: `run` with everything set but the gradient hook. */
dunlin_status plain_run_step(plain_run *plain, const dunlin_step_run *run);

/* The tensor of this name, DUNLIN_STEP_NONE if there is none. */
uint32_t plain_run_find(const plain_run *plain, const char *name);
/* The first op of this name, or NULL. */
const dunlin_step_op *plain_run_find_op(const plain_run *plain, const char *name);

#endif
