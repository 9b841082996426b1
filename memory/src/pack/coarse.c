/*
 * coarse.c - large blocks first: the depth-first search places the blocks above a size, and smaller
 * ones go into the gaps that are left.
 *
 * A training step has hundreds of small blocks beside the few that decide the height, and
 * enumerating offsets of small blocks makes a depth-first search take too long. Sizes are tried
 * from coarse to fine; at the finest all blocks take part.
 *
 * Invariant: the core's best known offsets only get lower.
 */
#include "core.h"

#include <assert.h>
#include <string.h>

#define COARSEST 48 /* blocks; each level has twice as many */
/* For each large block: a way down is found by each rank's first run, of twice as many moves as
 * blocks, or seldom at all. */
#define LEVEL_MOVES 6

/* Fills by_first[] with the core's blocks, largest first. */
static void sort_by_size(dunlin_pack_core *core)
{
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        uint32_t at = i;
        for (; at > 0 && core->blocks[core->by_first[at - 1]].bytes < core->blocks[i].bytes; at--) {
            core->by_first[at] = core->by_first[at - 1];
        }
        core->by_first[at] = i;
    }
}

static uint64_t live_range_of(const dunlin_pack_block *block)
{
    return block->last_step - block->first_step;
}

/* Longest live range first, then largest. */
static bool goes_first(const dunlin_pack_block *a, const dunlin_pack_block *b)
{
    return live_range_of(a) != live_range_of(b) ? live_range_of(a) > live_range_of(b)
                                                : a->bytes > b->bytes;
}

/* Those of at least so many bytes lie at core->offsets; the others go into the gaps. Returns the
 * height. */
static uint64_t add_small(dunlin_pack_core *core, uint64_t least_bytes)
{
    uint32_t n_small = 0;
    uint64_t height = 0;
    dunlin__pack_pile_clear(core->pile);
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        const dunlin_pack_block *block = &core->blocks[i];
        if (block->bytes >= least_bytes) {
            uint64_t end = core->offsets[i] + block->bytes;
            dunlin__pack_insert(core->pile, block, core->offsets[i]);
            height = end > height ? end : height;
        } else {
            uint32_t at = n_small++;
            for (; at > 0 && goes_first(block, &core->blocks[core->order[at - 1]]); at--) {
                core->order[at] = core->order[at - 1];
            }
            core->order[at] = i;
        }
    }
    for (uint32_t k = 0; k < n_small; k++) {
        uint32_t i = core->order[k];
        const dunlin_pack_block *block = &core->blocks[i];
        core->offsets[i] = dunlin__pack_find_gap(core->pile, block, DUNLIN_FIRST_FIT);
        dunlin__pack_insert(core->pile, block, core->offsets[i]);
        uint64_t end = core->offsets[i] + block->bytes;
        height = end > height ? end : height;
    }
    return height;
}

dunlin_deep_result dunlin__pack_coarse(dunlin_pack_core *core, uint64_t max_moves,
                                       uint64_t *n_moves)
{
    uint64_t best = dunlin__pack_core_height(core);
    uint64_t n_done = 0;
    sort_by_size(core);
    for (uint32_t n = COARSEST; best > core->capacity_bytes && n_done < max_moves; n *= 2) {
        uint32_t n_large = n < core->n_blocks ? n : core->n_blocks;
        uint64_t least = n_large == 0 ? 0 : core->blocks[core->by_first[n_large - 1]].bytes;
        for (uint32_t reserve = 0; reserve < 2 && n_done < max_moves; reserve++) {
            const uint64_t share = LEVEL_MOVES * ((uint64_t)n_large + 1);
            const dunlin_deep_options options = {
                .least_bytes = least,
                .has_reserve = reserve == 0,
                .max_moves = share < max_moves - n_done ? share : max_moves - n_done};
            dunlin_deep_result result = dunlin__pack_deep(core, &options, &n_done);
            n_done++;
            if (result == DUNLIN_DEEP_FOUND) {
                n_done += core->n_blocks - n_large;
                uint64_t height = add_small(core, least);
                if (height < best) {
                    best = height;
                    for (uint32_t i = 0; i < core->n_blocks; i++) {
                        core->blocks[i].offset_bytes = core->offsets[i];
                    }
                }
            } else if (result == DUNLIN_DEEP_IMPOSSIBLE && reserve == 1) {
                *n_moves += n_done;
                return result;
            }
        }
        if (n_large == core->n_blocks) {
            break;
        }
    }
    assert(best == dunlin__pack_core_height(core));
    *n_moves += n_done;
    return best <= core->capacity_bytes ? DUNLIN_DEEP_FOUND : DUNLIN_DEEP_OPEN;
}
