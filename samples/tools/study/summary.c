/*
 * summary.c - from the rows of a study to a row for each run and one for each setting.
 *
 * Invariant: what is computed here follows from the study's rows alone.
 */
#include "grid.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define LATE 5 /* looks that late_accuracy is a mean of */
#define KEY_BYTES 512

static double number_of(const json_t *row, const char *key)
{
    const json_t *cell = json_object_get(row, key);
    return json_is_number(cell) ? json_number_value(cell) : (double)NAN;
}

/* The cells of a list of columns, in one text. */
static size_t add_cells(const json_t *row, const char *const *columns, char *out, size_t at)
{
    for (size_t c = 0; columns[c] != NULL && at < KEY_BYTES; c++) {
        const json_t *cell = json_object_get(row, columns[c]);
        const char *text = json_string_value(cell);
        at += (size_t)snprintf(out + at, KEY_BYTES - at, "%s|", text == NULL ? "" : text);
    }
    return at < KEY_BYTES ? at : KEY_BYTES - 1;
}

/* --- runs --- */

/* The runs by their keys, each with its rows; in the order of their first rows. */
static json_t *sort_runs(const study *at, const grid_names *names)
{
    const json_t *rows = study_rows(at);
    json_t *runs = json_object();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        char key[KEY_BYTES + 24];
        if (json_object_get(row, "table") != NULL) {
            continue;
        }
        const size_t n =
            add_cells(row, names->setting, key, add_cells(row, names->subject, key, 0));
        (void)snprintf(key + n, sizeof key - n, "%lld",
                       (long long)json_integer_value(json_object_get(row, "seed")));
        json_t *of = json_object_get(runs, key);
        if (of == NULL) {
            of = json_array();
            (void)json_object_set_new(runs, key, of);
        }
        (void)json_array_append(of, row);
    }
    return runs;
}

static double best_of(const json_t *rows, const char *accuracy)
{
    double best = (double)NAN;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        best = fmax(best, number_of(json_array_get(rows, i), accuracy));
    }
    return best;
}

/* The mean of the last looks of a run that has accuracies at its end. */
static double late_mean(const json_t *rows, const char *accuracy)
{
    const size_t n = json_array_size(rows);
    const size_t n_late = n < LATE ? n : LATE;
    double sum = 0.0;
    for (size_t i = n - n_late; i < n; i++) {
        sum += number_of(json_array_get(rows, i), accuracy);
    }
    return n_late == 0 ? (double)NAN : sum / (double)n_late;
}

static void set_named(json_t *row, const char *before, const char *name, const char *after,
                      double value)
{
    char column[96];
    (void)snprintf(column, sizeof column, "%s%s%s", before, name, after);
    row_set_real(row, column, value);
}

/* The first row that is at the target; NULL: none is. */
static const json_t *first_at(const json_t *rows, const char *accuracy, double target)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (number_of(row, accuracy) >= target) {
            return row;
        }
    }
    return NULL;
}

static json_t *make_run(const json_t *rows, const grid_names *names)
{
    const json_t *last = json_array_get(rows, json_array_size(rows) - 1);
    json_t *run = json_copy((json_t *)(uintptr_t)last);
    const double accuracy = number_of(last, names->accuracy);
    const double n_test = number_of(last, "test_examples");
    if (isfinite(accuracy)) {
        row_set_text(run, "end", "finished");
    }
    row_set_real(run, "accuracy", accuracy);
    row_set_real(run, "loss", number_of(last, names->loss));
    row_set_real(run, "best_accuracy", best_of(rows, names->accuracy));
    row_set_real(run, "late_accuracy", late_mean(rows, names->accuracy));
    row_set_real(run, "test_error", sqrt(accuracy * (1.0 - accuracy) / n_test));
    (void)json_object_set_new(run, "rows", json_deep_copy(rows));
    return run;
}

/* The highest accuracy that all runs of the subject reach; not a number: none ended well. */
static double common_target(const json_t *runs, const char *subject)
{
    double least = (double)NAN;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        if (strcmp(json_string_value(json_object_get(run, "subject")), subject) == 0 &&
            isfinite(number_of(run, "accuracy"))) {
            least = fmin(least, number_of(run, "best_accuracy"));
        }
    }
    return least;
}

static void set_target(json_t *run, double target, const grid_names *names)
{
    const json_t *at = first_at(json_object_get(run, "rows"), names->accuracy, target);
    row_set_real(run, "target", target);
    set_named(run, "", names->x, "_to_target", number_of(at, names->x));
    for (size_t t = 0; names->totals[t] != NULL; t++) {
        set_named(run, "", names->totals[t], "_to_target", number_of(at, names->totals[t]));
    }
    (void)json_object_del(run, "rows");
}

static json_t *make_runs(study *at, const grid_names *names)
{
    json_t *sorted = sort_runs(at, names);
    json_t *runs = json_array();
    const char *key = NULL;
    json_t *rows = NULL;
    json_object_foreach(sorted, key, rows)
    {
        char subject[KEY_BYTES];
        json_t *run = make_run(rows, names);
        (void)add_cells(run, names->subject, subject, 0);
        row_set_text(run, "subject", subject);
        (void)json_array_append_new(runs, run);
    }
    const double given = study_flags_of(at)->target;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *run = json_array_get(runs, i);
        const char *subject = json_string_value(json_object_get(run, "subject"));
        set_target(run, given > 0.0 ? given : common_target(runs, subject), names);
    }
    json_decref(sorted);
    return runs;
}

/* --- settings --- */

typedef struct moments {
    double n, mean, deviation;
} moments;

/* Of a column over the runs of a setting, those without a number left out. */
static moments moments_of(const json_t *runs, const char *column)
{
    moments out = {.n = 0.0};
    double squares = 0.0;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const double value = number_of(json_array_get(runs, i), column);
        if (isfinite(value)) {
            out.n += 1.0;
            const double step = value - out.mean;
            out.mean += step / out.n;
            squares += step * (value - out.mean);
        }
    }
    out.mean = out.n > 0.0 ? out.mean : (double)NAN;
    out.deviation = out.n > 1.0 ? sqrt(squares / (out.n - 1.0)) : (double)NAN;
    return out;
}

/* "mean_COLUMN"; of the clock's columns, which keep their prefixes, the mean under their names. */
static void set_mean(json_t *row, const json_t *runs, const char *column)
{
    const bool is_clock = strncmp(column, "time_", 5) == 0 || strncmp(column, "wire_", 5) == 0 ||
                          strncmp(column, "energy_", 7) == 0;
    set_named(row, is_clock ? "" : "mean_", column, "", moments_of(runs, column).mean);
}

static json_t *make_setting(const json_t *runs, const grid_names *names)
{
    json_t *row = json_copy(json_array_get(runs, 0));
    const moments accuracy = moments_of(runs, "accuracy");
    char column[96];
    row_set_int(row, "runs", (int64_t)accuracy.n);
    row_set_int(row, "failed", (int64_t)json_array_size(runs) - (int64_t)accuracy.n);
    row_set_real(row, "sd_accuracy", accuracy.deviation);
    row_set_real(row, "se_accuracy", accuracy.deviation / sqrt(accuracy.n));
    row_set_real(row, "test_error",
                 sqrt(accuracy.mean * (1.0 - accuracy.mean) / number_of(row, "test_examples")));
    set_mean(row, runs, "accuracy");
    set_mean(row, runs, "late_accuracy");
    set_mean(row, runs, "loss");
    (void)snprintf(column, sizeof column, "%s_to_target", names->x);
    row_set_int(row, "reached", (int64_t)moments_of(runs, column).n);
    set_mean(row, runs, column);
    for (size_t t = 0; names->totals[t] != NULL; t++) {
        set_mean(row, runs, names->totals[t]);
        (void)snprintf(column, sizeof column, "%s_to_target", names->totals[t]);
        set_mean(row, runs, column);
    }
    return row;
}

static json_t *make_settings(const json_t *runs, const grid_names *names)
{
    json_t *sorted = json_object();
    json_t *settings = json_array();
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *run = json_array_get(runs, i);
        char key[KEY_BYTES];
        (void)add_cells(run, names->setting, key, add_cells(run, names->subject, key, 0));
        json_t *of = json_object_get(sorted, key);
        if (of == NULL) {
            of = json_array();
            (void)json_object_set_new(sorted, key, of);
        }
        (void)json_array_append(of, run);
    }
    const char *key = NULL;
    json_t *of = NULL;
    json_object_foreach(sorted, key, of)
    {
        (void)json_array_append_new(settings, make_setting(of, names));
    }
    json_decref(sorted);
    return settings;
}

void grid_add_summary(study *at, const grid_names *names)
{
    json_t *runs = make_runs(at, names);
    json_t *settings = make_settings(runs, names);
    study_add_table(at, "runs", names->runs, runs);
    study_add_table(at, "summary", names->summary, settings);
}
