/*
 * batch.c - --batch max: the largest batch that fits the budget, is not too slow, and leaves enough
 * steps in each epoch on a device.
 *
 * Invariant: nine devices in ten take LEAST_STEPS steps or more in an epoch, or steps_text says how
 * many do not.
 */
#include "fleet.h"

#include <dunlin/trainer_advanced.h>

#include <common/price.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAST_STEPS 10
#define REFERENCE_BATCH 32

static int compare_sizes(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left;
    const int64_t b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Examples of each device, ascending; the caller frees them. NULL: no memory. */
static int64_t *sizes_of(const dunlin_partition *partition)
{
    const int64_t n_devices = dunlin_partition_n_clients(partition);
    int64_t *sizes = calloc((size_t)n_devices, sizeof *sizes);
    for (int64_t i = 0; sizes != NULL && i < n_devices; i++) {
        (void)dunlin_partition_indices(partition, i, &sizes[i]);
    }
    if (sizes != NULL) {
        qsort(sizes, (size_t)n_devices, sizeof *sizes, compare_sizes);
    }
    return sizes;
}

/* A step more for what is left over. */
static int64_t steps_of(int64_t n_examples, int64_t batch)
{
    return (n_examples + batch - 1) / batch;
}

/* The batch that leaves nine devices in ten LEAST_STEPS whole batches, and at least 1. */
static int64_t keep_steps(const int64_t *sizes, int64_t n_devices)
{
    const int64_t batch = sizes[n_devices / 10] / LEAST_STEPS;
    return batch > 1 ? batch : 1;
}

/* Which devices take fewer steps than they should, if any. */
static void tell_steps(fleet_world *world, const int64_t *sizes, int64_t n_devices)
{
    fleet_batch *choice = &world->choice;
    int64_t n_few = 0;
    while (n_few < n_devices && steps_of(sizes[n_few], world->batch) < LEAST_STEPS) {
        n_few++;
    }
    if (n_few == 0) {
        return;
    }
    (void)snprintf(choice->steps_text, sizeof choice->steps_text,
                   "--batch max: %" PRId64 " of %" PRId64 " devices take fewer than %d steps an "
                   "epoch, the fewest %" PRId64 ": batch %" PRId64 ", and they have %" PRId64
                   " to %" PRId64 " examples",
                   n_few, n_devices, LEAST_STEPS, steps_of(sizes[0], world->batch), world->batch,
                   sizes[0], sizes[n_few - 1]);
}

static dunlin_status find_prices(const fleet_flags *flags, fleet_world *world,
                                 dunlin_trainer_options options, dunlin_error *error)
{
    fleet_batch *choice = &world->choice;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    uint64_t least_bytes = 0;
    options.max_ratio = flags->max_ratio;
    dunlin_status status = dunlin_trainer_price_batches(
        world->model, &options, &flags->budget_bytes, 1, &choice->fit, &least_bytes, error);
    if (status == DUNLIN_OK && choice->fit.any.batch == 0) {
        *error = (dunlin_error){.status = DUNLIN_BUDGET, .needed_bytes = least_bytes};
        (void)snprintf(error->text, sizeof error->text,
                       "a budget of %" PRIu64
                       " bytes is too small: the least that works is %" PRIu64
                       " bytes, with which one example fits",
                       flags->budget_bytes, least_bytes);
        status = DUNLIN_BUDGET;
    }
    if (status == DUNLIN_OK) {
        options.budget_bytes = 0;
        options.batch = REFERENCE_BATCH;
        status = dunlin_trainer_estimate(world->model, &options, &report, error);
        choice->reference_ms = report.ideal_ms / REFERENCE_BATCH;
    }
    return status;
}

dunlin_status fleet_batch_choose(const fleet_flags *flags, fleet_world *world,
                                 const dunlin_trainer_options *options, dunlin_error *error)
{
    fleet_batch *choice = &world->choice;
    world->batch = flags->batch;
    if (flags->batch > 0) {
        return DUNLIN_OK;
    }
    const dunlin_status status = find_prices(flags, world, *options, error);
    if (status != DUNLIN_OK) {
        return status;
    }
    int64_t *sizes = sizes_of(world->partition);
    if (sizes == NULL) {
        *error = (dunlin_error){.status = DUNLIN_MEMORY};
        return DUNLIN_MEMORY;
    }
    const int64_t n_devices = dunlin_partition_n_clients(world->partition);
    const int64_t capped = choice->fit.capped.batch;
    choice->is_chosen = true;
    choice->steps_batch = keep_steps(sizes, n_devices);
    world->batch = capped < choice->steps_batch ? capped : choice->steps_batch;
    tell_steps(world, sizes, n_devices);
    free(sizes);
    return DUNLIN_OK;
}

static void print_batch(const char *head, const dunlin_batch_price *price, double reference_ms)
{
    if (price->batch == INT64_MAX) {
        (void)printf("%s any", head);
    } else {
        (void)printf("%s %" PRId64, head, price->batch);
    }
    (void)printf(" (%.3f x the time per example of batch %d)", price->example_ms / reference_ms,
                 REFERENCE_BATCH);
}

void fleet_batch_print(const fleet_flags *flags, const fleet_world *world)
{
    const fleet_batch *choice = &world->choice;
    char text[PRICE_TEXT_BYTES];
    if (!choice->is_chosen) {
        return;
    }
    (void)printf("--batch max: %s", price_text(flags->max_ratio, text));
    print_batch("", &choice->fit.capped, choice->reference_ms);
    print_batch(", at any price", &choice->fit.any, choice->reference_ms);
    (void)printf("; %d steps an epoch: %" PRId64 "\n", LEAST_STEPS, choice->steps_batch);
    if (choice->steps_text[0] != '\0') {
        (void)printf("%s\n", choice->steps_text);
    }
}

static json_t *batch_json(int64_t batch)
{
    return batch == INT64_MAX ? json_null() : json_integer((json_int_t)batch);
}

static json_t *number_json(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

json_t *fleet_batch_json(const fleet_flags *flags, const fleet_world *world)
{
    const fleet_batch *choice = &world->choice;
    if (!choice->is_chosen) {
        return NULL;
    }
    const dunlin_batch_fit *fit = &choice->fit;
    const bool has_base = isfinite(flags->max_ratio);
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:I, s:I, s:s?}", "max_batch",
                     batch_json(fit->capped.batch), "time_ratio",
                     number_json(fit->capped.example_ms / choice->reference_ms), "max_batch_any",
                     batch_json(fit->any.batch), "time_ratio_any",
                     number_json(fit->any.example_ms / choice->reference_ms), "ratio_base",
                     PRICE_BASE, "ratio_base_ms",
                     has_base ? number_json(fit->fastest.example_ms) : json_null(),
                     "ratio_base_batch", has_base ? batch_json(fit->fastest.batch) : json_null(),
                     "max_ratio", number_json(flags->max_ratio), "least_steps",
                     (json_int_t)LEAST_STEPS, "steps_batch", (json_int_t)choice->steps_batch,
                     "fewer_steps", choice->steps_text[0] != '\0' ? choice->steps_text : NULL);
}
