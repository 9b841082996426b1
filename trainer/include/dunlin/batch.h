/**
 * @file
 *
 * What a batch costs within a budget: the largest that is not too slow, and the largest that fits.
 * For the choice of a batch before a trainer is made; everything here plans and trains
 * nothing.
 *
 * Example: what two budgets afford.
 *
 * @code
 * extern const dunlin_model *model;
 * const uint64_t budgets[2] = {64 << 20, 128 << 20};
 * const dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * dunlin_batch_fit fits[2];
 * dunlin_error error = {0};
 * if (dunlin_trainer_price_batches(model, &options, budgets, 2, fits, NULL, &error) ==
 *     DUNLIN_OK) {
 *     printf("%.1f ms an example\n", fits[0].capped.example_ms);
 *     printf("%.1f with twice the memory\n", fits[1].capped.example_ms);
 * }
 * @endcode
 */
#ifndef DUNLIN_BATCH_H
#define DUNLIN_BATCH_H

#include <dunlin/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What an example costs at a batch, by the plan that a trainer with it would have. This struct is
 * frozen. */
typedef struct dunlin_batch_price {
    int64_t batch; /* 0: not even one example fits; INT64_MAX: any batch, priced at the largest
                      there is, 2^30 */
    int64_t micro_batch;    /* samples per slice where they are most */
    double example_ms;      /* predicted time of a step over its examples */
    double recompute_share; /* of the step's time: making tensors again */
} dunlin_batch_price;

/** What a budget affords. This struct is frozen. */
typedef struct dunlin_batch_fit {
    uint64_t budget_bytes;
    dunlin_batch_price capped;  /* the largest within options.max_ratio of the fastest */
    dunlin_batch_price any;     /* the largest that fits, at any price */
    dunlin_batch_price fastest; /* the least time per example of the batches looked at */
} dunlin_batch_fit;

/**
 * For each of `n` budgets (0: no limit) the largest batch whose predicted time per example is at
 * most options->max_ratio times the fastest that the budget allows, and beside it the largest batch
 * that fits at any price; options->batch and budget_bytes are not looked at. No plan is kept in
 * cache_dir. *out_least_bytes (may be NULL): the least budget, that of one example. A budget that
 * not even one example fits is no failure: its batches are 0.
 *
 * The price of a batch may rise and fall with it, so the search takes it to do neither. It plans
 * the powers of two (every second one above 4,096) and the largest batch, or all batches where the
 * largest is 32 or less; looks beside the fastest; and halves the interval above the largest that
 * is within the ratio, down to a 256th of it. Exact: each price; that `capped` keeps to the ratio;
 * everything where the largest batch is 32 or less. Otherwise a batch that was not looked at may be
 * a little faster than `fastest`, or larger than `capped` and within the ratio. With max_ratio
 * INFINITY no prices are compared: `capped` and `fastest` are as `any`. `any` has a plan, and a
 * batch without one was found at most a 16th above it (the next one, below 16); one that is larger
 * still may fit again.
 *
 * @return OK; as dunlin_trainer_create(), without BUDGET.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_price_batches(
    const dunlin_model *model, const dunlin_trainer_options *options, const uint64_t *budgets,
    int32_t n, dunlin_batch_fit *out_fits, uint64_t *out_least_bytes, dunlin_error *out_error);

#ifdef __cplusplus
}
#endif

#endif
