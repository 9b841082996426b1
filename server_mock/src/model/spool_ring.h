/*
 * spool_ring.h - a masked vector as it comes up: one stream of ring elements, of which nothing but
 * the length can be judged.
 */
#ifndef DUNLIN_SERVER_SPOOL_RING_H
#define DUNLIN_SERVER_SPOOL_RING_H

#include "spool_chunks.h"

#include <wire/secagg.h>

/* Reads the manifest of a masked vector and holds it against the terms. MISMATCH, UNSUPPORTED name
 * what differs. */
DUNLIN_NODISCARD dunlin_status dunlin__ring_check_manifest(const uint8_t *bytes, size_t n_bytes,
                                                           const dunlin__secagg_plan *plan,
                                                           uint32_t *out_n_chunks,
                                                           dunlin_error *error);

/* The chunks of a vector in a folder, whose manifest has been checked. */
typedef struct dunlin__ring_vector {
    uint8_t *manifest;
    size_t n_manifest;
    dunlin__spool_chunks chunks;
    const dunlin_alloc *alloc;
} dunlin__ring_vector;

/* Opens a vector whose chunks are all there: IO with ENOENT names one that is not. It must not
 * move. Follow by the close, also after a failure. */
DUNLIN_NODISCARD dunlin_status dunlin__ring_vector_open(dunlin__ring_vector *vector,
                                                        const char *folder,
                                                        const dunlin_alloc *alloc,
                                                        dunlin_error *error);
void dunlin__ring_vector_close(dunlin__ring_vector *vector);

/* The next bytes; `ctx` is the dunlin__ring_vector: a dunlin__secagg_read_fn. */
dunlin_status dunlin__ring_vector_read(void *ctx, uint8_t *buffer, size_t n_bytes,
                                       dunlin_error *error);

#endif
