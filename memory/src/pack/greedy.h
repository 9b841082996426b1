/*
 * greedy.h - one block after another into the lowest or the tightest gap.
 */
#ifndef DUNLIN_MEM_PACK_PLACE_H
#define DUNLIN_MEM_PACK_PLACE_H

#include "portfolio.h"

typedef enum { DUNLIN_FIRST_FIT, DUNLIN_BEST_FIT } dunlin_pack_fit;

/* The blocks placed so far, sorted by offset. */
typedef struct dunlin_pack_pile dunlin_pack_pile;

/* MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__pack_pile_open(uint32_t n_max, const dunlin_alloc *alloc,
                                                      dunlin_pack_pile **out_pile,
                                                      dunlin_error *error);
/* NULL is fine. */
void dunlin__pack_pile_close(dunlin_pack_pile *pile, const dunlin_alloc *alloc);

void dunlin__pack_pile_clear(dunlin_pack_pile *pile);

/* The offset for a block: the lowest gap that takes it, or the tightest; above all others if there
 * is none. */
uint64_t dunlin__pack_find_gap(const dunlin_pack_pile *pile, const dunlin_pack_block *block,
                               dunlin_pack_fit fit);

/* Adds a block at an offset. */
void dunlin__pack_insert(dunlin_pack_pile *pile, const dunlin_pack_block *block, uint64_t offset);

/* What to place, and the scratch and the answer for it. */
typedef struct dunlin_pack_job {
    const dunlin_pack_block *blocks;
    const uint32_t *order;
    uint32_t n_blocks;
    dunlin_pack_pile *pile;
    uint64_t *offsets; /* the answer, by block */
} dunlin_pack_job;

/* Places all blocks in order and returns the height, or UINT64_MAX as soon as it reaches
 * `limit_bytes`. Adds the number of blocks it has placed to `*n_moves`. */
uint64_t dunlin__pack_place_all(const dunlin_pack_job *job, dunlin_pack_fit fit,
                                uint64_t limit_bytes, uint64_t *n_moves);

#endif
