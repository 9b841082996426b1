/*
 * attempt.c - attempts: a schedule is laid out, its live ranges are found, and it is packed.
 *
 * Invariant: an attempt depends on the graph, the slice size and the budget alone; packing the same
 * schedule again gives the same plan.
 */
#include "attempt.h"

#include <mem/support.h>

#include <string.h>

#define SUBSYSTEM "plan"
#define PACK_MOVES 4000      /* of the search in one packing; */
#define EMIT_MOVES 8000      /* in that of the plan that is written */
#define EMIT_SHARE 128       /* one part in so many above the bound is low enough there, */
#define NEAR_SHARE 104       /* and so little more is not worth another search; */
#define INTERVAL_SHARE 96    /* where it is more than one in so many, the search goes on, */
#define INTERVAL_MOVES 40000 /* for so long */
#define MANY_LOOPS 4         /* the step is cut into regions */

void dunlin__planner_close(dunlin_planner *planner)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    size_t n_ops = planner->graph->n_ops;
    dunlin__free_array(alloc, planner->offsets, planner->n_offsets, sizeof *planner->offsets);
    for (int cut = 0; cut < DUNLIN_N_CUTS; cut++) {
        dunlin_cut_model *model = &planner->models[cut];
        dunlin__free_array(alloc, model->intervals, model->n_interval_bytes, 1);
        dunlin__free_array(alloc, model->slices, model->n_slices, sizeof *model->slices);
        dunlin__remat_close(&model->remat);
        dunlin__regions_close(&model->regions);
    }
    dunlin__packer_close(&planner->packer);
    dunlin__live_close(&planner->live);
    dunlin__free_array(alloc, planner->sums, planner->n_sums, sizeof *planner->sums);
    dunlin__free_array(alloc, planner->kept.steps, planner->n_steps_max,
                       sizeof *planner->kept.steps);
    dunlin__free_array(alloc, planner->schedule.steps, planner->n_steps_max,
                       sizeof *planner->schedule.steps);
    dunlin__free_array(alloc, planner->spans, n_ops + 1, sizeof *planner->spans);
    dunlin__free_array(alloc, planner->kept.loops, n_ops + 1, sizeof *planner->kept.loops);
    dunlin__free_array(alloc, planner->schedule.loops, n_ops + 1, sizeof *planner->schedule.loops);
    dunlin__free_array(alloc, planner->is_after_barrier, n_ops, sizeof *planner->is_after_barrier);
    dunlin__free_array(alloc, planner->variants, dunlin__mem_n_all_ops(planner->graph),
                       sizeof *planner->variants);
}

dunlin_status dunlin__planner_no_memory(const dunlin_planner *planner, dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, 0, "no memory to plan %u ops",
                        (unsigned)planner->graph->n_ops);
}

static dunlin_status fill(dunlin_planner *planner, dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    const dunlin_mem_graph *graph = planner->graph;
    size_t n_ops = graph->n_ops;
    planner->n_steps_max = graph->n_ops;
    planner->variants =
        dunlin__alloc_zeroed(alloc, dunlin__mem_n_all_ops(graph), sizeof *planner->variants);
    planner->is_after_barrier =
        dunlin__alloc_zeroed(alloc, n_ops, sizeof *planner->is_after_barrier);
    planner->schedule.steps = dunlin__alloc_array(alloc, n_ops, sizeof *planner->schedule.steps);
    planner->kept.steps = dunlin__alloc_array(alloc, n_ops, sizeof *planner->kept.steps);
    planner->schedule.loops =
        dunlin__alloc_array(alloc, n_ops + 1, sizeof *planner->schedule.loops);
    planner->kept.loops = dunlin__alloc_array(alloc, n_ops + 1, sizeof *planner->kept.loops);
    planner->spans = dunlin__alloc_array(alloc, n_ops + 1, sizeof *planner->spans);
    if (planner->variants == NULL || planner->is_after_barrier == NULL ||
        planner->schedule.steps == NULL || planner->kept.steps == NULL ||
        planner->schedule.loops == NULL || planner->kept.loops == NULL || planner->spans == NULL) {
        return dunlin__planner_no_memory(planner, error);
    }
    DUNLIN_TRY(dunlin__live_open(graph, alloc, &planner->live, error));
    return dunlin__schedule_find_barriers(graph, alloc, planner->is_after_barrier,
                                          &planner->barrier_op, error);
}

dunlin_status dunlin__planner_open(const dunlin_mem_graph *graph,
                                   const dunlin_plan_options *options, dunlin_planner *out_planner,
                                   dunlin_error *error)
{
    DUNLIN_TRY(dunlin__graph_check(graph, options->batch, &options->alloc, error));
    *out_planner = (dunlin_planner){.graph = graph, .options = *options};
    out_planner->options.alloc = dunlin__alloc_or_default(&options->alloc);
    out_planner->pack_method = DUNLIN_MEM_NONE;
    out_planner->aim_ns = UINT64_MAX;
    out_planner->most_samples = options->batch;
    out_planner->most_of_region = options->batch;
    if (options->is_slice_fixed && options->slice_samples != 0 &&
        options->slice_samples < options->batch) {
        out_planner->most_samples = options->slice_samples;
    }
    out_planner->budget_bytes = options->budget_bytes == 0 ? UINT64_MAX : options->budget_bytes;
    out_planner->persistent_bytes = dunlin__persistent_bytes(graph);
    dunlin_status status = fill(out_planner, error);
    if (status != DUNLIN_OK) {
        dunlin__planner_close(out_planner);
    }
    return status;
}

uint64_t dunlin__planner_room(const dunlin_planner *planner)
{
    return planner->budget_bytes > planner->persistent_bytes
               ? planner->budget_bytes - planner->persistent_bytes
               : 0;
}

/* --- variants --- */

/* Time of a variant over the whole batch. */
static uint64_t variant_cost_ns(const dunlin_planner *planner, uint32_t op, uint32_t variant,
                                uint64_t slice_samples)
{
    dunlin_plan_loop loop = {.slice_samples = slice_samples};
    return dunlin__variant_cost_ns(&planner->graph->ops[op], variant, &loop,
                                   planner->options.batch);
}

void dunlin__planner_choose_fastest(dunlin_planner *planner, uint64_t slice_samples)
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

void dunlin__planner_choose_smallest(dunlin_planner *planner, uint64_t slice_samples)
{
    for (uint32_t i = 0; i < planner->graph->n_ops; i++) {
        while (choose_smaller(planner, i, slice_samples)) {
        }
    }
}

uint64_t dunlin__planner_plain_ns(dunlin_planner *planner, uint64_t slice_samples)
{
    dunlin__planner_choose_fastest(planner, slice_samples);
    uint64_t cost = 0;
    for (uint32_t i = 0; i < planner->graph->n_ops; i++) {
        cost += variant_cost_ns(planner, i, planner->variants[i], slice_samples);
    }
    return cost;
}

/* --- laying out and packing --- */

static dunlin_status reserve_sums(dunlin_planner *planner, dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    uint32_t n_sums = planner->schedule.n_steps + 1;
    uint32_t n_blocks = planner->live.n_live_ranges_max;
    if (n_sums > planner->n_sums) {
        dunlin__free_array(alloc, planner->sums, planner->n_sums, sizeof *planner->sums);
        planner->sums = dunlin__alloc_array(alloc, n_sums, sizeof *planner->sums);
        planner->n_sums = planner->sums == NULL ? 0 : n_sums;
        if (planner->sums == NULL) {
            return dunlin__planner_no_memory(planner, error);
        }
    }
    if (n_blocks > planner->packer.n_max) {
        dunlin__packer_close(&planner->packer);
        DUNLIN_TRY(dunlin__packer_open(n_blocks, alloc, &planner->packer, error));
    }
    return DUNLIN_OK;
}

/* The schedule with the variants as they are, its live ranges and its lower bound. */
dunlin_status dunlin__planner_lay_out(dunlin_planner *planner, uint64_t slice_samples, bool is_cut,
                                      const dunlin_recompute_list *recompute, uint64_t *out_bound,
                                      uint32_t *out_peak_step, dunlin_error *error)
{
    const dunlin_plan_options *options = &planner->options;
    if (is_cut) {
        dunlin__schedule_regions(planner->graph, options->batch, &planner->at->regions,
                                 planner->at->slices, planner->variants, recompute,
                                 &planner->schedule);
    } else if (slice_samples >= options->batch) {
        dunlin__schedule_whole(planner->graph, options->batch, planner->variants, recompute,
                               &planner->schedule);
    } else {
        dunlin__schedule_slices(planner->graph, options->batch, slice_samples,
                                planner->is_after_barrier, planner->variants, recompute,
                                &planner->schedule);
    }
    DUNLIN_TRY(dunlin__live_find(planner->graph, &planner->schedule,
                                 options->policy != DUNLIN_PLAN_NONE, &planner->live, error));
    DUNLIN_TRY(reserve_sums(planner, error));
    *out_bound = dunlin__pack_lower_bound(planner->live.blocks, planner->live.n_blocks,
                                          planner->sums, planner->schedule.n_steps, out_peak_step);
    return DUNLIN_OK;
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

static void copy_offsets(const dunlin_pack_block *from, uint32_t n, uint64_t *to)
{
    for (uint32_t b = 0; b < n; b++) {
        to[b] = from[b].offset_bytes;
    }
}

/* Packs all at once, where that is lower than `height`, the current one. */
static uint64_t pack_at_once(dunlin_planner *planner, const dunlin_pack_goal *goal, uint64_t height,
                             const char **out_name)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    dunlin_live *live = &planner->live;
    uint64_t *offsets = dunlin__alloc_array(alloc, live->n_blocks, sizeof *offsets);
    if (offsets == NULL) {
        return height;
    }
    const char *name = NULL;
    copy_offsets(live->blocks, live->n_blocks, offsets);
    const uint64_t at_once =
        dunlin__pack_within(&planner->packer, live->blocks, live->n_blocks, goal, &name);
    if (at_once <= height) {
        *out_name = name;
    } else {
        for (uint32_t b = 0; b < live->n_blocks; b++) {
            live->blocks[b].offset_bytes = offsets[b];
        }
    }
    dunlin__free_array(alloc, offsets, live->n_blocks, sizeof *offsets);
    return at_once <= height ? at_once : height;
}

/* Loop by loop and, if that is not low enough, all at once; the lower of the two. */
static uint64_t pack_regions(dunlin_planner *planner, const dunlin_schedule *schedule,
                             const dunlin_pack_goal *goal, const char **out_name)
{
    dunlin_live *live = &planner->live;
    for (uint32_t l = 0; l < schedule->n_loops; l++) {
        const dunlin_plan_loop *loop = &schedule->loops[l];
        planner->spans[l] = (dunlin_pack_span){.first_step = loop->first_step,
                                               .last_step = loop->first_step + loop->n_steps - 1};
    }
    const uint64_t by_loop =
        dunlin__pack_by_loop(&planner->packer, live->blocks, live->n_blocks, planner->spans,
                             schedule->n_loops, goal, out_name);
    const uint64_t bound = goal->lower_bound_bytes;
    const uint64_t near = goal->target_bytes > bound ? bound + bound / NEAR_SHARE : bound;
    if (by_loop <= goal->target_bytes || by_loop <= near || goal->is_trial) {
        return by_loop;
    }
    return pack_at_once(planner, goal, by_loop, out_name);
}

/* Stops at the target: what fits is good enough until the plan is written. */
static uint64_t pack(dunlin_planner *planner, const dunlin_schedule *schedule,
                     const dunlin_pack_goal *goal, const char **out_name)
{
    if (planner->options.policy == DUNLIN_PLAN_NONE) {
        *out_name = "each apart";
        return place_apart(&planner->live);
    }
    if (planner->pack_method != DUNLIN_MEM_NONE) {
        *out_name = dunlin__pack_name(planner->pack_method);
        return dunlin__pack_by(&planner->packer, planner->pack_method, planner->live.blocks,
                               planner->live.n_blocks, UINT64_MAX);
    }
    if (schedule->n_loops >= MANY_LOOPS) {
        return pack_regions(planner, schedule, goal, out_name);
    }
    return dunlin__pack_within(&planner->packer, planner->live.blocks, planner->live.n_blocks, goal,
                               out_name);
}

uint64_t dunlin__planner_pack(dunlin_planner *planner, uint64_t lower_bound_bytes)
{
    const char *name = NULL;
    bool is_low = planner->packs_low || planner->budget_bytes == UINT64_MAX;
    if (!is_low && planner->pack_method == DUNLIN_MEM_NONE &&
        lower_bound_bytes > dunlin__planner_room(planner)) {
        return lower_bound_bytes; /* no packing is lower */
    }
    const dunlin_pack_goal goal = {.lower_bound_bytes = lower_bound_bytes,
                                   .target_bytes = is_low ? 0 : dunlin__planner_room(planner),
                                   .max_moves = PACK_MOVES,
                                   .is_trial = !is_low};
    return pack(planner, &planner->schedule, &goal, &name);
}

void dunlin__planner_conclude(const dunlin_planner *planner, uint64_t slice_samples, uint64_t bound,
                              uint64_t height, dunlin_attempt *out_attempt)
{
    *out_attempt = (dunlin_attempt){
        .slice_samples = slice_samples,
        .is_fitting = height <= planner->budget_bytes - planner->persistent_bytes &&
                      planner->budget_bytes >= planner->persistent_bytes,
        .pool_bytes = height,
        .lower_bound_bytes = bound,
        .cost_ns = dunlin__schedule_cost_ns(planner->graph, &planner->schedule)};
}

dunlin_status dunlin__try_slices(dunlin_planner *planner, uint64_t slice_samples,
                                 uint32_t max_changes, dunlin_attempt *out_attempt,
                                 dunlin_error *error)
{
    dunlin_attempt best = {.slice_samples = slice_samples, .pool_bytes = UINT64_MAX};
    dunlin__planner_choose_fastest(planner, slice_samples);
    for (uint32_t n = 0;; n++) {
        uint32_t peak_step = 0;
        uint64_t bound = 0;
        DUNLIN_TRY(dunlin__planner_lay_out(planner, slice_samples, false, NULL, &bound, &peak_step,
                                           error));
        if (bound < best.pool_bytes) {
            uint64_t height = dunlin__planner_pack(planner, bound);
            if (height < best.pool_bytes) {
                dunlin__planner_conclude(planner, slice_samples, bound, height, &best);
                best.n_changes = n;
            }
        }
        if (best.is_fitting || n >= max_changes || planner->options.policy == DUNLIN_PLAN_NONE ||
            !choose_smaller(planner, planner->schedule.steps[peak_step].op, slice_samples)) {
            *out_attempt = best;
            return DUNLIN_OK;
        }
    }
}

/* --- the best --- */

static bool is_better(const dunlin_attempt *attempt, const dunlin_attempt *best)
{
    if (!attempt->is_fitting || !best->is_fitting) {
        return attempt->is_fitting;
    }
    return attempt->cost_ns < best->cost_ns ||
           (attempt->cost_ns == best->cost_ns && attempt->slice_samples > best->slice_samples);
}

dunlin_status dunlin__planner_keep(dunlin_planner *planner, const dunlin_attempt *attempt,
                                   dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    uint32_t n_blocks = planner->live.n_blocks;
    if (!is_better(attempt, &planner->best)) {
        return DUNLIN_OK;
    }
    if (n_blocks > planner->n_offsets) {
        uint64_t *offsets = dunlin__alloc_array(alloc, n_blocks, sizeof *offsets);
        if (offsets == NULL) {
            return dunlin__planner_no_memory(planner, error);
        }
        dunlin__free_array(alloc, planner->offsets, planner->n_offsets, sizeof *offsets);
        planner->offsets = offsets;
        planner->n_offsets = n_blocks;
    }
    for (uint32_t b = 0; b < n_blocks; b++) {
        planner->offsets[b] = planner->live.blocks[b].offset_bytes;
    }
    planner->best = *attempt;
    dunlin_schedule_step *steps = planner->kept.steps;
    memcpy(steps, planner->schedule.steps, planner->schedule.n_steps * sizeof *steps);
    dunlin_plan_loop *loops = planner->kept.loops;
    memcpy(loops, planner->schedule.loops, planner->schedule.n_loops * sizeof *loops);
    planner->kept = planner->schedule;
    planner->kept.steps = steps;
    planner->kept.loops = loops;
    return DUNLIN_OK;
}

/* Packs the kept schedule as the plan is to have it: lower than each published order by itself, and
 * longer where much is left above the bound. */
static uint64_t pack_kept(dunlin_planner *planner, const char **out_name)
{
    static const char *const published[] = {"size, first fit", "size, best fit",
                                            "longest life then size, best fit"};
    dunlin_live *live = &planner->live;
    const dunlin_attempt *best = &planner->best;
    const uint64_t bound = best->lower_bound_bytes;
    const uint64_t near = bound + bound / INTERVAL_SHARE;
    const bool is_low = planner->packs_low || planner->budget_bytes == UINT64_MAX;
    const dunlin_pack_goal goal = {.lower_bound_bytes = bound,
                                   .target_bytes = is_low ? bound : bound + bound / EMIT_SHARE,
                                   .max_moves = EMIT_MOVES};
    uint64_t height = pack(planner, &planner->kept, &goal, out_name);
    if (planner->pack_method != DUNLIN_MEM_NONE || planner->options.policy == DUNLIN_PLAN_NONE) {
        return height;
    }
    if (height > near && best->pool_bytes > near) {
        dunlin_pack_goal longer = goal;
        longer.max_moves = INTERVAL_MOVES;
        const uint64_t made = pack(planner, &planner->kept, &longer, out_name);
        height = made <= height ? made : pack(planner, &planner->kept, &goal, out_name);
    }
    for (size_t i = 0; i < sizeof published / sizeof published[0] && height > bound; i++) {
        const uint64_t made = dunlin__pack_by(&planner->packer, dunlin__pack_find(published[i]),
                                              live->blocks, live->n_blocks, height);
        if (made < height) {
            height = made;
            *out_name = published[i];
        }
    }
    return height;
}

dunlin_status dunlin__planner_emit(dunlin_planner *planner, dunlin_plan **out_plan,
                                   dunlin_error *error)
{
    const dunlin_attempt *best = &planner->best;
    const char *name = NULL;
    DUNLIN_TRY(dunlin__live_find(planner->graph, &planner->kept,
                                 planner->options.policy != DUNLIN_PLAN_NONE, &planner->live,
                                 error));
    uint64_t height = pack_kept(planner, &name);
    if (height > best->pool_bytes) {
        height = best->pool_bytes;
        name = "first that fits";
        for (uint32_t b = 0; b < planner->live.n_blocks; b++) {
            planner->live.blocks[b].offset_bytes = planner->offsets[b];
        }
    }
    dunlin_emit_head head = {.policy = planner->options.policy,
                             .pool_bytes = height,
                             .pool_lower_bound_bytes = best->lower_bound_bytes,
                             .packing = name};
    return dunlin__plan_emit(planner->graph, &planner->kept, &planner->live, &head,
                             &planner->options.alloc, out_plan, error);
}
