/*
 * baselines.h - all calls of a trainer into the library of published policies.
 */
#ifndef DUNLIN_STEP_BASELINES_H
#define DUNLIN_STEP_BASELINES_H

#include "swap.h"

#include <dunlin/baselines.h>

struct dunlin_baselines {
    dunlin_plan_baseline_fn plan_fn;
    /* dunlin__step_add_swaps(), dunlin__swap_new(). */
    dunlin_status (*add_swaps_fn)(dunlin_step_graph *graph, dunlin_swap_what what,
                                  dunlin_error *error);
    dunlin_swap *(*new_swap_fn)(const dunlin_step_graph *graph, const dunlin_alloc *alloc);
};

#endif
