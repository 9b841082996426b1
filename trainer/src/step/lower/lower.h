/*
 * lower.h - a training graph as the planner sees it, and its plan: all that it takes to run one
 * kind of step.
 */
#ifndef DUNLIN_STEP_LOWER_H
#define DUNLIN_STEP_LOWER_H

#include "graph/build.h"

#include <mem/graph.h>

/* The planner's view; `graph` points into the arrays, and names and accesses into the step graph.
 */
typedef struct dunlin_lowered {
    dunlin_alloc alloc;
    dunlin_mem_graph graph;
    dunlin_mem_tensor *tensors;
    dunlin_mem_op *ops;
    dunlin_mem_variant *variants; /* one an op */
    uint64_t persistent_bytes;    /* at the bottom of the arena, in tensor order */
} dunlin_lowered;

/* Bytes that a file takes, and gives, in a nanosecond. */
typedef struct dunlin_swap_speed {
    double out_per_ns;
    double in_per_ns;
} dunlin_swap_speed;

/*
 * Lowers `step` for these kernels and so many threads (workspaces depend on both). With
 * `pins_fixed` every fixed tensor of the step keeps one address in all plans. `step` must outlive
 * the result. MEMORY, OVERFLOW.
 */
DUNLIN_NODISCARD dunlin_status dunlin__lower(const dunlin_step_graph *step,
                                             const dunlin_kernels *kernels, size_t n_threads,
                                             bool pins_fixed, const dunlin_alloc *alloc,
                                             dunlin_lowered *out_lowered, dunlin_error *error);
/* What swaps cost, of a graph that has any. */
void dunlin__lower_swaps(const dunlin_step_graph *step, const dunlin_swap_speed *speed,
                         dunlin_lowered *lowered);
/* Zeroed memory is fine. */
void dunlin__lowered_free(dunlin_lowered *lowered);

#endif
