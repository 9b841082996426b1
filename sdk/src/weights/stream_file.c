/*
 * stream_file.c - writes streams of tensors with their manifest.
 */
#include "stream_file.h"

#include "context/client_context.h"
#include "store/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 64
/* A record fits behind one that waits. */
#define BUFFER_BYTES (2 * DUNLIN_MANIFEST_RECORD_BYTES)

static dunlin_status path_of(const dunlin__stream_file *file, const char *ending,
                             char out_path[DUNLIN_FILE_PATH_BYTES])
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s%s", file->name, ending);
    return dunlin__file_path(file->folder, name, out_path, &file->client->error);
}

static dunlin_status open_empty(dunlin_client *client, const char *path, int *out_fd)
{
    DUNLIN_TRY(dunlin__file_open(path, out_fd, &client->error));
    if (ftruncate(*out_fd, 0) != 0) {
        return dunlin__fail(&client->error, DUNLIN_IO, "update", errno, "%s cannot be emptied",
                            path);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__stream_file_begin(dunlin__stream_file *file, dunlin_client *client,
                                        const char *folder, const char *name,
                                        dunlin__manifest_kind kind)
{
    const dunlin_alloc *alloc = &client->runtime->alloc;
    char path[DUNLIN_FILE_PATH_BYTES];
    *file = (dunlin__stream_file){
        .client = client, .folder = folder, .name = name, .fd = -1, .manifest_fd = -1};
    file->buffer = dunlin__alloc_array(alloc, BUFFER_BYTES, 1);
    file->block = dunlin__alloc_array(alloc, DUNLIN_STREAM_BLOCK_FLOATS, sizeof(float));
    if (file->buffer == NULL || file->block == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0,
                            "no memory for a block of %d values", DUNLIN_STREAM_BLOCK_FLOATS);
    }
    DUNLIN_TRY(dunlin__manifest_writer_begin(&file->manifest, kind, file->buffer, BUFFER_BYTES,
                                             &client->error));
    DUNLIN_TRY(path_of(file, ".bin", path));
    DUNLIN_TRY(open_empty(client, path, &file->fd));
    DUNLIN_TRY(path_of(file, ".manifest.part", path));
    return open_empty(client, path, &file->manifest_fd);
}

/* ---- records ---- */

static dunlin_status flush_records(dunlin__stream_file *file)
{
    const uint64_t offset = file->manifest.n_drained;
    const size_t n_bytes = dunlin__manifest_writer_drain(&file->manifest);
    return dunlin__file_write(file->manifest_fd, file->buffer, n_bytes, offset,
                              &file->client->error);
}

/* For one more record. */
static dunlin_status make_room(dunlin__stream_file *file)
{
    const size_t room = BUFFER_BYTES - file->manifest.n_bytes;
    return room < DUNLIN_MANIFEST_RECORD_BYTES ? flush_records(file) : DUNLIN_OK;
}

dunlin_status dunlin__stream_file_stream(dunlin__stream_file *file, const dunlin__stream *stream)
{
    DUNLIN_TRY(make_room(file));
    return dunlin__manifest_writer_stream(&file->manifest, stream, &file->client->error);
}

dunlin_status dunlin__stream_file_tensor(dunlin__stream_file *file,
                                         const dunlin__tensor_entry *tensor)
{
    DUNLIN_TRY(make_room(file));
    return dunlin__manifest_writer_tensor(&file->manifest, tensor, &file->client->error);
}

static dunlin_status put_chunk(dunlin__stream_file *file, const uint8_t sha256[DUNLIN_SHA256_BYTES],
                               dunlin_error *error)
{
    DUNLIN_TRY(make_room(file));
    return dunlin__manifest_writer_chunk(&file->manifest, sha256, error);
}

/* ---- values ---- */

static dunlin_status sink_write(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    dunlin__stream_file *file = ctx;
    DUNLIN_TRY(dunlin__file_write(file->fd, data, n_bytes, file->n_written, error));
    file->n_written += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status sink_chunk(void *ctx, uint32_t chunk_index, uint32_t chunk_bytes,
                                const uint8_t sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    dunlin__stream_file *file = ctx;
    (void)chunk_index;
    (void)chunk_bytes;
    return put_chunk(file, sha256, error);
}

static dunlin_v1_rule_t rule_of(dunlin_aggregation aggregation)
{
    if (aggregation == DUNLIN_AGGREGATE_LOCAL) {
        return DUNLIN_V1_RULE_LOCAL;
    }
    return aggregation == DUNLIN_AGGREGATE_STATISTIC ? DUNLIN_V1_RULE_STATISTIC
                                                     : DUNLIN_V1_RULE_AVERAGE;
}

static dunlin_status write_values(dunlin__stream_file *file, const dunlin__stream_plan *plan,
                                  dunlin__tensor_writer *writer)
{
    const dunlin_weights_tensor *base = file->client->round->tensors;
    for (int32_t i = 0; i < plan->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &base[plan->base_index[i]];
        for (int64_t first = 0; first < tensor->n_elements;) {
            int64_t left = tensor->n_elements - first;
            int64_t n = left < DUNLIN_STREAM_BLOCK_FLOATS ? left : DUNLIN_STREAM_BLOCK_FLOATS;
            DUNLIN_TRY(plan->read_fn(plan->ctx, i, first, n, file->block));
            DUNLIN_TRY(dunlin__tensor_writer_values(writer, tensor->name, file->block, (size_t)n,
                                                    &file->client->error));
            first += n;
        }
    }
    return dunlin__tensor_writer_end(writer, &file->client->error);
}

/* The stream's record and its tensors', which come before its chunks. */
static dunlin_status write_records(dunlin__stream_file *file, const dunlin__stream_plan *plan,
                                   dunlin__stream *out_stream)
{
    dunlin_error *error = &file->client->error;
    const dunlin_weights_tensor *base = file->client->round->tensors;
    *out_stream = (dunlin__stream){
        .encoding = DUNLIN_V1_ENCODING_F32,
        .chunk_bytes = plan->chunk_bytes > 0 ? plan->chunk_bytes : DUNLIN_WIRE_CHUNK_DEFAULT_BYTES,
        .n_tensors = (uint32_t)plan->n_tensors};
    (void)strncpy(out_stream->name, plan->name, sizeof out_stream->name - 1);
    for (int32_t i = 0; i < plan->n_tensors; i++) {
        out_stream->total_bytes += (uint64_t)base[plan->base_index[i]].n_elements * sizeof(float);
    }
    out_stream->n_chunks =
        (uint32_t)dunlin__chunk_count(out_stream->total_bytes, out_stream->chunk_bytes);
    DUNLIN_TRY(dunlin__stream_file_stream(file, out_stream));
    for (int32_t i = 0; i < plan->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &base[plan->base_index[i]];
        dunlin__tensor_entry entry;
        DUNLIN_TRY(dunlin__tensor_entry_make(tensor->name, &tensor->shape,
                                             rule_of(tensor->aggregation), &entry, error));
        DUNLIN_TRY(dunlin__stream_file_tensor(file, &entry));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__stream_file_add(dunlin__stream_file *file, const dunlin__stream_plan *plan)
{
    dunlin__stream stream;
    dunlin__tensor_writer writer;
    dunlin__stream_sink sink = {.ctx = file, .write_fn = sink_write, .chunk_fn = sink_chunk};
    DUNLIN_TRY(write_records(file, plan, &stream));
    DUNLIN_TRY(dunlin__tensor_writer_begin(&writer, &stream, true, &sink, &file->client->error));
    dunlin_status status = write_values(file, plan, &writer);
    if (status != DUNLIN_OK) {
        dunlin__tensor_writer_abort(&writer);
    }
    return status;
}

void dunlin__stream_chunks_begin(dunlin__stream_chunks *chunks, dunlin__stream_file *file,
                                 uint32_t chunk_bytes)
{
    *chunks = (dunlin__stream_chunks){.file = file, .chunk_bytes = chunk_bytes};
}

static dunlin_status finish_chunk(dunlin__stream_chunks *chunks, dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    chunks->fill = 0;
    DUNLIN_TRY(dunlin__sha256_end(&chunks->hash, sha256, error));
    return put_chunk(chunks->file, sha256, error);
}

dunlin_status dunlin__stream_chunks_write(void *ctx, const void *data, size_t n_bytes,
                                          dunlin_error *error)
{
    dunlin__stream_chunks *chunks = ctx;
    const uint8_t *bytes = data;
    while (n_bytes > 0) {
        if (chunks->fill == 0) {
            DUNLIN_TRY(dunlin__sha256_begin(&chunks->hash, error));
        }
        const size_t room = chunks->chunk_bytes - chunks->fill;
        const size_t part = n_bytes < room ? n_bytes : room;
        /* Counted first: from here on the chunk has a hash to end or to abort. */
        chunks->fill += (uint32_t)part;
        DUNLIN_TRY(dunlin__sha256_update(&chunks->hash, bytes, part, error));
        DUNLIN_TRY(sink_write(chunks->file, bytes, part, error));
        if (chunks->fill == chunks->chunk_bytes) {
            DUNLIN_TRY(finish_chunk(chunks, error));
        }
        bytes += part;
        n_bytes -= part;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__stream_chunks_end(dunlin__stream_chunks *chunks, dunlin_status status)
{
    if (status == DUNLIN_OK && chunks->fill > 0) {
        return finish_chunk(chunks, &chunks->file->client->error);
    }
    if (chunks->fill > 0) {
        dunlin__sha256_abort(&chunks->hash);
        chunks->fill = 0;
    }
    return status;
}

/* ---- the end ---- */

dunlin_status dunlin__stream_file_end(dunlin__stream_file *file)
{
    dunlin_client *client = file->client;
    char part[DUNLIN_FILE_PATH_BYTES];
    char path[DUNLIN_FILE_PATH_BYTES];
    size_t ignored = 0;
    DUNLIN_TRY(dunlin__file_sync(file->fd, file->folder, &client->error));
    DUNLIN_TRY(dunlin__manifest_writer_end(&file->manifest, &ignored, &client->error));
    DUNLIN_TRY(flush_records(file));
    DUNLIN_TRY(path_of(file, ".manifest.part", part));
    DUNLIN_TRY(path_of(file, ".manifest", path));
    return dunlin__file_rename(file->manifest_fd, part, path, &client->error);
}

void dunlin__stream_file_drop_block(dunlin__stream_file *file)
{
    dunlin__free_array(&file->client->runtime->alloc, file->block, DUNLIN_STREAM_BLOCK_FLOATS,
                       sizeof(float));
    file->block = NULL;
}

void dunlin__stream_file_close(dunlin__stream_file *file)
{
    int *const fds[] = {&file->fd, &file->manifest_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0) {
            (void)close(*fds[i]);
            *fds[i] = -1;
        }
    }
    dunlin__stream_file_drop_block(file);
    dunlin__free_array(&file->client->runtime->alloc, file->buffer, BUFFER_BYTES, 1);
    file->buffer = NULL;
}
