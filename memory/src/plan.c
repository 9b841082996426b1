/*
 * plan.c - finds the fastest plan that fits: the whole batch, else the largest slices.
 *
 * Invariant: whether a slice size works does not depend on the budget's neighbours: each size has
 * one sequence of tries (fastest variants first, then less workspace where the peak is), and the
 * budget only says where it stops. The least budget is the lower of the whole batch and slices of
 * one sample; below it nothing is tried, from it on the search always succeeds.
 * Slices with accumulation: Gim and Ko, "Memory-efficient DNN training on mobile devices" (Sage),
 * MobiSys 2022.
 */
#include "emit.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define SUBSYSTEM "plan"

/* What is made once for all tries of one search. */
typedef struct {
    const dunlin_mem_graph *graph;
    dunlin_plan_options options;
    uint64_t budget_bytes; /* UINT64_MAX: no limit */
    uint64_t persistent_bytes;
    uint8_t *variants;
    uint8_t *is_late;
    uint32_t barrier_op;
    dunlin_schedule schedule;
    dunlin_live live;
    dunlin_packer packer;
    uint64_t *sums;
} dunlin_planner;

/* One slice size, with the workspace variants changed so many times. */
typedef struct {
    uint64_t slice_samples;
    uint32_t n_changes;
    bool is_fitting;
    uint64_t pool_bytes;
    uint64_t lower_bound_bytes;
    uint64_t cost_ns;
    const char *packing;
} dunlin_attempt;

static void planner_close(dunlin_planner *planner)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    size_t n_ops = planner->graph->n_ops;
    dunlin__packer_close(&planner->packer);
    dunlin__live_close(&planner->live);
    dunlin__free_array(alloc, planner->sums, n_ops + 1, sizeof *planner->sums);
    dunlin__free_array(alloc, planner->schedule.steps, n_ops, sizeof *planner->schedule.steps);
    dunlin__free_array(alloc, planner->is_late, n_ops, sizeof *planner->is_late);
    dunlin__free_array(alloc, planner->variants, n_ops, sizeof *planner->variants);
}

static dunlin_status planner_fill(dunlin_planner *planner, dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    const dunlin_mem_graph *graph = planner->graph;
    size_t n_ops = graph->n_ops;
    planner->variants = dunlin__alloc_zeroed(alloc, n_ops, sizeof *planner->variants);
    planner->is_late = dunlin__alloc_zeroed(alloc, n_ops, sizeof *planner->is_late);
    planner->schedule.steps = dunlin__alloc_array(alloc, n_ops, sizeof *planner->schedule.steps);
    planner->sums = dunlin__alloc_array(alloc, n_ops + 1, sizeof *planner->sums);
    if (planner->variants == NULL || planner->is_late == NULL || planner->schedule.steps == NULL ||
        planner->sums == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, 0, "no memory to plan %zu ops", n_ops);
    }
    DUNLIN_TRY(dunlin__live_open(graph, graph->n_ops, alloc, &planner->live, error));
    DUNLIN_TRY(
        dunlin__packer_open(graph->n_ops + graph->n_tensors, alloc, &planner->packer, error));
    return dunlin__schedule_find_late(graph, alloc, planner->is_late, &planner->barrier_op, error);
}

static dunlin_status planner_open(const dunlin_mem_graph *graph, const dunlin_plan_options *options,
                                  dunlin_planner *out_planner, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__graph_check(graph, options->batch, error));
    *out_planner = (dunlin_planner){.graph = graph, .options = *options};
    out_planner->options.alloc = dunlin__alloc_or_default(&options->alloc);
    out_planner->budget_bytes = options->budget_bytes == 0 ? UINT64_MAX : options->budget_bytes;
    out_planner->persistent_bytes = dunlin__persistent_bytes(graph);
    dunlin_status status = planner_fill(out_planner, error);
    if (status != DUNLIN_OK) {
        planner_close(out_planner);
    }
    return status;
}

/* --- one try --- */

/* Time of a variant over the whole batch. */
static uint64_t variant_cost_ns(const dunlin_planner *planner, uint32_t op, uint32_t variant,
                                uint64_t slice_samples)
{
    dunlin_plan_loop loop = {.slice_samples = slice_samples};
    return dunlin__variant_cost_ns(&planner->graph->ops[op], variant, &loop,
                                   planner->options.batch);
}

static void choose_fastest(dunlin_planner *planner, uint64_t slice_samples)
{
    for (uint32_t i = 0; i < planner->graph->n_ops; i++) {
        planner->variants[i] = 0;
        for (uint32_t v = 1; v < planner->graph->ops[i].n_variants; v++) {
            if (variant_cost_ns(planner, i, v, slice_samples) <
                variant_cost_ns(planner, i, planner->variants[i], slice_samples)) {
                planner->variants[i] = (uint8_t)v;
            }
        }
    }
}

/* Gives the op the fastest of its variants that needs less workspace than now; false: there is
 * none. */
static bool choose_smaller(dunlin_planner *planner, uint32_t op_index, uint64_t slice_samples)
{
    const dunlin_mem_op *op = &planner->graph->ops[op_index];
    uint64_t limit =
        dunlin__workspace_bytes(&op->variants[planner->variants[op_index]], slice_samples);
    uint32_t best = op->n_variants;
    for (uint32_t v = 0; v < op->n_variants; v++) {
        if (dunlin__workspace_bytes(&op->variants[v], slice_samples) < limit &&
            (best == op->n_variants ||
             variant_cost_ns(planner, op_index, v, slice_samples) <
                 variant_cost_ns(planner, op_index, best, slice_samples))) {
            best = v;
        }
    }
    if (best == op->n_variants) {
        return false;
    }
    planner->variants[op_index] = (uint8_t)best;
    return true;
}

/* The schedule, its lives and its lower bound with the variants as they are. */
static uint64_t lay_out(dunlin_planner *planner, uint64_t slice_samples, uint32_t *out_peak_step)
{
    const dunlin_plan_options *options = &planner->options;
    if (slice_samples >= options->batch) {
        dunlin__schedule_whole(planner->graph, options->batch, planner->variants,
                               &planner->schedule);
    } else {
        dunlin__schedule_slices(planner->graph, options->batch, slice_samples, planner->is_late,
                                planner->variants, &planner->schedule);
    }
    dunlin__live_find(planner->graph, &planner->schedule, options->policy != DUNLIN_PLAN_NONE,
                      &planner->live);
    return dunlin__pack_lower_bound(planner->live.blocks, planner->live.n_blocks, planner->sums,
                                    planner->schedule.n_steps, out_peak_step);
}

static uint64_t place_apart(dunlin_live *live)
{
    uint64_t top = 0;
    for (uint32_t b = 0; b < live->n_blocks; b++) {
        live->blocks[b].offset_bytes = top;
        top += live->blocks[b].bytes;
    }
    return top;
}

static uint64_t pack(dunlin_planner *planner, uint64_t lower_bound_bytes, const char **out_name)
{
    if (planner->options.policy == DUNLIN_PLAN_NONE) {
        *out_name = "each apart";
        return place_apart(&planner->live);
    }
    return dunlin__pack(&planner->packer, planner->live.blocks, planner->live.n_blocks,
                        lower_bound_bytes, out_name);
}

/* Tries one slice size, changing variants at the peak until it fits or nothing is left to change.
 * The answer is the first try that fits, else the lowest. */
static dunlin_attempt try_slices(dunlin_planner *planner, uint64_t slice_samples,
                                 uint32_t max_changes)
{
    dunlin_attempt best = {.slice_samples = slice_samples, .pool_bytes = UINT64_MAX};
    choose_fastest(planner, slice_samples);
    for (uint32_t n = 0;; n++) {
        uint32_t peak_step = 0;
        uint64_t bound = lay_out(planner, slice_samples, &peak_step);
        if (bound < best.pool_bytes) {
            const char *name = NULL;
            uint64_t height = pack(planner, bound, &name);
            if (height < best.pool_bytes) {
                best.n_changes = n;
                best.pool_bytes = height;
                best.lower_bound_bytes = bound;
                best.packing = name;
                best.cost_ns = dunlin__schedule_cost_ns(planner->graph, &planner->schedule);
                best.is_fitting = planner->persistent_bytes + height <= planner->budget_bytes;
            }
        }
        if (best.is_fitting || n >= max_changes || planner->options.policy == DUNLIN_PLAN_NONE ||
            !choose_smaller(planner, planner->schedule.steps[peak_step].op, slice_samples)) {
            return best;
        }
    }
}

/* Leaves the planner's schedule, lives and offsets as they were in an attempt. */
static void repeat(dunlin_planner *planner, const dunlin_attempt *attempt)
{
    uint32_t peak_step = 0;
    choose_fastest(planner, attempt->slice_samples);
    uint64_t bound = lay_out(planner, attempt->slice_samples, &peak_step);
    for (uint32_t n = 0; n < attempt->n_changes; n++) {
        (void)choose_smaller(planner, planner->schedule.steps[peak_step].op,
                             attempt->slice_samples);
        bound = lay_out(planner, attempt->slice_samples, &peak_step);
    }
    const char *name = NULL;
    (void)pack(planner, bound, &name);
}

/* --- the search --- */

/* As many slices, but as even as they can be. */
static uint64_t balanced(uint64_t batch, uint64_t slice_samples)
{
    uint64_t n_slices = (batch - 1) / slice_samples + 1;
    return (batch - 1) / n_slices + 1;
}

/* The faster of two that fit; of equals the one with the larger slices. */
static void keep_faster(dunlin_attempt *best, const dunlin_attempt *other)
{
    if (other->is_fitting &&
        (!best->is_fitting || other->cost_ns < best->cost_ns ||
         (other->cost_ns == best->cost_ns && other->slice_samples > best->slice_samples))) {
        *best = *other;
    }
}

/* The largest slices up to `most` that fit, by bisection from one sample, which fits. */
static dunlin_attempt find_largest(dunlin_planner *planner, const dunlin_attempt *one,
                                   uint64_t most, uint32_t max_changes)
{
    dunlin_attempt best = *one;
    uint64_t low = 1;
    uint64_t high = most + 1;
    uint64_t probe = most;
    while (high - low > 1) {
        dunlin_attempt tried =
            try_slices(planner, balanced(planner->options.batch, probe), max_changes);
        if (tried.is_fitting) {
            best = tried;
            low = probe;
        } else {
            high = probe;
        }
        probe = low + (high - low) / 2;
    }
    return best;
}

/* AUTO. `*out_least` is the lowest arena of the whole batch and of slices of one sample. */
static dunlin_attempt search(dunlin_planner *planner, bool can_slice, uint64_t most,
                             uint64_t *out_least)
{
    uint64_t batch = planner->options.batch;
    dunlin_attempt best = {.pool_bytes = UINT64_MAX};
    uint64_t least_pool = UINT64_MAX;
    if (most == batch) {
        best = try_slices(planner, batch, UINT32_MAX);
        least_pool = best.pool_bytes;
    }
    bool is_best_possible = best.is_fitting && best.n_changes == 0;
    if (can_slice && !is_best_possible) {
        dunlin_attempt one = try_slices(planner, 1, UINT32_MAX);
        least_pool = one.pool_bytes < least_pool ? one.pool_bytes : least_pool;
        if (one.is_fitting) {
            uint64_t most_sliced = most == batch ? batch - 1 : most;
            dunlin_attempt found = find_largest(planner, &one, most_sliced, UINT32_MAX);
            keep_faster(&best, &found);
        }
        dunlin_attempt fast_one = try_slices(planner, 1, 0);
        if (fast_one.is_fitting && best.n_changes > 0) {
            uint64_t most_sliced = most == batch ? batch - 1 : most;
            dunlin_attempt found = find_largest(planner, &fast_one, most_sliced, 0);
            keep_faster(&best, &found);
        }
    }
    *out_least = planner->persistent_bytes + least_pool;
    return best;
}

/* Applies the policy. `*out_least` means something only if the attempt does not fit. */
static dunlin_status find_plan(dunlin_planner *planner, dunlin_attempt *out_attempt,
                               uint64_t *out_least, dunlin_error *error)
{
    const dunlin_plan_options *options = &planner->options;
    uint64_t batch = options->batch;
    uint64_t asked = options->slice_samples == 0 || options->slice_samples > batch
                         ? batch
                         : options->slice_samples;
    bool may_slice =
        options->policy == DUNLIN_PLAN_AUTO || options->policy == DUNLIN_PLAN_MICROBATCH;
    if (may_slice && asked < batch && planner->barrier_op != DUNLIN_MEM_NONE) {
        const char *name = planner->graph->ops[planner->barrier_op].name;
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, SUBSYSTEM, 0,
                            "slices of %" PRIu64 " of %" PRIu64
                            " samples: op %s waits for a reduction over the whole batch",
                            asked, batch, name == NULL ? "(unnamed)" : name);
    }
    if (options->policy == DUNLIN_PLAN_AUTO) {
        bool can_slice = planner->barrier_op == DUNLIN_MEM_NONE && batch > 1;
        *out_attempt = search(planner, can_slice, asked, out_least);
        return DUNLIN_OK;
    }
    *out_attempt = try_slices(planner, may_slice ? asked : batch, UINT32_MAX);
    *out_least = planner->persistent_bytes + out_attempt->pool_bytes;
    return DUNLIN_OK;
}

static dunlin_status create(dunlin_planner *planner, dunlin_plan **out_plan, dunlin_error *error)
{
    dunlin_attempt found = {0};
    uint64_t least = 0;
    DUNLIN_TRY(find_plan(planner, &found, &least, error));
    if (!found.is_fitting) {
        return dunlin__fail_budget(error, SUBSYSTEM, planner->budget_bytes, least);
    }
    repeat(planner, &found);
    dunlin_emit_head head = {.policy = planner->options.policy,
                             .pool_bytes = found.pool_bytes,
                             .pool_lower_bound_bytes = found.lower_bound_bytes,
                             .packing = found.packing};
    return dunlin__plan_emit(planner->graph, &planner->schedule, &planner->live, &head,
                             &planner->options.alloc, out_plan, error);
}

dunlin_status dunlin__plan_create(const dunlin_mem_graph *graph, const dunlin_plan_options *options,
                                  dunlin_plan **out_plan, dunlin_error *error)
{
    dunlin_planner planner;
    dunlin_plan *plan = NULL;
    *out_plan = NULL;
    DUNLIN_TRY(planner_open(graph, options, &planner, error));
    dunlin_alloc alloc = planner.options.alloc;
    dunlin_status status = create(&planner, &plan, error);
    planner_close(&planner);
    if (status == DUNLIN_OK) {
        status = dunlin__plan_verify(graph, plan, &alloc, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return DUNLIN_OK;
}

dunlin_status dunlin__plan_least_bytes(const dunlin_mem_graph *graph,
                                       const dunlin_plan_options *options, uint64_t *out_bytes,
                                       dunlin_error *error)
{
    dunlin_planner planner;
    dunlin_attempt found = {0};
    DUNLIN_TRY(planner_open(graph, options, &planner, error));
    planner.budget_bytes = 0;
    dunlin_status status = find_plan(&planner, &found, out_bytes, error);
    planner_close(&planner);
    return status;
}
