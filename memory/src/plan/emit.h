/*
 * emit.h - writes a packed schedule down as a plan.
 */
#ifndef DUNLIN_MEM_EMIT_H
#define DUNLIN_MEM_EMIT_H

#include "schedule/live_ranges.h"

/* The plan's head: what it holds beside its steps. */
typedef struct dunlin_emit_head {
    dunlin_plan_policy policy;
    uint64_t pool_bytes;
    uint64_t pool_lower_bound_bytes;
    const char *packing;
} dunlin_emit_head;

/* Bytes of all persistent tensors, each rounded up. */
uint64_t dunlin__persistent_bytes(const dunlin_mem_graph *graph);

/* A copy of a plan's head with room for its arrays, in one block of memory; NULL without. */
dunlin_plan *dunlin__plan_allocate(const dunlin_plan *counted, const dunlin_alloc *alloc);

/* The plan is one block of memory. `live->blocks` hold their offsets within the pool. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__plan_emit(const dunlin_mem_graph *graph,
                                                 const dunlin_schedule *schedule,
                                                 const dunlin_live *live,
                                                 const dunlin_emit_head *head,
                                                 const dunlin_alloc *alloc, dunlin_plan **out_plan,
                                                 dunlin_error *error);

#endif
