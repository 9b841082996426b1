/*
 * spool_ring.c - a masked vector as it comes up.
 */
#include "spool_ring.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static dunlin_status check_stream(const dunlin__stream *stream, const dunlin__secagg_plan *plan,
                                  dunlin_error *error)
{
    const uint64_t n_bytes = dunlin__ring_bytes(dunlin__secagg_elements(plan), plan->ring_bits);
    if (strcmp(stream->name, DUNLIN_STREAM_UPDATE) != 0) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0,
                            "the manifest has a stream \"%.64s\"; wanted is \"%s\" alone",
                            stream->name, DUNLIN_STREAM_UPDATE);
    }
    if (stream->encoding != DUNLIN_V1_ENCODING_MASKED_RING) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "update", 0,
                            "the update is %s; the plan asks for %s",
                            dunlin__encoding_name(stream->encoding),
                            dunlin__encoding_name(DUNLIN_V1_ENCODING_MASKED_RING));
    }
    if (stream->ring_bits != plan->ring_bits || stream->n_tensors != 1 ||
        stream->total_bytes != n_bytes) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0,
                            "the masked vector has %" PRIu32 " bits, %" PRIu32
                            " tensors and %" PRIu64 " bytes; wanted are %" PRIu32
                            ", 1 and %" PRIu64,
                            stream->ring_bits, stream->n_tensors, (uint64_t)stream->total_bytes,
                            plan->ring_bits, n_bytes);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__ring_check_manifest(const uint8_t *bytes, size_t n_bytes,
                                          const dunlin__secagg_plan *plan, uint32_t *out_n_chunks,
                                          dunlin_error *error)
{
    dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    uint32_t n_streams = 0;
    *out_n_chunks = 0;
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, error));
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_STREAM && n_streams++ > 0) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "update", 0,
                                "the manifest has a second stream, \"%.64s\"", record.stream.name);
        }
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            DUNLIN_TRY(check_stream(&record.stream, plan, error));
        }
        *out_n_chunks += record.item == DUNLIN_MANIFEST_CHUNK ? 1 : 0;
    } while (record.item != DUNLIN_MANIFEST_END);
    return DUNLIN_OK;
}

/* ---- the chunks ---- */

static dunlin_status check_chunks(const dunlin__ring_vector *vector, const char *folder,
                                  dunlin_error *error)
{
    dunlin__manifest_source source =
        dunlin__manifest_source_memory(vector->manifest, vector->n_manifest);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, error));
    do {
        dunlin__server_path path;
        char name[DUNLIN_SHA256_HEX_BYTES];
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        if (record.item != DUNLIN_MANIFEST_CHUNK) {
            continue;
        }
        dunlin__hex_encode(record.sha256, DUNLIN_SHA256_BYTES, name);
        DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/%s", folder, name));
        if (dunlin__server_file_size(path.text) != (int64_t)record.n_bytes) {
            return dunlin__fail(error, DUNLIN_IO, "update", ENOENT,
                                "chunk %" PRIu32 " (%.8s...) has not been sent", record.chunk_index,
                                name);
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    return DUNLIN_OK;
}

dunlin_status dunlin__ring_vector_open(dunlin__ring_vector *vector, const char *folder,
                                       const dunlin_alloc *alloc, dunlin_error *error)
{
    dunlin__server_path path;
    *vector = (dunlin__ring_vector){.chunks = {.fd = -1}, .alloc = alloc};
    DUNLIN_TRY(dunlin__server_path_make(&path, error, "%s/manifest", folder));
    DUNLIN_TRY(dunlin__server_file_read(alloc, path.text, DUNLIN_WIRE_MANIFEST_BYTES,
                                        &vector->manifest, &vector->n_manifest, error));
    DUNLIN_TRY(check_chunks(vector, folder, error));
    return dunlin__spool_chunks_open(&vector->chunks, folder, vector->manifest, vector->n_manifest,
                                     error);
}

void dunlin__ring_vector_close(dunlin__ring_vector *vector)
{
    dunlin__spool_chunks_close(&vector->chunks);
    if (vector->manifest != NULL) {
        dunlin__free_array(vector->alloc, vector->manifest, vector->n_manifest + 1, 1);
        vector->manifest = NULL;
    }
}

dunlin_status dunlin__ring_vector_read(void *ctx, uint8_t *buffer, size_t n_bytes,
                                       dunlin_error *error)
{
    dunlin__ring_vector *vector = ctx;
    return dunlin__spool_chunks_read(&vector->chunks, buffer, n_bytes, error);
}
