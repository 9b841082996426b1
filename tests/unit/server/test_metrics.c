/*
 * test_metrics.c - the app's own metrics: their means in the status, by device in a file, and what
 * is refused.
 */
#include "base/files.h"
#include "server/device.h"
#include "server/must.h"
#include "server/told.h"
#include "state/db_metrics.h"

#include <criterion/criterion.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void begin(test_server *fixture, const char *keys)
{
    test_server_folder(fixture);
    test_server_open(fixture, keys, 0);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

/* Takes part with these metrics; the round closes if that makes it full. */
static void contribute(test_device *device, uint64_t n_examples, const dunlin__app_metric *metrics,
                       size_t n)
{
    device->app_metrics = metrics;
    device->n_app_metrics = n;
    cr_assert_eq(test_contribute(device, ones, n_examples), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&device->fixture->server);
    cr_assert_eq(device->fixture->server.fault.status, DUNLIN_OK, "%s",
                 device->fixture->server.fault.text);
}

/* The round of a status; the status is to be given back. */
static json_t *round_of(test_server *fixture, size_t index, json_t **out_status)
{
    *out_status = test_status(fixture);
    json_t *round = json_array_get(json_object_get(*out_status, "rounds"), index);
    cr_assert_not_null(round);
    return round;
}

static double figure(json_t *round, const char *name, const char *key)
{
    json_t *metric = json_object_get(json_object_get(round, "metrics"), name);
    cr_assert_not_null(metric, "%s", name);
    return json_number_value(json_object_get(metric, key));
}

Test(metrics, are_averaged_by_the_weights)
{
    const char *keys = ", \"rounds\": 3, \"cohort\": 2, \"clients\": 2";
    const dunlin__app_metric first[] = {{"f1/macro", 0.5}, {"steps-per.s", -4}};
    const dunlin__app_metric second[] = {{"f1/macro", 0.75}};
    test_server fixture;
    test_device a;
    test_device b;
    json_t *status = NULL;
    begin(&fixture, keys);
    test_device_make(&a, &fixture);
    test_device_make(&b, &fixture);
    cr_assert_eq(test_enrol(&a, 0), 200);
    cr_assert_eq(test_enrol(&b, 1), 200);
    (void)test_take_work(&a); /* the barrier waits for both */
    cr_assert(test_take_work(&b));
    cr_assert(test_take_work(&a));
    contribute(&b, 10, second, 1);
    contribute(&a, 30, first, 2);
    json_t *round = round_of(&fixture, 0, &status);
    cr_expect_float_eq(figure(round, "f1/macro", "mean"), 0.5625, 0, "(30 * 0.5 + 10 * 0.75) / 40");
    cr_expect_float_eq(figure(round, "f1/macro", "min"), 0.5, 0);
    cr_expect_float_eq(figure(round, "f1/macro", "max"), 0.75, 0);
    cr_expect_float_eq(figure(round, "f1/macro", "n"), 2, 0);
    cr_expect_float_eq(figure(round, "steps-per.s", "mean"), -4, 0);
    cr_expect_float_eq(figure(round, "steps-per.s", "n"), 1, 0);
    cr_expect_eq(json_integer_value(json_object_get(round, "metrics_left_out")), 0);
    json_decref(status);
    /* A round without any, and a start: what was there stays. */
    cr_assert(test_take_work(&a));
    cr_assert(test_take_work(&b));
    contribute(&a, 30, NULL, 0);
    contribute(&b, 10, NULL, 0);
    test_server_close(&fixture);
    test_server_open(&fixture, keys, 0);
    round = round_of(&fixture, 0, &status);
    cr_expect_float_eq(figure(round, "f1/macro", "mean"), 0.5625, 0);
    json_decref(status);
    round = round_of(&fixture, 1, &status);
    cr_expect_eq(json_object_size(json_object_get(round, "metrics")), 0);
    json_decref(status);
    end(&fixture);
}

/* Equal values have that mean, to the bit, and a name that comes twice counts once. */
Test(metrics, a_mean_lies_between_its_values)
{
    const dunlin__app_metric same[] = {{"x", 0.1}, {"x", 7}};
    test_server fixture;
    test_device devices[3];
    json_t *status = NULL;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 3");
    for (int i = 0; i < 3; i++) {
        test_join(&devices[i], &fixture, -1);
    }
    for (int i = 0; i < 3; i++) {
        contribute(&devices[i], 3, same, 2);
    }
    json_t *round = round_of(&fixture, 0, &status);
    cr_expect_float_eq(figure(round, "x", "mean"), 0.1, 0);
    cr_expect_float_eq(figure(round, "x", "n"), 3, 0);
    cr_expect_float_eq(figure(round, "x", "max"), 0.1, 0);
    json_decref(status);
    end(&fixture);
}

/* Sixteen devices with sixty-four names each: a thousand and some in all. Those that most have
 * stay. */
Test(metrics, a_round_keeps_so_many_names)
{
    static dunlin__app_metric many[64];
    test_server fixture;
    static test_device devices[16];
    json_t *status = NULL;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 16");
    for (int i = 0; i < 16; i++) {
        test_join(&devices[i], &fixture, -1);
    }
    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 64; k++) {
            (void)snprintf(many[k].name, sizeof many[k].name, "a/%d/%d", i, k);
            many[k].value = k;
        }
        (void)snprintf(many[63].name, sizeof many[63].name, "zz-everybody-has-it");
        contribute(&devices[i], 1, many, 64);
    }
    json_t *round = round_of(&fixture, 0, &status);
    cr_expect_eq(json_object_size(json_object_get(round, "metrics")), DUNLIN_SERVER_METRIC_NAMES);
    cr_expect_float_eq(figure(round, "zz-everybody-has-it", "n"), 16, 0);
    cr_expect_eq(json_integer_value(json_object_get(round, "metrics_left_out")),
                 16 * 63 + 1 - (json_int_t)DUNLIN_SERVER_METRIC_NAMES);
    json_decref(status);
    end(&fixture);
}

static void read_csv(test_server *fixture, char *out_text, size_t room)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/state/metrics/000001.csv", fixture->folder);
    out_text[0] = 0;
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        out_text[fread(out_text, 1, room - 1, file)] = 0;
        (void)fclose(file);
    }
}

Test(metrics, single_devices_are_there_on_request_alone)
{
    const dunlin__app_metric metrics[] = {{"f1", 0.1}, {"bytes", 1e30}};
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        test_server fixture;
        test_device device;
        char text[512];
        begin(&fixture, is_asked ? ", \"rounds\": 2, \"cohort\": 1, \"metrics_per_device\": true"
                                 : ", \"rounds\": 2, \"cohort\": 1");
        test_join(&device, &fixture, -1);
        contribute(&device, 5, metrics, 2);
        read_csv(&fixture, text, sizeof text);
        cr_expect_str_eq(text,
                         is_asked ? "round,client_index,name,value,weight\n"
                                    "1,0,bytes,1e+30,5\n"
                                    "1,0,f1,0.10000000000000001,5\n"
                                  : "",
                         "%s", text);
        end(&fixture);
    }
}

static dunlin_status count_rows(void *ctx, const dunlin__app_metric_row *row)
{
    (void)row;
    (*(int *)ctx)++;
    return DUNLIN_OK;
}

/* A kill between the file and the end of the transaction: the repeated close writes the same. */
Test(metrics, a_close_that_is_repeated_gives_the_same)
{
    const char *keys = ", \"rounds\": 2, \"cohort\": 1, \"metrics_per_device\": true";
    const dunlin__app_metric metrics[] = {{"f1", 0.5}};
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    json_t *status = NULL;
    char text[512];
    begin(&fixture, keys);
    test_join(&device, &fixture, -1);
    device.app_metrics = metrics;
    device.n_app_metrics = 1;
    cr_assert_eq(test_contribute(&device, ones, 4), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    test_server_close(&fixture);
    char folder[512];
    (void)snprintf(folder, sizeof folder, "%s/state/metrics", fixture.folder);
    MUST(dunlin__server_folder_make(folder, &error));
    (void)test_server_write(&fixture, "state/metrics/000001.csv", "half");
    test_server_open(&fixture, keys, 0);
    dunlin__server_tick(&fixture.server);
    read_csv(&fixture, text, sizeof text);
    cr_expect_str_eq(text, "round,client_index,name,value,weight\n1,0,f1,0.5,4\n");
    json_t *round = round_of(&fixture, 0, &status);
    cr_expect_float_eq(figure(round, "f1", "mean"), 0.5, 0);
    json_decref(status);
    int n = 0;
    MUST(dunlin__server_db_each_app_metric(fixture.server.db, 1, count_rows, &n, &error));
    cr_expect_eq(n, 0, "what single devices said goes when the round closes");
    end(&fixture);
}

/* ---- what is refused ---- */

/* A commit whose metrics are these bytes, of a device that keeps to no rule. */
static uint32_t commit_raw(test_device *device, const uint8_t *tail, size_t n_tail)
{
    static uint8_t body[64 * 1024];
    dunlin_error error = {0};
    size_t n = 0;
    dunlin__put_response put;
    dunlin__commit_request request = {
        .kind = DUNLIN_V1_KIND_TRAIN, .encoding = DUNLIN_V1_ENCODING_F32, .n_examples = 5};
    cr_assert_eq(test_put(device, ones, &put), 200);
    test_send_chunks(device, ones);
    memcpy(request.manifest_sha256, device->manifest_sha256, DUNLIN_SHA256_BYTES);
    MUST(dunlin__commit_request_encode(&request, body, sizeof body, &n, &error));
    cr_assert_leq(n + n_tail, sizeof body);
    memcpy(body + n, tail, n_tail);
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_COMMIT, device->assignment.assignment_id);
    return test_send(device, &route, body, n + n_tail, NULL);
}

/* One metric on the wire: its bytes. */
static size_t put_metric(uint8_t *out, const char *name, double value)
{
    size_t n_name = strlen(name);
    uint8_t head[] = {0x42, (uint8_t)(n_name + 11), 0x0a, (uint8_t)n_name};
    memcpy(out, head, sizeof head);
    memcpy(out + 4, name, n_name);
    out[4 + n_name] = 0x11;
    memcpy(out + 5 + n_name, &value, sizeof value);
    return n_name + 13;
}

Test(metrics, bad_ones_are_refused_by_name_and_the_run_goes_on)
{
    static const struct {
        const char *name;
        double value;
        int n;
        const char *words;
    } cases[] = {
        {"f1", (double)NAN, 1, "app_metrics[0].value is not a finite"},
        {"f1", (double)INFINITY, 1, "app_metrics[0].value is not a finite"},
        {"f1", 1e300, 1, "app_metrics[0].value is 1e+300"},
        {"<script>alert(1)</script>", 1, 1, "app_metrics[0].name is not 1 to 64 letters"},
        {"", 1, 1, "app_metrics[0].name is not 1 to 64 letters"},
        {"a b", 1, 1, "app_metrics[0].name is not 1 to 64 letters"},
        {"a\nb", 1, 1, "app_metrics[0].name is not 1 to 64 letters"},
        {"0123456789012345678901234567890123456789012345678901234567890123x", 1, 1, "app_metrics"},
        {"f1", 1, 1000, "app_metrics"},
    };
    static uint8_t tail[32 * 1024];
    const dunlin__app_metric good[] = {{"f1", 0.5}};
    test_server fixture;
    test_device device;
    begin(&fixture, ", \"rounds\": 3, \"cohort\": 1");
    test_join(&device, &fixture, -1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = 0;
        for (int k = 0; k < cases[i].n; k++) {
            n += put_metric(tail + n, cases[i].name, cases[i].value);
        }
        cr_expect_eq(commit_raw(&device, tail, n), 400, "case %zu", i);
        cr_expect_not_null(strstr(device.status.text, cases[i].words), "%s", device.status.text);
        cr_expect_null(strchr(device.status.text, '<'), "%s", device.status.text);
        cr_expect_null(strchr(device.status.text, '\n'));
    }
    contribute(&device, 5, good, 1);
    cr_expect_eq(fixture.server.round.round, 2);
    end(&fixture);
}
