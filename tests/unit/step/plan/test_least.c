/*
 * test_least.c - the least budget: exact, found where it is asked for, and no plan far below it.
 */
#include "budget_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

static uint64_t sum_of_classes(const dunlin_class_bytes *c)
{
    return c->weights + c->statistics + c->optimizer + c->input + c->activations + c->saved +
           c->gradients + c->accumulators + c->workspace + c->padding + c->tables;
}

/* Everything that must hold for one budget that is large enough. */
static void check_budget(const dunlin_model *model, dunlin_trainer_options options, uint64_t budget,
                         uint64_t seed)
{
    dunlin_alloc_counter counter;
    options.budget_bytes = budget;
    dunlin_trainer *trainer = budget_create_counted(model, &options, &counter);
    budget_run_steps(trainer, model, options.batch);
    const dunlin_trainer_report report = budget_report_of(trainer);
    cr_expect_eq(report.planned_bytes, report.peak_bytes,
                 "seed %llu: %llu planned, %llu at the peak", (unsigned long long)seed,
                 (unsigned long long)report.planned_bytes, (unsigned long long)report.peak_bytes);
    cr_expect_eq(sum_of_classes(&report.by_class), report.planned_bytes);
    cr_expect_leq(report.lower_bound_bytes, report.planned_bytes);
    cr_expect_eq(counter.now_bytes, report.planned_bytes,
                 "seed %llu: the hooks gave %llu bytes, the report says %llu",
                 (unsigned long long)seed, (unsigned long long)counter.now_bytes,
                 (unsigned long long)report.planned_bytes);
    if (budget != 0) {
        cr_expect_leq(counter.peak_bytes, budget, "seed %llu: %llu bytes with a budget of %llu",
                      (unsigned long long)seed, (unsigned long long)counter.peak_bytes,
                      (unsigned long long)budget);
    }
    dunlin_trainer_destroy(trainer);
    cr_expect_eq(counter.now_bytes, 0);
    cr_expect_eq(counter.n_allocs, counter.n_frees);
}

/* Below the least nothing is promised: BUDGET with that number, or a plan that fits after all. */
static void expect_too_small(const dunlin_model *model, dunlin_trainer_options options,
                             uint64_t budget, uint64_t least, uint64_t seed)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error;
    options.budget_bytes = budget;
    dunlin_trainer_report found = DUNLIN_TRAINER_REPORT_INIT;
    if (dunlin_trainer_estimate(model, &options, &found, &error) == DUNLIN_OK) {
        cr_expect_leq(found.planned_bytes, budget, "seed %llu", (unsigned long long)seed);
        check_budget(model, options, budget, seed);
        return;
    }
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_BUDGET,
                 "seed %llu: a budget of %llu works, the least is said to be %llu",
                 (unsigned long long)seed, (unsigned long long)budget, (unsigned long long)least);
    cr_expect_null(trainer);
    cr_expect_eq(error.needed_bytes, least, "seed %llu: %llu needed, not %llu",
                 (unsigned long long)seed, (unsigned long long)error.needed_bytes,
                 (unsigned long long)least);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_BUDGET);
    cr_expect_eq(error.needed_bytes, least);
}

static void check_exactness(const dunlin_model *model, const dunlin_trainer_options *options,
                            uint64_t seed)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error;
    cr_assert_eq(dunlin_trainer_estimate(model, options, &report, &error), DUNLIN_OK, "%s",
                 error.text);
    const uint64_t least = report.least_budget_bytes;
    check_budget(model, *options, 0, seed);
    check_budget(model, *options, least, seed);
    check_budget(model, *options, least + 1, seed);
    check_budget(model, *options, least + least / 7, seed);
    check_budget(model, *options, report.planned_bytes + least, seed);
    expect_too_small(model, *options, least - 1, least, seed);
    expect_too_small(model, *options, least / 2, least, seed);
    expect_too_small(model, *options, 1, least, seed);
}

Test(least, the_least_is_exact_for_random_nets, .timeout = 900)
{
    uint64_t rng = test_seed(77001);
    const uint64_t seed = rng;
    for (int i = 0; i < test_cases(24); i++) {
        dunlin_model *model = test_random_model(&rng, i % 3 == 2);
        dunlin_trainer_options options = test_options(1 + (int64_t)test_random_below(&rng, 12));
        if (i % 4 == 1) {
            options.policy = DUNLIN_POLICY_POOL;
        }
        check_exactness(model, &options, seed);
        dunlin_model_destroy(model);
    }
}

Test(least, the_least_is_exact_for_lenet5)
{
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    const dunlin_trainer_options options = test_options(16);
    check_exactness(model, &options, 0);
    dunlin_model_destroy(model);
}

/* Making a trainer that fits does not look for the least; asking for it changes nothing else.
 * So many samples that tensors, not planning them, make the least. */
Test(least, the_least_is_looked_for_where_it_is_asked_for)
{
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("tiny_bn", NULL, NULL, &model, NULL), DUNLIN_OK);
    dunlin_trainer_options options = test_options(96);
    dunlin_trainer_report asked = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &asked, NULL), DUNLIN_OK);
    const uint64_t least = asked.least_budget_bytes;
    cr_assert_gt(least, 0);
    cr_assert_lt(least, asked.planned_bytes);
    for (uint64_t part = 1; part <= 3; part++) {
        options.budget_bytes = least + (asked.planned_bytes - least) / 3 * part;
        dunlin_trainer_report estimated = DUNLIN_TRAINER_REPORT_INIT;
        cr_assert_eq(dunlin_trainer_estimate(model, &options, &estimated, NULL), DUNLIN_OK);
        dunlin_trainer *trainer = test_create(model, &options);
        const dunlin_trainer_report report = budget_report_of(trainer);
        cr_expect_eq(report.least_budget_bytes, 0);
        cr_expect_eq(estimated.least_budget_bytes, least);
        cr_expect_eq(report.planned_bytes, estimated.planned_bytes);
        cr_expect_eq(report.n_recomputed, estimated.n_recomputed);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

Test(least, the_least_is_not_above_a_budget_that_works)
{
    dunlin_model *model = NULL; /* one whose search for the least takes more than a plan */
    cr_assert_eq(dunlin_model_from_zoo("tiny_bn", NULL, NULL, &model, NULL), DUNLIN_OK);
    for (int64_t batch = 1; batch <= 64; batch *= 4) {
        dunlin_trainer_options options = test_options(batch);
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
        for (uint64_t part = 16, unit = report.least_budget_bytes / 20; part <= 24; part += 2) {
            options.budget_bytes = unit * part;
            const dunlin_status status = dunlin_trainer_estimate(model, &options, &report, NULL);
            cr_expect(status == DUNLIN_BUDGET || report.least_budget_bytes <= options.budget_bytes);
        }
    }
    dunlin_model_destroy(model);
}

/* Nor do plans exist well below it: networks whose least takes little to find, and much. */
Test(least, no_plan_is_far_below_the_least)
{
    static const char *const names[] = {"tiny_bn", "cnn_bn", "lenet5", "har_mlp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        dunlin_model *model = NULL;
        cr_assert_eq(dunlin_model_from_zoo(names[i], NULL, NULL, &model, NULL), DUNLIN_OK);
        dunlin_trainer_options options = test_options(16);
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
        const uint64_t least = report.least_budget_bytes;
        for (uint64_t part = 10; part < 16; part++) {
            options.budget_bytes = least / 16 * part;
            cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_BUDGET,
                         "%s: %llu bytes work, the least is said to be %llu", names[i],
                         (unsigned long long)options.budget_bytes, (unsigned long long)least);
        }
        dunlin_model_destroy(model);
    }
}

/* A long chain over two features: its tables, and what planning it takes, outweigh the arena. */
Test(least, planning_itself_stays_within_the_budget)
{
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value end = dunlin_builder_input(builder, "x", &(dunlin_shape){1, {2}});
    for (int i = 0; i < 1000; i++) {
        end = dunlin_builder_relu6(builder, end);
    }
    end = dunlin_builder_dense(builder, "fc", end, 2);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, NULL), DUNLIN_OK);
    const dunlin_trainer_options options = test_options(2);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    cr_expect_gt(report.least_budget_bytes, report.planned_bytes);
    check_exactness(model, &options, 0);
    dunlin_model_destroy(model);
}

/* Tables depend on the plan, by more than what a plan leaves open: the next one has to be lower all
 * the same, or there is none but the least. */
Test(least, what_is_given_is_used)
{
    const dunlin_zoo_options sizes = {
        .struct_size = sizeof(dunlin_zoo_options), .image = 32, .classes = 10};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("mobilenet_v2", &sizes, NULL, &model, NULL), DUNLIN_OK);
    dunlin_trainer_options options = test_options(32);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error = {.status = DUNLIN_OK};
    options.policy = DUNLIN_POLICY_WHOLE;
    options.budget_bytes = 1;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_BUDGET);
    const uint64_t least = error.needed_bytes;
    options.budget_bytes = 0;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_OK);
    const uint64_t most = report.planned_bytes;
    for (uint64_t i = 1; i < 16; i++) {
        options.budget_bytes = least + (most - least) / 16 * i;
        cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_OK);
        cr_expect_gt(report.planned_bytes, least + (most - least) / 32 * (2 * i - 2),
                     "%llu of %llu bytes", (unsigned long long)report.planned_bytes,
                     (unsigned long long)options.budget_bytes);
    }
    dunlin_model_destroy(model);
}
