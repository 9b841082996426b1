/*
 * baselines.h - published policies, run for comparison: what a planner's options point to. Their
 * objects are no part of an app's library.
 */
#ifndef DUNLIN_MEM_BASELINES_H
#define DUNLIN_MEM_BASELINES_H

#include "mem/plan.h"

/* The planner's policy, whichever published one it is (a dunlin_plan_baseline_fn). MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__try_policy(struct dunlin_planner *planner, bool can_slice,
                                                  uint64_t *out_least, dunlin_error *error);

#endif
