/*
 * secagg_fleet.c - four real devices of a real server in rounds with secure aggregation.
 */
#include "secagg_fleet.h"

#include <criterion/criterion.h>

#include <jansson.h>
#include <secagg/secagg_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void secagg_fleet_begin(secagg_fleet *fleet, const char *task)
{
    secagg_fleet_begin_with(fleet, task, NULL);
}

void secagg_fleet_begin_with(secagg_fleet *fleet, const char *task,
                             const dunlin_learner plugs[FLEET_DEVICES])
{
    memset(fleet, 0, sizeof *fleet);
    server_process_start(&fleet->server, task, "20:40");
    for (int i = 0; i < FLEET_DEVICES; i++) {
        real_device *device = &fleet->devices[i];
        real_device_prepare(device, &fleet->server, i);
        device->learner.step = (float)(i * 3 + 1) / 64.0F;
        device->plug = plugs != NULL ? plugs[i] : device->plug;
        device->options.require_secure_aggregation = true;
        device->options.retry_refused_first_ms = 20;
        device->options.retry_refused_most_ms = 200;
        real_device_open(device);
    }
}

void secagg_fleet_end(secagg_fleet *fleet)
{
    for (int i = 0; i < FLEET_DEVICES; i++) {
        real_device_close(&fleet->devices[i]);
    }
    server_process_stop(&fleet->server);
}

static void step(secagg_fleet *fleet, int index)
{
    real_device_step(&fleet->devices[index]);
    if (fleet->watch_fn != NULL) {
        fleet->watch_fn(fleet, index);
    }
}

void secagg_fleet_drive(secagg_fleet *fleet)
{
    int n_over = 0;
    while (n_over < FLEET_DEVICES) {
        n_over = 0;
        for (int i = 0; i < FLEET_DEVICES; i++) {
            step(fleet, i);
            n_over += fleet->devices[i].is_over ? 1 : 0;
        }
        real_rest(2);
    }
}

void secagg_fleet_drive_until(secagg_fleet *fleet, bool (*reached_fn)(const real_device *device))
{
    const real_device *first = &fleet->devices[0];
    while (!reached_fn(first)) {
        for (int i = 0; i < FLEET_DEVICES && !reached_fn(first); i++) {
            step(fleet, i);
        }
        cr_assert_not(first->is_over, "%s: %s", dunlin_status_name(first->status),
                      dunlin_client_last_error(first->client)->text);
        real_rest(2);
    }
}

bool secagg_fleet_has_learned(const real_device *device)
{
    return device->client->journal.phase == DUNLIN_PHASE_PUT;
}

bool secagg_fleet_has_advertised(const real_device *device)
{
    const dunlin__round *round = device->client->round;
    return round != NULL && round->secure.session != NULL &&
           dunlin__secagg_client_step(round->secure.session) >= DUNLIN_V1_SECAGG_STEP_SHARE;
}

bool secagg_fleet_has_masked(const real_device *device)
{
    return device->client->journal.phase == DUNLIN_PHASE_UPLOAD;
}

bool secagg_fleet_has_committed(const real_device *device)
{
    return device->client->round != NULL && device->client->round->secure.is_telling;
}

bool secagg_fleet_is_about_to_unmask(const real_device *device)
{
    return secagg_fleet_has_committed(device) &&
           dunlin__secagg_client_step(device->client->round->secure.session) ==
               DUNLIN_V1_SECAGG_STEP_UNMASK;
}

bool secagg_fleet_read_numbers(const secagg_fleet *fleet, int index, uint32_t *out, size_t n)
{
    char path[1100];
    const dunlin_client *client = fleet->devices[index].client;
    if (client->round == NULL || client->journal.phase != DUNLIN_PHASE_PUT) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/update.whole", client->round->folder);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    const size_t n_read = fread(out, sizeof out[0], n, file);
    (void)fclose(file);
    cr_assert_eq(n_read, n);
    return true;
}

void secagg_fleet_expect_accepted(const real_device *device)
{
    cr_expect_eq(device->status, DUNLIN_OK, "%s: %s", dunlin_status_name(device->status),
                 dunlin_client_last_error(device->client)->text);
    cr_expect_eq(device->report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s",
                 dunlin_outcome_name(device->report.outcome));
}

int secagg_fleet_came(secagg_fleet *fleet, int round, const char *step_name)
{
    char *text = server_process_status(&fleet->server);
    json_t *status = json_loads(text, 0, NULL);
    const json_t *object = json_array_get(json_object_get(status, "rounds"), (size_t)round - 1);
    object =
        json_object_get(json_object_get(json_object_get(object, "secagg"), "steps"), step_name);
    const int n = (int)json_integer_value(json_object_get(object, "devices"));
    json_decref(status);
    free(text);
    return n;
}
