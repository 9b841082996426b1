/*
 * summary.h - live bytes of a plan's steps, for the summary, the dump and the drawing.
 */
#ifndef DUNLIN_MEM_SUMMARY_H
#define DUNLIN_MEM_SUMMARY_H

#include <mem/plan.h>

/* Bytes of the pool alive at a step. */
uint64_t dunlin__live_bytes(const dunlin_mem_graph *graph, const dunlin_plan *plan, uint32_t step);

bool dunlin__is_persistent_place(const dunlin_mem_graph *graph, const dunlin_plan_place *place);

#endif
