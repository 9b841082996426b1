/*
 * operands.c - the bytes that the operations of a step go through.
 *
 * Invariant: derived from the graph and the finished plan alone. Takes no scratch.
 */
#include "schedule/schedule.h"

/* Of one access in a step of `n_slices` slices of a loop over n samples. */
static uint64_t access_bytes(const dunlin_mem_graph *graph, const dunlin_mem_access *access,
                             uint64_t n, uint64_t n_slices)
{
    const dunlin_mem_tensor *tensor = &graph->tensors[access->tensor];
    const bool is_twice =
        access->mode == DUNLIN_MEM_ACCUMULATE || access->mode == DUNLIN_MEM_UPDATE;
    const uint64_t bytes =
        tensor->sample_bytes > 0 ? tensor->sample_bytes * n : tensor->fixed_bytes * n_slices;
    return is_twice ? 2 * bytes : bytes;
}

uint64_t dunlin__plan_operand_bytes(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                                    uint64_t n)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            const dunlin_plan_step *step = &plan->steps[k];
            const dunlin_mem_variant *variant = &graph->ops[step->op].variants[step->variant];
            const bool is_once = loop->slice_samples == 0 || step->parts == DUNLIN_MEM_FIXED;
            const uint64_t n_slices = is_once ? 1 : dunlin__loop_n_slices(loop, n);
            if (dunlin__mem_swap_of(graph, step->op) != DUNLIN_MEM_SWAP_NO) {
                continue;
            }
            for (uint32_t a = 0; a < variant->n_accesses; a++) {
                const dunlin_mem_access *access = &variant->accesses[a];
                if ((access->parts & step->parts) != 0) {
                    sum += access_bytes(graph, access, n, n_slices);
                }
            }
        }
    }
    return sum;
}
