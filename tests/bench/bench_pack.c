/*
 * bench_pack.c - how close packing comes to its bound: the plans of all ready-made networks at
 * several batches and budgets, or with --instances the problems in a folder. One line of CSV a
 * problem: each published order by itself, the greedy portfolio, the search.
 */
#define _GNU_SOURCE

#include "common/args.h"
#include "pack_cases.h"
#include "planner/pack_orders.h"
#include "step/zoo_step.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FILES 4096

static const program_info program = {
    .name = "bench_pack",
    .purpose = "packs the plans of the ready-made networks, or instances from files",
    .examples = "  bench_pack --moves 100000\n  bench_pack --instances minimalloc/challenging\n",
};

typedef struct flags {
    const char *instances, *model, *dump;
    int64_t moves, batch, repeat;
    bool is_exact;
} flags;

#define AT(member) offsetof(flags, member)
static const arg table[] = {
    {"--instances", ARG_TEXT, AT(instances), "DIR", "its *.csv instead of networks", 0, 0, 0},
    {"--dump", ARG_TEXT, AT(dump), "DIR", "writes the networks' problems there", 0, 0, 0},
    {"--model", ARG_TEXT, AT(model), "NAME", "this network alone", 0, 0, 0},
    {"--batch", ARG_I64, AT(batch), "N", "this batch alone", 1, 1e6, 0},
    {"--moves", ARG_I64, AT(moves), "N", "limit of the search (40000)", 0, 1e12, 0},
    {"--repeat", ARG_I64, AT(repeat), "N", "runs of which the fastest is printed (3)", 1, 1e6, 0},
    {"--capacity", ARG_FLAG, AT(is_exact), NULL,
     "stop at the instance's capacity, not at its bound", 0, 0, 0},
};

static double now_ms(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

typedef struct totals {
    double worst;
    int n, n_above; /* problems; those more than 1 % above their bound */
    int n_losses;   /* to a single order */
    double worst_plan;
    int n_plans_above;  /* plans as they are, more than 1 % above their bound */
    int n_plans_losing; /* ... above a single order, which is always within that */
} totals;

static uint64_t bound_of(const pack_case *given)
{
    uint64_t *sums = calloc((size_t)given->n_steps + 1, sizeof *sums);
    if (sums == NULL) {
        abort();
    }
    uint32_t peak = 0;
    uint64_t bound =
        dunlin__pack_lower_bound(given->blocks, given->n_blocks, sums, given->n_steps, &peak);
    free(sums);
    return bound;
}

/* The fastest of several runs, each with a packer of its own. */
static uint64_t time_within(const flags *given, const pack_case *problem, uint64_t bound,
                            uint64_t max_moves, const char **out_name, double *out_ms,
                            uint64_t *out_moves)
{
    uint64_t height = 0;
    const uint64_t target = given->is_exact ? problem->capacity_bytes : 0;
    *out_ms = 1e300;
    for (int64_t r = 0; r < given->repeat; r++) {
        dunlin_alloc_counter counter;
        dunlin_alloc_counter_init(&counter, NULL);
        dunlin_packer packer;
        if (dunlin__packer_open(problem->n_blocks, &counter.hooks, &packer, NULL) != DUNLIN_OK) {
            abort();
        }
        double start_ms = now_ms();
        const dunlin_pack_goal goal = {
            .lower_bound_bytes = bound, .target_bytes = target, .max_moves = max_moves};
        height = dunlin__pack_within(&packer, problem->blocks, problem->n_blocks, &goal, out_name);
        double ms = now_ms() - start_ms;
        *out_ms = ms < *out_ms ? ms : *out_ms;
        *out_moves = packer.n_moves;
        dunlin__packer_close(&packer);
    }
    return height;
}

static void report(const flags *given, const pack_case *problem, totals *all)
{
    const uint64_t bound = bound_of(problem);
    const double scale = bound == 0 ? 1.0 : 1.0 / (double)bound;
    uint64_t lowest_single = UINT64_MAX;
    (void)printf("%s,%" PRIu32 ",%" PRIu64, problem->name, problem->n_blocks, bound);
    for (uint32_t o = 0; o < PACK_N_ORDERS; o++) {
        uint64_t height = pack_by_order(o, problem->blocks, problem->n_blocks);
        lowest_single = height < lowest_single ? height : lowest_single;
        (void)printf(",%.4f", (double)height * scale);
    }
    const char *name = NULL;
    double ms = 0.0;
    uint64_t n_moves = 0;
    uint64_t greedy = time_within(given, problem, bound, 0, &name, &ms, &n_moves);
    (void)printf(",%.4f,%.3f", (double)greedy * scale, ms);
    uint64_t searched =
        time_within(given, problem, bound, (uint64_t)given->moves, &name, &ms, &n_moves);
    if (!pack_is_apart(problem->blocks, problem->n_blocks, searched)) {
        (void)fprintf(stderr, "bench_pack: %s: blocks overlap\n", problem->name);
        exit(EXIT_FAILED);
    }
    (void)printf(",%.4f,%.3f,%" PRIu64 ",%" PRIu64 ",%.4f,%s\n", (double)searched * scale, ms,
                 n_moves, searched, (double)problem->shipped_bytes * scale, name);
    (void)fflush(stdout);
    const double ratio = (double)searched * scale;
    all->worst = ratio > all->worst ? ratio : all->worst;
    all->n++;
    all->n_above += ratio > 1.01;
    all->n_losses += searched > lowest_single;
    const double shipped = (double)problem->shipped_bytes * scale;
    all->worst_plan = shipped > all->worst_plan ? shipped : all->worst_plan;
    all->n_plans_above += shipped > 1.01;
    all->n_plans_losing += problem->shipped_bytes > lowest_single;
}

/* --- networks --- */

static int plan_and_report(const flags *given, const dunlin_mem_graph *graph,
                           const dunlin_plan_options *options, const char *name, totals *all)
{
    dunlin_plan *plan = NULL;
    dunlin_error error = {0};
    pack_case problem;
    if (dunlin__plan_create(graph, options, &plan, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "bench_pack: %s: %s\n", name, error.text);
        return EXIT_FAILED;
    }
    if (!pack_case_from_plan(graph, plan, &problem)) {
        abort();
    }
    (void)snprintf(problem.name, sizeof problem.name, "%s x%" PRIu64 " %s%s", name,
                   plan->loops[plan->n_loops > 1 ? 1 : 0].slice_samples,
                   plan->n_loops > 1 ? "sliced" : "whole",
                   plan->n_recompute_ops > 0 ? " recomputed" : "");
    dunlin__plan_destroy(plan);
    int failed = EXIT_OK;
    if (given->dump != NULL && !pack_case_write(&problem, given->dump)) {
        (void)fprintf(stderr, "bench_pack: %s: cannot write there\n", given->dump);
        failed = EXIT_FAILED;
    }
    report(given, &problem, all);
    pack_case_free(&problem);
    return failed;
}

#define N_BUDGETS 6

static int report_batch(const flags *given, const char *model, const dunlin_mem_graph *graph,
                        uint64_t batch, totals *all)
{
    dunlin_plan_options options = {.batch = batch};
    dunlin_plan *plan = NULL;
    uint64_t least = 0;
    if (dunlin__plan_create(graph, &options, &plan, NULL) != DUNLIN_OK ||
        dunlin__plan_least_bytes(graph, &options, &least, NULL) != DUNLIN_OK) {
        return EXIT_FAILED;
    }
    const uint64_t most = plan->arena_bytes;
    dunlin__plan_destroy(plan);
    for (uint64_t i = 0; i <= N_BUDGETS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s b%" PRIu64 " %" PRIu64 "/6", model, batch, i);
        options.budget_bytes = least + (most - least) / N_BUDGETS * i;
        if (plan_and_report(given, graph, &options, name, all) != EXIT_OK) {
            return EXIT_FAILED;
        }
        if (least == most) {
            break;
        }
    }
    return EXIT_OK;
}

static int report_model(const flags *given, const char *name, totals *all)
{
    static const uint64_t batches[] = {1, 8, 32, 128};
    zoo_step net;
    dunlin_error error = {0};
    int failed = EXIT_FAILED;
    if (zoo_step_open(name, &net, &error) == DUNLIN_OK) {
        failed = EXIT_OK;
        for (size_t i = 0; i < sizeof batches / sizeof batches[0] && failed == EXIT_OK; i++) {
            if (given->batch == 0 || (uint64_t)given->batch == batches[i]) {
                failed = report_batch(given, name, &net.lowered.graph, batches[i], all);
            }
        }
    } else {
        (void)fprintf(stderr, "bench_pack: %s: %s\n", name, error.text);
    }
    zoo_step_close(&net);
    return failed;
}

/* --- files --- */

static int is_csv(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot != NULL && strcmp(dot, ".csv") == 0;
}

static int report_folder(const flags *given, totals *all)
{
    struct dirent **entries = NULL;
    int n = scandir(given->instances, &entries, is_csv, alphasort);
    int failed = n > 0 ? EXIT_OK : EXIT_FAILED;
    for (int i = 0; i < n; i++) {
        char path[4096];
        pack_case problem;
        (void)snprintf(path, sizeof path, "%s/%s", given->instances, entries[i]->d_name);
        if (pack_case_read(path, &problem)) {
            report(given, &problem, all);
            pack_case_free(&problem);
        } else {
            (void)fprintf(stderr, "bench_pack: %s: not an instance\n", path);
            failed = EXIT_FAILED;
        }
        free(entries[i]);
    }
    free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    flags given = {.moves = 40000, .repeat = 3};
    const args_result parsed = args_parse(&program, table, sizeof table / sizeof table[0], argc,
                                          (const char *const *)argv, &given);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    totals all = {0};
    int failed = EXIT_OK;
    (void)printf("problem,blocks,max_live");
    for (uint32_t o = 0; o < PACK_N_ORDERS; o++) {
        (void)printf(",%s", pack_order_name(o));
    }
    (void)printf(",portfolio,ms,search,ms,moves,bytes,plan,packing\n");
    if (given.instances != NULL) {
        failed = report_folder(&given, &all);
    } else if (given.model != NULL) {
        failed = report_model(&given, given.model, &all);
    } else {
        for (int32_t i = 0; dunlin_zoo_name(i) != NULL; i++) {
            failed |= report_model(&given, dunlin_zoo_name(i), &all);
        }
    }
    (void)printf("# %d problems: worst %.4f, %d above 1.01, %d above a published order; "
                 "plans as they are: worst %.4f, %d above 1.01, %d above a published order\n",
                 all.n, all.worst, all.n_above, all.n_losses, all.worst_plan, all.n_plans_above,
                 all.n_plans_losing);
    return failed;
}
