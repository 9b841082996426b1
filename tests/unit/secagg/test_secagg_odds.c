/*
 * test_secagg_odds.c - tails of the hypergeometric distribution beside whole-number arithmetic, and
 * the set-ups that follow.
 */
#include "random.h"

#include <dunlin/server.h>
#include <wire/secagg_odds.h>

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

/* Computed with fractions of whole numbers, then one logarithm. */
Test(secagg_odds, tails_of_large_ones)
{
    static const struct {
        uint32_t n_all, n_marked, n_drawn, least;
        double wanted;
    } rows[] = {{999, 50, 100, 40, -112.4547412704},
                {999, 300, 100, 51, -18.4042267448},
                {65535, 6554, 150, 76, -117.9580343760},
                {99, 30, 40, 20, -10.9222782030},
                {19, 7, 8, 5, -3.8911718300}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_assert_float_eq(
            dunlin__secagg_tail(rows[i].n_all, rows[i].n_marked, rows[i].n_drawn, rows[i].least),
            rows[i].wanted, 1e-8, "row %zu", i);
    }
}

static double binomial(uint32_t n, uint32_t k)
{
    double result = 1.0;
    for (uint32_t i = 0; i < k; i++) {
        result = result * (double)(n - i) / (double)(i + 1);
    }
    return result;
}

Test(secagg_odds, every_tail_of_small_ones)
{
    for (uint32_t n = 1; n <= 14; n++) {
        for (uint32_t marked = 0; marked <= n; marked++) {
            for (uint32_t drawn = 0; drawn <= n; drawn++) {
                for (uint32_t least = 0; least <= n + 1; least++) {
                    double sum = 0.0;
                    for (uint32_t x = least; x <= marked && x <= drawn; x++) {
                        if (drawn - x <= n - marked) {
                            sum += binomial(marked, x) * binomial(n - marked, drawn - x);
                        }
                    }
                    const double found = exp2(dunlin__secagg_tail(n, marked, drawn, least));
                    cr_assert_float_eq(found, sum / binomial(n, drawn), 1e-12,
                                       "%u of %u, %u drawn, %u", marked, n, drawn, least);
                }
            }
        }
    }
}

/* The same search with fractions of whole numbers. */
Test(secagg_odds, the_fewest_neighbours)
{
    static const struct {
        uint32_t n;
        double corrupt, dropout;
        uint32_t neighbours, least, most;
    } rows[] = {{100, 0.1, 0.1, 22, 12, 12},
                {1000, 0.05, 0.3, 174, 88, 88},
                {1000, 0.1, 0.1, 46, 26, 26},
                {10, 0.0, 0.2, 6, 4, 4}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const dunlin__secagg_wish wish = {rows[i].n, rows[i].corrupt, rows[i].dropout, 40.0, 20.0};
        dunlin__secagg_setup setup;
        dunlin_error error = {0};
        cr_assert_eq(dunlin__secagg_choose(&wish, 254, &setup, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(setup.n_neighbours, rows[i].neighbours, "row %zu: %u", i, setup.n_neighbours);
        cr_assert_eq(setup.least_threshold, rows[i].least, "row %zu", i);
        cr_assert_eq(setup.most_threshold, rows[i].most, "row %zu", i);
        cr_assert_eq(dunlin__secagg_judge(&wish, setup.n_neighbours, setup.threshold, &error),
                     DUNLIN_OK);
    }
}

/* On a circle: the bound on a cut is not below how often one is seen. */
Test(secagg_odds, a_circle_is_cut_no_more_often_than_said)
{
    uint64_t state = test_seed(331);
    const uint32_t n = 20;
    const int n_runs = 4000;
    const dunlin__secagg_wish wish = {n, 0.25, 0.25, 40.0, 20.0};
    const double bound = exp2(dunlin__secagg_odds_of(&wish, 4, 3).connected);
    int n_cut = 0;
    for (int run = 0; run < n_runs; run++) {
        bool is_missing[20] = {false};
        for (int left = 10; left > 0;) {
            const size_t at = (size_t)test_random_below(&state, n);
            left -= is_missing[at] ? 0 : 1;
            is_missing[at] = true;
        }
        int n_gaps = 0; /* that nobody reaches across: two in a row, counted at their ends */
        for (uint32_t i = 0; i < n; i++) {
            n_gaps += is_missing[i] && is_missing[(i + 1) % n] && !is_missing[(i + 2) % n] ? 1 : 0;
        }
        n_cut += n_gaps >= 2 ? 1 : 0;
    }
    cr_assert_gt(n_cut, 0);
    cr_assert_leq((double)n_cut / n_runs, fmin(bound, 1.0));
}

Test(secagg_odds, a_weak_setup_is_refused)
{
    const dunlin__secagg_wish wish = {1000, 0.1, 0.1, 40.0, 20.0};
    dunlin_error error = {0};
    cr_assert_eq(dunlin__secagg_judge(&wish, 20, 11, &error), DUNLIN_REJECTED);
    cr_assert_not_null(strstr(error.text, "20 neighbours and threshold 11: a secret"), "%s",
                       error.text);
    cr_assert_eq(dunlin__secagg_judge(&wish, 46, 40, &error), DUNLIN_REJECTED);
    cr_assert_not_null(strstr(error.text, "without a sum"), "%s", error.text);
    dunlin__secagg_setup setup;
    const dunlin__secagg_wish hopeless = {1000, 0.45, 0.5, 40.0, 20.0};
    cr_assert_eq(dunlin__secagg_choose(&hopeless, 254, &setup, &error), DUNLIN_REJECTED);
    cr_assert_not_null(strstr(error.text, "no number of neighbours up to 254"), "%s", error.text);
}

Test(secagg_odds, wishes_outside_their_range_are_named)
{
    static const struct {
        dunlin__secagg_wish wish;
        const char *wanted;
    } rows[] = {
        {{2, 0.1, 0.1, 40, 20}, "devices is 2"},    {{65537, 0.1, 0.1, 40, 20}, "devices is 65537"},
        {{10, 1.0, 0.1, 40, 20}, "corrupt is 1"},   {{10, -0.1, 0.1, 40, 20}, "corrupt is -0.1"},
        {{10, 0.1, NAN, 40, 20}, "dropout is"},     {{10, 0.1, 0.1, 0, 20}, "security is 0"},
        {{10, 0.1, 0.1, 40, 300}, "failure is 300"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        dunlin_error error = {0};
        cr_assert_eq(dunlin__secagg_judge(&rows[i].wish, 4, 3, &error), DUNLIN_ARGUMENT);
        cr_assert_not_null(strstr(error.text, rows[i].wanted), "%s", error.text);
    }
}

static void expect_answer(const char *question, dunlin_status status, const char *wanted)
{
    char *text = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_server_secagg(question, &text, &error), status, "%s: %s", question,
                 error.text);
    cr_assert_not_null(strstr(text != NULL ? text : error.text, wanted), "%s: %s", question,
                       text != NULL ? text : error.text);
    dunlin_server_free_text(text);
}

Test(secagg_odds, a_table_for_a_question)
{
    expect_answer("devices=100:1000,corrupt=0.1,dropout=0.1", DUNLIN_OK, "\"neighbours\": 46");
    expect_answer("devices=100:1000,corrupt=0.1,dropout=0.1", DUNLIN_OK, "\"neighbours\": 22");
    expect_answer("devices=1000,corrupt=0.45,dropout=0.5", DUNLIN_OK, "\"neighbours\": null");
    expect_answer("devices=1000,corrupt=0.1,dropout=0.1,neighbours=46,threshold=26", DUNLIN_OK,
                  "\"holds\": true");
    expect_answer("devices=1000,corrupt=0.1,dropout=0.1,neighbours=20,threshold=11", DUNLIN_OK,
                  "\"holds\": false");
    expect_answer("devices=1000,security=60", DUNLIN_OK, "\"security_bits\": 60");
    expect_answer("devices=100,honest=1", DUNLIN_ARGUMENT, "'honest=1'");
    expect_answer("devices=100:,corrupt=0.1", DUNLIN_ARGUMENT, "'devices=100:'");
    expect_answer("corrupt=0.1", DUNLIN_ARGUMENT, "devices=N");
    expect_answer("devices=100,neighbours=20", DUNLIN_ARGUMENT, "threshold");
    expect_answer("devices=2", DUNLIN_ARGUMENT, "devices is 2");
    expect_answer("devices=100,neighbours=21,threshold=12", DUNLIN_ARGUMENT, "n_neighbours is 21");
}
