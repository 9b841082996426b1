/*
 * test_round.c - whole rounds against the fake server: what is sent, how each ends, what a cut, a
 * kill or a spoilt answer does.
 */
#include "client/in_world.h"

#include <float.h>
#include <math.h>
#include <unistd.h>

#define ROUND_TEST(name) WORLD_TEST(round, name)

static void expect_update(void)
{
    for (int64_t i = 0; i < FAKE_VALUES; i++) {
        double wanted = (double)fake_learner_update(&w.learner, &w.server, i);
        cr_assert_float_eq((double)w.server.update[i], wanted, 1e-6 * fabs(wanted), "value %lld",
                           (long long)i);
    }
}

ROUND_TEST(one_is_accepted)
{
    dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_contributions, 1);
    expect_update();
    cr_expect_eq(w.server.commit.n_examples, 40);
    cr_expect_eq(w.server.commit.n_steps, 3);
    cr_expect_eq(report.round, 7);
    cr_expect_eq(report.n_examples, 40);
    cr_expect_eq(report.n_steps, 3);
    cr_expect_eq(report.phase, DUNLIN_PHASE_COMMIT);
    cr_expect_geq(report.body_bytes_received, sizeof w.server.values);
    cr_expect_geq(report.body_bytes_sent, sizeof w.server.update);
    cr_expect(report.retry_after_ms >= 1000 && report.retry_after_ms <= 2000);
    cr_expect_eq(w.learner.task.epochs, 2);
    cr_expect_eq(w.learner.task.batch, 16);
    cr_expect_eq(w.learner.task.seed, 99);
    cr_expect_float_eq(w.learner.task.lr, 0.5F, 0);
    expect_no_files();
}

ROUND_TEST(the_window_is_honoured_and_nothing_is_sent_before)
{
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    int n = w.server.n_exchanges;
    int64_t wait_ms = dunlin_client_wait_ms(w.client);
    dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_TOO_EARLY);
    cr_expect_eq(w.server.n_exchanges, n);
    cr_expect_eq(report.retry_after_ms, wait_ms);
    fake_world_close(&w);
    fake_world_open(&w); /* the moment survives a kill */
    cr_expect_eq(dunlin_client_wait_ms(w.client), wait_ms);
    w.server.now_ms += wait_ms - 1;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_TOO_EARLY);
    cr_expect_eq(w.server.n_exchanges, n);
    w.server.now_ms += 1;
    w.server.round++;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_enrolled, 1);
    cr_expect_eq(w.server.n_contributions, 2);
}

ROUND_TEST(not_selected_waits_the_other_window)
{
    w.server.has_offer = false;
    dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_NOT_SELECTED);
    cr_expect(report.retry_after_ms >= 3000 && report.retry_after_ms <= 4000);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_ACCEPT], 0);
}

ROUND_TEST(evaluation_sends_numbers_and_no_weights)
{
    w.server.is_evaluation = true;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_PUT], 0);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_CHUNK_PUT], 0);
    cr_expect_eq(w.server.commit.kind, DUNLIN_V1_KIND_EVALUATE);
}

ROUND_TEST(whole_weights_when_the_plan_wants_them)
{
    w.server.plan.update_form = DUNLIN_V1_UPDATE_FORM_WEIGHTS;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    for (int64_t i = 0; i < FAKE_VALUES; i++) {
        cr_assert_float_eq(w.server.update[i],
                           w.server.values[i] + fake_learner_update(&w.learner, &w.server, i),
                           1e-5F);
    }
}

ROUND_TEST(the_weight_is_capped)
{
    w.server.plan.weight_cap = 8;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.n_examples, 8);
}

ROUND_TEST(late_and_refused_are_outcomes)
{
    w.server.outcome = DUNLIN_V1_COMMIT_OUTCOME_LATE;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_LATE);
    w.server.now_ms += 5000;
    w.server.outcome = DUNLIN_V1_COMMIT_OUTCOME_GOAL_REACHED;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_LATE);
    w.server.now_ms += 5000;
    w.server.outcome = DUNLIN_V1_COMMIT_OUTCOME_REFUSED;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_REFUSED);
    cr_expect_eq(w.server.n_contributions, 0);
    expect_no_files();
}

ROUND_TEST(past_the_deadline_the_server_is_told)
{
    w.server.deadline_ms = 1000;
    w.learner.clock = &w.server;
    w.learner.slice_ms = 600;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_LATE);
    cr_expect_eq(w.server.n_aborts, 1);
    cr_expect_eq(w.server.last_abort.reason, DUNLIN_V1_ABORT_REASON_DEADLINE);
    expect_no_files();
}

ROUND_TEST(our_own_limit_ends_a_round_too)
{
    w.options.round_timeout_ms = 1000;
    fake_world_close(&w);
    fake_world_open(&w);
    w.learner.clock = &w.server;
    w.learner.slice_ms = 600;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_LATE);
    cr_expect_eq(w.server.n_aborts, 1);
}

ROUND_TEST(a_deadline_ends_a_transfer)
{
    w.server.deadline_ms = 300;
    w.server.exchange_ms = 200;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_LATE);
    cr_expect_eq(w.learner.n_loads, 0);
}

ROUND_TEST(an_older_round_is_refused)
{
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    w.server.now_ms += 5000;
    w.server.round = 6;
    (void)run(DUNLIN_ROLLBACK, DUNLIN_OUTCOME_NONE);
    cr_expect_eq(w.server.n_aborts, 1);
    cr_expect_eq(w.server.last_abort.reason, DUNLIN_V1_ABORT_REASON_REFUSED);
    cr_expect_geq(dunlin_client_wait_ms(w.client), 5000);
    w.server.now_ms += 2 * DUNLIN_RETRY_REFUSED_MOST_MS;
    w.server.run_epoch = 2;
    w.server.round = 100;
    (void)run(DUNLIN_ROLLBACK, DUNLIN_OUTCOME_NONE);
    w.server.now_ms += 2 * DUNLIN_RETRY_REFUSED_MOST_MS;
    w.server.run_epoch = 4;
    w.server.round = 1; /* a newer run begins again */
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

/* --- offers --- */

static dunlin_conditions conditions = {.struct_size = sizeof conditions,
                                       .is_charging = true,
                                       .is_unmetered = true,
                                       .is_idle = true,
                                       .n_examples = 40};

static bool give_conditions(void *ctx, dunlin_conditions *out)
{
    (void)ctx;
    *out = conditions;
    return true;
}

ROUND_TEST(offers_that_do_not_fit_are_declined)
{
    w.options.conditions_fn = give_conditions;
    fake_world_close(&w);
    fake_world_open(&w);
    w.server.policy.min_examples = 41;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_DECLINED);
    w.server.policy.min_examples = 40;
    w.server.now_ms += 5000;
    w.server.required_feature = 77;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_DECLINED);
    w.server.required_feature = 0;
    w.server.now_ms += 5000;
    conditions.is_unmetered = false;
    w.server.policy.requires_unmetered = true;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_DECLINED);
    conditions.is_unmetered = true;
    w.server.now_ms += 5000;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    w.server.now_ms += 5000;
    w.server.policy.min_separation_rounds = 2;
    w.server.round++;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_DECLINED);
    w.server.now_ms += 5000;
    w.server.round++;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_contributions, 2);
}

ROUND_TEST(more_bytes_than_the_app_allows_are_declined)
{
    w.options.max_download_bytes = 1000;
    fake_world_close(&w);
    fake_world_open(&w);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_DECLINED);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_OBJECT_GET], 0);
}

/* --- the learner --- */

ROUND_TEST(a_busy_learner_is_asked_again)
{
    w.learner.n_busy = 5;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

ROUND_TEST(a_learner_that_fails_ends_the_round_with_its_words)
{
    w.learner.fit_status = DUNLIN_NUMERIC;
    (void)run(DUNLIN_NUMERIC, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "the adder fell"));
    cr_expect_eq(w.server.last_abort.reason, DUNLIN_V1_ABORT_REASON_TRAINING);
    cr_expect_eq(w.server.last_abort.status, DUNLIN_NUMERIC);
    w.learner.fit_status = DUNLIN_OK;
    w.learner.load_status = DUNLIN_MISMATCH;
    w.server.now_ms += 2 * DUNLIN_RETRY_REFUSED_MOST_MS;
    (void)run(DUNLIN_MISMATCH, DUNLIN_OUTCOME_NONE);
    w.learner.load_status = DUNLIN_BUDGET;
    w.server.now_ms += 2 * DUNLIN_RETRY_REFUSED_MOST_MS;
    int n_loads = w.learner.n_loads;
    (void)run(DUNLIN_BUDGET, DUNLIN_OUTCOME_NONE);
    cr_expect_eq(w.learner.n_loads, n_loads);
    expect_no_files();
}

ROUND_TEST(what_a_learner_saves_is_checked)
{
    w.learner.drops_tensor = true;
    (void)run(DUNLIN_MISMATCH, DUNLIN_OUTCOME_NONE);
    w.learner.drops_tensor = false;
    w.learner.gives_nan = true;
    w.server.now_ms += 2 * DUNLIN_RETRY_REFUSED_MOST_MS;
    (void)run(DUNLIN_NUMERIC, DUNLIN_OUTCOME_NONE);
    w.learner.gives_nan = false;
    w.learner.n_examples = 0;
    w.server.now_ms += 2 * DUNLIN_RETRY_REFUSED_MOST_MS;
    (void)run(DUNLIN_DATA, DUNLIN_OUTCOME_NONE);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_PUT], 0);
    cr_expect_eq(w.server.n_aborts, 3);
    expect_no_files();
}

/* --- stop --- */

static dunlin_phase stop_phase;

static bool stop_at_phase(void *ctx, const dunlin_event *event)
{
    (void)ctx;
    return event->phase != stop_phase;
}

ROUND_TEST(stop_in_each_phase)
{
    w.options.event_fn = stop_at_phase;
    fake_world_close(&w);
    fake_world_open(&w);
    for (int phase = DUNLIN_PHASE_CHECKIN; phase <= DUNLIN_PHASE_UPLOAD; phase++) {
        int n_aborts = w.server.n_aborts;
        stop_phase = (dunlin_phase)phase;
        w.server.now_ms += 5000;
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_STOPPED);
        cr_expect_eq(w.server.n_aborts, n_aborts + (phase >= DUNLIN_PHASE_ACCEPT ? 1 : 0),
                     "phase %s", dunlin_phase_name(stop_phase));
        expect_no_files();
    }
    stop_phase = DUNLIN_PHASE_COMMIT; /* too late: it counts */
    w.server.now_ms += 5000;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_contributions, 1);
}

static bool pause_at_phase(void *ctx, const dunlin_event *event)
{
    (void)ctx;
    if (event->phase == stop_phase) {
        stop_phase = DUNLIN_PHASE_IDLE; /* once */
        dunlin_client_pause(w.client);
    }
    return true;
}

ROUND_TEST(pause_in_each_phase)
{
    w.options.event_fn = pause_at_phase;
    fake_world_close(&w);
    fake_world_open(&w);
    for (int phase = DUNLIN_PHASE_CHECKIN; phase <= DUNLIN_PHASE_UPLOAD; phase++) {
        int n_counted = w.server.n_contributions;
        stop_phase = (dunlin_phase)phase;
        w.server.now_ms += 5000;
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_PAUSED);
        cr_expect_eq(w.server.n_contributions, n_counted);
        cr_expect_eq(dunlin_client_wait_ms(w.client), 0, "it goes on when it may");
        if (phase % 2 == 0) { /* by this handle, or by another */
            fake_world_close(&w);
            fake_world_open(&w);
        }
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect_eq(w.server.n_aborts, 0, "%s: the server was told", dunlin_phase_name(phase));
        cr_expect_eq(w.server.n_contributions, n_counted + 1);
        expect_no_files();
    }
    cr_expect_eq(w.server.n_enrolled, 1);
}

ROUND_TEST(one_handle_a_name)
{
    dunlin_client *second = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &second, &error),
                 DUNLIN_STATE);
    cr_expect_not_null(strstr(error.text, "default"));
    cr_expect_null(second);
    w.options.name = "other";
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &second, &error), DUNLIN_OK);
    dunlin_client_destroy(second);
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &second, &error), DUNLIN_OK);
    dunlin_client_destroy(second);
}

/* --- forget --- */

ROUND_TEST(forget_leaves_nothing)
{
    int64_t wait_ms = 0;
    bool is_ended = false;
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, NULL), DUNLIN_OK);
    }
    cr_assert_eq(dunlin_client_forget(w.client), DUNLIN_OK);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_FORGET], 1);
    expect_no_files();
    cr_expect_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, NULL), DUNLIN_STATE);
    fake_world_close(&w);
    fake_world_open(&w);
    cr_expect_eq(w.client->journal.device_id[0], '\0');
}

ROUND_TEST(a_device_the_server_forgot_enrols_anew)
{
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    w.server.forgets_device = true;
    w.server.now_ms += 5000;
    w.server.round++;
    uint8_t key[DUNLIN_PUBLIC_KEY_BYTES];
    memcpy(key, w.server.device_key, sizeof key);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_enrolled, 2);
    cr_expect_neq(memcmp(key, w.server.device_key, sizeof key), 0);
}
