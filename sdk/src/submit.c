/*
 * submit.c - the update: made once from what the learner saved, written with its manifest, sent
 * chunk by chunk.
 *
 * Invariant: once the journal says PUT the two files do not change any more, so a retry sends the
 * same bytes; nothing is held of the model but a block.
 */
#include "client_internal.h"
#include "update_stages.h"

#include <wire/digest.h>
#include <wire/tensor_stream.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_FLOATS 4096
#define URL_BYTES 2304
#define HEADER_BYTES 192
#define N_OFFSET_ANSWERS 8
#define MAX_STAGES 2

/* An update on its way into the file. */
typedef struct update_job {
    dunlin_client *client;
    dunlin_weights_reader fresh; /* the learner's weights */
    int32_t *base_index;         /* of each tensor of `fresh` */
    bool is_delta;
    dunlin__update_stage stages[MAX_STAGES];
    int32_t n_stages;
    dunlin__clip_stage clip;
    uint64_t total_bytes;
    int fd;
    uint64_t n_written;
    uint8_t *hashes; /* of the chunks */
    uint64_t n_hashes;
} update_job;

/* Pairs the learner's tensors with the base's shared ones, which they must be, in order. */
static dunlin_status match_tensors(update_job *job)
{
    const dunlin_weights_reader *base = &job->client->round->base;
    int32_t found = 0;
    for (int32_t i = 0; i < base->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &base->tensors[i];
        if (tensor->aggregation == DUNLIN_AGGREGATE_LOCAL) {
            continue;
        }
        if (found >= job->fresh.n_tensors ||
            strcmp(job->fresh.tensors[found].name, tensor->name) != 0 ||
            job->fresh.tensors[found].n_elements != tensor->n_elements) {
            return dunlin__fail(&job->client->error, DUNLIN_MISMATCH, "update", 0,
                                "the learner saved another tensor where %.100s of the base belongs",
                                tensor->name);
        }
        job->base_index[found++] = i;
        job->total_bytes += (uint64_t)tensor->n_elements * sizeof(float);
    }
    if (found != job->fresh.n_tensors || found == 0) {
        return dunlin__fail(&job->client->error, DUNLIN_MISMATCH, "update", 0,
                            "the learner saved %d tensors, the base has %d that are shared",
                            (int)job->fresh.n_tensors, (int)found);
    }
    return DUNLIN_OK;
}

/* new - base, or new, of a piece of a tensor. */
static dunlin_status make_block(update_job *job, int32_t index, int64_t first, int64_t n,
                                float *out)
{
    dunlin_status status = job->fresh.read_fn(job->fresh.ctx, index, first, n, out);
    if (status != DUNLIN_OK) {
        return dunlin__fail(&job->client->error, status, "update", 0,
                            "the learner could not give tensor %.100s",
                            job->fresh.tensors[index].name);
    }
    if (!job->is_delta) {
        return DUNLIN_OK;
    }
    float base[BLOCK_FLOATS];
    const dunlin_weights_reader *reader = &job->client->round->base;
    DUNLIN_TRY(reader->read_fn(reader->ctx, job->base_index[index], first, n, base));
    for (int64_t i = 0; i < n; i++) {
        out[i] -= base[i];
    }
    return DUNLIN_OK;
}

/* Goes over the whole update in blocks: into the surveys of the stages, or through them into the
 * writer. */
static dunlin_status pass_over(update_job *job, dunlin__tensor_writer *writer)
{
    float block[BLOCK_FLOATS];
    for (int32_t i = 0; i < job->fresh.n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &job->fresh.tensors[i];
        for (int64_t first = 0; first < tensor->n_elements;) {
            int64_t left = tensor->n_elements - first;
            int64_t n = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
            DUNLIN_TRY(make_block(job, i, first, n, block));
            for (int32_t s = 0; s < job->n_stages; s++) {
                const dunlin__update_stage *stage = &job->stages[s];
                if (writer != NULL) {
                    stage->apply_fn(stage->ctx, block, (size_t)n);
                } else if (stage->survey_fn != NULL) {
                    stage->survey_fn(stage->ctx, block, (size_t)n);
                }
            }
            if (writer != NULL) {
                DUNLIN_TRY(dunlin__tensor_writer_values(writer, tensor->name, block, (size_t)n,
                                                        &job->client->error));
            }
            first += n;
        }
    }
    return DUNLIN_OK;
}

static dunlin_status sink_write(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    update_job *job = ctx;
    DUNLIN_TRY(dunlin__file_write(job->fd, data, n_bytes, job->n_written, error));
    job->n_written += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status sink_chunk(void *ctx, uint32_t chunk_index, uint32_t chunk_bytes,
                                const uint8_t sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    (void)chunk_bytes;
    (void)error;
    update_job *job = ctx;
    memcpy(job->hashes + (size_t)chunk_index * DUNLIN_SHA256_BYTES, sha256, DUNLIN_SHA256_BYTES);
    return DUNLIN_OK;
}

static dunlin_status write_values(update_job *job, const dunlin__stream *stream)
{
    dunlin_error *error = &job->client->error;
    dunlin__stream_sink sink = {.ctx = job, .write_fn = sink_write, .chunk_fn = sink_chunk};
    dunlin__tensor_writer writer;
    if (job->n_stages > 0) {
        DUNLIN_TRY(pass_over(job, NULL));
    }
    DUNLIN_TRY(dunlin__tensor_writer_begin(&writer, stream, true, &sink, error));
    dunlin_status status = pass_over(job, &writer);
    if (status == DUNLIN_OK) {
        status = dunlin__tensor_writer_end(&writer, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__tensor_writer_abort(&writer);
    }
    return status;
}

static dunlin_v1_rule_t rule_of(dunlin_aggregation aggregation)
{
    return aggregation == DUNLIN_AGGREGATE_STATISTIC ? DUNLIN_V1_RULE_STATISTIC
                                                     : DUNLIN_V1_RULE_AVERAGE;
}

static dunlin_status write_manifest(update_job *job, const dunlin__stream *stream, uint8_t *buffer,
                                    size_t *out_n_bytes)
{
    dunlin_error *error = &job->client->error;
    dunlin__manifest_writer writer;
    DUNLIN_TRY(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, buffer,
                                             DUNLIN_WIRE_MANIFEST_BYTES, error));
    DUNLIN_TRY(dunlin__manifest_writer_stream(&writer, stream, error));
    const dunlin_weights_tensor *base = job->client->round->base.tensors;
    for (int32_t i = 0; i < job->fresh.n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &base[job->base_index[i]];
        dunlin__tensor_entry entry;
        DUNLIN_TRY(dunlin__tensor_entry_make(tensor->name, &tensor->shape,
                                             rule_of(tensor->aggregation), &entry, error));
        DUNLIN_TRY(dunlin__manifest_writer_tensor(&writer, &entry, error));
    }
    for (uint64_t i = 0; i < job->n_hashes; i++) {
        DUNLIN_TRY(
            dunlin__manifest_writer_chunk(&writer, job->hashes + i * DUNLIN_SHA256_BYTES, error));
    }
    return dunlin__manifest_writer_end(&writer, out_n_bytes, error);
}

/* The manifest into its file: it appears whole, after the values it speaks of are on the storage.
 */
static dunlin_status save_manifest(update_job *job, const dunlin__stream *stream)
{
    dunlin_client *client = job->client;
    const char *folder = client->round->folder;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    char part[DUNLIN_FILE_PATH_BYTES];
    char path[DUNLIN_FILE_PATH_BYTES];
    DUNLIN_TRY(dunlin__file_path(folder, "update.manifest.part", part, &client->error));
    DUNLIN_TRY(dunlin__file_path(folder, "update.manifest", path, &client->error));
    uint8_t *buffer = dunlin__alloc_array(alloc, DUNLIN_WIRE_MANIFEST_BYTES, 1);
    if (buffer == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0, "no memory for a manifest");
    }
    size_t n_bytes = 0;
    int fd = -1;
    dunlin_status status = write_manifest(job, stream, buffer, &n_bytes);
    if (status == DUNLIN_OK) {
        status = dunlin__file_open(part, &fd, &client->error);
    }
    if (status == DUNLIN_OK && ftruncate(fd, 0) != 0) {
        status =
            dunlin__fail(&client->error, DUNLIN_IO, "update", errno, "%s cannot be emptied", part);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__file_write(fd, buffer, n_bytes, 0, &client->error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__file_rename(fd, part, path, folder, &client->error);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    dunlin__free_array(alloc, buffer, DUNLIN_WIRE_MANIFEST_BYTES, 1);
    return status;
}

static dunlin_status write_update(update_job *job)
{
    dunlin_client *client = job->client;
    const dunlin__training_plan *plan = &client->round->assignment.plan;
    char path[DUNLIN_FILE_PATH_BYTES];
    DUNLIN_TRY(match_tensors(job));
    if (job->total_bytes > client->options.max_upload_bytes) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "update", 0,
                            "the update has %llu bytes; this client sends at most %llu a round",
                            (unsigned long long)job->total_bytes,
                            (unsigned long long)client->options.max_upload_bytes);
    }
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_F32,
                             .total_bytes = job->total_bytes,
                             .chunk_bytes = plan->chunk_bytes > 0 ? plan->chunk_bytes
                                                                  : DUNLIN_WIRE_CHUNK_DEFAULT_BYTES,
                             .n_tensors = (uint32_t)job->fresh.n_tensors};
    (void)strncpy(stream.name, DUNLIN_STREAM_UPDATE, sizeof stream.name - 1);
    job->n_hashes = dunlin__chunk_count(stream.total_bytes, stream.chunk_bytes);
    if (job->n_hashes == 0 || job->n_hashes > DUNLIN_WIRE_CHUNKS) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "update", 0,
                            "the update makes %llu chunks; the limit is %u",
                            (unsigned long long)job->n_hashes, DUNLIN_WIRE_CHUNKS);
    }
    job->hashes =
        dunlin__alloc_array(&client->runtime->alloc, (size_t)job->n_hashes, DUNLIN_SHA256_BYTES);
    if (job->hashes == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0,
                            "no memory for the chunks' hashes");
    }
    DUNLIN_TRY(dunlin__file_path(client->round->folder, "update.bin", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, &job->fd, &client->error));
    if (ftruncate(job->fd, 0) != 0) {
        return dunlin__fail(&client->error, DUNLIN_IO, "update", errno, "%s cannot be emptied",
                            path);
    }
    DUNLIN_TRY(write_values(job, &stream));
    DUNLIN_TRY(dunlin__file_sync(job->fd, client->round->folder, &client->error));
    return save_manifest(job, &stream);
}

dunlin_status dunlin__update_write(dunlin_client *client)
{
    dunlin__round *round = client->round;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    const dunlin__training_plan *plan = &round->assignment.plan;
    update_job job = {
        .client = client, .fd = -1, .is_delta = plan->update_form != DUNLIN_V1_UPDATE_FORM_WEIGHTS};
    dunlin_status status = client->learner.ops->save(client->learner.self, &job.fresh);
    if (status != DUNLIN_OK || job.fresh.n_tensors < 0 || job.fresh.read_fn == NULL) {
        return dunlin__fail(&client->error, status != DUNLIN_OK ? status : DUNLIN_CALLBACK,
                            "update", 0, "the learner could not save its weights");
    }
    size_t n_tensors = (size_t)job.fresh.n_tensors;
    job.base_index = dunlin__alloc_array(alloc, n_tensors, sizeof *job.base_index);
    if (n_tensors > 0 && job.base_index == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0, "no memory for %zu tensors",
                            n_tensors);
    }
    if (plan->clip_norm > 0.0F) {
        job.stages[job.n_stages++] = dunlin__clip_stage_make(&job.clip, (double)plan->clip_norm);
    }
    status = write_update(&job);
    if (job.fd >= 0) {
        (void)close(job.fd);
    }
    dunlin__free_array(alloc, job.hashes, (size_t)job.n_hashes, DUNLIN_SHA256_BYTES);
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
                              "the manifest of the finished update is missing or damaged");
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
    (void)snprintf(url, sizeof url, "%s%s", client->server_url, path);
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
    dunlin_http_reply reply;
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
                        "the server keeps asking for another offset");
}

static bool is_missing(const dunlin__round *round, uint32_t chunk_index)
{
    if (round->put.n_chunks == 0) {
        return true; /* taken up again after a kill: each chunk is asked for */
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
    dunlin_status status =
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, &client->error);
    while (status == DUNLIN_OK && record.item != DUNLIN_MANIFEST_END) {
        status = dunlin__manifest_reader_next(&reader, &record, &client->error);
        if (status != DUNLIN_OK || record.item != DUNLIN_MANIFEST_CHUNK ||
            !is_missing(round, record.chunk_index)) {
            continue;
        }
        status = send_chunk(client, &record, fd, ask_first, out_fault);
        if (status == DUNLIN_OK && !dunlin__client_tell(client, DUNLIN_PHASE_UPLOAD,
                                                        (int64_t)(record.offset + record.n_bytes),
                                                        (int64_t)record.stream.total_bytes, 0.0)) {
            *out_fault = dunlin__fault_of(DUNLIN_STOPPED);
            status =
                dunlin__fail(&client->error, DUNLIN_STOPPED, "client", 0, "stopped on request");
        }
    }
    (void)close(fd);
    return status;
}
