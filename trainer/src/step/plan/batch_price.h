/*
 * batch_price.h - what an example costs at a batch within a budget, and the largest batch that is
 * not too slow.
 */
#ifndef DUNLIN_STEP_BATCH_PRICE_H
#define DUNLIN_STEP_BATCH_PRICE_H

#include "step/context/context.h"

#include <dunlin/batch.h>

/*
 * Fills `capped`, `any` and `fastest` of `fit`, for fit->budget_bytes and the largest batch that
 * fits it: `any`, 0 for none, INT64_MAX where any does. `ratio` is 1 or more, perhaps infinite.
 * Options as the library sees them.
 */
DUNLIN_NODISCARD dunlin_status dunlin__batch_price(const dunlin_net *net,
                                                   const dunlin_trainer_options *options,
                                                   double ratio, int64_t any, dunlin_batch_fit *fit,
                                                   dunlin_error *error);

/* Has a step of the batch a plan within the budget? A trial looks for it within the budget
 * alone, and says no where only the search for the least budget finds one, which takes longer.
 * Options as the library sees them; not looked at are batch, budget_bytes, least_budget_bytes and
 * cache_dir. */
DUNLIN_NODISCARD dunlin_status dunlin__batch_fits(const dunlin_net *net,
                                                  const dunlin_trainer_options *options,
                                                  uint64_t budget_bytes, int64_t batch,
                                                  bool is_trial, bool *out_fits,
                                                  dunlin_error *error);

#endif
