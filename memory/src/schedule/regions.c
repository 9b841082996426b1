/*
 * regions.c - cuts the step at its barriers.
 *
 * Invariant: an op runs in the first group in which all that it waits for is final; ops that depend
 * on each other keep the graph's order.
 */
#include "regions.h"

#include "barriers.h"

#include <mem/support.h>

#include <string.h>

typedef struct {
    const dunlin_mem_graph *graph;
    dunlin_regions *regions;
    uint32_t n_held;
    uint32_t n_more;
    uint64_t batch;
    dunlin_barrier_map late; /* changed by the current region, or held back */
    dunlin_barrier_map held;
    uint32_t *waiting; /* FIXED ops not yet in a group, ascending; */
    uint32_t *since;   /* the regions after which they wait */
    uint32_t n_waiting;
    uint32_t region;
} cutter;

static bool changes_persistent(const dunlin_mem_graph *graph, const dunlin_mem_op *op)
{
    for (uint32_t a = 0; a < op->variants[0].n_accesses; a++) {
        const dunlin_mem_access *access = &op->variants[0].accesses[a];
        if (access->mode != DUNLIN_MEM_READ && graph->tensors[access->tensor].is_persistent) {
            return true;
        }
    }
    return false;
}

/* Nothing of this step reads what the op makes. */
static bool changes_persistent_alone(const dunlin_mem_graph *graph, const dunlin_mem_op *op)
{
    bool changes = false;
    for (uint32_t a = 0; a < op->variants[0].n_accesses; a++) {
        const dunlin_mem_access *access = &op->variants[0].accesses[a];
        if (access->mode == DUNLIN_MEM_READ) {
            continue;
        }
        if (!graph->tensors[access->tensor].is_persistent) {
            return false;
        }
        changes = true;
    }
    return changes;
}

/* Does the i-th that waits go on waiting? */
static bool is_held(const cutter *cut, uint32_t i)
{
    const dunlin_mem_op *op = &cut->graph->ops[cut->waiting[i]];
    const bool may_wait = changes_persistent_alone(cut->graph, op);
    return (may_wait && cut->region - cut->since[i] < cut->n_held) ||
           dunlin__barrier_waits(&cut->held, op);
}

/* Ends the current region because of an op that waits: what it waits for runs next. */
static void end_region(cutter *cut, const dunlin_mem_op *because)
{
    const dunlin_mem_op *ops = cut->graph->ops;
    dunlin__barrier_clear(&cut->held);
    for (uint32_t i = 0; i < cut->n_waiting; i++) {
        if (is_held(cut, i)) {
            dunlin__barrier_mark(&cut->held, &ops[cut->waiting[i]]);
        }
    }
    const bool needs_all = dunlin__barrier_waits(&cut->held, because);
    uint32_t n_left = 0;
    dunlin__barrier_clear(&cut->held);
    dunlin__barrier_clear(&cut->late);
    for (uint32_t i = 0; i < cut->n_waiting; i++) {
        uint32_t op = cut->waiting[i];
        if (!needs_all && is_held(cut, i)) {
            dunlin__barrier_mark(&cut->held, &ops[op]);
            dunlin__barrier_mark(&cut->late, &ops[op]);
            cut->waiting[n_left] = op;
            cut->since[n_left++] = cut->since[i];
        } else {
            cut->regions->group_of[op] = 2 * (cut->region + 1);
        }
    }
    cut->n_waiting = n_left;
    cut->region++;
}

static uint64_t op_ns(const cutter *cut, uint32_t i)
{
    const dunlin_plan_loop loop = {.slice_samples = cut->batch};
    return dunlin__variant_cost_ns(&cut->graph->ops[i], 0, &loop, cut->batch);
}

/* Ends regions where no op waits, each time that an equal part of the step's time has passed. */
static bool is_more_due(const cutter *cut, uint64_t passed_ns, uint64_t all_ns, uint32_t *n_made)
{
    if (*n_made >= cut->n_more ||
        (double)passed_ns * (cut->n_more + 1) < (double)all_ns * (*n_made + 1)) {
        return false;
    }
    (*n_made)++;
    return true;
}

static void assign_groups(cutter *cut)
{
    uint64_t all_ns = 0;
    uint64_t passed_ns = 0;
    uint32_t n_made = 0;
    for (uint32_t i = 0; i < cut->graph->n_ops && cut->n_more > 0; i++) {
        all_ns += op_ns(cut, i);
    }
    dunlin_regions *regions = cut->regions;
    for (uint32_t i = 0; i < cut->graph->n_ops; i++) {
        const dunlin_mem_op *op = &cut->graph->ops[i];
        bool is_fixed = op->parts == DUNLIN_MEM_FIXED;
        bool does_wait = dunlin__barrier_waits(&cut->late, op);
        /* Persistent tensors do not change earlier than in the graph: others may be recomputed from
         * them. */
        if (is_fixed && !does_wait && !changes_persistent(cut->graph, op)) {
            regions->group_of[i] = 2 * cut->region;
            continue;
        }
        const bool is_more = !is_fixed && is_more_due(cut, passed_ns, all_ns, &n_made);
        passed_ns += cut->n_more > 0 ? op_ns(cut, i) : 0;
        if (is_fixed) {
            cut->since[cut->n_waiting] = cut->region;
            cut->waiting[cut->n_waiting++] = i;
        } else {
            if (does_wait || is_more) {
                end_region(cut, op);
            }
            regions->group_of[i] = 2 * cut->region + 1;
        }
        dunlin__barrier_mark(&cut->late, op);
    }
    regions->n_groups = 2 * (cut->region + 1) + 1;
    for (uint32_t i = 0; i < cut->n_waiting; i++) {
        regions->group_of[cut->waiting[i]] = regions->n_groups - 1;
    }
}

/* A counting sort by group. */
static void list_order(dunlin_regions *regions)
{
    memset(regions->first, 0, ((size_t)regions->n_groups + 1) * sizeof *regions->first);
    for (uint32_t i = 0; i < regions->n_ops; i++) {
        regions->first[regions->group_of[i] + 1]++;
    }
    for (uint32_t g = 0; g < regions->n_groups; g++) {
        regions->first[g + 1] += regions->first[g];
    }
    for (uint32_t i = 0; i < regions->n_ops; i++) {
        regions->order[regions->first[regions->group_of[i]]++] = i;
    }
    for (uint32_t g = regions->n_groups; g > 0; g--) {
        regions->first[g] = regions->first[g - 1];
    }
    regions->first[0] = 0;
}

/* Room in `first`: a region an op, FIXED groups around them, and the end. */
static size_t n_first(const dunlin_regions *regions)
{
    return 2 * (size_t)regions->n_ops + 4;
}

void dunlin__regions_close(dunlin_regions *regions)
{
    size_t n = (size_t)regions->n_ops + 1;
    if (regions->first != NULL || regions->order != NULL || regions->group_of != NULL) {
        dunlin__free_array(&regions->alloc, regions->first, n_first(regions),
                           sizeof *regions->first);
        dunlin__free_array(&regions->alloc, regions->order, n, sizeof *regions->order);
        dunlin__free_array(&regions->alloc, regions->group_of, n, sizeof *regions->group_of);
    }
    memset(regions, 0, sizeof *regions);
}

static dunlin_status open_cutter(cutter *cut, dunlin_error *error)
{
    const dunlin_alloc *alloc = &cut->regions->alloc;
    DUNLIN_TRY(dunlin__barrier_open(cut->graph, alloc, &cut->late, error));
    dunlin_status status = dunlin__barrier_open(cut->graph, alloc, &cut->held, error);
    if (status != DUNLIN_OK) {
        dunlin__barrier_close(&cut->late);
    }
    return status;
}

dunlin_status dunlin__regions_find(const dunlin_mem_graph *graph, uint32_t n_held, uint32_t n_more,
                                   uint64_t batch, const dunlin_alloc *alloc,
                                   dunlin_regions *out_regions, dunlin_error *error)
{
    size_t n = (size_t)graph->n_ops + 1;
    *out_regions = (dunlin_regions){.n_ops = graph->n_ops, .alloc = *alloc};
    cutter cut = {
        .graph = graph, .regions = out_regions, .n_held = n_held, .n_more = n_more, .batch = batch};
    DUNLIN_TRY(open_cutter(&cut, error));
    dunlin_status status = DUNLIN_OK;
    out_regions->group_of = dunlin__alloc_zeroed(alloc, n, sizeof *out_regions->group_of);
    out_regions->order = dunlin__alloc_zeroed(alloc, n, sizeof *out_regions->order);
    out_regions->first =
        dunlin__alloc_zeroed(alloc, n_first(out_regions), sizeof *out_regions->first);
    cut.waiting = dunlin__alloc_array(alloc, n, sizeof *cut.waiting);
    cut.since = dunlin__alloc_array(alloc, n, sizeof *cut.since);
    if (out_regions->group_of == NULL || out_regions->order == NULL || out_regions->first == NULL ||
        cut.waiting == NULL || cut.since == NULL) {
        dunlin__regions_close(out_regions);
        status = dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                              "no memory to cut %u ops at their barriers", (unsigned)graph->n_ops);
    } else {
        assign_groups(&cut);
        list_order(out_regions);
    }
    dunlin__free_array(alloc, cut.since, n, sizeof *cut.since);
    dunlin__free_array(alloc, cut.waiting, n, sizeof *cut.waiting);
    dunlin__barrier_close(&cut.held);
    dunlin__barrier_close(&cut.late);
    return status;
}

void dunlin__schedule_regions(const dunlin_mem_graph *graph, uint64_t batch,
                              const dunlin_regions *regions, const uint64_t *slices,
                              const uint8_t *variants, const dunlin_recompute_list *recompute,
                              dunlin_schedule *schedule)
{
    uint32_t next = 0;
    schedule->batch = batch;
    schedule->n_steps = 0;
    schedule->n_loops = 0;
    for (uint32_t g = 0; g < regions->n_groups; g++) {
        const bool is_region = g % 2 == 1;
        const uint32_t first = schedule->n_steps;
        for (uint32_t i = regions->first[g]; i < regions->first[g + 1]; i++) {
            if (is_region) {
                dunlin__schedule_add_recompute(recompute, regions->order[i], variants, &next,
                                               schedule);
            }
            dunlin__schedule_add_step(graph, regions->order[i], variants, schedule);
        }
        dunlin__schedule_end_loop(schedule, first, is_region ? slices[g / 2] : 0);
    }
}
