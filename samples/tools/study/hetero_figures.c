/*
 * hetero_figures.c - the directions of the first study of heterogeneity in federated learning (Yang
 * et al., WWW 2021, of 136,000 phones) beside what came out here.
 *
 * Invariant: every number follows from the study's rows.
 */
#include "claims.h"
#include "hetero.h"

#include <math.h>
#include <string.h>

#define SOURCE "abstract"
#define PART "heterogeneity"
#define DIFFERS                                                                                    \
    "LeNet-5 on digits and made-up phones by stated distributions, not 136,000 recorded ones"

static const claim accuracy_lost = {
    "accuracy (of the last five rounds) lost to unequal hardware and state, data unequal in both",
    SOURCE,
    PART,
    "points",
    CLAIM_AT_LEAST,
    CLAIM_EXTREME,
    9.2,
    0.0};
static const claim time_longer = {
    "time to the same accuracy, with unequal hardware and state over without",
    SOURCE,
    PART,
    "x",
    CLAIM_AT_LEAST,
    CLAIM_EXTREME,
    2.32,
    1.0};
static const claim fairness = {"accuracy of the worst tenth of devices lost to them",
                               SOURCE,
                               PART,
                               "points",
                               CLAIM_AT_LEAST,
                               CLAIM_MEAN,
                               (double)NAN,
                               0.0};
static const claim failures = {
    "devices that had work and did not count, but for those that were too many",
    SOURCE,
    PART,
    "%",
    CLAIM_AT_LEAST,
    CLAIM_MEAN,
    (double)NAN,
    0.0};
static const claim bias = {"fewer devices that ever count, of all",
                           SOURCE,
                           PART,
                           "points",
                           CLAIM_AT_LEAST,
                           CLAIM_MEAN,
                           (double)NAN,
                           0.0};

#define LATE 5 /* rounds: one alone scatters by points where data are unequal */

/* Two runs of a seed and a way to train: without unequal hardware and state, and with. */
typedef struct pair {
    const json_t *last[2];    /* the last rows */
    double late[2];           /* accuracy, mean of the last rounds */
    double best[2], hours[2]; /* hours to the accuracy that both reach */
} pair;

static const char *const compared[2] = {"data", "all"};

static bool is_of(const json_t *row, const char *condition, const char *algorithm, int64_t seed)
{
    return claim_is(row, "condition", condition) && claim_is(row, "algorithm", algorithm) &&
           (int64_t)claim_number(row, "seed") == seed;
}

static double hours_to(const json_t *rows, const char *condition, const char *algorithm,
                       int64_t seed, double target)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_of(row, condition, algorithm, seed) && claim_number(row, "accuracy") >= target) {
            return claim_number(row, "sim_hours");
        }
    }
    return (double)NAN;
}

/* The mean accuracy of the last rounds of a run, which follow each other in the table. */
static double late_accuracy(const json_t *rows, size_t end)
{
    double sum = 0.0;
    const double n = fmin(LATE, claim_number(json_array_get(rows, end), "round"));
    for (size_t i = 0; i < (size_t)n; i++) {
        sum += claim_number(json_array_get(rows, end - i), "accuracy");
    }
    return sum / n;
}

static bool find_pair(const json_t *rows, const char *algorithm, int64_t seed, pair *out)
{
    *out = (pair){.best = {(double)NAN, (double)NAN}};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        for (int k = 0; k < 2; k++) {
            if (is_of(row, compared[k], algorithm, seed)) {
                out->best[k] = fmax(out->best[k], claim_number(row, "accuracy"));
                out->last[k] = row;
                out->late[k] = late_accuracy(rows, i);
            }
        }
    }
    const double target = fmin(out->best[0], out->best[1]);
    for (int k = 0; k < 2; k++) {
        out->hours[k] = hours_to(rows, compared[k], algorithm, seed, target);
    }
    return out->last[0] != NULL && out->last[1] != NULL;
}

static double points(const pair *of, const char *column)
{
    return 100.0 * (claim_number(of->last[0], column) - claim_number(of->last[1], column));
}

/* The share of those with work in the second run. */
static double dropped_share(const pair *of)
{
    const double n = claim_number(of->last[1], "late") + claim_number(of->last[1], "conditions") +
                     claim_number(of->last[1], "failure") + claim_number(of->last[1], "memory");
    return 100.0 * n / claim_number(of->last[1], "assigned");
}

static double counted_less(const pair *of)
{
    return points(of, "devices_counted") / claim_number(of->last[1], "clients");
}

static double time_ratio(const pair *of)
{
    return of->hours[1] / of->hours[0];
}

static double lost_accuracy(const pair *of)
{
    return 100.0 * (of->late[0] - of->late[1]);
}

static double lost_worst(const pair *of)
{
    return points(of, "worst_tenth");
}

/* A case for each way to train: the mean over seeds, and their range. */
static void add_case(claim_sum *sum, const study *at, const hetero_algorithm *algorithm,
                     double (*value_fn)(const pair *of))
{
    const study_flags *flags = study_flags_of(at);
    double total = 0.0;
    double low = (double)NAN;
    double high = (double)NAN;
    int64_t n = 0;
    for (int64_t s = 0; s < flags->n_seeds; s++) {
        pair of;
        if (find_pair(study_rows(at), algorithm->name, (int64_t)flags->seed + s, &of)) {
            const double value = value_fn(&of);
            if (isfinite(value)) {
                total += value;
                low = fmin(low, value);
                high = fmax(high, value);
                n++;
            }
        }
    }
    if (n > 0) {
        claim_add(sum, total / (double)n, low, high, algorithm->name);
    }
}

static void add_direction(const study *at, json_t *rows, const claim *what,
                          double (*value_fn)(const pair *of))
{
    claim_sum sum = claim_begin(what);
    for (int a = 0; a < HETERO_ALGORITHMS; a++) {
        add_case(&sum, at, &hetero_algorithms[a], value_fn);
    }
    claims_add_row(rows, "heterogeneity", what, &sum, NULL, DIFFERS);
}

void hetero_add_directions(study *at)
{
    json_t *rows = json_array();
    add_direction(at, rows, &accuracy_lost, lost_accuracy);
    add_direction(at, rows, &time_longer, time_ratio);
    add_direction(at, rows, &fairness, lost_worst);
    add_direction(at, rows, &failures, dropped_share);
    add_direction(at, rows, &bias, counted_less);
    study_add_table(at, "directions", claims_columns, rows);
}
