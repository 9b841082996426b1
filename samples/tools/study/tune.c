/*
 * tune.c - rates that are chosen on a validation split, and the table of what was tried.
 *
 * Invariant: a rate is chosen by rows of the tuning table alone, which no test split has touched.
 */
#include "grid.h"

#include <math.h>
#include <string.h>

static const char *const columns[] = {"setting",
                                      "model",
                                      "dataset",
                                      "partition",
                                      "batch",
                                      "ghost",
                                      "lr",
                                      "seed",
                                      "epoch",
                                      "round",
                                      "examples",
                                      "train_loss",
                                      "validation_loss",
                                      "validation_accuracy",
                                      "validation_examples",
                                      "is_last",
                                      "is_chosen",
                                      "is_edge",
                                      "is_synthetic",
                                      "end",
                                      "time_cpu_s",
                                      NULL};

bool grid_is_tuned(const study_flags *flags)
{
    return flags->n_rates > 1;
}

uint64_t grid_first_seed(const study_flags *flags)
{
    return flags->seed + (grid_is_tuned(flags) ? 1 : 0);
}

json_t *grid_tuning_row(const char *group, double lr, uint64_t seed)
{
    json_t *row = json_object();
    row_set_text(row, "table", "tuning");
    row_set_text(row, "setting", group);
    row_set_real(row, "lr", lr);
    row_set_int(row, "seed", (int64_t)seed);
    row_set_int(row, "is_last", 0);
    return row;
}

static double number_of(const json_t *row, const char *key)
{
    const json_t *cell = json_object_get(row, key);
    return json_is_number(cell) ? json_number_value(cell) : (double)NAN;
}

/* As cells hold it. */
static bool is_rate(const json_t *row, double lr)
{
    return fabs(number_of(row, "lr") - lr) <= 1e-5 * lr;
}

static bool is_of(const json_t *row, const char *group)
{
    const char *table = json_string_value(json_object_get(row, "table"));
    const char *setting = json_string_value(json_object_get(row, "setting"));
    return table != NULL && strcmp(table, "tuning") == 0 && setting != NULL &&
           strcmp(setting, group) == 0;
}

/* The last row of a rate: NULL, its job is not done. A run that diverged has no accuracy there. */
static json_t *last_row(const study *at, const char *group, double lr)
{
    const json_t *rows = study_rows(at);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        if (is_of(row, group) && is_rate(row, lr) &&
            json_integer_value(json_object_get(row, "is_last")) == 1) {
            return row;
        }
    }
    return NULL;
}

/* Whether `row` is better than the best so far; ascending rates, so the lower one stays. */
static bool is_better(const json_t *row, const json_t *best)
{
    const double accuracy = number_of(row, "validation_accuracy");
    const double loss = number_of(row, "validation_loss");
    if (!isfinite(accuracy) || best == NULL) {
        return isfinite(accuracy);
    }
    const double old = number_of(best, "validation_accuracy");
    return accuracy > old || (!(accuracy < old) && loss < number_of(best, "validation_loss"));
}

/* Index of the chosen rate; -1: not all are there, or all diverged. */
static int32_t choose(const study *at, const char *group)
{
    const study_flags *flags = study_flags_of(at);
    const json_t *best = NULL;
    int32_t chosen = -1;
    for (int32_t r = 0; r < flags->n_rates; r++) {
        const json_t *row = last_row(at, group, flags->rate_list[r]);
        if (row == NULL) {
            return -1;
        }
        if (is_better(row, best)) {
            best = row;
            chosen = r;
        }
    }
    return chosen;
}

static bool is_edge(const study_flags *flags, int32_t r)
{
    return r == 0 || r == flags->n_rates - 1;
}

int32_t grid_rates(const study *at, const char *group, double rule_lr, grid_rate out[2])
{
    const study_flags *flags = study_flags_of(at);
    int32_t n = 0;
    if (flags->n_rates == 0 || flags->has_rule_rate) {
        out[n++] = (grid_rate){.lr = rule_lr, .rule = "rule"};
    }
    if (flags->n_rates == 1) {
        out[n++] = (grid_rate){.lr = flags->rate_list[0], .rule = "given"};
    } else if (flags->n_rates > 1 && study_is_counting(at)) {
        out[n++] = (grid_rate){.lr = flags->rate_list[0], .rule = "tuned"};
    } else if (flags->n_rates > 1) {
        const int32_t r = choose(at, group);
        if (r >= 0) {
            out[n++] = (grid_rate){
                .lr = flags->rate_list[r], .rule = "tuned", .is_edge = is_edge(flags, r)};
        }
    }
    return n;
}

/* A run that an earlier call made, with a shorter list of rates: its rate may be at an end no more.
 */
static void tell_edge(const study_flags *flags, json_t *row)
{
    const char *rule = json_string_value(json_object_get(row, "rate_rule"));
    for (int32_t r = 0; rule != NULL && strcmp(rule, "tuned") == 0 && r < flags->n_rates; r++) {
        if (is_rate(row, flags->rate_list[r])) {
            row_set_int(row, "rate_is_edge", is_edge(flags, r) ? 1 : 0);
        }
    }
}

void grid_add_tuning(study *at)
{
    const study_flags *flags = study_flags_of(at);
    const json_t *rows = study_rows(at);
    if (!grid_is_tuned(flags)) {
        return;
    }
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *group = json_string_value(json_object_get(row, "setting"));
        tell_edge(flags, row);
        if (group == NULL || !is_of(row, group)) {
            continue;
        }
        const int32_t r = choose(at, group);
        const bool is_chosen = r >= 0 && is_rate(row, flags->rate_list[r]);
        row_set_int(row, "is_chosen", is_chosen ? 1 : 0);
        row_set_int(row, "is_edge", is_chosen && is_edge(flags, r) ? 1 : 0);
    }
    study_add_table(at, "tuning", columns, json_array());
}
