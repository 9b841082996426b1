/*
 * fits.c - what would fit: the largest batch within a budget, or within each of several, and the
 * rate predicted there.
 *
 * Invariant: a rate is that of the plan which a run with this budget and batch would have.
 */
#include "common/policies.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define N_RUNGS 8
#define TOP_BYTES ((uint64_t)4 << 30) /* of the default ladder */
#define REFERENCE_BATCH 32
#define LARGEST_BATCH ((int64_t)1 << 30) /* stands for any */

static dunlin_trainer_options options_of(const train_flags *flags, const train_result *result)
{
    dunlin_trainer_options options = train_options(flags);
    options.costs = result->costs;
    return options;
}

/* Predicted time of an example in the fastest step of 32, nothing made again, memory unlimited. */
static dunlin_status find_reference(const train_flags *flags, const dunlin_model *model,
                                    const train_result *result, double *out_ms, dunlin_error *error)
{
    dunlin_trainer_options options = options_of(flags, result);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    options.budget_bytes = 0;
    options.batch = REFERENCE_BATCH;
    options.micro_batch = 0;
    const dunlin_status status = dunlin_trainer_estimate(model, &options, &report, error);
    *out_ms = report.ideal_ms / REFERENCE_BATCH;
    return status;
}

/* The plan of the largest batch; of any batch that of the largest there is. */
static dunlin_status predict(const train_flags *flags, const dunlin_model *model,
                             const train_result *result, double reference_ms, train_fit *fit,
                             dunlin_error *error)
{
    dunlin_trainer_options options = options_of(flags, result);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    options.budget_bytes = fit->budget_bytes;
    options.batch = fit->batch;
    const dunlin_status status = dunlin_trainer_estimate(model, &options, &report, error);
    if (status != DUNLIN_OK) {
        return status;
    }
    const double example_ms = report.predicted_ms / (double)fit->batch;
    fit->micro_batch = report.micro_batch;
    fit->samples_per_s = 1e3 / example_ms;
    fit->time_ratio = example_ms / reference_ms;
    fit->redo_share = report.predicted_ms > 0.0 ? report.redo_ms / report.predicted_ms : 0.0;
    return DUNLIN_OK;
}

static void take_batch(train_fit *fit, uint64_t budget_bytes, int64_t batch)
{
    *fit = (train_fit){.budget_bytes = budget_bytes,
                       .batch = batch < LARGEST_BATCH ? batch : LARGEST_BATCH,
                       .is_unbounded = batch == INT64_MAX};
}

/* The largest batch up to `most` that is no slower than --max-ratio allows: by bisection, since
 * more examples in the same memory never take less time each. */
static dunlin_status find_fast_enough(const train_flags *flags, const dunlin_model *model,
                                      const train_result *result, double reference_ms,
                                      train_fit *fit, dunlin_error *error)
{
    int64_t low = 0;
    int64_t high = fit->batch + 1;
    train_fit best = *fit;
    for (int64_t probe = REFERENCE_BATCH; high - low > 1 + low / 256;) {
        probe = probe < high ? probe : low + (high - low) / 2;
        train_fit tried = *fit;
        tried.batch = probe;
        const dunlin_status status = predict(flags, model, result, reference_ms, &tried, error);
        if (status != DUNLIN_OK) {
            return status;
        }
        if (tried.time_ratio <= flags->max_ratio) {
            low = probe;
            best = tried;
        } else {
            high = probe;
        }
        probe = high > fit->batch ? 2 * low : low + (high - low) / 2;
    }
    if (low == 0) {
        *error = (dunlin_error){.status = DUNLIN_BUDGET};
        (void)snprintf(
            error->text, sizeof error->text,
            "no batch takes at most %g x the time per example of batch %d within %" PRIu64 " bytes",
            flags->max_ratio, REFERENCE_BATCH, fit->budget_bytes);
        return DUNLIN_BUDGET;
    }
    *fit = best;
    return DUNLIN_OK;
}

int train_max_batch(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_trainer_options options = options_of(flags, result);
    dunlin_error error = {0};
    bool is_unbounded = false;
    int64_t batch = 0;
    if (dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    train_fit fit;
    double reference_ms = 0.0;
    take_batch(&fit, flags->budget_bytes, is_unbounded ? INT64_MAX : batch);
    if (find_reference(flags, model, result, &reference_ms, &error) != DUNLIN_OK ||
        predict(flags, model, result, reference_ms, &fit, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    if (flags->max_ratio > 0.0 && fit.time_ratio > flags->max_ratio) {
        if (find_fast_enough(flags, model, result, reference_ms, &fit, &error) != DUNLIN_OK) {
            return train_fail(&error);
        }
        is_unbounded = false;
        batch = fit.batch;
    }
    result->has_max_batch = true;
    result->max_batch = is_unbounded ? 0 : batch;
    options.batch = is_unbounded ? options.batch : batch;
    if (dunlin_trainer_estimate(model, &options, &result->report, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    result->time_ratio = fit.time_ratio;
    if (is_unbounded) {
        printf("largest batch: unbounded");
    } else {
        printf("largest batch: %" PRId64, batch);
    }
    printf(", %.1f examples/s predicted, %.3f x the time per example of batch %d\n",
           fit.samples_per_s, fit.time_ratio, REFERENCE_BATCH);
    train_print_plan(flags, result);
    return EXIT_OK;
}

/* --- the table --- */

/* The next of 1, 1.5, 2, 3, 4, 6, 8, ... */
static uint64_t next_size(uint64_t bytes)
{
    const bool is_power = (bytes & (bytes - 1)) == 0;
    return is_power ? bytes + bytes / 2 : bytes + bytes / 3;
}

/* Sizes from the first above the least to 4 GiB (or so many above that), evenly chosen. */
static int32_t make_ladder(uint64_t least_bytes, uint64_t out_budgets[N_RUNGS])
{
    uint64_t first = 1024;
    while (first < least_bytes) {
        first = next_size(first);
    }
    int32_t n_sizes = 1;
    for (uint64_t at = first; at < TOP_BYTES; at = next_size(at)) {
        n_sizes++;
    }
    n_sizes = n_sizes < N_RUNGS ? N_RUNGS : n_sizes;
    uint64_t at = first;
    for (int32_t i = 0, n = 0; i < n_sizes && n < N_RUNGS; i++, at = next_size(at)) {
        if (i == n * (n_sizes - 1) / (N_RUNGS - 1)) {
            out_budgets[n] = at;
            n++;
        }
    }
    return N_RUNGS;
}

static void print_head(const train_flags *flags, const train_result *result, double reference_ms)
{
    printf("what fits: %s, ", flags->model);
    if (result->image > 0) {
        printf("image %" PRId64 ", ", result->image);
    }
    printf("policy %s, %s costs\n  memory unlimited, batch %d: %.1f examples/s\n",
           policy_name(flags->policy_value), result->costs == NULL ? "roofline" : "measured",
           REFERENCE_BATCH, 1e3 / reference_ms);
    printf("%14s  %14s  %10s  %12s  %12s  %8s\n", "budget", "largest batch", "slice", "examples/s",
           "time/example", "redone");
}

static void print_row(const train_fit *fit)
{
    char budget[SIZE_TEXT_BYTES];
    char batch[32] = "any";
    char slice[32] = "whole";
    (void)size_text(fit->budget_bytes, budget);
    if (fit->batch == 0) {
        printf("%14s  %14s\n", budget, "none");
        return;
    }
    if (!fit->is_unbounded) {
        (void)snprintf(batch, sizeof batch, "%" PRId64, fit->batch);
    }
    if (fit->micro_batch < fit->batch) {
        (void)snprintf(slice, sizeof slice, "%" PRId64, fit->micro_batch);
    }
    printf("%14s  %14s  %10s  %12.1f  %10.3f x  %6.1f %%\n", budget, batch, slice,
           fit->samples_per_s, fit->time_ratio, 100.0 * fit->redo_share);
    (void)fflush(stdout);
}

static dunlin_status find_fits(const train_flags *flags, const dunlin_model *model,
                               train_result *result, double reference_ms, dunlin_error *error)
{
    const dunlin_trainer_options options = options_of(flags, result);
    uint64_t ladder[N_RUNGS] = {0};
    const uint64_t *budgets = flags->budgets;
    int64_t batches[TRAIN_MAX_FITS];
    int32_t n = flags->n_budgets;
    dunlin_status status = DUNLIN_OK;
    if (n == 0) {
        uint64_t least_bytes = 0;
        status = dunlin_trainer_max_batches(model, &options, NULL, 0, NULL, &least_bytes, error);
        n = make_ladder(least_bytes, ladder);
        budgets = ladder;
    }
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_max_batches(model, &options, budgets, n, batches, NULL, error);
    }
    for (int32_t i = 0; i < n && status == DUNLIN_OK; i++) {
        train_fit *fit = &result->fits[i];
        take_batch(fit, budgets[i], batches[i]);
        if (fit->batch > 0) {
            status = predict(flags, model, result, reference_ms, fit, error);
        }
        if (status == DUNLIN_OK) {
            print_row(fit);
            result->n_fits = i + 1;
        }
    }
    return status;
}

int train_what_fits(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_error error = {0};
    double reference_ms = 0.0;
    dunlin_status status = find_reference(flags, model, result, &reference_ms, &error);
    if (status == DUNLIN_OK) {
        print_head(flags, result, reference_ms);
        status = find_fits(flags, model, result, reference_ms, &error);
    }
    return status == DUNLIN_OK ? EXIT_OK : train_fail(&error);
}
