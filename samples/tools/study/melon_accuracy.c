/*
 * melon_accuracy.c - Melon's figures of accuracy beside ours: the batch that a budget holds with no
 * memory shared against the larger ones that the planner affords in it, on one machine and in
 * fleets.
 */
#include "melon.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TEXT_BYTES 512
#define LIST_BYTES 128

/* How a part calls its things. */
typedef struct learn_part {
    const char *part;
    const char *setting;   /* the column that tells settings apart */
    const char *accuracy;  /* of its rows */
    const char *x, *clock; /* that grow along a run */
} learn_part;

static bool has_same_text(const json_t *a, const json_t *b, const char *column)
{
    const char *text = claim_text(b, column);
    return text == NULL ? claim_text(a, column) == NULL : claim_is(a, column, text);
}

/* On the same network, data and split. */
static bool is_comparable(const json_t *a, const json_t *b)
{
    return has_same_text(a, b, "model") && has_same_text(a, b, "dataset") &&
           has_same_text(a, b, "partition");
}

/* The setting without a planner in the same budget; NULL: there is none, or nothing fits. */
static const json_t *find_base(const json_t *rows, const json_t *ours)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const bool has_run = claim_is(row, "policy", "none") && claim_number(row, "runs") > 0.0;
        if (has_run && is_comparable(row, ours) &&
            !(fabs(claim_number(row, "budget_bytes") - claim_number(ours, "budget_bytes")) > 0.0)) {
            return row;
        }
    }
    return NULL;
}

/* Two standard errors of a difference: over seeds, and by the size of the test set. */
static double error_between(const json_t *ours, const json_t *base)
{
    const json_t *const both[] = {ours, base};
    double squares = 0.0;
    for (size_t i = 0; i < 2; i++) {
        const double seeds = claim_number(both[i], "se_accuracy");
        const double tested = claim_number(both[i], "test_error");
        squares += isfinite(seeds) ? seeds * seeds : 0.0;
        squares += isfinite(tested) ? tested * tested : 0.0;
    }
    return 2.0 * sqrt(squares);
}

/* --- how soon --- */

static bool is_of(const learn_part *in, const json_t *row, const json_t *setting)
{
    return is_comparable(row, setting) && has_same_text(row, setting, in->setting);
}

/* The mean of a column over the seeds of a setting, at one x. */
static double mean_at(const learn_part *in, const json_t *rows, const json_t *setting,
                      const char *column, double x)
{
    double sum = 0.0;
    int64_t n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_of(in, row, setting) && !(fabs(claim_number(row, in->x) - x) > 0.0)) {
            sum += claim_number(row, column);
            n++;
        }
    }
    return n > 0 ? sum / (double)n : (double)NAN;
}

/* The first x at which the mean over the seeds is at the target; infinite: it never is. */
static double first_x(const learn_part *in, const json_t *rows, const json_t *setting,
                      double target)
{
    double first = (double)INFINITY;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double x = claim_number(row, in->x);
        if (is_of(in, row, setting) && x < first &&
            mean_at(in, rows, setting, in->accuracy, x) >= target - 1e-9) {
            first = x;
        }
    }
    return first;
}

/* One larger batch beside the small one. */
typedef struct learn_sums {
    claim_sum gain, sooner, by_clock;
} learn_sums;

/* How soon each is where the small batch ends: a larger one that never is there counts as 0. No
 * case where the small batch is there at its first look: it has learned nothing since. */
static void add_sooner(const learn_part *in, const json_t *rows, const json_t *ours,
                       const json_t *base, const char *name, learn_sums *to)
{
    const double target = claim_number(base, "mean_accuracy");
    const double x = first_x(in, rows, ours, target);
    const double base_x = first_x(in, rows, base, target);
    const bool is_there = isfinite(x);
    if (!(base_x > first_x(in, rows, base, 0.0))) {
        return;
    }
    claim_add(&to->sooner, is_there ? base_x / x : 0.0, (double)NAN, (double)NAN, name);
    const double clock = mean_at(in, rows, ours, in->clock, x);
    const double base_clock = mean_at(in, rows, base, in->clock, base_x);
    claim_add(&to->by_clock, is_there ? base_clock / clock : 0.0, (double)NAN, (double)NAN, name);
}

static void add_case(const learn_part *in, const json_t *rows, const json_t *ours,
                     const json_t *base, learn_sums *to)
{
    char name[CLAIM_NAME_BYTES];
    const double points =
        100.0 * (claim_number(ours, "mean_accuracy") - claim_number(base, "mean_accuracy"));
    const double error = 100.0 * error_between(ours, base);
    (void)snprintf(name, sizeof name, "%s: batch %.0f beside %.0f", claim_text(ours, "model"),
                   claim_number(ours, "batch"), claim_number(base, "batch"));
    claim_add(&to->gain, points, points - error, points + error, name);
    add_sooner(in, rows, ours, base, name, to);
}

/* A split of federated; "": of one machine, "uneven": any but iid. */
static bool is_split(const json_t *row, const char *split)
{
    const char *partition = claim_text(row, "partition");
    if (partition == NULL) {
        return split[0] == '\0';
    }
    return split[0] != '\0' && (strcmp(split, "iid") == 0) == (strcmp(partition, "iid") == 0);
}

/* Whether a setting is the planner's, with exact statistics and a larger batch, and ran. */
static bool is_planned(const json_t *ours, const json_t *base)
{
    return base != NULL && claim_is(ours, "policy", "auto") &&
           !(claim_number(ours, "ghost") > 0.0) && claim_number(ours, "runs") > 0.0 &&
           claim_number(ours, "batch") > claim_number(base, "batch");
}

static void describe(const named_tables *of, const json_t *settings, char out[TEXT_BYTES])
{
    const char *dataset = claim_text(json_array_get(settings, 0), "dataset");
    char batches[LIST_BYTES] = "";
    claim_list(settings, "batch", batches, sizeof batches);
    (void)snprintf(
        out, TEXT_BYTES,
        "%s, not CIFAR-100; batches %s (0: does not fit), not 32 and 128; %" PRId64
        " seed(s), not five runs; range of points: two standard errors, over seeds and "
        "by the size of the test set; \"sooner\": to the accuracy at which the small "
        "batch ends, never counts as 0, and a small batch that has learned nothing since "
        "its first look is no case",
        dataset == NULL ? "no data" : dataset, batches, of->flags->n_seeds);
}

static void add_figures(const named_tables *of, const learn_part *in, const char *split,
                        const claim *gain, const claim *sooner, json_t *out)
{
    const json_t *settings = named_rows(of, in->part, "summary");
    const json_t *rows = named_rows(of, in->part, NULL);
    learn_sums sums = {claim_begin(gain), claim_begin(sooner), claim_begin(sooner)};
    char differs[TEXT_BYTES];
    for (size_t i = 0; i < json_array_size(settings); i++) {
        const json_t *ours = json_array_get(settings, i);
        const json_t *base = is_split(ours, split) ? find_base(settings, ours) : NULL;
        if (is_planned(ours, base)) {
            add_case(in, rows, ours, base, &sums);
        }
    }
    describe(of, settings, differs);
    claims_add_row(out, MELON, gain, &sums.gain, NULL, differs);
    claims_add_row(out, MELON, sooner, &sums.sooner, &sums.by_clock, differs);
}

#define CURVES "figures of accuracy; no number known"
#define GAIN(text, part)                                                                           \
    {                                                                                              \
        text, CURVES, part, "points", CLAIM_AT_LEAST, CLAIM_EACH, (double)NAN, 0.0                 \
    }
#define SOONER(text, part)                                                                         \
    {                                                                                              \
        text, CURVES, part, "x", CLAIM_AT_LEAST, CLAIM_EACH, (double)NAN, 1.0                      \
    }

void melon_accuracy_figures(const named_tables *of, json_t *rows)
{
    static const learn_part central = {"convergence", "variant", "test_accuracy", "epoch",
                                       "time_cpu_s"};
    static const learn_part fleet = {"federated", "batch_rule", "accuracy", "round", "time_wall_s"};
    static const struct {
        const learn_part *in;
        const char *split;
        claim gain, sooner;
    } all[] = {
        {&central, "",
         GAIN("accuracy gained by the larger batch that the planner affords, centralised",
              "convergence"),
         SOONER("sooner with it, centralised (epochs; measured: processor time)", "convergence")},
        {&fleet, "iid", GAIN("accuracy gained by it, federated, IID", "federated"),
         SOONER("sooner with it, federated, IID (rounds; measured: time)", "federated")},
        {&fleet, "uneven", GAIN("accuracy gained by it, federated, not IID", "federated"),
         SOONER("sooner with it, federated, not IID (rounds; measured: time)", "federated")},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        add_figures(of, all[i].in, all[i].split, &all[i].gain, &all[i].sooner, rows);
    }
}
