/*
 * object_file.h - a file that clients fetch in chunks, and its manifest: what packed bases and
 * their deltas lie in.
 *
 * Invariant: the manifest is written after the bytes it describes, so a manifest that exists can be
 * served.
 */
#ifndef DUNLIN_SERVER_OBJECT_FILE_H
#define DUNLIN_SERVER_OBJECT_FILE_H

#include "models.h"

#include <wire/compress.h>
#include <wire/digest.h>

/* What is known of one. Zeros: there is none. */
typedef struct dunlin__object_file {
    uint64_t n_bytes;
    uint32_t chunk_bytes;
    uint32_t n_chunks;
    uint8_t (*chunk_sha256)[DUNLIN_SHA256_BYTES];
    size_t capacity; /* of the hashes */
    uint32_t n_manifest_bytes;
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];
} dunlin__object_file;

void dunlin__object_file_free(dunlin__object_file *object, const dunlin_alloc *alloc);

/* Bytes on their way into the file. */
typedef struct dunlin__object_writer {
    dunlin__object_file *object;
    const dunlin_alloc *alloc;
    dunlin_outfile file;
    dunlin__sha256 hash;
    uint64_t n_in_chunk;
} dunlin__object_writer;

/* `path` stays the caller's until the end; `object` is filled. IO, SPACE. */
DUNLIN_NODISCARD dunlin_status dunlin__object_writer_begin(dunlin__object_writer *writer,
                                                           dunlin__object_file *object,
                                                           const char *path, uint32_t chunk_bytes,
                                                           const dunlin_alloc *alloc,
                                                           dunlin_error *error);
/* Its next bytes; `ctx` is the writer, as a sink of packed bytes wants it. LIMIT for more chunks
 * than a manifest takes. */
DUNLIN_NODISCARD dunlin_status dunlin__object_writer_bytes(void *ctx, const void *data,
                                                           size_t n_bytes, dunlin_error *error);
/* With OK the file is in its place, else there is none. Returns `status`, or its own failure. */
DUNLIN_NODISCARD dunlin_status dunlin__object_writer_end(dunlin__object_writer *writer,
                                                         dunlin_status status, dunlin_error *error);

/* Writes the manifest of an object that is there: one stream, whose name, encoding and packing
 * `stream` has. `stored_bytes` has the size of each tensor of the layout in it; NULL: a stream
 * without tensors. */
DUNLIN_NODISCARD dunlin_status dunlin__object_manifest_write(
    dunlin__object_file *object, const char *path, const dunlin__stream *stream,
    const dunlin__layout *layout, const uint64_t *stored_bytes, const dunlin_alloc *alloc,
    dunlin_error *error);

/* Takes up an object that was written before. MISMATCH unless its stream has this name, `packing`
 * (NULL: none) is its own, and the file has its size. Follow by dunlin__object_file_free() in any
 * case. */
DUNLIN_NODISCARD dunlin_status dunlin__object_file_load(
    dunlin__object_file *object, const char *path, const char *manifest_path, const char *name,
    const dunlin__packing *packing, const dunlin_alloc *alloc, dunlin_error *error);

#endif
