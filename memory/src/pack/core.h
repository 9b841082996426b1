/*
 * core.h - the hard part of a packing problem, and the two searches over it.
 *
 * Invariant: a packing of the core within its capacity gives a packing of the whole problem: every
 * other block finds room wherever the core's blocks lie.
 */
#ifndef DUNLIN_MEM_PACK_CORE_H
#define DUNLIN_MEM_PACK_CORE_H

#include "greedy.h"

/* The depth first search leaves larger cores to the local search. */
#define DUNLIN_PACK_CORE_MAX 1024

/* The search's own tables; deep.h. */
struct dunlin_pack_deep;

typedef struct dunlin_pack_core {
    uint32_t n_max;
    uint32_t n_blocks;         /* of the core */
    uint32_t n_peeled;         /* of the rest */
    uint32_t n_sections;       /* steps between which no live range begins after another's end */
    uint64_t capacity_bytes;   /* a multiple of unit_bytes */
    uint64_t unit_bytes;       /* divides all sizes */
    uint32_t *index;           /* core block -> block; the peeled follow, in the order of peeling */
    dunlin_pack_block *blocks; /* of the core: steps are sections, offsets the best known */
    uint64_t *meet_bytes;      /* by block: bytes of those it meets */
    uint32_t *n_meets;         /* by block: how many it meets */
    uint32_t *by_first, *by_last; /* blocks of the core by their steps */
    uint64_t *offsets;            /* of the packing being made, by core block */
    uint32_t *order;
    dunlin_pack_pile *pile; /* borrowed */
    struct dunlin_pack_deep *deep;
} dunlin_pack_core;

/* MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__pack_core_open(uint32_t n_max, dunlin_pack_pile *pile,
                                                      const dunlin_alloc *alloc,
                                                      dunlin_pack_core **out_core,
                                                      dunlin_error *error);
/* NULL is fine. */
void dunlin__pack_core_close(dunlin_pack_core *core, const dunlin_alloc *alloc);

/*
 * Takes away, as long as there is one, a block that has room below `capacity_bytes` wherever the
 * blocks it meets lie; what stays is the core. The blocks' offsets, a packing of all, become the
 * core's best known.
 */
void dunlin__pack_core_make(dunlin_pack_core *core, const dunlin_pack_block *blocks,
                            uint32_t n_blocks, uint64_t capacity_bytes);

/* Height of the core's best known offsets. */
uint64_t dunlin__pack_core_height(const dunlin_pack_core *core);

/* From the core's best known offsets to offsets for all blocks; returns the height. */
uint64_t dunlin__pack_core_finish(const dunlin_pack_core *core, dunlin_pack_block *blocks,
                                  uint32_t n_blocks);

/* What is known after a search. */
typedef enum { DUNLIN_DEEP_FOUND, DUNLIN_DEEP_IMPOSSIBLE, DUNLIN_DEEP_OPEN } dunlin_deep_result;

/* coarse.c: depth first for the large blocks, one by one for the rest; offsets lower than the
 * best known are kept. Adds to `*n_moves`. */
dunlin_deep_result dunlin__pack_coarse(dunlin_pack_core *core, uint64_t max_moves,
                                       uint64_t *n_moves);

/* local_search.c: lowers the core's best known offsets, at most to its capacity; returns moves. */
uint64_t dunlin__pack_local(dunlin_pack_core *core, uint64_t max_moves);

/* What the depth first search looks at. */
typedef struct dunlin_deep_options {
    uint64_t least_bytes; /* smaller blocks are left out */
    bool has_reserve;     /* ... but at each step their bytes stay free above the others */
    uint64_t max_moves;
} dunlin_deep_options;

/* branch_and_bound.c: looks for offsets within the capacity and puts them into core->offsets; adds
 * to
 * `*n_moves`. IMPOSSIBLE is a proof for the whole core unless there is a reserve. */
dunlin_deep_result dunlin__pack_deep(dunlin_pack_core *core, const dunlin_deep_options *options,
                                     uint64_t *n_moves);
/* deep_tables.c: MEMORY; closing NULL is fine. */
DUNLIN_NODISCARD dunlin_status dunlin__pack_deep_open(uint32_t n_max, const dunlin_alloc *alloc,
                                                      struct dunlin_pack_deep **out_deep,
                                                      dunlin_error *error);
void dunlin__pack_deep_close(struct dunlin_pack_deep *deep, const dunlin_alloc *alloc);

#endif
