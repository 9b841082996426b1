/*
 * delta.h - deltas of packed bases: bytes that turn one sequence of bytes into another of the same
 * length, in fewer bytes than that has.
 *
 * Two packed bases of one task have their numbers at the same places, and most of these have moved
 * by a few levels, so the differences of their bytes have few values that occur often. What comes
 * out is the other sequence to the bit: who made a base of a delta has the same base as who fetched
 * it whole. FORMATS.md has the table.
 *
 * Each call allocates once, through the hooks, at most DUNLIN_DELTA_MEMORY_BYTES.
 */
#ifndef DUNLIN_WIRE_DELTA_H
#define DUNLIN_WIRE_DELTA_H

#include <wire/compress.h>

#define DUNLIN_DELTA_VERSION 1u
#define DUNLIN_DELTA_MEMORY_BYTES 65536u

/* Writes the delta from `from` to `to`, which have `n_bytes` each, and are read once, in order.
 * `out_bytes` gets its length. MEMORY, and what sources and sink return. */
DUNLIN_NODISCARD dunlin_status dunlin__delta_write(uint64_t n_bytes,
                                                   const dunlin__unpack_source *from,
                                                   const dunlin__unpack_source *to,
                                                   const dunlin__pack_sink *sink,
                                                   const dunlin_alloc *alloc, uint64_t *out_bytes,
                                                   dunlin_error *error);

/* Makes the `n_bytes` of `to` from those of `from` and a delta of `n_delta_bytes`, and gives them
 * to the sink in order. PROTOCOL with the place for bytes that are no delta, MISMATCH for one of
 * another length, VERSION for a newer one, MEMORY. That `from` is the right one shows in the hashes
 * of what comes out. */
DUNLIN_NODISCARD dunlin_status dunlin__delta_read(uint64_t n_bytes,
                                                  const dunlin__unpack_source *from,
                                                  const dunlin__unpack_source *delta,
                                                  uint64_t n_delta_bytes,
                                                  const dunlin__pack_sink *sink,
                                                  const dunlin_alloc *alloc, dunlin_error *error);

#endif
