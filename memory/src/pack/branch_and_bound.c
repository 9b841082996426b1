/*
 * branch_and_bound.c - depth first search for offsets of a core within its capacity.
 *
 * Blocks are placed from the bottom up: each next block lies on what is below it, and (offset,
 * rank) never falls, so every packing that is pushed down is met once. A branch ends where a
 * section's floor and what is still to come there pass the capacity, or where another block would
 * fit wholly below the next one. Sections that no open block joins any more are solved apart: if
 * one of them has no solution, the placement that split them is taken back, not the other parts.
 * Three ranks alternate with a growing limit. After Moffitt, "MiniMalloc: A Lightweight Memory
 * Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023.
 *
 * Invariant: the log undoes every change since a frame was entered, so a failed frame leaves the
 * tables as it found them.
 */
#include "deep.h"

#include <math.h>

#define NONE UINT32_MAX

static bool is_open(const dunlin_pack_deep *deep, uint32_t b)
{
    return (deep->open[b / 64] >> (b % 64) & 1) != 0;
}

/* --- ranks --- */

typedef enum { RANK_WIDTH, RANK_AREA, RANK_TOTAL } rank_key;
static const rank_key rankings[][3] = {{RANK_WIDTH, RANK_AREA, RANK_TOTAL},
                                       {RANK_TOTAL, RANK_AREA, RANK_WIDTH},
                                       {RANK_TOTAL, RANK_WIDTH, RANK_AREA}};
#define N_RANKINGS (sizeof rankings / sizeof rankings[0])

static double rank_value(const dunlin_pack_deep *deep, uint32_t b, rank_key key)
{
    const dunlin_pack_block *block = &deep->blocks[b];
    double width = (double)(block->last_step - block->first_step) + 1.0;
    switch (key) {
    case RANK_WIDTH:
        return width;
    case RANK_AREA:
        return width * (double)block->bytes;
    case RANK_TOTAL:
    default:
        return (double)deep->peaks[b];
    }
}

static bool ranks_before(const dunlin_pack_deep *deep, const rank_key keys[3], uint32_t a,
                         uint32_t b)
{
    for (uint32_t k = 0; k < 3; k++) {
        double value_a = rank_value(deep, a, keys[k]);
        double value_b = rank_value(deep, b, keys[k]);
        if (value_a > value_b || value_a < value_b) {
            return value_a > value_b;
        }
    }
    return a < b;
}

static void rank_blocks(dunlin_pack_deep *deep, const rank_key keys[3])
{
    for (uint32_t b = 0; b < deep->n; b++) {
        const dunlin_pack_block *block = &deep->blocks[b];
        deep->peaks[b] = 0;
        for (uint32_t s = block->first_step; s <= block->last_step; s++) {
            deep->peaks[b] = deep->totals[s] > deep->peaks[b] ? deep->totals[s] : deep->peaks[b];
        }
    }
    for (uint32_t b = 0; b < deep->n; b++) {
        uint32_t at = b;
        for (; at > 0 && ranks_before(deep, keys, b, deep->sorted[at - 1]); at--) {
            deep->sorted[at] = deep->sorted[at - 1];
        }
        deep->sorted[at] = b;
    }
    for (uint32_t i = 0; i < deep->n; i++) {
        deep->ranks[deep->sorted[i]] = i;
    }
}

/* --- placing and taking back --- */

static void log_change(dunlin_pack_deep *deep, log_kind kind, uint32_t index, uint64_t old)
{
    deep->log[deep->n_log++] = (log_row){.old = old, .index = index, .kind = kind};
}

/* The change of a section's open blocks when one of them is placed (or, `is_back`, taken back). */
static void count_placed(dunlin_pack_deep *deep, const dunlin_pack_block *block, bool is_back)
{
    for (uint32_t s = block->first_step; s <= block->last_step; s++) {
        uint32_t is_joined = s < block->last_step;
        if (is_back) {
            deep->totals[s] += block->bytes;
            deep->joins[s] += is_joined;
        } else {
            deep->totals[s] -= block->bytes;
            deep->joins[s] -= is_joined;
        }
    }
}

static void undo(dunlin_pack_deep *deep, uint32_t log_mark)
{
    while (deep->n_log > log_mark) {
        const log_row *row = &deep->log[--deep->n_log];
        if (row->kind == LOG_PLACED) {
            deep->open[row->index / 64] |= UINT64_C(1) << (row->index % 64);
            count_placed(deep, &deep->blocks[row->index], true);
        } else {
            deep->blocks[row->index].offset_bytes = row->old;
        }
    }
}

/* Raises the open blocks that the placed one meets above it; false: one has no room left. */
static bool raise_others(dunlin_pack_deep *deep, uint32_t placed, bool *out_is_alone)
{
    const uint64_t *meets = &deep->meets[(size_t)placed * deep->n_words];
    uint64_t end = deep->blocks[placed].offset_bytes + deep->blocks[placed].bytes;
    uint32_t n_words = deep->n / 64 + 1;
    *out_is_alone = true;
    for (uint32_t w = 0; w < n_words; w++) {
        for (uint64_t bits = meets[w] & deep->open[w]; bits != 0; bits &= bits - 1) {
            uint32_t b = w * 64 + (uint32_t)__builtin_ctzll(bits);
            dunlin_pack_block *block = &deep->blocks[b];
            *out_is_alone = false;
            if (block->offset_bytes < end) {
                log_change(deep, LOG_OFFSET, b, block->offset_bytes);
                block->offset_bytes = end;
                if (end + block->bytes > deep->capacity) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* Whether the bytes to come fit above the lowest offset at which each section goes on: that of the
 * lowest open block there, which is at least `offset`. */
static bool has_room(dunlin_pack_deep *deep, const frame_row *frame, uint64_t offset)
{
    double *floors = deep->floors;
    for (uint32_t s = frame->first; s < frame->end; s++) {
        floors[s] = HUGE_VAL;
    }
    for (uint32_t b = deep->starts[frame->first]; b < deep->starts[frame->end]; b++) {
        if (is_open(deep, b)) {
            const uint32_t end = deep->blocks[b].last_step + 1;
            /* The inner loop of the search: as doubles two sections are one instruction. */
            const double lowest = (double)deep->blocks[b].offset_bytes;
            for (uint32_t s = deep->blocks[b].first_step; s < end; s++) {
                floors[s] = lowest < floors[s] ? lowest : floors[s];
            }
        }
    }
    for (uint32_t s = frame->first; s < frame->end; s++) {
        if (deep->totals[s] != 0) {
            const uint64_t lowest = (uint64_t)floors[s];
            const uint64_t floor = lowest < offset ? offset : lowest;
            if (floor + deep->totals[s] + deep->reserves[s] > deep->capacity) {
                return false;
            }
        }
    }
    return true;
}

/* Places the frame's choice; false: no packing of the frame's sections goes on from here. */
static bool place(dunlin_pack_deep *deep, frame_row *frame)
{
    const dunlin_pack_block *block = &deep->blocks[frame->placed];
    deep->open[frame->placed / 64] &= ~(UINT64_C(1) << (frame->placed % 64));
    log_change(deep, LOG_PLACED, frame->placed, 0);
    count_placed(deep, block, false);
    return block->offset_bytes + block->bytes <= deep->capacity &&
           raise_others(deep, frame->placed, &frame->is_only) &&
           has_room(deep, frame, block->offset_bytes);
}

/* --- the search --- */

/* The lowest choice at or above the frame's (from_offset, from_rank); false: there is none. */
static bool choose(dunlin_pack_deep *deep, frame_row *frame)
{
    uint64_t lowest_end = UINT64_MAX; /* of an open block, if it were the next */
    uint64_t best_offset = UINT64_MAX;
    uint32_t best_rank = NONE;
    frame->placed = NONE;
    for (uint32_t b = deep->starts[frame->first]; b < deep->starts[frame->end]; b++) {
        if (!is_open(deep, b)) {
            continue;
        }
        uint64_t offset = deep->blocks[b].offset_bytes;
        uint64_t end = offset + deep->blocks[b].bytes;
        uint32_t rank = deep->ranks[b];
        lowest_end = end < lowest_end ? end : lowest_end;
        if ((offset > frame->from_offset ||
             (offset == frame->from_offset && rank >= frame->from_rank)) &&
            (offset < best_offset || (offset == best_offset && rank < best_rank))) {
            best_offset = offset;
            best_rank = rank;
            frame->placed = b;
        }
    }
    return frame->placed != NONE && best_offset < lowest_end;
}

/* Makes `next` the frame of the next sections of `frame` that must be solved apart; false: all are.
 */
static bool split(const dunlin_pack_deep *deep, frame_row *frame, frame_row *next)
{
    while (frame->cursor < frame->end) {
        uint32_t first = frame->cursor;
        uint32_t end = first;
        bool has_open = false;
        do {
            has_open = has_open || deep->totals[end] != 0;
            end++;
        } while (end < frame->end && deep->joins[end - 1] != 0);
        frame->cursor = end;
        if (has_open) {
            *next = (frame_row){.first = first,
                                .end = end,
                                .placed = NONE,
                                .from_offset = frame->from_offset,
                                .from_rank = frame->from_rank,
                                .log_mark = deep->n_log};
            return true;
        }
    }
    return false;
}

/* Chooses until a placement holds; false: none is left. */
static bool advance(dunlin_pack_deep *deep, frame_row *frame, uint64_t *n_moves)
{
    for (;;) {
        if (frame->placed != NONE) {
            undo(deep, frame->log_mark);
            if (frame->is_only) {
                return false;
            }
            frame->from_rank++;
        }
        if (!choose(deep, frame)) {
            return false;
        }
        frame->from_offset = deep->blocks[frame->placed].offset_bytes;
        frame->from_rank = deep->ranks[frame->placed];
        frame->cursor = frame->first;
        frame->is_only = false;
        ++*n_moves;
        if (place(deep, frame)) {
            return true;
        }
    }
}

/* One search with the ranks as they are. */
static dunlin_deep_result run(dunlin_pack_deep *deep, uint64_t max_moves, uint64_t *n_moves)
{
    dunlin__pack_deep_reset(deep);
    for (uint32_t s = 0; s < deep->n_sections; s++) {
        if (deep->totals[s] > deep->capacity) {
            return DUNLIN_DEEP_IMPOSSIBLE;
        }
    }
    uint64_t n_done = 0;
    uint32_t depth = 0; /* frames[0] is what the whole core splits into */
    deep->frames[0] = (frame_row){.end = deep->n_sections, .placed = NONE};
    for (;;) {
        if (split(deep, &deep->frames[depth], &deep->frames[depth + 1])) {
            depth++;
        } else if (depth == 0) {
            *n_moves += n_done;
            return DUNLIN_DEEP_FOUND;
        } else {
            depth--; /* solved: its placements stay */
            continue;
        }
        while (!advance(deep, &deep->frames[depth], &n_done)) {
            undo(deep, deep->frames[depth].log_mark);
            depth--;
            if (depth == 0 || n_done >= max_moves) {
                *n_moves += n_done;
                return depth == 0 ? DUNLIN_DEEP_IMPOSSIBLE : DUNLIN_DEEP_OPEN;
            }
        }
        if (n_done >= max_moves) {
            *n_moves += n_done;
            return DUNLIN_DEEP_OPEN;
        }
    }
}

dunlin_deep_result dunlin__pack_deep(dunlin_pack_core *core, const dunlin_deep_options *options,
                                     uint64_t *n_moves)
{
    dunlin_pack_deep *deep = core->deep;
    const uint64_t max_moves = options->max_moves;
    if (core->n_sections > deep->n_max || !dunlin__pack_deep_prepare(deep, core, options)) {
        return DUNLIN_DEEP_OPEN;
    }
    uint64_t n_done = 0;
    uint64_t limit = 2 * (uint64_t)deep->n + 1;
    dunlin_deep_result result = DUNLIN_DEEP_OPEN;
    for (uint32_t k = 0; result == DUNLIN_DEEP_OPEN && n_done < max_moves; k++) {
        uint64_t left = max_moves - n_done;
        dunlin__pack_deep_reset(deep);
        rank_blocks(deep, rankings[k % N_RANKINGS]);
        result = run(deep, limit < left ? limit : left, &n_done);
        limit = (k + 1) % N_RANKINGS == 0 ? 2 * limit : limit;
    }
    *n_moves += n_done;
    for (uint32_t b = 0; b < deep->n && result == DUNLIN_DEEP_FOUND; b++) {
        core->offsets[deep->index[b]] = deep->blocks[b].offset_bytes;
    }
    return result;
}
