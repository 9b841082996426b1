/*
 * barriers.h - which ops wait for a reduction over the whole batch, directly or through FIXED ops.
 */
#ifndef DUNLIN_MEM_LATE_H
#define DUNLIN_MEM_LATE_H

#include <dunlin/alloc.h>
#include <mem/graph.h>

/* What marked ops did to each tensor; parts as lists: a parent and its parts share their bytes. */
typedef struct dunlin_barrier_map {
    const dunlin_mem_graph *graph;
    dunlin_alloc alloc;
    uint32_t *first_part;
    uint32_t *next_part;
    uint8_t *marks;
} dunlin_barrier_map;

/* A map without marks. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__barrier_open(const dunlin_mem_graph *graph,
                                                    const dunlin_alloc *alloc,
                                                    dunlin_barrier_map *out_map,
                                                    dunlin_error *error);
void dunlin__barrier_close(dunlin_barrier_map *map);

/* Takes all marks away. */
void dunlin__barrier_clear(dunlin_barrier_map *map);

/* What depends on this op's reductions, or on what it changes, comes after the barrier from here
 * on. */
void dunlin__barrier_mark(dunlin_barrier_map *map, const dunlin_mem_op *op);

/* For a FIXED op: it has to come after the marked ones. For another: it waits for such a one. */
bool dunlin__barrier_waits(const dunlin_barrier_map *map, const dunlin_mem_op *op);

#endif
