/*
 * test_optimum.c - small steps: plans beside the optimum, as tests/bench/exact/exact.py had it
 * proven (the graph's order of first runs; live bytes within the limit). Steps are built anew, and
 * random ones from seeds of their own, so that the numbers stay.
 */
#include "cases.h"

#include <mem/plan.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <string.h>

/* Live bytes beside what is persistent, and the least time of a step within them. */
typedef struct {
    const char *name;
    uint64_t limit_bytes;
    uint64_t cost_ns;
} optimum;

static const optimum optima[] = {
    {"chain_short", 2056192, 962000},
    {"chain_short", 1802240, 972000},
    {"chain_short", 1548288, 1160000},
    {"chain_short", 1395904, 1170000},
    {"units_short", 1687616, 1200000},
    {"units_short", 1540160, 1378000},
    {"units_short", 1392704, 1378000},
    {"units_short", 1304192, 1388000},
    {"residual_short", 1870848, 814000},
    {"residual_short", 1771520, 864000},
    {"residual_short", 1672192, 874000},
    {"residual_short", 1612544, 874000},
    {"random_short", 1842176, 927000},
    {"random_short", 1746944, 969000},
    {"random_short", 1651712, 979000},
    {"random_short", 1594560, 1021000},
    {"chain_even", 1867776, 2132000},
    {"chain_even", 1507328, 2322000},
    {"chain_even", 1146880, 2432000},
    {"chain_even", 930560, 2722000},
    {"chain_falling", 2465024, 2122000},
    {"chain_falling", 2105856, 2132000},
    {"chain_falling", 1746688, 2222000},
    {"chain_falling", 1531136, 2322000},
    {"chain_hourglass", 2466560, 2122000},
    {"chain_hourglass", 2034176, 2222000},
    {"chain_hourglass", 1601792, 2322000},
    {"chain_hourglass", 1342336, 2442000},
    {"chain_drawn", 2666560, 3318000},
    {"chain_drawn", 2269248, 3421000},
    {"chain_drawn", 1871936, 3639000},
    {"chain_drawn", 1633536, 3756000},
    {"chain_even_long", 3244032, 4439000},
    {"chain_even_long", 2424832, 4739000},
    {"chain_even_long", 1605632, 5039000},
    {"chain_even_long", 1114112, 5749000},
    {"chain_drawn_long", 5234688, 5524000},
    {"chain_drawn_long", 4177920, 5689000},
    {"chain_drawn_long", 3121152, 5944000},
    {"chain_drawn_long", 2487040, 6284000},
    {"units", 2056192, 1520000},
    {"units", 1802240, 1530000},
    {"units", 1548288, 1869000},
    {"units", 1395904, 1879000},
    {"units_norm", 1199104, 1714000},
    {"units_norm", 1035264, 1847000},
    {"units_norm", 871424, 2046000},
    {"units_norm", 773120, 2129000},
    {"units_pool", 1043968, 1652000},
    {"units_pool", 906240, 1788000},
    {"units_pool", 768512, 1970000},
    {"units_pool", 685824, 2098000},
    {"units_norm_long", 5174784, 1900000},
    {"units_norm_long", 4069376, 1950000},
    {"units_norm_long", 2963968, 2169000},
    {"units_norm_long", 2300672, 2725000},
    {"units_long", 3129344, 3708000},
    {"units_long", 2555904, 3889000},
    {"units_long", 1982464, 4169000},
    {"units_long", 1638400, 4405000},
    {"residual", 2460672, 1552000},
    {"residual", 2164736, 1588000},
    {"residual", 1868800, 1658000},
    {"residual", 1691200, 1814000},
    {"residual_long", 3640320, 2964000},
    {"residual_long", 2951168, 3070000},
    {"residual_long", 2262016, 3252000},
    {"residual_long", 1848512, 3566000},
    {"reuse", 1839104, 2840000},
    {"reuse", 1740800, 2840000},
    {"reuse", 1642496, 2880000},
    {"reuse", 1583488, 2920000},
    {"reuse_long", 3379200, 8664000},
    {"reuse_long", 3018752, 8744000},
    {"reuse_long", 2658304, 8994000},
    {"reuse_long", 2441984, 9564000},
    {"skips_sum", 2059264, 1801000},
    {"skips_sum", 1918976, 1881000},
    {"skips_sum", 1778688, 1941000},
    {"skips_sum", 1694464, 1951000},
    {"skips_concat", 3153920, 1861000},
    {"skips_concat", 2801664, 1901000},
    {"skips_concat", 2449408, 2181000},
    {"skips_concat", 2238016, 2311000},
    {"skips_long", 3362816, 2608000},
    {"skips_long", 2940928, 2768000},
    {"skips_long", 2519040, 3038000},
    {"skips_long", 2265856, 3308000},
    {"random_a", 3395584, 807000},
    {"random_a", 2887680, 855000},
    {"random_a", 2379776, 959000},
    {"random_a", 2075008, 1007000},
    {"random_b", 1541888, 1513000},
    {"random_b", 1329664, 1578000},
    {"random_b", 1117440, 1588000},
    {"random_b", 990080, 1618000},
    {"random_c", 5030912, 618000},
    {"random_c", 4752384, 802000},
    {"random_c", 4473856, 824000},
    {"random_c", 4306688, 834000},
    {"random_d", 3418112, 2003000},
    {"random_d", 2961408, 2024000},
    {"random_d", 2504704, 2112000},
    {"random_d", 2230656, 2318000},
    {"random_e", 3636224, 2509000},
    {"random_e", 3060736, 2532000},
    {"random_e", 2485248, 2553000},
    {"random_e", 2139904, 2701000},
    {"random_f", 4280576, 2454000},
    {"random_f", 3579392, 2477000},
    {"random_f", 2878208, 2507000},
    {"random_f", 2457472, 2798000},
};

static const exact_case *find_case(const char *name)
{
    size_t n = 0;
    const exact_case *cases = exact_made_cases(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(cases[i].name, name) == 0) {
            return &cases[i];
        }
    }
    return NULL;
}

static uint64_t persistent_bytes(const dunlin_mem_graph *graph)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const uint64_t fixed = graph->tensors[t].is_persistent ? graph->tensors[t].fixed_bytes : 0;
        bytes += (fixed + DUNLIN_MEM_ALIGN - 1) / DUNLIN_MEM_ALIGN * DUNLIN_MEM_ALIGN;
    }
    return bytes;
}

Test(optimum, plans_of_small_steps_take_a_twentieth_more_at_most)
{
    uint32_t n_exact = 0;
    const size_t n = sizeof optima / sizeof optima[0];
    for (size_t i = 0; i < n; i++) {
        const optimum *at = &optima[i];
        const exact_case *found = find_case(at->name);
        cr_assert_not_null(found, "%s", at->name);
        test_graph *graph = test_graph_new();
        found->build_fn(graph, found);
        const dunlin_plan_options options = {
            .batch = 1, .budget_bytes = persistent_bytes(&graph->graph) + at->limit_bytes};
        dunlin_plan *plan = NULL;
        dunlin_error error = {0};
        cr_assert_eq(dunlin__plan_create(&graph->graph, &options, &plan, &error), DUNLIN_OK,
                     "%s in %" PRIu64 " bytes: %s", at->name, at->limit_bytes, error.text);
        cr_assert_geq(plan->cost_ns, at->cost_ns, "%s in %" PRIu64 " bytes: better than the best",
                      at->name, at->limit_bytes);
        cr_assert_leq(plan->cost_ns, at->cost_ns + at->cost_ns / 20,
                      "%s in %" PRIu64 " bytes: %" PRIu64 " ns, the optimum is %" PRIu64, at->name,
                      at->limit_bytes, plan->cost_ns, at->cost_ns);
        n_exact += plan->cost_ns == at->cost_ns;
        dunlin__plan_destroy(plan);
        test_graph_free(graph);
    }
    cr_assert_geq(n_exact, n - n / 10);
}

#define N_BUDGETS 40
#define LUCK_SHARE 16 /* of the time */

/* What the search within one budget has the luck to find, that within a larger one may miss; but
 * not by much. These are the steps where it has the least. */
Test(optimum, more_memory_is_hardly_slower)
{
    static const char *const names[] = {"chain_even_long", "random_f", "skips_concat",
                                        "skips_long"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const exact_case *found = find_case(names[i]);
        cr_assert_not_null(found, "%s", names[i]);
        test_graph *graph = test_graph_new();
        found->build_fn(graph, found);
        dunlin_plan_options options = {.batch = 1};
        dunlin_plan *plan = NULL;
        uint64_t least = 0;
        uint64_t fastest_ns = UINT64_MAX; /* of the smaller budgets */
        cr_assert_eq(dunlin__plan_create(&graph->graph, &options, &plan, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__plan_least_bytes(&graph->graph, &options, &least, NULL), DUNLIN_OK);
        const uint64_t most = plan->arena_bytes;
        dunlin__plan_destroy(plan);
        for (uint64_t k = 0; k < N_BUDGETS; k++) {
            options.budget_bytes = least + (most - least) * k / (N_BUDGETS - 1);
            cr_assert_eq(dunlin__plan_create(&graph->graph, &options, &plan, NULL), DUNLIN_OK);
            const uint64_t cost_ns = plan->cost_ns;
            dunlin__plan_destroy(plan);
            cr_expect(fastest_ns == UINT64_MAX || cost_ns <= fastest_ns + fastest_ns / LUCK_SHARE,
                      "%s in %" PRIu64 " bytes: %" PRIu64 " ns, in fewer %" PRIu64, names[i],
                      options.budget_bytes, cost_ns, fastest_ns);
            fastest_ns = cost_ns < fastest_ns ? cost_ns : fastest_ns;
        }
        test_graph_free(graph);
    }
}
