/*
 * spool_chunks.c - the chunks of an update, read one after the other.
 */
#include "spool_chunks.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

dunlin_status dunlin__spool_chunks_open(dunlin__spool_chunks *bytes, const char *folder,
                                        const uint8_t *manifest, size_t n_manifest,
                                        dunlin_error *error)
{
    *bytes = (dunlin__spool_chunks){.folder = folder, .fd = -1};
    bytes->source = dunlin__manifest_source_memory(manifest, n_manifest);
    return dunlin__manifest_reader_begin(&bytes->reader, &bytes->source, DUNLIN_MANIFEST_UPDATE,
                                         error);
}

void dunlin__spool_chunks_close(dunlin__spool_chunks *bytes)
{
    if (bytes->fd >= 0) {
        (void)close(bytes->fd);
        bytes->fd = -1;
    }
}

static dunlin_status next_chunk(dunlin__spool_chunks *bytes, dunlin_error *error)
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
    DUNLIN_TRY(dunlin__server_path_make(&bytes->path, error, "%s/%s", bytes->folder, name));
    bytes->at = 0;
    bytes->fd = open(bytes->path.text, O_RDONLY | O_CLOEXEC);
    if (bytes->fd < 0) {
        return dunlin__fail(error, DUNLIN_IO, "update", errno,
                            "chunk %" PRIu32 " (%.8s...) has not been sent",
                            bytes->chunk.chunk_index, name);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__spool_chunks_read(void *ctx, void *buffer, size_t n_bytes,
                                        dunlin_error *error)
{
    dunlin__spool_chunks *bytes = ctx;
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
