/*
 * policy.c - published policies, run for comparison in the same plans, on the same graph.
 *
 * Invariant: each takes its decisions as its source does; where the source leaves a choice open,
 * memory/PLANNER.md says what is done here. None of them sees what the search would do.
 * Sources: "recompute" and "melon": Wang et al., "Melon", MobiSys 2022, sections 4 and 5; "sgc"
 * and "sublinear": Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; "sage": Gim
 * and Ko, "Sage", MobiSys 2022.
 */
#include "policy.h"

#include "remat/evict.h"

#include <mem/baselines.h>
#include <mem/support.h>

#include <string.h>

/* Slices lose throughput when they are small: Sage stops there, and publishes no threshold. */
#define UNDERUSE_SHARE 20 /* a slice may cost a twentieth more than the whole batch */
#define MELON_SLICE 16    /* samples, where batch norm does not couple the batch */
#define TARGET_STEPS 64   /* targets for live bytes, from the room down to a third of it */

/* The highest target whose packing fits. `*out_attempt` is the last one packed. */
static dunlin_status lower_target(dunlin_planner *planner, dunlin_eviction metric, uint64_t slice,
                                  dunlin_attempt *out_attempt, dunlin_error *error)
{
    uint64_t room = dunlin__planner_room(planner);
    for (uint64_t i = 0; i < TARGET_STEPS; i++) {
        uint64_t target = room - room / 96 * i;
        if (!dunlin__evict_on_demand(&planner->at->remat, metric, target, planner->at->intervals,
                                     planner->at->intervals + planner->at->remat.n_intervals)) {
            return DUNLIN_OK;
        }
        DUNLIN_TRY(dunlin__try_intervals(planner, slice, out_attempt, error));
        if (out_attempt->is_fitting) {
            return DUNLIN_OK;
        }
    }
    return DUNLIN_OK;
}

/* --- sgc --- */

/* Forward ops in so many segments: what one segment hands to a later one is kept, the rest of what
 * the backward pass needs is dropped. */
static void cut_segments(dunlin_planner *planner, uint32_t n_forward, uint32_t n_segments)
{
    dunlin_remat *remat = &planner->at->remat;
    for (uint32_t g = 0; g < remat->n_intervals; g++) {
        const dunlin_interval *interval = &remat->intervals[g];
        const dunlin_remat_root *root = &remat->roots[interval->root];
        uint32_t made = remat->makers[root->first_maker];
        bool crosses = interval->from < n_forward && interval->to >= n_forward;
        bool is_border = (uint64_t)made * n_segments / n_forward !=
                         (uint64_t)interval->from * n_segments / n_forward;
        planner->at->intervals[g] =
            crosses && !is_border ? DUNLIN_INTERVAL_LAZY : DUNLIN_INTERVAL_RETAIN;
    }
}

static uint32_t count_forward(const dunlin_planner *planner)
{
    const dunlin_remat *remat = &planner->at->remat;
    uint32_t n_forward = 0;
    while (n_forward < remat->n_steps &&
           !planner->graph->ops[remat->steps[n_forward].op].is_backward) {
        n_forward++;
    }
    return n_forward;
}

static dunlin_status try_segments(dunlin_planner *planner, uint64_t slice,
                                  dunlin_attempt *out_attempt, dunlin_error *error)
{
    const uint32_t n_forward = count_forward(planner);
    *out_attempt = (dunlin_attempt){.slice_samples = slice, .pool_bytes = UINT64_MAX};
    for (uint32_t n = 2; n <= n_forward; n++) {
        dunlin_attempt tried;
        cut_segments(planner, n_forward, n);
        if (!dunlin__remat_run(&planner->at->remat, planner->at->intervals, UINT64_MAX).is_valid) {
            continue;
        }
        DUNLIN_TRY(dunlin__try_intervals(planner, slice, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        if (tried.pool_bytes < out_attempt->pool_bytes) {
            *out_attempt = tried;
        }
    }
    return DUNLIN_OK;
}

/* --- sublinear --- */

/* As many segments as the root of the forward ops, or the next number that is a plan. The budget is
 * not looked at: what is dropped is the same with any. */
static dunlin_status try_sublinear(dunlin_planner *planner, dunlin_attempt *out_attempt,
                                   dunlin_error *error)
{
    const uint64_t batch = planner->most_samples;
    DUNLIN_TRY(dunlin__planner_set_slice(planner, batch, error));
    const uint32_t n_forward = count_forward(planner);
    uint32_t n_segments = 1;
    while ((uint64_t)(n_segments + 1) * (n_segments + 1) <= n_forward) {
        n_segments++;
    }
    for (; n_segments <= n_forward; n_segments++) {
        cut_segments(planner, n_forward, n_segments);
        if (dunlin__remat_run(&planner->at->remat, planner->at->intervals, UINT64_MAX).is_valid) {
            DUNLIN_TRY(dunlin__try_intervals(planner, batch, out_attempt, error));
            return dunlin__planner_keep(planner, out_attempt, error);
        }
    }
    DUNLIN_TRY(dunlin__try_slices(planner, batch, 0, out_attempt, error));
    return dunlin__planner_keep(planner, out_attempt, error);
}

/* --- melon --- */

/* The first step at which something reaches above the room, as a position of the body. */
static uint32_t first_high(const dunlin_planner *planner)
{
    uint64_t room = dunlin__planner_room(planner);
    uint32_t first = DUNLIN_MEM_NONE;
    for (uint32_t b = 0; b < planner->live.n_blocks; b++) {
        const dunlin_pack_block *block = &planner->live.blocks[b];
        if (block->offset_bytes + block->bytes > room && block->first_step < first) {
            first = block->first_step;
        }
    }
    return dunlin__planner_position(planner, first);
}

/* While the pool's top is above the room, evicts where it first is. */
static dunlin_status calibrate(dunlin_planner *planner, uint64_t slice, dunlin_attempt *out_attempt,
                               dunlin_error *error)
{
    uint8_t *is_pinned = planner->at->intervals + planner->at->remat.n_intervals;
    memset(planner->at->intervals, DUNLIN_INTERVAL_RETAIN,
           2 * (size_t)planner->at->remat.n_intervals);
    for (;;) {
        DUNLIN_TRY(dunlin__try_intervals(planner, slice, out_attempt, error));
        if (out_attempt->is_fitting ||
            !dunlin__evict_at(&planner->at->remat, DUNLIN_EVICT_TPS, first_high(planner),
                              planner->at->intervals, is_pinned)) {
            return DUNLIN_OK;
        }
    }
}

/* --- the policies --- */

/* Sage: slices as small as they can be before throughput falls, then checkpointing. */
static uint64_t underuse_slice(dunlin_planner *planner, bool can_slice)
{
    uint64_t batch = planner->most_samples;
    uint64_t slice = batch;
    uint64_t whole_ns = dunlin__planner_plain_ns(planner, batch);
    while (can_slice && slice > 1) {
        uint64_t smaller = slice - slice / 2;
        if (dunlin__planner_plain_ns(planner, smaller) > whole_ns + whole_ns / UNDERUSE_SHARE) {
            break;
        }
        slice = smaller;
    }
    return slice;
}

static dunlin_status try_sage(dunlin_planner *planner, bool can_slice, dunlin_attempt *out_attempt,
                              dunlin_error *error)
{
    uint64_t batch = planner->most_samples;
    uint64_t least = underuse_slice(planner, can_slice);
    for (uint64_t slice = batch; slice >= least; slice -= slice / 2) {
        DUNLIN_TRY(dunlin__try_slices(planner, slice, 0, out_attempt, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, out_attempt, error));
        if (out_attempt->is_fitting || slice == least) {
            break;
        }
    }
    if (planner->best.is_fitting) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__planner_set_slice(planner, least, error));
    return lower_target(planner, DUNLIN_EVICT_SIZE_OVER_TIME, least, out_attempt, error);
}

static dunlin_status try_policy(dunlin_planner *planner, bool can_slice,
                                dunlin_attempt *out_attempt, dunlin_error *error)
{
    uint64_t batch = planner->most_samples;
    uint64_t slice = batch;
    if (planner->options.policy == DUNLIN_PLAN_SUBLINEAR) {
        return try_sublinear(planner, out_attempt, error);
    }
    if (planner->options.policy >= DUNLIN_PLAN_VDNN) {
        return dunlin__try_swaps(planner, out_attempt, error);
    }
    if (planner->options.policy == DUNLIN_PLAN_SAGE) {
        DUNLIN_TRY(try_sage(planner, can_slice, out_attempt, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, out_attempt, error));
        return DUNLIN_OK;
    }
    if (planner->options.policy == DUNLIN_PLAN_MELON && can_slice && batch > MELON_SLICE) {
        slice = MELON_SLICE;
    }
    if (planner->options.policy == DUNLIN_PLAN_MELON) {
        planner->pack_method = dunlin__pack_find("longest life then size, best fit");
    } else if (planner->options.policy == DUNLIN_PLAN_RECOMPUTE) {
        planner->pack_method = dunlin__pack_find("start then size, best fit");
    }
    DUNLIN_TRY(dunlin__try_slices(planner, batch, 0, out_attempt, error));
    DUNLIN_TRY(dunlin__planner_keep(planner, out_attempt, error));
    if (out_attempt->is_fitting) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__planner_set_slice(planner, slice, error));
    if (planner->options.policy == DUNLIN_PLAN_SGC) {
        return try_segments(planner, slice, out_attempt, error);
    }
    if (planner->options.policy == DUNLIN_PLAN_MELON) {
        DUNLIN_TRY(calibrate(planner, slice, out_attempt, error));
    } else {
        DUNLIN_TRY(lower_target(planner, DUNLIN_EVICT_TPS, slice, out_attempt, error));
    }
    DUNLIN_TRY(dunlin__planner_keep(planner, out_attempt, error));
    return DUNLIN_OK;
}

dunlin_status dunlin__try_policy(dunlin_planner *planner, bool can_slice, uint64_t *out_least,
                                 dunlin_error *error)
{
    const uint64_t budget = planner->budget_bytes;
    dunlin_attempt tried;
    DUNLIN_TRY(try_policy(planner, can_slice, &tried, error));
    if (planner->best.is_fitting) {
        return DUNLIN_OK;
    }
    /* Some of them fail at a budget and work at a smaller one: the least that bisection finds is
     * the way out. */
    planner->budget_bytes = UINT64_MAX;
    DUNLIN_TRY(try_policy(planner, can_slice, &tried, error));
    uint64_t high = planner->best.pool_bytes;
    uint64_t low = planner->best.pool_bytes / 64;
    while (high > low && high - low > 1 + high / 256) {
        const uint64_t middle = low + (high - low) / 2;
        planner->budget_bytes = planner->persistent_bytes + middle;
        planner->best.is_fitting = planner->best.pool_bytes <= middle;
        if (!planner->best.is_fitting) {
            const dunlin_attempt lowest = planner->best;
            DUNLIN_TRY(try_policy(planner, can_slice, &tried, error));
            if (!planner->best.is_fitting) {
                planner->best = lowest;
                low = middle;
                continue;
            }
        }
        high = planner->best.pool_bytes;
    }
    planner->budget_bytes = budget;
    *out_least = planner->best.pool_bytes;
    planner->best.is_fitting = planner->best.pool_bytes <= dunlin__planner_room(planner);
    return DUNLIN_OK;
}
