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

static dunlin_status decode_all(const dunlin__spool_files *files, dunlin__spool_chunks *bytes,
                                const dunlin_alloc *alloc, dunlin__spool_report *report,
                                dunlin_error *error)
{
    const dunlin__unpack_source source = {.ctx = bytes, .read_fn = dunlin__spool_chunks_read};
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
    dunlin__spool_chunks bytes;
    report->is_packed = true;
    DUNLIN_TRY(dunlin__spool_chunks_open(&bytes, files->folder, manifest, n_manifest, error));
    const dunlin_status status = decode_all(files, &bytes, alloc, report, error);
    dunlin__spool_chunks_close(&bytes);
    return status;
}
