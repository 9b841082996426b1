/*
 * test_budget.c - the byte budget: a hard line, an exact least, and no allocation in a step.
 */
#include "random.h"
#include "step_support.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* A trainer whose tables and arena both come from a counter of the test. */
static dunlin_trainer *create_counted(const dunlin_model *model, dunlin_trainer_options *options,
                                      dunlin_alloc_counter *counter)
{
    dunlin_alloc_counter_init(counter, NULL);
    options->alloc = counter->hooks;
    return test_create(model, options);
}

static void run_steps(dunlin_trainer *trainer, const dunlin_model *model, int64_t batch)
{
    test_source source;
    test_source_init(&source, model, 3 * batch, DUNLIN_F32);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 2 * batch, NULL), DUNLIN_OK);
}

static dunlin_trainer_report report_of(const dunlin_trainer *trainer)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    return report;
}

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
    dunlin_trainer *trainer = create_counted(model, &options, &counter);
    run_steps(trainer, model, options.batch);
    const dunlin_trainer_report report = report_of(trainer);
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

Test(budget, the_least_is_exact_for_random_nets, .timeout = 900)
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

Test(budget, the_least_is_exact_for_lenet5)
{
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    const dunlin_trainer_options options = test_options(16);
    check_exactness(model, &options, 0);
    dunlin_model_destroy(model);
}

/* Making a trainer that fits does not look for the least; asking for it changes nothing else.
 * So many samples that tensors, not planning them, make the least. */
Test(budget, the_least_is_looked_for_where_it_is_asked_for)
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
        const dunlin_trainer_report report = report_of(trainer);
        cr_expect_eq(report.least_budget_bytes, 0);
        cr_expect_eq(estimated.least_budget_bytes, least);
        cr_expect_eq(report.planned_bytes, estimated.planned_bytes);
        cr_expect_eq(report.n_recomputed, estimated.n_recomputed);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

Test(budget, the_least_is_not_above_a_budget_that_works)
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
Test(budget, no_plan_is_far_below_the_least)
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
Test(budget, planning_itself_stays_within_the_budget)
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

Test(budget, a_smaller_budget_makes_slices)
{
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    dunlin_trainer_options options = test_options(32);
    dunlin_trainer_report whole = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_report sliced = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &whole, NULL), DUNLIN_OK);
    cr_expect_eq(whole.micro_batch, 32);
    cr_expect_eq(whole.peak_bytes, 0, "an estimate has touched nothing");
    options.budget_bytes = whole.planned_bytes * 2 / 3;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &sliced, NULL), DUNLIN_OK);
    cr_expect_lt(sliced.micro_batch, 32);
    cr_expect_gt(sliced.micro_batch, 1);
    cr_expect_leq(sliced.planned_bytes, options.budget_bytes);
    cr_expect_eq(sliced.n_loops, 2);
    dunlin_model_destroy(model);
}

/* Tables depend on the plan, by more than what a plan leaves open: the next one has to be lower all
 * the same, or there is none but the least. */
Test(budget, what_is_given_is_used)
{
    const dunlin_zoo_options sizes = {.image = 32, .classes = 10};
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

/* So many samples that tensors, not planning them, make the least. */
Test(budget, batch_norm_couples_the_batch)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(96);
    options.budget_bytes = 1000;
    options.policy = DUNLIN_POLICY_RECOMPUTE;
    dunlin_trainer *trainer = NULL;
    dunlin_error error;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_BUDGET);
    cr_expect_not_null(strstr(error.text, "batch norm"), "%s", error.text);
    const uint64_t whole_bytes = error.needed_bytes;
    /* Cut into regions, it needs less, and says nothing of batch norm. */
    options.policy = DUNLIN_POLICY_AUTO;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_BUDGET);
    cr_expect_null(strstr(error.text, "batch norm"), "%s", error.text);
    cr_expect_gt(error.needed_bytes, 1000);
    cr_expect_lt(error.needed_bytes, whole_bytes);
    options.budget_bytes = error.needed_bytes;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_gt(report.n_regions, 1);
    cr_expect_lt(report.least_micro_batch, 96);
    options.budget_bytes = 0;
    options.policy = DUNLIN_POLICY_MICROBATCH;
    options.micro_batch = 4;
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_UNSUPPORTED);
    /* Frozen, it is a plain map. */
    options.freeze_batch_norm = true;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* Allocations of the whole process, by glibc's own account; elsewhere the counter must do. */
static size_t heap_bytes(void)
{
#ifdef __GLIBC__
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

Test(budget, a_step_allocates_nothing)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(8);
    options.n_threads = 2;
    dunlin_alloc_counter counter;
    dunlin_trainer *trainer = create_counted(model, &options, &counter);
    run_steps(trainer, model, 8);
    const uint64_t n_allocs = counter.n_allocs;
    const uint64_t n_frees = counter.n_frees;
    const size_t heap = heap_bytes();
    run_steps(trainer, model, 8);
    float logits[8 * 4];
    test_source source;
    test_source_init(&source, model, 8, DUNLIN_U8);
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, 8, logits), DUNLIN_OK);
    cr_expect_eq(counter.n_allocs, n_allocs);
    cr_expect_eq(counter.n_frees, n_frees);
    cr_expect_eq(heap_bytes(), heap);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(budget, a_failed_allocation_is_a_clean_error)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(4);
    dunlin_alloc_counter counter;
    dunlin_trainer *trainer = create_counted(model, &options, &counter);
    const uint64_t n_allocs = counter.n_allocs;
    dunlin_trainer_destroy(trainer);
    cr_assert_gt(n_allocs, 10);
    for (uint64_t limit = 0; limit < counter.peak_bytes; limit += 1 + counter.peak_bytes / 150) {
        dunlin_alloc_counter_init(&counter, NULL);
        counter.limit_bytes = limit + 1;
        options.alloc = counter.hooks;
        dunlin_error error;
        const dunlin_status status = dunlin_trainer_create(model, &options, &trainer, &error);
        cr_assert_eq(status, DUNLIN_MEMORY, "with %llu bytes: %s", (unsigned long long)limit,
                     error.text);
        cr_assert_null(trainer);
        cr_assert_eq(counter.now_bytes, 0, "with %llu bytes something is left",
                     (unsigned long long)limit);
        dunlin_alloc_counter_init(&counter, NULL);
    }
    dunlin_model_destroy(model);
}

/* Fails the n-th call. */
typedef struct nth_failure {
    dunlin_alloc_counter counter;
    uint64_t fails_at;
} nth_failure;

static void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    nth_failure *failure = ctx;
    if (failure->counter.n_allocs == failure->fails_at) {
        failure->fails_at = UINT64_MAX;
        return NULL;
    }
    return failure->counter.hooks.alloc_fn(failure->counter.hooks.ctx, bytes, align);
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    nth_failure *failure = ctx;
    failure->counter.hooks.free_fn(failure->counter.hooks.ctx, memory, bytes);
}

Test(budget, the_nth_allocation_fails)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(4);
    for (uint64_t n = 0;; n++) {
        nth_failure failure = {.fails_at = n};
        dunlin_alloc_counter_init(&failure.counter, NULL);
        options.alloc =
            (dunlin_alloc){.ctx = &failure, .alloc_fn = failing_alloc, .free_fn = failing_free};
        dunlin_trainer *trainer = NULL;
        dunlin_error error;
        const dunlin_status status = dunlin_trainer_create(model, &options, &trainer, &error);
        if (failure.fails_at != UINT64_MAX) {
            cr_assert_eq(status, DUNLIN_OK);
            cr_assert_gt(n, 20);
            dunlin_trainer_destroy(trainer);
            break;
        }
        cr_assert_eq(status, DUNLIN_MEMORY, "allocation %llu: %s", (unsigned long long)n,
                     error.text);
        cr_assert_null(trainer);
        cr_assert_eq(failure.counter.now_bytes, 0, "allocation %llu leaves something behind",
                     (unsigned long long)n);
    }
    dunlin_model_destroy(model);
}

Test(budget, a_slab_is_enough_or_is_refused)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(8);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    void *slab = NULL;
    cr_assert_eq(posix_memalign(&slab, 64, report.planned_bytes), 0);
    options.slab = slab;
    options.slab_bytes = 64;
    dunlin_error error;
    dunlin_trainer *trainer = NULL;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_BUDGET);
    /* Exactly what it names works, in slices. */
    options.slab_bytes = error.needed_bytes;
    cr_expect_lt(options.slab_bytes, report.planned_bytes - report.by_class.tables);
    trainer = test_create(model, &options);
    run_steps(trainer, model, 8);
    cr_expect_lt(report_of(trainer).micro_batch, 8);
    dunlin_trainer_destroy(trainer);
    free(slab);
    dunlin_model_destroy(model);
}

static void check_max_batch(const dunlin_model *model, dunlin_trainer_options options)
{
    options.max_ratio = (double)INFINITY;
    int64_t batch = 0;
    bool is_unbounded = true;
    dunlin_error error;
    cr_assert_eq(dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_not(is_unbounded);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    options.batch = batch;
    cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_OK, "%s",
                 error.text);
    options.batch = batch + 1;
    cr_expect_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_BUDGET,
                 "batch %lld works too", (long long)options.batch);
}

/* Several budgets at once give what one by one do. */
static void check_max_batches(const dunlin_model *model, dunlin_trainer_options options)
{
    static const uint64_t budgets[] = {2700000, 100, 300000, 500000, 1100000};
    enum { N = sizeof budgets / sizeof budgets[0] };
    int64_t batches[N] = {0};
    uint64_t least = 0;
    dunlin_error error;
    options.budget_bytes = 77; /* not looked at */
    cr_assert_eq(dunlin_trainer_max_batches(model, &options, budgets, N, batches, &least, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_gt(least, 100);
    for (size_t i = 0; i < N; i++) {
        int64_t batch = 0;
        bool is_unbounded = false;
        options.budget_bytes = budgets[i];
        const dunlin_status status =
            dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error);
        cr_expect_eq(batches[i],
                     status == DUNLIN_BUDGET ? 0
                     : is_unbounded          ? INT64_MAX
                                             : batch,
                     "budget %llu: %lld", (unsigned long long)budgets[i], (long long)batches[i]);
        cr_expect_eq(status == DUNLIN_BUDGET, budgets[i] < least);
    }
}

Test(budget, the_largest_batch_at_any_price)
{
    dunlin_model *bn_model = test_small_model(true);
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(1);
    options.max_ratio = (double)INFINITY;
    for (uint64_t budget = 320000; budget < 5000000; budget *= 3) {
        options.budget_bytes = budget;
        options.policy = DUNLIN_POLICY_RECOMPUTE;
        check_max_batch(bn_model, options);
        options.policy = DUNLIN_POLICY_AUTO;
        for (int i = 0; i < 2; i++) {
            int64_t batch = 0;
            bool is_unbounded = false;
            cr_assert_eq(dunlin_trainer_max_batch(i == 0 ? model : bn_model, &options, &batch,
                                                  &is_unbounded, NULL),
                         DUNLIN_OK);
            cr_expect(is_unbounded);
        }
    }
    check_max_batches(bn_model, options);
    check_max_batches(model, options);
    options.policy = DUNLIN_POLICY_POOL;
    check_max_batch(model, options);
    check_max_batches(model, options);
    options.budget_bytes = 100;
    int64_t batch = 0;
    bool is_unbounded = false;
    dunlin_error error;
    cr_expect_eq(dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error),
                 DUNLIN_BUDGET);
    cr_expect_gt(error.needed_bytes, 100);
    dunlin_model_destroy(bn_model);
    dunlin_model_destroy(model);
}
