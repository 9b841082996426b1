/*
 * policy.h - the published policies behind one call.
 */
#ifndef DUNLIN_MEM_POLICY_H
#define DUNLIN_MEM_POLICY_H

#include "attempt/attempt.h"

/*
 * Does what the planner's policy (RECOMPUTE and all behind it, but WHOLE) would do and keeps what
 * fits. Where nothing does, `*out_least` is the least pool with which the policy works.
 */
DUNLIN_NODISCARD dunlin_status dunlin__try_policy(dunlin_planner *planner, bool can_slice,
                                                  uint64_t *out_least, dunlin_error *error);

/* --- swap.c --- */

/* VDNN and CAPUCHIN at the planner's budget, on the whole batch; keeps what fits. */
DUNLIN_NODISCARD dunlin_status dunlin__try_swaps(dunlin_planner *planner,
                                                 dunlin_attempt *out_attempt, dunlin_error *error);

#endif
