/*
 * spool_int8.c - decodes whole weights in int8.
 *
 * Invariant: the values are the device's own, bit for bit; all are finite.
 */
#include "spool_int8.h"

#include <mem/support.h>
#include <wire/int8.h>

#define PIECE 4096u /* bytes, and values */

typedef struct decoder {
    const dunlin__spool_files *files;
    dunlin__spool_chunks chunks;
    float *block;
    uint64_t offset; /* in the file */
} decoder;

static dunlin_status decode_tensor(decoder *at, const dunlin__tensor_entry *tensor,
                                   dunlin_error *error)
{
    uint8_t head[DUNLIN_INT8_SCALE_BYTES];
    int8_t bytes[PIECE];
    uint64_t n_elements = 0;
    float scale = 0.0F;
    DUNLIN_TRY(dunlin__tensor_entry_count(tensor, &n_elements, error));
    DUNLIN_TRY(dunlin__spool_chunks_read(&at->chunks, head, sizeof head, error));
    DUNLIN_TRY(dunlin__int8_scale_read(tensor->name, head, &scale, error));
    for (uint64_t done = 0; done < n_elements;) {
        const uint64_t left = n_elements - done;
        const size_t n = left < PIECE ? (size_t)left : PIECE;
        DUNLIN_TRY(dunlin__spool_chunks_read(&at->chunks, bytes, n, error));
        DUNLIN_TRY(dunlin__int8_decode(tensor->name, scale, bytes, n, at->block, error));
        DUNLIN_TRY(dunlin__server_write_at(at->files->fd, at->files->path, at->offset, at->block,
                                           n * sizeof(float), error));
        at->offset += n * sizeof(float);
        done += n;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__spool_int8(const dunlin__spool_files *files, const uint8_t *manifest,
                                 size_t n_manifest, float *block, dunlin_error *error)
{
    decoder at = {.files = files, .block = block};
    dunlin__manifest_source source = dunlin__manifest_source_memory(manifest, n_manifest);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    DUNLIN_TRY(dunlin__spool_chunks_open(&at.chunks, files->folder, manifest, n_manifest, error));
    dunlin_status status =
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, error);
    while (status == DUNLIN_OK) {
        status = dunlin__manifest_reader_next(&reader, &record, error);
        if (status != DUNLIN_OK || record.item == DUNLIN_MANIFEST_CHUNK ||
            record.item == DUNLIN_MANIFEST_END) {
            break; /* the chunks come behind all tensors */
        }
        if (record.item == DUNLIN_MANIFEST_TENSOR) {
            status = decode_tensor(&at, &record.tensor, error);
        }
    }
    dunlin__spool_chunks_close(&at.chunks);
    return status;
}
