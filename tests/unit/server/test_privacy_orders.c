/*
 * test_privacy_orders.c - costs of orders beside a slow program's 20 digits and a sum in long
 * double; the way to epsilon beside numbers that others have published.
 */
#include "privacy/gaussian.h"
#include "privacy/rdp.h"
#include "privacy_table.h"

#include <criterion/criterion.h>

#include <math.h>
#include <random.h>

#define WANTED 1e-9 /* relative */

static void expect_near(double found, double wanted, double relative, const char *what)
{
    cr_assert(fabs(found - wanted) <= relative * fabs(wanted), "%s: %.17g, not %.17g (off by %.2g)",
              what, found, wanted, found / wanted - 1);
}

Test(privacy_orders, the_list_goes_from_one_and_a_quarter_to_512)
{
    cr_assert(dunlin__rdp_order(0) <= 1.25 && dunlin__rdp_order(0) >= 1.25);
    for (size_t i = 1; i < DUNLIN_RDP_ORDERS; i++) {
        cr_assert_gt(dunlin__rdp_order(i), dunlin__rdp_order(i - 1), "%zu", i);
    }
    cr_assert(dunlin__rdp_order(DUNLIN_RDP_ORDERS - 1) >= 512);
    cr_assert(dunlin__rdp_order(DUNLIN_RDP_ORDERS - 1) <= 512);
}

Test(privacy_orders, sampled_moments_are_the_integrals)
{
    FILE *file = table_open("sampled");
    table_row row;
    int n = 0;
    while (table_next(file, &row)) {
        char what[1024];
        (void)snprintf(what, sizeof what, "noise %s, rate %s, order %s", row.text[0], row.text[1],
                       row.text[2]);
        expect_near(dunlin__rdp_sampled(row.value[0], row.value[1], row.value[2]), row.value[3],
                    WANTED, what);
        n++;
    }
    cr_assert_geq(n, 100);
}

/* Of a whole order, by the binomial theorem, without what the terms of 0 and 1 have. */
static double by_binomials(double noise, double rate, int order)
{
    long double sum = 0;
    long double choose = order;
    const long double q = rate;
    for (int k = 2; k <= order; k++) {
        choose = choose * (order - k + 1) / k;
        sum += choose * powl(1 - q, order - k) * powl(q, k) *
               expm1l((long double)k * (k - 1) / (2 * (long double)noise * noise));
    }
    return (double)(log1pl(sum) / (order - 1));
}

Test(privacy_orders, sampled_moments_of_whole_orders_are_the_sums)
{
    uint64_t state = test_seed(37);
    const int n_cases = test_cases(300);
    for (int c = 0; c < n_cases; c++) {
        const double noise = exp(test_random_range(log(0.4), log(100), &state));
        const double rate = exp(test_random_range(log(1e-7), log(0.99), &state));
        const int order = 2 + (int)test_random_below(&state, 40);
        char what[128];
        (void)snprintf(what, sizeof what, "noise %.17g, rate %.17g, order %d", noise, rate, order);
        expect_near(dunlin__rdp_sampled(noise, rate, order), by_binomials(noise, rate, order),
                    WANTED, what);
    }
}

Test(privacy_orders, every_order_in_is_sampled_at_a_chance_of_one)
{
    expect_near(dunlin__rdp_sampled(2, 1, 7.5), dunlin__rdp_gaussian(2, 7.5), 1e-15, "rate 1");
    /* and the integral leads there */
    expect_near(dunlin__rdp_sampled(2, 1 - 1e-12, 7.5), dunlin__rdp_gaussian(2, 7.5), 1e-9,
                "rate nearly 1");
}

Test(privacy_orders, discrete_costs_are_the_exact_sums_and_never_above_the_other_ones)
{
    FILE *file = table_open("discrete");
    table_row row;
    int n = 0;
    while (table_next(file, &row)) {
        const double variance = row.value[0];
        const double rate = row.value[2];
        const double order = row.value[3];
        const uint64_t shift = (uint64_t)row.value[1];
        char what[1024];
        (void)snprintf(what, sizeof what, "variance %s, shift %s, rate %s, order %s", row.text[0],
                       row.text[1], row.text[2], row.text[3]);
        expect_near(dunlin__rdp_discrete_sampled(variance, shift, rate, order), row.value[4],
                    WANTED, what);
        const double noise = sqrt(variance) / (double)shift;
        if (rate >= 1) {
            expect_near(dunlin__rdp_discrete(variance, shift, order), row.value[4], WANTED, what);
            cr_assert_leq(row.value[4], dunlin__rdp_gaussian(noise, order) * (1 + 1e-12), "%s",
                          what);
        } else if (!(order > floor(order))) {
            cr_assert_leq(row.value[4], dunlin__rdp_sampled(noise, rate, order) * (1 + 1e-12), "%s",
                          what);
        }
        n++;
    }
    cr_assert_geq(n, 60);
}

Test(privacy_orders, a_fixed_cohort_has_the_bound_of_the_paper)
{
    FILE *file = table_open("fixed");
    table_row row;
    int n = 0;
    while (table_next(file, &row)) {
        char what[1024];
        (void)snprintf(what, sizeof what, "noise %s, share %s, order %s", row.text[0], row.text[1],
                       row.text[2]);
        expect_near(dunlin__rdp_fixed(row.value[0], row.value[1], row.value[2]), row.value[3],
                    WANTED, what);
        n++;
    }
    cr_assert_geq(n, 60);
}

/* What an attack can learn of a fixed cohort: the device's value is 1 or -1, all others' are 0. The
 * divergence of the two outcomes, by a plain sum. */
static double attacked(double noise, double share, double order)
{
    double sum = 0;
    const double step = noise / 200;
    for (double z = -1 - 20 * noise; z < 4 * order + 20 * noise; z += step) {
        const double none = exp(-z * z / (2 * noise * noise));
        const double up = exp(-(z - 1) * (z - 1) / (2 * noise * noise));
        const double down = exp(-(z + 1) * (z + 1) / (2 * noise * noise));
        const double p = (1 - share) * none + share * up;
        const double q = (1 - share) * none + share * down;
        sum += p > 0 && q > 0 ? q * pow(p / q, order) : 0;
    }
    return log(sum * step / (noise * sqrt(2 * 3.14159265358979323846))) / (order - 1);
}

Test(privacy_orders, a_fixed_cohort_costs_more_than_an_attack_finds)
{
    for (double noise = 1; noise < 9; noise *= 2) {
        for (double share = 0.01; share <= 1; share *= 3) {
            for (double order = 2; order < 9; order += 1.5) {
                const double least = attacked(noise, share, order);
                const double found = dunlin__rdp_fixed(noise, share, order);
                cr_assert_geq(found, least, "noise %g, share %g, order %g: %g < %g", noise, share,
                              order, found, least);
            }
        }
    }
}

/* Of constant costs over whole orders: a number of Google's tests of dp_accounting. */
Test(privacy_orders, epsilon_is_the_published_one)
{
    double orders[31];
    double costs[31];
    for (int i = 0; i < 31; i++) {
        orders[i] = i + 2;
        costs[i] = 1.1;
    }
    double order = 0;
    expect_near(dunlin__rdp_epsilon_of(orders, costs, 31, 1e-5, &order), 1.32783806176, 1e-9,
                "cost 1.1");
    cr_assert(order >= 32 && order <= 32);
}

/* What dp_accounting gives, over the orders that it was asked for. */
Test(privacy_orders, sampled_runs_have_the_epsilon_that_another_accountant_finds)
{
    static const double cases[][5] = {{0.01, 1.1, 1000, 1e-5, 1.711770},
                                      {0.01, 1.0, 1500, 1e-6, 2.858044},
                                      {0.05, 1.0, 1500, 1e-6, 16.571858},
                                      {0.001, 0.8, 10000, 1e-8, 2.341204}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double costs[DUNLIN_RDP_ORDERS];
        for (size_t i = 0; i < DUNLIN_RDP_ORDERS; i++) {
            costs[i] =
                cases[c][2] * dunlin__rdp_sampled(cases[c][1], cases[c][0], dunlin__rdp_order(i));
        }
        const double found = dunlin__rdp_epsilon(costs, cases[c][3], NULL);
        /* More orders than there: never above, and near where its orders are as dense. */
        cr_assert_leq(found, cases[c][4] + 1e-6, "case %zu: %.9g", c, found);
        cr_assert_geq(found, cases[c][4] * 0.995, "case %zu: %.9g", c, found);
    }
}

Test(privacy_orders, the_plain_gaussian_is_exact)
{
    FILE *file = table_open("gaussian");
    table_row row;
    int n = 0;
    while (table_next(file, &row)) {
        const double found = dunlin__gaussian_epsilon(row.value[0], row.value[1]);
        char what[1024];
        (void)snprintf(what, sizeof what, "mu %s, delta %s", row.text[0], row.text[1]);
        cr_assert_geq(found, row.value[2], "%s: %.17g", what, found);
        expect_near(found, row.value[2], 1e-8, what);
        /* and no order is below it */
        double costs[DUNLIN_RDP_ORDERS];
        for (size_t i = 0; i < DUNLIN_RDP_ORDERS; i++) {
            costs[i] = dunlin__rdp_gaussian(1 / row.value[0], dunlin__rdp_order(i));
        }
        cr_assert_geq(dunlin__rdp_epsilon(costs, row.value[1], NULL), row.value[2], "%s", what);
        n++;
    }
    cr_assert_geq(n, 20);
}
