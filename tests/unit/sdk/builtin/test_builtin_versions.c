/*
 * test_builtin_versions.c - the built-in learner, called by an app that was compiled with
 * yesterday's or tomorrow's header.
 */
#include "builtin_bench.h"

#include <criterion/criterion.h>

#include <stddef.h>
#include <string.h>

typedef struct newer_task {
    dunlin_task now;
    uint64_t wish;
} newer_task;

typedef struct newer_parameters {
    dunlin_task_parameters now;
    uint64_t wish;
} newer_parameters;

typedef struct newer_schedule {
    dunlin_task_schedule now;
    uint64_t wish;
} newer_schedule;

typedef struct newer_report {
    dunlin_learner_report now;
    uint64_t more;
} newer_report;

static dunlin_status load(builtin_bench *b, const dunlin_task *task)
{
    const dunlin_status status = b->learner.ops->load(b->learner.self, task, &b->reader);
    if (status == DUNLIN_OK) {
        b->learner.ops->unload(b->learner.self);
    }
    return status;
}

static void expect_text(const builtin_bench *b, const char *wanted)
{
    const char *text = b->learner.ops->error_text(b->learner.self);
    cr_expect_not_null(strstr(text, wanted), "%s", text);
}

Test(builtin_versions, a_task_of_another_size)
{
    builtin_bench b;
    bench_begin(&b, 1);
    newer_task task = {.now = b.task};
    newer_parameters parameters = {.now = {.struct_size = sizeof parameters}};
    newer_schedule schedule = {.now = {.struct_size = sizeof schedule, .n_rounds = 1}};
    task.now.struct_size = sizeof task;
    task.now.parameters = &parameters.now;
    task.now.schedule = &schedule.now;
    cr_expect_eq(load(&b, &task.now), DUNLIN_OK);
    task.wish = 1;
    cr_expect_eq(load(&b, &task.now), DUNLIN_VERSION);
    expect_text(&b, "a dunlin_task sets");
    task.wish = 0;
    parameters.wish = 1;
    cr_expect_eq(load(&b, &task.now), DUNLIN_VERSION);
    expect_text(&b, "a dunlin_task_parameters sets");
    parameters.wish = 0;
    schedule.wish = 1;
    cr_expect_eq(load(&b, &task.now), DUNLIN_VERSION);
    expect_text(&b, "a dunlin_task_schedule sets");
    schedule.wish = 0;

    /* What lies beyond the end of an older one is not looked at. */
    task.now.gradient_clip_norm = -1.0F;
    parameters.now.n_groups = 9;
    parameters.now.struct_size = offsetof(dunlin_task_parameters, groups);
    task.now.struct_size = offsetof(dunlin_task, remainder);
    cr_expect_eq(load(&b, &task.now), DUNLIN_OK);
    task.now.struct_size = 0;
    cr_expect_eq(load(&b, &task.now), DUNLIN_ARGUMENT);
    expect_text(&b, "DUNLIN_TASK_INIT");
    bench_end(&b);
}

Test(builtin_versions, a_report_of_another_size)
{
    builtin_bench b;
    newer_report report;
    bench_begin(&b, 1);
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    memset(&report, 0xAA, sizeof report);
    report.now.struct_size = sizeof report;
    cr_expect_eq(b.learner.ops->fit(b.learner.self, 0, &report.now), DUNLIN_OK);
    cr_expect_eq(report.now.struct_size, sizeof report);
    cr_expect(report.now.is_done);
    cr_expect_gt(report.now.n_steps, 0);
    cr_expect_eq(report.more, 0);
    memset(&report, 0xAA, sizeof report);
    report.now.struct_size = offsetof(dunlin_learner_report, peak_bytes);
    cr_expect_eq(b.learner.ops->evaluate(b.learner.self, 0, &report.now), DUNLIN_OK);
    cr_expect(report.now.is_done);
    cr_expect_eq(report.now.peak_bytes, 0xAAAAAAAAAAAAAAAAU, "not written beyond its end");
    report.now.struct_size = 0;
    cr_expect_eq(b.learner.ops->fit(b.learner.self, 0, &report.now), DUNLIN_ARGUMENT);
    expect_text(&b, "DUNLIN_LEARNER_REPORT_INIT");
    cr_expect_eq(b.learner.ops->evaluate(b.learner.self, 0, NULL), DUNLIN_ARGUMENT);
    b.learner.ops->unload(b.learner.self);
    bench_end(&b);
}
