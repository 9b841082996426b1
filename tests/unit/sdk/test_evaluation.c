/*
 * test_evaluation.c - evaluations around a training, when the plan asks for them: what is sent,
 * that the training is not touched, and what a kill between any two pieces of work does.
 */
#include "client/fake_server.h"

#include <criterion/criterion.h>

#include <string.h>

static fake_world w;

static void begin(bool evaluates)
{
    fake_world_make(&w);
    w.plug = fake_learner_make_keeping(&w.learner);
    w.learner.clock = &w.server;
    w.learner.slice_ms = 1000;
    w.options.checkpoint_ms = 1000;
    w.server.plan.evaluates = evaluates;
    fake_world_open(&w);
}

static void end(void)
{
    fake_world_close(&w);
    cr_assert_str_eq(w.server.complaint, "");
    cr_assert_eq(w.learner.n_loads, w.learner.n_unloads);
    cr_assert_leq(fake_folder_count(w.folder), 3, "files are left behind");
    fake_folder_remove(w.folder);
}

/* A metric of the commit; -1 if it is not there. */
static double metric(const char *name)
{
    for (size_t i = 0; i < w.server.commit.metrics_count; i++) {
        if (strcmp(w.server.commit.metrics[i].name, name) == 0) {
            return w.server.commit.metrics[i].value;
        }
    }
    return -1.0;
}

static void expect_figures(const char *when, int n)
{
    cr_expect_float_eq(metric("loss"), 1.0 / 3, 0, "%s %d", when, n);
    cr_expect_float_eq(metric("loss_before"), 1.0, 0, "%s %d", when, n);
    cr_expect_float_eq(metric("accuracy_before"), 0.25, 0, "%s %d", when, n);
    cr_expect_float_eq(metric("loss_after"), 0.25, 0, "%s %d", when, n);
    cr_expect_float_eq(metric("accuracy_after"), 1.0, 0, "%s %d", when, n);
    for (int64_t i = 0; i < FAKE_VALUES; i++) {
        cr_assert_eq(w.server.update[i], fake_learner_update(&w.learner, &w.server, i),
                     "%s %d: value %lld", when, n, (long long)i);
    }
}

Test(evaluation, around_a_training_goes_up_with_it)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    begin(true);
    cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK);
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    expect_figures("undisturbed", 0);
    cr_expect_eq(w.learner.n_evaluates, 6);
    cr_expect_eq(w.learner.n_fits, 3);
    cr_expect(report.is_evaluated_around);
    cr_expect_float_eq(report.loss_before, 1.0, 0);
    cr_expect_float_eq(report.loss_after, 0.25, 0);
    cr_expect_float_eq(report.accuracy_after, 1.0, 0);
    end();
}

Test(evaluation, is_not_made_when_nobody_asks)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    begin(false);
    cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK);
    cr_expect_eq(w.learner.n_evaluates, 0);
    cr_expect_float_eq(metric("loss_before"), -1.0, 0);
    cr_expect_float_eq(metric("loss_after"), -1.0, 0);
    cr_expect_not(report.is_evaluated_around);
    end();
}

/* Killed after each piece of work: the figures before are of the base, those after of the whole
 * training, and no training is evaluated twice as if it had not begun. */
Test(evaluation, survives_a_kill_behind_each_step)
{
    bool is_ended = false;
    int n_kills = 0;
    for (int n_steps = 1; !is_ended; n_steps++) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        int64_t wait_ms = 0;
        begin(true);
        for (int i = 0; i < n_steps && !is_ended; i++) {
            cr_assert_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, &report), DUNLIN_OK);
        }
        if (!is_ended) {
            n_kills++;
            w.client->options.checkpoint_ms = -1; /* as if the process were gone */
            fake_world_close(&w);
            fake_world_open(&w);
            cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK);
        }
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%d", n_steps);
        cr_assert_eq(w.server.n_contributions, 1);
        expect_figures("kill after step", n_steps);
        end();
    }
    cr_expect_geq(n_kills, 12);
}
