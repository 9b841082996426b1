/*
 * moment.c - devices' challenges, counters, offers and what they reported; counts of bytes; whom a
 * round asks.
 *
 * Invariant: a file is taken by the build that wrote it, over the rows that it was written over.
 */
#include "moment.h"

#include "base/files.h"
#include "state/db.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define MAGIC UINT64_C(0x314d4f4d4e4c4e44) /* "DNLNMOM1" */
#define MOST_BYTES ((size_t)1 << 31)

typedef struct head {
    uint64_t magic;
    uint64_t device_bytes;
    uint64_t n_devices, n_offered, n_assigned;
    uint64_t round;
    uint64_t n_requests, bytes_down, bytes_up, down_at_open, up_at_open;
    uint64_t n_checked_in;
    bool is_started;
    dunlin__round_choice choice;
    dunlin__tier_past tiers;
} head;

/* Of a device, but for its row, which the database has, and its place in a list. */
typedef struct record {
    int64_t row;
    dunlin__server_device device;
} record;

static uint64_t length_of(const dunlin__server_device *first)
{
    uint64_t n = 0;
    for (const dunlin__server_device *at = first; at != NULL; at = at->list_after) {
        n++;
    }
    return n;
}

static head make_head(const dunlin__server *server)
{
    const dunlin__server_devices *devices = &server->devices;
    head made;
    memset(&made, 0, sizeof made);
    made.magic = MAGIC;
    made.device_bytes = sizeof(record);
    made.n_devices = devices->n;
    made.n_offered = length_of(devices->parts.offered);
    made.n_assigned = length_of(devices->parts.assigned);
    made.round = server->round.round;
    made.n_requests = atomic_load(&server->counters.n_requests);
    made.bytes_down = atomic_load(&server->counters.body_bytes_down);
    made.bytes_up = atomic_load(&server->counters.body_bytes_up);
    made.down_at_open = server->down_at_open;
    made.up_at_open = server->up_at_open;
    made.n_checked_in = devices->n_checked_in;
    made.is_started = server->is_started;
    made.choice = server->choice;
    made.tiers = server->tiers;
    return made;
}

/* ---- out ---- */

static dunlin_status write_list(dunlin_outfile *file, const dunlin__server_device *first,
                                dunlin_error *error)
{
    for (const dunlin__server_device *at = first; at != NULL; at = at->list_after) {
        DUNLIN_TRY(dunlin__outfile_write(file, &at->row.row, sizeof at->row.row, error));
    }
    return DUNLIN_OK;
}

static dunlin_status write_all(const dunlin__server *server, dunlin_outfile *file,
                               dunlin_error *error)
{
    const dunlin__server_devices *devices = &server->devices;
    const head made = make_head(server);
    DUNLIN_TRY(dunlin__outfile_write(file, &made, sizeof made, error));
    for (size_t i = 0; i < devices->n; i++) {
        record one;
        memset(&one, 0, sizeof one);
        one.row = devices->list[i]->row.row;
        one.device = *devices->list[i];
        DUNLIN_TRY(dunlin__outfile_write(file, &one, sizeof one, error));
    }
    DUNLIN_TRY(write_list(file, devices->parts.offered, error));
    return write_list(file, devices->parts.assigned, error);
}

dunlin_status dunlin__moment_keep(dunlin__server *server, const char *path, dunlin_error *error)
{
    dunlin_outfile file;
    DUNLIN_TRY(dunlin__outfile_open(&file, path, DUNLIN_SERVER_FILE_MODE, error));
    (void)pthread_mutex_lock(&server->lock);
    const dunlin_status status = write_all(server, &file, error);
    (void)pthread_mutex_unlock(&server->lock);
    return dunlin__outfile_close(&file, status, error);
}

/* ---- back ---- */

/* The order of a list is that in which it is gone through: the last comes in first. */
static bool take_list(dunlin__server *server, const uint8_t *rows, uint64_t n, dunlin__part part)
{
    for (uint64_t i = n; i > 0; i--) {
        int64_t row = 0;
        memcpy(&row, rows + (i - 1) * sizeof row, sizeof row);
        dunlin__server_device *device = dunlin__devices_find_row(server, row);
        if (device == NULL) {
            return false;
        }
        dunlin__device_set_part(server, device, part);
    }
    return true;
}

/* All but the row and the lists. */
static void take_device(dunlin__server_device *device, const dunlin__server_device *from)
{
    const dunlin__device_row row = device->row;
    dunlin__server_device *before = device->list_before;
    dunlin__server_device *after = device->list_after;
    *device = *from;
    device->row = row;
    device->list_before = before;
    device->list_after = after;
}

static bool take_devices(dunlin__server *server, const head *of, const uint8_t *bytes)
{
    dunlin__server_devices *devices = &server->devices;
    const uint8_t *lists = bytes + of->n_devices * sizeof(record);
    for (size_t i = 0; i < devices->n; i++) {
        dunlin__device_set_part(server, devices->list[i], DUNLIN_PART_NONE);
    }
    for (uint64_t i = 0; i < of->n_devices; i++) {
        record one;
        memcpy(&one, bytes + i * sizeof one, sizeof one);
        dunlin__server_device *device = dunlin__devices_find_row(server, one.row);
        const bool is_listed =
            one.device.part == DUNLIN_PART_OFFERED || one.device.part == DUNLIN_PART_ASSIGNED;
        if (device == NULL) {
            return false;
        }
        if (one.device.part_round == of->round && !is_listed) {
            dunlin__device_set_part(server, device, one.device.part);
        }
    }
    if (!take_list(server, lists, of->n_offered, DUNLIN_PART_OFFERED) ||
        !take_list(server, lists + of->n_offered * sizeof(int64_t), of->n_assigned,
                   DUNLIN_PART_ASSIGNED)) {
        return false;
    }
    for (uint64_t i = 0; i < of->n_devices; i++) {
        record one;
        memcpy(&one, bytes + i * sizeof one, sizeof one);
        take_device(dunlin__devices_find_row(server, one.row), &one.device);
    }
    devices->n_checked_in = of->n_checked_in;
    return true;
}

static bool take_all(dunlin__server *server, const uint8_t *bytes, size_t n_bytes)
{
    head of;
    if (n_bytes < sizeof of) {
        return false;
    }
    memcpy(&of, bytes, sizeof of);
    if (of.magic != MAGIC || of.device_bytes != sizeof(record) || of.round != server->round.round ||
        of.n_devices != server->devices.n_known || of.n_offered > of.n_devices ||
        of.n_assigned > of.n_devices ||
        n_bytes != sizeof of + of.n_devices * sizeof(record) +
                       (of.n_offered + of.n_assigned) * sizeof(int64_t)) {
        return false;
    }
    atomic_store(&server->counters.n_requests, of.n_requests);
    atomic_store(&server->counters.body_bytes_down, of.bytes_down);
    atomic_store(&server->counters.body_bytes_up, of.bytes_up);
    server->down_at_open = of.down_at_open;
    server->up_at_open = of.up_at_open;
    server->is_started = of.is_started;
    server->choice = of.choice;
    server->tiers = of.tiers;
    return take_devices(server, &of, bytes + sizeof of);
}

dunlin_status dunlin__moment_take(dunlin__server *server, const char *path, dunlin_error *error)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__server_file_read(&server->alloc, path, MOST_BYTES, &bytes, &n_bytes, error));
    (void)pthread_mutex_lock(&server->lock);
    const bool is_ok = take_all(server, bytes, n_bytes);
    (void)pthread_mutex_unlock(&server->lock);
    dunlin__free_array(&server->alloc, bytes, n_bytes + 1, 1);
    return is_ok ? DUNLIN_OK
                 : dunlin__fail(error, DUNLIN_DATA, "server", 0,
                                "%.120s is not of this state, or of another build", path);
}
