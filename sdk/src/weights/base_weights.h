/*
 * base_weights.h - the fetched base: its streams, and a table of tensors for the learner.
 */
#ifndef DUNLIN_SDK_BASE_WEIGHTS_H
#define DUNLIN_SDK_BASE_WEIGHTS_H

#include "context/client_context.h"

/* The base's manifest as a source over its open file, which must stay. */
dunlin__manifest_source dunlin__base_manifest(dunlin_client *client, int *manifest_fd);
/* A stream of the base: `reader` stands at its first tensor; where it begins in the base's file. */
typedef struct dunlin__base_stream {
    dunlin__manifest_reader reader;
    dunlin__stream stream;
    uint64_t offset;
} dunlin__base_stream;
/* MISMATCH if there is none of that name. */
dunlin_status dunlin__base_find(dunlin_client *client, const dunlin__manifest_source *source,
                                const char *name, dunlin__base_stream *out);
/* The table of the fetched base and a reader over its file, for the learner. */
dunlin_status dunlin__base_open(dunlin_client *client);
void dunlin__base_close(dunlin_client *client);

#endif
