/*
 * test_budget.c - the byte budget: a hard line, slices, and no allocation in a step.
 */
#include "budget_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

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
    options.budget_bytes = whole.planned_bytes * 3 / 4;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &sliced, NULL), DUNLIN_OK);
    cr_expect_lt(sliced.micro_batch, 32);
    cr_expect_gt(sliced.micro_batch, 1);
    cr_expect_leq(sliced.planned_bytes, options.budget_bytes);
    cr_expect_eq(sliced.n_loops, 2);
    dunlin_model_destroy(model);
}

/* More bytes than 32 bits hold: plans are made by such a budget everywhere, and where addresses
 * have no more bits an arena of so many is refused, by its size and the limit. */
Test(budget, above_4_gib)
{
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    dunlin_trainer_options options = test_options(1 << 20);
    options.budget_bytes = UINT64_C(6) << 30;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_leq(report.planned_bytes, options.budget_bytes);
    cr_expect_gt(report.planned_bytes, UINT64_C(4) << 30);
    dunlin_trainer *trainer = NULL;
#if UINTPTR_MAX == UINT32_MAX
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_MEMORY);
    cr_expect_null(trainer);
    cr_expect_not_null(strstr(error.text, "limit is 2147483647 bytes"), "%s", error.text);
#endif
    options.batch = 32;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* So many samples that tensors, not planning them, make the least. */
Test(budget, batch_norm_couples_the_batch)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(96);
    options.budget_bytes = 1000;
    options.policy = DUNLIN_POLICY_RECOMPUTE;
    options.baselines = dunlin_baselines_published();
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
    dunlin_trainer *trainer = budget_create_counted(model, &options, &counter);
    budget_run_steps(trainer, model, 8);
    const uint64_t n_allocs = counter.n_allocs;
    const uint64_t n_frees = counter.n_frees;
    const size_t heap = heap_bytes();
    budget_run_steps(trainer, model, 8);
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
    dunlin_trainer *trainer = budget_create_counted(model, &options, &counter);
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
        cr_assert_eq(failure.counter.now_bytes, 0,
                     "allocation %llu fails and something is not freed", (unsigned long long)n);
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
    budget_run_steps(trainer, model, 8);
    cr_expect_lt(budget_report_of(trainer).micro_batch, 8);
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
        options.baselines = dunlin_baselines_published();
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
