/*
 * spool_packed.c - decodes a packed update.
 *
 * Beside the manifest it holds the unpacker's memory alone, whatever the update says of itself.
 */
#include "spool_packed.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* The chunks as one sequence of bytes. */
typedef struct chunk_bytes {
    const dunlin__spool_files *files;
    dunlin__manifest_source source;
    dunlin__manifest_reader reader;
    dunlin__manifest_record chunk; /* that is being read */
    dunlin__server_path path;
    uint64_t at; /* in it */
    int fd;      /* -1: none is open */
} chunk_bytes;

static dunlin_status next_chunk(chunk_bytes *bytes, dunlin_error *error)
{
    char name[DUNLIN_SHA256_HEX_BYTES];
    if (bytes->fd >= 0) {
        (void)close(bytes->fd);
        bytes->fd = -1;
    }
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&bytes->reader, &bytes->chunk, error));
        if (bytes->chunk.item == DUNLIN_MANIFEST_END) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0,
                                "the update's chunks end before its tensors");
        }
    } while (bytes->chunk.item != DUNLIN_MANIFEST_CHUNK);
    dunlin__hex_encode(bytes->chunk.sha256, DUNLIN_SHA256_BYTES, name);
    DUNLIN_TRY(dunlin__server_path_make(&bytes->path, error, "%s/%s", bytes->files->folder, name));
    bytes->at = 0;
    bytes->fd = open(bytes->path.text, O_RDONLY | O_CLOEXEC);
    if (bytes->fd < 0) {
        return dunlin__fail(error, DUNLIN_IO, "update", errno,
                            "chunk %" PRIu32 " (%.8s...) has not been sent",
                            bytes->chunk.chunk_index, name);
    }
    return DUNLIN_OK;
}

static dunlin_status read_packed(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    chunk_bytes *bytes = ctx;
    uint8_t *to = buffer;
    while (n_bytes > 0) {
        if (bytes->fd < 0 || bytes->at == bytes->chunk.n_bytes) {
            DUNLIN_TRY(next_chunk(bytes, error));
        }
        const uint64_t left = bytes->chunk.n_bytes - bytes->at;
        const size_t n = n_bytes < left ? n_bytes : (size_t)left;
        DUNLIN_TRY(dunlin__server_read_at(bytes->fd, bytes->path.text, bytes->at, to, n, error));
        bytes->at += n;
        to += n;
        n_bytes -= n;
    }
    return DUNLIN_OK;
}

/* One tensor's values to their place, which is behind those before it. */
static dunlin_status decode_tensor(const dunlin__spool_files *files,
                                   dunlin__tensor_unpacker *unpacker,
                                   const dunlin__manifest_record *record, uint64_t *offset,
                                   dunlin_error *error)
{
    uint64_t n_elements = 0;
    const float *values = NULL;
    size_t n_values = 0;
    DUNLIN_TRY(dunlin__tensor_entry_count(&record->tensor, &n_elements, error));
    DUNLIN_TRY(dunlin__tensor_unpacker_tensor(unpacker, record->index, record->tensor.rule,
                                              n_elements, record->tensor.stored_bytes, error));
    do {
        DUNLIN_TRY(dunlin__tensor_unpacker_next(unpacker, &values, &n_values, error));
        DUNLIN_TRY(dunlin__server_write_at(files->fd, files->path, *offset, values,
                                           n_values * sizeof(float), error));
        *offset += n_values * sizeof(float);
    } while (n_values > 0);
    return DUNLIN_OK;
}

static dunlin_status decode_all(const dunlin__spool_files *files, chunk_bytes *bytes,
                                const dunlin_alloc *alloc, dunlin__spool_report *report,
                                dunlin_error *error)
{
    const dunlin__unpack_source source = {.ctx = bytes, .read_fn = read_packed};
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    dunlin__tensor_unpacker *unpacker = NULL;
    uint64_t offset = 0;
    DUNLIN_TRY(
        dunlin__manifest_reader_begin(&reader, &bytes->source, DUNLIN_MANIFEST_UPDATE, error));
    DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
    dunlin_status status =
        dunlin__tensor_unpacker_open(&record.stream.packing, &source, alloc, &unpacker, error);
    while (status == DUNLIN_OK) {
        status = dunlin__manifest_reader_next(&reader, &record, error);
        if (status != DUNLIN_OK || record.item != DUNLIN_MANIFEST_TENSOR) {
            break;
        }
        status = decode_tensor(files, unpacker, &record, &offset, error);
    }
    if (status == DUNLIN_OK) {
        report->square = dunlin__tensor_unpacker_square(unpacker);
    }
    dunlin__tensor_unpacker_close(unpacker);
    return status;
}

dunlin_status dunlin__spool_packed(const dunlin__spool_files *files, const uint8_t *manifest,
                                   size_t n_manifest, const dunlin_alloc *alloc,
                                   dunlin__spool_report *report, dunlin_error *error)
{
    chunk_bytes bytes = {.files = files, .fd = -1};
    bytes.source = dunlin__manifest_source_memory(manifest, n_manifest);
    report->is_packed = true;
    DUNLIN_TRY(
        dunlin__manifest_reader_begin(&bytes.reader, &bytes.source, DUNLIN_MANIFEST_UPDATE, error));
    const dunlin_status status = decode_all(files, &bytes, alloc, report, error);
    if (bytes.fd >= 0) {
        (void)close(bytes.fd);
    }
    return status;
}
