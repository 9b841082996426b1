/*
 * schedule.c - finds barriers along the batch and lays the ops out in slice loops.
 *
 * Invariant: within a loop, and from loop to loop, ops that depend on each other (a read of what
 * was written, a write over what was read) keep the graph's order.
 */
#include "schedule.h"

#include <mem/support.h>

#include <string.h>

/* What earlier ops with map or reduce parts, and FIXED ops behind them, did to a tensor. */
enum { LATE_CHANGED = 1, LATE_READ = 2 };

/* Parts of each tensor as lists: a parent and its parts share their bytes. */
typedef struct {
    const dunlin_mem_graph *graph;
    uint32_t *first_part;
    uint32_t *next_part;
    uint8_t *marks;
} late_map;

static void list_parts(late_map *map)
{
    const dunlin_mem_graph *graph = map->graph;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        map->first_part[t] = DUNLIN_MEM_NONE;
    }
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        uint32_t parent = graph->tensors[t].parent;
        map->next_part[t] = DUNLIN_MEM_NONE;
        if (parent != DUNLIN_MEM_NONE) {
            map->next_part[t] = map->first_part[parent];
            map->first_part[parent] = t;
        }
    }
}

/* Marks a tensor, its parents and all its parts. */
static void mark(late_map *map, uint32_t tensor, uint8_t bits)
{
    const dunlin_mem_tensor *tensors = map->graph->tensors;
    for (uint32_t t = tensors[tensor].parent; t != DUNLIN_MEM_NONE; t = tensors[t].parent) {
        map->marks[t] |= bits;
    }
    uint32_t at = tensor;
    for (;;) {
        map->marks[at] |= bits;
        if (map->first_part[at] != DUNLIN_MEM_NONE) {
            at = map->first_part[at];
            continue;
        }
        while (at != tensor && map->next_part[at] == DUNLIN_MEM_NONE) {
            at = tensors[at].parent;
        }
        if (at == tensor) {
            return;
        }
        at = map->next_part[at];
    }
}

static bool is_access_late(const late_map *map, const dunlin_mem_access *access)
{
    uint8_t marks = map->marks[access->tensor];
    bool is_read = access->mode == DUNLIN_MEM_READ;
    return (marks & (is_read ? LATE_CHANGED : LATE_CHANGED | LATE_READ)) != 0;
}

static void mark_op(late_map *map, const dunlin_mem_op *op)
{
    for (uint32_t v = 0; v < op->n_variants; v++) {
        for (uint32_t a = 0; a < op->variants[v].n_accesses; a++) {
            const dunlin_mem_access *access = &op->variants[v].accesses[a];
            if (map->graph->tensors[access->tensor].fixed_bytes != 0) {
                mark(map, access->tensor,
                     access->mode == DUNLIN_MEM_READ ? LATE_READ : LATE_CHANGED);
            }
        }
    }
}

/* For a FIXED op: it has to come after the slices. For another: it waits for what comes after them.
 */
static bool waits(const late_map *map, const dunlin_mem_op *op)
{
    for (uint32_t v = 0; v < op->n_variants; v++) {
        for (uint32_t a = 0; a < op->variants[v].n_accesses; a++) {
            const dunlin_mem_access *access = &op->variants[v].accesses[a];
            bool may_wait = op->parts == DUNLIN_MEM_FIXED || access->mode == DUNLIN_MEM_READ;
            if (may_wait && map->graph->tensors[access->tensor].fixed_bytes != 0 &&
                is_access_late(map, access)) {
                return true;
            }
        }
    }
    return false;
}

dunlin_status dunlin__schedule_find_late(const dunlin_mem_graph *graph, const dunlin_alloc *alloc,
                                         uint8_t *out_is_late, uint32_t *out_barrier_op,
                                         dunlin_error *error)
{
    size_t n = graph->n_tensors;
    late_map map = {.graph = graph};
    *out_barrier_op = DUNLIN_MEM_NONE;
    dunlin_status status = DUNLIN_OK;
    map.first_part = dunlin__alloc_array(alloc, n, sizeof *map.first_part);
    map.next_part = dunlin__alloc_array(alloc, n, sizeof *map.next_part);
    map.marks = dunlin__alloc_zeroed(alloc, n, sizeof *map.marks);
    if (map.first_part == NULL || map.next_part == NULL || map.marks == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                              "no memory to look for barriers among %zu tensors", n);
        goto done;
    }
    list_parts(&map);
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_op *op = &graph->ops[i];
        bool does_wait = waits(&map, op);
        out_is_late[i] = op->parts == DUNLIN_MEM_FIXED && does_wait;
        if (op->parts != DUNLIN_MEM_FIXED && does_wait && *out_barrier_op == DUNLIN_MEM_NONE) {
            *out_barrier_op = i;
        }
        if (op->parts != DUNLIN_MEM_FIXED || does_wait) {
            mark_op(&map, op);
        }
    }
done:
    dunlin__free_array(alloc, map.marks, n, sizeof *map.marks);
    dunlin__free_array(alloc, map.next_part, n, sizeof *map.next_part);
    dunlin__free_array(alloc, map.first_part, n, sizeof *map.first_part);
    return status;
}

bool dunlin__graph_is_sliceable(const dunlin_mem_graph *graph, uint32_t *out_barrier_op)
{
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    uint32_t barrier = DUNLIN_MEM_NONE;
    bool is_sliceable = false;
    uint8_t *is_late = dunlin__alloc_array(&alloc, graph->n_ops, sizeof *is_late);
    if (is_late != NULL) {
        is_sliceable =
            dunlin__schedule_find_late(graph, &alloc, is_late, &barrier, NULL) == DUNLIN_OK &&
            barrier == DUNLIN_MEM_NONE;
    }
    dunlin__free_array(&alloc, is_late, graph->n_ops, sizeof *is_late);
    if (out_barrier_op != NULL) {
        *out_barrier_op = barrier;
    }
    return is_sliceable;
}

/* --- schedules --- */

static void add_step(const dunlin_mem_graph *graph, uint32_t op, const uint8_t *variants,
                     dunlin_schedule *schedule)
{
    schedule->steps[schedule->n_steps++] =
        (dunlin_schedule_step){.op = op, .variant = variants[op], .parts = graph->ops[op].parts};
}

void dunlin__schedule_whole(const dunlin_mem_graph *graph, uint64_t batch, const uint8_t *variants,
                            dunlin_schedule *schedule)
{
    schedule->batch = batch;
    schedule->n_steps = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        add_step(graph, i, variants, schedule);
    }
    schedule->n_loops = 1;
    schedule->loops[0] =
        (dunlin_plan_loop){.first_step = 0, .n_steps = graph->n_ops, .slice_samples = batch};
}

static void close_loop(dunlin_schedule *schedule, uint32_t first_step, uint64_t slice_samples)
{
    if (schedule->n_steps > first_step) {
        schedule->loops[schedule->n_loops++] =
            (dunlin_plan_loop){.first_step = first_step,
                               .n_steps = schedule->n_steps - first_step,
                               .slice_samples = slice_samples};
    }
}

void dunlin__schedule_slices(const dunlin_mem_graph *graph, uint64_t batch, uint64_t slice_samples,
                             const uint8_t *is_late, const uint8_t *variants,
                             dunlin_schedule *schedule)
{
    schedule->batch = batch;
    schedule->n_steps = 0;
    schedule->n_loops = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].parts == DUNLIN_MEM_FIXED && is_late[i] == 0) {
            add_step(graph, i, variants, schedule);
        }
    }
    close_loop(schedule, 0, 0);
    uint32_t first = schedule->n_steps;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].parts != DUNLIN_MEM_FIXED) {
            add_step(graph, i, variants, schedule);
        }
    }
    close_loop(schedule, first, slice_samples);
    first = schedule->n_steps;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (is_late[i] != 0) {
            add_step(graph, i, variants, schedule);
        }
    }
    close_loop(schedule, first, 0);
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

uint64_t dunlin__schedule_cost_ns(const dunlin_mem_graph *graph, const dunlin_schedule *schedule)
{
    uint64_t cost = 0;
    for (uint32_t l = 0; l < schedule->n_loops; l++) {
        const dunlin_plan_loop *loop = &schedule->loops[l];
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            cost += dunlin__variant_cost_ns(&graph->ops[schedule->steps[k].op],
                                            schedule->steps[k].variant, loop, schedule->batch);
        }
    }
    return cost;
}
