/*
 * local_search.c - local search on the order in which a core's blocks are placed: a block that ends
 * above the capacity, or one that is alive with it, moves to an earlier position.
 *
 * Invariant: `order` packs to the blocks' offsets; a move is kept if the sum of bytes that end
 * above the capacity does not grow (the height alone says too little about the distance). Moves
 * along a plateau make progress possible: most moves change nothing.
 */
#include "core.h"

#include <string.h>

/* SplitMix64 (Steele, Lea, Flood 2014) from a fixed seed: the same moves every time. */
static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((next_random(state) >> 32) * n >> 32);
}

/* From the lowest offset up: placed in this order, nothing lies higher than it does. */
static void sort_by_offset(dunlin_pack_core *core)
{
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        uint32_t at = i;
        for (; at > 0 &&
               core->blocks[core->order[at - 1]].offset_bytes > core->blocks[i].offset_bytes;
             at--) {
            core->order[at] = core->order[at - 1];
        }
        core->order[at] = i;
    }
}

static void take_offsets(dunlin_pack_core *core)
{
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        core->blocks[i].offset_bytes = core->offsets[i];
    }
}

/* Moves the element at `from` to `to`, those between by one. */
static void move_element(uint32_t *order, uint32_t from, uint32_t to)
{
    uint32_t held = order[from];
    if (to < from) {
        memmove(&order[to + 1], &order[to], (from - to) * sizeof *order);
    } else {
        memmove(&order[from], &order[from + 1], (to - from) * sizeof *order);
    }
    order[to] = held;
}

/* A position in the order whose block is to go earlier; 0: none this time. */
static uint32_t choose_position(const dunlin_pack_core *core, uint64_t *state)
{
    uint32_t n = core->n_blocks;
    /* One that ends above the capacity, each as likely as the other. */
    uint32_t n_high = 0;
    uint32_t high = 0;
    for (uint32_t i = 0; i < n; i++) {
        const dunlin_pack_block *block = &core->blocks[core->order[i]];
        if (block->offset_bytes + block->bytes > core->capacity_bytes) {
            n_high++;
            high = random_below(state, n_high) == 0 ? i : high;
        }
    }
    if (random_below(state, 2) == 0) {
        return high;
    }
    const dunlin_pack_block *top = &core->blocks[core->order[high]];
    uint32_t n_met = 0;
    uint32_t met = high;
    for (uint32_t i = 0; i < n; i++) {
        const dunlin_pack_block *block = &core->blocks[core->order[i]];
        if (block->first_step <= top->last_step && top->first_step <= block->last_step) {
            n_met++;
            met = random_below(state, n_met) == 0 ? i : met;
        }
    }
    return met;
}

/* Bytes by which blocks end above the capacity, summed, of the order as it is; UINT64_MAX as soon
 * as they are more than `most`. */
static uint64_t place_all(const dunlin_pack_core *core, uint64_t most, uint64_t *n_moves)
{
    uint64_t excess = 0;
    dunlin__pack_pile_clear(core->pile);
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        const dunlin_pack_block *block = &core->blocks[core->order[i]];
        const uint64_t offset = dunlin__pack_find_gap(core->pile, block, DUNLIN_FIRST_FIT);
        const uint64_t end = offset + block->bytes;
        ++*n_moves;
        excess += end > core->capacity_bytes ? end - core->capacity_bytes : 0;
        if (excess > most) {
            return UINT64_MAX;
        }
        core->offsets[core->order[i]] = offset;
        dunlin__pack_insert(core->pile, block, offset);
    }
    return excess;
}

/* The lowest packing seen so far goes to `lowest`. */
static void note_lowest(const dunlin_pack_core *core, uint64_t *lowest, uint64_t *height)
{
    const uint64_t made = dunlin__pack_core_height(core);
    if (made < *height) {
        *height = made;
        for (uint32_t i = 0; i < core->n_blocks; i++) {
            lowest[i] = core->blocks[i].offset_bytes;
        }
    }
}

uint64_t dunlin__pack_local(dunlin_pack_core *core, uint64_t max_moves)
{
    uint64_t *lowest = core->meet_bytes; /* not needed any more */
    uint64_t height = UINT64_MAX;
    uint64_t state = 1;
    uint64_t n_moves = 0;
    sort_by_offset(core);
    note_lowest(core, lowest, &height);
    uint64_t excess = place_all(core, UINT64_MAX, &n_moves);
    take_offsets(core);
    note_lowest(core, lowest, &height);
    while (n_moves < max_moves && excess > 0) {
        uint32_t from = choose_position(core, &state);
        uint32_t to = from == 0 ? 0 : random_below(&state, from);
        n_moves++;
        if (to == from) {
            continue;
        }
        move_element(core->order, from, to);
        const uint64_t made = place_all(core, excess, &n_moves);
        if (made <= excess) {
            excess = made;
            take_offsets(core);
            note_lowest(core, lowest, &height);
        } else {
            move_element(core->order, to, from);
        }
    }
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        core->blocks[i].offset_bytes = lowest[i];
    }
    return n_moves;
}
