/*
 * choose.c - the cheapest choice of retention intervals within a limit: a portfolio of greedy
 * orders, then large-neighbourhood moves (Shaw, CP 1998).
 *
 * Invariant: work is counted in simulated ops, never in time; the best valid choice seen is the
 * answer.
 */
#include "moves.h"

#include <string.h>

#define IDLE_RUNS 1200      /* simulations of the step without a gain end the moves, */
#define IDLE_WORK 100000    /* or so many ops, whichever is less */
#define DESCENT_RUNS 1000   /* simulations of the step, in one descent, */
#define DESCENT_WORK 200000 /* or so many ops, whichever is less */

/* Keeps a choice if it fits and is cheaper than the best, or comes closer to the limit than any. */
static void keep_better(const dunlin_searcher *search, const uint8_t *made,
                        const dunlin_remat_result *result, bool fits, uint8_t *intervals,
                        dunlin_remat_result *best, bool *has_best)
{
    bool is_better =
        fits ? !*has_best || result->cost_ns < best->cost_ns
             : !*has_best && result->is_valid && result->excess_bytes < best->excess_bytes;
    if (is_better) {
        *best = *result;
        *has_best |= fits;
        memcpy(intervals, made, search->remat->n_intervals);
    }
}

/* For a step cut into regions, ordered by success: dropping what is used last, seen from the first
 * position above the limit where there is much room, else from the highest position, is nearly
 * always the best. */
static const dunlin_greedy cut_styles[] = {
    {.order = DUNLIN_ORDER_NEXT_USE, .takes_worst = true, .n_tries = 1},
    {.order = DUNLIN_ORDER_NEXT_USE, .n_tries = 1},
    {.order = DUNLIN_ORDER_NEXT_USE, .takes_worst = true, .n_tries = 2},
    {.order = DUNLIN_ORDER_NEXT_USE, .n_tries = 2},
    {.order = DUNLIN_ORDER_SIZE_PER_COST, .takes_worst = true, .n_tries = 1},
    {.order = DUNLIN_ORDER_NEXT_USE, .n_tries = 4},
};
#define N_STYLES ((uint32_t)(sizeof cut_styles / sizeof cut_styles[0]))
#define N_LOW_STYLES 8 /* then the first two alternately, which aim lower and lower */
#define N_CUT_STYLES (N_STYLES + N_LOW_STYLES)
#define N_ROUGH_STYLES 3
#define N_GLANCE_STYLES 1
#define N_FIRST_STYLES 2 /* that show the result of the others to within a few hundredths */
#define AIM_THOUSANDTHS 15
#define LOW_AIM_THOUSANDTHS 45
/* Simulations of the step, in one greedy run of an estimate: those that fit take less. */
#define ROUGH_RUNS 150

static uint32_t n_styles(const dunlin_searcher *search)
{
    if (search->remat->n_phases > 1) {
        return search->limits->is_glance  ? N_GLANCE_STYLES
               : search->limits->is_rough ? N_ROUGH_STYLES
                                          : N_CUT_STYLES;
    }
    const uint32_t n = search->limits->max_work == 0 ? DUNLIN_N_ORDERS : 2 * DUNLIN_N_ORDERS;
    return dunlin__moves_tries(search) == 1 ? n / 2 : n;
}

/* Half of them, each order and each direction once, show whether more runs pay. */
static dunlin_greedy style_of(const dunlin_searcher *search, uint32_t i)
{
    if (search->remat->n_phases > 1) {
        return cut_styles[i < N_STYLES ? i : i % 2];
    }
    return (dunlin_greedy){.order = (dunlin_greedy_order)(i % DUNLIN_N_ORDERS),
                           .takes_worst = (i + i / DUNLIN_N_ORDERS) % 2 == 0,
                           .n_tries = dunlin__moves_tries(search)};
}

/* A greedy run. Where the step is cut into regions each next one aims lower, and polishing takes
 * the room that this leaves: what is within a limit by a hair is seldom the best of its kind. */
static bool aim_lower(dunlin_searcher *search, const dunlin_greedy *style, uint32_t n_before,
                      uint8_t *intervals, dunlin_remat_result *out_result)
{
    const dunlin_remat_limits *held = search->limits;
    dunlin_remat_limits lower = *held;
    if (search->remat->n_phases > 1) {
        const uint32_t n_near = n_before < N_STYLES ? n_before : N_STYLES;
        const uint32_t thousandths =
            n_near * AIM_THOUSANDTHS + (n_before - n_near) * LOW_AIM_THOUSANDTHS;
        lower.limit_bytes -= lower.limit_bytes / 1000 * thousandths;
    }
    search->limits = &lower;
    if (held->is_rough) {
        search->work_end = search->remat->n_work + (uint64_t)ROUGH_RUNS * search->remat->n_steps;
    }
    const bool fits = dunlin__moves_greedy(search, style, intervals, out_result);
    search->limits = held;
    search->work_end = UINT64_MAX;
    if (fits) {
        *out_result = dunlin__moves_run(search, intervals);
    }
    return fits;
}

static void run_portfolio(dunlin_searcher *search, uint8_t *intervals, uint8_t *scratch,
                          dunlin_remat_result *best, bool *has_best)
{
    size_t n = search->remat->n_intervals;
    const bool is_rough = search->limits->is_rough;
    const uint32_t n_most = search->remat->n_phases > 1 && !is_rough ? N_CUT_STYLES : 0;
    const bool may_end = is_rough && search->remat->n_phases > 1;
    for (uint32_t i = 0; i < n_styles(search) || (!*has_best && i < n_most); i++) {
        if (may_end && i == N_FIRST_STYLES && *has_best && best->cost_ns > search->limits->aim_ns) {
            break;
        }
        const dunlin_greedy style = style_of(search, i);
        dunlin_remat_result result;
        dunlin__remat_keep_all(search->remat, scratch);
        bool fits = aim_lower(search, &style, i, scratch, &result);
        if (fits) {
            dunlin__moves_polish(search, scratch, &result);
        }
        keep_better(search, scratch, &result, fits, intervals, best, has_best);
    }
    if (is_rough) {
        return;
    }
    /* From the other end: everything is dropped, and what there is room for is kept after all. */
    for (int state = DUNLIN_INTERVAL_LAZY; state <= DUNLIN_INTERVAL_EAGER;
         state = dunlin__remat_lower(search->remat, (uint8_t)state)) {
        if (*has_best && search->limits->max_work == 0) {
            break;
        }
        memset(scratch, state, n);
        dunlin_remat_result result = dunlin__moves_run(search, scratch);
        bool fits = result.is_valid && result.excess_bytes == 0;
        if (fits) {
            dunlin__moves_polish(search, scratch, &result);
        }
        keep_better(search, scratch, &result, fits, intervals, best, has_best);
    }
    if (!*has_best) {
        memcpy(scratch, intervals, n);
        dunlin_remat_result result = *best;
        const uint64_t most = (uint64_t)DESCENT_RUNS * search->remat->n_steps;
        const uint64_t work = most < DESCENT_WORK ? most : DESCENT_WORK;
        search->work_end = search->remat->n_work + work;
        bool fits = dunlin__moves_descend(search, scratch, &result);
        search->work_end = UINT64_MAX;
        if (fits) {
            dunlin__moves_polish(search, scratch, &result);
            keep_better(search, scratch, &result, fits, intervals, best, has_best);
        }
    }
}

/* A start that nearly fits is repaired in every order. */
static void mend(dunlin_searcher *search, uint8_t *intervals, uint8_t *scratch,
                 dunlin_remat_result *best, bool *has_best)
{
    size_t n = search->remat->n_intervals;
    const uint32_t n_styles = search->remat->n_phases > 1 ? 2 : 2 * DUNLIN_N_ORDERS;
    for (uint32_t i = 0; i < n_styles; i++) {
        const dunlin_greedy style = {.order = (dunlin_greedy_order)(i % DUNLIN_N_ORDERS),
                                     .takes_worst = i >= DUNLIN_N_ORDERS,
                                     .n_tries = dunlin__moves_tries(search)};
        dunlin_remat_result result;
        memcpy(scratch, intervals, n);
        if (dunlin__moves_greedy(search, &style, scratch, &result) &&
            (!*has_best || result.cost_ns < best->cost_ns)) {
            *best = result;
            *has_best = true;
            memcpy(scratch + n, scratch, n);
        }
    }
    if (*has_best) {
        memcpy(intervals, scratch + n, n);
        dunlin__moves_polish(search, intervals, best);
    }
}

/* Large neighbourhoods around the best and what came from it, until the work is spent. */
static void move(dunlin_searcher *search, uint8_t *intervals, uint8_t *scratch,
                 dunlin_remat_result *best)
{
    size_t n = search->remat->n_intervals;
    uint8_t *now = scratch + n;
    dunlin_remat_result at = *best;
    memcpy(now, intervals, n);
    const uint64_t most = (uint64_t)IDLE_RUNS * search->remat->n_steps;
    const uint64_t once = most < IDLE_WORK ? most : IDLE_WORK;
    const uint64_t patience = search->limits->patience > 0 ? search->limits->patience * once : once;
    uint64_t last_gain = search->remat->n_work;
    while (best->cost_ns > 0 && !dunlin__moves_spent(search) &&
           search->remat->n_work - last_gain < patience) {
        const dunlin_greedy style = dunlin__moves_any_style(search);
        dunlin_remat_result result;
        memcpy(scratch, now, n);
        dunlin__moves_shake(search, scratch);
        if (!dunlin__moves_greedy(search, &style, scratch, &result)) {
            continue;
        }
        dunlin__moves_polish(search, scratch, &result);
        if (result.cost_ns < best->cost_ns) {
            *best = result;
            last_gain = search->remat->n_work;
            memcpy(intervals, scratch, n);
        }
        /* A slightly worse choice is accepted for a while; far from the best the search restarts
         * from the best. */
        if (result.cost_ns <= at.cost_ns + at.cost_ns / 50) {
            at = result;
            memcpy(now, scratch, n);
        }
        if (at.cost_ns > best->cost_ns + best->cost_ns / 20) {
            at = *best;
            memcpy(now, intervals, n);
        }
    }
}

bool dunlin__remat_search(dunlin_remat *remat, const dunlin_remat_limits *limits,
                          uint8_t *intervals, uint8_t *scratch, dunlin_remat_result *out_result)
{
    dunlin_searcher search = {.remat = remat,
                              .limits = limits,
                              .random = UINT64_C(0x9E3779B97F4A7C15),
                              .work_end = UINT64_MAX};
    dunlin_remat_result best = dunlin__moves_run(&search, intervals);
    bool has_best = best.is_valid && best.excess_bytes == 0;
    if (remat->n_intervals > 0) {
        if (limits->has_start && !has_best) {
            mend(&search, intervals, scratch, &best, &has_best);
        }
        if (!has_best) {
            run_portfolio(&search, intervals, scratch, &best, &has_best);
        }
        search.work_end = remat->n_work + limits->max_work;
        if (has_best) {
            move(&search, intervals, scratch, &best);
        }
    }
    *out_result = best;
    return has_best;
}
