/*
 * precision_claims.c - the figures of Mandheling (Xu et al., MobiCom 2022) beside what came out
 * here, for each precision.
 *
 * The paper's numbers: NITI on the DSP of a phone beside MNN in float32 and in int8 on its
 * processor (accuracy in %, rounds, hours, Wh). Centralised on CIFAR-10: VGG-11 89.87 / 87.17,
 * 150 rounds, 29.13 / 24.77 / 7.50 h, 187.01 / 153.33 / 31.39 Wh; ResNet-18 92.49 / 90.62, 150,
 * 223.55 / 135.71 / 35.68, 1435.19 / 840.04 / 149.32. Federated: LeNet on FEMNIST 84.18 / 82.04,
 * 990 / 4960, 0.97 / 0.39 / 0.19, 0.00057 / 0.00029 / 0.00007; VGG-16 on CIFAR-100 71.15 / 68.42,
 * 1960 / 2200, 8.35 / 1.56 / 0.78, 2.74 / 1.26 / 0.21. A batch up to 8.3 times less time and 12.5
 * times less energy, to convergence on average 5.7 and 7.8 times less.
 *
 * Invariant: every number follows from the study's rows.
 */
#include "claims.h"
#include "precision.h"

#include <math.h>
#include <string.h>

#define NAME "precision"
#define TABLE "evaluation"
#define WHOLE "niti"
#define FIGURE_BYTES 192
#define NO_NUMBER ((double)NAN)

/* A line of the paper's table, and the networks that stand for it here. */
typedef struct paper_line {
    const char *name, *setting, *model;
    double lost;          /* points of accuracy, float32 less int8 */
    double rounds;        /* int8 over float32 */
    double hours, energy; /* float32 over theirs */
    double hours_int8;    /* float32 over int8 on the same processor */
    const char *differs;
} paper_line;

static const paper_line lines[] = {
    {"VGG-11, centralised", "centralised", "vgg11_cifar", 89.87 - 87.17, 1.0, 29.13 / 7.50,
     187.01 / 31.39, 29.13 / 24.77, "fewer images of CIFAR-10, and epochs"},
    {"ResNet-18, centralised", "centralised", "resnet18", 92.49 - 90.62, 1.0, 223.55 / 35.68,
     1435.19 / 149.32, 223.55 / 135.71,
     "fewer images of CIFAR-10, and epochs; batch norm, which niti has not"},
    {"LeNet, federated", "federated", "lenet5", 84.18 - 82.04, 4960.0 / 990.0, 0.97 / 0.19,
     0.00057 / 0.00007, 0.97 / 0.39, "digits by writer in place of FEMNIST, few rounds"},
    {"VGG-16, federated", "federated", "vgg16_cifar", 71.15 - 68.42, 2200.0 / 1960.0, 8.35 / 0.78,
     2.74 / 0.21, 8.35 / 1.56, "CIFAR-10 in place of CIFAR-100, few rounds"},
};
#define N_LINES (sizeof lines / sizeof lines[0])

/* Two runs of a seed: in float32, and in another precision. */
typedef struct pair {
    const json_t *last[2], *at[2]; /* the last rows; those at the accuracy that both reach */
    double best[2];
} pair;

static bool is_of(const json_t *row, const char *setting, const char *model, const char *precision)
{
    return claim_is(row, "setting", setting) && claim_is(row, "model", model) &&
           claim_is(row, "precision", precision);
}

static bool is_seed(const json_t *row, int64_t seed)
{
    return (int64_t)claim_number(row, "seed") == seed;
}

static const json_t *first_at(const json_t *rows, const char *setting, const char *model,
                              const char *precision, int64_t seed, double target)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_of(row, setting, model, precision) && is_seed(row, seed) &&
            claim_number(row, "accuracy") >= target) {
            return row;
        }
    }
    return NULL;
}

static bool find_pair(const json_t *rows, const char *setting, const char *model,
                      const char *precision, int64_t seed, pair *out)
{
    const char *const both[2] = {PRECISION_FLOAT, precision};
    *out = (pair){.best = {NO_NUMBER, NO_NUMBER}};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        for (int k = 0; k < 2; k++) {
            if (is_of(row, setting, model, both[k]) && is_seed(row, seed)) {
                out->best[k] = fmax(out->best[k], claim_number(row, "accuracy"));
                out->last[k] = row;
            }
        }
    }
    const double target = fmin(out->best[0], out->best[1]);
    for (int k = 0; k < 2; k++) {
        out->at[k] = first_at(rows, setting, model, both[k], seed, target);
    }
    return out->last[0] != NULL && out->last[1] != NULL;
}

/* Both have to have reached it. */
static double ratio_at(const pair *of, int above, int below, const char *column)
{
    return claim_number(of->at[above], column) / claim_number(of->at[below], column);
}

static double lost_points(const pair *of)
{
    return 100.0 * (claim_number(of->last[0], "accuracy") - claim_number(of->last[1], "accuracy"));
}

static double more_rounds(const pair *of)
{
    return ratio_at(of, 1, 0, "round");
}

static double less_time(const pair *of)
{
    return ratio_at(of, 0, 1, "time_cpu_s");
}

static double less_energy(const pair *of)
{
    return ratio_at(of, 0, 1, "energy_j");
}

/* Two standard errors of the difference by the size of the test set, in points. */
static double test_error(const pair *of)
{
    double sum = 0.0;
    for (int k = 0; k < 2; k++) {
        const double share = claim_number(of->last[k], "accuracy");
        sum += share * (1.0 - share) / claim_number(of->last[k], "test_examples");
    }
    return isfinite(sum) ? 200.0 * sqrt(sum) : 0.0;
}

/* One case: the mean over the seeds and their range, of accuracies with the test set's error. */
static void add_case(const study *at, const char *setting, const char *model, const char *precision,
                     double (*value_fn)(const pair *of), claim_sum *sum)
{
    const study_flags *flags = study_flags_of(at);
    double total = 0.0;
    double error = 0.0;
    double low = NO_NUMBER;
    double high = NO_NUMBER;
    int64_t n = 0;
    for (int64_t s = 0; s < flags->n_seeds; s++) {
        pair of;
        const double value =
            find_pair(study_rows(at), setting, model, precision, (int64_t)flags->seed + s, &of)
                ? value_fn(&of)
                : NO_NUMBER;
        if (isfinite(value)) {
            total += value;
            low = fmin(low, value);
            high = fmax(high, value);
            error = value_fn == lost_points ? test_error(&of) : 0.0;
            n++;
        }
    }
    if (n > 0) {
        const double mean = total / (double)n;
        char name[CLAIM_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%s, %s", model, precision);
        error /= sqrt((double)n);
        claim_add(sum, mean, fmin(low, mean - error), fmax(high, mean + error), name);
    }
}

/* Which precisions a figure has cases of. */
typedef struct figure_of {
    const char *precision; /* NULL: every one but float32 and niti, the best of them counts */
    const char *called;
} figure_of;

static void add_cases(const study *at, const paper_line *line, const figure_of *of,
                      double (*value_fn)(const pair *pair_of), claim_sum *sum)
{
    for (size_t i = 1; precision_ways[i].name != NULL; i++) {
        const char *name = precision_ways[i].name;
        if (of->precision != NULL ? strcmp(of->precision, name) == 0 : strcmp(name, WHOLE) != 0) {
            add_case(at, line->setting, line->model, name, value_fn, sum);
        }
    }
}

static void tell_differs(const study *at, const char *more, char out[FIGURE_BYTES])
{
    (void)snprintf(out, FIGURE_BYTES, "%s; %lld thread(s) of this machine, no DSP", more,
                   (long long)study_flags_of(at)->n_threads);
}

static void add_accuracy_rows(const study *at, json_t *out)
{
    for (size_t l = 0; l < N_LINES; l++) {
        for (size_t i = 1; precision_ways[i].name != NULL; i++) {
            const figure_of of = {precision_ways[i].name, precision_ways[i].name};
            char figure[FIGURE_BYTES];
            char differs[FIGURE_BYTES];
            const claim lost = {figure,        TABLE,      NAME,          "points",
                                CLAIM_AT_MOST, CLAIM_MEAN, lines[l].lost, lines[l].lost};
            const claim rounds = {figure,     TABLE,           NAME,           "x", CLAIM_AT_MOST,
                                  CLAIM_MEAN, lines[l].rounds, lines[l].rounds};
            claim_sum lost_sum = claim_begin(&lost);
            claim_sum rounds_sum = claim_begin(&rounds);
            tell_differs(at, lines[l].differs, differs);
            (void)snprintf(figure, sizeof figure, "accuracy lost to float32, %s: %s", lines[l].name,
                           of.called);
            add_cases(at, &lines[l], &of, lost_points, &lost_sum);
            claims_add_row(out, NAME, &lost, &lost_sum, NULL, differs);
            (void)snprintf(figure, sizeof figure,
                           "rounds to the accuracy that both reach, over float32's, %s: %s",
                           lines[l].name, of.called);
            add_cases(at, &lines[l], &of, more_rounds, &rounds_sum);
            claims_add_row(out, NAME, &rounds, &rounds_sum, NULL, differs);
        }
    }
}

/* --- cost to the accuracy that both reach --- */

static void add_cost_row(const study *at, const paper_line *line, const figure_of *of,
                         const char *what, double paper, double (*value_fn)(const pair *pair_of),
                         json_t *out)
{
    char figure[FIGURE_BYTES];
    char differs[FIGURE_BYTES];
    const claim cost = {figure,         TABLE,
                        NAME,           "x",
                        CLAIM_AT_LEAST, of->precision == NULL ? CLAIM_EXTREME : CLAIM_MEAN,
                        paper,          1.0};
    claim_sum none = claim_begin(&cost);
    claim_sum sum = claim_begin(&cost);
    (void)snprintf(figure, sizeof figure, "%s, %s: %s", what, line->name, of->called);
    tell_differs(at, line->differs, differs);
    add_cases(at, line, of, value_fn, &sum);
    claims_add_row(out, NAME, &cost, &none, &sum, differs);
}

static void add_cost_rows(const study *at, json_t *out)
{
    static const figure_of all[] = {{WHOLE, WHOLE}, {NULL, "the best of the other precisions"}};
    for (size_t l = 0; l < N_LINES; l++) {
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            add_cost_row(at, &lines[l], &all[k],
                         "time to the accuracy that both reach, float32 over it", lines[l].hours,
                         less_time, out);
            add_cost_row(at, &lines[l], &all[k],
                         "energy to the accuracy that both reach, float32 over it", lines[l].energy,
                         less_energy, out);
        }
        add_cost_row(at, &lines[l], &all[0],
                     "the same time, beside the paper's int8 on the processor", lines[l].hours_int8,
                     less_time, out);
    }
}

/* Over all lines of the table. */
static void add_mean_rows(const study *at, json_t *out)
{
    static const struct {
        claim what;
        double (*value_fn)(const pair *of);
    } all[] = {
        {{"time to convergence, float32 over niti, on average", "abstract", NAME, "x",
          CLAIM_AT_LEAST, CLAIM_MEAN, 5.7, 1.0},
         less_time},
        {{"energy to convergence, float32 over niti, on average", "abstract", NAME, "x",
          CLAIM_AT_LEAST, CLAIM_MEAN, 7.8, 1.0},
         less_energy},
    };
    static const figure_of niti = {WHOLE, WHOLE};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[FIGURE_BYTES];
        claim_sum none = claim_begin(&all[i].what);
        claim_sum sum = claim_begin(&all[i].what);
        for (size_t l = 0; l < N_LINES; l++) {
            add_cases(at, &lines[l], &niti, all[i].value_fn, &sum);
        }
        tell_differs(at, "the networks that ran here", differs);
        claims_add_row(out, NAME, &all[i].what, &none, &sum, differs);
    }
}

/* --- steps --- */

static const json_t *find_step(const json_t *rows, const json_t *like, const char *precision)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (claim_is(row, "table", "steps") && claim_is(row, "precision", precision) &&
            claim_is(row, "model", claim_text(like, "model")) &&
            (int64_t)claim_number(row, "batch") == (int64_t)claim_number(like, "batch")) {
            return row;
        }
    }
    return NULL;
}

static void add_step(const json_t *row, const json_t *base, bool is_energy, claim_sum *sum)
{
    char name[CLAIM_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s, batch %.0f, %s", claim_text(row, "model"),
                   claim_number(row, "batch"), claim_text(row, "precision"));
    if (is_energy) {
        claim_add(sum, claim_number(base, "energy_step_j") / claim_number(row, "energy_step_j"),
                  NO_NUMBER, NO_NUMBER, name);
    } else {
        claim_add(sum, claim_number(base, "time_cpu_ms") / claim_number(row, "time_cpu_ms"),
                  claim_number(base, "time_cpu_low_ms") / claim_number(row, "time_cpu_high_ms"),
                  claim_number(base, "time_cpu_high_ms") / claim_number(row, "time_cpu_low_ms"),
                  name);
    }
}

static void add_step_rows(const study *at, json_t *out)
{
    static const struct {
        claim what;
        bool is_whole, is_energy;
    } all[] = {
        {{"a batch takes up to 8.3 times less time: float32 over niti", "abstract", NAME, "x",
          CLAIM_AT_LEAST, CLAIM_EXTREME, 8.3, 1.0},
         true,
         false},
        {{"a batch takes up to 12.5 times less energy: float32 over niti", "abstract", NAME, "x",
          CLAIM_AT_LEAST, CLAIM_EXTREME, 12.5, 1.0},
         true,
         true},
        {{"a batch takes up to 8.3 times less time: float32 over the other precisions", "abstract",
          NAME, "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 8.3, 1.0},
         false,
         false},
        {{"a batch takes up to 12.5 times less energy: float32 over the other precisions",
          "abstract", NAME, "x", CLAIM_AT_LEAST, CLAIM_EXTREME, 12.5, 1.0},
         false,
         true},
    };
    const json_t *rows = study_rows(at);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[FIGURE_BYTES];
        claim_sum none = claim_begin(&all[i].what);
        claim_sum sum = claim_begin(&all[i].what);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            const json_t *row = json_array_get(rows, r);
            const bool is_base = claim_is(row, "precision", PRECISION_FLOAT);
            const json_t *base = claim_is(row, "table", "steps") && !is_base
                                     ? find_step(rows, row, PRECISION_FLOAT)
                                     : NULL;
            if (base != NULL && claim_is(row, "precision", WHOLE) == all[i].is_whole) {
                add_step(row, base, all[i].is_energy, &sum);
            }
        }
        tell_differs(at, "images of 28 or 32 pixels, smaller batches", differs);
        claims_add_row(out, NAME, &all[i].what, &none, &sum, differs);
    }
}

/* --- another table, of the precisions that the paper lists and does not train --- */

static void add_other_rows(const study *at, json_t *out)
{
    static const struct {
        claim what;
        const char *precision;
    } all[] = {
        {{"accuracy lost to float32, MobileNetV2, CIFAR-10 (94.39 to 94.37 %): adaptive-int8",
          "reimplementation (Fixed-Point-Training)", NAME, "points", CLAIM_AT_MOST, CLAIM_MEAN,
          94.39 - 94.37, 94.39 - 94.37},
         "adaptive-int8"},
        {{"accuracy lost to float32, MobileNetV2, CIFAR-10 (94.39 to 92.32 %): wageubn",
          "reimplementation (Fixed-Point-Training)", NAME, "points", CLAIM_AT_MOST, CLAIM_MEAN,
          94.39 - 92.32, 94.39 - 92.32},
         "wageubn"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char differs[FIGURE_BYTES];
        claim_sum sum = claim_begin(&all[i].what);
        add_case(at, "centralised", "mobilenet_v2", all[i].precision, lost_points, &sum);
        tell_differs(at, "fewer images, and epochs", differs);
        claims_add_row(out, NAME, &all[i].what, &sum, NULL, differs);
    }
}

void precision_add_claims(study *at)
{
    json_t *rows = json_array();
    add_step_rows(at, rows);
    add_mean_rows(at, rows);
    add_accuracy_rows(at, rows);
    add_cost_rows(at, rows);
    add_other_rows(at, rows);
    study_add_table(at, "claims", claims_columns, rows);
}
