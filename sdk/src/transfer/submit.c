/*
 * submit.c - the update: made once from what the learner saved, written with its manifest, sent
 * chunk by chunk.
 *
 * Invariant: once the journal says PUT the two files do not change any more, so a retry sends the
 * same bytes; only a block of the model is in memory at a time.
 */
#include "submit.h"

#include "calls/calls.h"
#include "calls/exchange.h"
#include "context/client_context.h"
#include "store/files.h"
#include "update_stages.h"
#include "weights/kept.h"
#include "weights/scaffold.h"
#include "weights/stream_file.h"

#include <wire/digest.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define URL_BYTES 2304
#define HEADER_BYTES 192
#define N_OFFSET_ANSWERS 8
#define MAX_STAGES 2

/* An update on its way into the file. */
typedef struct update_job {
    dunlin_client *client;
    dunlin_weights_reader fresh; /* the learner's weights */
    int32_t *fresh_index;        /* of each tensor of the base; -1: the learner keeps it itself */
    int32_t *base_index;         /* of each tensor of the current stream */
    bool is_delta;
    dunlin__update_stage stages[MAX_STAGES];
    int32_t n_stages;
    dunlin__clip_stage clip;
} update_job;

/* Pairs the learner's tensors with the base's, in order; LOCAL ones may be left out, all or none.
 */
static dunlin_status match_tensors(update_job *job)
{
    const dunlin_weights_reader *base = &job->client->round->base;
    int32_t found = 0;
    int32_t n_shared = 0;
    int32_t n_local = 0;
    int32_t n_kept = 0;
    for (int32_t i = 0; i < base->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &base->tensors[i];
        bool is_local = tensor->aggregation == DUNLIN_AGGREGATE_LOCAL;
        bool is_there = found < job->fresh.n_tensors &&
                        strcmp(job->fresh.tensors[found].name, tensor->name) == 0 &&
                        job->fresh.tensors[found].n_elements == tensor->n_elements;
        if (!is_there && !is_local) {
            return dunlin__fail(&job->client->error, DUNLIN_MISMATCH, "update", 0,
                                "the learner saved another tensor where %.100s of the base belongs",
                                tensor->name);
        }
        job->fresh_index[i] = is_there ? found++ : -1;
        n_shared += is_local ? 0 : 1;
        n_local += is_local ? 1 : 0;
        n_kept += is_local && is_there ? 1 : 0;
    }
    if (found != job->fresh.n_tensors || n_shared == 0 || (n_kept != 0 && n_kept != n_local)) {
        return dunlin__fail(&job->client->error, DUNLIN_MISMATCH, "update", 0,
                            "the learner saved %d tensors; the base has %d that are shared and %d "
                            "that are personal",
                            (int)job->fresh.n_tensors, (int)n_shared, (int)n_local);
    }
    return DUNLIN_OK;
}

/* new - base, or new, of a piece of a tensor. */
static dunlin_status make_block(update_job *job, int32_t index, int64_t first, int64_t n,
                                float *out)
{
    int32_t at = job->base_index[index];
    int32_t fresh = job->fresh_index[at];
    dunlin_status status = job->fresh.read_fn(job->fresh.ctx, fresh, first, n, out);
    if (status != DUNLIN_OK) {
        return dunlin__fail(&job->client->error, status, "update", 0,
                            "the learner could not give tensor %.100s",
                            job->fresh.tensors[fresh].name);
    }
    if (!job->is_delta) {
        return DUNLIN_OK;
    }
    const dunlin_weights_reader *reader = &job->client->round->base;
    for (int64_t done = 0; done < n;) {
        float base[DUNLIN_STREAM_PIECE_FLOATS];
        const int64_t left = n - done;
        const int64_t piece = left < DUNLIN_STREAM_PIECE_FLOATS ? left : DUNLIN_STREAM_PIECE_FLOATS;
        DUNLIN_TRY(reader->read_fn(reader->ctx, at, first + done, piece, base));
        for (int64_t i = 0; i < piece; i++) {
            out[done + i] -= base[i];
        }
        done += piece;
    }
    return DUNLIN_OK;
}

/* Goes over the whole update in blocks, into the surveys of the stages. */
static dunlin_status survey(update_job *job, int32_t n_tensors, float *block)
{
    for (int32_t i = 0; i < n_tensors; i++) {
        int64_t n_elements = job->client->round->tensors[job->base_index[i]].n_elements;
        for (int64_t first = 0; first < n_elements;) {
            int64_t left = n_elements - first;
            int64_t n = left < DUNLIN_STREAM_BLOCK_FLOATS ? left : DUNLIN_STREAM_BLOCK_FLOATS;
            DUNLIN_TRY(make_block(job, i, first, n, block));
            for (int32_t s = 0; s < job->n_stages; s++) {
                if (job->stages[s].survey_fn != NULL) {
                    job->stages[s].survey_fn(job->stages[s].ctx, block, (size_t)n);
                }
            }
            first += n;
        }
    }
    return DUNLIN_OK;
}

static dunlin_status read_update(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    update_job *job = ctx;
    DUNLIN_TRY(make_block(job, index, first, n, out));
    for (int32_t s = 0; s < job->n_stages; s++) {
        job->stages[s].apply_fn(job->stages[s].ctx, out, (size_t)n);
    }
    return DUNLIN_OK;
}

static dunlin_status read_change(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    update_job *job = ctx;
    int32_t at = job->base_index[index];
    return dunlin__scaffold_change(job->client, &job->fresh, job->fresh_index[at], at, first, n,
                                   out);
}

/* The base's tensors that a stream is of: all that are shared, or those that are averaged. */
static int32_t choose_tensors(update_job *job, bool with_statistics, uint64_t *total_bytes)
{
    const dunlin__round *round = job->client->round;
    int32_t n = 0;
    for (int32_t i = 0; i < round->n_tensors; i++) {
        dunlin_aggregation aggregation = round->tensors[i].aggregation;
        if (aggregation == DUNLIN_AGGREGATE_AVERAGE ||
            (aggregation == DUNLIN_AGGREGATE_STATISTIC && with_statistics)) {
            job->base_index[n++] = i;
            *total_bytes += (uint64_t)round->tensors[i].n_elements * sizeof(float);
        }
    }
    return n;
}

static dunlin_status write_streams(update_job *job, dunlin__stream_file *file)
{
    uint32_t chunk_bytes = job->client->round->assignment.plan.chunk_bytes;
    uint64_t ignored = 0;
    dunlin__stream_plan plan = {.name = DUNLIN_STREAM_UPDATE,
                                .base_index = job->base_index,
                                .n_tensors = choose_tensors(job, true, &ignored),
                                .chunk_bytes = chunk_bytes,
                                .ctx = job,
                                .read_fn = read_update};
    if (job->n_stages > 0) {
        DUNLIN_TRY(survey(job, plan.n_tensors, file->block));
    }
    DUNLIN_TRY(dunlin__stream_file_add(file, &plan));
    if (dunlin__round_is_scaffold(job->client)) {
        plan.name = DUNLIN_STREAM_CONTROL_DELTA;
        plan.n_tensors = choose_tensors(job, false, &ignored);
        plan.read_fn = read_change;
        DUNLIN_TRY(dunlin__stream_file_add(file, &plan));
    }
    return dunlin__stream_file_end(file);
}

/* What cannot be sent is not written either. */
static dunlin_status check_update(update_job *job)
{
    dunlin_client *client = job->client;
    bool is_scaffold = dunlin__round_is_scaffold(client);
    uint64_t total_bytes = 0;
    (void)choose_tensors(job, true, &total_bytes);
    if (is_scaffold) {
        (void)choose_tensors(job, false, &total_bytes);
    }
    if (total_bytes > client->options.max_upload_bytes) {
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
    DUNLIN_TRY(match_tensors(job));
    DUNLIN_TRY(check_update(job));
    DUNLIN_TRY(dunlin__local_write(client, &job->fresh, job->fresh_index));
    dunlin_status status = dunlin__stream_file_begin(&file, client, client->round->folder, "update",
                                                     DUNLIN_MANIFEST_UPDATE);
    if (status == DUNLIN_OK) {
        status = write_streams(job, &file);
    }
    dunlin__stream_file_close(&file);
    return status;
}

dunlin_status dunlin__update_write(dunlin_client *client)
{
    dunlin__round *round = client->round;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    const dunlin__training_plan *plan = &round->assignment.plan;
    update_job job = {.client = client,
                      .is_delta = plan->update_form != DUNLIN_V1_UPDATE_FORM_WEIGHTS};
    dunlin_status status = client->learner.ops->save(client->learner.self, &job.fresh);
    if (status != DUNLIN_OK || job.fresh.n_tensors < 0 || job.fresh.read_fn == NULL) {
        return dunlin__fail(&client->error, status != DUNLIN_OK ? status : DUNLIN_CALLBACK,
                            "update", 0, "save() of the learner: %s, %" PRId64 " tensors%s",
                            dunlin_status_name(status), (int64_t)job.fresh.n_tensors,
                            job.fresh.read_fn == NULL ? ", read_fn is NULL" : "");
    }
    size_t n_tensors = (size_t)round->n_tensors;
    job.base_index = dunlin__alloc_array(alloc, n_tensors, sizeof *job.base_index);
    job.fresh_index = dunlin__alloc_array(alloc, n_tensors, sizeof *job.fresh_index);
    if (plan->clip_norm > 0.0F) {
        job.stages[job.n_stages++] = dunlin__clip_stage_make(&job.clip, (double)plan->clip_norm);
    }
    status = job.base_index == NULL || job.fresh_index == NULL
                 ? dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0,
                                "no memory for %zu tensors", n_tensors)
                 : write_update(&job);
    dunlin__free_array(alloc, job.fresh_index, n_tensors, sizeof *job.fresh_index);
    dunlin__free_array(alloc, job.base_index, n_tensors, sizeof *job.base_index);
    return status;
}

dunlin_status dunlin__update_read_manifest(dunlin_client *client)
{
    dunlin__round *round = client->round;
    if (round->manifest != NULL) {
        return DUNLIN_OK;
    }
    char path[DUNLIN_FILE_PATH_BYTES];
    int fd = -1;
    DUNLIN_TRY(dunlin__file_path(round->folder, "update.manifest", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, &fd, &client->error));
    struct stat about = {0};
    dunlin_status status = DUNLIN_OK;
    if (fstat(fd, &about) != 0 || about.st_size <= 0 ||
        about.st_size > (off_t)DUNLIN_WIRE_MANIFEST_BYTES) {
        status = dunlin__fail(&client->error, DUNLIN_DATA, "update", 0,
                              "update.manifest has %lld bytes; a manifest has 1 to %d",
                              (long long)about.st_size, (int)DUNLIN_WIRE_MANIFEST_BYTES);
    }
    size_t n_bytes = (size_t)about.st_size;
    if (status == DUNLIN_OK) {
        round->manifest = dunlin__alloc_array(&client->runtime->alloc, n_bytes, 1);
        round->manifest_bytes = n_bytes;
        status = round->manifest == NULL
                     ? dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0,
                                    "no memory for a manifest")
                     : dunlin__file_read(fd, round->manifest, n_bytes, 0, &client->error);
    }
    if (status == DUNLIN_OK) {
        status =
            dunlin__sha256_of(round->manifest, n_bytes, round->manifest_sha256, &client->error);
    }
    (void)close(fd);
    return status;
}

/* One request on a chunk of the update: HEAD asks how much is there, PUT sends from `offset` on. */
static dunlin_status exchange_chunk(dunlin_client *client, const dunlin__manifest_record *chunk,
                                    int fd, bool is_put, uint64_t offset,
                                    dunlin_http_reply *out_reply, dunlin__fault *out_fault)
{
    char path[DUNLIN_WIRE_PATH_BYTES];
    char url[URL_BYTES];
    char token[HEADER_BYTES];
    char range[HEADER_BYTES];
    char value[DUNLIN_WIRE_RANGE_BYTES];
    dunlin__route route =
        dunlin__route_make(is_put ? DUNLIN_CALL_CHUNK_PUT : DUNLIN_CALL_CHUNK_HEAD,
                           client->round->assignment.assignment_id);
    memcpy(route.sha256, chunk->sha256, sizeof route.sha256);
    DUNLIN_TRY(dunlin__route_format(&route, path, sizeof path, &client->error));
    (void)snprintf(url, sizeof url, "%s%s", client->origin.url, path);
    (void)snprintf(token, sizeof token, "%s: %s", DUNLIN_HEADER_TOKEN,
                   client->round->assignment.token);
    dunlin_http_request request = DUNLIN_HTTP_REQUEST_INIT;
    request.method = is_put ? "PUT" : "HEAD";
    request.url = url;
    request.headers[request.n_headers++] = DUNLIN_HEADER_PROTOCOL ": " DUNLIN_WIRE_VERSION_TEXT;
    request.headers[request.n_headers++] = token;
    if (is_put) {
        dunlin__chunk_range place = {
            .offset = offset, .n_bytes = chunk->n_bytes - offset, .total_bytes = chunk->n_bytes};
        DUNLIN_TRY(dunlin__chunk_range_format(&place, value, &client->error));
        (void)snprintf(range, sizeof range, "%s: %s", DUNLIN_HEADER_CONTENT_RANGE, value);
        request.headers[request.n_headers++] = range;
        request.headers[request.n_headers++] =
            DUNLIN_HEADER_CONTENT_TYPE ": " DUNLIN_WIRE_CONTENT_TYPE_CHUNK;
        request.body_fd = fd;
        request.body_offset = chunk->offset + offset;
        request.body_bytes = chunk->n_bytes - offset;
    }
    uint8_t body[256];
    request.reply = body;
    request.reply_limit_bytes = sizeof body;
    return dunlin__client_exchange(client, &request, out_reply, out_fault);
}

/* Sends a chunk from where the server has it, and goes on where the server says. */
static dunlin_status send_chunk(dunlin_client *client, const dunlin__manifest_record *chunk, int fd,
                                bool ask_first, dunlin__fault *out_fault)
{
    uint64_t offset = 0;
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    bool is_put = !ask_first;
    for (int i = 0; i < N_OFFSET_ANSWERS; i++) {
        DUNLIN_TRY(exchange_chunk(client, chunk, fd, is_put, offset, &reply, out_fault));
        bool is_success = reply.status >= 200 && reply.status < 300;
        if (!is_success && reply.status != 409 && !(reply.status == 404 && !is_put)) {
            dunlin__status refusal;
            return dunlin__call_refused(client, &reply, &refusal, out_fault);
        }
        if (is_put && is_success && reply.upload_offset < 0) {
            return DUNLIN_OK;
        }
        offset = reply.upload_offset > 0 ? (uint64_t)reply.upload_offset : 0;
        if (offset >= chunk->n_bytes) {
            return DUNLIN_OK;
        }
        is_put = true;
    }
    *out_fault = dunlin__fault_of(DUNLIN_CLOSED);
    return dunlin__fail(&client->error, DUNLIN_CLOSED, "upload", 0,
                        "chunk %" PRIu32 ": the server has asked for another offset %d times",
                        chunk->chunk_index, N_OFFSET_ANSWERS);
}

static bool is_missing(const dunlin__round *round, uint32_t chunk_index)
{
    if (round->put.n_chunks == 0) {
        return true; /* resumed after a kill: the server is asked for each chunk */
    }
    return chunk_index / 8 < round->put.missing.size &&
           (round->put.missing.bytes[chunk_index / 8] >> (chunk_index % 8) & 1) != 0;
}

dunlin_status dunlin__update_send(dunlin_client *client, dunlin__fault *out_fault)
{
    dunlin__round *round = client->round;
    char path[DUNLIN_FILE_PATH_BYTES];
    int fd = -1;
    *out_fault = dunlin__fault_of(DUNLIN_DATA);
    DUNLIN_TRY(dunlin__file_path(round->folder, "update.bin", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, &fd, &client->error));
    bool ask_first = round->put.n_chunks == 0 || client->session.n_failures > 0;
    dunlin__manifest_source source =
        dunlin__manifest_source_memory(round->manifest, round->manifest_bytes);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record = {.item = DUNLIN_MANIFEST_STREAM};
    uint64_t stream_offset = 0; /* in the file, where the streams follow each other */
    uint64_t next_offset = 0;
    dunlin_status status =
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, &client->error);
    while (status == DUNLIN_OK && record.item != DUNLIN_MANIFEST_END) {
        status = dunlin__manifest_reader_next(&reader, &record, &client->error);
        if (status == DUNLIN_OK && record.item == DUNLIN_MANIFEST_STREAM) {
            stream_offset = next_offset;
            next_offset += record.stream.total_bytes;
        }
        if (status != DUNLIN_OK || record.item != DUNLIN_MANIFEST_CHUNK ||
            !is_missing(round, record.chunk_index)) {
            continue;
        }
        record.offset += stream_offset;
        status = send_chunk(client, &record, fd, ask_first, out_fault);
        if (status == DUNLIN_OK && !dunlin__client_tell(client, DUNLIN_PHASE_UPLOAD,
                                                        (int64_t)(record.offset + record.n_bytes),
                                                        (int64_t)next_offset, 0.0)) {
            *out_fault = dunlin__fault_of(DUNLIN_STOPPED);
            status =
                dunlin__fail(&client->error, DUNLIN_STOPPED, "client", 0,
                             "stopped on request at byte %" PRIu64 " of %" PRIu64 " of the update",
                             record.offset + record.n_bytes, next_offset);
        }
    }
    (void)close(fd);
    return status;
}
