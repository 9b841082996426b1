/*
 * test_redo.c - rematerialisation, one recomputed op at a time: the predicted needs of a choice are
 * those of its schedule once it is laid out, and what a search finds is within its limit and no
 * slower than what it was given.
 */
#include "attempt/attempt.h"
#include "planner/graphs.h"
#include "random.h"
#include "search/redo.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 4

typedef struct {
    test_graph *graph;
    dunlin_planner planner;
    dunlin_recompute_model *model;
    uint64_t state;
} recompute_case;

static void open_case(uint64_t seed, recompute_case *made)
{
    *made = (recompute_case){.graph = test_graph_new(), .state = seed};
    const test_net_options net = {.n_layers = 2 + (uint32_t)test_random_below(&made->state, 20),
                                  .max_sample_bytes = 4096,
                                  .has_norm = test_random_below(&made->state, 2) == 0};
    test_random_net(made->graph, &net, &made->state);
    const dunlin_plan_options options = {.batch = BATCH};
    dunlin_planner *planner = &made->planner;
    cr_assert_eq(dunlin__planner_open(&made->graph->graph, &options, planner, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__planner_set_slice(planner, BATCH, NULL), DUNLIN_OK);
    if (made->graph->graph.n_ops <= DUNLIN_RECOMPUTE_OPS) {
        made->model = malloc(sizeof *made->model);
        cr_assert_not_null(made->model);
        cr_assert_eq(dunlin__recompute_open(&planner->at->remat, &planner->live, BATCH,
                                            planner->variants, made->model, NULL),
                     DUNLIN_OK);
    }
}

static void close_case(recompute_case *at)
{
    if (at->model != NULL) {
        dunlin__recompute_close(at->model);
    }
    free(at->model);
    dunlin__planner_close(&at->planner);
    test_graph_free(at->graph);
}

/* A few groups of ops run again before a few others. */
static void fill(recompute_case *at, dunlin_recompute_choice *choice)
{
    const dunlin_recompute_model *model = at->model;
    memset(choice, 0, sizeof *choice);
    for (uint64_t i = test_random_below(&at->state, 30); i > 0; i--) {
        const uint32_t stage = (uint32_t)test_random_below(&at->state, model->n_ops);
        const uint32_t op = (uint32_t)test_random_below(&at->state, model->n_ops);
        for (uint32_t j = 0; dunlin__recompute_may(model, op, stage) && j < stage; j++) {
            if (dunlin__recompute_has(&model->ops[op].group, j)) {
                dunlin__recompute_add(&choice->before[stage], j);
            }
        }
    }
}

/* The same choice as a schedule: its lower bound, and what its redos cost. */
static uint64_t bound_of(recompute_case *at, const dunlin_recompute_choice *choice,
                         uint64_t *out_cost_ns)
{
    static dunlin_recompute recompute[DUNLIN_RECOMPUTE_STEPS];
    dunlin_recompute_list list = {.recompute = recompute};
    dunlin_planner *planner = &at->planner;
    uint64_t bound = 0;
    uint32_t peak_step = 0;
    for (uint32_t stage = 0; stage < at->model->n_ops; stage++) {
        for (uint32_t op = 0; op < stage; op++) {
            if (dunlin__recompute_has(&choice->before[stage], op)) {
                recompute[list.n++] = (dunlin_recompute){.before = stage, .op = op};
            }
        }
    }
    cr_assert_eq(dunlin__planner_reserve_steps(planner, at->model->n_ops + list.n, NULL),
                 DUNLIN_OK);
    cr_assert_eq(dunlin__planner_lay_out(planner, BATCH, false, &list, &bound, &peak_step, NULL),
                 DUNLIN_OK);
    *out_cost_ns = dunlin__schedule_cost_ns(planner->graph, &planner->schedule);
    return bound;
}

Test(recompute, a_run_on_paper_is_the_schedule_laid_out)
{
    uint64_t seed = test_seed(1);
    uint64_t n_redos = 0;
    for (int n = 0; n < test_cases(200); n++, seed++) {
        recompute_case at;
        open_case(seed, &at);
        for (int i = 0; at.model != NULL && i < 20; i++) {
            dunlin_recompute_choice choice = {.before = {{{0}}}};
            uint64_t plain_ns = 0;
            uint64_t cost_ns = 0;
            (void)bound_of(&at, &choice, &plain_ns);
            fill(&at, &choice);
            const uint64_t bound = bound_of(&at, &choice, &cost_ns);
            const dunlin_recompute_result result = dunlin__recompute_run(at.model, &choice, bound);
            cr_assert_eq(result.peak_bytes, bound, "seed %" PRIu64, seed);
            cr_assert_eq(result.excess_bytes, 0, "seed %" PRIu64, seed);
            cr_assert_eq(plain_ns + result.cost_ns, cost_ns, "seed %" PRIu64, seed);
            cr_assert_gt(dunlin__recompute_run(at.model, &choice, bound - 1).excess_bytes, 0);
            n_redos += at.model->n_steps - at.model->n_ops;
        }
        close_case(&at);
    }
    cr_assert_gt(n_redos, 5 * (uint64_t)test_cases(200));
}

Test(recompute, a_search_keeps_to_its_limit_and_finds_nothing_dearer)
{
    uint64_t seed = test_seed(700);
    uint64_t n_found = 0;
    uint64_t n_better = 0;
    const int n_cases = test_cases(40) > 20 ? test_cases(40) : 20; /* fewer may find nothing */
    for (int n = 0; n < n_cases; n++, seed++) {
        recompute_case at;
        open_case(seed, &at);
        if (at.model != NULL) {
            dunlin_recompute_choice choice = {.before = {{{0}}}};
            dunlin_recompute_result first;
            dunlin_recompute_result second;
            const uint64_t plain = dunlin__recompute_run(at.model, &choice, 0).peak_bytes;
            const uint64_t limit = plain - plain / 8;
            const uint64_t n_runs = 20 * (uint64_t)at.model->n_ops;
            if (dunlin__recompute_search(at.model, limit, n_runs, &choice, &first)) {
                cr_assert_leq(first.peak_bytes, limit, "seed %" PRIu64, seed);
                cr_assert_eq(dunlin__recompute_run(at.model, &choice, limit).cost_ns,
                             first.cost_ns);
                const bool is_better =
                    dunlin__recompute_search(at.model, limit, 10 * n_runs, &choice, &second);
                cr_assert_eq(is_better, second.cost_ns < first.cost_ns, "seed %" PRIu64, seed);
                cr_assert_leq(second.peak_bytes, limit, "seed %" PRIu64, seed);
                n_found++;
                n_better += is_better;
            }
        }
        close_case(&at);
    }
    cr_assert_gt(n_found, (uint64_t)n_cases / 4);
    cr_assert_lt(n_better, n_found);
}
