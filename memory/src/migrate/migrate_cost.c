/*
 * migrate_cost.c - the cost of migrating to another plan, by the graph's costs.
 *
 * A step that had run under the new plan from its start would be at the same point once it had run
 * the same ops on the same samples. The work after that point has to be done in any case.
 * Everything else that runs after the migration is recomputation.
 */
#include "switch.h"

/* Time of so much of a step: samples of all parts, and samples of the map part alone. */
static uint64_t time_of(const dunlin_switch_search *search, const dunlin_plan_loop *loop,
                        uint32_t k, uint64_t n_all, uint64_t n_map)
{
    const dunlin_plan_step *step = &search->to->steps[k];
    const dunlin_mem_op *op = &search->graph->ops[step->op];
    const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
    if (op->parts == DUNLIN_MEM_FIXED) {
        return n_all > 0 ? variant->cost_fixed_ns : 0;
    }
    const uint64_t n = search->from->n_batch;
    const bool is_once = dunlin__switch_is_once(loop, n) || loop->slice_samples == 0;
    const uint64_t slice = !is_once ? loop->slice_samples : n > 0 ? n : 1;
    const uint64_t n_slices = (n_all + n_map + slice - 1) / slice;
    const uint64_t full = variant->cost_fixed_ns * n_slices + variant->cost_sample_ns * n_all;
    const uint64_t map =
        variant->cost_sample_ns * n_map / 1000 *
        (op->parts == (DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE) ? 1000U - variant->reduce_permille
                                                           : 1000U);
    return full + map;
}

/* Time of step `k` over the samples from `first` on, if it runs all that the plan has it run. */
static uint64_t whole_time(const dunlin_switch_search *search, const dunlin_plan_loop *loop,
                           uint32_t k, uint64_t first)
{
    const dunlin_plan_step *step = &search->to->steps[k];
    const uint64_t n = search->from->n_batch > first ? search->from->n_batch - first : 0;
    const bool is_all = step->parts == search->graph->ops[step->op].parts;
    return time_of(search, loop, k, is_all ? n : 0, is_all ? 0 : n);
}

/* Time that is left of step `k`. */
static uint64_t left_time(const dunlin_switch_search *search, const dunlin_plan_loop *loop,
                          uint32_t k, uint64_t done)
{
    const dunlin_plan_step *step = &search->to->steps[k];
    const uint8_t parts = dunlin__switch_parts(search, k);
    const uint64_t n = search->from->n_batch;
    const uint64_t from = done < n ? done : n;
    if (parts == 0) {
        return 0;
    }
    if (parts == DUNLIN_MEM_MAP && step->parts != DUNLIN_MEM_MAP) {
        return time_of(search, loop, k, 0, n - from);
    }
    if (parts == DUNLIN_MEM_MAP) {
        return whole_time(search, loop, k, from);
    }
    if (parts == DUNLIN_MEM_FIXED) {
        return time_of(search, loop, k, 1, 0);
    }
    const uint64_t taken = search->from->n_taken[step->op];
    const uint64_t again = search->entry->runs_map[k] != 0 && taken > from ? taken - from : 0;
    return time_of(search, loop, k, n - taken, again);
}

/* Samples of an op that the old plan has run in any case, however it went on from there. */
static uint64_t passed(const dunlin_switch_search *search, uint32_t op)
{
    const dunlin_mem_op *at = &search->graph->ops[op];
    const uint64_t n = search->from->n_batch;
    if (at->parts == DUNLIN_MEM_FIXED) {
        return search->from->n_taken[op] != 0 ? n : 0;
    }
    if ((at->parts & DUNLIN_MEM_REDUCE) != 0) {
        return search->from->n_taken[op] < n ? search->from->n_taken[op] : n;
    }
    uint64_t most = 0;
    for (uint32_t k = search->entry->step_of_op[op]; k != DUNLIN_MEM_NONE;
         k = search->entry->next_step[k]) {
        const uint64_t made = dunlin__switch_made(search->from, k);
        most = made > most ? made : most;
    }
    return most;
}

static const dunlin_plan_loop *loop_of(const dunlin_plan *plan, uint32_t k, uint32_t *loop)
{
    while (plan->loops[*loop].first_step + plan->loops[*loop].n_steps <= k) {
        (*loop)++;
    }
    return &plan->loops[*loop];
}

/* Adds up the steps [first, end), of which the first `behind` samples are done. */
static void add_steps(dunlin_switch_search *search, uint32_t first, uint32_t end, uint64_t behind,
                      uint64_t *ahead)
{
    dunlin_switch *entry = search->entry;
    uint32_t loop = 0;
    for (uint32_t k = first; k < end; k++) {
        const dunlin_plan_loop *at = loop_of(search->to, k, &loop);
        const uint64_t whole = whole_time(search, at, k, 0);
        const uint64_t rest = behind == 0 ? whole : whole_time(search, at, k, behind);
        entry->left_ns += left_time(search, at, k, entry->done[loop]);
        entry->reach_ns += whole - rest;
        *ahead += rest;
    }
}

void dunlin__switch_price(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    const dunlin_plan *to = search->to;
    uint64_t ahead = 0;
    uint64_t behind = 0;
    uint32_t first = 0;
    uint32_t next_op = 0; /* first runs follow the graph's order; recomputed ops come before */
    entry->left_ns = 0;
    entry->reach_ns = 0;
    for (uint32_t k = 0; k < to->n_steps; k++) {
        if (to->steps[k].op >= next_op) {
            next_op = to->steps[k].op + 1;
            behind = passed(search, to->steps[k].op);
            add_steps(search, first, k + 1, behind, &ahead);
            first = k + 1;
        }
    }
    add_steps(search, first, to->n_steps, behind, &ahead);
    entry->recompute_ns = entry->left_ns > ahead ? entry->left_ns - ahead : 0;
    entry->left_ns += entry->moved_bytes / DUNLIN_SWITCH_BYTES_PER_NS;
}
