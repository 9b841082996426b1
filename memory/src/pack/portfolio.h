/*
 * portfolio.h - gives blocks with fixed live ranges addresses so that the pool stays low (dynamic
 * storage allocation).
 *
 * A packer takes blocks and fills in offsets: first the greedy portfolio, every order with first
 * and best fit; where that stays above the target, a local search on the order, then a depth-first
 * search. Work is counted in moves, so the same blocks always get the same offsets.
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

struct dunlin_pack_pile;
struct dunlin_pack_core;

/* Scratch for up to `n_max` blocks, made once for many packings. */
typedef struct dunlin_packer {
    dunlin_alloc alloc;
    uint32_t n_max;
    uint64_t n_moves;              /* of the last call's search; one move places one block */
    uint32_t *order;               /* blocks in the order in which they are placed */
    uint32_t *merged;              /* for sorting */
    uint64_t *keys;                /* two a block */
    struct dunlin_pack_pile *pile; /* blocks placed so far */
    uint64_t *offsets;             /* of the packing being made */
    struct dunlin_pack_core *core;
} dunlin_packer;

DUNLIN_NODISCARD dunlin_status dunlin__packer_open(uint32_t n_max, const dunlin_alloc *alloc,
                                                   dunlin_packer *out_packer, dunlin_error *error);
void dunlin__packer_close(dunlin_packer *packer);

/* The members of the portfolio: "size, first fit" ... NULL past the last. */
const char *dunlin__pack_name(uint32_t method);

/* The member of that name, or DUNLIN_MEM_NONE's value if there is none. */
uint32_t dunlin__pack_find(const char *name);

/* Packs by one member and returns the height; gives up with UINT64_MAX, offsets untouched, as soon
 * as it reaches `limit_bytes`. */
uint64_t dunlin__pack_by(dunlin_packer *packer, uint32_t method, dunlin_pack_block *blocks,
                         uint32_t n_blocks, uint64_t limit_bytes);

/* Packs by all members and keeps the lowest (the first of equals); stops at `lower_bound_bytes`,
 * where nothing is left to gain. Returns the height. */
uint64_t dunlin__pack(dunlin_packer *packer, dunlin_pack_block *blocks, uint32_t n_blocks,
                      uint64_t lower_bound_bytes, const char **out_name);

/* How low, and for how long. */
typedef struct dunlin_pack_goal {
    uint64_t lower_bound_bytes;
    uint64_t target_bytes;
    uint64_t max_moves; /* about, in all searches */
    bool is_trial;      /* what misses the target is of no use: it ends sooner */
} dunlin_pack_goal;

/*
 * Packs by the first members of the portfolio, searches, packs by the other members, and searches
 * on, until the height is at most the larger of the target and the lower bound. Returns the lowest
 * height found, which is never above that of any member unless it is low enough (a trial: that of
 * the first members). What comes out depends on the arguments alone, not on what was packed before.
 * `*out_name` says what found it.
 */
uint64_t dunlin__pack_within(dunlin_packer *packer, dunlin_pack_block *blocks, uint32_t n_blocks,
                             const dunlin_pack_goal *goal, const char **out_name);

/* A loop's steps, both included. */
typedef struct dunlin_pack_span {
    uint32_t first_step;
    uint32_t last_step;
} dunlin_pack_span;

/*
 * The same in two levels, for a step of many loops (ascending, all steps): blocks of one loop are
 * packed among each other first, and lie together. UINT64_MAX, offsets anyhow: there was no memory
 * to try it.
 */
uint64_t dunlin__pack_by_loop(dunlin_packer *packer, dunlin_pack_block *blocks, uint32_t n_blocks,
                              const dunlin_pack_span *loops, uint32_t n_loops,
                              const dunlin_pack_goal *goal, const char **out_name);

/*
 * The bound: the greatest sum of bytes alive at one step. `sums` has room for n_steps + 1 numbers
 * and is left holding the sum of each step; `*out_peak_step` is the first step that has the
 * greatest.
 */
uint64_t dunlin__pack_lower_bound(const dunlin_pack_block *blocks, uint32_t n_blocks,
                                  uint64_t *sums, uint32_t n_steps, uint32_t *out_peak_step);

#endif
