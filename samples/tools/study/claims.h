/*
 * claims.h - a paper's figures beside ours: a row each, and a word that follows from the numbers.
 *
 * A figure has cases here (a network in a budget beside a policy, a fleet on a split ...). A case
 * has a value and, where repeats or seeds leave something open, a range around it. The cases are
 * put together as the paper puts its own together (claim_form), and the word is
 *
 *   "not run here"     there is no case
 *   "holds"            the figure is reached: at least (at most) the paper's number, at the range's
 *                      unfavourable end; "about": within a quarter of the paper's number
 *   "holds in part"    the effect is there, but smaller or not beyond its range: the value is on
 * the good side of `neutral`, the value of no effect; of a figure that counts in every case: in
 * some of them "does not hold"    otherwise
 *
 * Where the paper's number is not known the bar is `neutral`, and has to be passed by the range.
 * The rule stands with its numbers in the column "rule".
 */
#ifndef SAMPLES_STUDY_CLAIMS_H
#define SAMPLES_STUDY_CLAIMS_H

#include "study.h"

/* Which side of the paper's number is the good one. */
typedef enum claim_sense {
    CLAIM_AT_LEAST,
    CLAIM_AT_MOST,
    CLAIM_ABOUT,
} claim_sense;

/* How cases become one number. */
typedef enum claim_form {
    CLAIM_MEAN,    /* the arithmetic mean */
    CLAIM_EXTREME, /* "up to": the largest; of CLAIM_AT_MOST the smallest */
    CLAIM_EACH,    /* each case has to reach the bar; `ours` is their mean */
} claim_form;

/* A figure of a paper. Texts are literals. */
typedef struct claim {
    const char *figure; /* what, in a few words */
    const char *source; /* where it stands in the paper or what it published: "abstract" */
    const char *part;   /* the study that ours comes from: "max-batch"; NULL: of none */
    const char *unit;   /* "x", "%", "points", "ms" */
    claim_sense sense;
    claim_form form;
    double paper;   /* not a number: not known, or the paper gives none */
    double neutral; /* of no effect: 1 of a ratio, 0 of a share that is saved */
} claim;

#define CLAIM_NAME_BYTES 128

/* The cases of a figure, as they come. */
typedef struct claim_sum {
    const claim *of;
    int64_t n, n_good, n_part;        /* cases, those at the bar, those beyond `neutral` */
    double value, low, high;          /* sums */
    double best, best_low, best_high; /* of the extreme case */
    char best_name[CLAIM_NAME_BYTES];
} claim_sum;

/* No case yet. The figure is kept, not copied. */
claim_sum claim_begin(const claim *of);

/* One more case; `low` and `high` are the range, or the value. A value that is not a number is no
 * case. `name` says which: it stands in the column "best_case" of an extreme. */
void claim_add(claim_sum *to, double value, double low, double high, const char *name);

/* The word for what has been added. */
const char *claim_word(const claim_sum *sum);

/* The value that stands beside the paper's, with its range. @return false: there is no case. */
bool claim_value(const claim_sum *sum, double *out_value, double *out_low, double *out_high);

/*
 * Appends the row of a figure to an array. `planned` are cases that follow from the command alone
 * (plans, counts, accuracies), `measured` those of the clock and of counters, whose columns begin
 * with "time_"; NULL: there are none by nature. `differs` is what the conditions of this run differ
 * in from the paper's.
 */
void claims_add_row(json_t *rows, const char *study_name, const claim *what,
                    const claim_sum *planned, const claim_sum *measured, const char *differs);

/* Cells of a table's rows: not a number, NULL or false where there is none of the kind. */
double claim_number(const json_t *row, const char *column);
const char *claim_text(const json_t *row, const char *column);
bool claim_is(const json_t *row, const char *column, const char *text);
/* Adds the different whole numbers of a column to a text, in their order: "32, 64". */
void claim_list(const json_t *rows, const char *column, char *out, size_t bytes);

/* The columns of a table of such rows; ends with NULL. */
extern const char *const claims_columns[];

#endif
