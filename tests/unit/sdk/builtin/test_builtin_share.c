/*
 * test_builtin_share.c - our trainer as a learner: which part of its work it tells, and a
 * pool that goes before its learner.
 */
#include "builtin/builtin.h"
#include "builtin_bench.h"

#include <criterion/criterion.h>

/* What a client that cuts a training weighs it by: steps of those that are ordered. */
Test(builtin, tells_which_part_of_its_steps_is_done)
{
    builtin_bench b;
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    bench_begin(&b, 1);
    bench_pause_ms = 2;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    int n_parts = 0;
    do {
        cr_assert_eq(b.learner.ops->fit(b.learner.self, 1, &report), DUNLIN_OK);
        cr_expect_eq(report.done_share, (double)report.n_steps / 21.0);
        n_parts += report.done_share < 1.0 ? 1 : 0;
    } while (!report.is_done);
    cr_expect_eq(report.done_share, 1.0);
    cr_expect_geq(n_parts, 10);
    b.learner.ops->unload(b.learner.self);
    b.task.max_steps = 10;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(b.learner.ops->fit(b.learner.self, 1, &report), DUNLIN_OK);
    cr_expect_eq(report.done_share, (double)report.n_steps / 10.0);
    b.learner.ops->unload(b.learner.self);
    bench_end(&b);
}

/* A pool that goes before its learner goes with it: nothing is lost, and nothing is left. */
Test(builtin, a_pool_that_goes_too_early)
{
    builtin_bench b;
    float found[BENCH_VALUES];
    float expected[BENCH_VALUES];
    dunlin_alloc_counter counter;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_alloc_counter_init(&counter, NULL);
    bench_begin(&b, 1);
    (void)bench_fit_all(&b, 0, expected, NULL);
    dunlin_trainer_pool *first_pool = b.pool;
    dunlin_builtin *first = b.builtin;
    dunlin_source source = first->source;
    source.n_examples = BENCH_EXAMPLES;
    options.alloc = counter.hooks;
    options.batch = first_pool->options.batch;
    cr_assert_eq(dunlin_trainer_pool_create(b.model, &options, 1, &b.pool, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_builtin_create(b.pool, &source, NULL, &b.builtin, &b.learner, NULL),
                 DUNLIN_OK);
    dunlin_trainer_pool_destroy(b.pool);
    (void)bench_fit_all(&b, 0, found, NULL);
    cr_expect(bench_same(found, expected, b.base.n_values));
    cr_expect_gt(counter.now_bytes, 0);
    dunlin_builtin_destroy(b.builtin);
    cr_expect_eq(counter.now_bytes, 0);
    b.pool = first_pool;
    b.builtin = first;
    bench_end(&b);
}
