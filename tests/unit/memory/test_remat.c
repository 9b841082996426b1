/*
 * test_remat.c - simulations of rematerialisation: the predicted result of a change is that of a
 * whole run, in steps cut into regions too.
 */
#include "attempt/attempt.h"
#include "planner/graphs.h"
#include "random.h"

#include <dunlin/base.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 4

typedef struct {
    test_graph *graph;
    dunlin_planner planner;
    uint64_t state;
    uint64_t limit_bytes;
} paper_case;

/* One in three is cut into regions in slices of some size. */
static void open_case(uint64_t seed, paper_case *made)
{
    *made = (paper_case){.graph = test_graph_new(), .state = seed};
    const bool is_cut = test_random_below(&made->state, 3) == 0;
    const test_net_options net = {.n_layers = 2 + (uint32_t)test_random_below(&made->state, 30),
                                  .max_sample_bytes = 4096,
                                  .has_norm = is_cut};
    test_random_net(made->graph, &net, &made->state);
    const dunlin_plan_options options = {.batch = BATCH};
    dunlin_planner *planner = &made->planner;
    cr_assert_eq(dunlin__planner_open(&made->graph->graph, &options, planner, NULL), DUNLIN_OK);
    if (is_cut && planner->barrier_op != DUNLIN_MEM_NONE) {
        const dunlin_cut cut = test_random_below(&made->state, 2) == 0 ? DUNLIN_CUT_UPDATES_HELD
                                                                       : DUNLIN_CUT_UPDATES_LAST;
        const uint64_t share = test_random_below(&made->state, 3) * 16;
        dunlin_attempt tried;
        cr_assert_eq(dunlin__try_regions(planner, cut, share, DUNLIN_EFFORT_QUICK, &tried, NULL),
                     DUNLIN_OK);
    } else {
        cr_assert_eq(dunlin__planner_set_slice(planner, BATCH, NULL), DUNLIN_OK);
    }
    dunlin_remat *remat = &planner->at->remat;
    dunlin__remat_keep_all(remat, planner->at->intervals);
    const uint64_t plain = dunlin__remat_run(remat, planner->at->intervals, UINT64_MAX).peak_bytes;
    made->limit_bytes = plain / 4 + test_random_below(&made->state, plain + 1);
}

static void close_case(paper_case *at)
{
    dunlin__planner_close(&at->planner);
    test_graph_free(at->graph);
}

static uint8_t any_state(paper_case *at)
{
    const uint8_t state = (uint8_t)test_random_below(&at->state, DUNLIN_INTERVAL_EAGER + 1);
    return state == DUNLIN_INTERVAL_SHORT && at->planner.at->remat.n_phases == 1
               ? DUNLIN_INTERVAL_LAZY
               : state;
}

/* Most intervals retained, or most in any state. */
static void fill_intervals(paper_case *at)
{
    const uint64_t n_kept = test_random_below(&at->state, 11);
    for (uint32_t g = 0; g < at->planner.at->remat.n_intervals; g++) {
        const bool is_kept = test_random_below(&at->state, 10) < n_kept;
        at->planner.at->intervals[g] = is_kept ? (uint8_t)DUNLIN_INTERVAL_RETAIN : any_state(at);
    }
}

static void change_intervals(paper_case *at)
{
    const dunlin_remat *remat = &at->planner.at->remat;
    const uint64_t n_changes = 1 + test_random_below(&at->state, 4);
    for (uint64_t i = 0; i < n_changes; i++) {
        at->planner.at->intervals[test_random_below(&at->state, remat->n_intervals)] =
            any_state(at);
    }
}

static void assert_same(const dunlin_remat_result *a, const dunlin_remat_result *b, uint64_t seed)
{
    cr_assert_eq(a->is_valid, b->is_valid, "seed %" PRIu64, seed);
    if (a->is_valid) {
        cr_assert_eq(a->cost_ns, b->cost_ns, "seed %" PRIu64, seed);
        cr_assert_eq(a->excess_bytes, b->excess_bytes, "seed %" PRIu64, seed);
        cr_assert_eq(a->peak_bytes, b->peak_bytes, "seed %" PRIu64, seed);
        cr_assert_eq(a->peak_at, b->peak_at, "seed %" PRIu64, seed);
        cr_assert_eq(a->first_over, b->first_over, "seed %" PRIu64, seed);
        cr_assert_eq(a->n_recompute, b->n_recompute, "seed %" PRIu64, seed);
    }
}

/* Of the base, what is run again from it, and a whole run: the same, position by position. */
static void check_run(paper_case *at, const dunlin_remat_result *tried, uint64_t seed)
{
    dunlin_remat *remat = &at->planner.at->remat;
    const uint8_t *intervals = at->planner.at->intervals;
    uint64_t *sums = calloc(remat->n_steps + 1, sizeof *sums);
    cr_assert_not_null(sums);
    const dunlin_remat_result resumed = dunlin__remat_run(remat, intervals, at->limit_bytes);
    memcpy(sums, remat->sums, remat->n_steps * sizeof *sums);
    remat->has_base = false;
    const dunlin_remat_result whole = dunlin__remat_run(remat, intervals, at->limit_bytes);
    assert_same(tried, &whole, seed);
    assert_same(&resumed, &whole, seed);
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        cr_assert_eq(sums[p], remat->sums[p], "seed %" PRIu64 ", position %u", seed, (unsigned)p);
    }
    free(sums);
}

Test(remat, a_change_comes_to_what_a_whole_run_says)
{
    const dunlin_remat_bar none = {.max_excess_bytes = UINT64_MAX, .max_cost_ns = UINT64_MAX};
    uint64_t seed = test_seed(1);
    uint64_t n_skipped = 0;
    for (int n = 0; n < test_cases(200); n++, seed++) {
        paper_case at;
        open_case(seed, &at);
        dunlin_remat *remat = &at.planner.at->remat;
        fill_intervals(&at);
        for (int i = 0; i < 60 && remat->n_intervals > 0; i++) {
            (void)dunlin__remat_run(remat, at.planner.at->intervals, at.limit_bytes);
            change_intervals(&at);
            const uint64_t before = remat->n_work;
            dunlin_remat_result tried =
                dunlin__remat_try(remat, at.planner.at->intervals, at.limit_bytes, &none);
            n_skipped += remat->n_work - before < remat->n_steps;
            /* The base moves on by several runs before it is computed anew. */
            if (i % 4 == 3) {
                check_run(&at, &tried, seed);
            } else if (i % 4 == 2) {
                at.limit_bytes = at.limit_bytes * 7 / 8;
            }
        }
        close_case(&at);
    }
    cr_assert_gt(n_skipped, 0);
}

Test(remat, a_try_ends_at_its_bar)
{
    uint64_t seed = test_seed(500);
    for (int n = 0; n < test_cases(100); n++, seed++) {
        paper_case at;
        open_case(seed, &at);
        dunlin_remat *remat = &at.planner.at->remat;
        fill_intervals(&at);
        const dunlin_remat_result base =
            dunlin__remat_run(remat, at.planner.at->intervals, at.limit_bytes);
        const dunlin_remat_bar bar = {.max_excess_bytes = base.excess_bytes,
                                      .max_cost_ns = base.cost_ns};
        for (int i = 0; i < 20 && remat->n_intervals > 0; i++) {
            change_intervals(&at);
            const bool is_valid =
                dunlin__remat_try(remat, at.planner.at->intervals, at.limit_bytes, &bar).is_valid;
            remat->has_base = false;
            const dunlin_remat_result whole =
                dunlin__remat_run(remat, at.planner.at->intervals, at.limit_bytes);
            cr_assert_eq(is_valid,
                         whole.is_valid && whole.excess_bytes <= bar.max_excess_bytes &&
                             whole.cost_ns <= bar.max_cost_ns,
                         "seed %" PRIu64, seed);
        }
        close_case(&at);
    }
}

/* Stands at a position by way of a base and without one: the same roots are there. */
Test(remat, standing_somewhere_is_running_there)
{
    uint64_t seed = test_seed(1000);
    for (int n = 0; n < test_cases(200); n++, seed++) {
        paper_case at;
        open_case(seed, &at);
        dunlin_remat *remat = &at.planner.at->remat;
        uint64_t *is_here = calloc(remat->n_words + 1, sizeof *is_here);
        cr_assert_not_null(is_here);
        fill_intervals(&at);
        (void)dunlin__remat_run(remat, at.planner.at->intervals, UINT64_MAX);
        fill_intervals(&at);
        const uint32_t position = (uint32_t)test_random_below(&at.state, remat->n_steps + 1);
        dunlin__remat_stand(remat, at.planner.at->intervals, position);
        memcpy(is_here, remat->is_here, remat->n_words * sizeof *is_here);
        remat->has_base = false;
        dunlin__remat_stand(remat, at.planner.at->intervals, position);
        cr_assert_arr_eq(is_here, remat->is_here, remat->n_words * sizeof *is_here, "seed %" PRIu64,
                         seed);
        free(is_here);
        close_case(&at);
    }
}

/* Retained to the end of such an interval, a root makes nothing cheaper: searches skip it. */
Test(remat, what_no_recompute_asks_for_saves_nothing)
{
    uint64_t seed = test_seed(1500);
    uint64_t n_saving = 0;
    uint64_t n_passed_over = 0;
    for (int n = 0; n < test_cases(200); n++, seed++) {
        paper_case at;
        open_case(seed, &at);
        dunlin_remat *remat = &at.planner.at->remat;
        uint8_t *intervals = at.planner.at->intervals;
        fill_intervals(&at);
        for (uint32_t g = 0; g < remat->n_intervals; g++) {
            const dunlin_remat_result base = dunlin__remat_run(remat, intervals, UINT64_MAX);
            if (!remat->intervals[g].is_extension || intervals[g] == DUNLIN_INTERVAL_RETAIN ||
                !base.is_valid) {
                continue;
            }
            const bool is_asked_for = dunlin__remat_is_asked_for(remat, &remat->intervals[g]);
            const uint8_t held = intervals[g];
            intervals[g] = DUNLIN_INTERVAL_RETAIN;
            const uint64_t kept_ns = dunlin__remat_run(remat, intervals, UINT64_MAX).cost_ns;
            intervals[g] = held;
            n_saving += kept_ns < base.cost_ns;
            n_passed_over += !is_asked_for;
            cr_assert(is_asked_for || kept_ns >= base.cost_ns, "seed %" PRIu64 " gap %" PRIu32,
                      seed, g);
        }
        close_case(&at);
    }
    cr_expect_gt(n_saving, 0);
    cr_expect_gt(n_passed_over, 0);
}
