/*
 * by_loop.c - packs a step of many loops in two levels: first what is alive in one loop alone, loop
 * by loop; then each loop's packing as one block, together with all that is alive for longer.
 *
 * Invariant: blocks of one loop keep their offsets relative to each other, so the answer is correct
 * if both packings are.
 */
#include "portfolio.h"

#include <mem/support.h>

typedef struct {
    dunlin_packer *packer;
    dunlin_pack_block *blocks;
    uint32_t n_blocks;
    dunlin_pack_block *outer; /* what is alive for longer, and a block for each loop */
    uint32_t *outer_of;       /* by block */
    uint32_t n_outer;
    dunlin_pack_block *inner; /* of the current loop */
    uint32_t *inner_block;    /* which block each of them is */
    uint64_t *sums;           /* by step of the current loop */
} bundler;

/* Packs the blocks of a loop among each other; their offsets are from its lowest byte. */
static void bundle(bundler *at, const dunlin_pack_span *loop, bool is_trial)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < at->n_blocks; b++) {
        const dunlin_pack_block *block = &at->blocks[b];
        if (block->first_step >= loop->first_step && block->last_step <= loop->last_step) {
            at->inner[n] = *block;
            at->inner[n].first_step -= loop->first_step;
            at->inner[n].last_step -= loop->first_step;
            at->inner_block[n++] = b;
        }
    }
    if (n == 0) {
        return;
    }
    uint32_t peak_step = 0;
    const char *name = NULL;
    const uint32_t n_steps = loop->last_step - loop->first_step + 1;
    const uint64_t bound = dunlin__pack_lower_bound(at->inner, n, at->sums, n_steps, &peak_step);
    const dunlin_pack_goal goal = {.lower_bound_bytes = bound, .is_trial = is_trial};
    const uint64_t height = dunlin__pack_within(at->packer, at->inner, n, &goal, &name);
    for (uint32_t i = 0; i < n; i++) {
        at->blocks[at->inner_block[i]].offset_bytes = at->inner[i].offset_bytes;
        at->outer_of[at->inner_block[i]] = at->n_outer;
    }
    at->outer[at->n_outer++] = (dunlin_pack_block){
        .first_step = loop->first_step, .last_step = loop->last_step, .bytes = height};
}

static void take_long_ones(bundler *at)
{
    for (uint32_t b = 0; b < at->n_blocks; b++) {
        if (at->outer_of[b] == UINT32_MAX) {
            at->outer_of[b] = at->n_outer;
            at->outer[at->n_outer] = at->blocks[b];
            at->outer[at->n_outer++].offset_bytes = 0;
            at->blocks[b].offset_bytes = 0;
        }
    }
}

static bool open_bundler(bundler *at, uint32_t n_steps)
{
    const dunlin_alloc *alloc = &at->packer->alloc;
    const size_t n = (size_t)at->n_blocks + 1;
    at->outer = dunlin__alloc_array(alloc, n, sizeof *at->outer);
    at->inner = dunlin__alloc_array(alloc, n, sizeof *at->inner);
    at->outer_of = dunlin__alloc_array(alloc, n, sizeof *at->outer_of);
    at->inner_block = dunlin__alloc_array(alloc, n, sizeof *at->inner_block);
    at->sums = dunlin__alloc_array(alloc, (size_t)n_steps + 1, sizeof *at->sums);
    return at->outer != NULL && at->inner != NULL && at->outer_of != NULL &&
           at->inner_block != NULL && at->sums != NULL;
}

static void close_bundler(bundler *at, uint32_t n_steps)
{
    const dunlin_alloc *alloc = &at->packer->alloc;
    const size_t n = (size_t)at->n_blocks + 1;
    dunlin__free_array(alloc, at->sums, (size_t)n_steps + 1, sizeof *at->sums);
    dunlin__free_array(alloc, at->inner_block, n, sizeof *at->inner_block);
    dunlin__free_array(alloc, at->outer_of, n, sizeof *at->outer_of);
    dunlin__free_array(alloc, at->inner, n, sizeof *at->inner);
    dunlin__free_array(alloc, at->outer, n, sizeof *at->outer);
}

static void bundle_all(bundler *at, const dunlin_pack_span *loops, uint32_t n_loops, bool is_trial)
{
    for (uint32_t b = 0; b < at->n_blocks; b++) {
        at->outer_of[b] = UINT32_MAX;
    }
    for (uint32_t l = 0; l < n_loops; l++) {
        bundle(at, &loops[l], is_trial);
    }
    take_long_ones(at);
}

uint64_t dunlin__pack_by_loop(dunlin_packer *packer, dunlin_pack_block *blocks, uint32_t n_blocks,
                              const dunlin_pack_span *loops, uint32_t n_loops,
                              const dunlin_pack_goal *goal, const char **out_name)
{
    bundler at = {.packer = packer, .blocks = blocks, .n_blocks = n_blocks};
    const uint32_t n_steps = n_loops == 0 ? 0 : loops[n_loops - 1].last_step + 1;
    uint64_t height = UINT64_MAX;
    if (open_bundler(&at, n_steps)) {
        bundle_all(&at, loops, n_loops, goal->is_trial);
        height = dunlin__pack_within(packer, at.outer, at.n_outer, goal, out_name);
        for (uint32_t b = 0; b < n_blocks; b++) {
            blocks[b].offset_bytes += at.outer[at.outer_of[b]].offset_bytes;
        }
    }
    close_bundler(&at, n_steps);
    return height;
}
