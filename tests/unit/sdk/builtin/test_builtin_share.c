/*
 * test_builtin_share.c - our trainer as a learner: which part of its work it tells.
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
