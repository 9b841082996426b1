/*
 * bench_plan.c - how long planning takes, and how close packing comes to its bound, on random
 * training steps. One line of CSV a size; with a file name, the last plan is drawn there as SVG.
 */
#include "graphs.h"

#include <mem/plan.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static void write_piece(void *ctx, const char *text)
{
    (void)fputs(text, ctx);
}

static int report(const test_graph *graph, const char *what, const dunlin_plan_options *options,
                  dunlin_plan **out_plan)
{
    dunlin_error error = {0};
    double start_ms = now_ms();
    if (dunlin__plan_create(&graph->graph, options, out_plan, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const dunlin_plan *plan = *out_plan;
    (void)printf("%" PRIu32 ",%" PRIu32 ",%s,%.2f,%" PRIu64 ",%.4f,%" PRIu64 ",%s\n",
                 graph->graph.n_ops, plan->n_places, what, now_ms() - start_ms, plan->arena_bytes,
                 (double)plan->pool_bytes / (double)plan->pool_lower_bound_bytes,
                 plan->loops[plan->n_loops > 1 ? plan->n_loops - 2 : 0].slice_samples,
                 plan->packing);
    return 0;
}

static int run(uint32_t n_layers, FILE *svg)
{
    uint64_t state = n_layers;
    test_graph *graph = test_graph_new();
    test_random_net(graph, &(test_net_options){.n_layers = n_layers, .max_sample_bytes = 1 << 16},
                    &state);
    dunlin_plan_options options = {.batch = 32};
    dunlin_plan *plan = NULL;
    uint64_t least = 0;
    int failed = report(graph, "whole", &options, &plan);
    uint64_t most = failed != 0 ? 0 : plan->arena_bytes;
    dunlin__plan_destroy(plan);
    plan = NULL;
    failed |= dunlin__plan_least_bytes(&graph->graph, &options, &least, NULL) != DUNLIN_OK;
    options.budget_bytes = least + (most - least) / 3;
    if (failed == 0) {
        failed = report(graph, "third", &options, &plan);
    }
    if (failed == 0 && svg != NULL) {
        dunlin__plan_draw(&graph->graph, plan, write_piece, svg);
    }
    dunlin__plan_destroy(plan);
    test_graph_free(graph);
    return failed;
}

int main(int argc, char **argv)
{
    static const uint32_t layers[] = {1000, 480, 60, 20};
    int failed = 0;
    (void)printf("ops,places,budget,ms,arena_bytes,height_over_bound,slice,packing\n");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        bool is_last = i + 1 == sizeof layers / sizeof layers[0];
        FILE *svg = is_last && argc > 1 ? fopen(argv[1], "w") : NULL;
        failed |= run(layers[i], svg);
        if (svg != NULL) {
            failed |= fclose(svg) != 0;
        }
    }
    return failed;
}
