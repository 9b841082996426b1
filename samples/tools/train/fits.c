/*
 * fits.c - what would fit: the largest batch within a budget, or within each of several, that is
 * not too slow, the largest whatever it costs, and the rates predicted there.
 *
 * Invariant: a rate is that of the plan which a run with this budget and batch would have.
 */
#include "common/policies.h"
#include "common/price.h"
#include "common/progress.h"
#include "train.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define N_RUNGS 8
#define TOP_BYTES ((uint64_t)4 << 30) /* of the default sequence of budgets */
#define REFERENCE_BATCH 32
#define BATCH_TEXT_BYTES 32

static dunlin_trainer_options options_of(const train_flags *flags, const train_result *result)
{
    dunlin_trainer_options options = train_options(flags);
    options.costs = result->costs;
    options.max_ratio = flags->max_ratio;
    return options;
}

/* Predicted time of an example in the fastest step of 32, nothing recomputed, memory unlimited. */
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

static double ratio_of(const dunlin_batch_price *price, double reference_ms)
{
    return price->batch == 0 ? (double)NAN : price->example_ms / reference_ms;
}

static train_fit fit_of(const dunlin_batch_fit *found, double reference_ms)
{
    return (train_fit){.found = *found,
                       .time_ratio = ratio_of(&found->capped, reference_ms),
                       .time_ratio_any = ratio_of(&found->any, reference_ms)};
}

/* Reported, and kept for the JSON object: not even one example fits. */
static int refuse(train_result *result, uint64_t budget_bytes, uint64_t least_bytes)
{
    (void)snprintf(result->refusal, sizeof result->refusal,
                   "a budget of %" PRIu64 " bytes is too small: the least that works is %" PRIu64
                   " bytes, with which one example fits",
                   budget_bytes, least_bytes);
    result->report.least_budget_bytes = least_bytes;
    return program_refuse(&train_program, DUNLIN_BUDGET, "%s", result->refusal);
}

static const char *batch_text(int64_t batch, char out_text[BATCH_TEXT_BYTES])
{
    if (batch == INT64_MAX) {
        (void)snprintf(out_text, BATCH_TEXT_BYTES, "unbounded");
    } else {
        (void)snprintf(out_text, BATCH_TEXT_BYTES, "%" PRId64, batch);
    }
    return out_text;
}

static void print_largest(const char *head, const dunlin_batch_price *price, double time_ratio)
{
    char text[BATCH_TEXT_BYTES];
    printf("%s: %s, %.1f examples/s predicted, %.3f x the time per example of batch %d", head,
           batch_text(price->batch, text), 1e3 / price->example_ms, time_ratio, REFERENCE_BATCH);
}

int train_max_batch(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_trainer_options options = options_of(flags, result);
    dunlin_error error = {0};
    dunlin_batch_fit found = {.budget_bytes = 0};
    double reference_ms = 0.0;
    uint64_t least_bytes = 0;
    char text[PRICE_TEXT_BYTES];
    progress line;
    progress_begin(&line, "looking for the largest batch", NULL);
    dunlin_status status = find_reference(flags, model, result, &reference_ms, &error);
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_price_batches(model, &options, &flags->budget_bytes, 1, &found,
                                              &least_bytes, &error);
    }
    progress_end(&line);
    if (status != DUNLIN_OK) {
        return train_fail(&error);
    }
    const train_fit *fit = &result->max_fit;
    result->has_max_batch = true;
    result->max_fit = fit_of(&found, reference_ms);
    if (found.any.batch == 0) {
        return refuse(result, flags->budget_bytes, least_bytes);
    }
    if (found.capped.batch != INT64_MAX) {
        options.batch = found.capped.batch;
    }
    if (dunlin_trainer_estimate(model, &options, &result->report, &error) != DUNLIN_OK) {
        return train_fail(&error);
    }
    print_largest("largest batch", &found.capped, fit->time_ratio);
    printf("; %s\n", price_text(flags->max_ratio, text));
    print_largest("at any price", &found.any, fit->time_ratio_any);
    printf("\n");
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
    char text[PRICE_TEXT_BYTES];
    printf("what fits: %s, ", flags->model);
    if (result->image > 0) {
        printf("image %" PRId64 ", ", result->image);
    }
    printf("policy %s, %s costs\n  memory unlimited, batch %d: %.1f examples/s\n",
           policy_name(flags->policy_value), result->costs == NULL ? "roofline" : "measured",
           REFERENCE_BATCH, 1e3 / reference_ms);
    printf("  largest batch: %s\n", price_text(flags->max_ratio, text));
    printf("%10s  %13s  %7s  %10s  %12s  %10s  %12s  %12s\n", "budget", "largest batch", "slice",
           "examples/s", "time/example", "recomputed", "at any price", "time/example");
}

static void print_row(const train_fit *fit)
{
    const dunlin_batch_price *capped = &fit->found.capped;
    const dunlin_batch_price *any = &fit->found.any;
    char budget[SIZE_TEXT_BYTES];
    char batch[BATCH_TEXT_BYTES];
    char any_batch[BATCH_TEXT_BYTES];
    char slice[32] = "whole";
    (void)size_text(fit->found.budget_bytes, budget);
    if (any->batch == 0) {
        printf("%10s  %13s\n", budget, "none");
        return;
    }
    if (capped->micro_batch < capped->batch) {
        (void)snprintf(slice, sizeof slice, "%" PRId64, capped->micro_batch);
    }
    printf("%10s  %13s  %7s  %10.1f  %10.3f x  %8.1f %%  %12s  %10.3f x\n", budget,
           capped->batch == INT64_MAX ? "any" : batch_text(capped->batch, batch), slice,
           1e3 / capped->example_ms, fit->time_ratio, 100.0 * capped->recompute_share,
           any->batch == INT64_MAX ? "any" : batch_text(any->batch, any_batch),
           fit->time_ratio_any);
    (void)fflush(stdout);
}

/* A row as soon as it is known: that may take a while. */
static dunlin_status find_fits(const train_flags *flags, const dunlin_model *model,
                               train_result *result, double reference_ms, uint64_t *out_least_bytes,
                               progress *line, dunlin_error *error)
{
    const dunlin_trainer_options options = options_of(flags, result);
    uint64_t ladder[N_RUNGS] = {0};
    const uint64_t *budgets = flags->budgets;
    int32_t n = flags->n_budgets;
    dunlin_status status = DUNLIN_OK;
    if (n == 0) {
        status = dunlin_trainer_max_batches(model, &options, NULL, 0, NULL, out_least_bytes, error);
        n = make_ladder(*out_least_bytes, ladder);
        budgets = ladder;
    }
    for (int32_t i = 0; i < n && status == DUNLIN_OK; i++) {
        dunlin_batch_fit found;
        progress_update(line, i, n, NULL);
        status = dunlin_trainer_price_batches(model, &options, &budgets[i], 1, &found,
                                              out_least_bytes, error);
        if (status == DUNLIN_OK) {
            result->fits[i] = fit_of(&found, reference_ms);
            result->n_fits = i + 1;
            progress_clear(line);
            print_row(&result->fits[i]);
            (void)fflush(stdout);
        }
    }
    return status;
}

int train_what_fits(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_error error = {0};
    double reference_ms = 0.0;
    uint64_t least_bytes = 0;
    progress line;
    progress_begin(&line, "looking for the largest batches", "budgets");
    dunlin_status status = find_reference(flags, model, result, &reference_ms, &error);
    if (status == DUNLIN_OK) {
        progress_clear(&line);
        print_head(flags, result, reference_ms);
        (void)fflush(stdout);
        status = find_fits(flags, model, result, reference_ms, &least_bytes, &line, &error);
    }
    progress_end(&line);
    if (status != DUNLIN_OK) {
        return train_fail(&error);
    }
    /* Budgets ascend: if nothing fits the last one, nothing fits at all. */
    const dunlin_batch_fit *last = &result->fits[result->n_fits - 1].found;
    return last->any.batch > 0 ? EXIT_OK : refuse(result, last->budget_bytes, least_bytes);
}
