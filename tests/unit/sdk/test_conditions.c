/*
 * test_conditions.c - rounds in which a condition of the device fails, for a while or permanently.
 */
#include "client/in_world.h"

#include <math.h>

static dunlin_conditions conditions = {.struct_size = sizeof conditions,
                                       .is_charging = true,
                                       .is_unmetered = true,
                                       .is_idle = true,
                                       .n_examples = 40};

static int n_held; /* polls that are answered with power before it is gone, */
static int n_gone; /* and without it before it is back */

static bool lose_power(void *ctx, dunlin_conditions *out)
{
    (void)ctx;
    *out = conditions;
    out->is_charging = n_held > 0 || n_gone <= 0;
    n_gone -= n_held > 0 ? 0 : 1;
    n_held -= n_held > 0 ? 1 : 0;
    return true;
}

static void open_without_power(int64_t grace_ms)
{
    w.options.conditions_fn = lose_power;
    w.options.require_charging = true;
    w.options.conditions_grace_ms = grace_ms;
    fake_world_close(&w);
    fake_world_open(&w);
    n_gone = 1000000;
}

WORLD_TEST(conditions, conditions_that_end_end_the_round)
{
    open_without_power(-1);
    n_held = 0;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_NOT_ELIGIBLE);
    cr_expect_eq(w.server.n_exchanges, 0);
    for (int i = 2; i < 9; i++) {
        n_held = i;
        w.server.now_ms += 5000;
        const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_NOT_ELIGIBLE);
        cr_expect_eq(report.suspended_ms, 0);
        cr_expect_eq(w.server.n_aborts, i - 1);
        cr_expect_eq(w.server.last_abort.reason, DUNLIN_V1_ABORT_REASON_CONDITIONS);
    }
    cr_expect_eq(w.server.n_contributions, 0);
    expect_no_files();
}

/* Whatever the round is doing, it is suspended while they do not hold, and continues when they do.
 */
WORLD_TEST(conditions, conditions_that_come_back_in_time_cost_nothing)
{
    open_without_power(0);
    for (int i = 2; i < 9; i++) {
        n_held = i;
        n_gone = 20;
        const int n_aborts = w.server.n_aborts;
        const int n_loads = w.learner.n_loads;
        w.server.now_ms += 5000;
        const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect_eq(w.server.n_aborts, n_aborts);
        cr_expect_eq(w.learner.n_loads, n_loads + 1, "the training began anew");
        cr_expect(report.suspended_ms > 0 && report.suspended_ms < 30000, "%lld ms",
                  (long long)report.suspended_ms);
        w.server.round++;
    }
    cr_expect_eq(w.server.n_contributions, 7);
}

WORLD_TEST(conditions, a_suspended_round_sends_and_trains_nothing)
{
    open_without_power(60000);
    n_held = 3;
    int64_t wait_ms = 0;
    bool is_ended = false;
    while (wait_ms == 0 && !is_ended) {
        cr_assert_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, NULL), DUNLIN_OK);
    }
    const int n_exchanges = w.server.n_exchanges;
    const int n_loads = w.learner.n_loads;
    const int64_t begun_ms = w.server.now_ms;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    while (!is_ended && w.server.now_ms - begun_ms < 59000) {
        cr_assert_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, &report), DUNLIN_OK);
        w.server.now_ms += wait_ms;
    }
    cr_expect_not(is_ended);
    cr_expect_eq(w.server.n_exchanges, n_exchanges);
    cr_expect_eq(w.learner.n_loads, n_loads);
    while (!is_ended) {
        cr_assert_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, &report), DUNLIN_OK);
        w.server.now_ms += wait_ms;
    }
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_NOT_ELIGIBLE);
    cr_expect_geq(report.suspended_ms, 60000);
    cr_expect_eq(w.server.last_abort.reason, DUNLIN_V1_ABORT_REASON_CONDITIONS);
}

/* The deadline of the round does not wait for the device. */
WORLD_TEST(conditions, a_round_may_be_suspended_until_its_deadline)
{
    w.options.round_timeout_ms = 20000;
    open_without_power(60000);
    n_held = 3;
    const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_LATE);
    cr_expect(report.suspended_ms > 0 && report.suspended_ms <= 21000);
}

static bool lose_power_behind_the_upload(void *ctx, dunlin_conditions *out)
{
    (void)ctx;
    *out = conditions;
    out->is_charging = w.client->session.phase != DUNLIN_PHASE_COMMIT;
    return true;
}

/* It may have counted already, and is a few hundred bytes. */
WORLD_TEST(conditions, a_commit_does_not_wait_for_conditions)
{
    w.options.conditions_grace_ms = -1;
    w.options.require_charging = true;
    w.options.conditions_fn = lose_power_behind_the_upload;
    fake_world_close(&w);
    fake_world_open(&w);
    const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(report.suspended_ms, 0);
    cr_expect_eq(w.server.n_contributions, 1);
}

/* A counter of the app's: two joules from call to call, or from some call on no word. */
static double used_j;
static int n_words;

static double count_joules(void *ctx)
{
    (void)ctx;
    used_j += 2.0;
    return n_words-- > 0 ? used_j : (double)NAN;
}

WORLD_TEST(conditions, energy_of_a_round_is_that_of_its_learning)
{
    cr_expect_not(run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED).has_energy, "there is no counter");
    w.options.energy_fn = count_joules;
    fake_world_close(&w);
    fake_world_open(&w);
    for (int i = 0; i < 3; i++) {
        w.server.round++;
        w.server.now_ms += 5000;
        n_words = i == 1 ? 1 : 1000;
        const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect_eq(report.has_energy, i != 1, "round %d", i);
        cr_expect(i == 1 ? !(report.energy_j > 0.0) : report.energy_j >= 2.0, "%g J",
                  report.energy_j);
    }
}
