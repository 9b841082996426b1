/*
 * test_secagg.c - real clients against the real server in rounds with secure aggregation, one
 * thread driving all of them: the model to the bit, kills of a device at each stage, a killed
 * server.
 */
#include "client/fake_server.h"
#include "server_process.h"

#include <criterion/criterion.h>

#include <jansson.h>
#include <secagg/secagg_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N 4
#define N_VALUES FAKE_VALUES
#define VALUE_LIMIT 4096
#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 2, \"cohort\": 4, \"clients\": "  \
    "4,"                                                                                           \
    " \"deadline_s\": 150, \"chunk_bytes\": 262144, \"tensors\": ["                                \
    "{\"name\": \"weights\", \"shape\": [70000]}, {\"name\": \"bias\", \"shape\": [3, 4]}, "       \
    "{\"name\": \"mean\", \"shape\": [3]}], \"secagg\": {\"neighbours\": 3, \"threshold\": 2, "    \
    "\"corrupt\": 0, \"dropout\": 0, \"least_devices\": 3, \"clip\": 1, \"value_limit\": 4096, "   \
    "\"weight_limit\": 1, \"step_s\": 12}}"

static server_process server;

/* A client with a store of its own: another device. */
typedef struct device {
    fake_learner learner;
    dunlin_learner plug;
    dunlin_runtime *runtime;
    dunlin_client *client;
    dunlin_client_options options;
    char store[192];
    char token[32];
    int64_t due_ms;
    bool is_over; /* the round, with... */
    dunlin_status status;
    dunlin_round_report report;
} device;

static int64_t now_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void device_open(device *d)
{
    dunlin_error error = {0};
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    shared.store_folder = d->store;
    shared.ca_file = server.ca_file;
    cr_assert_eq(dunlin_runtime_create(&shared, &d->runtime, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_client_create(d->runtime, &d->options, &d->plug, &d->client, &error),
                 DUNLIN_OK, "%s", error.text);
}

static void device_close(device *d)
{
    dunlin_client_destroy(d->client);
    dunlin_runtime_destroy(d->runtime);
    d->client = NULL;
    d->runtime = NULL;
}

/* As after a kill: what was in memory is gone. */
static void device_kill(device *d)
{
    device_close(d);
    device_open(d);
    d->due_ms = 0;
}

/* Updates of whole 4096ths, so that no rounding is drawn. */
static void device_make(device *d, int index)
{
    char name[32];
    memset(d, 0, sizeof *d);
    d->plug = fake_learner_make(&d->learner);
    d->learner.step = (float)(index * 3 + 1) / 64.0F;
    d->options = (dunlin_client_options)DUNLIN_CLIENT_OPTIONS_INIT;
    d->options.server_url = server.url;
    d->options.population = "phones";
    d->options.signing_keys = server.signing_key;
    d->options.n_signing_keys = 1;
    d->options.require_secure_aggregation = true;
    d->options.retry_refused_first_ms = 20;
    d->options.retry_refused_most_ms = 200;
    (void)snprintf(d->token, sizeof d->token, "index:%d", index);
    d->options.enrolment_token = d->token;
    (void)snprintf(name, sizeof name, "store-%d", index);
    server_process_path(&server, name, d->store);
    device_open(d);
}

static void begin(device *devices)
{
    server_process_start(&server, TASK, "20:40");
    for (int i = 0; i < N; i++) {
        device_make(&devices[i], i);
    }
}

static void end(device *devices)
{
    for (int i = 0; i < N; i++) {
        device_close(&devices[i]);
    }
    server_process_stop(&server);
}

/* One action of a device that is due; the round is over when it ended otherwise than by waiting. */
static void device_step(device *d)
{
    int64_t wait_ms = 0;
    bool is_ended = false;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    if (d->is_over || now_ms() < d->due_ms) {
        return;
    }
    d->status = dunlin_client_step(d->client, 0, &wait_ms, &is_ended, &report);
    if (is_ended || d->status != DUNLIN_OK) {
        d->report = report;
        d->is_over = d->status != DUNLIN_OK || (report.outcome != DUNLIN_OUTCOME_NOT_SELECTED &&
                                                report.outcome != DUNLIN_OUTCOME_TOO_EARLY);
        wait_ms = report.retry_after_ms + 1;
    }
    d->due_ms = now_ms() + wait_ms;
}

static void rest(void)
{
    const struct timespec pause = {.tv_nsec = 2000000L};
    (void)nanosleep(&pause, NULL);
}

/* All devices until their rounds are over. */
static void drive(device *devices)
{
    int n_over = 0;
    while (n_over < N) {
        n_over = 0;
        for (int i = 0; i < N; i++) {
            device_step(&devices[i]);
            n_over += devices[i].is_over ? 1 : 0;
        }
        rest();
    }
}

/* All devices until `reached_fn` holds for the first. */
static void drive_until(device *devices, bool (*reached_fn)(const device *d))
{
    while (!reached_fn(&devices[0])) {
        for (int i = 0; i < N && !reached_fn(&devices[0]); i++) {
            device_step(&devices[i]);
        }
        cr_assert_not(devices[0].is_over, "%s: %s", dunlin_status_name(devices[0].status),
                      dunlin_client_last_error(devices[0].client)->text);
        rest();
    }
}

static uint32_t whole(const device *d, int64_t i)
{
    const int64_t place = i < 70000 ? i : (i < 70012 ? i - 70000 : i - 70012);
    return (uint32_t)(d->learner.step * (float)(place % 5 + 1) * (float)VALUE_LIMIT);
}

/* The mean of whole numbers of those that are in, to the bit. */
static void expect_model(const device *devices, const bool *is_in, int round)
{
    static float model[N_VALUES];
    int n = 0;
    for (int d = 0; d < N; d++) {
        n += is_in[d] ? 1 : 0;
    }
    server_process_wait_rounds(&server, round);
    server_process_model(&server, round + 1, model, N_VALUES);
    for (int64_t i = 0; i < N_VALUES; i++) {
        uint32_t sum = 0;
        for (int d = 0; d < N; d++) {
            sum += is_in[d] ? whole(&devices[d], i) : 0;
        }
        const float wanted = (float)((double)sum * (1.0 / VALUE_LIMIT * (1.0 / (double)n)));
        cr_assert_eq(memcmp(&model[i], &wanted, sizeof wanted), 0, "value %lld: %.9g, not %.9g",
                     (long long)i, (double)model[i], (double)wanted);
    }
}

/* The step of the status's round: devices that came. */
static int came(int round, const char *step)
{
    char *text = server_process_status(&server);
    json_t *status = json_loads(text, 0, NULL);
    const json_t *object = json_array_get(json_object_get(status, "rounds"), (size_t)round - 1);
    object = json_object_get(json_object_get(json_object_get(object, "secagg"), "steps"), step);
    const int n = (int)json_integer_value(json_object_get(object, "devices"));
    json_decref(status);
    free(text);
    return n;
}

static bool has_learned(const device *d)
{
    return d->client->journal.phase == DUNLIN_PHASE_PUT;
}

static bool has_advertised(const device *d)
{
    const dunlin__round *round = d->client->round;
    return round != NULL && round->secure.session != NULL &&
           dunlin__secagg_client_step(round->secure.session) >= DUNLIN_V1_SECAGG_STEP_SHARE;
}

static bool has_masked(const device *d)
{
    return d->client->journal.phase == DUNLIN_PHASE_UPLOAD;
}

static bool has_committed(const device *d)
{
    return d->client->round != NULL && d->client->round->secure.is_telling;
}

static bool is_about_to_unmask(const device *d)
{
    return has_committed(d) && dunlin__secagg_client_step(d->client->round->secure.session) ==
                                   DUNLIN_V1_SECAGG_STEP_UNMASK;
}

static void expect_accepted(const device *d)
{
    cr_expect_eq(d->status, DUNLIN_OK, "%s: %s", dunlin_status_name(d->status),
                 dunlin_client_last_error(d->client)->text);
    cr_expect_eq(d->report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s",
                 dunlin_outcome_name(d->report.outcome));
}

Test(secagg, the_model_is_the_mean_to_the_bit)
{
    static device devices[N];
    static const bool all[N] = {true, true, true, true};
    begin(devices);
    drive(devices);
    for (int i = 0; i < N; i++) {
        expect_accepted(&devices[i]);
        cr_expect_eq(devices[i].report.aggregation, DUNLIN_AGGREGATION_HONEST_BUT_CURIOUS);
        cr_expect_leq(fake_folder_count(devices[i].store), 3, "the round's files are gone");
    }
    expect_model(devices, all, 1);
    cr_expect_eq(came(1, "unmask"), N);
    end(devices);
}

/* Nothing was agreed yet: it goes on as if nothing had been. */
Test(secagg, a_kill_before_the_keys)
{
    static device devices[N];
    static const bool all[N] = {true, true, true, true};
    begin(devices);
    drive_until(devices, has_learned);
    device_kill(&devices[0]);
    drive(devices);
    expect_accepted(&devices[0]);
    expect_model(devices, all, 1);
    end(devices);
}

/* Its keys are gone, and there are no second ones: it leaves, and the others go on. */
Test(secagg, a_kill_after_the_keys)
{
    static device devices[N];
    static const bool others[N] = {false, true, true, true};
    begin(devices);
    drive_until(devices, has_advertised);
    device_kill(&devices[0]);
    drive(devices);
    /* Refused by the server, or by itself: the list of keys has not those that it has now. */
    cr_expect(devices[0].status == DUNLIN_REJECTED || devices[0].status == DUNLIN_MISMATCH,
              "%s: %s", dunlin_status_name(devices[0].status),
              dunlin_client_last_error(devices[0].client)->text);
    for (int i = 1; i < N; i++) {
        expect_accepted(&devices[i]);
    }
    expect_model(devices, others, 1);
    end(devices);
}

/* Kills after the vector is masked: the same bytes are sent, and no shares are told. */
static void kill_masked(bool (*reached_fn)(const device *d), int n_unmask)
{
    static device devices[N];
    static const bool all[N] = {true, true, true, true};
    begin(devices);
    drive_until(devices, reached_fn);
    device_kill(&devices[0]);
    drive(devices);
    for (int i = 0; i < N; i++) {
        expect_accepted(&devices[i]);
    }
    expect_model(devices, all, 1);
    cr_expect_eq(came(1, "mask"), N);
    cr_expect_eq(came(1, "unmask"), n_unmask);
    end(devices);
}

Test(secagg, a_kill_with_the_masked_vector)
{
    kill_masked(has_masked, N - 1);
}

Test(secagg, a_kill_after_the_commit)
{
    kill_masked(has_committed, N - 1);
}

Test(secagg, a_kill_before_the_shares_are_told)
{
    kill_masked(is_about_to_unmask, N - 1);
}

/* The round is closed as failed, and the devices find the next one. */
Test(secagg, a_killed_server_fails_the_round)
{
    static device devices[N];
    static const bool all[N] = {true, true, true, true};
    begin(devices);
    drive_until(devices, has_committed);
    server_process_kill(&server);
    server_process_restart(&server);
    drive(devices); /* late, or refused */
    server_process_wait_rounds(&server, 1);
    char *text = server_process_status(&server);
    cr_expect_not_null(strstr(text, "the server was started anew within it"), "%s", text);
    free(text);
    for (int i = 0; i < N; i++) {
        devices[i].is_over = false;
    }
    drive(devices);
    for (int i = 0; i < N; i++) {
        expect_accepted(&devices[i]);
        cr_expect_eq(devices[i].report.round, 2);
    }
    expect_model(devices, all, 2);
    end(devices);
}
