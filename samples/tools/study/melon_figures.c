/*
 * melon_figures.c - the figures of Melon (Wang et al., MobiSys 2022) beside ours.
 *
 * The paper's numbers: its abstract, and the plotting scripts that were published with it, which
 * have batches of MobileNetV2 and SqueezeNet in 5500 MB at 224 pixels: 32 for MNN as it is; 40 and
 * 48 with the pool alone; 80 and 80 with recomputing alone; 176 and 144 with both; 208 and 192 at
 * most. Of its curves of accuracy no number is known here.
 */
#include "melon.h"

#include <math.h>
#include <string.h>

#define TEXT_BYTES 512
#define ANY_BATCH 65536.0 /* "any" counts as the most that --batches takes */
#define SCRIPTS "published scripts, plot_maxbs.py"
#define ABLATION_SCRIPTS "published scripts, plot_ablation.py"

/* What the paper compared with. */
static const char *const rivals[] = {"sublinear", "vdnn", "capuchin"};
#define N_RIVALS (sizeof rivals / sizeof rivals[0])

/* Rows of one case have the same numbers in these columns, and the same network. */
static bool is_case(const json_t *row, const json_t *like, const char *const *columns)
{
    const char *model = claim_text(like, "model");
    bool is_same = model != NULL && claim_is(row, "model", model);
    for (size_t c = 0; is_same && columns[c] != NULL; c++) {
        is_same = !(fabs(claim_number(row, columns[c]) - claim_number(like, columns[c])) > 0.0);
    }
    return is_same;
}

/* The row of the same case in which `column` says `text`; NULL: there is none. */
static const json_t *find(const json_t *rows, const json_t *like, const char *const *columns,
                          const char *column, const char *text)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_case(row, like, columns) && claim_is(row, column, text)) {
            return row;
        }
    }
    return NULL;
}

static void begin_differs(const named_tables *of, const json_t *rows, char out[TEXT_BYTES])
{
    (void)snprintf(out, TEXT_BYTES,
                   "%lld thread(s) of this machine, not four of a phone; images of ",
                   (long long)of->flags->n_threads);
    claim_list(rows, "image", out, TEXT_BYTES);
    (void)strncat(out, " pixels, not 224", TEXT_BYTES - strlen(out) - 1);
}

/* --- the largest batch --- */

static double batch_of(const json_t *row)
{
    const bool is_any = claim_number(row, "is_any") > 0.0;
    return is_any ? ANY_BATCH : claim_number(row, "max_batch");
}

/* The batch of a planner over that of others in the same budget. `model` NULL: every network whose
 * batch is bounded. */
static void add_batches(const json_t *rows, const char *planner, const char *const *others,
                        size_t n_others, const char *model, claim_sum *to)
{
    static const char *const columns[] = {"budget_bytes", NULL};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *ours = json_array_get(rows, i);
        const bool is_asked =
            model != NULL ? claim_is(ours, "model", model) : !(claim_number(ours, "is_any") > 0.0);
        for (size_t k = 0; is_asked && claim_is(ours, "policy", planner) && k < n_others; k++) {
            const json_t *other = find(rows, ours, columns, "policy", others[k]);
            const double beside = other == NULL ? 0.0 : batch_of(other);
            char name[CLAIM_NAME_BYTES];
            (void)snprintf(name, sizeof name, "%s: batch %.0f, %s %.0f", claim_text(ours, "model"),
                           batch_of(ours), others[k], beside);
            claim_add(to, beside > 0.0 ? batch_of(ours) / beside : (double)NAN, (double)NAN,
                      (double)NAN, name);
        }
    }
}

/* The cases, a network in a budget, in which a planner can take any batch. */
static int count_any(const json_t *rows, const char *planner)
{
    int n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        n += claim_is(row, "policy", planner) && claim_number(row, "is_any") > 0.0 ? 1 : 0;
    }
    return n;
}

static void add_batch_rows(const named_tables *of, json_t *out)
{
    static const char *const pool[] = {"pool"};
    static const struct {
        claim what;
        const char *planner, *model;
    } all[] = {
        {{"largest batch beside Sublinear, vDNN and Capuchin, at any price", "abstract",
          "max-batch", "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 4.33, 1.0},
         "auto",
         NULL},
        {{"largest batch beside them, at most 1.3 x the fastest time per example", "abstract",
          "max-batch", "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 4.33, 1.0},
         "auto within 1.3 x",
         NULL},
        {{"batch of MobileNetV2 beside the framework without a planner (208 of 32)", SCRIPTS,
          "max-batch", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 6.5, 1.0},
         "auto within 1.3 x",
         "mobilenet_v2"},
        {{"batch of SqueezeNet beside the framework without a planner (192 of 32)", SCRIPTS,
          "max-batch", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 6.0, 1.0},
         "auto within 1.3 x",
         "squeezenet1_1"},
    };
    const json_t *rows = named_rows(of, "max-batch", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const bool is_rivals = all[i].model == NULL;
        char differs[TEXT_BYTES];
        claim_sum sum = claim_begin(&all[i].what);
        add_batches(rows, all[i].planner, is_rivals ? rivals : pool, is_rivals ? N_RIVALS : 1,
                    all[i].model, &sum);
        begin_differs(of, rows, differs);
        const size_t n = strlen(differs);
        if (is_rivals) {
            (void)snprintf(differs + n, sizeof differs - n,
                           "; where the batch is bounded: in %d more any batch fits",
                           count_any(rows, all[i].planner));
        } else {
            (void)snprintf(differs + n, sizeof differs - n, "%s",
                           "; beside the policy pool, which shares memory as MNN does; "
                           "\"any\" counts as 65536");
        }
        claims_add_row(out, MELON, &all[i].what, &sum, NULL, differs);
    }
}

/* --- examples a second, energy --- */

/* What a step takes by the processor's clock, with what it waits for a file. `which`: "", "low_" or
 * "high_". */
static double step_ms(const json_t *row, const char *which)
{
    char column[32];
    const double out_ms = claim_number(row, "time_swap_out_ms");
    const double in_ms = claim_number(row, "time_swap_in_ms");
    (void)snprintf(column, sizeof column, "time_cpu_%sms", which);
    return claim_number(row, column) + (isfinite(out_ms) ? out_ms : 0.0) +
           (isfinite(in_ms) ? in_ms : 0.0);
}

/* One pair of runs with the same network, budget and batch. */
typedef struct step_pair {
    const json_t *ours, *other;
} step_pair;

static void add_speed(const step_pair *pair, const char *name, claim_sum *planned,
                      claim_sum *measured)
{
    claim_add(planned,
              claim_number(pair->ours, "predicted_samples_per_s") /
                  claim_number(pair->other, "predicted_samples_per_s"),
              (double)NAN, (double)NAN, name);
    claim_add(measured, step_ms(pair->other, "") / step_ms(pair->ours, ""),
              step_ms(pair->other, "low_") / step_ms(pair->ours, "high_"),
              step_ms(pair->other, "high_") / step_ms(pair->ours, "low_"), name);
}

static void add_joules(const step_pair *pair, const char *name, claim_sum *planned,
                       claim_sum *measured)
{
    const double beside = claim_number(pair->other, "energy_step_j");
    (void)planned;
    claim_add(measured,
              beside > 0.0 ? 100.0 * (1.0 - claim_number(pair->ours, "energy_step_j") / beside)
                           : (double)NAN,
              (double)NAN, (double)NAN, name);
}

/* In place of joules: bytes through memory, and processor time without what waits for a file. */
static void add_work(const step_pair *pair, const char *name, claim_sum *planned,
                     claim_sum *measured)
{
    claim_add(planned,
              100.0 * (1.0 - claim_number(pair->ours, "operand_bytes") /
                                 claim_number(pair->other, "operand_bytes")),
              (double)NAN, (double)NAN, name);
    claim_add(measured,
              100.0 * (1.0 - claim_number(pair->ours, "time_cpu_ms") /
                                 claim_number(pair->other, "time_cpu_ms")),
              100.0 * (1.0 - claim_number(pair->ours, "time_cpu_high_ms") /
                                 claim_number(pair->other, "time_cpu_low_ms")),
              100.0 * (1.0 - claim_number(pair->ours, "time_cpu_low_ms") /
                                 claim_number(pair->other, "time_cpu_high_ms")),
              name);
}

typedef void (*add_pair_fn)(const step_pair *pair, const char *name, claim_sum *planned,
                            claim_sum *measured);

/* Every pair of auto and one of the paper's alternatives, where both have a plan. */
static void add_pairs(const json_t *rows, add_pair_fn add, claim_sum *planned, claim_sum *measured)
{
    static const char *const columns[] = {"budget_bytes", "batch", NULL};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *ours = json_array_get(rows, i);
        const bool is_ours = claim_is(ours, "policy", "auto") && claim_number(ours, "fits") > 0.0;
        for (size_t k = 0; is_ours && k < N_RIVALS; k++) {
            const step_pair pair = {ours, find(rows, ours, columns, "policy", rivals[k])};
            char name[CLAIM_NAME_BYTES];
            (void)snprintf(name, sizeof name, "%s, batch %.0f, beside %s",
                           claim_text(ours, "model"), claim_number(ours, "batch"), rivals[k]);
            if (pair.other != NULL && claim_number(pair.other, "fits") > 0.0) {
                add(&pair, name, planned, measured);
            }
        }
    }
}

static void add_step_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        add_pair_fn add;
        const char *differs;
    } all[] = {
        {{"examples a second at the same batch and budget, beside Sublinear, vDNN and Capuchin",
          "abstract", "throughput", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 1.89, 1.0},
         add_speed,
         "swaps go to this machine's disk; predicted with --swap-speed"},
        {{"examples a second at the same batch and budget, at most", "abstract", "throughput", "x",
          CLAIM_AT_LEAST, CLAIM_EXTREME, 4.01, 1.0},
         add_speed,
         "swaps go to this machine's disk; predicted with --swap-speed"},
        {{"energy of a step saved, beside Sublinear, vDNN and Capuchin", "abstract", "throughput",
          "%", CLAIM_AT_LEAST, CLAIM_EXTREME, 49.43, 0.0},
         add_joules,
         "counters of the whole machine, where it has any (--energy)"},
        {{"in place of energy: bytes moved through memory, and processor time, saved in a step",
          "no figure of the paper", "throughput", "%", CLAIM_AT_LEAST, CLAIM_MEAN, (double)NAN,
          0.0},
         add_work,
         "not joules; what swapping waits for its file is not in it"},
    };
    const json_t *rows = named_rows(of, "throughput", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[TEXT_BYTES];
        claim_sum planned = claim_begin(&all[i].what);
        claim_sum measured = claim_begin(&all[i].what);
        add_pairs(rows, all[i].add, &planned, &measured);
        begin_differs(of, rows, differs);
        const size_t n = strlen(differs);
        (void)snprintf(differs + n, sizeof differs - n, "; %s", all[i].differs);
        claims_add_row(out, MELON, &all[i].what, &planned, &measured, differs);
    }
}

/* --- budgets that change; parts of the planner --- */

#define CHANGES "figure of budgets that change; no number known"

static void add_change_rows(const named_tables *of, json_t *out)
{
    static const struct {
        claim what;
        const char *at; /* a share of a step, as scenarios name it; "": all */
    } all[] = {
        {{"work of a step saved when the budget changes, against a restart", "abstract",
          "adaptation", "%", CLAIM_AT_LEAST, CLAIM_MEAN, 78.59, 0.0},
         ""},
        {{"work saved by a change at 25 % of a step", CHANGES, "adaptation", "%", CLAIM_AT_LEAST,
          CLAIM_MEAN, (double)NAN, 0.0},
         " 25 %"},
        {{"work saved by a change at 50 %", CHANGES, "adaptation", "%", CLAIM_AT_LEAST, CLAIM_MEAN,
          (double)NAN, 0.0},
         " 50 %"},
        {{"work saved by a change at 75 %", CHANGES, "adaptation", "%", CLAIM_AT_LEAST, CLAIM_MEAN,
          (double)NAN, 0.0},
         " 75 %"},
    };
    const json_t *rows = named_rows(of, "adaptation", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[TEXT_BYTES];
        claim_sum planned = claim_begin(&all[i].what);
        claim_sum measured = claim_begin(&all[i].what);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            const json_t *row = json_array_get(rows, r);
            const char *name = claim_text(row, "scenario");
            const bool is_single = name != NULL && strncmp(name, "trace", 5) != 0;
            if (is_single && claim_number(row, "step") > 0.0 && strstr(name, all[i].at) != NULL) {
                claim_add(&planned, 100.0 * claim_number(row, "saved_share"), (double)NAN,
                          (double)NAN, name);
                claim_add(&measured, 100.0 * claim_number(row, "time_saved_share"), (double)NAN,
                          (double)NAN, name);
            }
        }
        begin_differs(of, rows, differs);
        const size_t n = strlen(differs);
        (void)snprintf(
            differs + n, sizeof differs - n,
            "; budgets halved or given back, batch 32; traces are left out; measured: with "
            "what the change itself takes");
        claims_add_row(out, MELON, &all[i].what, &planned, &measured, differs);
    }
}

static void add_ablation_rows(const named_tables *of, json_t *out)
{
    static const char *const columns[] = {"budget_bytes", NULL};
    static const struct {
        claim what;
        const char *model, *without;
    } all[] = {
        {{"batch with pool and recomputing over the pool alone, MobileNetV2 (176 of 40)",
          ABLATION_SCRIPTS, "ablation", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 4.4, 1.0},
         "mobilenet_v2",
         "pool"},
        {{"batch with both over recomputing alone, MobileNetV2 (176 of 80)", ABLATION_SCRIPTS,
          "ablation", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 2.2, 1.0},
         "mobilenet_v2",
         "recompute"},
        {{"batch with both over the pool alone, SqueezeNet (144 of 48)", ABLATION_SCRIPTS,
          "ablation", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 3.0, 1.0},
         "squeezenet1_1",
         "pool"},
        {{"batch with both over recomputing alone, SqueezeNet (144 of 80)", ABLATION_SCRIPTS,
          "ablation", "x", CLAIM_AT_LEAST, CLAIM_MEAN, 1.8, 1.0},
         "squeezenet1_1",
         "recompute"},
    };
    const json_t *rows = named_rows(of, "ablation", NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[TEXT_BYTES];
        claim_sum sum = claim_begin(&all[i].what);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            const json_t *both = json_array_get(rows, r);
            const json_t *single =
                claim_is(both, "model", all[i].model) && claim_is(both, "variant", "pool+recompute")
                    ? find(rows, both, columns, "variant", all[i].without)
                    : NULL;
            claim_add(&sum,
                      single != NULL && batch_of(single) > 0.0 ? batch_of(both) / batch_of(single)
                                                               : (double)NAN,
                      (double)NAN, (double)NAN, all[i].model);
        }
        begin_differs(of, rows, differs);
        const size_t n = strlen(differs);
        (void)snprintf(differs + n, sizeof differs - n, "; the step's operations are fused");
        claims_add_row(out, MELON, &all[i].what, &sum, NULL, differs);
    }
}

void melon_figures(const named_tables *of, json_t *rows)
{
    add_batch_rows(of, rows);
    add_step_rows(of, rows);
    melon_accuracy_figures(of, rows);
    add_change_rows(of, rows);
    add_ablation_rows(of, rows);
}
