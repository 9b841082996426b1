/*
 * barriers.c - which ops wait for a finished reduction.
 *
 * Invariant: a tensor shares its bytes with its parents and with all its parts, so marks reach all
 * of them.
 */
#include "barriers.h"

#include <mem/support.h>

#include <string.h>

/* What earlier ops with map or reduce parts, and FIXED ops that depend on them, did to a tensor. */
enum { LATE_CHANGED = 1, LATE_READ = 2 };

static void list_parts(dunlin_barrier_map *map)
{
    const dunlin_mem_graph *graph = map->graph;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        map->first_part[t] = DUNLIN_MEM_NONE;
    }
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        uint32_t parent = graph->tensors[t].parent;
        map->next_part[t] = DUNLIN_MEM_NONE;
        if (parent != DUNLIN_MEM_NONE) {
            map->next_part[t] = map->first_part[parent];
            map->first_part[parent] = t;
        }
    }
}

/* Marks a tensor, its parents and all its parts. */
static void mark(dunlin_barrier_map *map, uint32_t tensor, uint8_t bits)
{
    const dunlin_mem_tensor *tensors = map->graph->tensors;
    for (uint32_t t = tensors[tensor].parent; t != DUNLIN_MEM_NONE; t = tensors[t].parent) {
        map->marks[t] |= bits;
    }
    uint32_t at = tensor;
    for (;;) {
        map->marks[at] |= bits;
        if (map->first_part[at] != DUNLIN_MEM_NONE) {
            at = map->first_part[at];
            continue;
        }
        while (at != tensor && map->next_part[at] == DUNLIN_MEM_NONE) {
            at = tensors[at].parent;
        }
        if (at == tensor) {
            return;
        }
        at = map->next_part[at];
    }
}

static bool is_access_late(const dunlin_barrier_map *map, const dunlin_mem_access *access)
{
    uint8_t marks = map->marks[access->tensor];
    bool is_read = access->mode == DUNLIN_MEM_READ;
    return (marks & (is_read ? LATE_CHANGED : LATE_CHANGED | LATE_READ)) != 0;
}

void dunlin__barrier_mark(dunlin_barrier_map *map, const dunlin_mem_op *op)
{
    for (uint32_t v = 0; v < op->n_variants; v++) {
        for (uint32_t a = 0; a < op->variants[v].n_accesses; a++) {
            const dunlin_mem_access *access = &op->variants[v].accesses[a];
            if (!dunlin__mem_is_sliced(&map->graph->tensors[access->tensor])) {
                mark(map, access->tensor,
                     access->mode == DUNLIN_MEM_READ ? LATE_READ : LATE_CHANGED);
            }
        }
    }
}

bool dunlin__barrier_waits(const dunlin_barrier_map *map, const dunlin_mem_op *op)
{
    for (uint32_t v = 0; v < op->n_variants; v++) {
        for (uint32_t a = 0; a < op->variants[v].n_accesses; a++) {
            const dunlin_mem_access *access = &op->variants[v].accesses[a];
            bool may_wait = op->parts == DUNLIN_MEM_FIXED || access->mode == DUNLIN_MEM_READ;
            if (may_wait && !dunlin__mem_is_sliced(&map->graph->tensors[access->tensor]) &&
                is_access_late(map, access)) {
                return true;
            }
        }
    }
    return false;
}

void dunlin__barrier_clear(dunlin_barrier_map *map)
{
    memset(map->marks, 0, map->graph->n_tensors);
}

dunlin_status dunlin__barrier_open(const dunlin_mem_graph *graph, const dunlin_alloc *alloc,
                                   dunlin_barrier_map *out_map, dunlin_error *error)
{
    size_t n = graph->n_tensors;
    *out_map = (dunlin_barrier_map){.graph = graph, .alloc = *alloc};
    out_map->first_part = dunlin__alloc_array(alloc, n, sizeof *out_map->first_part);
    out_map->next_part = dunlin__alloc_array(alloc, n, sizeof *out_map->next_part);
    out_map->marks = dunlin__alloc_zeroed(alloc, n, sizeof *out_map->marks);
    if (out_map->first_part == NULL || out_map->next_part == NULL || out_map->marks == NULL) {
        dunlin__barrier_close(out_map);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                            "no memory to look for barriers among %zu tensors", n);
    }
    list_parts(out_map);
    return DUNLIN_OK;
}

void dunlin__barrier_close(dunlin_barrier_map *map)
{
    size_t n = map->graph->n_tensors;
    dunlin__free_array(&map->alloc, map->marks, n, sizeof *map->marks);
    dunlin__free_array(&map->alloc, map->next_part, n, sizeof *map->next_part);
    dunlin__free_array(&map->alloc, map->first_part, n, sizeof *map->first_part);
}
