/*
 * summary.c - what is alive where the pool is fullest.
 *
 * Invariant: an output written in place of its input is not counted beside it. Takes no scratch:
 * each step looks at all allocations.
 */
#include "summary.h"

#include <string.h>

/* The allocation that the step writes over another's, or NONE. */
static uint32_t find_shared(const dunlin_mem_graph *graph, const dunlin_plan *plan, uint32_t step)
{
    const dunlin_plan_step *at = &plan->steps[step];
    const dunlin_mem_variant *variant = &graph->ops[at->op].variants[at->variant];
    if (variant->in_place_write < 0) {
        return DUNLIN_MEM_NONE;
    }
    uint32_t write = plan->operands[at->first_operand + (uint32_t)variant->in_place_write];
    uint32_t read = plan->operands[at->first_operand + (uint32_t)variant->in_place_read];
    bool is_shared = write != DUNLIN_MEM_NONE && read != DUNLIN_MEM_NONE && write != read &&
                     plan->places[write].offset_bytes == plan->places[read].offset_bytes;
    return is_shared ? write : DUNLIN_MEM_NONE;
}

bool dunlin__is_persistent_place(const dunlin_mem_graph *graph, const dunlin_plan_allocation *place)
{
    return place->tensor != DUNLIN_MEM_NONE &&
           dunlin__mem_is_static(&graph->tensors[place->tensor]);
}

uint64_t dunlin__live_bytes(const dunlin_mem_graph *graph, const dunlin_plan *plan, uint32_t step)
{
    uint32_t shared = find_shared(graph, plan, step);
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        if (place->first_step <= step && step <= place->last_step && p != shared &&
            !dunlin__is_persistent_place(graph, place)) {
            bytes += place->bytes;
        }
    }
    return bytes;
}

void dunlin__plan_summarize(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                            dunlin_plan_summary *out_summary)
{
    memset(out_summary, 0, sizeof *out_summary);
    uint64_t highest = 0;
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        uint64_t bytes = dunlin__live_bytes(graph, plan, k);
        if (bytes > highest) {
            highest = bytes;
            out_summary->peak_step = k;
        }
    }
    uint32_t peak = out_summary->peak_step;
    uint32_t shared = find_shared(graph, plan, peak);
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        if (place->first_step <= peak && peak <= place->last_step && p != shared) {
            dunlin_mem_class mem_class = place->tensor == DUNLIN_MEM_NONE
                                             ? DUNLIN_MEM_WORKSPACE
                                             : graph->tensors[place->tensor].mem_class;
            out_summary->class_bytes[mem_class] += place->bytes;
        }
    }
    out_summary->padding_bytes = plan->pool_bytes > highest ? plan->pool_bytes - highest : 0;
}
