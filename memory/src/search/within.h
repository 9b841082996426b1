/*
 * within.h - searches with rematerialisation: within one limit, and at limits a little below
 * a budget.
 */
#ifndef DUNLIN_MEM_PLAN_WITHIN_H
#define DUNLIN_MEM_PLAN_WITHIN_H

#include "attempt/attempt.h"

/* The ways in which a step may be cut. */
typedef struct dunlin_ways {
    bool can_slice;    /* with accumulation */
    bool can_cut;      /* into regions */
    bool can_be_whole; /* not only in regions */
    uint64_t most;     /* samples of a slice */
    /* The slice that fits the budget without rematerialisation; 0: none. */
    uint64_t largest_plain;
} dunlin_ways;

/* As many slices as slices of `slice_samples` make of the batch, but as even as they can be: the
 * samples of the largest. */
static inline uint64_t dunlin__balanced(uint64_t batch, uint64_t slice_samples)
{
    const uint64_t n_slices = (batch - 1) / slice_samples + 1;
    return (batch - 1) / n_slices + 1;
}

/* Rematerialisation of the whole batch, of slices and of regions, within the planner's budget; the
 * fastest that packs is kept. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__try_within(dunlin_planner *planner, const dunlin_ways *ways,
                                                  dunlin_error *error);

/*
 * Where the best so far costs far more than `ideal_ns` (the whole batch, without recomputation), or
 * nothing fits, a single search is subject to search noise. So the same search runs at limits below
 * the budget that depend on the graph alone, so that budgets near each other use the same limits,
 * and then continues from the fastest. MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__try_near(dunlin_planner *planner, const dunlin_ways *ways,
                                                uint64_t ideal_ns, dunlin_error *error);

/*
 * Where nothing fits: searches at limits below the least pool that is known, further down as long
 * as they find a plan, whatever the budget is; the first plan within it is kept as the best.
 * `*in_out_least`: the least pool before and after; the planner keeps its plan where it keeps the
 * lowest. MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__try_lower(dunlin_planner *planner, const dunlin_ways *ways,
                                                 uint64_t *in_out_least, dunlin_error *error);

#endif
