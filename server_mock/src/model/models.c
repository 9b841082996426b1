/*
 * models.c - writes the base of a round as chunks and manifest, and reads it again.
 *
 * Invariant: the manifest is written after the weights it describes, so a manifest that exists can
 * be served. The model is never in memory as a whole: values are processed in blocks.
 */
#include "models.h"

#include "base/files.h"
#include "down.h"

#include <mem/checked.h>
#include <mem/support.h>
#include <wire/digest.h>
#include <wire/int8.h>
#include <wire/tensor_stream.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_VALUES (DUNLIN_WIRE_BLOCK_BYTES / sizeof(float))

uint64_t dunlin__layout_update_bytes(const dunlin__layout *layout)
{
    return layout->is_int8 ? layout->n_shared_values +
                                 (uint64_t)layout->n_shared_tensors * DUNLIN_INT8_SCALE_BYTES
                           : layout->n_shared_values * sizeof(float);
}

dunlin_status dunlin__layout_check(dunlin__layout *layout, dunlin_error *error)
{
    if (layout->n_tensors == 0 || layout->n_tensors > DUNLIN_WIRE_TENSORS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "model", 0,
                            "the model has %" PRIu32 " tensors; from 1 to %u work",
                            layout->n_tensors, DUNLIN_WIRE_TENSORS);
    }
    uint64_t n_values = 0;
    layout->n_shared_tensors = 0;
    layout->n_shared_values = 0;
    layout->n_averaged_tensors = 0;
    layout->n_averaged_values = 0;
    for (uint32_t i = 0; i < layout->n_tensors; i++) {
        uint64_t n = 0;
        DUNLIN_TRY(dunlin__tensor_entry_count(&layout->tensors[i], &n, error));
        if (!dunlin__add_u64(n_values, n, &n_values)) {
            return dunlin__fail(error, DUNLIN_OVERFLOW, "model", 0,
                                "the model's values do not fit 64 bits");
        }
        bool is_shared = dunlin__layout_has(layout, i, DUNLIN_LAYOUT_SHARED);
        bool is_averaged = dunlin__layout_has(layout, i, DUNLIN_LAYOUT_AVERAGED);
        layout->n_shared_tensors += is_shared ? 1 : 0;
        layout->n_shared_values += is_shared ? n : 0;
        layout->n_averaged_tensors += is_averaged ? 1 : 0;
        layout->n_averaged_values += is_averaged ? n : 0;
    }
    uint64_t most = (uint64_t)DUNLIN_WIRE_CHUNKS * DUNLIN_WIRE_CHUNK_MAX_BYTES / sizeof(float);
    if (n_values == 0 || n_values > most) {
        return dunlin__fail(error, DUNLIN_LIMIT, "model", 0,
                            "the model has %" PRIu64 " values; from 1 to %" PRIu64 " work",
                            n_values, most);
    }
    if (layout->n_shared_values == 0 || (layout->has_control && layout->n_averaged_values == 0)) {
        return dunlin__fail(error, DUNLIN_MODEL, "model", 0,
                            "no tensor of the model is shared: all are local%s",
                            layout->has_control ? ", or statistics" : "");
    }
    layout->n_values = n_values;
    return DUNLIN_OK;
}

bool dunlin__layout_has(const dunlin__layout *layout, uint32_t tensor, dunlin__layout_part part)
{
    dunlin_v1_rule_t rule = layout->tensors[tensor].rule;
    return part == DUNLIN_LAYOUT_ALL || rule == DUNLIN_V1_RULE_AVERAGE ||
           (part == DUNLIN_LAYOUT_SHARED && rule == DUNLIN_V1_RULE_STATISTIC);
}

dunlin_status dunlin__layout_make_local(dunlin__layout *layout, const char *prefixes,
                                        dunlin_error *error)
{
    while (*prefixes != 0) {
        size_t length = strcspn(prefixes, ",");
        bool is_found = false;
        for (uint32_t i = 0; i < layout->n_tensors; i++) {
            if (length > 0 && strncmp(layout->tensors[i].name, prefixes, length) == 0) {
                layout->tensors[i].rule = DUNLIN_V1_RULE_LOCAL;
                is_found = true;
            }
        }
        if (!is_found) {
            return dunlin__fail(error, DUNLIN_DATA, "model", 0,
                                "local: no tensor of the model has a name that begins with "
                                "\"%.*s\"",
                                (int)(length < 60 ? length : 60), prefixes);
        }
        prefixes += length + (prefixes[length] == ',' ? 1 : 0);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__model_path(const char *folder, uint64_t round, const char *ending,
                                 dunlin__server_path *out_path, dunlin_error *error)
{
    return dunlin__server_path_make(out_path, error, "%s/%06" PRIu64 ".%s", folder, round, ending);
}

/* ---- publishing ---- */

typedef struct publisher {
    const dunlin__layout *layout;
    const dunlin__values *values;
    dunlin__published *published;
    dunlin__manifest_writer *manifest;
    dunlin__server_path path;
    dunlin_outfile file;
    uint32_t first_chunk; /* of the current stream, among all */
    float *block;
    dunlin_error *error;
} publisher;

static dunlin_status write_block(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    publisher *out = ctx;
    return dunlin__outfile_write(&out->file, data, n_bytes, error);
}

static dunlin_status end_chunk(void *ctx, uint32_t chunk_index, uint32_t chunk_bytes,
                               const uint8_t sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    publisher *out = ctx;
    (void)chunk_bytes;
    uint32_t chunk = out->first_chunk + chunk_index;
    if (chunk >= out->published->n_chunks) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "model", 0, "chunk %" PRIu32 " of %" PRIu32,
                            chunk, out->published->n_chunks);
    }
    memcpy(out->published->chunk_sha256[chunk], sha256, DUNLIN_SHA256_BYTES);
    return dunlin__manifest_writer_chunk(out->manifest, sha256, error);
}

static dunlin_status write_values(publisher *out, const dunlin__stream *stream,
                                  const dunlin__values *values)
{
    dunlin__stream_sink sink = {.ctx = out, .write_fn = write_block, .chunk_fn = end_chunk};
    dunlin__tensor_writer writer;
    DUNLIN_TRY(dunlin__tensor_writer_begin(&writer, stream, true, &sink, out->error));
    dunlin_status status = DUNLIN_OK;
    uint64_t n_values = stream->total_bytes / sizeof(float);
    for (uint64_t first = 0; status == DUNLIN_OK && first < n_values; first += BLOCK_VALUES) {
        uint64_t left = n_values - first;
        size_t n = left < BLOCK_VALUES ? (size_t)left : BLOCK_VALUES;
        status = values->values_fn(values->ctx, first, n, out->block, out->error);
        if (status == DUNLIN_OK) {
            status = dunlin__tensor_writer_values(&writer, "the global model", out->block, n,
                                                  out->error);
        }
    }
    if (status == DUNLIN_OK) {
        status = dunlin__tensor_writer_end(&writer, out->error);
    }
    dunlin__tensor_writer_abort(&writer);
    return status;
}

/* The weights go beside their place, and into it when they are on the disk. */
static dunlin_status write_weights(publisher *out, const dunlin__stream *stream,
                                   const dunlin__values *values)
{
    DUNLIN_TRY(
        dunlin__outfile_open(&out->file, out->path.text, DUNLIN_SERVER_FILE_MODE, out->error));
    const dunlin_status status = write_values(out, stream, values);
    return dunlin__outfile_close(&out->file, status, out->error);
}

/* A stream's records into the manifest, then its values, and their hashes, into its file. */
static dunlin_status publish_stream(publisher *out, const char *folder, bool is_control)
{
    const dunlin__layout *layout = out->layout;
    dunlin__layout_part part = is_control ? DUNLIN_LAYOUT_AVERAGED : DUNLIN_LAYOUT_ALL;
    uint64_t n_values = is_control ? layout->n_averaged_values : layout->n_values;
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_F32,
                             .total_bytes = n_values * sizeof(float),
                             .chunk_bytes = layout->chunk_bytes,
                             .n_tensors =
                                 is_control ? layout->n_averaged_tensors : layout->n_tensors};
    (void)snprintf(stream.name, sizeof stream.name, "%s",
                   is_control ? DUNLIN_STREAM_CONTROL : DUNLIN_STREAM_WEIGHTS);
    stream.n_chunks = (uint32_t)dunlin__chunk_count(stream.total_bytes, stream.chunk_bytes);
    DUNLIN_TRY(dunlin__manifest_writer_stream(out->manifest, &stream, out->error));
    for (uint32_t i = 0; i < layout->n_tensors; i++) {
        if (dunlin__layout_has(layout, i, part)) {
            DUNLIN_TRY(
                dunlin__manifest_writer_tensor(out->manifest, &layout->tensors[i], out->error));
        }
    }
    DUNLIN_TRY(dunlin__model_path(folder, out->published->round, is_control ? "control" : "weights",
                                  &out->path, out->error));
    out->first_chunk = is_control ? out->published->n_weight_chunks : 0;
    return write_weights(out, &stream, &out->values[is_control ? 1 : 0]);
}

static dunlin_status publish(publisher *out, const char *folder, uint8_t *buffer)
{
    dunlin__published *published = out->published;
    DUNLIN_TRY(dunlin__manifest_writer_begin(out->manifest, DUNLIN_MANIFEST_BASE, buffer,
                                             DUNLIN_WIRE_MANIFEST_BYTES, out->error));
    DUNLIN_TRY(publish_stream(out, folder, false));
    if (out->layout->has_control) {
        DUNLIN_TRY(publish_stream(out, folder, true));
    }
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__manifest_writer_end(out->manifest, &n_bytes, out->error));
    published->n_manifest_bytes = (uint32_t)n_bytes;
    DUNLIN_TRY(dunlin__sha256_of(buffer, n_bytes, published->manifest_sha256, out->error));
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__model_path(folder, published->round, "manifest", &path, out->error));
    return dunlin__outfile_put(path.text, DUNLIN_SERVER_FILE_MODE, buffer, n_bytes, out->error);
}

static dunlin_status published_begin(dunlin__published *published, uint64_t round,
                                     const dunlin__layout *layout, const dunlin_alloc *alloc,
                                     dunlin_error *error)
{
    memset(published, 0, sizeof *published);
    published->n_bytes = layout->n_values * sizeof(float);
    published->n_control_bytes =
        layout->has_control ? layout->n_averaged_values * sizeof(float) : 0;
    published->chunk_bytes = layout->chunk_bytes;
    uint64_t n_weight_chunks = dunlin__chunk_count(published->n_bytes, published->chunk_bytes);
    uint64_t n_chunks =
        n_weight_chunks + dunlin__chunk_count(published->n_control_bytes, published->chunk_bytes);
    if (n_chunks > DUNLIN_WIRE_CHUNKS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "model", 0,
                            "%" PRIu64 " bytes in chunks of %" PRIu32
                            " are more than %u chunks: raise chunk_bytes",
                            published->n_bytes + published->n_control_bytes, published->chunk_bytes,
                            DUNLIN_WIRE_CHUNKS);
    }
    published->chunk_sha256 =
        dunlin__alloc_zeroed(alloc, (size_t)n_chunks, sizeof *published->chunk_sha256);
    if (published->chunk_sha256 == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "model", 0, "the hashes of %" PRIu64 " chunks",
                            n_chunks);
    }
    published->round = round;
    published->n_chunks = (uint32_t)n_chunks;
    published->n_weight_chunks = (uint32_t)n_weight_chunks;
    return DUNLIN_OK;
}

const dunlin__published *dunlin__published_base(const dunlin__published *published)
{
    return published->down != NULL ? &published->down->base : published;
}

void dunlin__published_free(dunlin__published *published, const dunlin_alloc *alloc)
{
    dunlin__down_free(published->down, alloc);
    dunlin__free_array(alloc, published->chunk_sha256, published->n_chunks,
                       sizeof *published->chunk_sha256);
    memset(published, 0, sizeof *published);
}

dunlin_status dunlin__model_publish(const char *folder, uint64_t round,
                                    const dunlin__layout *layout, const dunlin__values *values,
                                    const dunlin_alloc *alloc, dunlin__published *out_published,
                                    dunlin_error *error)
{
    DUNLIN_TRY(published_begin(out_published, round, layout, alloc, error));
    dunlin__manifest_writer manifest;
    publisher out = {.layout = layout,
                     .values = values,
                     .published = out_published,
                     .manifest = &manifest,
                     .error = error};
    uint8_t *buffer = dunlin__alloc_array(alloc, DUNLIN_WIRE_MANIFEST_BYTES, 1);
    out.block = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof(float));
    dunlin_status status = buffer == NULL || out.block == NULL
                               ? dunlin__fail(error, DUNLIN_MEMORY, "model", 0,
                                              "no memory for the buffers of publishing")
                               : publish(&out, folder, buffer);
    dunlin__free_array(alloc, out.block, BLOCK_VALUES, sizeof(float));
    dunlin__free_array(alloc, buffer, DUNLIN_WIRE_MANIFEST_BYTES, 1);
    if (status != DUNLIN_OK) {
        dunlin__published_free(out_published, alloc);
    }
    return status;
}

/* ---- taking up ---- */

static bool same_tensor(const dunlin__tensor_entry *a, const dunlin__tensor_entry *b)
{
    return strcmp(a->name, b->name) == 0 && a->dims_count == b->dims_count &&
           memcmp(a->dims, b->dims, a->dims_count * sizeof a->dims[0]) == 0 && a->rule == b->rule &&
           a->stored_bytes == b->stored_bytes;
}

static dunlin_status read_records(dunlin__manifest_reader *reader, const dunlin__layout *layout,
                                  dunlin__published *published, dunlin_error *error)
{
    dunlin__manifest_record record;
    dunlin__layout_part part = DUNLIN_LAYOUT_ALL;
    uint32_t n_streams = 0;
    uint32_t tensor = 0;
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(reader, &record, error));
        bool is_right = true;
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            bool is_control = n_streams == 1 && layout->has_control;
            is_right = (n_streams == 0 || is_control) &&
                       record.stream.n_tensors ==
                           (is_control ? layout->n_averaged_tensors : layout->n_tensors);
            part = is_control ? DUNLIN_LAYOUT_AVERAGED : DUNLIN_LAYOUT_ALL;
            published->chunk_bytes = record.stream.chunk_bytes;
            n_streams++;
            tensor = 0;
        } else if (record.item == DUNLIN_MANIFEST_TENSOR) {
            while (tensor < layout->n_tensors && !dunlin__layout_has(layout, tensor, part)) {
                tensor++;
            }
            is_right =
                tensor < layout->n_tensors && same_tensor(&record.tensor, &layout->tensors[tensor]);
            tensor++;
        } else if (record.item == DUNLIN_MANIFEST_END) {
            is_right = n_streams == (layout->has_control ? 2 : 1);
        } else if (record.item == DUNLIN_MANIFEST_CHUNK) {
            is_right = record.chunk_index < published->n_chunks && published->chunk_sha256 != NULL;
            if (is_right) {
                memcpy(published->chunk_sha256[record.chunk_index], record.sha256,
                       DUNLIN_SHA256_BYTES);
            }
        }
        if (!is_right) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "model", 0,
                                "the state's model of round %" PRIu64
                                " is not the task's: other tensors or chunks",
                                published->round);
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    return DUNLIN_OK;
}

static dunlin_status check_size(const char *folder, uint64_t round, const char *ending,
                                uint64_t n_bytes, dunlin_error *error)
{
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__model_path(folder, round, ending, &path, error));
    if (dunlin__server_file_size(path.text) != (int64_t)n_bytes) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "model", 0,
                            "%.140s does not have the task's %" PRIu64 " bytes", path.text,
                            n_bytes);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__model_load(const char *folder, uint64_t round, const dunlin__layout *layout,
                                 const dunlin_alloc *alloc, dunlin__published *out_published,
                                 dunlin_error *error)
{
    dunlin__server_path path;
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__model_path(folder, round, "manifest", &path, error));
    DUNLIN_TRY(dunlin__server_file_read(alloc, path.text, DUNLIN_WIRE_MANIFEST_BYTES, &bytes,
                                        &n_bytes, error));
    dunlin_status status = published_begin(out_published, round, layout, alloc, error);
    dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    dunlin__manifest_reader reader;
    if (status == DUNLIN_OK) {
        status = dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, error);
    }
    if (status == DUNLIN_OK) {
        status = read_records(&reader, layout, out_published, error);
    }
    if (status == DUNLIN_OK) {
        out_published->n_manifest_bytes = (uint32_t)n_bytes;
        status = dunlin__sha256_of(bytes, n_bytes, out_published->manifest_sha256, error);
    }
    if (status == DUNLIN_OK) {
        status = check_size(folder, round, "weights", out_published->n_bytes, error);
    }
    if (status == DUNLIN_OK && layout->has_control) {
        status = check_size(folder, round, "control", out_published->n_control_bytes, error);
    }
    dunlin__free_array(alloc, bytes, n_bytes + 1, 1);
    if (status != DUNLIN_OK) {
        dunlin__published_free(out_published, alloc);
    }
    return status;
}

/* ---- values of a file ---- */

dunlin_status dunlin__weights_file_open(const char *path, uint64_t n_values,
                                        dunlin__weights_file *out_file, dunlin_error *error)
{
    out_file->fd = -1;
    DUNLIN_TRY(dunlin__server_path_make(&out_file->path, error, "%s", path));
    int64_t size = dunlin__server_file_size(path);
    if (size >= 0 && (uint64_t)size != n_values * sizeof(float)) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "model", 0,
                            "%.120s has %lld bytes; the model's %" PRIu64 " values take %" PRIu64,
                            path, (long long)size, n_values, n_values * sizeof(float));
    }
    out_file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (out_file->fd < 0) {
        return dunlin__file_fail(error, "opening", path, errno);
    }
    return DUNLIN_OK;
}

static dunlin_status file_values(void *ctx, uint64_t first, size_t n, float *out_values,
                                 dunlin_error *error)
{
    const dunlin__weights_file *file = ctx;
    return dunlin__server_read_at(file->fd, file->path.text, first * sizeof(float), out_values,
                                  n * sizeof(float), error);
}

dunlin__values dunlin__weights_file_values(dunlin__weights_file *file)
{
    return (dunlin__values){.ctx = file, .values_fn = file_values};
}

void dunlin__weights_file_close(dunlin__weights_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
        file->fd = -1;
    }
}
