/*
 * min_peak.c - the choice of retention intervals with the lowest peak, whatever it costs: bisection
 * with greedy runs, then descents, evictions and large neighbourhoods that each lower it a little.
 *
 * Invariant: work is counted in simulated ops; nothing here depends on a budget, so the least
 * budget does not depend on the given one.
 */
#include "evict.h"
#include "moves.h"

#include <string.h>

#define DESCENT_RUNS 1000 /* simulations of the step, in one descent */
#define SMALL_STEPS 200
#define CUT_STYLES 2      /* greedy ways where the step is cut into regions, which runs slower; */
#define CUT_SHARE 8       /* and this part of the other searches */
#define LOWEST_RUNS 200   /* simulations of the step, in moves for the lowest peak; */
#define LOWEST_WORK 20000 /* or so many ops, whichever is more */

/* One limit, every greedy order; `gaps` is changed only where one fits. Returns the peak, or 0. */
static uint64_t fit_greedily(dunlin_searcher *search, uint8_t *intervals, uint8_t *scratch)
{
    size_t n = search->remat->n_intervals;
    const bool is_cut = search->remat->n_phases > 1;
    for (uint32_t i = 0; i < (is_cut ? CUT_STYLES : 2 * DUNLIN_N_ORDERS); i++) {
        const dunlin_greedy style = {.order = (dunlin_greedy_order)(i % DUNLIN_N_ORDERS),
                                     .takes_worst = i < DUNLIN_N_ORDERS,
                                     .n_tries = is_cut ? 1 : 3};
        dunlin_remat_result result;
        dunlin__remat_keep_all(search->remat, scratch);
        if (dunlin__moves_greedy(search, &style, scratch, &result)) {
            memcpy(intervals, scratch, n);
            return result.peak_bytes;
        }
    }
    return 0;
}

/* The same by plain eviction, which continues where a greedy order sees no immediate gain. */
static uint64_t fit_by_eviction(const dunlin_searcher *search, uint8_t *intervals, uint8_t *scratch)
{
    static const dunlin_eviction metrics[] = {DUNLIN_EVICT_TPS, DUNLIN_EVICT_SIZE_OVER_TIME};
    size_t n = search->remat->n_intervals;
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        if (dunlin__evict_on_demand(search->remat, metrics[i], search->limits->limit_bytes, scratch,
                                    scratch + n)) {
            memcpy(intervals, scratch, n);
            return dunlin__moves_run(search, intervals).peak_bytes;
        }
    }
    return 0;
}

/* Large neighbourhoods again, for a lower peak. */
static uint64_t fit_by_moves(dunlin_searcher *search, uint8_t *intervals, uint8_t *scratch)
{
    size_t n = search->remat->n_intervals;
    while (!dunlin__moves_spent(search)) {
        const dunlin_greedy style = dunlin__moves_any_style(search);
        dunlin_remat_result result;
        memcpy(scratch, intervals, n);
        dunlin__moves_shake(search, scratch);
        if (dunlin__moves_greedy(search, &style, scratch, &result)) {
            memcpy(intervals, scratch, n);
            return result.peak_bytes;
        }
    }
    return 0;
}

/* Lowers the peak of a choice a little at a time while single changes do. */
static uint64_t descend_far(dunlin_remat *remat, uint8_t *intervals, uint8_t *scratch)
{
    uint64_t floor = dunlin__remat_floor(remat);
    const uint64_t n_runs = remat->n_phases > 1 ? DESCENT_RUNS / CUT_SHARE : DESCENT_RUNS;
    uint64_t work_end = remat->n_work + n_runs * remat->n_steps;
    dunlin_remat_result now = dunlin__remat_run(remat, intervals, UINT64_MAX);
    while (now.is_valid && now.peak_bytes > floor) {
        uint64_t aim = now.peak_bytes - now.peak_bytes / 256 - 1;
        const dunlin_remat_limits limits = {.limit_bytes = aim > floor ? aim : floor};
        dunlin_searcher search = {
            .remat = remat, .limits = &limits, .random = 1, .work_end = work_end};
        memcpy(scratch, intervals, remat->n_intervals);
        dunlin_remat_result result = dunlin__moves_run(&search, scratch);
        if (!dunlin__moves_descend(&search, scratch, &result)) {
            break;
        }
        now = result;
        memcpy(intervals, scratch, remat->n_intervals);
    }
    return now.is_valid ? now.peak_bytes : UINT64_MAX;
}

/* Descends from what the greedy search found, and from everything dropped, which the greedy search
 * misses. */
static uint64_t descend_all(dunlin_remat *remat, uint8_t *intervals, uint8_t *scratch)
{
    size_t n = remat->n_intervals;
    uint8_t *made = scratch + n;
    uint64_t lowest = descend_far(remat, intervals, scratch);
    if (remat->n_phases > 1) {
        return lowest;
    }
    for (int state = DUNLIN_INTERVAL_LAZY; state <= DUNLIN_INTERVAL_EAGER;
         state = dunlin__remat_lower(remat, (uint8_t)state)) {
        memset(made, state, n);
        uint64_t peak = descend_far(remat, made, scratch);
        if (peak < lowest) {
            lowest = peak;
            memcpy(intervals, made, n);
        }
    }
    return lowest;
}

uint64_t dunlin__remat_lowest(dunlin_remat *remat, uint8_t *intervals, uint8_t *scratch)
{
    size_t n = remat->n_intervals;
    dunlin__remat_keep_all(remat, intervals);
    uint64_t high = dunlin__remat_run(remat, intervals, UINT64_MAX).peak_bytes;
    uint64_t low = dunlin__remat_floor(remat);
    low = low > 0 ? low - 1 : 0;
    dunlin_remat_limits limits = {.limit_bytes = high};
    dunlin_searcher search = {
        .remat = remat, .limits = &limits, .random = 1, .work_end = UINT64_MAX};
    const uint64_t share = remat->n_phases > 1 ? 64 : 512; /* of the peak, left open */
    while (n > 0 && high > low && high - low > 1 + high / share) {
        limits.limit_bytes = low + (high - low) / 2;
        const uint64_t peak = fit_greedily(&search, intervals, scratch);
        low = peak == 0 ? limits.limit_bytes : low;
        high = peak == 0 ? high : peak;
    }
    high = n > 0 ? descend_all(remat, intervals, scratch) : high;
    uint64_t work = (uint64_t)LOWEST_RUNS * remat->n_steps;
    work = work > LOWEST_WORK ? work : LOWEST_WORK;
    search.work_end = remat->n_work + (remat->n_phases > 1 ? work / CUT_SHARE : work);
    for (bool has_won = n > 0; has_won;) {
        uint64_t peak = 0;
        /* Eviction may fail at a limit and succeed at a lower one. On large steps it takes too
         * long. */
        const bool may_evict = remat->n_steps <= SMALL_STEPS && remat->n_phases == 1;
        const uint64_t n_limits = may_evict ? 8 : 0;
        for (uint64_t i = n_limits; i > 0 && peak == 0; i--) {
            limits.limit_bytes = high - 1 - high / 2048 - high / 64 * (i - 1);
            peak = fit_by_eviction(&search, intervals, scratch);
        }
        limits.limit_bytes = high - 1 - high / 2048;
        peak = peak != 0 ? peak : fit_by_moves(&search, intervals, scratch);
        has_won = peak != 0;
        high = has_won ? peak : high;
    }
    return high;
}
