/*
 * test_regions.c - a step with barriers: where it is cut, when its updates run, what its slices
 * keep.
 */
#include "planner/graphs.h"
#include "schedule/barriers.h"
#include "schedule/regions.h"

#include <mem/plan.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#define MAP DUNLIN_MEM_MAP
#define REDUCE DUNLIN_MEM_REDUCE
#define BOTH (DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE)
#define FIXED DUNLIN_MEM_FIXED

#define BATCH 8

/* input, conv with its sums | finish | norm, loss, its gradient with sums | finish | weight
 * gradient, update, and a tail that does not need the weight. */
typedef struct {
    test_graph *graph;
    uint32_t w, x, y, z, dz;
    uint32_t input, conv, finish, norm, loss, slopes, weight_grad, update, tail;
} subject;

static subject make(void)
{
    subject at = {.graph = test_graph_new()};
    test_graph *g = at.graph;
    at.w = test_persistent(g, "w", 64, DUNLIN_MEM_WEIGHT);
    at.x = test_batched(g, "x", 64, DUNLIN_MEM_INPUT);
    at.y = test_batched(g, "y", 1024, DUNLIN_MEM_ACTIVATION);
    at.z = test_batched(g, "z", 1024, DUNLIN_MEM_ACTIVATION);
    at.dz = test_batched(g, "dz", 1024, DUNLIN_MEM_GRADIENT);
    const uint32_t dy = test_batched(g, "dy", 1024, DUNLIN_MEM_GRADIENT);
    const uint32_t sum = test_fixed(g, "sum", 64, DUNLIN_MEM_ACCUMULATOR);
    const uint32_t stat = test_fixed(g, "stat", 64, DUNLIN_MEM_SAVED);
    const uint32_t loss = test_fixed(g, "loss", 64, DUNLIN_MEM_ACCUMULATOR);
    const uint32_t back = test_fixed(g, "back", 64, DUNLIN_MEM_ACCUMULATOR);
    const uint32_t slope = test_fixed(g, "slope", 64, DUNLIN_MEM_SAVED);
    const uint32_t dw = test_fixed(g, "dw", 64, DUNLIN_MEM_ACCUMULATOR);
    const uint32_t more = test_fixed(g, "more", 64, DUNLIN_MEM_ACCUMULATOR);
    const uint32_t last = test_fixed(g, "last", 64, DUNLIN_MEM_SAVED);
    const uint32_t end = test_fixed(g, "end", 64, DUNLIN_MEM_ACCUMULATOR);
    at.input = TEST_OP(g, "input", MAP, "w", at.x);
    at.conv = TEST_OP(g, "conv", BOTH, "rrmwda", at.x, at.w, at.y, sum);
    at.finish = TEST_OP(g, "finish", FIXED, "rw", sum, stat);
    at.norm = TEST_OP(g, "norm", MAP, "rrw", at.y, stat, at.z);
    at.loss = TEST_OP(g, "loss", BOTH, "rmwdada", at.z, at.dz, loss, back);
    at.slopes = TEST_OP(g, "slopes", FIXED, "rw", back, slope);
    (void)TEST_OP(g, "norm/grad", MAP, "rrrw", at.y, at.dz, slope, dy);
    at.weight_grad = TEST_OP(g, "conv/grad", REDUCE, "rraa", at.x, dy, dw, more);
    at.update = TEST_OP(g, "update", FIXED, "ru", dw, at.w);
    (void)TEST_OP(g, "finish/last", FIXED, "rw", more, last);
    at.tail = TEST_OP(g, "tail", REDUCE, "rra", dy, last, end);
    for (uint32_t i = 0; i < g->graph.n_ops; i++) {
        g->ops[i].may_recompute = (g->ops[i].parts & MAP) != 0;
    }
    return at;
}

static dunlin_regions find(const subject *at, uint32_t n_held)
{
    dunlin_regions regions;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    cr_assert_eq(dunlin__regions_find(&at->graph->graph, n_held, 0, 1, &alloc, &regions, NULL),
                 DUNLIN_OK);
    return regions;
}

Test(regions, each_wait_ends_one)
{
    subject at = make();
    dunlin_regions regions = find(&at, 0);
    cr_assert_eq(regions.n_groups, 2 * 4 + 1);
    const uint32_t *group = regions.group_of;
    cr_expect_eq(group[at.input], 1);
    cr_expect_eq(group[at.conv], 1);
    cr_expect_eq(group[at.finish], 2);
    cr_expect_eq(group[at.norm], 3);
    cr_expect_eq(group[at.loss], 3);
    cr_expect_eq(group[at.slopes], 4);
    cr_expect_eq(group[at.weight_grad], 5);
    cr_expect_eq(group[at.update], 6, "updates run as soon as their sums are complete");
    cr_expect_eq(group[at.tail], 7);
    for (uint32_t i = 0; i < regions.n_ops; i++) {
        const uint32_t op = regions.order[i];
        cr_expect(regions.first[group[op]] <= i && i < regions.first[group[op] + 1]);
        cr_expect(i == 0 || group[regions.order[i - 1]] < group[op] || regions.order[i - 1] < op);
    }
    dunlin__regions_close(&regions);
    test_graph_free(at.graph);
}

Test(regions, updates_can_wait)
{
    subject at = make();
    dunlin_regions one = find(&at, 1);
    cr_expect_eq(one.group_of[at.update], 8);
    dunlin_regions last = find(&at, UINT32_MAX);
    cr_expect_eq(last.group_of[at.update], last.n_groups - 1);
    cr_expect_eq(last.group_of[at.slopes], 4, "what a region waits for does not");
    dunlin__regions_close(&one);
    dunlin__regions_close(&last);
    test_graph_free(at.graph);
}

/* An op that reads the new weight cannot be kept waiting by an update that is held back. */
Test(regions, but_not_for_whom_needs_them)
{
    subject at = make();
    const uint32_t end = test_fixed(at.graph, "after", 64, DUNLIN_MEM_ACCUMULATOR);
    const uint32_t needs = TEST_OP(at.graph, "needs", REDUCE, "rra", at.x, at.w, end);
    dunlin_regions regions = find(&at, UINT32_MAX);
    cr_expect_lt(regions.group_of[at.update], regions.group_of[needs]);
    dunlin__regions_close(&regions);
    test_graph_free(at.graph);
}

/* Whoever reads any part of what a reduction changes waits for it, also a part of a part. */
Test(regions, all_parts_of_a_reduction_are_waited_for)
{
    test_graph *g = test_graph_new();
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_barrier_map map;
    const uint32_t x = test_batched(g, "x", 64, DUNLIN_MEM_INPUT);
    const uint32_t sums = test_fixed(g, "sums", 256, DUNLIN_MEM_ACCUMULATOR);
    const uint32_t parts[] = {
        test_part(g, "sums/a", sums, 0, 64),
        test_part(g, "sums/b", sums, 64, 64),
        test_part(g, "sums/c", sums, 128, 128),
    };
    const uint32_t inner = test_part(g, "sums/c/d", parts[2], 0, 64);
    const uint32_t other = test_fixed(g, "other", 64, DUNLIN_MEM_SAVED);
    const uint32_t out = test_fixed(g, "out", 64, DUNLIN_MEM_SAVED);
    const uint32_t reduce = TEST_OP(g, "reduce", REDUCE, "ra", x, sums);
    const uint32_t apart = TEST_OP(g, "apart", FIXED, "rw", other, out);
    uint32_t readers[4];
    for (int i = 0; i < 4; i++) {
        readers[i] = TEST_OP(g, "reader", FIXED, "rw", i < 3 ? parts[i] : inner, out);
    }
    cr_assert_eq(dunlin__barrier_open(&g->graph, &alloc, &map, NULL), DUNLIN_OK);
    for (int i = 0; i < 4; i++) {
        cr_expect_not(dunlin__barrier_waits(&map, &g->ops[readers[i]]));
    }
    dunlin__barrier_mark(&map, &g->ops[reduce]);
    for (int i = 0; i < 4; i++) {
        cr_expect(dunlin__barrier_waits(&map, &g->ops[readers[i]]), "reader %d", i);
    }
    cr_expect_not(dunlin__barrier_waits(&map, &g->ops[apart]));
    dunlin__barrier_close(&map);
    test_graph_free(g);
}

Test(regions, the_least_plan_holds_a_sample)
{
    subject at = make();
    dunlin_plan_options options = {.batch = BATCH};
    uint64_t least = 0;
    cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &options, &least, NULL), DUNLIN_OK);
    cr_expect_lt(least, BATCH * 1024, "one activation of the whole batch");
    dunlin_plan *plan = NULL;
    options.budget_bytes = least;
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, NULL), DUNLIN_OK);
    cr_expect_gt(plan->n_loops, 4);
    cr_expect_gt(plan->n_recompute_ops, 0);
    dunlin__plan_destroy(plan);
    /* With room for one of them, it is kept whole from region to region. */
    options.budget_bytes = least + BATCH * 1024;
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, NULL), DUNLIN_OK);
    bool has_whole = false;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        has_whole |= place->is_whole && place->bytes == BATCH * 1024;
    }
    cr_expect(has_whole);
    dunlin__plan_destroy(plan);
    test_graph_free(at.graph);
}

Test(regions, more_budget_is_never_slower)
{
    subject at = make();
    dunlin_plan_options options = {.batch = BATCH};
    uint64_t least = 0;
    uint64_t before_ns = UINT64_MAX;
    cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &options, &least, NULL), DUNLIN_OK);
    for (options.budget_bytes = least; options.budget_bytes < 8 * least;
         options.budget_bytes += least / 4) {
        dunlin_plan *plan = NULL;
        cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, NULL), DUNLIN_OK);
        cr_expect_leq(plan->cost_ns, before_ns);
        before_ns = plan->cost_ns;
        dunlin__plan_destroy(plan);
    }
    test_graph_free(at.graph);
}

Test(regions, memory_may_fail_anywhere)
{
    subject at = make();
    dunlin_status status = DUNLIN_MEMORY;
    for (uint64_t n = 0; status != DUNLIN_OK; n++) {
        failing_alloc failing;
        dunlin_plan *plan = NULL;
        failing_alloc_init(&failing, n);
        const dunlin_plan_options options = {
            .batch = BATCH, .budget_bytes = 9000, .alloc = failing.hooks};
        status = dunlin__plan_create(&at.graph->graph, &options, &plan, NULL);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY);
        cr_assert(status == DUNLIN_OK || failing.counter.now_bytes == 0, "after %u allocations",
                  (unsigned)n);
        dunlin__plan_destroy(plan);
    }
    test_graph_free(at.graph);
}
