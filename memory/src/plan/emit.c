/*
 * emit.c - the plan as one block of memory: head, loops, allocations, steps, operands.
 *
 * Invariant: persistent tensors lie at the bottom of the arena in tensor order, whatever the plan,
 * so that plans of one graph can use one arena one after another.
 */
#include "emit.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <assert.h>
#include <string.h>

static uint64_t rounded_fixed(const dunlin_mem_tensor *tensor)
{
    uint64_t bytes = 0;
    (void)dunlin__align_u64(tensor->fixed_bytes, DUNLIN_MEM_ALIGN, &bytes);
    return bytes;
}

static bool is_static_root(const dunlin_mem_tensor *tensor)
{
    return dunlin__mem_is_static(tensor) && tensor->parent == DUNLIN_MEM_NONE;
}

uint64_t dunlin__persistent_bytes(const dunlin_mem_graph *graph)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (is_static_root(&graph->tensors[t])) {
            bytes += rounded_fixed(&graph->tensors[t]);
        }
    }
    return bytes;
}

/* Runs of a map part after the first. */
static uint32_t count_recomputed(const dunlin_mem_graph *graph, const dunlin_schedule *schedule)
{
    uint32_t n_maps = 0;
    for (uint32_t k = 0; k < schedule->n_steps; k++) {
        n_maps += (schedule->steps[k].parts & DUNLIN_MEM_MAP) != 0 &&
                  dunlin__mem_swap_of(graph, schedule->steps[k].op) == DUNLIN_MEM_SWAP_NO;
    }
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        n_maps -= (graph->ops[i].parts & DUNLIN_MEM_MAP) != 0;
    }
    return n_maps;
}

static void count(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                  const dunlin_live *live, dunlin_plan *plan)
{
    plan->n_loops = schedule->n_loops;
    plan->n_steps = schedule->n_steps;
    plan->n_recompute_ops = count_recomputed(graph, schedule);
    plan->n_places = live->n_live_ranges;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        plan->n_places += is_static_root(&graph->tensors[t]);
    }
    for (uint32_t k = 0; k < schedule->n_steps; k++) {
        const dunlin_schedule_step *step = &schedule->steps[k];
        plan->n_operands += graph->ops[step->op].variants[step->variant].n_accesses;
        plan->n_places += live->workspace_block[k] != DUNLIN_MEM_NONE;
    }
}

/* Those with 8-byte members come first. */
dunlin_plan *dunlin__plan_allocate(const dunlin_plan *counted, const dunlin_alloc *alloc)
{
    const uint64_t head = sizeof(dunlin_plan);
    const uint64_t loops = counted->n_loops * (uint64_t)sizeof *counted->loops;
    const uint64_t places = counted->n_places * (uint64_t)sizeof *counted->places;
    const uint64_t steps = counted->n_steps * (uint64_t)sizeof *counted->steps;
    const uint64_t operands = counted->n_operands * (uint64_t)sizeof *counted->operands;
    size_t total = 0;
    if (!dunlin__to_size(head + loops + places + steps + operands, &total)) {
        return NULL;
    }
    unsigned char *memory = dunlin__alloc_zeroed(alloc, total, 1);
    if (memory == NULL) {
        return NULL;
    }
    dunlin_plan *plan = (dunlin_plan *)(void *)memory;
    *plan = *counted;
    plan->alloc = *alloc;
    plan->table_bytes = total;
    plan->loops = (dunlin_plan_loop *)(void *)(memory + head);
    plan->places = (dunlin_plan_allocation *)(void *)(memory + head + loops);
    plan->steps = (dunlin_plan_step *)(void *)(memory + head + loops + places);
    plan->operands = (uint32_t *)(void *)(memory + head + loops + places + steps);
    return plan;
}

/* Fills the allocations of static tensors (`place_of`, by tensor) and of live ranges, which follow
 * in their order. Returns how many there are. */
static uint32_t place_tensors(const dunlin_mem_graph *graph, const dunlin_live *live,
                              dunlin_plan *plan, uint32_t *place_of, uint32_t *out_first_live_range)
{
    uint32_t n = 0;
    uint64_t bottom = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (is_static_root(&graph->tensors[t])) {
            uint64_t bytes = rounded_fixed(&graph->tensors[t]);
            plan->places[n] = (dunlin_plan_allocation){.tensor = t,
                                                       .first_step = 0,
                                                       .last_step = plan->n_steps - 1,
                                                       .offset_bytes = bottom,
                                                       .bytes = bytes};
            bottom += bytes;
            place_of[t] = n++;
        }
    }
    assert(bottom == plan->persistent_bytes);
    *out_first_live_range = n;
    for (uint32_t i = 0; i < live->n_live_ranges; i++) {
        const dunlin_live_range *live_range = &live->live_ranges[i];
        plan->places[n++] = (dunlin_plan_allocation){
            .tensor = live_range->tensor,
            .first_step = live_range->first_step,
            .last_step = live_range->last_step,
            .is_whole = live_range->is_whole,
            .offset_bytes = bottom + live->blocks[live_range->block].offset_bytes,
            .bytes = live_range->bytes};
    }
    return n;
}

static void emit_steps(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                       const dunlin_live *live, const uint32_t *place_of, uint32_t first_live_range,
                       uint32_t n_places, dunlin_plan *plan)
{
    uint32_t n_operands = 0;
    for (uint32_t k = 0; k < schedule->n_steps; k++) {
        const dunlin_schedule_step *step = &schedule->steps[k];
        const dunlin_mem_variant *variant = &graph->ops[step->op].variants[step->variant];
        plan->steps[k] = (dunlin_plan_step){.op = step->op,
                                            .variant = step->variant,
                                            .parts = step->parts,
                                            .first_operand = n_operands,
                                            .workspace = DUNLIN_MEM_NONE};
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const dunlin_mem_access *access = &variant->accesses[a];
            uint32_t live_range = live->operand_live_ranges[live->first_operand[k] + a];
            plan->operands[n_operands++] = (access->parts & step->parts) == 0 ? DUNLIN_MEM_NONE
                                           : live_range != DUNLIN_MEM_NONE
                                               ? first_live_range + live_range
                                               : place_of[live->root[access->tensor]];
        }
        if (live->workspace_block[k] != DUNLIN_MEM_NONE) {
            const dunlin_pack_block *block = &live->blocks[live->workspace_block[k]];
            plan->places[n_places] = (dunlin_plan_allocation){
                .tensor = DUNLIN_MEM_NONE,
                .first_step = k,
                .last_step = k,
                .offset_bytes = plan->persistent_bytes + block->offset_bytes,
                .bytes = block->bytes};
            plan->steps[k].workspace = n_places++;
        }
    }
}

dunlin_status dunlin__plan_emit(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                                const dunlin_live *live, const dunlin_emit_head *head,
                                const dunlin_alloc *alloc, dunlin_plan **out_plan,
                                dunlin_error *error)
{
    dunlin_plan counted = {.batch = schedule->batch,
                           .persistent_bytes = dunlin__persistent_bytes(graph),
                           .pool_bytes = head->pool_bytes,
                           .pool_lower_bound_bytes = head->pool_lower_bound_bytes,
                           .policy = head->policy,
                           .packing = head->packing};
    counted.arena_bytes = counted.persistent_bytes + counted.pool_bytes;
    counted.cost_ns = dunlin__schedule_cost_ns(graph, schedule);
    count(graph, schedule, live, &counted);
    uint32_t *place_of = dunlin__alloc_array(alloc, graph->n_tensors, sizeof *place_of);
    dunlin_plan *plan = place_of == NULL ? NULL : dunlin__plan_allocate(&counted, alloc);
    if (plan == NULL) {
        dunlin__free_array(alloc, place_of, graph->n_tensors, sizeof *place_of);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0, "no memory for a plan of %u steps",
                            (unsigned)counted.n_steps);
    }
    memcpy(plan->loops, schedule->loops, plan->n_loops * sizeof *plan->loops);
    uint32_t first_live_range = 0;
    uint32_t n_places = place_tensors(graph, live, plan, place_of, &first_live_range);
    emit_steps(graph, schedule, live, place_of, first_live_range, n_places, plan);
    dunlin__free_array(alloc, place_of, graph->n_tensors, sizeof *place_of);
    *out_plan = plan;
    return DUNLIN_OK;
}

void dunlin__plan_destroy(dunlin_plan *plan)
{
    if (plan != NULL) {
        dunlin_alloc alloc = plan->alloc;
        dunlin__free_array(&alloc, plan, (size_t)plan->table_bytes, 1);
    }
}
