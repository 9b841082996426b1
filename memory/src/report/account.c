/*
 * account.c - what a plan retains, what it recomputes, the cost, and the lower bound of bytes of
 * every plan.
 *
 * Invariant: derived from the graph and the finished plan alone, however it was found. Takes no
 * scratch, so it can be asked for when a budget is used up.
 */
#include "plan/emit.h"
#include "plan/summary.h"
#include "schedule/schedule.h"

bool dunlin__is_recompute_step(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                               uint32_t step)
{
    const dunlin_plan_step *at = &plan->steps[step];
    if ((at->parts & DUNLIN_MEM_MAP) == 0 ||
        dunlin__mem_swap_of(graph, at->op) != DUNLIN_MEM_SWAP_NO) {
        return false;
    }
    for (uint32_t k = 0; k < step; k++) {
        if (plan->steps[k].op == at->op && (plan->steps[k].parts & DUNLIN_MEM_MAP) != 0) {
            return true;
        }
    }
    return false;
}

bool dunlin__is_recomputed(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                           const dunlin_plan_allocation *place)
{
    return place->tensor != DUNLIN_MEM_NONE && !dunlin__is_persistent_place(graph, place) &&
           dunlin__is_recompute_step(graph, plan, place->first_step);
}

/* --- the floor --- */

static uint32_t root_of(const dunlin_mem_graph *graph, uint32_t tensor)
{
    while (graph->tensors[tensor].parent != DUNLIN_MEM_NONE) {
        tensor = graph->tensors[tensor].parent;
    }
    return tensor;
}

static bool touches(const dunlin_mem_graph *graph, const dunlin_mem_variant *variant, uint32_t end,
                    uint32_t root)
{
    for (uint32_t a = 0; a < end; a++) {
        if (root_of(graph, variant->accesses[a].tensor) == root) {
            return true;
        }
    }
    return false;
}

/* Whether one of ops [first, end), by their first variants, touches it. All variants of an op
 * change the same tensors, so the makers of a tensor are among them. */
static bool is_touched(const dunlin_mem_graph *graph, uint32_t first, uint32_t end, uint32_t root)
{
    for (uint32_t i = first; i < end; i++) {
        const dunlin_mem_variant *variant = &graph->ops[i].variants[0];
        if (touches(graph, variant, variant->n_accesses, root)) {
            return true;
        }
    }
    return false;
}

/* Batched roots a variant touches, and its workspace; its fixed ones are counted by the caller. */
static uint64_t working_bytes(const dunlin_mem_graph *graph, const dunlin_mem_variant *variant,
                              uint64_t slice_samples)
{
    uint64_t bytes = dunlin__workspace_bytes(variant, slice_samples);
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        uint32_t root = root_of(graph, variant->accesses[a].tensor);
        if (dunlin__mem_is_sliced(&graph->tensors[root]) && !touches(graph, variant, a, root)) {
            bytes += dunlin__tensor_bytes(&graph->tensors[root], slice_samples);
        }
    }
    return bytes;
}

/* Bytes that an output written in place saves at most. */
static uint64_t in_place_bytes(const dunlin_mem_graph *graph, const dunlin_mem_variant *variant,
                               uint64_t slice_samples)
{
    if (variant->in_place_write < 0) {
        return 0;
    }
    uint32_t read = variant->accesses[variant->in_place_read].tensor;
    return dunlin__mem_is_static(&graph->tensors[read])
               ? 0
               : dunlin__tensor_bytes(&graph->tensors[read], slice_samples);
}

/* Fixed tensors of the step that op `op` is the first (`is_first`) or the last to touch. */
static uint64_t edge_bytes(const dunlin_mem_graph *graph, uint32_t op, bool is_first)
{
    const dunlin_mem_variant *variant = &graph->ops[op].variants[0];
    uint64_t bytes = 0;
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        uint32_t root = root_of(graph, variant->accesses[a].tensor);
        const dunlin_mem_tensor *tensor = &graph->tensors[root];
        if (dunlin__mem_is_sliced(tensor) || dunlin__mem_is_static(tensor) ||
            touches(graph, variant, a, root)) {
            continue;
        }
        if (is_first ? !is_touched(graph, 0, op, root)
                     : !is_touched(graph, op + 1, graph->n_ops, root)) {
            bytes += dunlin__tensor_bytes(tensor, 0);
        }
    }
    return bytes;
}

uint64_t dunlin__graph_floor_bytes(const dunlin_mem_graph *graph, uint64_t slice_samples)
{
    uint64_t fixed = 0;
    uint64_t highest = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_op *op = &graph->ops[i];
        uint64_t least = UINT64_MAX;
        fixed += edge_bytes(graph, i, true);
        for (uint32_t v = 0; v < op->n_variants; v++) {
            const dunlin_mem_variant *variant = &op->variants[v];
            uint64_t bytes = fixed + working_bytes(graph, variant, slice_samples) -
                             in_place_bytes(graph, variant, slice_samples);
            least = bytes < least ? bytes : least;
        }
        highest = least > highest ? least : highest;
        fixed -= edge_bytes(graph, i, false);
    }
    return dunlin__persistent_bytes(graph) + highest;
}

/* --- the account --- */

uint64_t dunlin__graph_plain_ns(const dunlin_mem_graph *graph, uint64_t batch,
                                uint64_t slice_samples)
{
    const dunlin_plan_loop loop = {.slice_samples = slice_samples};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t v = 0; v < graph->ops[i].n_variants; v++) {
            uint64_t ns = dunlin__variant_cost_ns(&graph->ops[i], v, &loop, batch);
            least = ns < least ? ns : least;
        }
        sum += least;
    }
    return sum;
}

uint32_t dunlin__first_backward_step(const dunlin_mem_graph *graph, const dunlin_plan *plan)
{
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        if (graph->ops[plan->steps[k].op].is_backward) {
            return k;
        }
    }
    return plan->n_steps;
}

/* Whether an allocation before `end` holds the recomputed tensor: it counts once. */
static bool is_counted(const dunlin_mem_graph *graph, const dunlin_plan *plan, uint32_t end)
{
    for (uint32_t p = 0; p < end; p++) {
        if (plan->places[p].tensor == plan->places[end].tensor &&
            dunlin__is_recomputed(graph, plan, &plan->places[p])) {
            return true;
        }
    }
    return false;
}

static void count_places(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                         dunlin_plan_account *account)
{
    uint32_t backward = dunlin__first_backward_step(graph, plan);
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        if (place->tensor == DUNLIN_MEM_NONE ||
            !dunlin__mem_is_sliced(&graph->tensors[place->tensor])) {
            continue;
        }
        if (place->first_step < backward && backward <= place->last_step) {
            account->n_kept++;
            account->kept_bytes += place->bytes;
        }
        if (dunlin__is_recomputed(graph, plan, place)) {
            account->n_remade += is_counted(graph, plan, p) ? 0 : 1;
            account->remade_bytes += place->bytes;
        }
    }
}

/* A step that writes a tensor out or reads it back. */
static void count_swap(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                       const dunlin_plan_step *step, uint64_t ns, dunlin_plan_account *account)
{
    const dunlin_mem_swap swap = dunlin__mem_swap_of(graph, step->op);
    if (swap == DUNLIN_MEM_SWAP_NO) {
        return;
    }
    const uint32_t tensor = graph->ops[step->op].variants[0].accesses[0].tensor;
    const uint64_t bytes = plan->batch * graph->tensors[tensor].sample_bytes;
    account->n_swapped += swap == DUNLIN_MEM_SWAP_OUT;
    *(swap == DUNLIN_MEM_SWAP_OUT ? &account->swap_out_bytes : &account->swap_in_bytes) += bytes;
    account->swap_ns += ns;
}

void dunlin__plan_account(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                          dunlin_plan_account *out_account)
{
    *out_account = (dunlin_plan_account){
        .n_slices = 1, .ideal_ns = dunlin__graph_plain_ns(graph, plan->batch, plan->batch)};
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        uint64_t n_slices = loop->slice_samples == 0 ? 1 : dunlin__loop_n_slices(loop, plan->batch);
        out_account->n_slices = n_slices > out_account->n_slices ? n_slices : out_account->n_slices;
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            const dunlin_plan_step *step = &plan->steps[k];
            const dunlin_schedule_step again = {
                .op = step->op, .variant = step->variant, .parts = step->parts};
            const uint64_t ns = dunlin__step_cost_ns(graph, &again, loop, plan->batch);
            out_account->recompute_ns += dunlin__is_recompute_step(graph, plan, k) ? ns : 0;
            count_swap(graph, plan, step, ns, out_account);
        }
    }
    count_places(graph, plan, out_account);
}
