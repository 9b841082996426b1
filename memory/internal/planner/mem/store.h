/*
 * store.h - a plan as bytes that can be stored, and read again for the same graph and options.
 *
 * Stored bytes are trusted as little as bytes from the network: they are checked against their
 * checksum, their key and their length, and then the plan is verified like a fresh one.
 */
#ifndef DUNLIN_MEM_STORE_H
#define DUNLIN_MEM_STORE_H

#include <mem/plan.h>

/* To be raised when the search finds other plans than before: stored plans are then computed again.
 */
#define DUNLIN_PLAN_SEARCH_VERSION 5

/* What a plan depends on, in one number: the graph with its costs, batch, budget, slices, policy,
 * and the version of the search. */
uint64_t dunlin__plan_key(const dunlin_mem_graph *graph, const dunlin_plan_options *options);

/* Bytes that dunlin__plan_write() makes. */
uint64_t dunlin__plan_stored_bytes(const dunlin_plan *plan);

/* Takes the next bytes; a status other than OK ends the writing. */
typedef dunlin_status (*dunlin_plan_write_fn)(void *ctx, const void *bytes, size_t n);

/* Writes the plan of this graph and these options, in small pieces. Returns OK, or what `write_fn`
 * did. Takes no memory. */
DUNLIN_NODISCARD dunlin_status dunlin__plan_write(const dunlin_mem_graph *graph,
                                                  const dunlin_plan_options *options,
                                                  const dunlin_plan *plan,
                                                  dunlin_plan_write_fn write_fn, void *ctx);

/*
 * Reads a plan for this graph and these options, and verifies it. Its time, its lower bound and
 * what else follows from the steps are computed, not read. VERSION, DIGEST (damaged), MISMATCH (of
 * another graph or other options, or not a right plan of this one), BUDGET (larger than
 * options->budget_bytes), MEMORY. The graph has passed its check at the batch.
 */
DUNLIN_NODISCARD dunlin_status dunlin__plan_read(const dunlin_mem_graph *graph,
                                                 const dunlin_plan_options *options,
                                                 const void *bytes, size_t n_bytes,
                                                 dunlin_plan **out_plan, dunlin_error *error);

/* CRC-32 (ISO-HDLC, as in zlib) of what went into `crc` and these bytes; begin with 0. */
uint32_t dunlin__crc32(uint32_t crc, const void *bytes, size_t n);

#endif
