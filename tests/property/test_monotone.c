/*
 * test_monotone.c - more memory is never slower: plans of ready-made networks with batch norm at
 * many random budgets, from the least to that of the whole batch.
 */
#include "random.h"
#include "zoo_step.h"

#include <mem/plan.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>

#define MAX_BUDGETS 64

static int compare_bytes(const void *a, const void *b)
{
    const uint64_t first = *(const uint64_t *)a;
    const uint64_t second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

static uint64_t cost_at(const char *name, const dunlin_mem_graph *graph,
                        const dunlin_plan_options *options, uint64_t *out_bytes)
{
    dunlin_error error = {0};
    dunlin_plan *plan = NULL;
    cr_assert_eq(dunlin__plan_create(graph, options, &plan, &error), DUNLIN_OK, "%s: %s", name,
                 error.text);
    const uint64_t cost_ns = plan->cost_ns;
    *out_bytes = plan->arena_bytes;
    dunlin__plan_destroy(plan);
    return cost_ns;
}

/* Half of the budgets are small ones. */
static void check_budgets(const char *name, const dunlin_mem_graph *graph, uint64_t batch,
                          size_t n_budgets)
{
    uint64_t state = test_seed(batch);
    uint64_t budgets[MAX_BUDGETS];
    uint64_t least = 0;
    uint64_t most = 0;
    uint64_t unused = 0;
    dunlin_plan_options options = {.batch = batch};
    uint64_t before_ns = 0;
    (void)cost_at(name, graph, &options, &most);
    cr_assert_eq(dunlin__plan_least_bytes(graph, &options, &least, NULL), DUNLIN_OK);
    for (size_t i = 0; i < n_budgets; i++) {
        const uint64_t range = i % 2 == 0 ? most - least : (most - least) / 4;
        budgets[i] = least + test_random_below(&state, range + 1);
    }
    qsort(budgets, n_budgets, sizeof *budgets, compare_bytes);
    for (size_t i = 0; i < n_budgets; i++) {
        options.budget_bytes = budgets[i];
        const uint64_t cost_ns = cost_at(name, graph, &options, &unused);
        cr_assert(i == 0 || cost_ns <= before_ns,
                  "%s, batch %" PRIu64 ": %" PRIu64 " ns with %" PRIu64 " bytes, %" PRIu64
                  " ns with %" PRIu64,
                  name, batch, before_ns, budgets[i == 0 ? 0 : i - 1], cost_ns, budgets[i]);
        before_ns = cost_ns;
    }
}

static void check_network(const char *name, uint64_t batch, size_t n_budgets)
{
    zoo_step net;
    dunlin_error error = {0};
    cr_assert_eq(zoo_step_open(name, &net, &error), DUNLIN_OK, "%s", error.text);
    check_budgets(name, &net.lowered.graph, batch, n_budgets);
    zoo_step_close(&net);
}

Test(monotone, mobilenet_v2)
{
    check_network("mobilenet_v2", 32, 48);
}

Test(monotone, mobilenet_v2_with_large_batches)
{
    check_network("mobilenet_v2", 700, 16);
}

Test(monotone, mobilenet_v1)
{
    check_network("mobilenet_v1", 32, 48);
}

Test(monotone, resnet18)
{
    check_network("resnet18", 32, 48);
}

Test(monotone, resnet50)
{
    check_network("resnet50", 32, 16);
}

Test(monotone, densenet121)
{
    check_network("densenet121", 32, 12);
}
