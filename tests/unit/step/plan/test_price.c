/*
 * test_price.c - the price of a batch: the largest that is not too slow, beside the largest that
 * fits, against the plans of all batches.
 */
#include "random.h"
#include "step/step_support.h"

#include <dunlin/batch.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stddef.h>
#include <string.h>

#define MOST 400 /* batches that are all planned */

static const double ratios[] = {1.0, 1.3, 5.0};
#define N_RATIOS (sizeof ratios / sizeof ratios[0])

/* Predicted time per example by the plan of a trainer; infinite where there is none. */
static double example_ms(const dunlin_model *model, dunlin_trainer_options options, int64_t batch)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    options.batch = batch;
    const dunlin_status status = dunlin_trainer_create(model, &options, &trainer, &error);
    if (status == DUNLIN_BUDGET) {
        return (double)INFINITY;
    }
    cr_assert_eq(status, DUNLIN_OK, "%s", error.text);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    return report.predicted_ms / (double)batch;
}

static dunlin_batch_fit price(const dunlin_model *model, const dunlin_trainer_options *options)
{
    dunlin_batch_fit fit;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(
        dunlin_trainer_price_batches(model, options, &options->budget_bytes, 1, &fit, NULL, &error),
        DUNLIN_OK, "%s", error.text);
    return fit;
}

/* The batch alone gives the same answer. */
static void expect_capped(const dunlin_model *model, const dunlin_trainer_options *options,
                          int64_t capped)
{
    int64_t batch = 0;
    bool is_unbounded = false;
    cr_assert_eq(dunlin_trainer_max_batch(model, options, &batch, &is_unbounded, NULL), DUNLIN_OK);
    cr_expect_eq(is_unbounded ? INT64_MAX : batch, capped);
}

static void check_against_all(const dunlin_model *model, dunlin_trainer_options options)
{
    double ms[MOST + 1];
    options.max_ratio = (double)INFINITY;
    const dunlin_batch_fit any = price(model, &options);
    const int64_t most = any.any.batch;
    cr_assert(most >= 1 && most <= MOST, "%lld", (long long)most);
    expect_capped(model, &options, most);
    double least = (double)INFINITY;
    for (int64_t batch = 1; batch <= most; batch++) {
        ms[batch] = example_ms(model, options, batch);
        least = ms[batch] < least ? ms[batch] : least;
    }
    for (size_t r = 0; r < N_RATIOS; r++) {
        options.max_ratio = ratios[r];
        const dunlin_batch_fit fit = price(model, &options);
        cr_expect_eq(fit.any.batch, most);
        cr_expect_float_eq(fit.any.example_ms, ms[most], 1e-12);
        cr_expect_float_eq(fit.capped.example_ms, ms[fit.capped.batch], 1e-12);
        cr_expect_float_eq(fit.fastest.example_ms, ms[fit.fastest.batch], 1e-12);
        cr_expect_leq(fit.capped.example_ms, ratios[r] * fit.fastest.example_ms);
        cr_expect_leq(fit.fastest.example_ms, 1.02 * least, "%g is not near %g",
                      fit.fastest.example_ms, least);
        int64_t largest = 1;
        for (int64_t batch = 1; batch <= most; batch++) {
            largest = ms[batch] <= ratios[r] * fit.fastest.example_ms ? batch : largest;
        }
        cr_expect_leq(fit.capped.batch, largest);
        cr_expect_geq(fit.capped.batch, largest - largest / 16,
                      "%lld of at most %lld, ratio %g, budget %llu", (long long)fit.capped.batch,
                      (long long)largest, ratios[r], (unsigned long long)options.budget_bytes);
        if (most <= 32) {
            cr_expect_float_eq(fit.fastest.example_ms, least, 1e-12);
            cr_expect_eq(fit.capped.batch, largest);
        }
        expect_capped(model, &options, fit.capped.batch);
    }
}

Test(price, as_the_plans_of_all_batches_say, .timeout = 900)
{
    static const dunlin_policy policies[] = {DUNLIN_POLICY_POOL, DUNLIN_POLICY_RECOMPUTE,
                                             DUNLIN_POLICY_MELON};
    dunlin_model *model = test_small_model(true);
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        for (uint64_t budget = 350000; budget < 2500000; budget *= 2) {
            dunlin_trainer_options options = test_options(1);
            options.policy = policies[p];
            options.baselines = dunlin_baselines_published();
            options.budget_bytes = budget;
            check_against_all(model, options);
        }
    }
    dunlin_model_destroy(model);
}

/* In 40 MiB the network holds 58 examples at the most, at more than five times the price of 45. */
Test(price, keeps_to_the_ratio_where_slices_are_dear, .timeout = 900)
{
    dunlin_model *model = NULL;
    const dunlin_zoo_options zoo = {.struct_size = sizeof(dunlin_zoo_options), .image = 32};
    cr_assert_eq(dunlin_model_from_zoo("mobilenet_v2", &zoo, NULL, &model, NULL), DUNLIN_OK);
    dunlin_trainer_options options = test_options(1);
    options.budget_bytes = 40 << 20;
    const dunlin_batch_fit fit = price(model, &options);
    cr_expect_leq(fit.capped.example_ms, 1.3 * fit.fastest.example_ms);
    cr_expect_float_eq(example_ms(model, options, fit.capped.batch), fit.capped.example_ms, 1e-12);
    cr_expect_gt(fit.any.batch, fit.capped.batch);
    cr_expect_gt(fit.any.example_ms, 1.3 * fit.fastest.example_ms);
    cr_expect_float_eq(example_ms(model, options, fit.any.batch), fit.any.example_ms, 1e-12);
    dunlin_model_destroy(model);
}

Test(price, any_batch_where_slices_cost_little)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(8);
    options.budget_bytes = 4 << 20;
    const dunlin_batch_fit fit = price(model, &options);
    cr_expect_eq(fit.any.batch, INT64_MAX);
    cr_expect_eq(fit.capped.batch, INT64_MAX);
    cr_expect_gt(fit.capped.micro_batch, 0);
    cr_expect_lt(fit.capped.micro_batch, (int64_t)1 << 30);
    cr_expect_leq(fit.capped.example_ms, 1.3 * fit.fastest.example_ms);
    expect_capped(model, &options, INT64_MAX);
    dunlin_model_destroy(model);
}

Test(price, of_many_budgets_each_has_its_own_answer)
{
    enum { N = 19 };
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(1);
    uint64_t budgets[N];
    dunlin_batch_fit fits[N];
    uint64_t least = 0;
    options.policy = DUNLIN_POLICY_POOL;
    for (uint64_t i = 0; i < N; i++) {
        budgets[i] = i % 5 == 0 ? 100 + i : 1500000 - 60000 * i;
    }
    cr_assert_eq(dunlin_trainer_price_batches(model, &options, budgets, N, fits, &least, NULL),
                 DUNLIN_OK);
    for (size_t i = 0; i < N; i++) {
        cr_expect_eq(fits[i].budget_bytes, budgets[i]);
        cr_expect_eq(fits[i].any.batch == 0, budgets[i] < least);
        cr_expect_eq(fits[i].capped.batch == 0, budgets[i] < least);
        if (budgets[i] >= least) {
            options.budget_bytes = budgets[i];
            cr_expect_eq(price(model, &options).capped.batch, fits[i].capped.batch);
        }
    }
    least = 0;
    cr_assert_eq(dunlin_trainer_price_batches(model, &options, NULL, 0, NULL, &least, NULL),
                 DUNLIN_OK);
    cr_expect_gt(least, 200);
    dunlin_model_destroy(model);
}

Test(price, a_ratio_below_one_is_refused)
{
    static const double wrong[] = {0.5, -1.0, (double)NAN, -(double)INFINITY};
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(8);
    options.budget_bytes = 1 << 20;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        dunlin_batch_fit fit;
        int64_t batch = 0;
        bool is_unbounded = false;
        dunlin_error error = {.status = DUNLIN_OK};
        options.max_ratio = wrong[i];
        cr_expect_eq(dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error),
                     DUNLIN_ARGUMENT);
        cr_expect_neq(strstr(error.text, "max_ratio"), NULL, "%s", error.text);
        cr_expect_eq(dunlin_trainer_price_batches(model, &options, &options.budget_bytes, 1, &fit,
                                                  NULL, &error),
                     DUNLIN_ARGUMENT);
    }
    cr_expect_eq(dunlin_trainer_price_batches(model, &options, NULL, 1, NULL, NULL, NULL),
                 DUNLIN_ARGUMENT);
    dunlin_model_destroy(model);
}

/* Callers built before there was a ratio get the usual one. */
Test(price, a_shorter_struct_means_1_3)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(1);
    options.budget_bytes = 700000;
    options.max_ratio = 1.3;
    const int64_t capped = price(model, &options).capped.batch;
    options.max_ratio = 77.0;
    cr_assert_gt(price(model, &options).capped.batch, capped, "the ratio matters here");
    options.struct_size = offsetof(dunlin_trainer_options, max_ratio);
    cr_expect_eq(price(model, &options).capped.batch, capped);
    dunlin_model_destroy(model);
}

/* Searches for a smaller arena found plans whose tables were larger by more: what fits by the fixed
 * attempts was then refused as too large. */
Test(price, the_largest_batch_at_any_price_has_a_plan, .timeout = 1800)
{
    static const uint64_t budgets[] = {UINT64_C(548405248), UINT64_C(551000000)};
    const size_t n_budgets = test_cases(1) > 1 ? 2 : 1; /* each takes a minute or two */
    dunlin_model *model = NULL;
    const dunlin_zoo_options zoo = {.struct_size = sizeof zoo, .image = 64, .classes = 1000};
    cr_assert_eq(dunlin_model_from_zoo("resnet50", &zoo, NULL, &model, NULL), DUNLIN_OK);
    for (size_t i = 0; i < n_budgets; i++) {
        dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        dunlin_error error = {.status = DUNLIN_OK};
        options.momentum = 0.9F;
        options.budget_bytes = budgets[i];
        options.max_ratio = (double)INFINITY;
        int64_t batch = 0;
        cr_assert_eq(
            dunlin_trainer_max_batches(model, &options, &budgets[i], 1, &batch, NULL, NULL),
            DUNLIN_OK);
        options.batch = batch;
        cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_OK,
                     "batch %lld within %llu bytes: %s", (long long)batch,
                     (unsigned long long)budgets[i], error.text);
        cr_expect_leq(report.planned_bytes, budgets[i]);
    }
    dunlin_model_destroy(model);
}
