/*
 * branch_and_bound.c - depth first search for offsets of a core within its capacity.
 *
 * Blocks are placed from the bottom up: each next block lies on what is below it, and (offset,
 * rank) never falls, so every packing that is pushed down is met once. A branch ends where a
 * section's floor and what is still to come there pass the capacity, or where another block would
 * fit wholly below the next one. Sections that no open block joins any more are solved apart: if
 * one of them has no solution, the placement that split them is taken back, not the other parts.
 * Three ranks take turns with a growing limit. After Moffitt, "MiniMalloc: A Lightweight Memory
 * Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023.
 *
 * Invariant: the log undoes every change since a frame was entered, so a failed frame leaves the
 * tables as it found them.
 */
#include "core.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

#define NONE UINT32_MAX
#define LOG_PER_BLOCK 96

typedef enum { LOG_PLACED, LOG_OFFSET } log_kind;

typedef struct {
    uint64_t old;
    uint32_t index;
    uint32_t kind;
} log_row;

/* One placement to be chosen, for the open blocks within sections [first, end). */
typedef struct {
    uint32_t first, end;
    uint32_t placed;      /* block chosen now; NONE */
    bool is_only;         /* no open block meets the chosen one: another choice gains nothing */
    uint64_t from_offset; /* choices lie at or above (from_offset, from_rank) */
    uint32_t from_rank;
    uint32_t cursor; /* sections before it are solved */
    uint32_t log_mark;
} frame_row;

typedef struct dunlin_pack_deep {
    uint32_t n_max, n, n_sections;
    uint32_t n_words; /* of a row of `meets` */
    uint64_t capacity;
    dunlin_pack_block *blocks; /* by first section; offset_bytes is the lowest possible */
    uint32_t *index;           /* of the block in the core; the head of all of this type */
    uint32_t *ranks, *sorted;
    uint64_t *meets;    /* a row of bits a block */
    uint64_t *open;     /* bits: not placed yet */
    double *floors;     /* by section: lowest offset that comes; exact to 2^53 */
    uint64_t *totals;   /* by section: bytes to come */
    uint64_t *reserves; /* by section: bytes left out of the search */
    uint64_t *peaks;    /* by block: greatest total of its sections */
    uint32_t *joins;    /* by section: open blocks that also live in the next one */
    uint32_t *starts;   /* by section: first block that begins there or later */
    frame_row *frames;
    log_row *log;
    uint32_t n_log;
} dunlin_pack_deep;

static uint32_t max_log(uint32_t n_max)
{
    return n_max * LOG_PER_BLOCK;
}

void dunlin__pack_deep_close(dunlin_pack_deep *deep, const dunlin_alloc *alloc)
{
    if (deep == NULL) {
        return;
    }
    size_t n = deep->n_max;
    dunlin__free_array(alloc, deep->log, max_log(deep->n_max), sizeof *deep->log);
    dunlin__free_array(alloc, deep->frames, n + 2, sizeof *deep->frames);
    dunlin__free_array(alloc, deep->totals, 3 * n, sizeof *deep->totals);
    dunlin__free_array(alloc, deep->floors, n, sizeof *deep->floors);
    dunlin__free_array(alloc, deep->open, deep->n_words, sizeof *deep->open);
    dunlin__free_array(alloc, deep->meets, n * deep->n_words, sizeof *deep->meets);
    dunlin__free_array(alloc, deep->index, 5 * n + 1, sizeof *deep->index);
    dunlin__free_array(alloc, deep->blocks, n, sizeof *deep->blocks);
    dunlin__free_array(alloc, deep, 1, sizeof *deep);
}

dunlin_status dunlin__pack_deep_open(uint32_t n_max, const dunlin_alloc *alloc,
                                     dunlin_pack_deep **out_deep, dunlin_error *error)
{
    *out_deep = NULL;
    dunlin_pack_deep *deep = dunlin__alloc_zeroed(alloc, 1, sizeof *deep);
    if (deep == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0, "no memory to search packings");
    }
    deep->n_max = n_max < DUNLIN_PACK_CORE_MAX ? n_max : DUNLIN_PACK_CORE_MAX;
    deep->n_words = deep->n_max / 64 + 1;
    size_t n = deep->n_max;
    deep->blocks = dunlin__alloc_array(alloc, n, sizeof *deep->blocks);
    deep->index = dunlin__alloc_array(alloc, 5 * n + 1, sizeof *deep->index);
    deep->meets = dunlin__alloc_array(alloc, n * deep->n_words, sizeof *deep->meets);
    deep->open = dunlin__alloc_array(alloc, deep->n_words, sizeof *deep->open);
    deep->floors = dunlin__alloc_array(alloc, n, sizeof *deep->floors);
    deep->totals = dunlin__alloc_array(alloc, 3 * n, sizeof *deep->totals);
    deep->frames = dunlin__alloc_array(alloc, n + 2, sizeof *deep->frames);
    deep->log = dunlin__alloc_array(alloc, max_log(deep->n_max), sizeof *deep->log);
    if (deep->blocks == NULL || deep->index == NULL || deep->meets == NULL || deep->open == NULL ||
        deep->floors == NULL || deep->totals == NULL || deep->frames == NULL || deep->log == NULL) {
        dunlin__pack_deep_close(deep, alloc);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0, "no memory to search packings");
    }
    deep->ranks = deep->index + n;
    deep->sorted = deep->ranks + n;
    deep->joins = deep->sorted + n;
    deep->starts = deep->joins + n;
    deep->reserves = deep->totals + n;
    deep->peaks = deep->reserves + n;
    *out_deep = deep;
    return DUNLIN_OK;
}

/* --- tables --- */

static bool is_open(const dunlin_pack_deep *deep, uint32_t b)
{
    return (deep->open[b / 64] >> (b % 64) & 1) != 0;
}

/* The core's blocks of at least so many bytes, by first section; the others are reserved for.
 * False: too many. */
static bool take_blocks(dunlin_pack_deep *deep, const dunlin_pack_core *core,
                        const dunlin_deep_options *options)
{
    uint32_t n_taken = 0;
    deep->n_sections = core->n_sections;
    deep->capacity = core->capacity_bytes;
    memset(deep->starts, 0, deep->n_sections * sizeof *deep->starts);
    memset(deep->reserves, 0, deep->n_sections * sizeof *deep->reserves);
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        const dunlin_pack_block *block = &core->blocks[i];
        if (block->bytes >= options->least_bytes) {
            deep->starts[block->first_step]++;
        } else {
            for (uint32_t s = block->first_step; options->has_reserve && s <= block->last_step;
                 s++) {
                deep->reserves[s] += block->bytes;
            }
        }
    }
    for (uint32_t s = 0; s < deep->n_sections; s++) {
        uint32_t n_here = deep->starts[s];
        deep->starts[s] = n_taken;
        n_taken += n_here;
    }
    if (n_taken > deep->n_max) {
        return false;
    }
    for (uint32_t i = 0; i < core->n_blocks; i++) {
        if (core->blocks[i].bytes >= options->least_bytes) {
            uint32_t at = deep->starts[core->blocks[i].first_step]++;
            deep->blocks[at] = core->blocks[i];
            deep->index[at] = i;
        }
    }
    for (uint32_t s = deep->n_sections; s > 0; s--) {
        deep->starts[s] = deep->starts[s - 1];
    }
    deep->starts[0] = 0;
    deep->n = n_taken;
    return true;
}

/* Fills everything that does not change with the ranks; false: too many changes for the log. */
static bool prepare(dunlin_pack_deep *deep, const dunlin_pack_core *core,
                    const dunlin_deep_options *options)
{
    if (!take_blocks(deep, core, options)) {
        return false;
    }
    uint64_t n_changes = deep->n; /* at most, on one path: placed, and raised by each other */
    memset(deep->meets, 0, (size_t)deep->n * deep->n_words * sizeof *deep->meets);
    for (uint32_t a = 0; a < deep->n; a++) {
        /* Sorted: those that begin in a's life come right after it. */
        for (uint32_t b = a + 1;
             b < deep->n && deep->blocks[b].first_step <= deep->blocks[a].last_step; b++) {
            deep->meets[(size_t)a * deep->n_words + b / 64] |= UINT64_C(1) << (b % 64);
            deep->meets[(size_t)b * deep->n_words + a / 64] |= UINT64_C(1) << (a % 64);
            n_changes++;
        }
    }
    return n_changes <= max_log(deep->n_max);
}

/* Nothing is placed. */
static void reset(dunlin_pack_deep *deep)
{
    memset(deep->open, 0, deep->n_words * sizeof *deep->open);
    memset(deep->totals, 0, deep->n_sections * sizeof *deep->totals);
    memset(deep->joins, 0, deep->n_sections * sizeof *deep->joins);
    for (uint32_t b = 0; b < deep->n; b++) {
        dunlin_pack_block *block = &deep->blocks[b];
        block->offset_bytes = 0;
        deep->open[b / 64] |= UINT64_C(1) << (b % 64);
        for (uint32_t s = block->first_step; s <= block->last_step; s++) {
            deep->totals[s] += block->bytes;
            deep->joins[s] += s < block->last_step;
        }
    }
    deep->n_log = 0;
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
    reset(deep);
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
    if (core->n_sections > deep->n_max || !prepare(deep, core, options)) {
        return DUNLIN_DEEP_OPEN;
    }
    uint64_t n_done = 0;
    uint64_t limit = 2 * (uint64_t)deep->n + 1;
    dunlin_deep_result result = DUNLIN_DEEP_OPEN;
    for (uint32_t k = 0; result == DUNLIN_DEEP_OPEN && n_done < max_moves; k++) {
        uint64_t left = max_moves - n_done;
        reset(deep);
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
