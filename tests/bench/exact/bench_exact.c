/*
 * bench_exact.c - the planner's side of the comparison with an exact solver: lists the cases, hands
 * one out as JSON, plans one within a budget. exact.py is the other side.
 */
#include "cases.h"

#include <mem/plan.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const exact_case *find_case(const char *name)
{
    size_t n = 0;
    const exact_case *cases = exact_made_cases(&n);
    for (int list = 0; list < 2; list++) {
        for (size_t i = 0; i < n; i++) {
            if (strcmp(cases[i].name, name) == 0) {
                return &cases[i];
            }
        }
        cases = exact_net_cases(&n);
    }
    return NULL;
}

static int list_cases(void)
{
    size_t n = 0;
    const exact_case *cases = exact_made_cases(&n);
    for (int list = 0; list < 2; list++) {
        for (size_t i = 0; i < n; i++) {
            (void)printf("%s\n", cases[i].name);
        }
        cases = exact_net_cases(&n);
    }
    return 0;
}

/* One line of JSON: what the plan costs, and its steps as [op, variant, parts]. */
static int print_plan(const dunlin_mem_graph *graph, uint64_t budget_bytes)
{
    dunlin_error error = {0};
    dunlin_plan *plan = NULL;
    const dunlin_plan_options options = {.batch = 1, .budget_bytes = budget_bytes};
    dunlin_status status = dunlin__plan_create(graph, &options, &plan, &error);
    if (status == DUNLIN_BUDGET) {
        (void)printf("{\"needed_bytes\": %" PRIu64 "}\n", error.needed_bytes);
        return 0;
    }
    if (status != DUNLIN_OK) {
        (void)fprintf(stderr, "bench_exact: %s\n", error.text);
        return 1;
    }
    (void)printf("{\"cost_ns\": %" PRIu64 ", \"arena_bytes\": %" PRIu64
                 ", \"persistent_bytes\": %" PRIu64 ", \"live_bytes\": %" PRIu64
                 ", \"n_redone\": %" PRIu32 ", \"steps\": [",
                 plan->cost_ns, plan->arena_bytes, plan->persistent_bytes,
                 plan->pool_lower_bound_bytes, plan->n_recompute_ops);
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        const dunlin_plan_step *step = &plan->steps[k];
        (void)printf("%s[%" PRIu32 ", %d, %d]", k == 0 ? "" : ", ", step->op, step->variant,
                     step->parts);
    }
    (void)printf("]}\n");
    dunlin__plan_destroy(plan);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        return list_cases();
    }
    bool is_plan = argc == 4 && strcmp(argv[1], "--plan") == 0;
    const exact_case *found =
        is_plan || (argc == 3 && strcmp(argv[1], "--graph") == 0) ? find_case(argv[2]) : NULL;
    if (found == NULL) {
        (void)fputs("usage: bench_exact --list | --graph CASE | --plan CASE BUDGET_BYTES\n"
                    "exact.py compares all cases with an exact solver\n",
                    stderr);
        return 2;
    }
    dunlin_error error = {0};
    test_graph *graph = test_graph_new();
    found->build_fn(graph, found);
    int failed = 0;
    if (dunlin__graph_check(&graph->graph, 1, NULL, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "bench_exact: %s: %s\n", found->name, error.text);
        failed = 1;
    } else if (is_plan) {
        failed = print_plan(&graph->graph, strtoull(argv[3], NULL, 10));
    } else {
        exact_write_json(&graph->graph, stdout);
    }
    test_graph_free(graph);
    return failed;
}
