/*
 * pack.h - gives blocks with fixed lives addresses so that the pool stays low (dynamic storage
 * allocation).
 *
 * A packer takes blocks and fills in offsets; packers stand beside each other, and the best result
 * counts. Here: the greedy portfolio, every order with first and best fit. A search that starts
 * from the best of them (moving the blocks that touch the top, or depth first) takes the same
 * blocks and gives the same answer.
 */
#ifndef DUNLIN_MEM_PACK_H
#define DUNLIN_MEM_PACK_H

#include <dunlin/alloc.h>

/* Alive from first_step to last_step, both included. `bytes` and the offsets are multiples of
 * DUNLIN_MEM_ALIGN if all sizes given are. */
typedef struct dunlin_pack_block {
    uint32_t first_step;
    uint32_t last_step;
    uint64_t bytes;
    uint64_t offset_bytes; /* the answer */
} dunlin_pack_block;

/* Scratch for up to `n_max` blocks, made once for many packings. */
typedef struct dunlin_packer {
    dunlin_alloc alloc;
    uint32_t n_max;
    uint32_t *order;   /* blocks in the order in which they are placed */
    uint32_t *placed;  /* blocks placed so far, lowest offset first */
    uint64_t *offsets; /* of the packing being made */
} dunlin_packer;

DUNLIN_NODISCARD dunlin_status dunlin__packer_open(uint32_t n_max, const dunlin_alloc *alloc,
                                                   dunlin_packer *out_packer, dunlin_error *error);
void dunlin__packer_close(dunlin_packer *packer);

/* The members of the portfolio: "size, first fit" ... NULL past the last. */
const char *dunlin__pack_name(uint32_t method);

/* Packs by one member and returns the height; gives up with UINT64_MAX, offsets untouched, as soon
 * as it reaches `limit_bytes`. */
uint64_t dunlin__pack_by(dunlin_packer *packer, uint32_t method, dunlin_pack_block *blocks,
                         uint32_t n_blocks, uint64_t limit_bytes);

/* Packs by all members and keeps the lowest (the first of equals); stops at `lower_bound_bytes`,
 * where nothing is left to gain. Returns the height. */
uint64_t dunlin__pack(dunlin_packer *packer, dunlin_pack_block *blocks, uint32_t n_blocks,
                      uint64_t lower_bound_bytes, const char **out_name);

/*
 * The bound: the greatest sum of bytes alive at one step. `sums` has room for n_steps + 1 numbers
 * and is left holding the sum of each step; `*out_peak_step` is the first step that has the
 * greatest.
 */
uint64_t dunlin__pack_lower_bound(const dunlin_pack_block *blocks, uint32_t n_blocks,
                                  uint64_t *sums, uint32_t n_steps, uint32_t *out_peak_step);

#endif
