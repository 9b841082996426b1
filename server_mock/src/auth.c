/*
 * auth.c - the table of devices, their challenges and counters, and the check of a signed request.
 *
 * Invariant: a counter over a challenge is used at most once; challenges live in memory alone, so
 * after a restart none of the old ones is good and nothing can be replayed.
 */
#include "server.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TABLE_SLOTS (2u * DUNLIN_SERVER_CLIENTS)
#define CHALLENGE_LIFE_MS (60 * 60 * 1000)
#define COUNTER_WINDOW 64u

/* ---- the table ---- */

/* FNV-1a, 64 bits: ids are random, so nobody chooses collisions. */
static uint32_t slot_of(const char *id)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = id; *c != 0; c++) {
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    }
    return (uint32_t)(hash % TABLE_SLOTS);
}

static void put_in_table(dunlin__server_devices *devices, const char *id, size_t place)
{
    uint32_t slot = slot_of(id);
    while (devices->table[slot] != 0) {
        slot = (slot + 1) % TABLE_SLOTS;
    }
    devices->table[slot] = (uint32_t)place;
}

dunlin_status dunlin__devices_add(dunlin__server *server, const dunlin__device_row *row,
                                  dunlin__server_device **out_device, dunlin_error *error)
{
    dunlin__server_devices *devices = &server->devices;
    if (devices->n >= DUNLIN_SERVER_CLIENTS) {
        return dunlin__fail(error, DUNLIN_MEMORY, "devices", 0,
                            "the population has its limit of %u devices", DUNLIN_SERVER_CLIENTS);
    }
    if (devices->table == NULL) {
        devices->table = dunlin__alloc_zeroed(&server->alloc, TABLE_SLOTS, sizeof(uint32_t));
    }
    dunlin__server_device *device = dunlin__alloc_zeroed(&server->alloc, 1, sizeof *device);
    void *list = devices->list;
    bool has_room = devices->table != NULL && device != NULL &&
                    dunlin__grow_array(&server->alloc, &list, &devices->capacity, devices->n + 1,
                                       sizeof(dunlin__server_device *));
    devices->list = list;
    if (!has_room) {
        dunlin__free_array(&server->alloc, device, 1, sizeof *device);
        return dunlin__fail(error, DUNLIN_MEMORY, "devices", 0, "device %zu", devices->n + 1);
    }
    device->row = *row;
    devices->list[devices->n] = device;
    devices->n++;
    devices->n_known++;
    put_in_table(devices, row->id, devices->n);
    *out_device = device;
    return DUNLIN_OK;
}

dunlin__server_device *dunlin__devices_find(dunlin__server *server, const char *id)
{
    const dunlin__server_devices *devices = &server->devices;
    if (devices->table == NULL) {
        return NULL;
    }
    for (uint32_t slot = slot_of(id); devices->table[slot] != 0; slot = (slot + 1) % TABLE_SLOTS) {
        dunlin__server_device *device = devices->list[devices->table[slot] - 1];
        if (device->row.row != 0 && strcmp(device->row.id, id) == 0) {
            return device;
        }
    }
    return NULL;
}

dunlin__server_device *dunlin__devices_find_key(dunlin__server *server,
                                                const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES])
{
    for (size_t i = 0; i < server->devices.n; i++) {
        dunlin__server_device *device = server->devices.list[i];
        if (device->row.row != 0 &&
            memcmp(device->row.public_key, public_key, DUNLIN_PUBLIC_KEY_BYTES) == 0) {
            return device;
        }
    }
    return NULL;
}

dunlin__server_device *dunlin__devices_find_row(dunlin__server *server, int64_t row)
{
    for (size_t i = 0; i < server->devices.n; i++) {
        if (server->devices.list[i]->row.row == row) {
            return server->devices.list[i];
        }
    }
    return NULL;
}

dunlin__server_device *dunlin__devices_find_index(dunlin__server *server, int64_t client_index)
{
    for (size_t i = 0; i < server->devices.n; i++) {
        dunlin__server_device *device = server->devices.list[i];
        if (device->row.row != 0 && device->row.client_index == client_index) {
            return device;
        }
    }
    return NULL;
}

/* The slot stays taken, so that searches go on past it; what was accepted still counts. */
void dunlin__devices_remove(dunlin__server *server, dunlin__server_device *device)
{
    if (device->row.row != 0) {
        server->devices.n_known--;
        server->devices.n_checked_in -= device->has_checked_in ? 1 : 0;
        memset(&device->row, 0, sizeof device->row);
        device->row.client_index = -1;
        device->has_checked_in = false;
        if (device->part != DUNLIN_PART_ACCEPTED) {
            device->part = DUNLIN_PART_NONE;
        }
    }
}

void dunlin__devices_compact(dunlin__server *server)
{
    dunlin__server_devices *devices = &server->devices;
    if (devices->n < DUNLIN_SERVER_CLIENTS || devices->n_known >= devices->n) {
        return;
    }
    if (server->gone.round != server->round.round) {
        server->gone.round = server->round.round;
        server->gone.n_accepted = 0;
    }
    size_t n_kept = 0;
    memset(devices->table, 0, TABLE_SLOTS * sizeof *devices->table);
    for (size_t i = 0; i < devices->n; i++) {
        dunlin__server_device *device = devices->list[i];
        if (device->row.row == 0) {
            bool has_given = dunlin__device_part(server, device) == DUNLIN_PART_ACCEPTED;
            server->gone.n_accepted += has_given ? 1 : 0;
            dunlin__free_array(&server->alloc, device, 1, sizeof *device);
        } else {
            devices->list[n_kept] = device;
            n_kept++;
            put_in_table(devices, device->row.id, n_kept);
        }
    }
    devices->n = n_kept;
}

void dunlin__devices_free(dunlin__server *server)
{
    dunlin__server_devices *devices = &server->devices;
    for (size_t i = 0; i < devices->n; i++) {
        dunlin__free_array(&server->alloc, devices->list[i], 1, sizeof *devices->list[i]);
    }
    dunlin__free_array(&server->alloc, devices->list, devices->capacity,
                       sizeof(dunlin__server_device *));
    dunlin__free_array(&server->alloc, devices->table, TABLE_SLOTS, sizeof(uint32_t));
    memset(devices, 0, sizeof *devices);
}

/* ---- challenges and counters ---- */

dunlin_status dunlin__device_challenge(dunlin__server *server, dunlin__server_device *device,
                                       dunlin_error *error)
{
    int64_t now_ms = dunlin__server_now(server);
    if (device->challenge[0] != 0 && now_ms - device->challenge_ms < CHALLENGE_LIFE_MS &&
        now_ms >= device->challenge_ms) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__server_draw_id(device->challenge, error));
    device->challenge_ms = now_ms;
    device->counter_top = 0;
    device->counter_seen = 0;
    return DUNLIN_OK;
}

/* The window of IPsec's anti-replay service (RFC 4303, 3.4.3). */
bool dunlin__device_use_counter(dunlin__server_device *device, uint64_t counter)
{
    if (counter == 0) {
        return false;
    }
    if (counter > device->counter_top) {
        uint64_t step = counter - device->counter_top;
        device->counter_seen = step < COUNTER_WINDOW ? device->counter_seen << step : 0;
        device->counter_seen |= 1;
        device->counter_top = counter;
        return true;
    }
    uint64_t back = device->counter_top - counter;
    uint64_t bit = back < COUNTER_WINDOW ? UINT64_C(1) << back : 0;
    if (bit == 0 || (device->counter_seen & bit) != 0) {
        return false;
    }
    device->counter_seen |= bit;
    return true;
}

/* ---- signed requests ---- */

typedef struct credentials {
    uint64_t counter;
    uint8_t signature[DUNLIN_SIGNATURE_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
} credentials;

static bool read_headers(const dunlin__server_request *request, credentials *out,
                         dunlin__server_reply *reply)
{
    bool is_enrolment = request->route.call == DUNLIN_CALL_ENROL;
    const char *missing = NULL;
    if (request->signature == NULL) {
        missing = DUNLIN_HEADER_SIGNATURE;
    } else if (request->counter == NULL) {
        missing = DUNLIN_HEADER_COUNTER;
    } else if (!is_enrolment && request->device_id == NULL) {
        missing = DUNLIN_HEADER_DEVICE;
    } else if (!is_enrolment && request->challenge == NULL) {
        missing = DUNLIN_HEADER_CHALLENGE;
    } else if (request->authority == NULL) {
        missing = "Host";
    }
    if (missing != NULL) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED,
                              "the header %s is missing", missing);
        return false;
    }
    if (!dunlin__hex_decode(request->signature, out->signature, sizeof out->signature)) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED,
                              "%s must be 128 lower-case hex digits", DUNLIN_HEADER_SIGNATURE);
        return false;
    }
    dunlin_error error = {0};
    if (dunlin__header_u64(DUNLIN_HEADER_COUNTER, request->counter, &out->counter, &error) !=
        DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    return true;
}

/* Copies the device's key, and sends those with an old challenge away with the new one. */
static bool find_key(dunlin__server *server, const dunlin__server_request *request,
                     credentials *out, dunlin__server_reply *reply)
{
    bool is_found = false;
    (void)pthread_mutex_lock(&server->lock);
    dunlin__server_device *device = dunlin__devices_find(server, request->device_id);
    dunlin_error error = {0};
    if (device == NULL) {
        dunlin__server_refuse_stranger(server, request->device_id, reply);
    } else if (device->challenge[0] != 0 && strcmp(device->challenge, request->challenge) == 0) {
        memcpy(out->public_key, device->row.public_key, sizeof out->public_key);
        is_found = true;
    } else if (dunlin__device_challenge(server, device, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
    } else {
        dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE,
                                 .text = "sign over the challenge given here"};
        memcpy(status.challenge, device->challenge, sizeof device->challenge);
        dunlin__server_refuse_with(reply, &status);
    }
    (void)pthread_mutex_unlock(&server->lock);
    return is_found;
}

static bool find_enrolment_key(const dunlin__server_request *request, credentials *out,
                               dunlin__server_reply *reply)
{
    dunlin__enrol_request enrol;
    dunlin_error error = {0};
    if (dunlin__enrol_request_decode(request->body, request->n_body, &enrol, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    memcpy(out->public_key, enrol.public_key, sizeof out->public_key);
    if (dunlin__key_check(out->public_key, &error) != DUNLIN_OK) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "EnrolRequest.public_key is not a point of P-256");
        return false;
    }
    return true;
}

/* A used counter is answered with a fresh challenge: a device that lost count can go on. */
static bool use_counter(dunlin__server *server, const dunlin__server_request *request,
                        uint64_t counter, dunlin__server_reply *reply)
{
    dunlin_error error = {0};
    dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_REPLAYED};
    (void)snprintf(status.text, sizeof status.text, "the counter %" PRIu64 " was used before",
                   counter);
    (void)pthread_mutex_lock(&server->lock);
    dunlin__server_device *device = dunlin__devices_find(server, request->device_id);
    bool is_fresh = device != NULL && strcmp(device->challenge, request->challenge) == 0 &&
                    dunlin__device_use_counter(device, counter);
    if (!is_fresh && device != NULL) {
        if (strcmp(device->challenge, request->challenge) == 0) {
            device->challenge[0] = 0;
        }
        if (dunlin__device_challenge(server, device, &error) == DUNLIN_OK) {
            memcpy(status.challenge, device->challenge, sizeof device->challenge);
        }
    }
    (void)pthread_mutex_unlock(&server->lock);
    if (!is_fresh) {
        dunlin__server_refuse_with(reply, &status);
    }
    return is_fresh;
}

bool dunlin__server_authenticate(dunlin__server *server, const dunlin__server_request *request,
                                 dunlin__server_reply *reply)
{
    credentials have;
    bool is_enrolment = request->route.call == DUNLIN_CALL_ENROL;
    if (!read_headers(request, &have, reply)) {
        return false;
    }
    if (!(is_enrolment ? find_enrolment_key(request, &have, reply)
                       : find_key(server, request, &have, reply))) {
        return false;
    }
    dunlin__signed_request signed_request = {.method = request->method,
                                             .authority = request->authority,
                                             .path = request->path,
                                             .device_id = is_enrolment ? "" : request->device_id,
                                             .idempotency_key = request->idempotency_key,
                                             .challenge = is_enrolment ? "" : request->challenge,
                                             .counter = have.counter};
    dunlin_error error = {0};
    dunlin_status status =
        dunlin__sha256_of(request->body, request->n_body, signed_request.body_sha256, &error);
    if (status == DUNLIN_OK) {
        status = dunlin__request_verify(&signed_request, have.public_key, have.signature, &error);
    }
    if (status != DUNLIN_OK) {
        if (status == DUNLIN_SIGNATURE) {
            dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED,
                                  "the request's signature is wrong for the host %.100s, which "
                                  "is what this server saw; a proxy has to pass Host on as it came",
                                  request->authority);
        } else {
            dunlin__server_refuse_error(reply, &error);
        }
        return false;
    }
    if (is_enrolment) {
        return true;
    }
    return use_counter(server, request, have.counter, reply);
}
