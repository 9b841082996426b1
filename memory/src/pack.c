/*
 * pack.c - the greedy portfolio: place the blocks one by one, in one of several orders, each into
 * the first or the tightest gap between the blocks that are alive with it.
 *
 * Invariant: `placed` is sorted by offset, so one walk upward sees all gaps.
 * Sources: size order with best fit: Pisarchyk and Lee, "Efficient Memory Management for Deep
 * Neural Net Inference", 2020; longest life first: Wang et al., "Melon", MobiSys 2022, section 4.
 */
#include "pack.h"

#include <mem/support.h>

#include <string.h>

typedef enum {
    KEY_LIFE, /* longest first */
    KEY_SIZE, /* largest first */
    KEY_AREA, /* life times bytes, largest first */
    KEY_EARLY_START,
    KEY_LATE_START,
    KEY_EARLY_END,
    KEY_LATE_END
} sort_key;

typedef enum { FIRST_FIT, BEST_FIT } fit_rule;

typedef struct {
    const char *name;
    sort_key keys[2]; /* the second decides among equals */
    fit_rule fit;
} method_row;

#define BOTH_FITS(text, key, next)                                                                 \
    {text ", first fit", {key, next}, FIRST_FIT},                                                  \
    {                                                                                              \
        text ", best fit", {key, next}, BEST_FIT                                                   \
    }

static const method_row methods[] = {
    BOTH_FITS("longest life then size", KEY_LIFE, KEY_SIZE),
    BOTH_FITS("size", KEY_SIZE, KEY_EARLY_START),
    BOTH_FITS("size then longest life", KEY_SIZE, KEY_LIFE),
    BOTH_FITS("area", KEY_AREA, KEY_SIZE),
    BOTH_FITS("start then latest end", KEY_EARLY_START, KEY_LATE_END),
    BOTH_FITS("start then size", KEY_EARLY_START, KEY_SIZE),
    BOTH_FITS("latest start then end", KEY_LATE_START, KEY_EARLY_END),
    BOTH_FITS("end then longest life", KEY_EARLY_END, KEY_LIFE),
    BOTH_FITS("latest end then start", KEY_LATE_END, KEY_EARLY_START),
};
#define N_METHODS (sizeof methods / sizeof methods[0])

/* A key as a number: what comes first has the greatest. */
static double key_value(const dunlin_pack_block *block, sort_key key)
{
    double life = (double)(block->last_step - block->first_step) + 1.0;
    switch (key) {
    case KEY_LIFE:
        return life;
    case KEY_SIZE:
        return (double)block->bytes;
    case KEY_AREA:
        return life * (double)block->bytes;
    case KEY_EARLY_START:
        return -(double)block->first_step;
    case KEY_LATE_START:
        return (double)block->first_step;
    case KEY_EARLY_END:
        return -(double)block->last_step;
    case KEY_LATE_END:
    default:
        return (double)block->last_step;
    }
}

/* Block numbers decide last, so the order is one and the same everywhere. */
static bool comes_before(const dunlin_pack_block *blocks, const method_row *method, uint32_t a,
                         uint32_t b)
{
    for (uint32_t i = 0; i < 2; i++) {
        double key_a = key_value(&blocks[a], method->keys[i]);
        double key_b = key_value(&blocks[b], method->keys[i]);
        if (key_a > key_b) {
            return true;
        }
        if (key_a < key_b) {
            return false;
        }
    }
    return a < b;
}

static void sift_down(uint32_t *heap, uint32_t n, uint32_t at, const dunlin_pack_block *blocks,
                      const method_row *method)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n) {
            return;
        }
        if (child + 1 < n && comes_before(blocks, method, heap[child], heap[child + 1])) {
            child++;
        }
        if (comes_before(blocks, method, heap[child], heap[at])) {
            return;
        }
        uint32_t held = heap[at];
        heap[at] = heap[child];
        heap[child] = held;
        at = child;
    }
}

/* Heap sort: no scratch, no recursion, and no qsort, which cannot be told the method. */
static void sort_order(uint32_t *order, uint32_t n, const dunlin_pack_block *blocks,
                       const method_row *method)
{
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (uint32_t i = n / 2; i > 0; i--) {
        sift_down(order, n, i - 1, blocks, method);
    }
    for (uint32_t i = n; i > 1; i--) {
        uint32_t held = order[0];
        order[0] = order[i - 1];
        order[i - 1] = held;
        sift_down(order, i - 1, 0, blocks, method);
    }
}

/* The offset for a block: the lowest gap that takes it, or the tightest; above all others if there
 * is none. */
static uint64_t find_gap(const dunlin_packer *packer, uint32_t n_placed,
                         const dunlin_pack_block *blocks, uint32_t block, fit_rule fit)
{
    const dunlin_pack_block *wanted = &blocks[block];
    uint64_t top = 0; /* end of the blocks seen that are alive with it */
    uint64_t best = UINT64_MAX;
    uint64_t best_room = UINT64_MAX;
    for (uint32_t i = 0; i < n_placed; i++) {
        uint32_t other = packer->placed[i];
        if (blocks[other].first_step > wanted->last_step ||
            blocks[other].last_step < wanted->first_step) {
            continue;
        }
        uint64_t offset = packer->offsets[other];
        if (offset > top && offset - top >= wanted->bytes && offset - top < best_room) {
            if (fit == FIRST_FIT) {
                return top;
            }
            best = top;
            best_room = offset - top;
        }
        uint64_t end = offset + blocks[other].bytes;
        top = end > top ? end : top;
    }
    return best != UINT64_MAX ? best : top;
}

static void insert_placed(dunlin_packer *packer, uint32_t n_placed, uint32_t block)
{
    uint32_t low = 0;
    uint32_t high = n_placed;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (packer->offsets[packer->placed[middle]] <= packer->offsets[block]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove(&packer->placed[low + 1], &packer->placed[low],
            (n_placed - low) * sizeof *packer->placed);
    packer->placed[low] = block;
}

const char *dunlin__pack_name(uint32_t method)
{
    return method < N_METHODS ? methods[method].name : NULL;
}

uint64_t dunlin__pack_by(dunlin_packer *packer, uint32_t method, dunlin_pack_block *blocks,
                         uint32_t n_blocks, uint64_t limit_bytes)
{
    const method_row *row = &methods[method];
    uint64_t height = 0;
    sort_order(packer->order, n_blocks, blocks, row);
    for (uint32_t i = 0; i < n_blocks; i++) {
        uint32_t block = packer->order[i];
        uint64_t offset = find_gap(packer, i, blocks, block, row->fit);
        uint64_t end = offset + blocks[block].bytes;
        height = end > height ? end : height;
        if (height >= limit_bytes) {
            return UINT64_MAX;
        }
        packer->offsets[block] = offset;
        insert_placed(packer, i, block);
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        blocks[i].offset_bytes = packer->offsets[i];
    }
    return height;
}

uint64_t dunlin__pack(dunlin_packer *packer, dunlin_pack_block *blocks, uint32_t n_blocks,
                      uint64_t lower_bound_bytes, const char **out_name)
{
    uint64_t best = UINT64_MAX;
    *out_name = methods[0].name;
    for (uint32_t m = 0; m < N_METHODS && best > lower_bound_bytes; m++) {
        uint64_t height = dunlin__pack_by(packer, m, blocks, n_blocks, best);
        if (height < best) {
            best = height;
            *out_name = methods[m].name;
        }
    }
    return best;
}

dunlin_status dunlin__packer_open(uint32_t n_max, const dunlin_alloc *alloc,
                                  dunlin_packer *out_packer, dunlin_error *error)
{
    dunlin_packer packer = {.alloc = *alloc, .n_max = n_max};
    packer.order = dunlin__alloc_array(alloc, n_max, sizeof *packer.order);
    packer.placed = dunlin__alloc_array(alloc, n_max, sizeof *packer.placed);
    packer.offsets = dunlin__alloc_array(alloc, n_max, sizeof *packer.offsets);
    *out_packer = packer;
    if (packer.order == NULL || packer.placed == NULL || packer.offsets == NULL) {
        dunlin__packer_close(out_packer);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0, "no memory to pack %u blocks",
                            (unsigned)n_max);
    }
    return DUNLIN_OK;
}

void dunlin__packer_close(dunlin_packer *packer)
{
    dunlin__free_array(&packer->alloc, packer->offsets, packer->n_max, sizeof *packer->offsets);
    dunlin__free_array(&packer->alloc, packer->placed, packer->n_max, sizeof *packer->placed);
    dunlin__free_array(&packer->alloc, packer->order, packer->n_max, sizeof *packer->order);
    memset(packer, 0, sizeof *packer);
}
