/*
 * test_dump.c - a plan as text, line by line, and as a drawing.
 */
#include "planner/graphs.h"

#include <mem/draw.h>
#include <mem/plan.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE, FIXED = DUNLIN_MEM_FIXED };

typedef struct {
    char text[65536];
    size_t n;
    const char *end; /* put after each piece */
} collected;

static void collect(void *ctx, const char *piece)
{
    collected *all = ctx;
    all->n +=
        (size_t)snprintf(all->text + all->n, sizeof all->text - all->n, "%s%s", piece, all->end);
    cr_assert_lt(all->n, sizeof all->text);
}

static test_graph *make_graph(void)
{
    test_graph *graph = test_graph_new();
    uint32_t w = test_persistent(graph, "w", 60, DUNLIN_MEM_WEIGHT);
    uint32_t x = test_batched(graph, "x<&\">", 64, DUNLIN_MEM_INPUT);
    uint32_t y = test_batched(graph, "y", 128, DUNLIN_MEM_ACTIVATION);
    uint32_t dw = test_fixed(graph, "dw", 60, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", x);
    uint32_t layer = TEST_OP(graph, "layer", MAP, "rrw", x, w, y);
    TEST_OP(graph, "wgrad", REDUCE, "rra", x, y, dw);
    TEST_OP(graph, "update", FIXED, "ru", dw, w);
    graph->variants[layer][0].workspace_fixed_bytes = 32;
    return graph;
}

static const char expected[] =
    "plan: batch 5, policy auto, 2 loops, 4 steps (0 recomputed), predicted 0.0085 ms\n"
    "arena: 768 bytes = 64 persistent + 704 pool (lower bound 704, packed by longest life then "
    "size, first fit); table %llu bytes\n"
    "at the peak, step 1 (layer): weights 64 inputs 192 activations 384 accumulators 64 workspace "
    "64 unused 0\n"
    "loop 0: 2 slices of at most 3 samples\n"
    "     0 input                    map                 256 w x<&\">@128\n"
    "*    1 layer                    map                 704 r x<&\">@128  r w@0  w y@320  "
    "ws@704+64\n"
    "     2 wgrad                    reduce              640 r x<&\">@128  r y@320  a dw@64\n"
    "loop 1: once\n"
    "     3 update                   fixed                64 r dw@64  u w@0\n";

Test(dump, reads_as_written)
{
    test_graph *graph = make_graph();
    dunlin_plan *plan = NULL;
    dunlin_plan_options options = {.batch = 5, .budget_bytes = 1000};
    cr_assert_eq(dunlin__plan_create(&graph->graph, &options, &plan, NULL), DUNLIN_OK);
    collected all = {.end = "\n"};
    dunlin__plan_dump(&graph->graph, plan, collect, &all);
    char wanted[sizeof expected + 20];
    (void)snprintf(wanted, sizeof wanted, expected, (unsigned long long)plan->table_bytes);
    cr_assert_str_eq(all.text, wanted, "%s", all.text);
    dunlin__plan_destroy(plan);
    test_graph_free(graph);
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

Test(dump, the_drawing_has_a_rectangle_for_each_place)
{
    test_graph *graph = make_graph();
    dunlin_plan *plan = NULL;
    dunlin_plan_options options = {.batch = 5, .budget_bytes = 1000};
    cr_assert_eq(dunlin__plan_create(&graph->graph, &options, &plan, NULL), DUNLIN_OK);
    collected all = {.end = ""};
    dunlin__plan_draw(&graph->graph, plan, NULL, collect, &all);
    cr_assert_eq(strncmp(all.text, "<svg ", 5), 0);
    cr_assert_not_null(strstr(all.text, "</svg>\n"));
    cr_assert_eq(count(all.text, "<title>"), plan->n_places);
    cr_assert_not_null(
        strstr(all.text, "<title>x&lt;&amp;&quot;&gt;: 192 bytes at 128, steps 0 to 2"));
    cr_assert_null(strstr(all.text, "x<"));
    cr_assert_not_null(strstr(all.text, "peak: step 1, layer"));
    cr_assert_not_null(strstr(all.text, "2 x 3 samples"));
    cr_assert_eq(count(all.text, "nan"), 0);
    dunlin__plan_destroy(plan);
    test_graph_free(graph);
}
