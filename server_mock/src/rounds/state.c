/*
 * state.c - the state folder: created, read into memory, cleaned of what a kill left in it.
 *
 * Invariant: what is in memory follows from the database and the models' files, so it can be read
 * again at any time.
 */
#include "state.h"

#include "base/files.h"
#include "best.h"
#include "buffered.h"
#include "cohort.h"
#include "lineage.h"
#include "model/evaluate.h"
#include "model/models.h"
#include "packed.h"
#include "private.h"
#include "profile.h"
#include "state/context.h"
#include "state/db.h"
#include "state/devices.h"
#include "task/task.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- reading the state ---- */

typedef struct loader {
    dunlin__server *server;
    dunlin_error *error;
} loader;

static dunlin_status load_device(void *ctx, const dunlin__device_row *row)
{
    loader *load = ctx;
    dunlin__server_device *device = NULL;
    return dunlin__devices_add(load->server, row, &device, load->error);
}

static dunlin_status load_round(void *ctx, const dunlin__round_row *row)
{
    loader *load = ctx;
    dunlin__server *server = load->server;
    if (row->state != DUNLIN_ROUND_CLOSED) {
        server->round = *row;
        return DUNLIN_OK;
    }
    void *list = server->closed;
    bool has_room = dunlin__grow_array(&server->alloc, &list, &server->closed_capacity,
                                       server->n_closed + 1, sizeof *server->closed);
    server->closed = list;
    if (!has_room) {
        return dunlin__fail(load->error, DUNLIN_MEMORY, "server", 0, "round %" PRIu64, row->round);
    }
    server->closed[server->n_closed] = *row;
    server->n_closed++;
    return DUNLIN_OK;
}

/* Later rows of a device go over earlier ones. */
static dunlin_status load_part(void *ctx, const dunlin__assignment_row *assignment)
{
    loader *load = ctx;
    dunlin__server_device *device = dunlin__devices_find_row(load->server, assignment->device);
    if (device == NULL || dunlin__device_part(load->server, device) == DUNLIN_PART_ACCEPTED) {
        return DUNLIN_OK;
    }
    dunlin__part part = DUNLIN_PART_DROPPED;
    if (assignment->state == DUNLIN_WORK_OPEN) {
        part = DUNLIN_PART_ASSIGNED;
    } else if (assignment->state == DUNLIN_WORK_DONE) {
        part = DUNLIN_PART_ACCEPTED;
    }
    dunlin__device_set_part(load->server, device, part);
    device->is_uploading = part == DUNLIN_PART_ASSIGNED && assignment->has_manifest;
    return DUNLIN_OK;
}

/* Whoever lost its key or was forgotten after it contributed: no device is left to count it by. */
static dunlin_status load_gone(void *ctx, const dunlin__contribution_row *contribution)
{
    loader *load = ctx;
    dunlin__server *server = load->server;
    if (dunlin__devices_find_row(server, contribution->device) == NULL) {
        server->gone.n_accepted++;
    }
    return DUNLIN_OK;
}

/* The wall clock may have gone back since these were stored: a round ends no later than one that
 * begins now. */
static void settle_times(dunlin__server *server)
{
    int64_t now_ms = dunlin__server_now(server);
    dunlin__round_row *round = &server->round;
    int64_t latest_ms =
        now_ms + (int64_t)dunlin__server_task_deadline_ms(&server->task, round->round);
    round->opened_ms = round->opened_ms < now_ms ? round->opened_ms : now_ms;
    round->deadline_ms = round->deadline_ms < latest_ms ? round->deadline_ms : latest_ms;
}

dunlin_status dunlin__server_reload(dunlin__server *server, dunlin_error *error)
{
    server->is_stale = true; /* until all of it has been read */
    loader load = {server, error};
    int64_t is_started = 0;
    dunlin__devices_free(server);
    server->n_closed = 0;
    memset(&server->round, 0, sizeof server->round);
    DUNLIN_TRY(dunlin__server_db_get(server->db, "run_epoch", 0, &server->run_epoch, error));
    DUNLIN_TRY(dunlin__server_db_get(server->db, "is_started", 0, &is_started, error));
    server->is_started = is_started != 0;
    DUNLIN_TRY(dunlin__server_db_each_device(server->db, load_device, &load, error));
    DUNLIN_TRY(dunlin__server_db_each_round(server->db, load_round, &load, error));
    if (server->round.round == 0) {
        return dunlin__fail(error, DUNLIN_DATA, "server", 0,
                            "the state's database has no current round");
    }
    DUNLIN_TRY(server->task.buffered.is_on
                   ? dunlin__buffered_load(server, error)
                   : dunlin__server_db_each_assignment(server->db, server->round.round, load_part,
                                                       &load, error));
    server->gone.round = server->round.round;
    server->gone.n_accepted = 0;
    DUNLIN_TRY(dunlin__server_db_each_contribution(server->db, server->round.round, load_gone,
                                                   &load, error));
    dunlin__best_settle(server);
    settle_times(server);
    DUNLIN_TRY(dunlin__profile_load(server, error));
    DUNLIN_TRY(dunlin__server_choose_cohort(server, error));
    server->is_stale = false;
    return DUNLIN_OK;
}

/* ---- the first start ---- */

static dunlin_status zero_values(void *ctx, uint64_t first, size_t n, float *out_values,
                                 dunlin_error *error)
{
    (void)ctx;
    (void)first;
    (void)error;
    memset(out_values, 0, n * sizeof *out_values);
    return DUNLIN_OK;
}

static dunlin_status publish_first(dunlin__server *server, const char *models, dunlin_error *error)
{
    dunlin__values values[2] = {{.values_fn = zero_values}, {.values_fn = zero_values}};
    dunlin__weights_file file = {.fd = -1};
    if (server->evaluator != NULL) {
        values[0] = dunlin__evaluator_initial(server->evaluator);
    } else if (server->task.initial[0] != 0) {
        DUNLIN_TRY(
            dunlin__weights_file_open(server->task.initial, server->layout.n_values, &file, error));
        values[0] = dunlin__weights_file_values(&file);
    }
    dunlin_status status = dunlin__model_publish(models, 1, &server->layout, values, &server->alloc,
                                                 &server->models[0], error);
    dunlin__weights_file_close(&file);
    if (status == DUNLIN_OK) {
        return dunlin__packed_make(server, &server->models[0], error);
    }
    if (status == DUNLIN_NUMERIC && server->task.initial[0] != 0) {
        return dunlin__fail(error, status, "server", 0,
                            "initial %.160s has a value that is not finite", server->task.initial);
    }
    return status;
}

/* A number that tells tasks apart. */
static dunlin_status name_task(const dunlin__server *server, int64_t *out_number,
                               dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    char text[2 * DUNLIN_WIRE_ID_BYTES];
    memset(text, 0, sizeof text);
    memcpy(text, server->task.population, DUNLIN_WIRE_ID_BYTES);
    memcpy(text + DUNLIN_WIRE_ID_BYTES, server->task.name, DUNLIN_WIRE_ID_BYTES);
    DUNLIN_TRY(dunlin__sha256_of(text, sizeof text, sha256, error));
    memcpy(out_number, sha256, sizeof *out_number);
    return DUNLIN_OK;
}

static dunlin_status write_first(dunlin__server *server, int64_t task_number, dunlin_error *error)
{
    int64_t now_ms = dunlin__server_now(server);
    dunlin__round_row round = {.round = 1,
                               .state = DUNLIN_ROUND_OPEN,
                               .opened_ms = now_ms,
                               .is_evaluation =
                                   dunlin__server_task_is_evaluation(&server->task, 1)};
    DUNLIN_TRY(dunlin__server_db_begin(server->db, true, error));
    dunlin_status status = dunlin__server_db_set(server->db, "task", task_number, error);
    if (status == DUNLIN_OK) {
        /* 0 means that there is none; a clock that was never set may say so, or less. */
        int64_t epoch = now_ms >= 1000 ? now_ms / 1000 : 1;
        status = dunlin__server_db_set(server->db, "run_epoch", epoch, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_put_round(server->db, &round, error);
    }
    if (status == DUNLIN_OK) {
        return dunlin__server_db_commit(server->db, error);
    }
    dunlin__server_db_rollback(server->db);
    return status;
}

/* ---- opening ---- */

/* The bases that can be fetched. The first one is created again if it is missing. */
static dunlin_status load_models(dunlin__server *server, const char *models, dunlin_error *error)
{
    dunlin_status status = dunlin__lineage_load(server, error);
    dunlin__server_path path;
    if (status == DUNLIN_OK || server->round.round != 1) {
        return status;
    }
    DUNLIN_TRY(dunlin__model_path(models, 1, "weights", &path, error));
    bool is_there = dunlin__server_file_size(path.text) >= 0;
    DUNLIN_TRY(dunlin__model_path(models, 1, "manifest", &path, error));
    is_there = is_there && dunlin__server_file_size(path.text) >= 0;
    return is_there ? status : publish_first(server, models, error);
}

dunlin_status dunlin__state_open(dunlin__server *server, dunlin_error *error)
{
    dunlin__server_path path;
    dunlin__server_path models;
    int64_t task_number = 0;
    int64_t stored = 0;
    DUNLIN_TRY(dunlin__server_path_make(&models, error, "%s/models", server->folder.text));
    DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/server.db", server->folder.text));
    DUNLIN_TRY(dunlin__server_db_open(path.text, &server->alloc, &server->db, error));
    DUNLIN_TRY(name_task(server, &task_number, error));
    DUNLIN_TRY(dunlin__server_db_get(server->db, "run_epoch", 0, &stored, error));
    bool is_new = stored == 0;
    if (is_new) {
        DUNLIN_TRY(publish_first(server, models.text, error));
        DUNLIN_TRY(write_first(server, task_number, error));
    } else {
        DUNLIN_TRY(dunlin__server_db_get(server->db, "task", 0, &stored, error));
        if (stored != task_number) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "server", 0,
                                "%.120s holds the state of another population or task",
                                server->folder.text);
        }
    }
    DUNLIN_TRY(dunlin__server_reload(server, error));
    DUNLIN_TRY(dunlin__private_agree(server, error));
    return is_new ? DUNLIN_OK : load_models(server, models.text, error);
}

dunlin_status dunlin__state_make_folders(dunlin__server *server, dunlin_error *error)
{
    static const char *const names[] = {"models", "uploads", "spool", "down"};
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__server_folder_make(server->folder.text, error));
    DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/lock", server->folder.text));
    server->lock_fd = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (server->lock_fd < 0) {
        return dunlin__file_fail(error, "making", path.text, errno);
    }
    if (flock(server->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return dunlin__fail(error, DUNLIN_LOCKED, "server", errno,
                            "%.120s is in use by another server", server->folder.text);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/%s", server->folder.text, names[i]));
        DUNLIN_TRY(dunlin__server_folder_make(path.text, error));
    }
    return DUNLIN_OK;
}

/* True if what a name in uploads/ or spool/ belongs to still matters. */
static bool is_wanted(dunlin__server *server, const char *name, bool is_spool)
{
    char id[DUNLIN_WIRE_ID_BYTES] = "";
    size_t n_id = strcspn(name, ".");
    if (n_id == 0 || n_id >= sizeof id) {
        return false;
    }
    memcpy(id, name, n_id);
    dunlin__assignment_row row;
    bool is_found = false;
    dunlin_status status = dunlin__server_db_find_assignment(server->db, id, &row, &is_found, NULL);
    return status == DUNLIN_OK && is_found && row.round >= dunlin__buffered_first(server) &&
           (!is_spool || row.state == DUNLIN_WORK_DONE) && row.state != DUNLIN_WORK_GONE;
}

/* Removes what a kill has left: uploads without an assignment, spooled files that never counted. */
void dunlin__state_sweep(dunlin__server *server, const char *folder_name, bool is_spool)
{
    dunlin__server_path folder;
    dunlin__server_path path;
    dunlin_error ignored;
    if (dunlin__server_path_make(&folder, &ignored, "%s/%s", server->folder.text, folder_name) !=
        DUNLIN_OK) {
        return;
    }
    DIR *entries = opendir(folder.text);
    if (entries == NULL) {
        return;
    }
    struct dirent *entry = readdir(entries);          /* NOLINT(concurrency-mt-unsafe) */
    for (; entry != NULL; entry = readdir(entries)) { /* NOLINT(concurrency-mt-unsafe) */
        if (entry->d_name[0] == '.' || is_wanted(server, entry->d_name, is_spool) ||
            dunlin__server_path_make(&path, &ignored, "%s/%s", folder.text, entry->d_name) !=
                DUNLIN_OK) {
            continue;
        }
        if (is_spool) {
            (void)unlink(path.text);
        } else {
            dunlin__server_folder_remove(path.text);
        }
    }
    (void)closedir(entries);
}

static dunlin_status drop_upload(void *ctx, const dunlin__assignment_row *assignment)
{
    dunlin__server *server = ctx;
    dunlin__server_path path;
    dunlin_error ignored;
    if (dunlin__server_upload_folder(server, assignment->id, &path, &ignored) == DUNLIN_OK) {
        dunlin__server_folder_remove(path.text);
    }
    return DUNLIN_OK;
}

void dunlin__state_drop_uploads(dunlin__server *server, uint64_t round)
{
    /* What cannot be listed is swept at the next start. */
    dunlin_status listed =
        dunlin__server_db_each_assignment(server->db, round, drop_upload, server, NULL);
    (void)listed;
}
