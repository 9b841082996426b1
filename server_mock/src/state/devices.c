/*
 * devices.c - the table of devices, their challenges and counters.
 *
 * Invariant: a counter over a challenge is used at most once; challenges live in memory alone, so
 * after a restart none of the old ones is good and nothing can be replayed.
 */
#include "devices.h"

#include "context.h"
#include "db.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <string.h>

#define LEAST_SLOTS 1024u
#define CHALLENGE_LIFE_MS (60 * 60 * 1000)
#define COUNTER_WINDOW 64u
#define FNV_BASIS 0xcbf29ce484222325u

/* ---- the tables ---- */

/* FNV-1a, 64 bits. Ids are random, so nobody chooses collisions; keys are chosen by whoever
 * enrols, so their order hangs on a random seed. */
static uint32_t slot_of(const void *bytes, size_t n_bytes, uint64_t seed, uint32_t n_slots)
{
    const uint8_t *next = bytes;
    uint64_t hash = FNV_BASIS ^ seed;
    for (size_t i = 0; i < n_bytes; i++) {
        hash = (hash ^ next[i]) * 0x100000001b3u;
    }
    return (uint32_t)((hash ^ (hash >> 32)) % n_slots);
}

static void put_in_table(uint32_t *table, uint32_t n_slots, uint32_t slot, size_t place)
{
    while (table[slot] != 0) {
        slot = (slot + 1) % n_slots;
    }
    table[slot] = (uint32_t)place;
}

static uint32_t slot_of_id(const dunlin__server_devices *devices, const char *id)
{
    return slot_of(id, strlen(id), 0, devices->n_slots);
}

static uint32_t slot_of_key(const dunlin__server_devices *devices, const uint8_t *public_key)
{
    return slot_of(public_key, DUNLIN_PUBLIC_KEY_BYTES, devices->seed, devices->n_slots);
}

static bool has_slot(const dunlin__server_devices *devices, int64_t client_index)
{
    return client_index >= 0 && client_index < (int64_t)devices->n_indices;
}

/* `place` in the list, from 1. */
static void enter(dunlin__server_devices *devices, const dunlin__device_row *row, size_t place)
{
    put_in_table(devices->by_id, devices->n_slots, slot_of_id(devices, row->id), place);
    put_in_table(devices->by_key, devices->n_slots, slot_of_key(devices, row->public_key), place);
    if (has_slot(devices, row->client_index) && devices->by_index[row->client_index] == 0) {
        devices->by_index[row->client_index] = (uint32_t)place;
    }
}

/* Twice as many slots as devices, and one more, so that a search ends. What was there is entered
 * anew, but for those that were removed. */
static bool grow_slots(dunlin__server *server)
{
    dunlin__server_devices *devices = &server->devices;
    const dunlin_alloc *alloc = &server->alloc;
    uint32_t n_slots = devices->n_slots > 0 ? devices->n_slots : LEAST_SLOTS;
    while (n_slots < 2 * (devices->n + 1)) {
        n_slots *= 2;
    }
    if (n_slots == devices->n_slots) {
        return true;
    }
    uint32_t *by_id = dunlin__alloc_zeroed(alloc, n_slots, sizeof *by_id);
    uint32_t *by_key = dunlin__alloc_zeroed(alloc, n_slots, sizeof *by_key);
    if (by_id == NULL || by_key == NULL) {
        dunlin__free_array(alloc, by_id, n_slots, sizeof *by_id);
        dunlin__free_array(alloc, by_key, n_slots, sizeof *by_key);
        return false;
    }
    dunlin__free_array(alloc, devices->by_id, devices->n_slots, sizeof *by_id);
    dunlin__free_array(alloc, devices->by_key, devices->n_slots, sizeof *by_key);
    devices->by_id = by_id;
    devices->by_key = by_key;
    devices->n_slots = n_slots;
    for (size_t i = 0; i < devices->n; i++) {
        const dunlin__device_row *row = &devices->list[i]->row;
        if (row->row != 0) {
            put_in_table(by_id, n_slots, slot_of_id(devices, row->id), i + 1);
            put_in_table(by_key, n_slots, slot_of_key(devices, row->public_key), i + 1);
        }
    }
    return true;
}

static bool grow_indices(dunlin__server *server, int64_t client_index)
{
    dunlin__server_devices *devices = &server->devices;
    uint32_t n = devices->n_indices > 0 ? devices->n_indices : LEAST_SLOTS;
    if (client_index >= (int64_t)DUNLIN_SERVER_CLIENTS || has_slot(devices, client_index)) {
        return true;
    }
    while ((int64_t)n <= client_index) {
        n *= 2;
    }
    uint32_t *by_index = dunlin__alloc_zeroed(&server->alloc, n, sizeof *by_index);
    if (by_index == NULL) {
        return false;
    }
    if (devices->n_indices > 0) {
        memcpy(by_index, devices->by_index, devices->n_indices * sizeof *by_index);
    }
    dunlin__free_array(&server->alloc, devices->by_index, devices->n_indices, sizeof *by_index);
    devices->by_index = by_index;
    devices->n_indices = n;
    return true;
}

static bool make_tables(dunlin__server *server, int64_t client_index, dunlin_error *error)
{
    dunlin__server_devices *devices = &server->devices;
    if (devices->n_slots == 0 &&
        dunlin__random_bytes(&devices->seed, sizeof devices->seed, error) != DUNLIN_OK) {
        return false;
    }
    return grow_slots(server) && grow_indices(server, client_index < 0 ? 0 : client_index);
}

dunlin_status dunlin__devices_add(dunlin__server *server, const dunlin__device_row *row,
                                  dunlin__server_device **out_device, dunlin_error *error)
{
    dunlin__server_devices *devices = &server->devices;
    if (devices->n >= DUNLIN_SERVER_CLIENTS) {
        return dunlin__fail(error, DUNLIN_MEMORY, "devices", 0,
                            "the population has its limit of %u devices", DUNLIN_SERVER_CLIENTS);
    }
    dunlin__server_device *device = dunlin__alloc_zeroed(&server->alloc, 1, sizeof *device);
    void *list = devices->list;
    bool has_room = make_tables(server, row->client_index, error) && device != NULL &&
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
    enter(devices, row, devices->n);
    *out_device = device;
    return DUNLIN_OK;
}

dunlin__server_device *dunlin__devices_find(dunlin__server *server, const char *id)
{
    const dunlin__server_devices *devices = &server->devices;
    if (devices->by_id == NULL) {
        return NULL;
    }
    for (uint32_t slot = slot_of_id(devices, id); devices->by_id[slot] != 0;
         slot = (slot + 1) % devices->n_slots) {
        dunlin__server_device *device = devices->list[devices->by_id[slot] - 1];
        if (device->row.row != 0 && strcmp(device->row.id, id) == 0) {
            return device;
        }
    }
    return NULL;
}

dunlin__server_device *dunlin__devices_find_key(dunlin__server *server,
                                                const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES])
{
    const dunlin__server_devices *devices = &server->devices;
    if (devices->by_key == NULL) {
        return NULL;
    }
    for (uint32_t slot = slot_of_key(devices, public_key); devices->by_key[slot] != 0;
         slot = (slot + 1) % devices->n_slots) {
        dunlin__server_device *device = devices->list[devices->by_key[slot] - 1];
        if (device->row.row != 0 &&
            memcmp(device->row.public_key, public_key, DUNLIN_PUBLIC_KEY_BYTES) == 0) {
            return device;
        }
    }
    return NULL;
}

dunlin__server_device *dunlin__devices_find_row(dunlin__server *server, int64_t row)
{
    const dunlin__server_devices *devices = &server->devices;
    size_t first = 0;
    size_t end = devices->n;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (devices->list[middle]->row.row < row) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first < devices->n && devices->list[first]->row.row == row ? devices->list[first] : NULL;
}

dunlin__server_device *dunlin__devices_find_index(dunlin__server *server, int64_t client_index)
{
    const dunlin__server_devices *devices = &server->devices;
    uint32_t place = has_slot(devices, client_index) ? devices->by_index[client_index] : 0;
    return place != 0 ? devices->list[place - 1] : NULL;
}

int64_t dunlin__devices_free_index(dunlin__server *server, int64_t limit)
{
    dunlin__server_devices *devices = &server->devices;
    while (has_slot(devices, devices->lowest_free) &&
           devices->by_index[devices->lowest_free] != 0) {
        devices->lowest_free++;
    }
    return devices->lowest_free < limit ? devices->lowest_free : limit;
}

/* Of the tables only by_index is left: in the others the slot stays taken, so that searches go on
 * past it. What was accepted still counts. */
void dunlin__devices_remove(dunlin__server *server, dunlin__server_device *device)
{
    dunlin__server_devices *devices = &server->devices;
    if (device->row.row == 0) {
        return;
    }
    int64_t index = device->row.client_index;
    if (dunlin__devices_find_index(server, index) == device) {
        devices->by_index[index] = 0;
        devices->lowest_free = index < devices->lowest_free ? index : devices->lowest_free;
    }
    devices->n_known--;
    devices->n_checked_in -= device->has_checked_in ? 1 : 0;
    memset(&device->row, 0, sizeof device->row);
    device->row.client_index = -1;
    device->has_checked_in = false;
    if (device->part != DUNLIN_PART_ACCEPTED) {
        dunlin__device_set_part(server, device, DUNLIN_PART_NONE);
    }
}

void dunlin__devices_compact(dunlin__server *server)
{
    dunlin__server_devices *devices = &server->devices;
    const bool is_full = devices->n >= DUNLIN_SERVER_CLIENTS && devices->n_known < devices->n;
    const bool is_half_gone =
        devices->n >= DUNLIN_SERVER_COMPACT && devices->n_known <= devices->n / 2;
    if (!is_full && !is_half_gone) {
        return;
    }
    if (server->gone.round != server->round.round) {
        server->gone.round = server->round.round;
        server->gone.n_accepted = 0;
    }
    size_t n_kept = 0;
    memset(devices->by_id, 0, devices->n_slots * sizeof *devices->by_id);
    memset(devices->by_key, 0, devices->n_slots * sizeof *devices->by_key);
    memset(devices->by_index, 0, devices->n_indices * sizeof *devices->by_index);
    for (size_t i = 0; i < devices->n; i++) {
        dunlin__server_device *device = devices->list[i];
        if (device->row.row == 0) {
            bool has_given = dunlin__device_part(server, device) == DUNLIN_PART_ACCEPTED;
            server->gone.n_accepted += has_given ? 1 : 0;
            dunlin__device_leave_part(server, device);
            dunlin__free_array(&server->alloc, device, 1, sizeof *device);
        } else {
            devices->list[n_kept] = device;
            n_kept++;
            enter(devices, &device->row, n_kept);
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
    dunlin__free_array(&server->alloc, devices->by_id, devices->n_slots, sizeof(uint32_t));
    dunlin__free_array(&server->alloc, devices->by_key, devices->n_slots, sizeof(uint32_t));
    dunlin__free_array(&server->alloc, devices->by_index, devices->n_indices, sizeof(uint32_t));
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
