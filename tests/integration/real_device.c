/*
 * real_device.c - clients with stores of their own, as so many devices of a server process.
 */
#include "real_device.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

void real_device_prepare(real_device *device, const server_process *server, int index)
{
    char name[32];
    memset(device, 0, sizeof *device);
    device->server = server;
    device->plug = fake_learner_make(&device->learner);
    device->options = (dunlin_client_options)DUNLIN_CLIENT_OPTIONS_INIT;
    device->options.server_url = server->url;
    device->options.population = "phones";
    device->options.signing_keys = server->signing_key;
    device->options.n_signing_keys = 1;
    (void)snprintf(device->token, sizeof device->token, "index:%d", index);
    device->options.enrolment_token = device->token;
    (void)snprintf(name, sizeof name, "store-%d", index);
    server_process_path(server, name, device->store);
}

void real_device_open(real_device *device)
{
    dunlin_error error = {0};
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    shared.store_folder = device->store;
    shared.ca_file = device->server->ca_file;
    cr_assert_eq(dunlin_runtime_create(&shared, &device->runtime, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin_client_create(device->runtime, &device->options, &device->plug,
                                      &device->client, &error),
                 DUNLIN_OK, "%s", error.text);
}

void real_device_close(real_device *device)
{
    dunlin_client_destroy(device->client);
    dunlin_runtime_destroy(device->runtime);
    device->client = NULL;
    device->runtime = NULL;
}

void real_device_kill(real_device *device)
{
    real_device_close(device);
    real_device_open(device);
    device->due_ms = 0;
}

static int64_t now_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void real_device_step(real_device *device)
{
    int64_t wait_ms = 0;
    bool is_ended = false;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    if (device->is_over || now_ms() < device->due_ms) {
        return;
    }
    device->status = dunlin_client_step(device->client, 0, &wait_ms, &is_ended, &report);
    if (is_ended || device->status != DUNLIN_OK) {
        device->report = report;
        device->is_over =
            device->status != DUNLIN_OK || (report.outcome != DUNLIN_OUTCOME_NOT_SELECTED &&
                                            report.outcome != DUNLIN_OUTCOME_TOO_EARLY);
        wait_ms = report.retry_after_ms + 1;
    }
    device->due_ms = now_ms() + wait_ms;
}

void real_rest(int64_t ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&pause, NULL);
}
