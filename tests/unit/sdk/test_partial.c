/*
 * test_partial.c - part of a round's training: it ends when its share of the deadline is over, and
 * counts for what was done.
 */
#include "client/in_world.h"

#define PARTIAL_TEST(name) WORLD_TEST(partial, name)

/* Of eight slices, each a step of 10 s. */
#define SLICES 8
#define SLICE_MS 10000

static void tell_share(dunlin_learner_report *report)
{
    report->done_share = (double)report->n_steps / SLICES;
}

static void tell_too_much(dunlin_learner_report *report)
{
    report->done_share = 1.5;
}

/* Half of 100 s. */
static void want_half(void)
{
    w.learner.clock = &w.server;
    w.learner.slice_ms = SLICE_MS;
    w.learner.n_slices = SLICES;
    w.learner.n_examples = 100;
    w.learner.edit_report_fn = tell_share;
    w.server.deadline_ms = 100000;
    w.server.plan.partial_share = 0.5F;
}

PARTIAL_TEST(a_slow_device_does_what_it_can)
{
    want_half();
    const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.n_fits, 5);
    cr_expect_eq(w.server.commit.n_steps, 5);
    cr_expect_eq(w.server.commit.n_examples, 62, "5/8 of 100, rounded down");
    cr_expect_eq(report.n_examples, 62);
    cr_expect_eq(w.learner.n_unloads, 1);
    const int64_t ms = w.learner.task.partial_ms;
    cr_expect(ms > 40000 && ms <= 50000, "%lld ms", (long long)ms);
    for (int64_t i = 0; i < FAKE_VALUES; i += 997) {
        cr_assert(w.server.update[i] == fake_learner_update(&w.learner, &w.server, i));
    }
}

PARTIAL_TEST(one_that_is_in_time_does_all)
{
    want_half();
    w.learner.slice_ms = 1000;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.n_fits, SLICES);
    cr_expect_eq(w.server.commit.n_examples, 100);
}

PARTIAL_TEST(what_begins_too_late_does_a_step)
{
    want_half();
    w.server.exchange_ms = 13000; /* accept, then what is fetched: more than 50 s */
    w.server.deadline_ms = 1000000;
    w.server.plan.partial_share = 0.01F;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.n_fits, 1);
    cr_expect_eq(w.learner.task.partial_ms, 1);
    cr_expect_eq(w.server.commit.n_examples, 12);
}

PARTIAL_TEST(a_learner_that_tells_no_share_is_not_cut)
{
    want_half();
    w.learner.edit_report_fn = NULL;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.n_fits, SLICES);
    cr_expect_eq(w.server.commit.n_examples, 100);
}

PARTIAL_TEST(without_the_order_nothing_is_cut)
{
    want_half();
    w.server.plan.partial_share = 0.0F;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.n_fits, SLICES);
    cr_expect_eq(w.learner.task.partial_ms, 0);
    cr_expect_eq(w.server.commit.n_examples, 100);
}

/* The evaluation after it is of what was trained, and the weight is not cut twice. */
PARTIAL_TEST(evaluations_go_around_a_part)
{
    want_half();
    w.learner.n_slices = 1; /* of an evaluation, too */
    w.learner.edit_report_fn = tell_share;
    w.server.plan.evaluates = true;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.n_evaluates, 2);
    cr_expect_eq(w.server.commit.n_examples, 12);
}

PARTIAL_TEST(a_share_above_one_is_refused)
{
    want_half();
    w.learner.edit_report_fn = tell_too_much;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    cr_expect_eq(dunlin_client_run_round(w.client, &report), DUNLIN_DATA);
    const char *text = dunlin_client_last_error(w.client)->text;
    cr_expect_not_null(strstr(text, "a share of its work of 1.5; it must be 0 to 1"), "%s", text);
    cr_expect_eq(w.server.n_contributions, 0);
}
