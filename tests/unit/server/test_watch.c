/*
 * test_watch.c - what there is to watch: log lines, phases, events with their reasons, how the open
 * round fills up, and the text format of the metrics.
 */
#include "base/log.h"
#include "rounds/state.h"
#include "server/device.h"
#include "server/exposition.h"
#include "server/metrics_text.h"
#include "server/told.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* ---- log lines ---- */

Test(watch, a_log_line_has_the_time_in_utc)
{
    char line[DUNLIN_SERVER_LOG_BYTES];
    size_t n =
        dunlin__server_log_line(1795766400123, DUNLIN_LOG_WARNING, "rounds", "a text", 0, line);
    cr_expect_str_eq(line, "2026-11-27T08:00:00.123Z dunlin-server: warning: rounds: a text\n");
    cr_expect_eq(n, strlen(line));
    (void)dunlin__server_log_line(999, DUNLIN_LOG_INFO, "devices", "x", 3, line);
    cr_expect_str_eq(
        line, "1970-01-01T00:00:00.999Z dunlin-server: (3 lines were left out) devices: x\n");
}

Test(watch, no_text_can_forge_a_log_line)
{
    static const struct {
        const char *text;
        const char *says;
    } CASES[] = {
        {"a\nb\rc", "a\\x0Ab\\x0Dc"},
        {"\x1b[2J\x7f", "\\x1B[2J\\x7F"},
        {"C:\\x0A", "C:\\\\x0A"},
        {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x90\xa6", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x90\xa6"},
        {"\xff\xc3", "\\xFF\\xC3"},          /* no UTF-8, and cut within a letter */
        {"\xc2\x9b", "\\xC2\\x9B"},          /* a control character of two bytes */
        {"\xc0\xae", "\\xC0\\xAE"},          /* an overlong form */
        {"\xed\xa0\x80", "\\xED\\xA0\\x80"}, /* a surrogate */
    };
    char line[DUNLIN_SERVER_LOG_BYTES];
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        (void)dunlin__server_log_line(0, DUNLIN_LOG_INFO, "t", CASES[i].text, 0, line);
        const char *text = strstr(line, "t: ") + 3;
        cr_expect_eq(strncmp(text, CASES[i].says, strlen(CASES[i].says)), 0, "%zu: %s", i, line);
        cr_expect_eq(strlen(text), strlen(CASES[i].says) + 1, "%zu: %s", i, line);
    }
}

Test(watch, a_long_text_is_cut_between_letters)
{
    static char text[3 * DUNLIN_SERVER_LOG_BYTES];
    char line[DUNLIN_SERVER_LOG_BYTES];
    memset(text, '\n', sizeof text - 1);
    size_t n = dunlin__server_log_line(0, DUNLIN_LOG_INFO, "t", text, 0, line);
    cr_expect_lt(n, sizeof line);
    cr_expect_eq(strlen(line), n);
    cr_expect_eq(line[n - 1], '\n');
    cr_expect_eq(strchr(line, '\n') - line, (ptrdiff_t)n - 1, "one line feed, at the end");
    cr_expect_str_eq(line + n - 5, "\\x0A\n");
}

/* ---- what devices do ---- */

/* All that the server logs, but for what is only for debugging. */
static char logged[16384];

static void note(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    (void)ctx;
    size_t n = strlen(logged);
    (void)snprintf(logged + n, sizeof logged - n, "%d %s: %s\n", (int)level, subsystem, text);
}

static void begin(test_server *fixture, const char *keys)
{
    test_server_folder(fixture);
    logged[0] = 0;
    fixture->log = (dunlin_log){.write_fn = note, .level = DUNLIN_LOG_INFO};
    test_server_open(fixture, keys, 0);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

static int64_t in_phase(test_server *fixture, const char *name)
{
    json_t *status = test_status(fixture);
    const json_t *phases = json_object_get(status, "phases");
    const char *key = NULL;
    json_t *value = NULL;
    json_int_t n_all = 0;
    json_object_foreach((json_t *)(uintptr_t)phases, key, value)
    {
        n_all += json_integer_value(value);
    }
    cr_expect_eq(n_all, (json_int_t)fixture->server.devices.n_known, "each is in one phase");
    int64_t n = json_integer_value(json_object_get(phases, name));
    json_decref(status);
    return n;
}

/* How often the status says that this has happened; the last text of it. */
static int64_t failures(test_server *fixture, const char *what, const char *reason, char last[256])
{
    json_t *status = test_status(fixture);
    size_t i = 0;
    json_t *one = NULL;
    int64_t n = 0;
    json_array_foreach(json_object_get(status, "failures"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "what")), what) == 0 &&
            strcmp(json_string_value(json_object_get(one, "reason")), reason) == 0) {
            n = json_integer_value(json_object_get(one, "n"));
            const char *text = json_string_value(json_object_get(one, "last"));
            (void)snprintf(last, 256, "%s", text != NULL ? text : "(null)");
        }
    }
    json_decref(status);
    return n;
}

Test(watch, a_device_goes_through_the_phases)
{
    test_server fixture;
    test_device device;
    test_device other;
    dunlin__checkin_response answer;
    dunlin__put_response put;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 1, \"clients\": 2, \"over_select\": 2");
    test_device_make(&device, &fixture);
    test_device_make(&other, &fixture);
    cr_assert_eq(test_enrol(&device, 0), 200);
    cr_assert_eq(test_enrol(&other, 1), 200);
    cr_expect_eq(in_phase(&fixture, "enrolled"), 2);
    cr_assert_eq(test_checkin(&device, &answer), 200);
    cr_expect_eq(in_phase(&fixture, "checked_in"), 1);
    cr_assert_eq(test_checkin(&other, &answer), 200);
    cr_expect_eq(in_phase(&fixture, "offered"), 1);
    cr_assert_eq(test_accept(&other), 200);
    cr_expect_eq(in_phase(&fixture, "assigned"), 1);
    cr_assert_eq(test_put(&other, ones, &put), 200);
    cr_expect_eq(in_phase(&fixture, "uploading"), 1);
    cr_expect_eq(in_phase(&fixture, "assigned"), 0);
    json_t *status = test_status(&fixture);
    const json_t *open = json_object_get(status, "open");
    cr_expect_eq(json_integer_value(json_object_get(open, "assigned")), 1, "as it always was");
    cr_expect_eq(json_integer_value(json_object_get(open, "uploading")), 1);
    cr_expect_eq(json_integer_value(json_object_get(open, "goal")), 1);
    cr_expect_eq(json_integer_value(json_object_get(open, "asked")), 2);
    json_decref(status);
    /* Read again from the database. */
    dunlin_error error = {0};
    cr_assert_eq(dunlin__server_reload(&fixture.server, &error), DUNLIN_OK, "%s", error.text);
    cr_expect_eq(in_phase(&fixture, "uploading"), 1);
    cr_expect_eq(in_phase(&fixture, "enrolled"), 1, "not heard of since");
    end(&fixture);
}

Test(watch, who_gives_up_and_who_fails_are_told_apart)
{
    test_server fixture;
    test_device devices[3];
    char last[256] = "";
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 3, \"clients\": 3");
    for (int i = 0; i < 3; i++) {
        test_device_make(&devices[i], &fixture);
        cr_assert_eq(test_enrol(&devices[i], i), 200);
    }
    dunlin__checkin_response answer;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(test_checkin(&devices[i], &answer), 200);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(test_checkin(&devices[i], &answer), 200);
    }
    cr_assert_eq(test_decline(&devices[0]), 200);
    cr_expect_eq(in_phase(&fixture, "dropped"), 1);
    cr_expect_eq(in_phase(&fixture, "failed"), 0);
    cr_assert_eq(test_accept(&devices[1]), 200);
    cr_assert_eq(test_accept(&devices[2]), 200);
    cr_assert_eq(test_abort(&devices[1]), 200);
    float bad[10] = {0, 0, 0, NAN};
    cr_expect_eq(test_contribute(&devices[2], bad, 10), DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
    cr_expect_eq(failures(&fixture, "commit", "refused", last), 1);
    cr_expect_not_null(strstr(last, "value 3 of the update is not finite"), "%s", last);
    cr_expect_geq(in_phase(&fixture, "failed"), 1);
    cr_expect_eq(in_phase(&fixture, "failed") + in_phase(&fixture, "dropped"), 3);
    cr_expect_not_null(strstr(logged, "3 devices: place 0 is taken, by its claim\n"), "%s", logged);
    cr_expect_not_null(
        strstr(logged, "3 rounds: round 1 of 2 is open: devices train, the goal is 3"), "%s",
        logged);
    cr_expect_not_null(strstr(logged, "place 0 declined: "), "%s", logged);
    cr_expect_not_null(strstr(logged, "place 1 gave up: "), "%s", logged);
    cr_expect_not_null(strstr(logged, "place 2 committed: refused, value 3 of the update"), "%s",
                       logged);
    cr_expect_null(strstr(logged, devices[0].id), "no id is logged: %s", logged);
    end(&fixture);
}

/* What the transaction undoes did not happen. */
Test(watch, a_call_that_is_refused_is_no_event)
{
    test_server fixture;
    test_device first;
    test_device second;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 1, \"clients\": 1");
    test_device_make(&first, &fixture);
    test_device_make(&second, &fixture);
    cr_assert_eq(test_enrol(&first, 0), 200);
    cr_expect_eq(test_enrol_with(&second, "index:7"), 403);
    const dunlin__watch *watch = &fixture.server.watch;
    cr_expect_eq(watch->events[DUNLIN_SERVER_EVENT_ENROL][DUNLIN_PROOF_CLAIM], 1);
    cr_expect_eq(watch->events[DUNLIN_SERVER_EVENT_EVICT][0], 0);
    cr_assert_eq(test_enrol(&second, 0), 200);
    cr_expect_eq(watch->events[DUNLIN_SERVER_EVENT_ENROL][DUNLIN_PROOF_CLAIM], 2);
    cr_expect_eq(watch->events[DUNLIN_SERVER_EVENT_EVICT][0], 1);
    cr_expect_not_null(strstr(logged, "2 devices: place 0 changed hands: another key enrolled"),
                       "%s", logged);
    end(&fixture);
}

/* ---- the open round ---- */

Test(watch, the_history_of_a_round_stays_within_its_room)
{
    test_server fixture;
    test_device device;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 2");
    test_device_make(&device, &fixture);
    cr_assert_eq(test_enrol(&device, 0), 200);
    dunlin__checkin_response answer;
    cr_assert_eq(test_checkin(&device, &answer), 200);
    for (int i = 0; i < 3000; i++) {
        fixture.now_ms += 2000;
        dunlin__watch_fill(&fixture.server, fixture.now_ms);
    }
    const dunlin__watch *watch = &fixture.server.watch;
    cr_expect_leq(watch->n_points, DUNLIN_WATCH_POINTS);
    cr_expect_geq(watch->n_points, DUNLIN_WATCH_POINTS / 4);
    for (uint32_t i = 1; i < watch->n_points; i++) {
        cr_expect_lt(watch->points[i - 1].at_ms, watch->points[i].at_ms, "%u", i);
    }
    cr_expect_geq(watch->points[watch->n_points - 1].at_ms, fixture.now_ms - watch->spacing_ms);
    json_t *status = test_status(&fixture);
    const json_t *open = json_object_get(status, "open");
    cr_expect_eq(json_array_size(json_object_get(open, "history")), watch->n_points);
    cr_expect(json_is_true(json_object_get(open, "is_open")));
    json_decref(status);
    end(&fixture);
}

/* ---- the text format ---- */

static bool has_line(const char *text, const char *line)
{
    size_t n = strlen(line);
    for (const char *at = text; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n' ? 1 : 0;
        if (strncmp(at, line, n) == 0 && (at[n] == '\n' || at[n] == 0)) {
            return true;
        }
    }
    return false;
}

Test(watch, samples_are_escaped_and_numbers_are_exact)
{
    dunlin__exposition out = {.alloc = dunlin__alloc_or_default(NULL)};
    const dunlin__label labels[] = {{"a", "x\"y\\z\nw"}, {"b", "\xc3\xa4"}};
    dunlin__exposition_family(&out, "m", "gauge", "one\\two\nthree \"four\"");
    dunlin__exposition_sample(&out, "m", labels, 2, 0.1);
    dunlin__exposition_sample(&out, "m", labels, 1, NAN);
    dunlin__exposition_sample(&out, "m", NULL, 0, -INFINITY);
    dunlin__exposition_count(&out, "m", NULL, 0, UINT64_MAX);
    cr_expect_str_eq(out.text, "# HELP m one\\\\two\\nthree \"four\"\n"
                               "# TYPE m gauge\n"
                               "m{a=\"x\\\"y\\\\z\\nw\",b=\"\xc3\xa4\"} 0.10000000000000001\n"
                               "m{a=\"x\\\"y\\\\z\\nw\"} NaN\n"
                               "m -Inf\n"
                               "m 18446744073709551615\n");
    dunlin__exposition_free(&out);
}

Test(watch, the_metrics_follow_the_run)
{
    test_server fixture;
    test_device device;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 1");
    test_join(&device, &fixture, 0);
    cr_assert_eq(test_contribute(&device, ones, 10), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    fixture.now_ms += 3000;
    dunlin__server_tick(&fixture.server);
    dunlin__exposition out = {0};
    cr_assert(dunlin__server_metrics_text(&fixture.server, &out));
    static const char *const LINES[] = {
        ("dunlin_task_info{population=\"phones\",task=\"sums\",model=\"tensors\",algorithm="
         "\"fedavg\",strategy=\"average\"} 1"),
        "dunlin_state{state=\"running\"} 1",
        "dunlin_rounds_total{closed_by=\"goal\"} 1",
        "dunlin_rounds_total{closed_by=\"deadline\"} 0",
        "dunlin_updates_total 1",
        "dunlin_round_duration_seconds_bucket{le=\"2\"} 0",
        "dunlin_round_duration_seconds_bucket{le=\"5\"} 1",
        "dunlin_round_duration_seconds_bucket{le=\"+Inf\"} 1",
        "dunlin_round_duration_seconds_sum 3",
        "dunlin_open_round 2",
        "dunlin_devices_known 1",
        "dunlin_enrolments_total{by=\"claim\"} 1",
        "dunlin_commits_total{outcome=\"accepted\"} 1",
    };
    for (size_t i = 0; i < sizeof LINES / sizeof LINES[0]; i++) {
        cr_expect(has_line(out.text, LINES[i]), "%s in:\n%s", LINES[i], out.text);
    }
    cr_expect_null(strstr(out.text, "dunlin_model_accuracy"), "what is not known is not there");
    dunlin__exposition_free(&out);
    end(&fixture);
}

static void *no_alloc(void *ctx, size_t bytes, size_t align)
{
    int *n_left = ctx;
    (*n_left)--;
    return *n_left >= 0 ? dunlin__alloc_or_default(NULL).alloc_fn(NULL, bytes, align) : NULL;
}

static void no_free(void *ctx, void *memory, size_t bytes)
{
    (void)ctx;
    dunlin__alloc_or_default(NULL).free_fn(NULL, memory, bytes);
}

Test(watch, metrics_without_memory_are_no_half_a_text)
{
    for (int n = 0; n < 3; n++) {
        int n_left = n;
        dunlin__exposition out = {
            .alloc = {.ctx = &n_left, .alloc_fn = no_alloc, .free_fn = no_free}};
        for (int i = 0; i < 10000; i++) {
            dunlin__exposition_one(&out, "m", "gauge", "help", 1);
        }
        cr_expect(out.is_full, "%d", n);
        dunlin__exposition_free(&out);
    }
}
