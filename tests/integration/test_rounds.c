/*
 * test_rounds.c - real clients against the real server over TLS: a round, the average, weights,
 * lateness, windows, resumption, two learners in a process.
 */
#include "real_device.h"

#include <criterion/criterion.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_VALUES FAKE_VALUES
#define TENSORS                                                                                    \
    "\"tensors\": [{\"name\": \"weights\", \"shape\": [70000]}, "                                  \
    "{\"name\": \"bias\", \"shape\": [3, 4]}, "                                                    \
    "{\"name\": \"mean\", \"shape\": [3], \"rule\": \"statistic\"}]"

static server_process server;

static void device_make(real_device *d, int index)
{
    real_device_prepare(d, &server, index);
    real_device_open(d);
}

/* Rounds until one ends otherwise than by waiting. */
static dunlin_round_report device_run(real_device *d)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 400; i++) {
        dunlin_status status = dunlin_client_run_round(d->client, &report);
        cr_assert_eq(status, DUNLIN_OK, "%s: %s", dunlin_status_name(status),
                     dunlin_client_last_error(d->client)->text);
        if (report.outcome != DUNLIN_OUTCOME_NOT_SELECTED &&
            report.outcome != DUNLIN_OUTCOME_TOO_EARLY) {
            break;
        }
        real_rest(report.retry_after_ms + 1);
    }
    return report;
}

static void device_run_accepted(real_device *d)
{
    dunlin_round_report report = device_run(d);
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s",
                 dunlin_outcome_name(report.outcome));
}

/* What the learner adds at place i of the flat model. */
static double added(const fake_learner *learner, int64_t i)
{
    int64_t place = i < 70000 ? i : (i < 70012 ? i - 70000 : i - 70012);
    return (double)learner->step * (double)(place % 5 + 1);
}

/* The learner's examples and steps are its own, so two devices say different things. */
static void give_metrics(dunlin_learner_report *report)
{
    static dunlin_learner_metric metrics[2];
    metrics[0] = (dunlin_learner_metric){"examples/own", (double)report->n_examples};
    metrics[1] = (dunlin_learner_metric){"<i>markup</i>", 1};
    report->metrics = metrics;
    report->n_metrics = 2;
}

/* An app's own learner says what the protocol has no name for; a name with markup costs a line at
 * the device alone. What the server has counted outlives its kill. */
Test(rounds, numbers_of_the_app_are_averaged_by_weight)
{
    real_device devices[2];
    char csv[192];
    char line[128] = "";
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 2, "
                         "\"cohort\": 2, \"clients\": 2, \"metrics_per_device\": true, " TENSORS
                         "}",
                         "20:40");
    for (int i = 0; i < 2; i++) {
        device_make(&devices[i], i);
        devices[i].learner.n_examples = i == 0 ? 30 : 10;
        devices[i].learner.edit_report_fn = give_metrics;
    }
    dunlin_round_report early = DUNLIN_ROUND_REPORT_INIT;
    (void)!dunlin_client_run_round(devices[0].client, &early); /* the barrier waits for both */
    device_run_accepted(&devices[1]);
    server_process_kill(&server); /* with one of the two counted */
    server_process_restart(&server);
    device_run_accepted(&devices[0]);
    server_process_wait_rounds(&server, 1);
    char *text = server_process_status(&server);
    json_t *status = json_loads(text, 0, NULL);
    json_t *round = json_array_get(json_object_get(status, "rounds"), 0);
    json_t *metrics = json_object_get(round, "metrics");
    json_t *own = json_object_get(metrics, "examples/own");
    cr_expect_eq(json_object_size(metrics), 1, "%s", text);
    cr_expect_float_eq(json_number_value(json_object_get(own, "mean")), 25, 0, "%s", text);
    cr_expect_float_eq(json_number_value(json_object_get(own, "min")), 10, 0);
    cr_expect_float_eq(json_number_value(json_object_get(own, "max")), 30, 0);
    cr_expect_eq(json_integer_value(json_object_get(own, "n")), 2);
    json_decref(status);
    free(text);
    server_process_path(&server, "state/metrics/000001.csv", csv);
    FILE *file = fopen(csv, "r");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(line, sizeof line, file));
    cr_assert_not_null(fgets(line, sizeof line, file));
    cr_expect_str_eq(line, "1,0,examples/own,30,30\n");
    (void)fclose(file);
    for (int i = 0; i < 2; i++) {
        real_device_close(&devices[i]);
    }
    server_process_stop(&server);
}

Test(rounds, one_is_accepted_and_published)
{
    static float model[N_VALUES];
    real_device d;
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 2, "
                         "\"cohort\": 1, " TENSORS "}",
                         "20:40");
    device_make(&d, 0);
    dunlin_round_report report = device_run(&d);
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(report.round, 1);
    cr_expect_geq(report.body_bytes_received, sizeof model);
    cr_expect_geq(report.body_bytes_sent, sizeof model);
    server_process_wait_rounds(&server, 1);
    server_process_model(&server, 2, model, N_VALUES);
    for (int64_t i = 0; i < N_VALUES; i++) {
        cr_assert_float_eq((double)model[i], added(&d.learner, i), 0, "value %lld", (long long)i);
    }
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    cr_assert_eq(dunlin_runtime_get_stats(d.runtime, &stats), DUNLIN_OK);
    cr_expect_eq(stats.n_handshakes, 1, "one connection for the whole round, not %llu",
                 (unsigned long long)stats.n_handshakes);
    cr_expect_eq(stats.n_connections_peak, 1);
    real_device_close(&d);
    server_process_stop(&server);
}

/* The mean of the differences, weighed by examples, in double; the steps are no powers of two. */
Test(rounds, the_average_of_three_is_the_average)
{
    static float first[N_VALUES];
    static float second[N_VALUES];
    static real_device devices[3];
    static const float STEPS[] = {0.1F, -0.37F, 1.23F};
    static const int64_t N_EXAMPLES[] = {5, 40, 11};
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 2, "
                         "\"cohort\": 3, \"clients\": 3, " TENSORS "}",
                         "20:40");
    for (int i = 0; i < 3; i++) {
        device_make(&devices[i], i);
        devices[i].learner.step = STEPS[i];
        devices[i].learner.n_examples = N_EXAMPLES[i];
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        /* The barrier: the first two are sent away. */
        cr_assert_eq(dunlin_client_run_round(devices[i].client, &report), DUNLIN_OK);
        cr_assert_eq(report.outcome, i < 2 ? DUNLIN_OUTCOME_NOT_SELECTED : DUNLIN_OUTCOME_ACCEPTED);
    }
    device_run_accepted(&devices[1]); /* not in the order of their indices */
    device_run_accepted(&devices[0]);
    server_process_wait_rounds(&server, 1);
    server_process_model(&server, 1, first, N_VALUES);
    server_process_model(&server, 2, second, N_VALUES);
    for (int64_t i = 0; i < N_VALUES; i++) {
        double sum = 0.0;
        double size = 0.0;
        for (int k = 0; k < 3; k++) {
            double share = (double)N_EXAMPLES[k] / 56.0 * added(&devices[k].learner, i);
            sum += share;
            size += share < 0 ? -share : share;
        }
        /* Each update is float32, and so is the model: one rounding each. */
        cr_assert_float_eq((double)second[i] - (double)first[i], sum, 1.5e-7 * size,
                           "value %lld: %.9g, not %.9g", (long long)i,
                           (double)second[i] - (double)first[i], sum);
    }
    for (int i = 0; i < 3; i++) {
        device_run_accepted(&devices[i]);
    }
    server_process_wait_rounds(&server, 2);
    for (int i = 0; i < 3; i++) {
        real_device_close(&devices[i]);
    }
    server_process_stop(&server);
}

Test(rounds, who_is_late_is_told)
{
    static real_device devices[2];
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 3, "
                         "\"cohort\": 1, \"over_select\": 2, " TENSORS "}",
                         "20:40");
    int64_t wait_ms = 0;
    bool is_ended = false;
    device_make(&devices[0], 0);
    device_make(&devices[1], 1);
    devices[0].learner.n_slices = 1;
    /* The first stands still with its assignment while the second finishes the round. */
    while (devices[0].client->journal.phase < DUNLIN_PHASE_FETCH) {
        cr_assert_eq(dunlin_client_step(devices[0].client, 0, &wait_ms, &is_ended, NULL),
                     DUNLIN_OK);
        cr_assert_not(is_ended);
    }
    device_run_accepted(&devices[1]);
    server_process_wait_rounds(&server, 1);
    dunlin_round_report report = device_run(&devices[0]);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_LATE, "%s", dunlin_outcome_name(report.outcome));
    device_run_accepted(&devices[0]); /* the next round is for it */
    real_device_close(&devices[0]);
    real_device_close(&devices[1]);
    server_process_stop(&server);
}

Test(rounds, past_the_deadline_is_late)
{
    real_device d;
    int64_t wait_ms = 0;
    bool is_ended = false;
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 3, "
                         "\"cohort\": 1, \"deadline_s\": 0.7, " TENSORS "}",
                         "20:40");
    device_make(&d, 0);
    while (d.client->journal.phase < DUNLIN_PHASE_COMMIT) {
        cr_assert_eq(dunlin_client_step(d.client, 0, &wait_ms, &is_ended, NULL), DUNLIN_OK);
        cr_assert_not(is_ended);
    }
    real_rest(900);
    dunlin_round_report report = device_run(&d);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_LATE, "%s", dunlin_outcome_name(report.outcome));
    real_device_close(&d);
    server_process_stop(&server);
}

Test(rounds, windows_are_kept)
{
    real_device d;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 1, "
                         "\"cohort\": 2, \"clients\": 2, " TENSORS "}",
                         "5000:60000");
    device_make(&d, 0);
    cr_assert_eq(dunlin_client_run_round(d.client, &report), DUNLIN_OK);
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_NOT_SELECTED);
    cr_expect_geq(report.retry_after_ms, 59000);
    real_device_close(&d);
    real_device_open(&d);
    cr_assert_eq(dunlin_client_run_round(d.client, &report), DUNLIN_OK);
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_TOO_EARLY);
    cr_expect(report.retry_after_ms > 50000 && report.retry_after_ms <= 120000);
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    cr_assert_eq(dunlin_runtime_get_stats(d.runtime, &stats), DUNLIN_OK);
    cr_expect_eq(stats.n_requests, 0);
    real_device_close(&d);
    server_process_stop(&server);
}

/* Killed (the handle is gone) after each action; a new handle resumes: one contribution each. */
Test(rounds, resumption_behind_each_action)
{
    static float before[N_VALUES];
    static float after[N_VALUES];
    char task[512];
    int n_kills = 0;
    (void)snprintf(task, sizeof task,
                   "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 60, "
                   "\"cohort\": 1, %s}",
                   TENSORS);
    server_process_start(&server, task, "1:2");
    real_device d;
    device_make(&d, 0);
    for (int n_steps = 1; n_steps < 40; n_steps++) {
        bool is_ended = false;
        int64_t wait_ms = 0;
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        real_rest(dunlin_client_wait_ms(d.client) + 1);
        for (int i = 0; i < n_steps && !is_ended; i++) {
            cr_assert_eq(dunlin_client_step(d.client, 0, &wait_ms, &is_ended, &report), DUNLIN_OK,
                         "%s", dunlin_client_last_error(d.client)->text);
        }
        if (!is_ended) {
            real_device_close(&d);
            real_device_open(&d);
            report = device_run(&d);
            n_kills++;
        }
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "kill after action %d: %s", n_steps,
                     dunlin_outcome_name(report.outcome));
        cr_assert_eq((int)report.round, n_steps);
        server_process_wait_rounds(&server, n_steps);
        server_process_model(&server, n_steps, before, N_VALUES);
        server_process_model(&server, n_steps + 1, after, N_VALUES);
        for (int64_t i = 0; i < N_VALUES; i += 61) {
            cr_assert_float_eq((double)after[i] - (double)before[i], added(&d.learner, i), 1e-5,
                               "kill after action %d: value %lld", n_steps, (long long)i);
        }
        if (is_ended) {
            break;
        }
    }
    cr_expect_geq(n_kills, 8);
    real_device_close(&d);
    server_process_stop(&server);
}

Test(rounds, two_clients_in_one_process_share_a_store)
{
    static float model[N_VALUES];
    static real_device devices[2];
    dunlin_client *second = NULL;
    dunlin_error error = {0};
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 1, "
                         "\"cohort\": 2, " TENSORS "}",
                         "20:40");
    device_make(&devices[0], 0);
    devices[1] = devices[0];
    devices[1].plug = fake_learner_make(&devices[1].learner);
    devices[1].learner.step = 0.75F;
    devices[1].options.name = "second";
    devices[1].options.enrolment_token = NULL;
    cr_assert_eq(dunlin_client_create(devices[0].runtime, &devices[1].options, &devices[1].plug,
                                      &second, &error),
                 DUNLIN_OK, "%s", error.text);
    devices[1].client = second;
    device_run_accepted(&devices[0]);
    device_run_accepted(&devices[1]);
    server_process_wait_rounds(&server, 1);
    server_process_model(&server, 2, model, N_VALUES);
    for (int64_t i = 0; i < N_VALUES; i++) {
        cr_assert_float_eq((double)model[i], 2.0 * added(&devices[0].learner, i), 1e-6);
    }
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    cr_assert_eq(dunlin_runtime_get_stats(devices[0].runtime, &stats), DUNLIN_OK);
    cr_expect_eq(stats.n_handshakes, 1, "both use one connection");
    dunlin_client_destroy(second);
    real_device_close(&devices[0]);
    server_process_stop(&server);
}

/* Round 1 trains, with evaluations around it; round 2 only evaluates. The means are the server's.
 */
Test(rounds, evaluations_are_told_and_change_nothing)
{
    static float second[N_VALUES];
    static float third[N_VALUES];
    static real_device devices[2];
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    server_process_start(
        &server,
        "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 2, "
        "\"cohort\": 2, \"evaluate_every\": 2, \"plan\": {\"evaluate\": true}, " TENSORS "}",
        "20:40");
    for (int i = 0; i < 2; i++) {
        device_make(&devices[i], i);
        devices[i].learner.n_examples = i == 0 ? 10 : 30;
        devices[i].learner.n_slices = 1 + 2 * i; /* losses after it: 1/2 and 1/4 */
        report = device_run(&devices[i]);
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect(report.is_evaluated_around);
        cr_expect_float_eq(report.loss_before, 1.0, 0);
    }
    server_process_wait_rounds(&server, 1);
    for (int i = 0; i < 2; i++) {
        report = device_run(&devices[i]);
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect_eq(report.round, 2);
        cr_expect_lt(report.body_bytes_sent, 10000, "an evaluation sends no weights");
        cr_expect_not(report.is_evaluated_around);
    }
    server_process_wait_rounds(&server, 2);
    char *status = server_process_status(&server);
    cr_expect_not_null(strstr(status, "\"loss_before\": 1.0"), "%s", status);
    cr_expect_not_null(strstr(status, "\"loss_after\": 0.3125"), "%s", status);
    cr_expect_not_null(strstr(status, "\"kind\": \"evaluate\""), "%s", status);
    free(status);
    server_process_model(&server, 2, second, N_VALUES);
    server_process_model(&server, 3, third, N_VALUES);
    cr_expect_arr_eq(second, third, sizeof second);
    cr_expect_neq(second[0], 0.0F);
    real_device_close(&devices[0]);
    real_device_close(&devices[1]);
    server_process_stop(&server);
}

Test(rounds, forget_is_heard)
{
    real_device d;
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 9, "
                         "\"cohort\": 1, " TENSORS "}",
                         "1:2");
    device_make(&d, 0);
    device_run_accepted(&d);
    cr_assert_eq(dunlin_client_forget(d.client), DUNLIN_OK, "%s",
                 dunlin_client_last_error(d.client)->text);
    char *status = server_process_status(&server);
    cr_expect_not_null(strstr(status, "\"known\": 0"), "%s", status);
    free(status);
    real_device_close(&d);
    real_device_open(&d); /* a new device with the old place */
    device_run_accepted(&d);
    real_device_close(&d);
    server_process_stop(&server);
}
