/*
 * test_secagg_skellam.c - Skellam noise of the devices: draws beside the table of their
 * distribution, sums of them, how far they reach, what they cost beside exact moments.
 */
#include "noise_cases.h"

#include <criterion/criterion.h>

#include <math.h>

static dunlin__secagg_plan skellam_terms(uint32_t n, uint32_t scale)
{
    return noise_terms(DUNLIN_V1_SECAGG_NOISE_SKELLAM, n, scale);
}

/* ---- the distribution, slowly ---- */

#define MOST_NUMBER 2560

/* The chances of Poisson numbers of the mean variance / 2; filled anew for another variance. */
static const long double *poisson_of(double variance)
{
    static long double table[MOST_NUMBER];
    static double filled;
    if (variance > filled || variance < filled) {
        const long double mean = (long double)variance / 2;
        for (int k = 0; k < MOST_NUMBER; k++) {
            table[k] = expl((long double)k * logl(mean) - mean - lgammal((long double)k + 1));
        }
        filled = variance;
    }
    return table;
}

/* The chance that two of them differ by x. */
static long double chance_of(double variance, int64_t x)
{
    const long double *poisson = poisson_of(variance);
    const int64_t far = x < 0 ? -x : x;
    long double sum = 0;
    for (int64_t k = 0; k + far < MOST_NUMBER; k++) {
        sum += poisson[k] * poisson[k + far];
    }
    return sum;
}

/* ---- draws ---- */

static double skellam_chance(double variance, int64_t x)
{
    return (double)chance_of(variance, x);
}

static const noise_case skellam_case = {DUNLIN_V1_SECAGG_NOISE_SKELLAM, skellam_chance};

/* Even and odd scales: the mean of the Poisson numbers is whole, or half. */
Test(secagg_skellam, draws_are_those_of_the_table)
{
    noise_expect_table(&skellam_case, 2, 1);
    noise_expect_table(&skellam_case, 3, 1);
    noise_expect_table(&skellam_case, 7, 1);
    noise_expect_table(&skellam_case, 40, 1);
}

/* What the discrete Gaussian is not: a sum is one of the same kind. */
Test(secagg_skellam, sums_are_those_of_the_table)
{
    noise_expect_table(&skellam_case, 2, 3);
    noise_expect_table(&skellam_case, 3, 5);
}

/* The fourth moment is 3 v^2 + v. */
Test(secagg_skellam, moments_of_all_scales)
{
    static const uint32_t scales[] = {2, 5, 100, 1023, 1024};
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        const double more = 1 / ((double)scales[s] * scales[s]);
        noise_expect_moments(DUNLIN_V1_SECAGG_NOISE_SKELLAM, scales[s], more);
    }
}

/* ---- reach ---- */

/* Chance of all elements that some sum leaves the reach: at most 2^-40, and not for nothing. Few
 * small numbers have a longer tail than normal ones, to which the bound must not owe its form. */
Test(secagg_skellam, the_reach_is_left_once_in_2_to_the_40)
{
    static const struct {
        uint32_t scale, devices;
    } rows[] = {{2, 3}, {2, 10}, {5, 100}, {10, 10}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dunlin__secagg_plan plan = skellam_terms(10, rows[i].scale);
        const double variance = (double)rows[i].devices * rows[i].scale * rows[i].scale;
        plan.n_cohort = rows[i].devices;
        plan.n_values = 61706;
        const int64_t reach = (int64_t)dunlin__secagg_noise_reach(&plan);
        long double tail = 0;
        for (int64_t x = reach + 1; x < reach + 400; x++) {
            tail += 2 * chance_of(variance, x);
        }
        const double chance = (double)log2l(tail * (long double)plan.n_values);
        cr_expect_leq(chance, -40, "scale %u: 2^%g", rows[i].scale, chance);
        cr_expect_geq(chance, -65, "scale %u: 2^%g", rows[i].scale, chance);
    }
    dunlin__secagg_plan plan = skellam_terms(10, 1000);
    const uint64_t skellam = dunlin__secagg_noise_reach(&plan);
    plan.noise_kind = DUNLIN_V1_SECAGG_NOISE_GAUSSIAN;
    const uint64_t gaussian = dunlin__secagg_noise_reach(&plan);
    cr_expect(skellam >= gaussian && skellam <= gaussian + 2, "fine steps: %llu, %llu",
              (unsigned long long)skellam, (unsigned long long)gaussian);
}

/* ---- what it costs ---- */

/* The moment of one element itself, of numbers moved by `shift`, at an order. */
static double exact_moment(double variance, int64_t shift, double order)
{
    const int64_t reach = (int64_t)(30 * sqrt(variance)) + 40 + (int64_t)order * shift;
    long double sum = 0;
    for (int64_t x = -reach; x <= reach; x++) {
        const long double p = logl(chance_of(variance, x - shift));
        const long double q = logl(chance_of(variance, x));
        sum += expl((long double)order * p + (1 - (long double)order) * q);
    }
    return (double)(logl(sum) / ((long double)order - 1));
}

Test(secagg_skellam, no_exact_moment_is_above_the_bound)
{
    static const double variances[] = {12, 50, 300};
    static const int64_t shifts[] = {1, 3};
    static const double orders[] = {2, 3, 8, 20};
    for (size_t v = 0; v < 3; v++) {
        for (size_t s = 0; s < 2; s++) {
            for (size_t o = 0; o < 4; o++) {
                const double shift = (double)shifts[s];
                const dunlin__secagg_skellam sum = {sqrt(variances[v]) / shift, shift, 1};
                const double bound = dunlin__secagg_skellam_moment(&sum, orders[o]);
                const double exact = exact_moment(variances[v], shifts[s], orders[o]);
                cr_expect_geq(bound, exact, "variance %g, shift %g, order %g: %g, %g", variances[v],
                              shift, orders[o], bound, exact);
                cr_expect_leq(bound, v == 2 ? exact * 1.2 : HUGE_VAL, "no more: %g, %g", bound,
                              exact);
            }
        }
    }
}

/* Two elements that are moved by 3 and 4: a vector of length 5. */
Test(secagg_skellam, moments_of_elements_add_up_below_the_bound)
{
    const dunlin__secagg_skellam sum = {sqrt(60.0) / 5, 5, 2};
    for (double order = 2; order <= 12; order += 5) {
        const double exact = exact_moment(60, 3, order) + exact_moment(60, 4, order);
        const double bound = dunlin__secagg_skellam_moment(&sum, order);
        cr_expect(bound >= exact && bound <= exact * 1.5, "order %g: %g, %g", order, bound, exact);
    }
}

/* The bound of the paper, written down again. */
static double slow_epsilon(const dunlin__secagg_skellam *sum, double n_rounds, double delta)
{
    const double length2 = sum->value_limit;
    const double length1 = length2 * fmin(length2, sqrt(sum->n_values));
    const double variance = pow(sum->multiplier * length2, 2);
    double best = HUGE_VAL;
    for (double a = 2; a < 60000; a++) {
        const double one = ((2 * a - 1) * length2 * length2 + 6 * length1) / (4 * pow(variance, 2));
        const double other = 3 * length1 / (2 * variance);
        const double moment =
            n_rounds * (a * length2 * length2 / (2 * variance) + (one < other ? one : other));
        best = fmin(best, moment + log1p(-1 / a) - log(delta * a) / (a - 1));
    }
    return best;
}

Test(secagg_skellam, epsilon_is_that_of_the_best_order)
{
    static const double noises[] = {0.5, 1, 4, 30, 1000};
    static const double limits[] = {1, 20, 5000};
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 3; k++) {
            const dunlin__secagg_skellam sum = {noises[i], limits[k], 61706};
            for (uint64_t n = 1; n <= 100; n *= 100) {
                const double slow = slow_epsilon(&sum, (double)n, 1e-5);
                const double quick = dunlin__secagg_skellam_epsilon(&sum, n, 1e-5);
                cr_expect(quick >= slow * (1 - 1e-9) && quick <= slow * (1 + 1e-3),
                          "noise %g, limit %g, %d rounds: %.9g, %.9g", noises[i], limits[k], (int)n,
                          quick, slow);
            }
        }
    }
    /* Fine steps cost what normal noise does, but for orders that are no whole ones. */
    const dunlin__secagg_skellam fine = {4, 1e6, 61706};
    const double skellam = dunlin__secagg_skellam_epsilon(&fine, 10, 1e-5);
    const double gaussian = dunlin__secagg_noise_epsilon(4, 0, 10, 1e-5);
    cr_expect(skellam >= gaussian && skellam <= gaussian * 1.01, "%g, %g", skellam, gaussian);
    cr_expect_float_eq(dunlin__secagg_skellam_epsilon(&fine, 0, 1e-5), 0, 0);
    const dunlin__secagg_skellam none = {0, 5, 5};
    cr_expect(isinf(dunlin__secagg_skellam_epsilon(&none, 1, 1e-5)));
}

Test(secagg_skellam, epsilon_of_terms_is_that_of_their_kind)
{
    dunlin__secagg_plan plan = skellam_terms(10, 1000);
    const dunlin__secagg_skellam sum = {dunlin__secagg_noise_multiplier(&plan), 4096, 1000};
    cr_expect_float_eq(dunlin__secagg_plan_epsilon(&plan, 5, 1e-5),
                       dunlin__secagg_skellam_epsilon(&sum, 5, 1e-5), 0);
    plan.noise_kind = DUNLIN_V1_SECAGG_NOISE_GAUSSIAN;
    cr_expect_float_eq(
        dunlin__secagg_plan_epsilon(&plan, 5, 1e-5),
        dunlin__secagg_noise_epsilon(
            sum.multiplier, 1000 * dunlin__secagg_noise_gap(1000, plan.least_honest), 5, 1e-5),
        0);
}

/* ---- terms ---- */

/* The other kind goes on to any scale. */
Test(secagg_skellam, terms_beyond_the_most_scale)
{
    dunlin__secagg_plan plan = skellam_terms(10, 1024);
    dunlin_error error = {0};
    cr_assert_eq(dunlin__secagg_check(&plan, &error), DUNLIN_OK, "%s", error.text);
    plan.noise_scale = 1025;
    noise_expect_refused(&plan, "noise_scale is 1025 whole numbers, allowed are 2 to 1024");
    plan.noise_kind = DUNLIN_V1_SECAGG_NOISE_GAUSSIAN;
    cr_expect_eq(dunlin__secagg_check(&plan, &error), DUNLIN_OK, "%s", error.text);
}
