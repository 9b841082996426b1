/*
 * update_write.c - the update: made once from what the learner saved, written with its manifest.
 *
 * Stages, in this order: the difference from the base (update_values), what earlier updates left
 * (update_left), the bound (update_clip), packing (update_pack) or int8 (update_int8), the file.
 * Only a block of the model is in memory at a time.
 */
#include "submit.h"
#include "update_clip.h"
#include "update_int8.h"
#include "update_left.h"
#include "update_masked.h"
#include "update_pack.h"
#include "update_values.h"
#include "weights/kept.h"
#include "weights/scaffold.h"
#include "weights/stream_file.h"

#include <inttypes.h>

/* An update on its way into the file. */
typedef struct update_job {
    dunlin_client *client;
    dunlin__update_values values;
    dunlin__clip clip;
    int32_t *base_index; /* of each tensor of the current stream */
} update_job;

static dunlin_status read_update(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    update_job *job = ctx;
    return dunlin__clip_read(&job->clip, &job->values, job->base_index[index], first, n, out);
}

static dunlin_status read_change(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    update_job *job = ctx;
    int32_t at = job->base_index[index];
    return dunlin__scaffold_change(job->client, &job->values.fresh, job->values.fresh_index[at], at,
                                   first, n, out);
}

/* The packed update, and what it leaves for the next one. */
static dunlin_status pack_update(update_job *job, dunlin__update_pack *pack,
                                 dunlin__stream_file *file)
{
    dunlin__update_left left = {.unpacker = NULL};
    DUNLIN_TRY(dunlin__update_pack_open(pack));
    DUNLIN_TRY(dunlin__update_pack_write(pack, file));
    dunlin__stream_file_drop_block(file); /* what is left takes its own */
    const bool is_kept = job->client->round->assignment.plan.feedback_rounds > 0;
    const dunlin__kept_residual residual = {.ctx = &left, .read_fn = dunlin__update_left_read};
    dunlin_status status = is_kept ? dunlin__update_left_open(&left, pack, file->fd) : DUNLIN_OK;
    if (status == DUNLIN_OK) {
        status = dunlin__local_write(job->client, &job->values.fresh, job->values.fresh_index,
                                     is_kept ? &residual : NULL);
    }
    dunlin__update_left_close(&left);
    return status;
}

static dunlin_status write_packed(update_job *job, dunlin__stream_file *file)
{
    uint64_t ignored = 0;
    dunlin__update_pack pack = {
        .values = &job->values, .clip = &job->clip, .base_index = job->base_index};
    pack.n_tensors =
        dunlin__update_choose(job->client->round, true, true, job->base_index, &ignored);
    const dunlin_status status = pack_update(job, &pack, file);
    dunlin__update_pack_close(&pack);
    return status == DUNLIN_OK ? dunlin__stream_file_end(file) : status;
}

static dunlin_status write_streams(update_job *job, dunlin__stream_file *file)
{
    const dunlin__round *round = job->client->round;
    uint64_t ignored = 0;
    dunlin__stream_plan plan = {
        .name = DUNLIN_STREAM_UPDATE,
        .base_index = job->base_index,
        .n_tensors = dunlin__update_choose(round, true, true, job->base_index, &ignored),
        .chunk_bytes = round->assignment.plan.chunk_bytes,
        .ctx = job,
        .read_fn = read_update};
    DUNLIN_TRY(dunlin__local_write(job->client, &job->values.fresh, job->values.fresh_index, NULL));
    DUNLIN_TRY(dunlin__stream_file_add(file, &plan));
    if (dunlin__round_is_scaffold(job->client)) {
        plan.name = DUNLIN_STREAM_CONTROL_DELTA;
        plan.n_tensors = dunlin__update_choose(round, true, false, job->base_index, &ignored);
        plan.read_fn = read_change;
        DUNLIN_TRY(dunlin__stream_file_add(file, &plan));
    }
    return dunlin__stream_file_end(file);
}

/* Whole weights of int8, as they are. */
static dunlin_status write_int8(update_job *job, dunlin__stream_file *file)
{
    uint64_t ignored = 0;
    dunlin__update_int8 update = {
        .values = &job->values, .clip = &job->clip, .base_index = job->base_index};
    update.n_tensors =
        dunlin__update_choose(job->client->round, true, true, job->base_index, &ignored);
    DUNLIN_TRY(dunlin__local_write(job->client, &job->values.fresh, job->values.fresh_index, NULL));
    DUNLIN_TRY(dunlin__update_int8_write(&update, file));
    return dunlin__stream_file_end(file);
}

static dunlin_status write_file(update_job *job, dunlin__stream_file *file)
{
    const dunlin_v1_encoding_t encoding = job->client->round->assignment.plan.update_encoding;
    if (encoding == DUNLIN_V1_ENCODING_PACKED) {
        return write_packed(job, file);
    }
    return encoding == DUNLIN_V1_ENCODING_INT8_SCALE ? write_int8(job, file)
                                                     : write_streams(job, file);
}

/* What cannot be sent is not written either; of another encoding that is known later. */
static dunlin_status check_update(update_job *job)
{
    dunlin_client *client = job->client;
    bool is_scaffold = dunlin__round_is_scaffold(client);
    uint64_t total_bytes = 0;
    (void)dunlin__update_choose(client->round, true, true, job->base_index, &total_bytes);
    if (is_scaffold) {
        (void)dunlin__update_choose(client->round, true, false, job->base_index, &total_bytes);
    }
    const bool is_plain = client->round->assignment.plan.update_encoding == DUNLIN_V1_ENCODING_F32;
    if (is_plain && total_bytes > client->options.max_upload_bytes) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "update", 0,
                            "the update has %llu bytes; this client sends at most %llu a round",
                            (unsigned long long)total_bytes,
                            (unsigned long long)client->options.max_upload_bytes);
    }
    if (is_scaffold && client->journal.n_steps < 1) {
        return dunlin__fail(&client->error, DUNLIN_DATA, "update", 0,
                            "the learner reports %lld steps; SCAFFOLD needs their number",
                            (long long)client->journal.n_steps);
    }
    return DUNLIN_OK;
}

static dunlin_status write_update(update_job *job)
{
    dunlin_client *client = job->client;
    dunlin__stream_file file;
    DUNLIN_TRY(check_update(job));
    DUNLIN_TRY(dunlin__clip_settle(&job->clip, &job->values));
    dunlin__clip_note(&job->clip, client);
    if (client->round->assignment.plan.update_encoding == DUNLIN_V1_ENCODING_MASKED_RING) {
        const dunlin__update_whole whole = {
            .values = &job->values, .clip = &job->clip, .base_index = job->base_index};
        DUNLIN_TRY(dunlin__local_write(client, &job->values.fresh, job->values.fresh_index, NULL));
        return dunlin__update_whole_write(&whole);
    }
    dunlin_status status = dunlin__stream_file_begin(&file, client, client->round->folder, "update",
                                                     DUNLIN_MANIFEST_UPDATE);
    if (status == DUNLIN_OK) {
        status = write_file(job, &file);
    }
    dunlin__stream_file_close(&file);
    return status;
}

static dunlin_status make_update(update_job *job)
{
    dunlin_client *client = job->client;
    const size_t n_tensors = (size_t)client->round->n_tensors;
    DUNLIN_TRY(dunlin__update_values_open(client, &job->values));
    job->base_index =
        dunlin__alloc_array(&client->runtime->alloc, n_tensors, sizeof *job->base_index);
    if (job->base_index == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0, "no memory for %zu tensors",
                            n_tensors);
    }
    DUNLIN_TRY(dunlin__clip_open(&job->clip, &job->values));
    return write_update(job);
}

dunlin_status dunlin__update_write(dunlin_client *client)
{
    update_job job = {.client = client, .values = {.client = client}};
    const dunlin_status status = make_update(&job);
    dunlin__clip_close(&job.clip, client);
    dunlin__free_array(&client->runtime->alloc, job.base_index, (size_t)client->round->n_tensors,
                       sizeof *job.base_index);
    dunlin__update_values_close(&job.values);
    return status;
}
