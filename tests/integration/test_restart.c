/*
 * test_restart.c - the real server killed in the middle of a round and started again 4 s later,
 * under real clients over TLS: the round goes on where it was, and closes with those who were in
 * it.
 */
#include "client/fake_server.h"
#include "server_process.h"

#include <criterion/criterion.h>

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_DEVICES 16
#define COHORT 8
#define AWAY_MS 4000
#define DEADLINE_S 30

static const char TASK[] =
    "{\"population\": \"phones\", \"task\": \"adding\", \"tensors\": [{\"name\": \"weights\", "
    "\"shape\": [70000]}, {\"name\": \"bias\", \"shape\": [3, 4]}, {\"name\": \"mean\", \"shape\": "
    "[3], \"rule\": \"statistic\"}], \"rounds\": 3, \"clients\": 16, \"cohort\": 8, "
    "\"deadline_s\": 30, \"seed\": 5}";

typedef struct device {
    fake_learner learner;
    dunlin_learner_ops ops; /* the learner's, but a slice takes its time */
    dunlin_runtime *runtime;
    dunlin_client *client;
    pthread_t thread;
    char store[192];
    int n_accepted;
    int64_t longest_wait_ms; /* after a failure */
} device;

static server_process server;
static device devices[N_DEVICES];
static atomic_bool is_over;
static dunlin_status (*fit_at_once)(void *, int64_t, dunlin_learner_report *);

static void rest(int64_t ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&pause, NULL);
}

static int64_t now_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static dunlin_status fit_slowly(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    rest(100);
    return fit_at_once(self, max_ms, out_report);
}

static void device_open(device *d, int index)
{
    char name[32];
    char token[32];
    dunlin_error error = {0};
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    dunlin_learner plug = fake_learner_make(&d->learner);
    d->ops = *plug.ops;
    fit_at_once = plug.ops->fit;
    d->ops.fit = fit_slowly;
    plug.ops = &d->ops;
    d->learner.n_slices = 15;
    (void)snprintf(name, sizeof name, "store-%d", index);
    (void)snprintf(token, sizeof token, "index:%d", index);
    server_process_path(&server, name, d->store);
    shared.store_folder = d->store;
    shared.ca_file = server.ca_file;
    options.server_url = server.url;
    options.population = "phones";
    options.signing_keys = server.signing_key;
    options.n_signing_keys = 1;
    options.enrolment_token = token;
    cr_assert_eq(dunlin_runtime_create(&shared, &d->runtime, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_client_create(d->runtime, &options, &plug, &d->client, &error), DUNLIN_OK,
                 "%s", error.text);
}

static void *run_device(void *ctx)
{
    device *d = ctx;
    while (!atomic_load(&is_over)) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        dunlin_status status = dunlin_client_run_round(d->client, &report);
        int64_t wait_ms = dunlin_client_wait_ms(d->client);
        d->n_accepted += report.outcome == DUNLIN_OUTCOME_ACCEPTED;
        if (status != DUNLIN_OK && wait_ms > d->longest_wait_ms) {
            d->longest_wait_ms = wait_ms;
        }
        for (int64_t until_ms = now_ms() + wait_ms;
             now_ms() < until_ms && !atomic_load(&is_over);) {
            rest(10);
        }
    }
    return NULL;
}

static json_t *read_status(void)
{
    char *text = server_process_status(&server);
    json_t *status = json_loads(text, 0, NULL);
    cr_assert_not_null(status, "%s", text);
    free(text);
    return status;
}

static int number_of(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

/* Until the second round has been given out to all of its cohort, and nobody is done with it. */
static void wait_for_mid_round(void)
{
    for (int i = 0; i < 1200; i++) {
        json_t *status = read_status();
        const json_t *open = json_object_get(status, "open");
        bool is_reached =
            number_of(open, "round") == 2 && number_of(open, "assigned") >= COHORT - 1;
        json_decref(status);
        if (is_reached) {
            return;
        }
        rest(25);
    }
    cr_assert_fail("the second round is not given out: see %s", server.folder);
}

Test(restart, the_round_goes_on_with_those_who_were_in_it, .timeout = 180)
{
    server_process_start(&server, TASK, "200:400");
    for (int i = 0; i < N_DEVICES; i++) {
        device_open(&devices[i], i);
        cr_assert_eq(pthread_create(&devices[i].thread, NULL, run_device, &devices[i]), 0);
    }
    wait_for_mid_round();
    server_process_kill(&server);
    rest(AWAY_MS);
    server_process_restart(&server);
    int64_t back_ms = now_ms();
    server_process_wait_rounds(&server, 2);
    int64_t took_ms = now_ms() - back_ms;
    server_process_wait_rounds(&server, 3);
    atomic_store(&is_over, true);
    json_t *status = read_status();
    const json_t *rounds = json_object_get(status, "rounds");
    for (size_t i = 1; i < 3; i++) {
        const json_t *round = json_array_get(rounds, i);
        cr_expect_geq(number_of(round, "participants"), COHORT - 1, "round %zu: %d", i + 1,
                      number_of(round, "participants"));
    }
    cr_expect_lt(took_ms, 1000LL * DEADLINE_S / 2, "the round closed %lld ms after the restart",
                 (long long)took_ms);
    json_decref(status);
    int n_accepted = 0;
    for (int i = 0; i < N_DEVICES; i++) {
        cr_assert_eq(pthread_join(devices[i].thread, NULL), 0);
        cr_expect_leq(devices[i].longest_wait_ms, 6000, "device %d", i);
        n_accepted += devices[i].n_accepted;
        dunlin_client_destroy(devices[i].client);
        dunlin_runtime_destroy(devices[i].runtime);
    }
    cr_expect_geq(n_accepted, 3 * COHORT - 2);
    server_process_stop(&server);
}

/* Made before its server is: served within 6 s of its start. */
Test(restart, a_client_that_comes_before_its_server, .timeout = 120)
{
    server_process_start(&server, TASK, "200:400");
    server_process_kill(&server);
    device *d = &devices[0];
    device_open(d, 0);
    cr_assert_eq(pthread_create(&d->thread, NULL, run_device, d), 0);
    rest(5000);
    server_process_restart(&server);
    int64_t back_ms = now_ms();
    int n_known = 0;
    while (n_known == 0 && now_ms() - back_ms < 60000) {
        json_t *status = read_status();
        n_known = number_of(json_object_get(status, "clients"), "checked_in");
        json_decref(status);
        rest(50);
    }
    cr_expect_leq(now_ms() - back_ms, 7000, "served after %lld ms",
                  (long long)(now_ms() - back_ms));
    atomic_store(&is_over, true);
    cr_assert_eq(pthread_join(d->thread, NULL), 0);
    cr_expect_leq(d->longest_wait_ms, 6000);
    dunlin_client_destroy(d->client);
    dunlin_runtime_destroy(d->runtime);
    server_process_stop(&server);
}
