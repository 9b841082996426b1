/*
 * aggregate.c - checks and joins the chunks of an update; folds a round's updates.
 *
 * Invariant: each element is summed in double in the order of the inputs, so the same updates give
 * the same bits. Federated averaging: McMahan et al. 2017, algorithm 1.
 */
#include "aggregate.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/manifest.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_VALUES DUNLIN_FOLD_VALUES

static dunlin_status check_stream(const dunlin__stream *stream, uint32_t stream_index,
                                  const dunlin__layout *layout, dunlin_error *error)
{
    if (stream_index != 0 || strcmp(stream->name, DUNLIN_STREAM_UPDATE) != 0) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0,
                            "the manifest has a stream \"%.64s\"; wanted is \"%s\" alone",
                            stream->name, DUNLIN_STREAM_UPDATE);
    }
    if (stream->encoding != DUNLIN_V1_ENCODING_F32) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "update", 0,
                            "the update is %s; the plan asks for F32",
                            dunlin__encoding_name(stream->encoding));
    }
    if (stream->n_tensors != layout->n_tensors ||
        stream->total_bytes != layout->n_values * sizeof(float)) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0,
                            "the update has %" PRIu32 " tensors and %" PRIu64
                            " bytes; the model has %" PRIu32 " and %" PRIu64,
                            stream->n_tensors, (uint64_t)stream->total_bytes, layout->n_tensors,
                            layout->n_values * sizeof(float));
    }
    return DUNLIN_OK;
}

static dunlin_status check_tensor(const dunlin__tensor_entry *tensor, uint32_t index,
                                  const dunlin__layout *layout, dunlin_error *error)
{
    const dunlin__tensor_entry *wanted = &layout->tensors[index];
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
                                            const dunlin__layout *layout, uint32_t *out_n_chunks,
                                            dunlin_error *error)
{
    dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    uint32_t n_chunks = 0;
    bool has_stream = false;
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, error));
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            DUNLIN_TRY(check_stream(&record.stream, record.index, layout, error));
            has_stream = true;
        } else if (record.item == DUNLIN_MANIFEST_TENSOR) {
            DUNLIN_TRY(check_tensor(&record.tensor, record.index, layout, error));
        } else if (record.item == DUNLIN_MANIFEST_CHUNK) {
            n_chunks++;
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    if (!has_stream) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0, "the manifest has no stream");
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
    double sum_squares;
    dunlin__spool_report *report;
    float *block;
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
        join->sum_squares += value * value;
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
        return dunlin__server_fail_os(join->error, "syncing", join->path, errno);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__update_spool(const char *folder, const dunlin__layout *layout,
                                   const char *path, const dunlin_alloc *alloc,
                                   dunlin__spool_report *out_report, dunlin_error *error)
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
        dunlin__update_check_manifest(manifest, n_manifest, layout, &n_chunks, error);
    joiner join = {.folder = folder, .path = path, .fd = -1, .report = out_report, .error = error};
    join.block = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof(float));
    if (join.block == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "update", 0, "a block of %u bytes",
                              DUNLIN_WIRE_BLOCK_BYTES);
    } else if (status == DUNLIN_OK) {
        join.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        status = join.fd < 0 ? dunlin__server_fail_os(error, "making", path, errno)
                             : join_all(&join, manifest, n_manifest);
    }
    if (join.fd >= 0) {
        (void)close(join.fd);
        if (status != DUNLIN_OK) {
            (void)unlink(path);
        }
    }
    out_report->l2_norm = sqrt(join.sum_squares);
    dunlin__free_array(alloc, join.block, BLOCK_VALUES, sizeof(float));
    dunlin__free_array(alloc, manifest, n_manifest + 1, 1);
    return status;
}

/* ---- folding ---- */

static dunlin_status add_input(dunlin__fold *fold, const dunlin__fold_input *input, uint64_t first,
                               size_t n, dunlin_error *error)
{
    int fd = open(input->path.text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return dunlin__server_fail_os(error, "opening", input->path.text, errno);
    }
    dunlin_status status = dunlin__server_read_at(fd, input->path.text, first * sizeof(float),
                                                  fold->block, n * sizeof(float), error);
    (void)close(fd);
    DUNLIN_TRY(status);
    for (size_t i = 0; i < n; i++) {
        fold->sums[i] += input->weight * (double)fold->block[i];
    }
    return DUNLIN_OK;
}

static dunlin_status fold_block(void *ctx, uint64_t first, size_t n, float *out_values,
                                dunlin_error *error)
{
    dunlin__fold *fold = ctx;
    dunlin__values base = dunlin__weights_file_values(fold->base);
    DUNLIN_TRY(base.values_fn(base.ctx, first, n, out_values, error));
    double weight_sum = 0;
    memset(fold->sums, 0, n * sizeof *fold->sums);
    for (size_t i = 0; i < fold->n_inputs; i++) {
        DUNLIN_TRY(add_input(fold, &fold->inputs[i], first, n, error));
        weight_sum += fold->inputs[i].weight;
    }
    if (fold->n_inputs == 0) {
        return DUNLIN_OK;
    }
    for (size_t i = 0; i < n; i++) {
        double mean = fold->sums[i] / weight_sum;
        out_values[i] = (float)(fold->sends_weights ? mean : (double)out_values[i] + mean);
    }
    return DUNLIN_OK;
}

dunlin__values dunlin__fold_values(dunlin__fold *fold)
{
    return (dunlin__values){.ctx = fold, .values_fn = fold_block};
}
