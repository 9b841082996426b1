/*
 * devices.c - the table of devices, their challenges and counters, their parts in the round.
 *
 * Invariant: a counter over a challenge is used at most once; challenges live in memory alone, so
 * after a restart none of the old ones is good and nothing can be replayed.
 */
#include "devices.h"

#include "context.h"
#include "db.h"

#include <mem/support.h>

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

/* ---- parts ---- */

dunlin__part dunlin__device_part(const dunlin__server *server, const dunlin__server_device *device)
{
    return device->part_round == server->round.round ? device->part : DUNLIN_PART_NONE;
}

void dunlin__device_set_part(dunlin__server *server, dunlin__server_device *device,
                             dunlin__part part)
{
    device->part_round = server->round.round;
    device->part = part;
    device->is_uploading = false;
    device->has_failed = false;
}
