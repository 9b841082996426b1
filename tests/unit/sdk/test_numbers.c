/*
 * test_numbers.c - numbers from outside the client: what a learner reports and answers, and the
 * app's clocks. Each is judged where it comes in: a status and a text of its own, an abort, and no
 * training that is repeated at once.
 */
#include "client/in_world.h"

#include <math.h>
#include <stdlib.h>

#define NUMBERS_TEST(name) WORLD_TEST(numbers, name)

/* --- what a learner reports --- */

static void loss_nan(dunlin_learner_report *report)
{
    report->loss = NAN;
}

static void loss_infinite(dunlin_learner_report *report)
{
    report->loss = -INFINITY;
}

static void loss_huge(dunlin_learner_report *report)
{
    report->loss = 1e31;
}

static void accuracy_nan(dunlin_learner_report *report)
{
    report->accuracy = NAN;
}

static void accuracy_in_percent(dunlin_learner_report *report)
{
    report->accuracy = 57.0;
}

static void accuracy_negative(dunlin_learner_report *report)
{
    report->accuracy = -0.1;
}

static void examples_negative(dunlin_learner_report *report)
{
    report->n_examples = -40;
}

static void examples_huge(dunlin_learner_report *report)
{
    report->n_examples = INT64_MAX;
}

static void examples_none(dunlin_learner_report *report)
{
    report->n_examples = 0;
}

static void steps_negative(dunlin_learner_report *report)
{
    report->n_steps = -1;
}

static void steps_huge(dunlin_learner_report *report)
{
    report->n_steps = (INT64_C(1) << 40) + 1;
}

static const struct {
    void (*edit_fn)(dunlin_learner_report *report);
    dunlin_status wanted;
    const char *says;
} REPORTS[] = {{loss_nan, DUNLIN_NUMERIC, "a loss of "},
               {loss_infinite, DUNLIN_NUMERIC, "a loss of -inf, which is not finite"},
               {loss_huge, DUNLIN_DATA, "a loss of 1e+31; it must be -1e+30 to 1e+30"},
               {accuracy_nan, DUNLIN_NUMERIC, "an accuracy of "},
               {accuracy_in_percent, DUNLIN_DATA, "an accuracy of 57; it must be 0 to 1"},
               {accuracy_negative, DUNLIN_DATA, "an accuracy of -0.1"},
               {examples_negative, DUNLIN_DATA, "-40 examples"},
               {examples_huge, DUNLIN_DATA, "9223372036854775807 examples"},
               {examples_none, DUNLIN_DATA, "0 examples; it must be 1 to 1099511627776"},
               {steps_negative, DUNLIN_DATA, "-1 steps"},
               {steps_huge, DUNLIN_DATA, "1099511627777 steps"}};
#define N_REPORTS (sizeof REPORTS / sizeof REPORTS[0])

/* The round ends with its own words, the server hears of it, nothing goes up, and the next training
 * is 10 s and more away. */
static void expect_refused(dunlin_status wanted, const char *says)
{
    int n_aborts = w.server.n_aborts;
    int n_fits = w.learner.n_fits;
    (void)run(wanted, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, says), "%s",
                       dunlin_client_last_error(w.client)->text);
    cr_expect_eq(w.server.n_aborts, n_aborts + 1, "%s", says);
    cr_expect_eq(w.server.last_abort.reason, DUNLIN_V1_ABORT_REASON_TRAINING);
    cr_expect_eq(w.server.last_abort.status, wanted);
    cr_expect_eq(w.server.n_contributions, 0);
    cr_expect_leq(w.learner.n_fits - n_fits, w.learner.n_slices, "%s", says);
    cr_expect_geq(dunlin_client_wait_ms(w.client), 5000, "%s", says);
    expect_no_files();
    w.server.now_ms += dunlin_client_wait_ms(w.client);
}

static void try_reports(void)
{
    for (size_t i = 0; i < N_REPORTS; i++) {
        w.learner.edit_report_fn = REPORTS[i].edit_fn;
        expect_refused(REPORTS[i].wanted, REPORTS[i].says);
    }
    w.learner.edit_report_fn = NULL;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

NUMBERS_TEST(of_a_training)
{
    try_reports();
}

NUMBERS_TEST(of_an_evaluation)
{
    w.server.is_evaluation = true;
    try_reports();
}

/* Those before the training are judged before it begins. */
NUMBERS_TEST(of_the_evaluations_around_a_training)
{
    w.server.plan.evaluates = true;
    for (size_t i = 0; i < N_REPORTS; i++) {
        int n_fits = w.learner.n_fits;
        w.learner.edit_report_fn = REPORTS[i].edit_fn;
        expect_refused(REPORTS[i].wanted, REPORTS[i].says);
        cr_expect_eq(w.learner.n_fits, n_fits);
    }
}

/* --- what a learner answers --- */

NUMBERS_TEST(an_answer_that_is_no_status)
{
    static const int ANSWERS[] = {7, -5, -1000, 12345};
    for (size_t i = 0; i < sizeof ANSWERS / sizeof ANSWERS[0]; i++) {
        char says[32];
        (void)snprintf(says, sizeof says, "%d, which is no status", ANSWERS[i]);
        w.learner.fit_status = (dunlin_status)ANSWERS[i];
        expect_refused(DUNLIN_CALLBACK, says);
        w.learner.fit_status = DUNLIN_OK;
        w.learner.load_status = (dunlin_status)ANSWERS[i];
        expect_refused(DUNLIN_CALLBACK, says);
        w.learner.load_status = DUNLIN_OK;
    }
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

/* It was loaded and asked again at once, without end. */
NUMBERS_TEST(a_stop_that_nobody_asked_for)
{
    w.learner.fit_status = DUNLIN_STOPPED;
    expect_refused(DUNLIN_CALLBACK, "nobody asked it to stop");
    cr_expect_eq(w.learner.n_fits, 1);
    w.learner.fit_status = DUNLIN_OK;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

/* --- clocks --- */

Test(numbers, between_two_readings_of_a_clock)
{
    cr_expect_eq(dunlin__ms_between(5, 12), 7);
    cr_expect_eq(dunlin__ms_between(12, 5), -7);
    cr_expect_eq(dunlin__ms_between(-3, INT64_MAX), INT64_MAX);
    cr_expect_eq(dunlin__ms_between(3, INT64_MIN), INT64_MIN);
    cr_expect_eq(dunlin__ms_between(INT64_MIN, INT64_MAX), INT64_MAX);
    cr_expect_eq(dunlin__ms_between(INT64_MIN, INT64_MIN), 0);
    cr_expect_eq(dunlin__ms_passed(12, 5), 0);
    cr_expect_eq(dunlin__ms_passed(INT64_MIN, INT64_MAX), INT64_MAX);
    dunlin__moment far = {.wall_ms = INT64_MIN};
    dunlin__moment now = {.wall_ms = INT64_MAX};
    cr_expect_eq(dunlin__wait_left_ms(&far, 1000, &now), 0);
    cr_expect_eq(dunlin__wait_left_ms(&now, 1000, &far), 1000);
}

/* A clock that goes back while the learner works: no time has passed, and the commit says so. */
NUMBERS_TEST(a_clock_that_goes_back_while_training)
{
    w.learner.clock = &w.server;
    w.learner.slice_ms = -400000;
    dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.train_ms, 0);
    cr_expect_eq(report.learn_ms, 0);
    cr_expect_eq(report.total_ms, 0);
}

/* One that jumps two years on: more than a message can say. */
NUMBERS_TEST(a_clock_that_jumps_while_training)
{
    w.server.is_evaluation = true;
    w.learner.n_slices = 1;
    w.learner.clock = &w.server;
    w.learner.slice_ms = 2LL * 366 * 24 * 3600 * 1000;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_LATE);
    cr_expect_eq(w.server.n_aborts, 1);
    w.learner.slice_ms = 0;
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}
