/*
 * in_world.h - tests of whole rounds within a world of a fake server and a fake learner, checked at
 * its end. Each file of a test program has its own world.
 */
#ifndef DUNLIN_TESTS_IN_WORLD_H
#define DUNLIN_TESTS_IN_WORLD_H

#include "fake_server.h"

#include <criterion/criterion.h>

#include <string.h>

static fake_world w;

static void setup(void)
{
    fake_world_make(&w);
    fake_world_open(&w);
}

static void teardown(void)
{
    fake_world_close(&w);
    cr_expect_str_eq(w.server.complaint, "");
    cr_expect_eq(w.learner.n_loads, w.learner.n_unloads);
    fake_folder_remove(w.folder);
}

/* A test within a world that is judged at its end; Criterion's own finishing hook cannot fail a
 * test.
 */
#define WORLD_TEST(suite, name)                                                                    \
    static void in_world_##name(void);                                                             \
    Test(suite, name)                                                                              \
    {                                                                                              \
        setup();                                                                                   \
        in_world_##name();                                                                         \
        teardown();                                                                                \
    }                                                                                              \
    static void in_world_##name(void)

static dunlin_round_report run(dunlin_status wanted, dunlin_outcome outcome)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    dunlin_status status = dunlin_client_run_round(w.client, &report);
    cr_assert_eq(status, wanted, "%s, not %s: %s", dunlin_status_name(status),
                 dunlin_status_name(wanted), dunlin_client_last_error(w.client)->text);
    cr_assert_eq(report.outcome, outcome, "%s, not %s", dunlin_outcome_name(report.outcome),
                 dunlin_outcome_name(outcome));
    if (wanted != DUNLIN_OK) {
        const dunlin_error *error = dunlin_client_last_error(w.client);
        cr_assert_eq(error->status, wanted, "detail has %s: %s", dunlin_status_name(error->status),
                     error->text);
        cr_assert_neq(error->text[0], '\0');
        cr_assert_null(strchr(error->text, '\n'));
    }
    return report;
}

/* Only the database stays: 1 file, or 3 with its log. */
static inline void expect_no_files(void)
{
    cr_expect_leq(fake_folder_count(w.folder), 3);
}

#endif
