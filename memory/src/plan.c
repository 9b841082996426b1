/*
 * plan.c - finds the fastest plan that fits: the whole batch, slices with accumulation, regions in
 * slices, rematerialisation on each of them.
 *
 * Invariant: the least budget is the lowest of a few attempts that no budget changes (the whole
 * batch and slices of one sample, plain, cut into regions, and with all that helps dropped); they
 * are also the way out when the search finds nothing. So below the least nothing is promised, and
 * from it on the search always succeeds. Slices with accumulation: Gim and Ko, "Memory-efficient
 * DNN training on mobile devices" (Sage), MobiSys 2022.
 */
#include "policy.h"

#include <mem/support.h>

#include <inttypes.h>

#define SUBSYSTEM "plan"
#define SMALL_OPS 128
#define LOWEST_OPS 256
#define NEAR_SHARE 64 /* what loses less of the ideal time is not improved redo by redo */

/* As many slices, but as even as they can be. */
static uint64_t balanced(uint64_t batch, uint64_t slice_samples)
{
    uint64_t n_slices = (batch - 1) / slice_samples + 1;
    return (batch - 1) / n_slices + 1;
}

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
        DUNLIN_TRY(dunlin__try_slices(planner, balanced(planner->options.batch, probe), max_changes,
                                      &tried, error));
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

/*
 * Rematerialisation on the whole batch, and on slices larger than those that fit without: quickly
 * on all that could be the best, then thoroughly on the best of them.
 */
static dunlin_status try_remats(dunlin_planner *planner, bool can_slice, uint64_t most,
                                uint64_t largest_plain, dunlin_error *error)
{
    uint64_t batch = planner->options.batch;
    uint64_t n_slices = (batch - 1) / most + 1;
    uint64_t best_slice = 0;
    dunlin_attempt tried;
    for (;;) {
        uint64_t slice = can_slice ? balanced(batch, (batch - 1) / n_slices + 1) : most;
        bool may_win = !planner->best.is_fitting ||
                       dunlin__planner_plain_ns(planner, slice) < planner->best.cost_ns;
        if (slice <= largest_plain || !may_win) {
            break;
        }
        DUNLIN_TRY(dunlin__try_remat(planner, slice, DUNLIN_EFFORT_QUICK, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        best_slice =
            tried.is_fitting && planner->best.cost_ns == tried.cost_ns ? slice : best_slice;
        if (!can_slice || slice == 1) {
            break;
        }
        n_slices = n_slices < 4 ? n_slices + 1 : n_slices + n_slices / 2;
        n_slices = n_slices < batch ? n_slices : batch;
    }
    if (best_slice != 0) {
        DUNLIN_TRY(dunlin__try_remat(planner, best_slice, DUNLIN_EFFORT_THOROUGH, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
    }
    return DUNLIN_OK;
}

/* A way to cut the step into regions, and what it would cost. */
typedef struct {
    dunlin_cut cut;
    uint64_t share;
    uint64_t cost_ns;
} region_way;

/* Slices from larger to smaller: of a region's time, what their fixed costs may take is one part in
 * so many. The last ones are better than nothing. */
static const uint64_t shares[] = {256, 32, 8, 1, 0};
#define N_SHARES (sizeof shares / sizeof shares[0])
#define N_GOOD_SHARES 3
#define PACK_SHARE 100 /* of the time, what may be lost in packing */

/* Adds a way to those found so far, the cheapest first, if there is a choice within the budget. */
static dunlin_status add_way(dunlin_planner *planner, dunlin_cut cut, uint64_t share,
                             region_way *ways, uint32_t *n_ways, dunlin_error *error)
{
    dunlin_attempt tried;
    DUNLIN_TRY(dunlin__try_regions(planner, cut, share, DUNLIN_EFFORT_ESTIMATE, &tried, error));
    if (tried.cost_ns == UINT64_MAX) {
        return DUNLIN_OK;
    }
    uint32_t at = (*n_ways)++;
    for (; at > 0 && ways[at - 1].cost_ns > tried.cost_ns; at--) {
        ways[at] = ways[at - 1];
    }
    ways[at] = (region_way){.cut = cut, .share = share, .cost_ns = tried.cost_ns};
    return DUNLIN_OK;
}

/* Tries the ways that may be the best of all by more than packing costs. */
static dunlin_status try_ways(dunlin_planner *planner, const region_way *ways, uint32_t n_ways,
                              dunlin_error *error)
{
    for (uint32_t i = 0; i < n_ways; i++) {
        const dunlin_attempt *best = &planner->best;
        const uint64_t aim_ns = i == 0 ? best->cost_ns : best->cost_ns - best->cost_ns / PACK_SHARE;
        if (best->is_fitting && ways[i].cost_ns >= aim_ns) {
            break;
        }
        dunlin_attempt tried;
        DUNLIN_TRY(dunlin__try_regions(planner, ways[i].cut, ways[i].share, DUNLIN_EFFORT_THOROUGH,
                                       &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
    }
    return DUNLIN_OK;
}

/*
 * The step cut into regions that run slice by slice, with the updates held back or at the end, in
 * slices from larger to smaller: what each would cost, then, the cheapest first, what packs.
 */
static dunlin_status try_regions(dunlin_planner *planner, dunlin_error *error)
{
    region_way ways[2 * N_GOOD_SHARES];
    for (size_t first = 0; first < N_SHARES; first += N_GOOD_SHARES) {
        uint32_t n_ways = 0;
        for (int cut = DUNLIN_CUT_UPDATES_HELD; cut <= DUNLIN_CUT_UPDATES_LAST; cut++) {
            for (size_t i = first; i < N_SHARES && i < first + N_GOOD_SHARES; i++) {
                DUNLIN_TRY(add_way(planner, (dunlin_cut)cut, shares[i], ways, &n_ways, error));
            }
        }
        /* Estimates end soon; the whole search may find what they do not. */
        for (int cut = DUNLIN_CUT_UPDATES_LAST;
             n_ways == 0 && !planner->best.is_fitting && cut >= DUNLIN_CUT_UPDATES_HELD; cut--) {
            const region_way way = {.cut = (dunlin_cut)cut, .share = shares[first]};
            DUNLIN_TRY(try_ways(planner, &way, 1, error));
        }
        DUNLIN_TRY(try_ways(planner, ways, n_ways, error));
        if (planner->best.is_fitting) {
            break;
        }
    }
    return DUNLIN_OK;
}

/* What is known of a search without a plan so far. */
typedef struct {
    bool can_slice;
    bool can_cut;           /* into regions */
    uint64_t most;          /* samples of a slice */
    uint64_t largest_plain; /* slice that fits without rematerialisation; 0: none */
    uint64_t least_pool;
} progress;

/* `is_at_hand`: its schedule is the one laid out last. */
static dunlin_status note_least(dunlin_planner *planner, progress *at, const dunlin_attempt *tried,
                                bool is_at_hand, dunlin_error *error)
{
    if (tried->pool_bytes >= at->least_pool) {
        return DUNLIN_OK;
    }
    at->least_pool = tried->pool_bytes;
    planner->has_lowest = planner->keeps_lowest && is_at_hand;
    if (planner->has_lowest) {
        dunlin_attempt lowest = *tried;
        lowest.is_fitting = true;
        planner->best.is_fitting = false;
        DUNLIN_TRY(dunlin__planner_keep(planner, &lowest, error));
        planner->best.is_fitting = false; /* for whatever is still tried */
    }
    return DUNLIN_OK;
}

/* An attempt without rematerialisation that the least may rest on. */
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

/* The whole batch, else slices, nothing redone. */
static dunlin_status try_plain(dunlin_planner *planner, progress *at, dunlin_error *error)
{
    uint64_t batch = planner->most_samples;
    dunlin_attempt tried;
    if (at->most == batch) {
        DUNLIN_TRY(try_noted(planner, at, batch, &tried, error));
        if (tried.is_fitting && tried.n_changes == 0) {
            return DUNLIN_OK;
        }
    }
    if (!at->can_slice) {
        return DUNLIN_OK;
    }
    uint64_t most = at->most == batch ? batch - 1 : at->most;
    DUNLIN_TRY(try_noted(planner, at, 1, &tried, error));
    if (tried.is_fitting) {
        DUNLIN_TRY(try_largest(planner, most, UINT32_MAX, &at->largest_plain, error));
    }
    bool has_changes = planner->best.n_changes > 0 || tried.n_changes > 0;
    DUNLIN_TRY(dunlin__try_slices(planner, 1, 0, &tried, error));
    DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
    if (tried.is_fitting && has_changes) {
        DUNLIN_TRY(try_largest(planner, most, 0, &at->largest_plain, error));
    } else if (has_changes) {
        at->largest_plain = 0;
    }
    return DUNLIN_OK;
}

/* All that helps is dropped: the way out when nothing else fits, and the least budget. */
static dunlin_status try_lowest(dunlin_planner *planner, progress *at, dunlin_error *error)
{
    dunlin_attempt tried;
    if (at->most == planner->most_samples) {
        DUNLIN_TRY(dunlin__try_lowest(planner, at->most, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        DUNLIN_TRY(note_least(planner, at, &tried, true, error));
    }
    if (at->can_slice) {
        DUNLIN_TRY(dunlin__try_lowest(planner, 1, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        DUNLIN_TRY(note_least(planner, at, &tried, true, error));
    }
    for (int cut = DUNLIN_CUT_UPDATES_HELD; at->can_cut && cut <= DUNLIN_CUT_UPDATES_LAST; cut++) {
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
    const uint64_t good_ns = at->can_cut ? ideal_ns : ideal_ns + ideal_ns / 100;
    const bool is_good = planner->best.is_fitting && planner->best.cost_ns <= good_ns;
    const bool must_cut = at->can_cut && at->most < planner->most_samples;
    const bool is_small = planner->graph->n_ops <= SMALL_OPS && at->most == planner->most_samples;
    if (!is_good && at->can_cut && dunlin__planner_room(planner) > 0) {
        DUNLIN_TRY(dunlin__try_frontier(planner, !must_cut, error));
    }
    /* Small steps are so quickly planned that the budget itself can be looked at, and the published
     * policies asked as well. */
    const bool is_thorough = !at->can_cut || is_small;
    if (!is_good && is_thorough && !must_cut && dunlin__planner_room(planner) > 0) {
        DUNLIN_TRY(try_remats(planner, at->can_slice, at->most, at->largest_plain, error));
    }
    if (!is_good && is_thorough && at->can_cut && dunlin__planner_room(planner) > 0) {
        DUNLIN_TRY(try_regions(planner, error));
    }
    if (!is_good && is_small && dunlin__planner_room(planner) > 0) {
        DUNLIN_TRY(dunlin__try_policies(planner, at->can_slice, error));
        /* Slices that cost next to nothing are seldom beaten. */
        const uint64_t near_ns = ideal_ns + ideal_ns / NEAR_SHARE;
        const bool is_near = at->can_slice || planner->best.cost_ns <= near_ns;
        if (!planner->best.is_fitting || !is_near) {
            DUNLIN_TRY(dunlin__try_redos(planner, error));
        }
    }
    /* With so little memory the least budget's plan, which no budget changes, may be the faster
     * one: it is made where that does not take long. */
    const bool is_dear =
        at->can_cut && planner->graph->n_ops <= LOWEST_OPS && planner->best.cost_ns > 2 * ideal_ns;
    if (!planner->best.is_fitting || is_dear) {
        DUNLIN_TRY(try_lowest(planner, at, error));
    }
    if (!planner->best.is_fitting && is_small) {
        uint64_t least = 0;
        DUNLIN_TRY(dunlin__try_policies_least(planner, at->can_slice, &least, error));
        at->least_pool = least < at->least_pool ? least : at->least_pool;
    }
    return DUNLIN_OK;
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
    progress at = {.can_slice = is_free && !is_cut,
                   .can_cut = is_free && is_cut,
                   .most = may_slice ? asked : batch,
                   .least_pool = UINT64_MAX};
    if (options->policy == DUNLIN_PLAN_AUTO || options->policy == DUNLIN_PLAN_WHOLE) {
        DUNLIN_TRY(search(planner, &at, error));
    } else if (options->policy == DUNLIN_PLAN_MICROBATCH && options->slice_samples == 0) {
        DUNLIN_TRY(try_plain(planner, &at, error));
    } else if (options->policy >= DUNLIN_PLAN_RECOMPUTE) {
        DUNLIN_TRY(dunlin__try_policy(planner, at.can_slice, &at.least_pool, error));
    } else {
        dunlin_attempt tried;
        if (options->policy == DUNLIN_PLAN_IDEAL) {
            planner->budget_bytes = UINT64_MAX;
        }
        DUNLIN_TRY(try_noted(planner, &at, at.most, &tried, error));
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

/* The least bytes; the planner keeps what needs no more, if that is at hand. */
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
