/*
 * test_app_metrics.c - numbers of the app's own: those of a learner and of the app's hook go up
 * with the contribution, the same after a kill; bad ones are left out with one line, and the round
 * goes on.
 */
#include "client/in_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define METRICS_TEST(name) WORLD_TEST(app_metrics, name)

static int n_lines;
static char last_line[512];

static void take_line(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    (void)ctx;
    (void)subsystem;
    if (level <= DUNLIN_LOG_WARNING) {
        n_lines++;
        (void)snprintf(last_line, sizeof last_line, "%s", text);
    }
}

static void listen(void)
{
    n_lines = 0;
    w.runtime->log = (dunlin_log){.level = DUNLIN_LOG_WARNING, .write_fn = take_line};
}

/* One that went up; NaN if it did not. */
static double sent(const char *name)
{
    for (size_t i = 0; i < w.server.commit.app_metrics_count; i++) {
        if (strcmp(w.server.commit.app_metrics[i].name, name) == 0) {
            return w.server.commit.app_metrics[i].value;
        }
    }
    return NAN;
}

static void give_two(dunlin_learner_report *report)
{
    static dunlin_learner_metric metrics[2];
    metrics[0] = (dunlin_learner_metric){"f1/macro", 0.5 * report->n_steps};
    metrics[1] = (dunlin_learner_metric){"words_per.s-1", -1e30};
    report->metrics = metrics;
    report->n_metrics = report->is_done ? 2 : 1;
}

static int32_t give_hooked(void *ctx, uint64_t round, const dunlin_learner_metric **out_metrics)
{
    static dunlin_learner_metric metric = {"round", 0};
    (*(int *)ctx)++;
    metric.value = (double)round;
    *out_metrics = &metric;
    return 1;
}

METRICS_TEST(of_the_learner_and_of_the_app_go_up)
{
    int n_asked = 0;
    w.learner.edit_report_fn = give_two;
    w.client->options.metrics_fn = give_hooked;
    w.client->options.metrics_ctx = &n_asked;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.app_metrics_count, 3);
    cr_expect_float_eq(sent("f1/macro"), 0.5 * w.learner.n_slices, 0, "of the last report");
    cr_expect_float_eq(sent("words_per.s-1"), -1e30, 0);
    cr_expect_float_eq(sent("round"), (double)w.server.round, 0);
    cr_expect_eq(n_asked, 1);
    expect_no_files();
}

METRICS_TEST(of_an_evaluation_go_up)
{
    w.learner.edit_report_fn = give_two;
    w.server.is_evaluation = true;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.app_metrics_count, 2);
    cr_expect_eq(w.server.commit.kind, DUNLIN_V1_KIND_EVALUATE);
}

METRICS_TEST(there_are_none_if_nobody_gives_them)
{
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.app_metrics_count, 0);
}

/* ---- what is left out ---- */

static dunlin_learner_metric bad;

static void give_bad_between_good(dunlin_learner_report *report)
{
    static dunlin_learner_metric metrics[3];
    metrics[0] = (dunlin_learner_metric){"first", 1};
    metrics[1] = bad;
    metrics[2] = (dunlin_learner_metric){"third", 3};
    report->metrics = metrics;
    report->n_metrics = 3;
}

METRICS_TEST(a_bad_one_costs_a_line_and_no_round)
{
    static const struct {
        dunlin_learner_metric metric;
        const char *words;
    } cases[] = {
        {{"f1", (double)NAN}, "number 2 is not finite"},
        {{"f1", (double)INFINITY}, "number 2 is not finite"},
        {{"f1", 1.1e30}, "number 2 is not within 1e30 of 0"},
        {{"first", 2}, "number 2 has a name that came before"},
        {{NULL, 2}, "number 2 has a name that is not 1 to 64"},
        {{"", 2}, "number 2 has a name that is not 1 to 64"},
        {{"<b>f1</b>", 2}, "number 2 has a name that is not 1 to 64"},
        {{"two words", 2}, "number 2 has a name that is not 1 to 64"},
        {{"line\nfeed", 2}, "number 2 has a name that is not 1 to 64"},
        {{"0123456789012345678901234567890123456789012345678901234567890123x", 2}, "1 to 64"},
    };
    w.learner.edit_report_fn = give_bad_between_good;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bad = cases[i].metric;
        w.server.round++;
        w.server.now_ms += dunlin_client_wait_ms(w.client);
        listen();
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect_eq(w.server.commit.app_metrics_count, 2, "case %zu", i);
        cr_expect_float_eq(sent("first"), 1, 0);
        cr_expect_float_eq(sent("third"), 3, 0);
        cr_expect_eq(n_lines, 1, "case %zu: %d lines, the last: %s", i, n_lines, last_line);
        cr_expect_not_null(strstr(last_line, "1 of 3 metrics of the learner are left out"), "%s",
                           last_line);
        cr_expect_not_null(strstr(last_line, cases[i].words), "%s", last_line);
        cr_expect_null(strchr(last_line, '\n'));
    }
}

static void give_thousand(dunlin_learner_report *report)
{
    static char names[1000][24];
    static dunlin_learner_metric metrics[1000];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(names[i], sizeof names[i], "class/%03d", i);
        metrics[i] = (dunlin_learner_metric){names[i], i};
    }
    report->metrics = metrics;
    report->n_metrics = 1000;
}

METRICS_TEST(of_a_thousand_the_first_64_go_up)
{
    listen();
    w.learner.edit_report_fn = give_thousand;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.app_metrics_count, 64);
    cr_expect_float_eq(sent("class/063"), 63, 0);
    cr_expect_eq(n_lines, 1);
    cr_expect_not_null(strstr(last_line, "936 of 1000 metrics of the learner are left out: number "
                                         "65 is above 64"),
                       "%s", last_line);
}

static void give_nowhere(dunlin_learner_report *report)
{
    report->n_metrics = -5;
}

METRICS_TEST(a_number_without_metrics_is_none)
{
    w.learner.edit_report_fn = give_nowhere;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.app_metrics_count, 0);
}

/* ---- kills ---- */

/* Killed behind each action: the commit has what the learner said, though the learner is gone. The
 * server compares bodies that come again under one key. */
Test(app_metrics, survive_a_kill_behind_each_action)
{
    bool is_ended = false;
    int n_kills = 0;
    for (int n_steps = 1; !is_ended; n_steps++) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        int64_t wait_ms = 0;
        setup();
        w.learner.edit_report_fn = give_two;
        for (int i = 0; i < n_steps && !is_ended; i++) {
            cr_assert_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, &report), DUNLIN_OK);
        }
        if (!is_ended) {
            n_kills++;
            fake_world_close(&w);
            fake_world_open(&w);
            (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        }
        cr_expect_eq(w.server.commit.app_metrics_count, 2, "kill behind action %d", n_steps);
        cr_expect_float_eq(sent("f1/macro"), 0.5 * w.learner.n_slices, 0, "%d", n_steps);
        teardown();
    }
    cr_expect_geq(n_kills, 9);
}

/* The answer to the commit is lost, and the process with it. */
METRICS_TEST(a_commit_is_repeated_with_the_same_bytes)
{
    w.learner.edit_report_fn = give_two;
    w.server.spoil_call = DUNLIN_CALL_COMMIT;
    w.server.spoil = FAKE_LOST_REPLY;
    w.server.spoil_times = -1;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    (void)!dunlin_client_run_round(w.client, &report);
    cr_assert_eq(w.server.n_contributions, 1, "and the client does not know");
    fake_world_close(&w);
    fake_world_open(&w);
    w.server.spoil_times = 0;
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_contributions, 1);
    cr_expect_eq(w.server.commit.app_metrics_count, 2);
}

/* A damaged file costs the metrics, not the contribution. */
METRICS_TEST(damage_leaves_them_out)
{
    char path[DUNLIN_FILE_PATH_BYTES + 16];
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    int64_t wait_ms = 0;
    bool is_ended = false;
    w.learner.edit_report_fn = give_two;
    while (w.server.n_calls[DUNLIN_CALL_PUT] == 0) {
        cr_assert_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, &report), DUNLIN_OK);
    }
    (void)snprintf(path, sizeof path, "%s/metrics", w.client->round->folder);
    fake_world_close(&w);
    FILE *file = fopen(path, "r+");
    cr_assert_not_null(file);
    (void)fputs("what is no message", file);
    (void)fclose(file);
    fake_world_open(&w);
    listen();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.commit.app_metrics_count, 0);
    cr_expect_eq(w.server.commit.kind, DUNLIN_V1_KIND_TRAIN);
    cr_expect_not_null(strstr(last_line, "is damaged"), "%s", last_line);
}
