/*
 * claims.c - a paper's figures beside ours: how cases become a number, and a number a word.
 *
 * Invariant: a word follows from the cases and the figure alone, by the rule in claims.h.
 */
#include "claims.h"

#include <math.h>
#include <string.h>

#define NEAR 0.25 /* "about": so far from the paper's number, as a share of it */

const char *const claims_columns[] = {
    "study",           "figure",         "source",         "part",
    "statistic",       "unit",           "paper",          "ours",
    "ours_low",        "ours_high",      "cases",          "cases_good",
    "best_case",       "holds",          "rule",           "differs",
    "time_ours",       "time_ours_low",  "time_ours_high", "time_cases",
    "time_cases_good", "time_best_case", "time_holds",     NULL};

double claim_number(const json_t *row, const char *column)
{
    const json_t *cell = json_object_get(row, column);
    return json_is_number(cell) ? json_number_value(cell) : (double)NAN;
}

const char *claim_text(const json_t *row, const char *column)
{
    return json_string_value(json_object_get(row, column));
}

bool claim_is(const json_t *row, const char *column, const char *text)
{
    const char *found = claim_text(row, column);
    return found != NULL && strcmp(found, text) == 0;
}

/* Whether a row before that one has the same number. */
static bool is_before(const json_t *rows, size_t end, const char *column, double number)
{
    for (size_t i = 0; i < end; i++) {
        if (!(fabs(claim_number(json_array_get(rows, i), column) - number) > 0.0)) {
            return true;
        }
    }
    return false;
}

void claim_list(const json_t *rows, const char *column, char *out, size_t bytes)
{
    size_t length = strlen(out);
    const char *comma = "";
    for (size_t i = 0; i < json_array_size(rows) && length < bytes; i++) {
        const double number = claim_number(json_array_get(rows, i), column);
        if (isfinite(number) && !is_before(rows, i, column, number)) {
            length += (size_t)snprintf(out + length, bytes - length, "%s%.0f", comma, number);
            comma = ", ";
        }
    }
}

static bool has_number(const claim *of)
{
    return isfinite(of->paper);
}

/* Beyond `bar` on the good side, with the range's unfavourable end; at it is enough if `is_enough`.
 */
static bool is_beyond(const claim *of, double low, double high, double bar, bool is_enough)
{
    if (of->sense == CLAIM_AT_MOST) {
        return high < bar || (is_enough && !(high > bar));
    }
    return low > bar || (is_enough && !(low < bar));
}

/* The paper's figure is reached, or, if none is known, the effect is there. */
static bool is_good(const claim *of, double value, double low, double high)
{
    if (!has_number(of)) {
        return is_beyond(of, low, high, of->neutral, false);
    }
    if (of->sense == CLAIM_ABOUT) {
        return fabs(value - of->paper) <= NEAR * fabs(of->paper);
    }
    return is_beyond(of, low, high, of->paper, true);
}

/* The effect has the paper's direction. */
static bool has_effect(const claim *of, double value)
{
    if (of->sense == CLAIM_ABOUT && has_number(of)) {
        return of->paper < of->neutral ? value < of->neutral : value > of->neutral;
    }
    return is_beyond(of, value, value, of->neutral, false);
}

claim_sum claim_begin(const claim *of)
{
    return (claim_sum){.of = of};
}

void claim_add(claim_sum *to, double value, double low, double high, const char *name)
{
    const claim *of = to->of;
    if (!isfinite(value)) {
        return;
    }
    low = isfinite(low) ? low : value;
    high = isfinite(high) ? high : value;
    if (to->n == 0 || (of->sense == CLAIM_AT_MOST ? value < to->best : value > to->best)) {
        to->best = value;
        to->best_low = low;
        to->best_high = high;
        (void)snprintf(to->best_name, sizeof to->best_name, "%s", name == NULL ? "" : name);
    }
    to->n++;
    to->n_good += is_good(of, value, low, high) ? 1 : 0;
    to->n_part += has_effect(of, value) ? 1 : 0;
    to->value += value;
    to->low += low;
    to->high += high;
}

bool claim_value(const claim_sum *sum, double *out_value, double *out_low, double *out_high)
{
    const bool is_extreme = sum->of->form == CLAIM_EXTREME;
    const double n = (double)sum->n;
    *out_value = is_extreme ? sum->best : sum->value / n;
    *out_low = is_extreme ? sum->best_low : sum->low / n;
    *out_high = is_extreme ? sum->best_high : sum->high / n;
    return sum->n > 0;
}

const char *claim_word(const claim_sum *sum)
{
    const claim *of = sum->of;
    double value = 0.0;
    double low = 0.0;
    double high = 0.0;
    if (!claim_value(sum, &value, &low, &high)) {
        return "not run here";
    }
    if (of->form == CLAIM_EACH) {
        return sum->n_good == sum->n ? "holds"
               : sum->n_part > 0     ? "holds in part"
                                     : "does not hold";
    }
    if (is_good(of, value, low, high)) {
        return "holds";
    }
    return has_effect(of, value) ? "holds in part" : "does not hold";
}

static void write_rule(const claim *of, char *out, size_t bytes)
{
    const bool is_most = of->sense == CLAIM_AT_MOST;
    char bar[96];
    if (!has_number(of)) {
        (void)snprintf(bar, sizeof bar, "%s %g with its range", is_most ? "below" : "above",
                       of->neutral);
    } else if (of->sense == CLAIM_ABOUT) {
        (void)snprintf(bar, sizeof bar, "%g to %g", of->paper * (1.0 - NEAR),
                       of->paper * (1.0 + NEAR));
    } else {
        (void)snprintf(bar, sizeof bar, "at %s %g", is_most ? "most" : "least", of->paper);
    }
    if (of->form == CLAIM_EACH) {
        (void)snprintf(out, bytes, "holds: %s in every case; in part: %s %g in some", bar,
                       is_most ? "below" : "above", of->neutral);
    } else {
        const bool is_below = is_most || (of->sense == CLAIM_ABOUT && of->paper < of->neutral);
        (void)snprintf(out, bytes, "holds: %s; in part: %s %g", bar, is_below ? "below" : "above",
                       of->neutral);
    }
}

static void set_named(json_t *row, const char *before, const char *name, double value)
{
    char column[64];
    (void)snprintf(column, sizeof column, "%s%s", before, name);
    row_set_real(row, column, value);
}

static void set_sum(json_t *row, const char *before, const claim_sum *sum)
{
    double value = 0.0;
    double low = 0.0;
    double high = 0.0;
    char column[64];
    const bool has_case = claim_value(sum, &value, &low, &high);
    if (has_case) {
        set_named(row, before, "ours", value);
        set_named(row, before, "ours_low", low);
        set_named(row, before, "ours_high", high);
    }
    if (has_case && sum->of->form == CLAIM_EXTREME) {
        (void)snprintf(column, sizeof column, "%sbest_case", before);
        row_set_text(row, column, sum->best_name);
    }
    (void)snprintf(column, sizeof column, "%scases", before);
    row_set_int(row, column, sum->n);
    (void)snprintf(column, sizeof column, "%scases_good", before);
    row_set_int(row, column, sum->n_good);
    (void)snprintf(column, sizeof column, "%sholds", before);
    row_set_text(row, column, claim_word(sum));
}

void claims_add_row(json_t *rows, const char *study_name, const claim *what,
                    const claim_sum *planned, const claim_sum *measured, const char *differs)
{
    static const char *const forms[] = {"mean", "up to", "each case"};
    char rule[160];
    const claim_sum none = claim_begin(what);
    json_t *row = json_object();
    write_rule(what, rule, sizeof rule);
    row_set_text(row, "study", study_name);
    row_set_text(row, "figure", what->figure);
    row_set_text(row, "source", what->source);
    row_set_text(row, "part", what->part);
    row_set_text(row, "statistic", forms[what->form]);
    row_set_text(row, "unit", what->unit);
    row_set_real(row, "paper", what->paper);
    set_sum(row, "", planned != NULL ? planned : &none);
    if (measured != NULL && measured->n > 0) {
        set_sum(row, "time_", measured);
    }
    row_set_text(row, "rule", rule);
    row_set_text(row, "differs", differs);
    (void)json_array_append_new(rows, row);
}
