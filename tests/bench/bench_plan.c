/*
 * bench_plan.c - how long planning takes, and how close packing comes to its bound: the ready-made
 * networks at a tight and a middle budget, and random training steps. One line of CSV a plan; the
 * time is the median of the runs, of the processor, without measuring costs. With --budgets: the
 * whole curve of one network, from the least budget to the one that needs nothing, and how many of
 * its points are slower than one with less memory.
 */
#define _GNU_SOURCE

#include "common/args.h"
#include "planner/graphs.h"
#include "step/zoo_step.h"

#include <mem/draw.h>
#include <mem/plan.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_RUNS 64
#define MUCH_SLOWER 1.05 /* than with less memory */

static const program_info program = {
    .name = "bench_plan",
    .purpose = "times the planner on the ready-made networks and on random steps",
    .examples = "  bench_plan --model mobilenet_v2\n  bench_plan --layers 1000 --draw plan.svg\n"
                "  bench_plan --model mobilenet_v2 --budgets 43\n"
                "  bench_plan --model mobilenet_v2 --batch 1368 --budget 5500MB\n",
};

typedef struct flags {
    const char *model, *drawing;
    int64_t batch, repeat, layers, n_budgets;
    uint64_t budget;
} flags;

#define AT(member) offsetof(flags, member)
static const arg table[] = {
    {"--model", ARG_TEXT, AT(model), "NAME", "this network alone", 0, 0, 0},
    {"--layers", ARG_I64, AT(layers), "N", "a random step of so many layers alone", 1, 1e5, 0},
    {"--batch", ARG_I64, AT(batch), "N", "samples (32)", 1, 1e6, 0},
    {"--repeat", ARG_I64, AT(repeat), "N", "runs of each (5)", 1, MAX_RUNS, 0},
    {"--budget", ARG_BYTES, AT(budget), "BYTES", "of the arena; this one alone", 0, 0, 0},
    {"--budgets", ARG_I64, AT(n_budgets), "N", "so many, and how many are out of order", 2, 1e5, 0},
    {"--draw", ARG_TEXT, AT(drawing), "FILE", "the last plan, as SVG", 0, 0, 0},
};

static double now_ms(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static int compare_times(const void *a, const void *b)
{
    const double first = *(const double *)a;
    const double second = *(const double *)b;
    return (first > second) - (first < second);
}

static void write_piece(void *ctx, const char *text)
{
    (void)fputs(text, ctx);
}

static int draw(const flags *given, const dunlin_mem_graph *graph, const dunlin_plan *plan)
{
    if (given->drawing == NULL) {
        return EXIT_OK;
    }
    FILE *svg = fopen(given->drawing, "w");
    if (svg == NULL) {
        return program_fail(&program, "%s: cannot write there", given->drawing);
    }
    dunlin__plan_draw(graph, plan, NULL, write_piece, svg);
    return fclose(svg) == 0 ? EXIT_OK : EXIT_FAILED;
}

/* The figures of a plan. */
typedef struct {
    uint64_t arena_bytes;
    uint64_t cost_ns;
    double ms;
} made;

/* Plans so often; prints a line. */
static int report(const flags *given, const char *name, const char *what,
                  const dunlin_mem_graph *graph, const dunlin_plan_options *options, made *out_made)
{
    double ms[MAX_RUNS];
    dunlin_plan *plan = NULL;
    dunlin_error error = {0};
    for (int64_t r = 0; r < given->repeat; r++) {
        dunlin__plan_destroy(plan);
        const double start_ms = now_ms();
        if (dunlin__plan_create(graph, options, &plan, &error) != DUNLIN_OK) {
            return program_fail(&program, "%s: %s", name, error.text);
        }
        ms[r] = now_ms() - start_ms;
    }
    qsort(ms, (size_t)given->repeat, sizeof ms[0], compare_times);
    (void)printf("%s,%" PRIu64 ",%s,%" PRIu32 ",%" PRIu32 ",%.2f,%" PRIu64 ",%.4f,%.3f,%" PRIu32
                 ",%" PRIu64 ",%s\n",
                 name, options->batch, what, graph->n_ops, plan->n_places, ms[given->repeat / 2],
                 plan->arena_bytes, (double)plan->pool_bytes / (double)plan->pool_lower_bound_bytes,
                 (double)plan->cost_ns * 1e-6, plan->n_recompute_ops,
                 plan->loops[plan->n_loops > 1 ? plan->n_loops - 2 : 0].slice_samples,
                 plan->packing);
    (void)fflush(stdout);
    *out_made = (made){
        .arena_bytes = plan->arena_bytes, .cost_ns = plan->cost_ns, .ms = ms[given->repeat / 2]};
    const int failed = draw(given, graph, plan);
    dunlin__plan_destroy(plan);
    return failed;
}

/* Budgets from the least to the one that needs nothing, each larger by the same factor. */
static int run_curve(const flags *given, const char *name, const dunlin_mem_graph *graph)
{
    dunlin_plan_options options = {.batch = (uint64_t)given->batch};
    uint64_t least = 0;
    made whole;
    made at;
    uint64_t fastest_ns = UINT64_MAX;
    double slowest_ms = 0.0;
    double worst = 1.0;
    int64_t n_slower = 0;
    int64_t n_much_slower = 0;
    if (report(given, name, "whole", graph, &options, &whole) != EXIT_OK ||
        dunlin__plan_least_bytes(graph, &options, &least, NULL) != DUNLIN_OK) {
        return EXIT_FAILED;
    }
    for (int64_t i = 0; i < given->n_budgets; i++) {
        const double share = (double)i / (double)(given->n_budgets - 1);
        const double bytes = (double)least * pow((double)whole.arena_bytes / (double)least, share);
        options.budget_bytes = bytes > (double)least ? (uint64_t)bytes : least;
        char what[32];
        (void)snprintf(what, sizeof what, "%" PRIu64, options.budget_bytes);
        if (report(given, name, what, graph, &options, &at) != EXIT_OK) {
            return EXIT_FAILED;
        }
        const double ratio = (double)at.cost_ns / (double)fastest_ns;
        n_slower += ratio > 1.0;
        n_much_slower += ratio > MUCH_SLOWER;
        worst = ratio > worst ? ratio : worst;
        fastest_ns = at.cost_ns < fastest_ns ? at.cost_ns : fastest_ns;
        slowest_ms = at.ms > slowest_ms ? at.ms : slowest_ms;
    }
    (void)printf("%s: %" PRId64 " of %" PRId64 " budgets are slower than a smaller one, %" PRId64
                 " by more than 5 %%, the worst %.4f times; "
                 "the longest planning took %.1f ms\n",
                 name, n_slower, given->n_budgets, n_much_slower, worst, slowest_ms);
    return EXIT_OK;
}

static int run(const flags *given, const char *name, const dunlin_mem_graph *graph)
{
    dunlin_plan_options options = {.batch = (uint64_t)given->batch};
    uint64_t least = 0;
    made whole;
    made unused;
    if (given->n_budgets != 0) {
        return run_curve(given, name, graph);
    }
    if (given->budget != 0) {
        options.budget_bytes = given->budget;
        return report(given, name, "given", graph, &options, &unused);
    }
    if (report(given, name, "whole", graph, &options, &whole) != EXIT_OK ||
        dunlin__plan_least_bytes(graph, &options, &least, NULL) != DUNLIN_OK) {
        return EXIT_FAILED;
    }
    options.budget_bytes = least + (whole.arena_bytes - least) / 2;
    int failed = report(given, name, "middle", graph, &options, &unused);
    options.budget_bytes = least + (whole.arena_bytes - least) / 10;
    failed |= report(given, name, "tight", graph, &options, &unused);
    return failed;
}

static int run_random(const flags *given, uint32_t n_layers)
{
    uint64_t state = n_layers;
    test_graph *graph = test_graph_new();
    test_random_net(graph, &(test_net_options){.n_layers = n_layers, .max_sample_bytes = 1 << 16},
                    &state);
    const int failed = run(given, "random", &graph->graph);
    test_graph_free(graph);
    return failed;
}

static int run_model(const flags *given, const char *name)
{
    zoo_step net;
    dunlin_error error = {0};
    int failed = EXIT_FAILED;
    if (zoo_step_open(name, &net, &error) == DUNLIN_OK) {
        failed = run(given, name, &net.lowered.graph);
    } else {
        (void)program_fail(&program, "%s: %s", name, error.text);
    }
    zoo_step_close(&net);
    return failed;
}

int main(int argc, char **argv)
{
    static const uint32_t layers[] = {20, 60, 480, 1000};
    flags given = {.batch = 32, .repeat = 5};
    const args_result parsed = args_parse(&program, table, sizeof table / sizeof table[0], argc,
                                          (const char *const *)argv, &given);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    int failed = EXIT_OK;
    (void)printf(
        "step,batch,budget,ops,places,ms,arena_bytes,height_over_bound,predicted_ms,redone,"
        "slice,packing\n");
    if (given.model != NULL || given.layers != 0) {
        failed |= given.model != NULL ? run_model(&given, given.model) : EXIT_OK;
        failed |= given.layers != 0 ? run_random(&given, (uint32_t)given.layers) : EXIT_OK;
        return failed;
    }
    for (int32_t i = 0; dunlin_zoo_name(i) != NULL; i++) {
        failed |= run_model(&given, dunlin_zoo_name(i));
    }
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        failed |= run_random(&given, layers[i]);
    }
    return failed;
}
