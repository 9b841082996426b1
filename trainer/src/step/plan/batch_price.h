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

#endif
