/*
 * frontier.c - candidates beside what the search at the budget itself finds: the fastest plans at
 * grid points that no budget changes.
 *
 * Invariant: grid points are limits that depend on the graph alone, each a little below the one
 * before, and what is found at a grid point depends on it and on the best so far. Grid points are
 * searched from just above the budget down (what is found there may need less), until several in a
 * row cost far more than the best.
 */
#include "attempt/attempt.h"

#include <mem/support.h>

#include <string.h>

#define GRID_POINT_SHARE 32   /* a grid point is one part in so many below the one before */
#define GRID_POINTS_A_GROUP 8 /* of which the ends decide how the step is cut, */
#define N_OWN_GRID_POINTS 2   /* but for so many, where the first alone does */
#define MAX_GROUPS 24
#define MAX_GRID_POINTS (GRID_POINTS_A_GROUP * (MAX_GROUPS - 1))
#define N_BETWEEN 2     /* limits between a grid point and the next, for what is left of a budget */
#define SETTLE_ROUNDS 1 /* of packing and search, at a grid point; */
#define SETTLE_SHARE 4  /* one part in so many of the time is the most that packing may cost */
/* A grid point is far if it loses a quarter more than the best, and one part in so many of the
 * ideal. */
#define FAR_SHARE 64
#define TIGHT_SHARE 4 /* of the whole batch's bytes; with less a glance is not enough */
#define N_FAR 2       /* after so many far grid points the smaller ones are not searched, */
#define N_NONE 8      /* nor after so many in a row without any choice */

/*
 * The first greedy runs of an estimate show its result to within a few hundredths. Where that is
 * far too expensive the other runs are skipped: one part in so many above the best plan (no whole
 * estimate has been seen to be that much lower), or above the best way to cut the step.
 */
#define AIM_SHARE 16
#define WAY_SHARE 128

/* A way to cut the step; DUNLIN_CUT_NONE: the whole batch. */
typedef struct {
    dunlin_cut cut;
    uint64_t share;
    uint64_t cost_ns; /* UINT64_MAX: it does not fit */
    uint8_t
        *intervals; /* the choice of an estimate, or of an attempt there; NULL: it was a glance */
    uint32_t n_intervals;
} way;

/* From large slices to small ones. */
static const uint64_t shares[] = {256, 32, 8, 1};
#define N_SHARES (sizeof shares / sizeof shares[0])

typedef struct {
    dunlin_planner *planner;
    uint64_t budget_bytes; /* the one given */
    uint64_t above_bytes;  /* the grid point above it, */
    uint64_t above_ns;     /* and the fastest plan that is known to fit there */
    uint64_t least_ns;     /* what is faster does not count */
    uint64_t ideal_ns;     /* the whole batch, nothing recomputed */
    uint64_t grid_points[MAX_GRID_POINTS];
    uint32_t n_grid_points;
    way ways[MAX_GROUPS]; /* by group of grid points, for its first */
    bool is_known[MAX_GROUPS];
    bool can_be_whole;
} climber;

static uint64_t more_by(uint64_t cost_ns, uint64_t share)
{
    return cost_ns == UINT64_MAX ? UINT64_MAX : cost_ns + cost_ns / share;
}

static void stand_on(climber *at, uint32_t grid_point)
{
    at->planner->budget_bytes = at->planner->persistent_bytes + at->grid_points[grid_point];
}

/* What a way costs within the grid point, laid out but not packed; beyond `aim_ns` nearly so. */
static dunlin_status estimate(climber *at, const way *cut, dunlin_effort effort, uint64_t aim_ns,
                              dunlin_attempt *out_attempt, dunlin_error *error)
{
    dunlin_planner *planner = at->planner;
    planner->aim_ns = aim_ns == UINT64_MAX    ? aim_ns
                      : aim_ns > at->ideal_ns ? aim_ns - at->ideal_ns
                                              : 0;
    const dunlin_status status =
        cut->cut == DUNLIN_CUT_NONE
            ? dunlin__try_remat(planner, planner->options.batch, effort, out_attempt, error)
            : dunlin__try_regions(planner, cut->cut, cut->share, effort, out_attempt, error);
    planner->aim_ns = UINT64_MAX;
    return status;
}

/* Keeps the choice that the planner has just made. */
static dunlin_status keep_choice(climber *at, way *best, dunlin_error *error)
{
    const dunlin_planner *planner = at->planner;
    const dunlin_alloc *alloc = &planner->options.alloc;
    const uint32_t n = planner->at->remat.n_intervals + 1;
    dunlin__free_array(alloc, best->intervals, best->n_intervals, sizeof *best->intervals);
    best->intervals = dunlin__alloc_array(alloc, n, sizeof *best->intervals);
    best->n_intervals = best->intervals == NULL ? 0 : n;
    if (best->intervals == NULL) {
        return dunlin__planner_no_memory(planner, error);
    }
    memcpy(best->intervals, planner->at->intervals, n - 1);
    return DUNLIN_OK;
}

/* Estimates a way and keeps it if it is the best so far. */
static dunlin_status consider(climber *at, dunlin_cut cut, uint64_t share, way *best,
                              dunlin_error *error)
{
    way made = {.cut = cut, .share = share};
    const uint64_t aim_ns = more_by(best->cost_ns, WAY_SHARE);
    const bool is_tight = dunlin__planner_room(at->planner) < at->grid_points[0] / TIGHT_SHARE;
    const dunlin_effort effort = is_tight ? DUNLIN_EFFORT_ESTIMATE : DUNLIN_EFFORT_GLANCE;
    dunlin_attempt tried;
    DUNLIN_TRY(estimate(at, &made, effort, aim_ns, &tried, error));
    if (tried.cost_ns >= best->cost_ns) {
        return DUNLIN_OK;
    }
    best->cut = cut;
    best->share = share;
    best->cost_ns = tried.cost_ns;
    return is_tight ? keep_choice(at, best, error) : DUNLIN_OK;
}

/* One slice size in both ways to cut, or in the one that is the best so far. */
static dunlin_status consider_share(climber *at, uint64_t share, way *best, dunlin_error *error)
{
    const bool is_cut = best->cost_ns != UINT64_MAX && best->cut != DUNLIN_CUT_NONE;
    const dunlin_cut held = best->cut;
    for (int cut = DUNLIN_CUT_UPDATES_LAST; cut >= DUNLIN_CUT_UPDATES_HELD; cut--) {
        if (!is_cut || (int)held == cut) {
            DUNLIN_TRY(consider(at, (dunlin_cut)cut, share, best, error));
        }
    }
    return DUNLIN_OK;
}

/* Slices get smaller as long as that helps. Where the smallest do not fit, those in between are not
 * looked at. */
static dunlin_status choose_regions(climber *at, way *best, dunlin_error *error)
{
    for (size_t s = 0; s < N_SHARES; s++) {
        if (s == N_SHARES / 2 && best->cost_ns == UINT64_MAX) {
            DUNLIN_TRY(consider_share(at, shares[N_SHARES - 1], best, error));
            if (best->cost_ns == UINT64_MAX) {
                break;
            }
        }
        const uint64_t before_ns = best->cost_ns;
        DUNLIN_TRY(consider_share(at, shares[s], best, error));
        if (before_ns != UINT64_MAX && best->cost_ns == before_ns) {
            break;
        }
    }
    return DUNLIN_OK;
}

/* The way that costs least at the first grid point of a group. */
static dunlin_status choose_way(climber *at, uint32_t group, dunlin_error *error)
{
    const uint32_t first = group * GRID_POINTS_A_GROUP;
    way *best = &at->ways[group];
    if (at->is_known[group]) {
        return DUNLIN_OK;
    }
    *best = (way){.cost_ns = UINT64_MAX};
    at->is_known[group] = true;
    stand_on(at, first < at->n_grid_points ? first : at->n_grid_points - 1);
    if (at->can_be_whole) {
        DUNLIN_TRY(consider(at, DUNLIN_CUT_NONE, 0, best, error));
    }
    return choose_regions(at, best, error);
}

/* Packs what is laid out for a grid point, and continues the search where that is too high; what is
 * within the given budget is kept. It never counts for less than its estimate: that decides whether
 * it is looked at. */
static dunlin_status settle(climber *at, dunlin_attempt *attempt, dunlin_error *error)
{
    dunlin_planner *planner = at->planner;
    const uint64_t estimated_ns = attempt->cost_ns;
    if (attempt->lower_bound_bytes > dunlin__planner_room(planner)) {
        planner->budget_bytes = planner->persistent_bytes + attempt->lower_bound_bytes;
    }
    for (uint32_t round = 0; attempt->cost_ns >= estimated_ns; round++) {
        dunlin__planner_pack_round(planner, attempt);
        dunlin_attempt made = *attempt;
        const uint64_t bytes = planner->persistent_bytes + made.pool_bytes;
        if (bytes <= at->above_bytes && made.cost_ns < at->above_ns) {
            at->above_ns = made.cost_ns;
        }
        made.is_fitting = bytes <= at->budget_bytes && made.cost_ns >= at->least_ns;
        DUNLIN_TRY(dunlin__planner_keep(planner, &made, error));
        if (attempt->is_fitting || round == SETTLE_ROUNDS) {
            break;
        }
        DUNLIN_TRY(dunlin__planner_search_round(planner, attempt, error));
        if (attempt->cost_ns > more_by(estimated_ns, SETTLE_SHARE)) {
            break;
        }
    }
    return DUNLIN_OK;
}

/* `is_known`: the way's own estimate was made within as many bytes. */
static dunlin_status try_way(climber *at, uint64_t limit_bytes, const way *cut, bool is_known,
                             uint64_t *cost_ns, dunlin_error *error)
{
    const dunlin_attempt *best = &at->planner->best;
    dunlin_attempt tried;
    const uint64_t aim_ns = best->is_fitting ? more_by(best->cost_ns, AIM_SHARE) : UINT64_MAX;
    at->planner->budget_bytes = limit_bytes;
    if (is_known) {
        DUNLIN_TRY(dunlin__estimate_again(at->planner, cut->cut, cut->share, cut->intervals, &tried,
                                          error));
    } else {
        DUNLIN_TRY(estimate(at, cut, DUNLIN_EFFORT_ESTIMATE, aim_ns, &tried, error));
    }
    *cost_ns = tried.cost_ns < *cost_ns ? tried.cost_ns : *cost_ns;
    const bool may_win =
        tried.cost_ns != UINT64_MAX && (!best->is_fitting || tried.cost_ns < best->cost_ns);
    return may_win ? settle(at, &tried, error) : DUNLIN_OK;
}

/* Within so many bytes, in the way of a group; after its first two grid points also in that of the
 * next group, where that is another. `rung`: the grid point at or below the limit. */
static dunlin_status try_limit(climber *at, uint64_t limit_bytes, uint32_t grid_point,
                               uint64_t *cost_ns, dunlin_error *error)
{
    const uint32_t group = grid_point / GRID_POINTS_A_GROUP;
    const way *ways = &at->ways[group];
    const dunlin_attempt *best = &at->planner->best;
    const bool is_first =
        grid_point % GRID_POINTS_A_GROUP == 0 &&
        limit_bytes == at->planner->persistent_bytes + at->grid_points[grid_point];
    const bool is_known = is_first && ways[0].intervals != NULL;
    *cost_ns = UINT64_MAX;
    if (is_known && best->is_fitting && ways[0].cost_ns >= best->cost_ns) {
        *cost_ns = ways[0].cost_ns;
    } else if (ways[0].cost_ns != UINT64_MAX) {
        DUNLIN_TRY(try_way(at, limit_bytes, &ways[0], is_known, cost_ns, error));
    }
    if (grid_point % GRID_POINTS_A_GROUP < N_OWN_GRID_POINTS) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(choose_way(at, group + 1, error));
    const bool is_other = ways[1].cut != ways[0].cut || ways[1].share != ways[0].share;
    if (ways[1].cost_ns != UINT64_MAX && is_other) {
        DUNLIN_TRY(try_way(at, limit_bytes, &ways[1], false, cost_ns, error));
    }
    return DUNLIN_OK;
}

/* Does a grid point lose so much more of the ideal time than the best that smaller ones will not
 * win? */
static bool is_far(const climber *at, uint64_t cost_ns)
{
    const dunlin_attempt *best = &at->planner->best;
    if (!best->is_fitting || cost_ns <= best->cost_ns) {
        return false;
    }
    const uint64_t loss_ns = best->cost_ns > at->ideal_ns ? best->cost_ns - at->ideal_ns : 0;
    return cost_ns - best->cost_ns > loss_ns / 4 + at->ideal_ns / FAR_SHARE;
}

/*
 * Limits between the largest grid point within the budget and the next one above. What they find
 * counts only if it is no faster than what that one is sure to have, since larger budgets do not
 * search here.
 */
static dunlin_status try_between(climber *at, uint32_t below, dunlin_error *error)
{
    dunlin_planner *planner = at->planner;
    const uint64_t low = at->grid_points[below];
    const uint64_t part = (at->grid_points[below - 1] - low) / N_BETWEEN;
    at->least_ns = at->above_ns;
    for (uint32_t i = 1; i < N_BETWEEN && at->above_ns < planner->best.cost_ns; i++) {
        const uint64_t limit = planner->persistent_bytes + low + i * part;
        if (limit > at->budget_bytes) {
            break;
        }
        uint64_t cost_ns = UINT64_MAX;
        DUNLIN_TRY(try_limit(at, limit, below, &cost_ns, error));
    }
    return DUNLIN_OK;
}

static dunlin_status climb(climber *at, uint64_t top_bytes, dunlin_error *error)
{
    const dunlin_planner *planner = at->planner;
    const uint64_t room = dunlin__planner_room(planner);
    uint32_t first = 0;
    for (uint64_t grid_point = top_bytes; at->n_grid_points < MAX_GRID_POINTS && grid_point > 0;
         grid_point -= grid_point / GRID_POINT_SHARE + 1) {
        first += grid_point > room;
        at->grid_points[at->n_grid_points++] = grid_point;
    }
    at->above_bytes = planner->persistent_bytes + (first > 0 ? at->grid_points[first - 1] : 0);
    uint32_t n_far = 0;
    uint32_t n_none = 0;
    for (uint32_t r = first > 0 ? first - 1 : 0; r < at->n_grid_points; r++) {
        uint64_t cost_ns = 0;
        DUNLIN_TRY(choose_way(at, r / GRID_POINTS_A_GROUP, error));
        if (at->ways[r / GRID_POINTS_A_GROUP].cost_ns == UINT64_MAX) {
            break; /* nor below the first of the group */
        }
        DUNLIN_TRY(
            try_limit(at, planner->persistent_bytes + at->grid_points[r], r, &cost_ns, error));
        n_none = cost_ns == UINT64_MAX ? n_none + 1 : 0;
        n_far = cost_ns == UINT64_MAX ? n_far : is_far(at, cost_ns) ? n_far + 1 : 0;
        if (n_far == N_FAR || n_none == N_NONE) {
            break;
        }
    }
    return first > 0 && first < at->n_grid_points ? try_between(at, first, error) : DUNLIN_OK;
}

dunlin_status dunlin__try_frontier(dunlin_planner *planner, bool can_be_whole, dunlin_error *error)
{
    climber at = {.planner = planner,
                  .budget_bytes = planner->budget_bytes,
                  .above_ns = UINT64_MAX,
                  .can_be_whole = can_be_whole};
    uint64_t top_bytes = 0;
    uint32_t peak_step = 0;
    at.ideal_ns = dunlin__planner_plain_ns(planner, planner->options.batch);
    DUNLIN_TRY(dunlin__planner_lay_out(planner, planner->options.batch, false, NULL, &top_bytes,
                                       &peak_step, error));
    const dunlin_status status = climb(&at, top_bytes, error);
    for (uint32_t g = 0; g < MAX_GROUPS; g++) {
        dunlin__free_array(&planner->options.alloc, at.ways[g].intervals, at.ways[g].n_intervals,
                           sizeof *at.ways[g].intervals);
    }
    planner->budget_bytes = at.budget_bytes;
    return status;
}
