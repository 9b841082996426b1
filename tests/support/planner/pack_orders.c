/*
 * pack_orders.c - published ways to give blocks addresses, each by itself.
 *
 * Invariant: a block's offset is final once it is set.
 */
#include "pack_orders.h"

#include <stdlib.h>

typedef struct {
    const dunlin_pack_block *blocks;
    uint64_t *offsets;
    uint32_t *order;
    uint32_t *by_offset;
    uint32_t n;
} problem;

static bool do_meet(const dunlin_pack_block *a, const dunlin_pack_block *b)
{
    return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

static uint64_t life_of(const dunlin_pack_block *block)
{
    return (uint64_t)block->last_step - block->first_step;
}

static bool is_longer(const dunlin_pack_block *a, const dunlin_pack_block *b)
{
    return life_of(a) != life_of(b) ? life_of(a) > life_of(b) : a->bytes > b->bytes;
}

static bool is_larger(const dunlin_pack_block *a, const dunlin_pack_block *b)
{
    return a->bytes > b->bytes;
}

static bool is_earlier(const dunlin_pack_block *a, const dunlin_pack_block *b)
{
    return a->first_step != b->first_step ? a->first_step < b->first_step
                                          : a->last_step > b->last_step;
}

static void sort(problem *p,
                 bool (*goes_first)(const dunlin_pack_block *a, const dunlin_pack_block *b))
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t at = i;
        for (; at > 0 && goes_first(&p->blocks[i], &p->blocks[p->order[at - 1]]); at--) {
            p->order[at] = p->order[at - 1];
        }
        p->order[at] = i;
    }
}

/* Adds the i-th of the order to those sorted by offset. */
static void put(problem *p, uint32_t i)
{
    uint32_t block = p->order[i];
    uint32_t at = i;
    for (; at > 0 && p->offsets[p->by_offset[at - 1]] > p->offsets[block]; at--) {
        p->by_offset[at] = p->by_offset[at - 1];
    }
    p->by_offset[at] = block;
}

static uint64_t end_of(const problem *p, uint32_t block)
{
    return p->offsets[block] + p->blocks[block].bytes;
}

static uint64_t fit(problem *p, bool is_best)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t block = p->order[i];
        uint64_t gap = 0; /* the current gap begins here */
        uint64_t chosen = UINT64_MAX;
        uint64_t chosen_room = UINT64_MAX;
        for (uint32_t k = 0; k < i; k++) {
            uint32_t other = p->by_offset[k];
            if (!do_meet(&p->blocks[block], &p->blocks[other])) {
                continue;
            }
            uint64_t room = p->offsets[other] > gap ? p->offsets[other] - gap : 0;
            if (room >= p->blocks[block].bytes &&
                (chosen == UINT64_MAX || (is_best && room < chosen_room))) {
                chosen = gap;
                chosen_room = room;
            }
            gap = end_of(p, other) > gap ? end_of(p, other) : gap;
        }
        p->offsets[block] = chosen != UINT64_MAX ? chosen : gap;
        put(p, i);
        height = end_of(p, block) > height ? end_of(p, block) : height;
    }
    return height;
}

/* On top of everything, unless the range of a dead block of the same size is free. */
static uint64_t stack(problem *p)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t block = p->order[i];
        uint64_t chosen = UINT64_MAX;
        for (uint32_t k = 0; k < i && chosen == UINT64_MAX; k++) {
            uint32_t old = p->order[k];
            bool is_free = p->blocks[old].bytes == p->blocks[block].bytes &&
                           !do_meet(&p->blocks[old], &p->blocks[block]);
            for (uint32_t j = k + 1; j < i && is_free; j++) {
                /* Ranges are the same or apart. */
                is_free = p->offsets[p->order[j]] != p->offsets[old] ||
                          !do_meet(&p->blocks[p->order[j]], &p->blocks[block]);
            }
            chosen = is_free ? p->offsets[old] : chosen;
        }
        p->offsets[block] = chosen != UINT64_MAX ? chosen : height;
        height = end_of(p, block) > height ? end_of(p, block) : height;
    }
    return height;
}

const char *pack_order_name(uint32_t order)
{
    static const char *const names[PACK_N_ORDERS] = {"melon", "size best fit", "size first fit",
                                                     "start reuse"};
    return order < PACK_N_ORDERS ? names[order] : NULL;
}

uint64_t pack_by_order(uint32_t order, const dunlin_pack_block *blocks, uint32_t n_blocks)
{
    problem p = {.blocks = blocks, .n = n_blocks};
    p.offsets = calloc((size_t)n_blocks + 1, sizeof *p.offsets);
    p.order = calloc((size_t)n_blocks + 1, sizeof *p.order);
    p.by_offset = calloc((size_t)n_blocks + 1, sizeof *p.by_offset);
    if (p.offsets == NULL || p.order == NULL || p.by_offset == NULL) {
        abort();
    }
    uint64_t height = 0;
    if (order == 0) {
        sort(&p, is_longer);
    } else {
        sort(&p, order == 3 ? is_earlier : is_larger);
    }
    if (order == 3) {
        height = stack(&p);
    } else {
        height = fit(&p, order != 2);
    }
    free(p.by_offset);
    free(p.order);
    free(p.offsets);
    return height;
}

bool pack_is_apart(const dunlin_pack_block *blocks, uint32_t n_blocks, uint64_t height)
{
    for (uint32_t a = 0; a < n_blocks; a++) {
        if (blocks[a].offset_bytes + blocks[a].bytes > height) {
            return false;
        }
        for (uint32_t b = 0; b < a; b++) {
            if (do_meet(&blocks[a], &blocks[b]) &&
                blocks[a].offset_bytes < blocks[b].offset_bytes + blocks[b].bytes &&
                blocks[b].offset_bytes < blocks[a].offset_bytes + blocks[a].bytes) {
                return false;
            }
        }
    }
    return true;
}
