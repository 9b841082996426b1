/*
 * sage.c - the named study of Sage (Gim and Ko, MobiSys 2022): its parts, and its figures beside
 * ours.
 *
 * The paper's numbers: its abstract, which says "more than 20 times" of memory; of its curves no
 * number is known here, so that a figure of theirs has a direction alone.
 */
#include "named.h"

#include <math.h>
#include <string.h>

#define NAME "sage"
#define TEXT_BYTES 512
#define NETWORKS "mobilenet_v2,resnet50,densenet121,bert_small"
#define QUICK_NETWORKS "mobilenet_v2,resnet50,bert_small"
#define CURVES "none,pool,recompute,sublinear,sgc,microbatch,sage,auto"
#define NO_NUMBER ((double)NAN)

/* Names of techniques, as the rows of hybrid have them; ends with NULL. */
typedef const char *const *technique_list;
static const char *const mixed[] = {"both", "sage", NULL};
static const char *const checkpointing[] = {"checkpointing", NULL};
static const char *const accumulation[] = {"accumulation", NULL};
static const char *const single[] = {"accumulation", "checkpointing", NULL};
static const char *const theirs[] = {"accumulation", "checkpointing", "both", "sage", NULL};
static const char *const own[] = {"auto", NULL};

static bool is_one_of(const json_t *row, technique_list list)
{
    bool is_found = false;
    for (; *list != NULL; list++) {
        is_found = is_found || claim_is(row, "technique", *list);
    }
    return is_found;
}

/* What rows of one case have in common, beside the network. All end with NULL. */
static const char *const of_step[] = {"batch", NULL};
static const char *const of_budget[] = {"batch", "budget_bytes", NULL};
static const char *const of_way[] = {"batch", "slice_asked", NULL};

static bool is_like(const json_t *row, const json_t *like, const char *const *columns)
{
    const char *model = claim_text(like, "model");
    bool is_same = model != NULL && claim_is(row, "model", model);
    for (; *columns != NULL; columns++) {
        is_same =
            is_same && !(fabs(claim_number(row, *columns) - claim_number(like, *columns)) > 0.0);
    }
    return is_same;
}

/* Whether no row before it is of the same case; `is_way`: and of the same technique. */
static bool is_first(const json_t *rows, size_t at, const char *const *columns, bool is_way)
{
    const json_t *like = json_array_get(rows, at);
    for (size_t i = 0; i < at; i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_like(row, like, columns) &&
            (!is_way || claim_is(row, "technique", claim_text(like, "technique")))) {
            return false;
        }
    }
    return true;
}

/* Of a case the row with the least bytes, or the fastest plan of those that fit; NULL: none. */
static const json_t *lowest(const json_t *rows, const json_t *like, technique_list list,
                            bool is_plan)
{
    const char *const *columns = is_plan ? of_budget : of_step;
    const char *column = is_plan ? "predicted_ms" : "needed_bytes";
    const json_t *best = NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_like(row, like, columns) && is_one_of(row, list) &&
            (!is_plan || claim_number(row, "fits") > 0.0) &&
            (best == NULL || claim_number(row, column) < claim_number(best, column))) {
            best = row;
        }
    }
    return best;
}

static void name_case(const json_t *row, const char *more, char out[CLAIM_NAME_BYTES])
{
    (void)snprintf(out, CLAIM_NAME_BYTES, "%s, batch %.0f, %s", claim_text(row, "model"),
                   claim_number(row, "batch"), more);
}

/* What differs from the paper's phones. */
static void tell_differs(const named_tables *of, const json_t *rows, const char *more,
                         char out[TEXT_BYTES])
{
    (void)snprintf(out, TEXT_BYTES,
                   "%lld thread(s) of this machine's processor, not a phone's GPU; batch ",
                   (long long)of->flags->n_threads);
    claim_list(rows, "batch", out, TEXT_BYTES);
    (void)strncat(out, "; images of ", TEXT_BYTES - strlen(out) - 1);
    claim_list(rows, "image", out, TEXT_BYTES);
    (void)strncat(out, " pixels (0: tokens)", TEXT_BYTES - strlen(out) - 1);
    (void)strncat(out, more, TEXT_BYTES - strlen(out) - 1);
}

/* --- memory --- */

/* How much less than the step with nothing shared; `is_bare`: without what no plan makes smaller.
 */
static void add_savings(const json_t *rows, technique_list list, bool is_bare, claim_sum *to)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double rest = is_bare ? claim_number(row, "state_bytes") : 0.0;
        char name[CLAIM_NAME_BYTES];
        if (is_one_of(row, list) && is_first(rows, i, of_way, true)) {
            name_case(row, claim_text(row, "technique"), name);
            claim_add(to,
                      (claim_number(row, "none_bytes") - rest) /
                          (claim_number(row, "needed_bytes") - rest),
                      NO_NUMBER, NO_NUMBER, name);
        }
    }
}

static void add_memory_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        technique_list list;
        bool is_bare;
        const char *differs;
    } all[] = {
        {{"least memory of a step beside a trainer that shares none, by Sage's ways", "abstract",
          "hybrid", "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 20.0, 1.0},
         theirs,
         false,
         "; all bytes of the trainer, weights and the optimiser's state among them"},
        {{"least memory of a step beside a trainer that shares none, by Dunlin's exact search",
          "abstract", "hybrid", "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 20.0, 1.0},
         own,
         false,
         "; all bytes of the trainer, weights and the optimiser's state among them"},
        {{"least memory of activations, gradients and workspace, beside the same trainer, by "
          "Sage's ways",
          "abstract", "hybrid", "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 20.0, 1.0},
         theirs,
         true,
         "; without weights and the optimiser's state, which no plan makes smaller"},
        {{"least memory of activations, gradients and workspace, by Dunlin's exact search",
          "abstract", "hybrid", "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 20.0, 1.0},
         own,
         true,
         "; without weights and the optimiser's state, which no plan makes smaller"},
    };
    const json_t *rows = named_rows(of, "hybrid", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[TEXT_BYTES];
        claim_sum sum = claim_begin(&all[i].what);
        add_savings(rows, all[i].list, all[i].is_bare, &sum);
        tell_differs(of, rows, all[i].differs, differs);
        claims_add_row(out, NAME, &all[i].what, &sum, NULL, differs);
    }
}

/* The least bytes of some ways over those of others, for each network and batch. */
static void add_least(const json_t *rows, technique_list list, technique_list beside, claim_sum *to)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *like = json_array_get(rows, i);
        const json_t *less = lowest(rows, like, list, false);
        const json_t *more = lowest(rows, like, beside, false);
        if (less != NULL && more != NULL && is_first(rows, i, of_step, false)) {
            char name[CLAIM_NAME_BYTES];
            name_case(like, claim_text(less, "technique"), name);
            claim_add(to, claim_number(more, "needed_bytes") / claim_number(less, "needed_bytes"),
                      NO_NUMBER, NO_NUMBER, name);
        }
    }
}

/* --- speed --- */

/* Which ways are compared, in every budget where both have a plan, and not the same one. */
static void add_speeds(const json_t *rows, technique_list list, technique_list beside,
                       claim_sum *planned, claim_sum *measured)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *like = json_array_get(rows, i);
        const json_t *ours = lowest(rows, like, list, true);
        const json_t *other = lowest(rows, like, beside, true);
        if (ours == NULL || other == NULL || !is_first(rows, i, of_budget, false) ||
            !(fabs(claim_number(ours, "predicted_ms") - claim_number(other, "predicted_ms")) >
              0.0)) {
            continue;
        }
        char share[48];
        char name[CLAIM_NAME_BYTES];
        (void)snprintf(share, sizeof share, "%.0f %% of the ideal's memory",
                       100.0 * claim_number(like, "budget_share"));
        name_case(like, share, name);
        claim_add(planned, claim_number(other, "predicted_ms") / claim_number(ours, "predicted_ms"),
                  NO_NUMBER, NO_NUMBER, name);
        claim_add(measured, claim_number(other, "time_cpu_ms") / claim_number(ours, "time_cpu_ms"),
                  claim_number(other, "time_cpu_low_ms") / claim_number(ours, "time_cpu_high_ms"),
                  claim_number(other, "time_cpu_high_ms") / claim_number(ours, "time_cpu_low_ms"),
                  name);
    }
}

#define PLANS "; budgets in which the two have different plans"
#define GHOSTS "; with batch norm slices have ghost statistics"

static void add_speed_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        technique_list list, beside;
        const char *differs;
    } all[] = {
        {{"speed of accumulation with checkpointing, beside checkpointing alone in the same budget",
          "figure; no number known", "hybrid", "x", CLAIM_AT_LEAST, CLAIM_EACH, NO_NUMBER, 1.0},
         mixed,
         checkpointing,
         PLANS GHOSTS},
        {{"speed of accumulation with checkpointing, beside accumulation alone in the same budget",
          "figure; no number known", "hybrid", "x", CLAIM_AT_LEAST, CLAIM_EACH, NO_NUMBER, 1.0},
         mixed,
         accumulation,
         PLANS GHOSTS},
        {{"speed of Dunlin's exact search beside the fastest of Sage's ways in the same budget",
          "no figure of the paper", "hybrid", "x", CLAIM_AT_LEAST, CLAIM_EACH, NO_NUMBER, 1.0},
         own,
         theirs,
         PLANS ", even where Sage's has ghost statistics"},
    };
    static const claim least = {
        "least memory of accumulation with checkpointing, beside the better one alone",
        "figure; no number known",
        "hybrid",
        "x",
        CLAIM_AT_LEAST,
        CLAIM_EACH,
        NO_NUMBER,
        1.0};
    const json_t *rows = named_rows(of, "hybrid", NULL);
    char differs[TEXT_BYTES];
    claim_sum sum = claim_begin(&least);
    add_least(rows, mixed, single, &sum);
    tell_differs(of, rows, GHOSTS, differs);
    claims_add_row(out, NAME, &least, &sum, NULL, differs);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        claim_sum planned = claim_begin(&all[i].what);
        claim_sum measured = claim_begin(&all[i].what);
        add_speeds(rows, all[i].list, all[i].beside, &planned, &measured);
        tell_differs(of, rows, all[i].differs, differs);
        claims_add_row(out, NAME, &all[i].what, &planned, &measured, differs);
    }
}

/* --- budgets that change, energy --- */

static void add_change_row(const named_tables *of, json_t *out)
{
    static const claim what = {"work of a step that a changed budget leaves, against a restart",
                               "abstract: adapts to the budget at run time",
                               "adaptation",
                               "%",
                               CLAIM_AT_LEAST,
                               CLAIM_EACH,
                               NO_NUMBER,
                               0.0};
    const json_t *rows = named_rows(of, "adaptation", NULL);
    char differs[TEXT_BYTES];
    claim_sum planned = claim_begin(&what);
    claim_sum measured = claim_begin(&what);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (claim_number(row, "step") > 0.0) {
            const char *name = claim_text(row, "scenario");
            claim_add(&planned, 100.0 * claim_number(row, "saved_share"), NO_NUMBER, NO_NUMBER,
                      name);
            claim_add(&measured, 100.0 * claim_number(row, "time_saved_share"), NO_NUMBER,
                      NO_NUMBER, name);
        }
    }
    tell_differs(of, rows, "; budgets changed in the middle of a step", differs);
    claims_add_row(out, NAME, &what, &planned, &measured, differs);
}

static void add_energy_row(const named_tables *of, json_t *out)
{
    static const claim what = {"energy of a step saved beside checkpointing alone",
                               "evaluated; no number known",
                               "hybrid",
                               "%",
                               CLAIM_AT_LEAST,
                               CLAIM_EACH,
                               NO_NUMBER,
                               0.0};
    const json_t *rows = named_rows(of, "hybrid", NULL);
    char differs[TEXT_BYTES];
    const claim_sum planned = claim_begin(&what);
    claim_sum measured = claim_begin(&what);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *like = json_array_get(rows, i);
        const json_t *ours = lowest(rows, like, mixed, true);
        const json_t *other = lowest(rows, like, checkpointing, true);
        if (ours != NULL && other != NULL && is_first(rows, i, of_budget, false)) {
            claim_add(&measured,
                      100.0 * (1.0 - claim_number(ours, "energy_step_j") /
                                         claim_number(other, "energy_step_j")),
                      NO_NUMBER, NO_NUMBER, claim_text(like, "model"));
        }
    }
    tell_differs(of, rows, "; counters of the whole machine, where it has any (--energy)", differs);
    claims_add_row(out, NAME, &what, &planned, &measured, differs);
}

static void add_figures(const named_tables *of, json_t *rows)
{
    add_memory_rows(of, rows);
    add_speed_rows(of, rows);
    add_change_row(of, rows);
    add_energy_row(of, rows);
}

const study_named study_sage = {
    .name = NAME,
    .title = "Sage (MobiSys 2022), figure by figure",
    .question = "Do slices and checkpointing together buy what the paper says of them, here?",
    .method = "The paper ran its own trainer on a phone's GPU. Here its ways (slices with "
              "accumulation, checkpointing, both, and its choice by the budget) are policies of "
              "one executor, on one network with the same kernels. Where no number of the paper "
              "is known a figure has a direction alone. Each row's rule says what the word follows "
              "from.",
    .parts = {{.kind = &study_curve,
               .share = 2.0,
               .whole = {.models = NETWORKS, .policies = CURVES},
               .quick = {.models = QUICK_NETWORKS, .policies = CURVES}},
              {.kind = &study_hybrid,
               .share = 3.0,
               .whole = {.models = NETWORKS},
               .quick = {.models = QUICK_NETWORKS}},
              {.kind = &study_adaptation,
               .share = 1.0,
               .whole = {.models = NETWORKS},
               .quick = {.models = "mobilenet_v2"}}},
    .n_parts = 3,
    .claims_fn = add_figures,
};
