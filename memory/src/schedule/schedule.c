/*
 * schedule.c - finds barriers along the batch and lays the ops out in slice loops.
 *
 * Invariant: within a loop, and from loop to loop, ops that depend on each other (a read of what
 * was written, a write over what was read) keep the graph's order.
 */
#include "schedule.h"

#include "barriers.h"

#include <mem/support.h>

dunlin_status dunlin__schedule_find_barriers(const dunlin_mem_graph *graph,
                                             const dunlin_alloc *alloc,
                                             uint8_t *out_is_after_barrier,
                                             uint32_t *out_barrier_op, dunlin_error *error)
{
    dunlin_barrier_map map;
    *out_barrier_op = DUNLIN_MEM_NONE;
    DUNLIN_TRY(dunlin__barrier_open(graph, alloc, &map, error));
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_op *op = &graph->ops[i];
        bool does_wait = dunlin__barrier_waits(&map, op);
        out_is_after_barrier[i] = op->parts == DUNLIN_MEM_FIXED && does_wait;
        if (op->parts != DUNLIN_MEM_FIXED && does_wait && *out_barrier_op == DUNLIN_MEM_NONE) {
            *out_barrier_op = i;
        }
        if (op->parts != DUNLIN_MEM_FIXED || does_wait) {
            dunlin__barrier_mark(&map, op);
        }
    }
    dunlin__barrier_close(&map);
    return DUNLIN_OK;
}

bool dunlin__graph_is_sliceable(const dunlin_mem_graph *graph, uint32_t *out_barrier_op)
{
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    uint32_t barrier = DUNLIN_MEM_NONE;
    bool is_sliceable = false;
    uint8_t *is_after_barrier = dunlin__alloc_array(&alloc, graph->n_ops, sizeof *is_after_barrier);
    if (is_after_barrier != NULL) {
        is_sliceable = dunlin__schedule_find_barriers(graph, &alloc, is_after_barrier, &barrier,
                                                      NULL) == DUNLIN_OK &&
                       barrier == DUNLIN_MEM_NONE;
    }
    dunlin__free_array(&alloc, is_after_barrier, graph->n_ops, sizeof *is_after_barrier);
    if (out_barrier_op != NULL) {
        *out_barrier_op = barrier;
    }
    return is_sliceable;
}

/* --- schedules --- */

void dunlin__schedule_add_step(const dunlin_mem_graph *graph, uint32_t op, const uint8_t *variants,
                               dunlin_schedule *schedule)
{
    schedule->steps[schedule->n_steps++] =
        (dunlin_schedule_step){.op = op, .variant = variants[op], .parts = graph->ops[op].parts};
}

void dunlin__schedule_add_recompute(const dunlin_recompute_list *recompute, uint32_t before,
                                    const uint8_t *variants, uint32_t *next,
                                    dunlin_schedule *schedule)
{
    for (;
         recompute != NULL && *next < recompute->n && recompute->recompute[*next].before == before;
         (*next)++) {
        uint32_t op = recompute->recompute[*next].op;
        schedule->steps[schedule->n_steps++] =
            (dunlin_schedule_step){.op = op, .variant = variants[op], .parts = DUNLIN_MEM_MAP};
    }
}

void dunlin__schedule_whole(const dunlin_mem_graph *graph, uint64_t batch, const uint8_t *variants,
                            const dunlin_recompute_list *recompute, dunlin_schedule *schedule)
{
    uint32_t next = 0;
    schedule->batch = batch;
    schedule->n_steps = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        dunlin__schedule_add_recompute(recompute, i, variants, &next, schedule);
        dunlin__schedule_add_step(graph, i, variants, schedule);
    }
    schedule->n_loops = 1;
    schedule->loops[0] =
        (dunlin_plan_loop){.first_step = 0, .n_steps = schedule->n_steps, .slice_samples = batch};
}

void dunlin__schedule_end_loop(dunlin_schedule *schedule, uint32_t first_step,
                               uint64_t slice_samples)
{
    if (schedule->n_steps > first_step) {
        schedule->loops[schedule->n_loops++] =
            (dunlin_plan_loop){.first_step = first_step,
                               .n_steps = schedule->n_steps - first_step,
                               .slice_samples = slice_samples};
    }
}

void dunlin__schedule_slices(const dunlin_mem_graph *graph, uint64_t batch, uint64_t slice_samples,
                             const uint8_t *is_after_barrier, const uint8_t *variants,
                             const dunlin_recompute_list *recompute, dunlin_schedule *schedule)
{
    uint32_t next = 0;
    schedule->batch = batch;
    schedule->n_steps = 0;
    schedule->n_loops = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].parts == DUNLIN_MEM_FIXED && is_after_barrier[i] == 0) {
            dunlin__schedule_add_step(graph, i, variants, schedule);
        }
    }
    dunlin__schedule_end_loop(schedule, 0, 0);
    uint32_t first = schedule->n_steps;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].parts != DUNLIN_MEM_FIXED) {
            dunlin__schedule_add_recompute(recompute, i, variants, &next, schedule);
            dunlin__schedule_add_step(graph, i, variants, schedule);
        }
    }
    dunlin__schedule_end_loop(schedule, first, slice_samples);
    first = schedule->n_steps;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (is_after_barrier[i] != 0) {
            dunlin__schedule_add_step(graph, i, variants, schedule);
        }
    }
    dunlin__schedule_end_loop(schedule, first, 0);
}

uint64_t dunlin__loop_n_slices(const dunlin_plan_loop *loop, uint64_t batch)
{
    if (loop->slice_samples == 0 || loop->slice_samples >= batch) {
        return 1;
    }
    return batch / loop->slice_samples + (batch % loop->slice_samples != 0);
}

uint64_t dunlin__variant_cost_ns(const dunlin_mem_op *op, uint32_t variant,
                                 const dunlin_plan_loop *loop, uint64_t batch)
{
    const dunlin_mem_variant *costs = &op->variants[variant];
    if (op->parts == DUNLIN_MEM_FIXED) {
        return costs->cost_fixed_ns;
    }
    return dunlin__loop_n_slices(loop, batch) * costs->cost_fixed_ns +
           batch * costs->cost_sample_ns;
}

uint64_t dunlin__without_reduce_ns(const dunlin_mem_variant *variant, uint64_t ns)
{
    const uint64_t permille = 1000 - variant->reduce_permille;
    return ns / 1000 * permille + ns % 1000 * permille / 1000;
}

uint64_t dunlin__step_cost_ns(const dunlin_mem_graph *graph, const dunlin_schedule_step *step,
                              const dunlin_plan_loop *loop, uint64_t batch)
{
    const dunlin_mem_op *op = &graph->ops[step->op];
    const uint64_t ns = dunlin__variant_cost_ns(op, step->variant, loop, batch);
    return step->parts == DUNLIN_MEM_MAP
               ? dunlin__without_reduce_ns(&op->variants[step->variant], ns)
               : ns;
}

uint64_t dunlin__schedule_cost_ns(const dunlin_mem_graph *graph, const dunlin_schedule *schedule)
{
    uint64_t cost = 0;
    for (uint32_t l = 0; l < schedule->n_loops; l++) {
        const dunlin_plan_loop *loop = &schedule->loops[l];
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            cost += dunlin__step_cost_ns(graph, &schedule->steps[k], loop, schedule->batch);
        }
    }
    return cost;
}
