/*
 * test_expected_plans.c - plans of ready-made networks are no worse than those on record: predicted
 * time and bytes at a row of budgets, for each instruction set, one thread. Rows of instruction
 * sets that this machine lacks are not looked at, and of the others one in three; DUNLIN_ZOO=full:
 * each. DUNLIN_EXPECTED_PLANS_OUT names a file: the table as it is now is written there, with the
 * rows that this machine cannot make as they were.
 */
#include "step/zoo_step.h"

#include <mem/plan.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE 256
#define EVERY 3
#define HEADER "isa,network,batch,budget_bytes,predicted_ns,arena_bytes\n"

typedef struct {
    char isa[16], network[32];
    uint64_t batch, budget_bytes, cost_ns, arena_bytes;
} row;

static bool parse(const char *line, row *out)
{
    return sscanf(line, "%15[^,],%31[^,],%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64, out->isa,
                  out->network, &out->batch, &out->budget_bytes, &out->cost_ns,
                  &out->arena_bytes) == 6;
}

/* The network that is open now; rows of one stand together. */
typedef struct {
    char isa[16], network[32];
    zoo_step step;
} open_step;

static void open_for(open_step *at, const row *wanted)
{
    dunlin_error error = {0};
    if (strcmp(at->isa, wanted->isa) == 0 && strcmp(at->network, wanted->network) == 0) {
        return;
    }
    if (at->network[0] != '\0') {
        zoo_step_close(&at->step);
    }
    memcpy(at->isa, wanted->isa, sizeof at->isa);
    memcpy(at->network, wanted->network, sizeof at->network);
    cr_assert_eq(zoo_step_open_for(wanted->network, wanted->isa, &at->step, &error), DUNLIN_OK,
                 "%s: %s", wanted->network, error.text);
}

/* Plans for a row; its time and bytes as they are now. */
static row plan_row(open_step *at, const row *wanted)
{
    const dunlin_plan_options options = {.batch = wanted->batch,
                                         .budget_bytes = wanted->budget_bytes};
    dunlin_error error = {0};
    dunlin_plan *plan = NULL;
    row made = *wanted;
    open_for(at, wanted);
    cr_assert_eq(dunlin__plan_create(&at->step.lowered.graph, &options, &plan, &error), DUNLIN_OK,
                 "%s, %s, %" PRIu64 " bytes: %s", wanted->isa, wanted->network,
                 wanted->budget_bytes, error.text);
    made.cost_ns = plan->cost_ns;
    made.arena_bytes = plan->arena_bytes;
    dunlin__plan_destroy(plan);
    return made;
}

static bool is_worse(const row *made, const row *before)
{
    return made->cost_ns > before->cost_ns ||
           (made->cost_ns == before->cost_ns && made->arena_bytes > before->arena_bytes);
}

static void write_row(FILE *out, const row *at)
{
    if (out != NULL) {
        (void)fprintf(out, "%s,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", at->isa,
                      at->network, at->batch, at->budget_bytes, at->cost_ns, at->arena_bytes);
    }
}

Test(expected_plans, none_is_worse, .timeout = 900)
{
    const char *renewed = getenv("DUNLIN_EXPECTED_PLANS_OUT");
    const char *zoo = getenv("DUNLIN_ZOO");
    const bool is_full = renewed != NULL || (zoo != NULL && strcmp(zoo, "full") == 0);
    char line[MAX_LINE];
    open_step at = {.network = ""};
    size_t n_checked = 0;
    size_t n_better = 0;
    size_t n_skipped = 0;
    size_t n_left = 0;
    FILE *table = fopen(DUNLIN_EXPECTED_PLANS, "r");
    FILE *out = renewed == NULL ? NULL : fopen(renewed, "w");
    cr_assert_not_null(table, "%s", DUNLIN_EXPECTED_PLANS);
    cr_assert(renewed == NULL || out != NULL);
    cr_assert(fgets(line, sizeof line, table) != NULL && strcmp(line, HEADER) == 0);
    if (out != NULL) {
        (void)fputs(line, out);
    }
    while (fgets(line, sizeof line, table) != NULL) {
        row before;
        cr_assert(parse(line, &before), "not a row: %s", line);
        if (dunlin__kernels_select(before.isa) == NULL) {
            n_skipped++;
            write_row(out, &before);
            continue;
        }
        if (!is_full && (n_checked + n_left) % EVERY != 0) {
            n_left++;
            continue;
        }
        const row made = plan_row(&at, &before);
        cr_expect(out != NULL || !is_worse(&made, &before),
                  "%s, %s, batch %" PRIu64 ", %" PRIu64 " bytes: %" PRIu64 " ns in %" PRIu64
                  " bytes, was %" PRIu64 " ns in %" PRIu64,
                  made.isa, made.network, made.batch, made.budget_bytes, made.cost_ns,
                  made.arena_bytes, before.cost_ns, before.arena_bytes);
        n_better += is_worse(&before, &made);
        n_checked++;
        write_row(out, &made);
    }
    (void)printf("%zu plans as on record or better (%zu better: renew the table), %zu left to the "
                 "long tests, %zu skipped: instruction sets that this machine lacks\n",
                 n_checked, n_better, n_left, n_skipped);
    if (at.network[0] != '\0') {
        zoo_step_close(&at.step);
    }
    cr_assert(out == NULL || fclose(out) == 0);
    (void)fclose(table);
}
