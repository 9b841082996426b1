/*
 * spool_chunks.h - the chunks of an update as one sequence of bytes.
 */
#ifndef DUNLIN_SERVER_SPOOL_CHUNKS_H
#define DUNLIN_SERVER_SPOOL_CHUNKS_H

#include "base/files.h"

#include <wire/manifest.h>

/* Where an update comes from and goes to. */
typedef struct dunlin__spool_files {
    const char *folder; /* of the chunks, by their hashes */
    const char *path;
    int fd;
} dunlin__spool_files;

/* It must not move while it is open. */
typedef struct dunlin__spool_chunks {
    const char *folder;
    dunlin__manifest_source source;
    dunlin__manifest_reader reader;
    dunlin__manifest_record chunk; /* that is being read */
    dunlin__server_path path;
    uint64_t at; /* in it */
    int fd;      /* -1: none is open */
} dunlin__spool_chunks;

/* Over the manifest of an update, which stays the caller's. Follow by the close. */
DUNLIN_NODISCARD dunlin_status dunlin__spool_chunks_open(dunlin__spool_chunks *bytes,
                                                         const char *folder,
                                                         const uint8_t *manifest, size_t n_manifest,
                                                         dunlin_error *error);
void dunlin__spool_chunks_close(dunlin__spool_chunks *bytes);

/* The next bytes; `ctx` is the dunlin__spool_chunks. IO when a chunk is missing, MISMATCH when they
 * end before. */
dunlin_status dunlin__spool_chunks_read(void *ctx, void *buffer, size_t n_bytes,
                                        dunlin_error *error);

#endif
