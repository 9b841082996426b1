/*
 * core.c - what is left of a packing problem after all blocks that are easy to place are removed.
 *
 * A block that meets m others of s bytes in all sees at most m + 1 gaps below the capacity; if they
 * are together larger than m + 1 gaps that are all too small for it, one of them takes it. The
 * argument is that of peeling vertices of low degree before colouring a graph (Chaitin et al.,
 * "Register allocation via coloring", 1981), with sizes.
 */
#include "core.h"

#include <mem/support.h>

#include <string.h>

static void close_arrays(dunlin_pack_core *core, const dunlin_alloc *alloc)
{
    size_t n = core->n_max;
    dunlin__pack_deep_close(core->deep, alloc);
    dunlin__free_array(alloc, core->order, n, sizeof *core->order);
    dunlin__free_array(alloc, core->offsets, n, sizeof *core->offsets);
    dunlin__free_array(alloc, core->by_last, n, sizeof *core->by_last);
    dunlin__free_array(alloc, core->by_first, n, sizeof *core->by_first);
    dunlin__free_array(alloc, core->n_meets, n, sizeof *core->n_meets);
    dunlin__free_array(alloc, core->meet_bytes, n, sizeof *core->meet_bytes);
    dunlin__free_array(alloc, core->blocks, n, sizeof *core->blocks);
    dunlin__free_array(alloc, core->index, n, sizeof *core->index);
}

dunlin_status dunlin__pack_core_open(uint32_t n_max, dunlin_pack_pile *pile,
                                     const dunlin_alloc *alloc, dunlin_pack_core **out_core,
                                     dunlin_error *error)
{
    size_t n = n_max;
    *out_core = NULL;
    dunlin_pack_core *core = dunlin__alloc_zeroed(alloc, 1, sizeof *core);
    if (core == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0, "no memory to pack");
    }
    core->n_max = n_max;
    core->pile = pile;
    core->index = dunlin__alloc_array(alloc, n, sizeof *core->index);
    core->blocks = dunlin__alloc_array(alloc, n, sizeof *core->blocks);
    core->meet_bytes = dunlin__alloc_array(alloc, n, sizeof *core->meet_bytes);
    core->n_meets = dunlin__alloc_array(alloc, n, sizeof *core->n_meets);
    core->by_first = dunlin__alloc_array(alloc, n, sizeof *core->by_first);
    core->by_last = dunlin__alloc_array(alloc, n, sizeof *core->by_last);
    core->offsets = dunlin__alloc_array(alloc, n, sizeof *core->offsets);
    core->order = dunlin__alloc_array(alloc, n, sizeof *core->order);
    dunlin_status status = DUNLIN_OK;
    if (core->index == NULL || core->blocks == NULL || core->meet_bytes == NULL ||
        core->n_meets == NULL || core->by_first == NULL || core->by_last == NULL ||
        core->offsets == NULL || core->order == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "plan", 0, "no memory to pack %u blocks",
                              (unsigned)n_max);
    } else {
        status = dunlin__pack_deep_open(n_max, alloc, &core->deep, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__pack_core_close(core, alloc);
        return status;
    }
    *out_core = core;
    return DUNLIN_OK;
}

void dunlin__pack_core_close(dunlin_pack_core *core, const dunlin_alloc *alloc)
{
    if (core != NULL) {
        close_arrays(core, alloc);
        dunlin__free_array(alloc, core, 1, sizeof *core);
    }
}

/* Wherever the blocks that it meets lie, some gap below the capacity is large enough for it. */
static bool is_easy(const dunlin_pack_core *core, const dunlin_pack_block *block, uint32_t b)
{
    uint64_t too_small = block->bytes - core->unit_bytes;
    uint64_t n_gaps = (uint64_t)core->n_meets[b] + 1;
    return core->meet_bytes[b] < core->capacity_bytes &&
           (core->capacity_bytes - core->meet_bytes[b] - 1) / n_gaps >= too_small;
}

/* Sorts block numbers by first or last step. Shell's sort: in place, and nearly sorted already. */
static void sort_by_step(uint32_t *order, const dunlin_pack_block *blocks, uint32_t n, bool by_last)
{
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (uint32_t gap = n / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11) {
        for (uint32_t i = gap; i < n; i++) {
            uint32_t held = order[i];
            uint32_t step = by_last ? blocks[held].last_step : blocks[held].first_step;
            uint32_t at = i;
            for (; at >= gap; at -= gap) {
                const dunlin_pack_block *before = &blocks[order[at - gap]];
                if ((by_last ? before->last_step : before->first_step) <= step) {
                    break;
                }
                order[at] = order[at - gap];
            }
            order[at] = held;
        }
    }
}

#define IS_PEELED UINT32_MAX /* in n_meets */

/* Counts what each block of the core meets: all but what has ended before it or begins after it.
 * The core's blocks are in by_first[] and by_last[]. */
static void count_meets(dunlin_pack_core *core, const dunlin_pack_block *blocks)
{
    const uint32_t *by_first = core->by_first;
    const uint32_t *by_last = core->by_last;
    const uint32_t n = core->n_blocks;
    uint64_t total = 0;
    uint64_t apart = 0;
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        total += blocks[by_first[i]].bytes;
    }
    for (uint32_t i = 0; i < n; i++) {
        const dunlin_pack_block *block = &blocks[by_first[i]];
        for (; blocks[by_last[k]].last_step < block->first_step; k++) {
            apart += blocks[by_last[k]].bytes;
        }
        core->n_meets[by_first[i]] = n - 1 - k;
        core->meet_bytes[by_first[i]] = total - block->bytes - apart;
    }
    apart = 0;
    k = n;
    for (uint32_t i = n; i > 0; i--) {
        const dunlin_pack_block *block = &blocks[by_last[i - 1]];
        for (; blocks[by_first[k - 1]].first_step > block->last_step; k--) {
            apart += blocks[by_first[k - 1]].bytes;
        }
        core->n_meets[by_last[i - 1]] -= n - k;
        core->meet_bytes[by_last[i - 1]] -= apart;
    }
}

static uint32_t drop_peeled(const dunlin_pack_core *core, uint32_t *order)
{
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        if (core->n_meets[order[i]] != IS_PEELED) {
            order[n_left++] = order[i];
        }
    }
    return n_left;
}

/* Round by round, so that a round costs no more than its blocks. index[] is left with the core's
 * blocks and, after them, those removed, in order. */
static void peel(dunlin_pack_core *core, const dunlin_pack_block *blocks, uint32_t n)
{
    uint32_t *queue = core->order;
    bool has_more = true;
    core->n_blocks = n;
    core->n_peeled = 0;
    sort_by_step(core->by_first, blocks, n, false);
    sort_by_step(core->by_last, blocks, n, true);
    while (has_more && core->n_blocks > 0) {
        count_meets(core, blocks);
        has_more = false;
        for (uint32_t i = 0; i < core->n_blocks; i++) {
            uint32_t b = core->by_first[i];
            if (is_easy(core, &blocks[b], b)) {
                core->n_meets[b] = IS_PEELED;
                queue[core->n_peeled++] = b;
                has_more = true;
            }
        }
        uint32_t n_left = drop_peeled(core, core->by_first);
        (void)drop_peeled(core, core->by_last);
        core->n_blocks = n_left;
    }
    memcpy(core->index, core->by_first, core->n_blocks * sizeof *core->index);
    memcpy(&core->index[core->n_blocks], queue, core->n_peeled * sizeof *queue);
}

/* Index of the last of sorted `cuts` that is at most `step`; the first always is. */
static uint32_t section_of(const uint32_t *cuts, uint32_t n_cuts, uint32_t step)
{
    uint32_t low = 0;
    uint32_t high = n_cuts;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (cuts[middle] <= step) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Gives the core's blocks sections for steps: two live ranges meet in sections if and only if they
 * meet in steps. A section begins where a live range begins after another has ended. */
static void find_sections(dunlin_pack_core *core, const dunlin_pack_block *blocks)
{
    uint32_t *cuts = core->order;
    uint32_t n_ended = 0;
    core->n_sections = 0;
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        uint32_t start = blocks[core->by_first[i]].first_step;
        bool is_cut = i == 0;
        for (; blocks[core->by_last[n_ended]].last_step < start; n_ended++) {
            is_cut = true;
        }
        if (is_cut) {
            cuts[core->n_sections++] = start;
        }
    }
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        dunlin_pack_block *block = &core->blocks[i];
        *block = blocks[core->index[i]];
        block->first_step = section_of(cuts, core->n_sections, block->first_step);
        block->last_step = section_of(cuts, core->n_sections, block->last_step);
    }
}

void dunlin__pack_core_make(dunlin_pack_core *core, const dunlin_pack_block *blocks,
                            uint32_t n_blocks, uint64_t capacity_bytes)
{
    uint64_t bits = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        bits |= blocks[b].bytes;
    }
    core->unit_bytes = bits == 0 ? 1 : bits & (~bits + 1);
    core->capacity_bytes = capacity_bytes - capacity_bytes % core->unit_bytes;
    peel(core, blocks, n_blocks);
    find_sections(core, blocks);
}

uint64_t dunlin__pack_core_height(const dunlin_pack_core *core)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        uint64_t end = core->blocks[i].offset_bytes + core->blocks[i].bytes;
        height = end > height ? end : height;
    }
    return height;
}

uint64_t dunlin__pack_core_finish(const dunlin_pack_core *core, dunlin_pack_block *blocks,
                                  uint32_t n_blocks)
{
    uint64_t height = 0;
    dunlin__pack_pile_clear(core->pile);
    for (uint32_t i = 0; i < n_blocks; i++) {
        bool is_core = i < core->n_blocks;
        uint32_t b = core->index[is_core ? i : n_blocks - 1 - (i - core->n_blocks)];
        uint64_t offset = is_core ? core->blocks[i].offset_bytes
                                  : dunlin__pack_find_gap(core->pile, &blocks[b], DUNLIN_FIRST_FIT);
        blocks[b].offset_bytes = offset;
        dunlin__pack_insert(core->pile, &blocks[b], offset);
        height = offset + blocks[b].bytes > height ? offset + blocks[b].bytes : height;
    }
    return height;
}
