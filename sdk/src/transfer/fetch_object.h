/*
 * fetch_object.h - an object that comes down: its manifest, and its chunks into one file.
 */
#ifndef DUNLIN_SDK_FETCH_OBJECT_H
#define DUNLIN_SDK_FETCH_OBJECT_H

#include "context/client_context.h"

/* What is fetched, and where to. */
typedef struct dunlin__fetched_object {
    const char *folder;
    const char *name; /* of the files: name.manifest, name.bin */
    const uint8_t *manifest_sha256;
    uint64_t manifest_bytes;
    bool is_of_round; /* else what a run has left */
} dunlin__fetched_object;

/* The manifest, from an earlier attempt or from the server; verified before it gets its name. The
 * caller closes `*out_fd` if it is not -1, also after a failure. DIGEST: it is another one. */
dunlin_status dunlin__object_fetch_manifest(dunlin_client *client,
                                            const dunlin__fetched_object *what, int *out_fd,
                                            dunlin__fault *out_fault);

/* All chunks of the manifest into the file, each verified; what is there already and right stays.
 * STOPPED where the app or the conditions want it, DIGEST for a chunk that is not what it was to
 * be. */
dunlin_status dunlin__object_fetch_chunks(dunlin_client *client,
                                          const dunlin__manifest_source *source, int fd,
                                          uint64_t total_bytes, dunlin__fault *out_fault);

/* Bytes of an open file, 0 if that cannot be told. */
uint64_t dunlin__object_length(int fd);

#endif
