/*
 * search.c - finds the fastest plan that fits: the whole batch, slices with accumulation, regions
 * in slices, and rematerialisation with each of them.
 *
 * Invariant: the least budget is the lowest of a few attempts that no budget changes (the whole
 * batch and slices of one sample, plain, cut into regions, and with everything dropped that lowers
 * the peak); they are also the fallback when the search finds nothing. So below the least budget
 * nothing is promised, and from it on the search always succeeds. Slices with accumulation: Gim and
 * Ko, "Memory-efficient DNN training on mobile devices" (Sage), MobiSys 2022.
 */
#include "within.h"

#include <mem/support.h>

#include <inttypes.h>

#define SUBSYSTEM "plan"
#define SMALL_OPS 128
/* A plan that loses less of the ideal time is not improved one recomputed op at a time. */
#define NEAR_SHARE 64

/* Keeps the best of slices up to `most` that fit without rematerialisation, by bisection from one
 * sample, which fits. Returns the largest. */
static dunlin_status try_largest(dunlin_planner *planner, uint64_t most, uint32_t max_changes,
                                 uint64_t *out_largest, dunlin_error *error)
{
    uint64_t low = 1;
    uint64_t high = most + 1;
    uint64_t probe = most;
    while (high - low > 1) {
        dunlin_attempt tried;
        DUNLIN_TRY(dunlin__try_slices(planner, dunlin__balanced(planner->options.batch, probe),
                                      max_changes, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        if (tried.is_fitting) {
            low = probe;
        } else {
            high = probe;
        }
        probe = low + (high - low) / 2;
    }
    *out_largest = low;
    return DUNLIN_OK;
}

/* What is known of a search without a plan so far. */
typedef struct {
    dunlin_ways ways;
    uint64_t least_pool;
} progress;

/* `is_current`: its schedule is the one laid out last. */
static dunlin_status note_least(dunlin_planner *planner, progress *at, const dunlin_attempt *tried,
                                bool is_current, dunlin_error *error)
{
    if (tried->pool_bytes >= at->least_pool) {
        return DUNLIN_OK;
    }
    at->least_pool = tried->pool_bytes;
    planner->has_lowest = planner->keeps_lowest && is_current;
    if (planner->has_lowest) {
        dunlin_attempt lowest = *tried;
        lowest.is_fitting = true;
        planner->best.is_fitting = false;
        DUNLIN_TRY(dunlin__planner_keep(planner, &lowest, error));
        planner->best.is_fitting = false; /* for whatever is still tried */
    }
    return DUNLIN_OK;
}

/* An attempt without rematerialisation on which the least budget may depend. */
static dunlin_status try_noted(dunlin_planner *planner, progress *at, uint64_t slice_samples,
                               dunlin_attempt *out_attempt, dunlin_error *error)
{
    planner->packs_low = true;
    const dunlin_status status =
        dunlin__try_slices(planner, slice_samples, UINT32_MAX, out_attempt, error);
    planner->packs_low = false;
    DUNLIN_TRY(status);
    DUNLIN_TRY(note_least(planner, at, out_attempt, false, error));
    return dunlin__planner_keep(planner, out_attempt, error);
}

/* The whole batch, else slices, nothing recomputed. */
static dunlin_status try_plain(dunlin_planner *planner, progress *at, dunlin_error *error)
{
    uint64_t batch = planner->most_samples;
    dunlin_attempt tried;
    if (at->ways.most == batch) {
        DUNLIN_TRY(try_noted(planner, at, batch, &tried, error));
        if (tried.is_fitting && tried.n_changes == 0) {
            return DUNLIN_OK;
        }
    }
    if (!at->ways.can_slice) {
        return DUNLIN_OK;
    }
    uint64_t most = at->ways.most == batch ? batch - 1 : at->ways.most;
    DUNLIN_TRY(try_noted(planner, at, 1, &tried, error));
    if (tried.is_fitting) {
        DUNLIN_TRY(try_largest(planner, most, UINT32_MAX, &at->ways.largest_plain, error));
    }
    bool has_changes = planner->best.n_changes > 0 || tried.n_changes > 0;
    DUNLIN_TRY(dunlin__try_slices(planner, 1, 0, &tried, error));
    DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
    if (tried.is_fitting && has_changes) {
        DUNLIN_TRY(try_largest(planner, most, 0, &at->ways.largest_plain, error));
    } else if (has_changes) {
        at->ways.largest_plain = 0;
    }
    return DUNLIN_OK;
}

/* Everything is dropped that lowers the peak: the fallback when nothing else fits, and the least
 * budget. */
static dunlin_status try_lowest(dunlin_planner *planner, progress *at, dunlin_error *error)
{
    dunlin_attempt tried;
    if (at->ways.most == planner->most_samples) {
        DUNLIN_TRY(dunlin__try_lowest(planner, at->ways.most, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        DUNLIN_TRY(note_least(planner, at, &tried, true, error));
    }
    if (at->ways.can_slice) {
        DUNLIN_TRY(dunlin__try_lowest(planner, 1, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        DUNLIN_TRY(note_least(planner, at, &tried, true, error));
    }
    for (int cut = DUNLIN_CUT_UPDATES_HELD; at->ways.can_cut && cut <= DUNLIN_CUT_UPDATES_LAST;
         cut++) {
        DUNLIN_TRY(dunlin__try_lowest_regions(planner, (dunlin_cut)cut, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        DUNLIN_TRY(note_least(planner, at, &tried, true, error));
    }
    return DUNLIN_OK;
}

static dunlin_status search(dunlin_planner *planner, progress *at, dunlin_error *error)
{
    DUNLIN_TRY(try_plain(planner, at, error));
    const uint64_t ideal_ns = dunlin__planner_plain_ns(planner, planner->most_samples);
    const uint64_t good_ns = at->ways.can_cut ? ideal_ns : ideal_ns + ideal_ns / 100;
    const bool is_good = planner->best.is_fitting && planner->best.cost_ns <= good_ns;
    const bool is_small =
        planner->graph->n_ops <= SMALL_OPS && at->ways.most == planner->most_samples;
    /* The budget itself first; what smaller limits find needs less, and may be faster. */
    at->ways.can_be_whole = !at->ways.can_cut || at->ways.most == planner->most_samples;
    if (!is_good && dunlin__planner_room(planner) > 0) {
        DUNLIN_TRY(dunlin__try_within(planner, &at->ways, error));
        DUNLIN_TRY(dunlin__try_near(planner, &at->ways, ideal_ns, error));
        if (at->ways.can_cut) {
            DUNLIN_TRY(dunlin__try_frontier(planner, at->ways.can_be_whole, error));
        }
    }
    if (!is_good && is_small && dunlin__planner_room(planner) > 0) {
        /* Slices that cost next to nothing are seldom beaten. */
        const uint64_t near_ns = ideal_ns + ideal_ns / NEAR_SHARE;
        const bool is_near = at->ways.can_slice || planner->best.cost_ns <= near_ns;
        if (!planner->best.is_fitting || !is_near) {
            DUNLIN_TRY(dunlin__try_redos(planner, error));
        }
    }
    /* With so little memory the least budget's plan, which no budget changes, may be the faster
     * one. */
    const bool is_costly = at->ways.can_cut && planner->best.cost_ns > 2 * ideal_ns;
    if (!planner->best.is_fitting || is_costly) {
        DUNLIN_TRY(try_lowest(planner, at, error));
    }
    return planner->best.is_fitting || planner->options.is_least_quick
               ? DUNLIN_OK
               : dunlin__try_lower(planner, &at->ways, &at->least_pool, error);
}

/* Applies the policy. `*out_least` (a pool) means something only if nothing fits. */
static dunlin_status find_plan(dunlin_planner *planner, uint64_t *out_least, dunlin_error *error)
{
    const dunlin_plan_options *options = &planner->options;
    uint64_t batch = options->batch;
    uint64_t asked = options->slice_samples == 0 || options->slice_samples > batch
                         ? batch
                         : options->slice_samples;
    bool is_fixed = options->is_slice_fixed && options->slice_samples != 0;
    bool may_slice = is_fixed || options->policy == DUNLIN_PLAN_AUTO ||
                     options->policy == DUNLIN_PLAN_MICROBATCH;
    const bool has_barrier = planner->barrier_op != DUNLIN_MEM_NONE;
    const bool slices_regions =
        has_barrier && !is_fixed && options->policy == DUNLIN_PLAN_AUTO && asked < batch;
    if (may_slice && asked < batch && has_barrier && !slices_regions) {
        const char *name = planner->graph->ops[planner->barrier_op].name;
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, SUBSYSTEM, 0,
                            "slices of %" PRIu64 " of %" PRIu64
                            " samples: op %s waits for a reduction over the whole batch",
                            asked, batch, name == NULL ? "(unnamed)" : name);
    }
    const bool is_free = !is_fixed && options->policy != DUNLIN_PLAN_WHOLE && batch > 1;
    const bool is_cut = has_barrier || options->n_cuts > 0;
    planner->most_of_region = is_cut ? asked : batch;
    progress at = {.ways = {.can_slice = is_free && !is_cut,
                            .can_cut = is_free && is_cut,
                            .most = may_slice ? asked : batch},
                   .least_pool = UINT64_MAX};
    if (options->policy == DUNLIN_PLAN_AUTO || options->policy == DUNLIN_PLAN_WHOLE) {
        DUNLIN_TRY(search(planner, &at, error));
    } else if (options->policy == DUNLIN_PLAN_MICROBATCH && options->slice_samples == 0) {
        DUNLIN_TRY(try_plain(planner, &at, error));
    } else if (options->policy >= DUNLIN_PLAN_RECOMPUTE) {
        if (options->baseline_fn == NULL) {
            return dunlin__fail(error, DUNLIN_UNSUPPORTED, SUBSYSTEM, 0,
                                "policy %d is a published one, and the options have none",
                                (int)options->policy);
        }
        DUNLIN_TRY(options->baseline_fn(planner, at.ways.can_slice, &at.least_pool, error));
    } else {
        dunlin_attempt tried;
        if (options->policy == DUNLIN_PLAN_IDEAL) {
            planner->budget_bytes = UINT64_MAX;
        }
        DUNLIN_TRY(try_noted(planner, &at, at.ways.most, &tried, error));
    }
    *out_least = at.least_pool;
    return DUNLIN_OK;
}

static dunlin_status create(dunlin_planner *planner, dunlin_plan **out_plan, dunlin_error *error)
{
    uint64_t least = 0;
    DUNLIN_TRY(find_plan(planner, &least, error));
    if (!planner->best.is_fitting) {
        return dunlin__fail_budget(error, SUBSYSTEM, planner->budget_bytes,
                                   planner->persistent_bytes + least);
    }
    return dunlin__planner_emit(planner, out_plan, error);
}

dunlin_status dunlin__plan_create(const dunlin_mem_graph *graph, const dunlin_plan_options *options,
                                  dunlin_plan **out_plan, dunlin_error *error)
{
    dunlin_planner planner;
    dunlin_plan *plan = NULL;
    *out_plan = NULL;
    DUNLIN_TRY(dunlin__planner_open(graph, options, &planner, error));
    dunlin_alloc alloc = planner.options.alloc;
    dunlin_status status = create(&planner, &plan, error);
    dunlin__planner_close(&planner);
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

/* The least bytes; the planner keeps the plan that needs no more, if it has one already. */
static dunlin_status find_least(dunlin_planner *planner, uint64_t *out_bytes, dunlin_error *error)
{
    uint64_t least = 0;
    planner->budget_bytes = 0;
    DUNLIN_TRY(find_plan(planner, &least, error));
    planner->has_lowest = planner->has_lowest && planner->best.pool_bytes == least;
    *out_bytes = planner->persistent_bytes + least;
    return DUNLIN_OK;
}

dunlin_status dunlin__plan_least_bytes(const dunlin_mem_graph *graph,
                                       const dunlin_plan_options *options, uint64_t *out_bytes,
                                       dunlin_error *error)
{
    dunlin_planner planner;
    DUNLIN_TRY(dunlin__planner_open(graph, options, &planner, error));
    const dunlin_status status = find_least(&planner, out_bytes, error);
    dunlin__planner_close(&planner);
    return status;
}

dunlin_status dunlin__plan_create_least(const dunlin_mem_graph *graph,
                                        const dunlin_plan_options *options, uint64_t *out_bytes,
                                        dunlin_plan **out_plan, dunlin_error *error)
{
    dunlin_planner planner;
    dunlin_plan *plan = NULL;
    *out_plan = NULL;
    DUNLIN_TRY(dunlin__planner_open(graph, options, &planner, error));
    dunlin_alloc alloc = planner.options.alloc;
    planner.keeps_lowest = true;
    dunlin_status status = find_least(&planner, out_bytes, error);
    if (status == DUNLIN_OK && planner.has_lowest) {
        planner.best.is_fitting = true;
        planner.budget_bytes = *out_bytes;
        status = dunlin__planner_emit(&planner, &plan, error);
    }
    dunlin__planner_close(&planner);
    if (status == DUNLIN_OK && plan != NULL) {
        status = dunlin__plan_verify(graph, plan, &alloc, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return DUNLIN_OK;
}
