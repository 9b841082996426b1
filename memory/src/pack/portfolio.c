/*
 * portfolio.c - the greedy portfolio, and the choice of the search that follows it.
 *
 * Invariant: the blocks always hold the offsets of the lowest packing seen in the call.
 * Sources: size order with best fit: Pisarchyk and Lee, "Efficient Memory Management for Deep
 * Neural Net Inference", 2020; longest live range first: Wang et al., "Melon", MobiSys 2022,
 * section 4.
 */
#include "core.h"

#include <mem/support.h>

#include <string.h>

typedef enum {
    KEY_LIVE_RANGE, /* longest first */
    KEY_SIZE,       /* largest first */
    KEY_AREA,       /* live range times bytes, largest first */
    KEY_EARLY_START,
    KEY_LATE_START,
    KEY_EARLY_END,
    KEY_LATE_END
} sort_key;

typedef struct {
    const char *name;
    sort_key keys[2]; /* the second decides among equals */
    dunlin_pack_fit fit;
} method_row;

/* Ordered by their success on plans of real networks: each of the first members has packed some
 * networks optimally that the members before it had not. */
static const method_row methods[] = {
    {"longest life then size, first fit", {KEY_LIVE_RANGE, KEY_SIZE}, DUNLIN_FIRST_FIT},
    {"size, first fit", {KEY_SIZE, KEY_EARLY_START}, DUNLIN_FIRST_FIT},
    {"area, first fit", {KEY_AREA, KEY_SIZE}, DUNLIN_FIRST_FIT},
    {"end then longest life, first fit", {KEY_EARLY_END, KEY_LIVE_RANGE}, DUNLIN_FIRST_FIT},
    {"size then longest life, first fit", {KEY_SIZE, KEY_LIVE_RANGE}, DUNLIN_FIRST_FIT},
    {"latest start then end, first fit", {KEY_LATE_START, KEY_EARLY_END}, DUNLIN_FIRST_FIT},
    {"longest life then size, best fit", {KEY_LIVE_RANGE, KEY_SIZE}, DUNLIN_BEST_FIT},
    {"size, best fit", {KEY_SIZE, KEY_EARLY_START}, DUNLIN_BEST_FIT},
    {"size then longest life, best fit", {KEY_SIZE, KEY_LIVE_RANGE}, DUNLIN_BEST_FIT},
    {"area, best fit", {KEY_AREA, KEY_SIZE}, DUNLIN_BEST_FIT},
    {"latest start then end, best fit", {KEY_LATE_START, KEY_EARLY_END}, DUNLIN_BEST_FIT},
    {"end then longest life, best fit", {KEY_EARLY_END, KEY_LIVE_RANGE}, DUNLIN_BEST_FIT},
    {"latest end then start, first fit", {KEY_LATE_END, KEY_EARLY_START}, DUNLIN_FIRST_FIT},
    {"latest end then start, best fit", {KEY_LATE_END, KEY_EARLY_START}, DUNLIN_BEST_FIT},
    {"start then latest end, first fit", {KEY_EARLY_START, KEY_LATE_END}, DUNLIN_FIRST_FIT},
    {"start then latest end, best fit", {KEY_EARLY_START, KEY_LATE_END}, DUNLIN_BEST_FIT},
    {"start then size, first fit", {KEY_EARLY_START, KEY_SIZE}, DUNLIN_FIRST_FIT},
    {"start then size, best fit", {KEY_EARLY_START, KEY_SIZE}, DUNLIN_BEST_FIT},
};
#define N_METHODS ((uint32_t)(sizeof methods / sizeof methods[0]))
#define N_QUICK 3 /* of them before the first search */

/* A key as a number: what comes first has the greatest. */
static uint64_t key_value(const dunlin_pack_block *block, sort_key key)
{
    const uint64_t live_range = (uint64_t)block->last_step - block->first_step + 1;
    switch (key) {
    case KEY_LIVE_RANGE:
        return live_range;
    case KEY_SIZE:
        return block->bytes;
    case KEY_AREA: {
        /* A positive double's bits grow with it, and the product may be too large for 64 bits. */
        const double area = (double)live_range * (double)block->bytes;
        uint64_t bits = 0;
        memcpy(&bits, &area, sizeof bits);
        return bits;
    }
    case KEY_EARLY_START:
        return UINT32_MAX - block->first_step;
    case KEY_LATE_START:
        return block->first_step;
    case KEY_EARLY_END:
        return UINT32_MAX - block->last_step;
    case KEY_LATE_END:
    default:
        return block->last_step;
    }
}

static bool comes_before(const uint64_t *keys, uint32_t a, uint32_t b)
{
    const uint64_t *key_a = &keys[2 * (size_t)a];
    const uint64_t *key_b = &keys[2 * (size_t)b];
    if (key_a[0] != key_b[0]) {
        return key_a[0] > key_b[0];
    }
    if (key_a[1] != key_b[1]) {
        return key_a[1] > key_b[1];
    }
    return a < b;
}

/* Merges order[low, middle) and order[middle, high) by way of `merged`. */
static void merge(uint32_t *order, uint32_t *merged, const uint64_t *keys, const uint32_t cuts[3])
{
    uint32_t left = cuts[0];
    uint32_t right = cuts[1];
    for (uint32_t i = cuts[0]; i < cuts[2]; i++) {
        bool takes_left =
            right == cuts[2] || (left < cuts[1] && comes_before(keys, order[left], order[right]));
        merged[i] = takes_left ? order[left++] : order[right++];
    }
    memcpy(&order[cuts[0]], &merged[cuts[0]], (cuts[2] - cuts[0]) * sizeof *order);
}

/* Merge sort from below; block numbers decide last, so the order is one and the same everywhere. */
static void sort_order(dunlin_packer *packer, const dunlin_pack_block *blocks, uint32_t n,
                       const method_row *method)
{
    for (uint32_t b = 0; b < n; b++) {
        packer->order[b] = b;
        packer->keys[2 * (size_t)b] = key_value(&blocks[b], method->keys[0]);
        packer->keys[2 * (size_t)b + 1] = key_value(&blocks[b], method->keys[1]);
    }
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t low = 0; low + width < n; low += 2 * width) {
            uint32_t high = n - low > 2 * width ? low + 2 * width : n;
            const uint32_t cuts[3] = {low, low + width, high};
            if (comes_before(packer->keys, packer->order[cuts[1]], packer->order[cuts[1] - 1])) {
                merge(packer->order, packer->merged, packer->keys, cuts);
            }
        }
    }
}

const char *dunlin__pack_name(uint32_t method)
{
    return method < N_METHODS ? methods[method].name : NULL;
}

uint32_t dunlin__pack_find(const char *name)
{
    for (uint32_t m = 0; m < N_METHODS; m++) {
        if (strcmp(methods[m].name, name) == 0) {
            return m;
        }
    }
    return UINT32_MAX;
}

uint64_t dunlin__pack_by(dunlin_packer *packer, uint32_t method, dunlin_pack_block *blocks,
                         uint32_t n_blocks, uint64_t limit_bytes)
{
    sort_order(packer, blocks, n_blocks, &methods[method]);
    const dunlin_pack_job job = {.blocks = blocks,
                                 .order = packer->order,
                                 .n_blocks = n_blocks,
                                 .pile = packer->pile,
                                 .offsets = packer->offsets};
    uint64_t n_moves = 0;
    uint64_t height = dunlin__pack_place_all(&job, methods[method].fit, limit_bytes, &n_moves);
    for (uint32_t b = 0; b < n_blocks && height != UINT64_MAX; b++) {
        blocks[b].offset_bytes = packer->offsets[b];
    }
    return height;
}

typedef struct {
    dunlin_packer *packer;
    dunlin_pack_block *blocks;
    uint32_t n_blocks;
    uint64_t enough; /* nothing lower is asked for */
    uint64_t best;   /* height of the blocks' offsets */
    const char *name;
} search_state;

/* Members [first, end), until one is low enough; at least one if nothing is packed yet. */
static void pack_portfolio(search_state *search, uint32_t first, uint32_t end)
{
    for (uint32_t m = first;
         m < end && (search->best > search->enough || search->best == UINT64_MAX); m++) {
        const uint64_t height =
            dunlin__pack_by(search->packer, m, search->blocks, search->n_blocks, search->best);
        if (height < search->best) {
            search->best = height;
            search->name = methods[m].name;
        }
    }
}

uint64_t dunlin__pack(dunlin_packer *packer, dunlin_pack_block *blocks, uint32_t n_blocks,
                      uint64_t lower_bound_bytes, const char **out_name)
{
    const dunlin_pack_goal goal = {.lower_bound_bytes = lower_bound_bytes};
    return dunlin__pack_within(packer, blocks, n_blocks, &goal, out_name);
}

/* --- the searches --- */

/* Adopts the core's packing if it makes the whole lower. */
static void keep(search_state *search, const char *name)
{
    dunlin_packer *packer = search->packer;
    if (dunlin__pack_core_height(packer->core) < search->best) {
        search->best = dunlin__pack_core_finish(packer->core, search->blocks, search->n_blocks);
        search->name = name;
    }
}

/* Makes the core for a capacity below the best, and keeps what a search makes of it. */
static dunlin_deep_result search_coarse(search_state *search, uint64_t capacity_bytes,
                                        uint64_t max_moves)
{
    dunlin_pack_core *core = search->packer->core;
    dunlin__pack_core_make(core, search->blocks, search->n_blocks, capacity_bytes);
    dunlin_deep_result result = dunlin__pack_coarse(core, max_moves, &search->packer->n_moves);
    keep(search, "large blocks depth first");
    return result;
}

static dunlin_deep_result search_both(search_state *search, uint64_t capacity_bytes,
                                      uint64_t max_moves)
{
    dunlin_packer *packer = search->packer;
    const uint64_t limit = packer->n_moves + max_moves;
    dunlin_deep_result result = search_coarse(search, capacity_bytes, max_moves / 2);
    if (result == DUNLIN_DEEP_OPEN && packer->n_moves < limit) {
        packer->n_moves += dunlin__pack_local(packer->core, limit - packer->n_moves);
        keep(search, "critical blocks earlier");
        result = search->best <= capacity_bytes ? DUNLIN_DEEP_FOUND : result;
    }
    return result;
}

/* Halfway between what is known to be too low, or was not found, and the best. */
static void search_lower(search_state *search, uint64_t max_moves)
{
    const uint64_t *n_moves = &search->packer->n_moves;
    uint64_t low = search->enough;
    while (search->best > search->enough && *n_moves < max_moves) {
        uint64_t middle = low + (search->best - low) / 2;
        if (middle == low) {
            return;
        }
        if (search_both(search, middle, (max_moves - *n_moves + 1) / 2) != DUNLIN_DEEP_FOUND) {
            low = middle;
        }
    }
}

uint64_t dunlin__pack_within(dunlin_packer *packer, dunlin_pack_block *blocks, uint32_t n_blocks,
                             const dunlin_pack_goal *goal, const char **out_name)
{
    const uint64_t bound = goal->lower_bound_bytes;
    search_state search = {.packer = packer,
                           .blocks = blocks,
                           .n_blocks = n_blocks,
                           .enough = goal->target_bytes > bound ? goal->target_bytes : bound,
                           .best = UINT64_MAX,
                           .name = methods[0].name};
    packer->n_moves = 0;
    pack_portfolio(&search, 0, N_QUICK);
    if (search.best > search.enough && goal->max_moves > 0) {
        (void)search_coarse(&search, search.enough, goal->max_moves / 4 * 3);
    }
    /* Of over a thousand trials none reached its target by what follows. */
    if (goal->is_trial) {
        *out_name = search.name;
        return search.best;
    }
    pack_portfolio(&search, N_QUICK, N_METHODS);
    if (search.best > search.enough && packer->n_moves < goal->max_moves) {
        (void)search_both(&search, search.enough, (goal->max_moves - packer->n_moves) / 4 * 3);
        search_lower(&search, goal->max_moves);
    }
    *out_name = search.name;
    return search.best;
}

/* --- scratch --- */

dunlin_status dunlin__packer_open(uint32_t n_max, const dunlin_alloc *alloc,
                                  dunlin_packer *out_packer, dunlin_error *error)
{
    dunlin_packer packer = {.alloc = *alloc, .n_max = n_max};
    size_t n = n_max;
    packer.order = dunlin__alloc_array(alloc, n, sizeof *packer.order);
    packer.merged = dunlin__alloc_array(alloc, n, sizeof *packer.merged);
    packer.keys = dunlin__alloc_array(alloc, 2 * n, sizeof *packer.keys);
    packer.offsets = dunlin__alloc_array(alloc, n, sizeof *packer.offsets);
    *out_packer = packer;
    dunlin_status status = DUNLIN_OK;
    if (packer.order == NULL || packer.merged == NULL || packer.keys == NULL ||
        packer.offsets == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "plan", 0, "no memory to pack %u blocks",
                              (unsigned)n_max);
    } else {
        status = dunlin__pack_pile_open(n_max, alloc, &out_packer->pile, error);
        if (status == DUNLIN_OK) {
            status =
                dunlin__pack_core_open(n_max, out_packer->pile, alloc, &out_packer->core, error);
        }
    }
    if (status != DUNLIN_OK) {
        dunlin__packer_close(out_packer);
    }
    return status;
}

void dunlin__packer_close(dunlin_packer *packer)
{
    size_t n = packer->n_max;
    dunlin__pack_core_close(packer->core, &packer->alloc);
    dunlin__pack_pile_close(packer->pile, &packer->alloc);
    dunlin__free_array(&packer->alloc, packer->offsets, n, sizeof *packer->offsets);
    dunlin__free_array(&packer->alloc, packer->keys, 2 * n, sizeof *packer->keys);
    dunlin__free_array(&packer->alloc, packer->merged, n, sizeof *packer->merged);
    dunlin__free_array(&packer->alloc, packer->order, n, sizeof *packer->order);
    memset(packer, 0, sizeof *packer);
}
