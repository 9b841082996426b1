/*
 * test_claims.c - a paper's figures beside ours: cases become a number, and a number a word, by the
 * rule in claims.h.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>
#include <study/claims.h>

#define NONE ((double)NAN)

/* As rows.c rounds them; the table of rows is none of this test's. */
void row_set_text(json_t *row, const char *column, const char *text)
{
    (void)json_object_set_new(row, column, text == NULL ? json_null() : json_string(text));
}

void row_set_int(json_t *row, const char *column, int64_t number)
{
    (void)json_object_set_new(row, column, json_integer(number));
}

void row_set_real(json_t *row, const char *column, double number)
{
    (void)json_object_set_new(row, column, isfinite(number) ? json_real(number) : json_null());
}

static const claim speed = {"speed",        "abstract", "throughput", "x",
                            CLAIM_AT_LEAST, CLAIM_MEAN, 2.0,          1.0};

/* The word for one case with its range. */
static const char *word_of(const claim *what, double value, double low, double high)
{
    claim_sum sum = claim_begin(what);
    claim_add(&sum, value, low, high, "a case");
    return claim_word(&sum);
}

Test(claims, without_a_case_nothing_is_claimed)
{
    claim_sum sum = claim_begin(&speed);
    double value = 0.0;
    double low = 0.0;
    double high = 0.0;
    cr_expect_str_eq(claim_word(&sum), "not run here");
    claim_add(&sum, NONE, 1.0, 2.0, "no number is no case");
    claim_add(&sum, (double)INFINITY, 1.0, 2.0, "nor is this one");
    cr_expect_str_eq(claim_word(&sum), "not run here");
    cr_expect(!claim_value(&sum, &value, &low, &high));
}

Test(claims, the_unfavourable_end_has_to_reach_the_number)
{
    cr_expect_str_eq(word_of(&speed, 2.0, NONE, NONE), "holds");
    cr_expect_str_eq(word_of(&speed, 2.5, 2.0, 3.0), "holds");
    cr_expect_str_eq(word_of(&speed, 2.5, 1.99, 3.0), "holds in part");
    cr_expect_str_eq(word_of(&speed, 1.01, 0.5, 3.0), "holds in part");
    cr_expect_str_eq(word_of(&speed, 1.0, 1.0, 3.0), "does not hold");
    cr_expect_str_eq(word_of(&speed, 0.5, 0.4, 0.6), "does not hold");
}

Test(claims, less_may_be_better)
{
    claim less = speed;
    less.sense = CLAIM_AT_MOST;
    less.paper = 0.5;
    cr_expect_str_eq(word_of(&less, 0.5, NONE, NONE), "holds");
    cr_expect_str_eq(word_of(&less, 0.4, 0.1, 0.51), "holds in part");
    cr_expect_str_eq(word_of(&less, 0.99, NONE, NONE), "holds in part");
    cr_expect_str_eq(word_of(&less, 1.0, NONE, NONE), "does not hold");
    claim_sum sum = claim_begin(&less);
    less.form = CLAIM_EXTREME;
    double value = 0.0;
    double low = 0.0;
    double high = 0.0;
    claim_add(&sum, 0.7, NONE, NONE, "more");
    claim_add(&sum, 0.3, 0.2, 0.4, "least");
    claim_add(&sum, 0.6, NONE, NONE, "middle");
    cr_assert(claim_value(&sum, &value, &low, &high));
    cr_expect(fabs(value - 0.3) < 1e-12 && fabs(low - 0.2) < 1e-12 && fabs(high - 0.4) < 1e-12);
    cr_expect_str_eq(sum.best_name, "least");
}

/* 17.8 times an inference: a quarter to either side. */
Test(claims, about_is_within_a_quarter)
{
    claim about = speed;
    about.sense = CLAIM_ABOUT;
    about.paper = 16.0;
    cr_expect_str_eq(word_of(&about, 12.0, NONE, NONE), "holds");
    cr_expect_str_eq(word_of(&about, 20.0, NONE, NONE), "holds");
    cr_expect_str_eq(word_of(&about, 20.1, NONE, NONE), "holds in part");
    cr_expect_str_eq(word_of(&about, 11.9, NONE, NONE), "holds in part");
    cr_expect_str_eq(word_of(&about, 1.0, NONE, NONE), "does not hold");
    about.paper = 0.5;
    cr_expect_str_eq(word_of(&about, 0.9, NONE, NONE), "holds in part");
    cr_expect_str_eq(word_of(&about, 1.5, NONE, NONE), "does not hold");
}

/* The mean has to be beyond the value of no effect, with its range. */
Test(claims, without_a_number_the_effect_counts)
{
    claim open = speed;
    open.paper = NONE;
    cr_expect_str_eq(word_of(&open, 1.2, 1.1, 1.3), "holds");
    cr_expect_str_eq(word_of(&open, 1.2, 0.9, 1.3), "holds in part");
    claim_sum sum = claim_begin(&open);
    claim_add(&sum, 3.0, NONE, NONE, "one case with it");
    claim_add(&sum, -2.0, NONE, NONE, "one against");
    cr_expect_str_eq(claim_word(&sum), "does not hold");
}

/* The paper gives no number, or says so of every case. */
Test(claims, in_every_case)
{
    claim each = speed;
    each.form = CLAIM_EACH;
    each.paper = NONE;
    claim_sum sum = claim_begin(&each);
    claim_add(&sum, 1.5, 1.2, 1.8, "clear");
    cr_expect_str_eq(claim_word(&sum), "holds");
    claim_add(&sum, 1.5, 0.9, 2.1, "not beyond its range");
    cr_expect_str_eq(claim_word(&sum), "holds in part");
    cr_expect(sum.n == 2 && sum.n_good == 1 && sum.n_part == 2);
    claim_sum none = claim_begin(&each);
    claim_add(&none, 1.0, NONE, NONE, "nothing");
    claim_add(&none, 0.9, NONE, NONE, "less");
    cr_expect_str_eq(claim_word(&none), "does not hold");
    each.paper = 1.4;
    claim_sum bar = claim_begin(&each);
    claim_add(&bar, 1.5, NONE, NONE, "there");
    claim_add(&bar, 1.3, NONE, NONE, "not there");
    cr_expect_str_eq(claim_word(&bar), "holds in part");
}

Test(claims, a_mean_is_over_the_cases)
{
    claim_sum sum = claim_begin(&speed);
    double value = 0.0;
    double low = 0.0;
    double high = 0.0;
    claim_add(&sum, 1.0, 0.5, 2.0, "a");
    claim_add(&sum, 4.0, NONE, NONE, "b");
    cr_assert(claim_value(&sum, &value, &low, &high));
    cr_expect(fabs(value - 2.5) < 1e-12 && fabs(low - 2.25) < 1e-12 && fabs(high - 3.0) < 1e-12);
    cr_expect_str_eq(claim_word(&sum), "holds");
}

static void expect_cell(const json_t *row, const char *column, double number)
{
    cr_expect(fabs(claim_number(row, column) - number) < 1e-12, "%s is %g, not %g", column,
              claim_number(row, column), number);
}

Test(claims, a_row_has_both_kinds_and_every_column)
{
    claim_sum planned = claim_begin(&speed);
    claim_sum measured = claim_begin(&speed);
    json_t *rows = json_array();
    claim_add(&planned, 2.5, NONE, NONE, "a");
    claim_add(&measured, 1.5, 1.4, 1.6, "b");
    claims_add_row(rows, "melon", &speed, &planned, &measured, "a desk, not a phone");
    claims_add_row(rows, "melon", &speed, NULL, &(claim_sum){.of = &speed}, "nothing ran");
    const json_t *row = json_array_get(rows, 0);
    expect_cell(row, "paper", 2.0);
    expect_cell(row, "ours", 2.5);
    expect_cell(row, "time_ours", 1.5);
    expect_cell(row, "time_ours_low", 1.4);
    cr_expect(claim_is(row, "holds", "holds") && claim_is(row, "time_holds", "holds in part"));
    cr_expect_str_eq(claim_text(row, "rule"), "holds: at least 2; in part: above 1");
    cr_expect_str_eq(claim_text(row, "differs"), "a desk, not a phone");
    row = json_array_get(rows, 1);
    cr_expect(claim_is(row, "holds", "not run here") && claim_text(row, "time_holds") == NULL);
    cr_expect(isnan(claim_number(row, "ours")));
    for (const char *key = NULL, *const *c = claims_columns; *c != NULL; c++) {
        key = *c;
        const bool is_of_extremes = strstr(key, "best_case") != NULL;
        cr_expect(is_of_extremes || json_object_get(json_array_get(rows, 0), key) != NULL,
                  "no cell of the column %s", key);
    }
    json_decref(rows);
}

Test(claims, numbers_of_a_column_once_each)
{
    json_t *rows =
        json_pack("[{s:i}, {s:i}, {s:n}, {s:i}]", "image", 32, "image", 64, "image", "image", 32);
    char text[32] = "images of ";
    char small[8] = "";
    claim_list(rows, "image", text, sizeof text);
    cr_expect_str_eq(text, "images of 32, 64");
    claim_list(rows, "image", small, 4);
    cr_expect(strlen(small) < 4, "a text that is too short for the numbers is cut off");
    json_decref(rows);
}
