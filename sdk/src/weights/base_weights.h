/*
 * base_weights.h - the fetched base: its streams, and a table of tensors for the learner.
 */
#ifndef DUNLIN_SDK_BASE_WEIGHTS_H
#define DUNLIN_SDK_BASE_WEIGHTS_H

#include "context/client_context.h"

/* A base's manifest of so many bytes as a source over its open file, which must stay. */
dunlin__manifest_source dunlin__base_manifest(uint64_t n_bytes, int *manifest_fd);
/* The table of the fetched base and a reader over its file, for the learner. */
dunlin_status dunlin__base_open(dunlin_client *client);
void dunlin__base_close(dunlin_client *client);

#endif
