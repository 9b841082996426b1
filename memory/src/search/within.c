/*
 * within.c - the fastest plan that rematerialisation finds within a limit, and, where memory
 * is short, at limits a little below the budget as well.
 *
 * Invariant: limits below the budget depend on the graph alone. Where memory is short, search noise
 * within one limit is a quarter of the time and more; budgets near each other share most of the
 * limits that are searched, so a larger budget seldom gives a slower plan.
 */
#include "within.h"

#include <mem/support.h>

#define LIMIT_SHARE 64     /* a limit is one part in so many below the one before; */
#define N_LIMITS 4         /* so many of them are looked at, */
#define N_LIMITS_COSTLY 12 /* and so many where the plan is very expensive */
#define N_FROM 2           /* searches from the fastest choice that was found at any of them */
#define COSTLY_SHARE 4 /* expensive is a plan that loses one part in so many of the ideal time, */
#define VERY_COSTLY_SHARE 2 /* and very expensive one that loses one part in so many */

/*
 * Rematerialisation on the whole batch, and on slices larger than those that fit without: quickly
 * on all that could be the best, then thoroughly on the best of them.
 */
static dunlin_status try_remats(dunlin_planner *planner, const dunlin_ways *ways,
                                dunlin_error *error)
{
    const uint64_t most = ways->most;
    uint64_t batch = planner->options.batch;
    uint64_t n_slices = (batch - 1) / most + 1;
    uint64_t best_slice = 0;
    dunlin_attempt tried;
    for (;;) {
        uint64_t slice =
            ways->can_slice ? dunlin__balanced(batch, (batch - 1) / n_slices + 1) : most;
        bool may_win = !planner->best.is_fitting ||
                       dunlin__planner_plain_ns(planner, slice) < planner->best.cost_ns;
        if (slice <= ways->largest_plain || !may_win) {
            break;
        }
        DUNLIN_TRY(dunlin__try_remat(planner, slice, DUNLIN_EFFORT_QUICK, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        best_slice =
            tried.is_fitting && planner->best.cost_ns == tried.cost_ns ? slice : best_slice;
        if (!ways->can_slice || slice == 1) {
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
        for (int cut = DUNLIN_CUT_UPDATES_LAST; n_ways == 0 && cut >= DUNLIN_CUT_UPDATES_HELD;
             cut--) {
            const region_way way = {.cut = (dunlin_cut)cut, .share = shares[first]};
            DUNLIN_TRY(try_ways(planner, &way, 1, error));
        }
        DUNLIN_TRY(try_ways(planner, ways, n_ways, error));
        if (planner->best.is_fitting && n_ways > 0) {
            break;
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__try_within(dunlin_planner *planner, const dunlin_ways *ways,
                                 dunlin_error *error)
{
    if (ways->can_be_whole) {
        DUNLIN_TRY(try_remats(planner, ways, error));
    }
    return ways->can_cut ? try_regions(planner, error) : DUNLIN_OK;
}

static bool is_slower(const dunlin_planner *planner, uint64_t ns)
{
    return !planner->best.is_fitting || planner->best.cost_ns >= ns;
}

/* The largest limit that is not above `most`, a pool: each is a share of the one above it, the
 * first what the plain step takes. */
static dunlin_status first_limit(dunlin_planner *planner, uint64_t most, uint64_t *out_limit,
                                 dunlin_error *error)
{
    uint32_t peak_step = 0;
    DUNLIN_TRY(dunlin__planner_lay_out(planner, planner->options.batch, false, NULL, out_limit,
                                       &peak_step, error));
    while (*out_limit > most) {
        *out_limit -= *out_limit / LIMIT_SHARE + 1;
    }
    return DUNLIN_OK;
}

/* With this pool in place of the budget. */
static dunlin_status try_limit(dunlin_planner *planner, const dunlin_ways *ways, uint64_t limit,
                               dunlin_error *error)
{
    const uint64_t budget = planner->budget_bytes;
    planner->budget_bytes = planner->persistent_bytes + limit;
    const dunlin_status status = dunlin__try_within(planner, ways, error);
    planner->budget_bytes = budget;
    return status;
}

/* The limits `first` to `end` from the largest within the budget down, then from the fastest choice
 * found, as long as the plan takes `least_ns`. What fits one of them fits the budget too. */
static dunlin_status try_limits(dunlin_planner *planner, const dunlin_ways *ways, uint32_t first,
                                uint32_t end, uint64_t least_ns, dunlin_error *error)
{
    uint64_t limit = 0;
    DUNLIN_TRY(first_limit(planner, dunlin__planner_room(planner), &limit, error));
    for (uint32_t i = 0; i < end && limit > 0; i++) {
        if (i >= first) {
            if (!is_slower(planner, least_ns)) {
                break;
            }
            DUNLIN_TRY(try_limit(planner, ways, limit, error));
        }
        limit -= limit / LIMIT_SHARE + 1;
    }
    for (uint32_t i = 0; i < N_FROM && is_slower(planner, least_ns); i++) {
        DUNLIN_TRY(dunlin__try_from_fastest(planner, error));
    }
    return DUNLIN_OK;
}

static dunlin_status try_near(dunlin_planner *planner, const dunlin_ways *ways, uint64_t ideal_ns,
                              dunlin_error *error)
{
    const uint64_t costly_ns = ideal_ns + ideal_ns / COSTLY_SHARE;
    const uint64_t very_costly_ns = ideal_ns + ideal_ns / VERY_COSTLY_SHARE;
    DUNLIN_TRY(try_limits(planner, ways, 0, N_LIMITS, costly_ns, error));
    return try_limits(planner, ways, N_LIMITS, N_LIMITS_COSTLY, very_costly_ns, error);
}

dunlin_status dunlin__try_near(dunlin_planner *planner, const dunlin_ways *ways, uint64_t ideal_ns,
                               dunlin_error *error)
{
    planner->is_patient = true;
    const dunlin_status status = try_near(planner, ways, ideal_ns, error);
    planner->is_patient = false;
    return status;
}

/* The plan of this limit, if there is one: the least so far, and the best if it is within `room`.
 */
static dunlin_status try_below(dunlin_planner *planner, const dunlin_ways *ways, uint64_t limit,
                               uint64_t room, uint64_t *in_out_least, dunlin_error *error)
{
    DUNLIN_TRY(try_limit(planner, ways, limit, error));
    if (planner->best.is_fitting) {
        *in_out_least = planner->best.pool_bytes;
        planner->has_lowest = planner->keeps_lowest;
        planner->best.is_fitting = *in_out_least <= room;
    }
    return DUNLIN_OK;
}

static dunlin_status try_lower(dunlin_planner *planner, const dunlin_ways *ways,
                               uint64_t *in_out_least, dunlin_error *error)
{
    const uint64_t room = dunlin__planner_room(planner);
    uint64_t limit = 0;
    DUNLIN_TRY(first_limit(planner, *in_out_least, &limit, error));
    for (uint32_t n_missed = 0; n_missed < N_LIMITS && limit > 0; n_missed++) {
        const uint64_t before = *in_out_least;
        if (limit < before) {
            DUNLIN_TRY(try_below(planner, ways, limit, room, in_out_least, error));
        }
        if (planner->best.is_fitting) {
            break;
        }
        if (*in_out_least < before) {
            n_missed = 0;
            DUNLIN_TRY(first_limit(planner, *in_out_least, &limit, error));
        }
        limit -= limit / LIMIT_SHARE + 1;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__try_lower(dunlin_planner *planner, const dunlin_ways *ways,
                                uint64_t *in_out_least, dunlin_error *error)
{
    planner->is_patient = true;
    const dunlin_status status = try_lower(planner, ways, in_out_least, error);
    planner->is_patient = false;
    return status;
}
