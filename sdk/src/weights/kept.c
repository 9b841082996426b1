/*
 * kept.c - the two alternating files of what a device keeps: found, written, named by the journal.
 *
 * Invariant: a file that the journal names is not written to, and is not believed before its hashes
 * have been checked. It is valid for one task and one run of it: another task starts without one.
 */
#include "kept.h"

#include "context/client_context.h"
#include "scaffold.h"
#include "store/files.h"
#include "stream_file.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_SLOTS 2

static const char *const SLOT_NAMES[N_SLOTS] = {"1", "2"};
static const char *const ENDINGS[] = {".manifest", ".bin", ".manifest.part"};

static dunlin_status slot_path(dunlin_client *client, int32_t slot, const char *ending,
                               char out_path[DUNLIN_FILE_PATH_BYTES])
{
    char folder[DUNLIN_FILE_PATH_BYTES];
    char name[32];
    DUNLIN_TRY(dunlin__client_local_folder(client, folder, &client->error));
    (void)snprintf(name, sizeof name, "%s%s", SLOT_NAMES[slot - 1], ending);
    return dunlin__file_path(folder, name, out_path, &client->error);
}

dunlin_status dunlin__local_paths(const dunlin_client *client, int32_t slot,
                                  char out_manifest[DUNLIN_FILE_PATH_BYTES],
                                  char out_values[DUNLIN_FILE_PATH_BYTES], dunlin_error *error)
{
    char folder[DUNLIN_FILE_PATH_BYTES];
    char name[32];
    if (slot < 1 || slot > N_SLOTS) {
        return dunlin__fail(error, DUNLIN_DATA, "kept", 0,
                            "the journal names file %d of what is kept; there are 1 and 2",
                            (int)slot);
    }
    DUNLIN_TRY(dunlin__client_local_folder(client, folder, error));
    (void)snprintf(name, sizeof name, "%s%s", SLOT_NAMES[slot - 1], ENDINGS[0]);
    DUNLIN_TRY(dunlin__file_path(folder, name, out_manifest, error));
    (void)snprintf(name, sizeof name, "%s%s", SLOT_NAMES[slot - 1], ENDINGS[1]);
    return dunlin__file_path(folder, name, out_values, error);
}

/* Is what is kept of this round's task, and of this run of it? */
static bool is_ours(const dunlin_client *client)
{
    const dunlin__journal *journal = &client->journal;
    const dunlin__assignment *assignment = &client->round->assignment;
    return journal->kept != 0 && journal->kept_epoch == assignment->run_epoch &&
           strcmp(journal->kept_task, assignment->task) == 0;
}

/* ---- finding ---- */

static dunlin_status read_manifest(void *ctx, uint64_t offset, void *buffer, size_t n_bytes)
{
    const int *fd = ctx;
    return dunlin__file_read(*fd, buffer, n_bytes, offset, NULL);
}

/* Whether this round has a use for a stream of averaged tensors. */
static bool has_use(const dunlin_client *client, const char *stream)
{
    const dunlin__assignment *assignment = &client->round->assignment;
    if (strcmp(stream, DUNLIN_STREAM_LOCAL) == 0) {
        return true;
    }
    if (strcmp(stream, DUNLIN_STREAM_CONTROL) == 0) {
        return dunlin__round_is_scaffold(client);
    }
    return assignment->round - client->journal.kept_round <= assignment->plan.feedback_rounds &&
           assignment->round >= client->journal.kept_round && !dunlin__round_is_scaffold(client);
}

/* The base's next tensor of a stream: LOCAL ones of "local", else averaged ones. */
static int32_t next_of(const dunlin__round *round, const char *stream, int32_t from)
{
    dunlin_aggregation wanted = strcmp(stream, DUNLIN_STREAM_LOCAL) == 0 ? DUNLIN_AGGREGATE_LOCAL
                                                                         : DUNLIN_AGGREGATE_AVERAGE;
    while (from < round->n_tensors && round->tensors[from].aggregation != wanted) {
        from++;
    }
    return from;
}

static dunlin_status place_tensor(dunlin_client *client, const dunlin__manifest_record *record,
                                  int32_t index, uint64_t stream_offset)
{
    dunlin__round *round = client->round;
    if (index >= round->n_tensors || strcmp(round->tensors[index].name, record->tensor.name) != 0 ||
        (uint64_t)round->tensors[index].n_elements * sizeof(float) != record->n_bytes) {
        return dunlin__fail(&client->error, DUNLIN_MISMATCH, "kept", 0,
                            "tensor %.100s is kept, which is not the model's there",
                            record->tensor.name);
    }
    round->places[index].kept_offset = stream_offset + record->offset;
    round->places[index].is_kept = true;
    return DUNLIN_OK;
}

/* Goes over the manifest: places for the tensors, hashes of the chunks. */
static dunlin_status read_records(dunlin_client *client, dunlin__manifest_reader *reader)
{
    dunlin__round *round = client->round;
    dunlin__manifest_record record;
    uint64_t stream_offset = 0;
    uint64_t next_offset = 0;
    int32_t index = 0;
    for (;;) {
        DUNLIN_TRY(dunlin__manifest_reader_next(reader, &record, &client->error));
        if (record.item == DUNLIN_MANIFEST_END) {
            return DUNLIN_OK;
        }
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            stream_offset = next_offset;
            next_offset += record.stream.total_bytes;
            index = 0;
        } else if (record.item == DUNLIN_MANIFEST_TENSOR) {
            if (has_use(client, record.stream.name)) {
                index = next_of(round, record.stream.name, index);
                DUNLIN_TRY(place_tensor(client, &record, index, stream_offset));
                index++;
            }
        } else if (!dunlin__file_matches(round->kept_fd, stream_offset + record.offset,
                                         record.n_bytes, record.sha256)) {
            return dunlin__fail(&client->error, DUNLIN_DIGEST, "kept", 0,
                                "chunk %u of what is kept does not match its hash",
                                record.chunk_index);
        }
    }
}

static dunlin_status open_slot(dunlin_client *client, int *manifest_fd)
{
    char path[DUNLIN_FILE_PATH_BYTES];
    struct stat about = {0};
    DUNLIN_TRY(slot_path(client, client->journal.kept, ENDINGS[1], path));
    DUNLIN_TRY(dunlin__file_open(path, &client->round->kept_fd, &client->error));
    DUNLIN_TRY(slot_path(client, client->journal.kept, ENDINGS[0], path));
    DUNLIN_TRY(dunlin__file_open(path, manifest_fd, &client->error));
    if (fstat(*manifest_fd, &about) != 0 || about.st_size <= 0) {
        return dunlin__fail(&client->error, DUNLIN_DATA, "kept", 0,
                            "%s has no manifest of the local tensors", path);
    }
    dunlin__manifest_source source = {
        .ctx = manifest_fd, .read_fn = read_manifest, .total_bytes = (uint64_t)about.st_size};
    dunlin__manifest_reader reader;
    DUNLIN_TRY(
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, &client->error));
    return read_records(client, &reader);
}

/* Some of the personal tensors with the rest from the server would be a mixture. None are kept
 * here by a learner that does so itself. */
static dunlin_status check_whole(dunlin_client *client)
{
    const dunlin__round *round = client->round;
    int32_t n_local = 0;
    int32_t n_kept = 0;
    for (int32_t i = 0; i < round->n_tensors; i++) {
        if (round->tensors[i].aggregation == DUNLIN_AGGREGATE_LOCAL) {
            n_local++;
            n_kept += round->places[i].is_kept ? 1 : 0;
        }
    }
    if (n_kept != 0 && n_kept != n_local) {
        return dunlin__fail(&client->error, DUNLIN_MISMATCH, "kept", 0,
                            "%d of the model's %d personal tensors are kept", (int)n_kept,
                            (int)n_local);
    }
    return DUNLIN_OK;
}

static void drop_places(dunlin_client *client)
{
    dunlin__local_close(client);
    for (int32_t i = 0; i < client->round->n_tensors; i++) {
        client->round->places[i].is_kept = false;
    }
}

dunlin_status dunlin__local_open(dunlin_client *client)
{
    if (!is_ours(client)) {
        return DUNLIN_OK;
    }
    char folder[DUNLIN_FILE_PATH_BYTES];
    int manifest_fd = -1;
    dunlin_error before = client->error;
    dunlin_status status = dunlin__client_local_folder(client, folder, &client->error);
    if (status == DUNLIN_OK) {
        status = dunlin__folder_make(folder, &client->error);
    }
    if (status == DUNLIN_OK) {
        status = open_slot(client, &manifest_fd);
    }
    if (status == DUNLIN_OK) {
        status = check_whole(client);
    }
    if (manifest_fd >= 0) {
        (void)close(manifest_fd);
    }
    if (status == DUNLIN_OK) {
        return DUNLIN_OK;
    }
    drop_places(client);
    if (status == DUNLIN_LOCKED || status == DUNLIN_IO || status == DUNLIN_MEMORY) {
        return status;
    }
    dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                "what was kept of the task cannot be used (%s): it begins anew",
                dunlin_status_text(status));
    client->error = before;
    return DUNLIN_OK;
}

void dunlin__local_close(dunlin_client *client)
{
    if (client->round->kept_fd >= 0) {
        (void)close(client->round->kept_fd);
        client->round->kept_fd = -1;
    }
}

/* ---- writing ---- */

typedef struct kept_job {
    dunlin_client *client;
    const dunlin_weights_reader *fresh;
    const int32_t *fresh_index;
    const dunlin__kept_residual *residual; /* NULL: none */
    int32_t *base_index;                   /* of the current stream */
} kept_job;

static dunlin_status read_local(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    kept_job *job = ctx;
    int32_t at = job->fresh_index[job->base_index[index]];
    dunlin_status status = job->fresh->read_fn(job->fresh->ctx, at, first, n, out);
    return status == DUNLIN_OK ? DUNLIN_OK
                               : dunlin__fail(&job->client->error, status, "update", 0,
                                              "the learner could not give tensor %.100s",
                                              job->fresh->tensors[at].name);
}

/* The device's new variate: the old one, changed by what the server gets. */
static dunlin_status read_variate(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    kept_job *job = ctx;
    int32_t base_index = job->base_index[index];
    DUNLIN_TRY(dunlin__scaffold_change(job->client, job->fresh, job->fresh_index[base_index],
                                       base_index, first, n, out));
    for (int64_t done = 0; done < n;) {
        float own[DUNLIN_STREAM_PIECE_FLOATS];
        const int64_t left = n - done;
        const int64_t piece = left < DUNLIN_STREAM_PIECE_FLOATS ? left : DUNLIN_STREAM_PIECE_FLOATS;
        DUNLIN_TRY(dunlin__scaffold_own(job->client, base_index, first + done, piece, own));
        for (int64_t i = 0; i < piece; i++) {
            out[done + i] = (float)((double)own[i] + (double)out[done + i]);
        }
        done += piece;
    }
    return DUNLIN_OK;
}

static dunlin_status read_residual(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    kept_job *job = ctx;
    return job->residual->read_fn(job->residual->ctx, job->base_index[index], first, n, out);
}

/* Adds a stream if there are tensors for it. */
static dunlin_status add_stream(kept_job *job, dunlin__stream_file *file, const char *name,
                                dunlin_status (*read_fn)(void *ctx, int32_t index, int64_t first,
                                                         int64_t n, float *out))
{
    const dunlin__round *round = job->client->round;
    dunlin__stream_plan plan = {.name = name,
                                .base_index = job->base_index,
                                .chunk_bytes = DUNLIN_WIRE_CHUNK_MAX_BYTES,
                                .ctx = job,
                                .read_fn = read_fn};
    for (int32_t i = next_of(round, plan.name, 0); i < round->n_tensors;
         i = next_of(round, plan.name, i + 1)) {
        if (job->fresh_index[i] >= 0) {
            job->base_index[plan.n_tensors++] = i;
        }
    }
    return plan.n_tensors > 0 ? dunlin__stream_file_add(file, &plan) : DUNLIN_OK;
}

static dunlin_status write_slot(kept_job *job, int32_t slot)
{
    dunlin_client *client = job->client;
    dunlin__stream_file file;
    char folder[DUNLIN_FILE_PATH_BYTES];
    DUNLIN_TRY(dunlin__client_local_folder(client, folder, &client->error));
    DUNLIN_TRY(dunlin__folder_make(folder, &client->error));
    dunlin_status status = dunlin__stream_file_begin(&file, client, folder, SLOT_NAMES[slot - 1],
                                                     DUNLIN_MANIFEST_BASE);
    if (status == DUNLIN_OK) {
        status = add_stream(job, &file, DUNLIN_STREAM_LOCAL, read_local);
    }
    if (status == DUNLIN_OK && dunlin__round_is_scaffold(client)) {
        status = add_stream(job, &file, DUNLIN_STREAM_CONTROL, read_variate);
    }
    if (status == DUNLIN_OK && job->residual != NULL) {
        status = add_stream(job, &file, DUNLIN_STREAM_RESIDUAL, read_residual);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__stream_file_end(&file);
    }
    dunlin__stream_file_close(&file);
    return status;
}

static bool has_local(const dunlin_client *client, const int32_t *fresh_index)
{
    const dunlin__round *round = client->round;
    int32_t first = next_of(round, DUNLIN_STREAM_LOCAL, 0);
    return first < round->n_tensors && fresh_index[first] >= 0;
}

dunlin_status dunlin__local_write(dunlin_client *client, const dunlin_weights_reader *fresh,
                                  const int32_t *fresh_index, const dunlin__kept_residual *residual)
{
    dunlin__journal *journal = &client->journal;
    const dunlin__assignment *assignment = &client->round->assignment;
    size_t n_tensors = (size_t)client->round->n_tensors;
    if (!dunlin__round_is_scaffold(client) && !has_local(client, fresh_index) && residual == NULL) {
        return DUNLIN_OK;
    }
    kept_job job = {
        .client = client, .fresh = fresh, .fresh_index = fresh_index, .residual = residual};
    job.base_index =
        dunlin__alloc_array(&client->runtime->alloc, n_tensors, sizeof *job.base_index);
    if (job.base_index == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0, "no memory for %zu tensors",
                            n_tensors);
    }
    if (!is_ours(client)) {
        journal->kept = 0;
        journal->kept_epoch = assignment->run_epoch;
        memcpy(journal->kept_task, assignment->task, sizeof journal->kept_task);
    }
    int32_t slot = journal->kept == 1 ? 2 : 1;
    assert(slot != journal->kept); /* what the journal names is not written to */
    dunlin_status status = write_slot(&job, slot);
    if (status == DUNLIN_OK) {
        journal->kept_pending = slot;
    }
    dunlin__free_array(&client->runtime->alloc, job.base_index, n_tensors, sizeof *job.base_index);
    return status;
}

dunlin_status dunlin__kept_residual_read(void *ctx, int32_t base_index, int64_t first, int64_t n,
                                         float *out)
{
    /* It lies where a variate would. */
    return dunlin__scaffold_own(ctx, base_index, first, n, out);
}

/* ---- removing ---- */

static void remove_slots(dunlin_client *client, int32_t but)
{
    char folder[DUNLIN_FILE_PATH_BYTES];
    dunlin_error before = client->error;
    if (dunlin__client_local_folder(client, folder, &client->error) != DUNLIN_OK ||
        access(folder, F_OK) != 0) {
        client->error = before;
        return;
    }
    for (int32_t slot = 1; slot <= N_SLOTS; slot++) {
        for (size_t i = 0; i < sizeof ENDINGS / sizeof ENDINGS[0]; i++) {
            char path[DUNLIN_FILE_PATH_BYTES];
            if (slot != but && slot_path(client, slot, ENDINGS[i], path) == DUNLIN_OK) {
                (void)unlink(path);
            }
        }
    }
    if (but == 0) {
        (void)rmdir(folder);
    }
    client->error = before;
}

void dunlin__local_settle(dunlin_client *client)
{
    remove_slots(client, client->journal.kept);
}

void dunlin__local_wipe(dunlin_client *client)
{
    remove_slots(client, 0);
}
