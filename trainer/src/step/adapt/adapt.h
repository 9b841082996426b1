/*
 * adapt.h - migration from one plan to another in mid-step.
 */
#ifndef DUNLIN_STEP_ADAPT_H
#define DUNLIN_STEP_ADAPT_H

#include "step/context/rungs.h"

/* Under the lock: the largest fallback plan within the budget; n_fallbacks if there is none. */
uint32_t dunlin__ladder_fallback_for(const dunlin_ladder *ladder, uint64_t budget_bytes);
/* The arena of so many bytes; what dies is not looked at in debug builds either. */
DUNLIN_NODISCARD dunlin_status dunlin__adapt_resize(dunlin_trainer *trainer, uint64_t arena_bytes,
                                                    dunlin_error *error);
/* Under the lock, with no step in progress: the budget that was asked for. */
DUNLIN_NODISCARD dunlin_status dunlin__adapt_obey(dunlin_trainer *trainer, dunlin_error *error);

/* --- without fallback plans nothing happens --- */

/* Around every call that runs plans. */
void dunlin__adapt_begin(dunlin_trainer *trainer);
void dunlin__adapt_end(dunlin_trainer *trainer);
/* Within such a call, before each step and each batch of an evaluation: waits while paused, and
 * obeys a budget that was asked for. */
DUNLIN_NODISCARD dunlin_status dunlin__adapt_between(dunlin_trainer *trainer);
/* The control to run a training step of so many samples with, or NULL. */
dunlin_exec_control *dunlin__adapt_begin_step(dunlin_trainer *trainer, int64_t n_batch);
/* The control to run a batch of an evaluation with, or NULL. */
dunlin_exec_control *dunlin__adapt_begin_infer(dunlin_trainer *trainer);
/* After a training step, whether it failed or not. */
DUNLIN_NODISCARD dunlin_status dunlin__adapt_end_step(dunlin_trainer *trainer);

#endif
