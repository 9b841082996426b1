/*
 * summary.h - live bytes of a plan's steps, for the summary, the dump and the drawing.
 */
#ifndef DUNLIN_MEM_SUMMARY_H
#define DUNLIN_MEM_SUMMARY_H

#include <mem/plan.h>

/* Bytes of the pool alive at a step. */
uint64_t dunlin__live_bytes(const dunlin_mem_graph *graph, const dunlin_plan *plan, uint32_t step);

bool dunlin__is_persistent_place(const dunlin_mem_graph *graph,
                                 const dunlin_plan_allocation *place);

/* --- report/account.c --- */

/* Whether the step recomputes: it runs a map part again. */
bool dunlin__is_recompute_step(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                               uint32_t step);

/* Whether the allocation holds a recomputed instance, which such a step begins. */
bool dunlin__is_recomputed(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                           const dunlin_plan_allocation *place);

/* The number of steps if there is none. */
uint32_t dunlin__first_backward_step(const dunlin_mem_graph *graph, const dunlin_plan *plan);

#endif
