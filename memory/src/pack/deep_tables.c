/*
 * deep_tables.c - the tables of the depth-first search: their memory, how a core's blocks fill
 * them, and their state before anything is placed.
 */
#include "deep.h"

#include <mem/support.h>

#include <string.h>

#define LOG_PER_BLOCK 96

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

bool dunlin__pack_deep_prepare(dunlin_pack_deep *deep, const dunlin_pack_core *core,
                               const dunlin_deep_options *options)
{
    if (!take_blocks(deep, core, options)) {
        return false;
    }
    uint64_t n_changes = deep->n; /* at most, on one path: placed, and raised by each other */
    memset(deep->meets, 0, (size_t)deep->n * deep->n_words * sizeof *deep->meets);
    for (uint32_t a = 0; a < deep->n; a++) {
        /* Sorted: those that begin in a's live range come right after it. */
        for (uint32_t b = a + 1;
             b < deep->n && deep->blocks[b].first_step <= deep->blocks[a].last_step; b++) {
            deep->meets[(size_t)a * deep->n_words + b / 64] |= UINT64_C(1) << (b % 64);
            deep->meets[(size_t)b * deep->n_words + a / 64] |= UINT64_C(1) << (a % 64);
            n_changes++;
        }
    }
    return n_changes <= max_log(deep->n_max);
}

void dunlin__pack_deep_reset(dunlin_pack_deep *deep)
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
