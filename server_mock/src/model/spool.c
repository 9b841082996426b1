/*
 * spool.c - checks an update's manifest and joins its chunks to one file.
 */
#include "spool.h"

#include "spool_int8.h"
#include "spool_packed.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/manifest.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_VALUES (DUNLIN_WIRE_BLOCK_BYTES / sizeof(float))

/* What stream an update has at a place. */
typedef struct wanted_stream {
    const char *name;
    dunlin__layout_part part;
    uint32_t n_tensors;
    uint64_t n_values;
} wanted_stream;

static wanted_stream stream_at(const dunlin__layout *layout, uint32_t index)
{
    if (index == 0) {
        return (wanted_stream){DUNLIN_STREAM_UPDATE, DUNLIN_LAYOUT_SHARED, layout->n_shared_tensors,
                               layout->n_shared_values};
    }
    return (wanted_stream){DUNLIN_STREAM_CONTROL_DELTA, DUNLIN_LAYOUT_AVERAGED,
                           layout->n_averaged_tensors, layout->n_averaged_values};
}

static uint32_t n_streams_of(const dunlin__layout *layout)
{
    return layout->has_control ? 2 : 1;
}

static dunlin_status check_stream(const dunlin__stream *stream, uint32_t stream_index,
                                  const dunlin__layout *layout, const dunlin__packing *packing,
                                  dunlin_error *error)
{
    wanted_stream wanted = stream_at(layout, stream_index);
    if (stream_index >= n_streams_of(layout) || strcmp(stream->name, wanted.name) != 0) {
        return dunlin__fail(
            error, DUNLIN_MISMATCH, "update", 0,
            "the manifest has a stream \"%.64s\" at place %" PRIu32 "; wanted is \"%s\"%s",
            stream->name, stream_index, DUNLIN_STREAM_UPDATE,
            layout->has_control ? ", then \"" DUNLIN_STREAM_CONTROL_DELTA "\"" : " alone");
    }
    const dunlin_v1_encoding_t plain =
        layout->is_int8 ? DUNLIN_V1_ENCODING_INT8_SCALE : DUNLIN_V1_ENCODING_F32;
    const dunlin_v1_encoding_t encoding = packing != NULL ? DUNLIN_V1_ENCODING_PACKED : plain;
    const uint64_t n_bytes =
        stream_index == 0 ? dunlin__layout_update_bytes(layout) : wanted.n_values * sizeof(float);
    if (stream->encoding != encoding) {
        return dunlin__fail(
            error, DUNLIN_UNSUPPORTED, "update", 0, "the update is %s; the plan asks for %s",
            dunlin__encoding_name(stream->encoding), dunlin__encoding_name(encoding));
    }
    if (packing != NULL && stream->n_tensors == wanted.n_tensors) {
        return dunlin__packing_compare(packing, &stream->packing, true, error);
    }
    if (stream->n_tensors != wanted.n_tensors || stream->total_bytes != n_bytes) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0,
                            "the update has %" PRIu32 " tensors and %" PRIu64
                            " bytes; the model has %" PRIu32 " and %" PRIu64,
                            stream->n_tensors, (uint64_t)stream->total_bytes, wanted.n_tensors,
                            n_bytes);
    }
    return DUNLIN_OK;
}

static dunlin_status check_tensor(const dunlin__tensor_entry *tensor, uint32_t index,
                                  const dunlin__tensor_entry *wanted, dunlin_error *error)
{
    if (strcmp(tensor->name, wanted->name) != 0 || tensor->rule != wanted->rule ||
        tensor->dims_count != wanted->dims_count ||
        memcmp(tensor->dims, wanted->dims, tensor->dims_count * sizeof tensor->dims[0]) != 0) {
        return dunlin__fail(
            error, DUNLIN_MISMATCH, "update", 0,
            "tensor %" PRIu32
            " is \"%.80s\"; the model has \"%.80s\" there, or another shape or rule",
            index, tensor->name, wanted->name);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__update_check_manifest(const uint8_t *bytes, size_t n_bytes,
                                            const dunlin__layout *layout,
                                            const dunlin__packing *packing, uint32_t *out_n_chunks,
                                            dunlin_error *error)
{
    dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    uint32_t n_chunks = 0;
    uint32_t n_streams = 0;
    uint32_t at = 0; /* in the model's table */
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, error));
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            DUNLIN_TRY(check_stream(&record.stream, record.index, layout, packing, error));
            n_streams++;
            at = 0;
        } else if (record.item == DUNLIN_MANIFEST_TENSOR) {
            /* There are as many as the stream says, which is as many as the model has. */
            while (!dunlin__layout_has(layout, at, stream_at(layout, n_streams - 1).part)) {
                at++;
            }
            DUNLIN_TRY(check_tensor(&record.tensor, record.index, &layout->tensors[at], error));
            at++;
        } else if (record.item == DUNLIN_MANIFEST_CHUNK) {
            n_chunks++;
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    if (n_streams != n_streams_of(layout)) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0, "the manifest lacks stream \"%s\"",
                            stream_at(layout, n_streams).name);
    }
    *out_n_chunks = n_chunks;
    return DUNLIN_OK;
}

/* ---- joining ---- */

typedef struct joiner {
    const char *folder;
    const char *path;
    int fd;
    uint64_t offset;
    dunlin__spool_report *report;
    float *block;
    const dunlin_alloc *alloc;
    dunlin_error *error;
} joiner;

static void look_at(joiner *join, size_t n_values, uint64_t first)
{
    for (size_t i = 0; i < n_values; i++) {
        double value = (double)join->block[i];
        if (!isfinite(value) && join->report->is_finite) {
            join->report->is_finite = false;
            join->report->bad_value = first + i;
        }
    }
}

static dunlin_status join_chunk(joiner *join, const dunlin__manifest_record *record)
{
    char name[DUNLIN_SHA256_HEX_BYTES];
    dunlin__hex_encode(record->sha256, DUNLIN_SHA256_BYTES, name);
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__server_path_make(&path, join->error, "%s/%s", join->folder, name));
    int fd = open(path.text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return dunlin__fail(join->error, DUNLIN_IO, "update", errno,
                            "chunk %" PRIu32 " (%.8s...) has not been sent", record->chunk_index,
                            name);
    }
    dunlin_status status = DUNLIN_OK;
    uint64_t done = 0;
    while (status == DUNLIN_OK && done < record->n_bytes) {
        uint64_t left = record->n_bytes - done;
        size_t n_bytes =
            left < DUNLIN_WIRE_BLOCK_BYTES ? (size_t)left : (size_t)DUNLIN_WIRE_BLOCK_BYTES;
        status = dunlin__server_read_at(fd, path.text, done, join->block, n_bytes, join->error);
        if (status == DUNLIN_OK) {
            look_at(join, n_bytes / sizeof(float), join->offset / sizeof(float));
            status = dunlin__server_write_at(join->fd, join->path, join->offset, join->block,
                                             n_bytes, join->error);
        }
        join->offset += n_bytes;
        done += n_bytes;
    }
    (void)close(fd);
    return status;
}

static dunlin_status decode_all(joiner *join, const uint8_t *manifest, size_t n_manifest,
                                bool is_int8)
{
    const dunlin__spool_files files = {.folder = join->folder, .path = join->path, .fd = join->fd};
    DUNLIN_TRY(is_int8 ? dunlin__spool_int8(&files, manifest, n_manifest, join->block, join->error)
                       : dunlin__spool_packed(&files, manifest, n_manifest, join->alloc,
                                              join->report, join->error));
    return fsync(join->fd) == 0 ? DUNLIN_OK
                                : dunlin__file_fail(join->error, "syncing", join->path, errno);
}

static dunlin_status join_all(joiner *join, const uint8_t *manifest, size_t n_manifest)
{
    dunlin__manifest_source source = dunlin__manifest_source_memory(manifest, n_manifest);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    DUNLIN_TRY(
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, join->error));
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, join->error));
        if (record.item == DUNLIN_MANIFEST_CHUNK) {
            DUNLIN_TRY(join_chunk(join, &record));
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    if (fsync(join->fd) != 0) {
        return dunlin__file_fail(join->error, "syncing", join->path, errno);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__update_spool(const char *folder, const dunlin__layout *layout,
                                   const dunlin__packing *packing, const char *path,
                                   const dunlin_alloc *alloc, dunlin__spool_report *out_report,
                                   dunlin_error *error)
{
    dunlin__server_path manifest_path;
    uint8_t *manifest = NULL;
    size_t n_manifest = 0;
    uint32_t n_chunks = 0;
    memset(out_report, 0, sizeof *out_report);
    out_report->is_finite = true;
    DUNLIN_TRY(dunlin__server_path_make(&manifest_path, error, "%s/manifest", folder));
    DUNLIN_TRY(dunlin__server_file_read(alloc, manifest_path.text, DUNLIN_WIRE_MANIFEST_BYTES,
                                        &manifest, &n_manifest, error));
    dunlin_status status =
        dunlin__update_check_manifest(manifest, n_manifest, layout, packing, &n_chunks, error);
    joiner join = {.folder = folder, .path = path, .fd = -1, .report = out_report, .error = error};
    join.alloc = alloc;
    join.block = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof(float));
    if (join.block == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "update", 0, "a block of %u bytes",
                              DUNLIN_WIRE_BLOCK_BYTES);
    } else if (status == DUNLIN_OK) {
        join.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (join.fd < 0) {
            status = dunlin__file_fail(error, "making", path, errno);
        } else {
            status = packing != NULL || layout->is_int8
                         ? decode_all(&join, manifest, n_manifest, packing == NULL)
                         : join_all(&join, manifest, n_manifest);
        }
    }
    if (join.fd >= 0) {
        (void)close(join.fd);
        if (status != DUNLIN_OK) {
            (void)unlink(path);
        }
    }
    dunlin__free_array(alloc, join.block, BLOCK_VALUES, sizeof(float));
    dunlin__free_array(alloc, manifest, n_manifest + 1, 1);
    return status;
}
