/*
 * worth.c - the recompute cost of what is migrated.
 *
 * An estimate: the recompute cost of an allocation is the time of the map parts that write it, with
 * those before them whose output is not migrated either. What two allocations have in common counts
 * for both.
 */
#include "switch.h"

static uint64_t map_time(const dunlin_switch_search *search, const dunlin_plan_step *step)
{
    const dunlin_mem_op *op = &search->graph->ops[step->op];
    const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
    const uint64_t all = variant->cost_sample_ns * search->from->n_batch;
    return op->parts == (DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE)
               ? all / 1000 * (1000U - variant->reduce_permille)
               : all;
}

/* The step's map part with all that is missing before it. */
static uint64_t time_with_inputs(const dunlin_switch_search *search, const dunlin_plan_step *step)
{
    const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
    uint64_t sum = map_time(search, step);
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        const uint32_t place = search->to->operands[step->first_operand + a];
        if (place != DUNLIN_MEM_NONE && (access->parts & DUNLIN_MEM_MAP) != 0 &&
            (access->mode == DUNLIN_MEM_READ || access->mode == DUNLIN_MEM_UPDATE) &&
            !dunlin__switch_is_brought(search->entry, place)) {
            sum += search->entry->worth[place];
        }
    }
    return sum;
}

void dunlin__switch_value(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    const dunlin_plan *to = search->to;
    for (uint32_t p = 0; p < to->n_places; p++) {
        entry->worth[p] = 0;
    }
    for (uint32_t k = 0; k < to->n_steps; k++) {
        const dunlin_plan_step *step = &to->steps[k];
        if ((step->parts & DUNLIN_MEM_MAP) == 0) {
            continue;
        }
        const uint64_t time = time_with_inputs(search, step);
        const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const uint32_t place = to->operands[step->first_operand + a];
            if (place != DUNLIN_MEM_NONE && variant->accesses[a].mode == DUNLIN_MEM_WRITE) {
                entry->worth[place] += time;
            }
        }
    }
}

void dunlin__switch_mark_first(dunlin_switch_search *search)
{
    const dunlin_plan *to = search->to;
    uint32_t next_op = 0; /* first runs follow the graph's order; recomputed ops come before */
    for (uint32_t k = 0; k < to->n_steps; k++) {
        const dunlin_plan_step *step = &to->steps[k];
        if (step->op < next_op) {
            continue;
        }
        next_op = step->op + 1;
        const uint32_t n_accesses = dunlin__switch_variant(search->graph, step)->n_accesses;
        for (uint32_t a = 0; a < n_accesses; a++) {
            const uint32_t operand = step->first_operand + a;
            const uint32_t place = to->operands[operand];
            if (place != DUNLIN_MEM_NONE &&
                search->entry->next_writer[operand] != DUNLIN_SWITCH_LOCAL) {
                search->entry->marks[place] |= DUNLIN_SWITCH_FIRST;
            }
        }
    }
}
