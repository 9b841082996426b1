/*
 * policy.h - what the files of the published policies share.
 */
#ifndef DUNLIN_MEM_POLICY_H
#define DUNLIN_MEM_POLICY_H

#include "attempt/attempt.h"

/* VDNN and CAPUCHIN at the planner's budget, on the whole batch; keeps what fits. */
DUNLIN_NODISCARD dunlin_status dunlin__try_swaps(dunlin_planner *planner,
                                                 dunlin_attempt *out_attempt, dunlin_error *error);

#endif
