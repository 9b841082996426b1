/*
 * test_secagg_noise.c - noise of the devices: what both kinds have alike, then the discrete
 * Gaussian: draws beside its table, sums of them beside exact sums, how far they reach, what they
 * cost; and the length of whole numbers.
 */
#include "noise_cases.h"
#include "privacy/rdp.h"
#include "random.h"

#include <wire/fixed_point.h>

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

static const dunlin_v1_secagg_noise_t both[] = {DUNLIN_V1_SECAGG_NOISE_GAUSSIAN,
                                                DUNLIN_V1_SECAGG_NOISE_SKELLAM};

static dunlin__secagg_plan noisy_terms(uint32_t n, uint32_t scale)
{
    return noise_terms(DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, n, scale);
}

/* ---- both kinds ---- */

Test(secagg_noise, two_devices_draw_otherwise)
{
    for (int k = 0; k < 2; k++) {
        noise_expect_others(both[k]);
    }
}

Test(secagg_noise, terms_that_do_not_go_together)
{
    for (int k = 0; k < 2; k++) {
        noise_expect_terms(both[k]);
    }
}

Test(secagg_noise, a_mean_allows_for_the_noise)
{
    for (int k = 0; k < 2; k++) {
        noise_expect_mean(both[k]);
    }
}

/* ---- draws ---- */

/* e^(-x^2 / (2 variance)) over its sum. */
static double gaussian_chance(double variance, int64_t x)
{
    const int64_t reach = (int64_t)(40 * sqrt(variance));
    double sum = 0;
    for (int64_t k = -reach; k <= reach; k++) {
        sum += exp(-(double)(k * k) / (2 * variance));
    }
    return exp(-(double)(x * x) / (2 * variance)) / sum;
}

Test(secagg_noise, draws_are_those_of_the_table)
{
    static const noise_case gaussian = {DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, gaussian_chance};
    noise_expect_table(&gaussian, 2, 1);
    noise_expect_table(&gaussian, 3, 1);
    noise_expect_table(&gaussian, 7, 1);
}

/* Large scales: the moments of a normal number. */
Test(secagg_noise, moments_of_large_scales)
{
    noise_expect_moments(DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, 1000, 0);
    noise_expect_moments(DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, 1u << 20, 0);
    noise_expect_moments(DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, 1u << 24, 0);
}

/* ---- sums ---- */

#define REACH 200
#define WIDTH (2 * REACH + 1)

static void fill_table(double scale, long double out_table[WIDTH])
{
    long double sum = 0;
    for (int x = -REACH; x <= REACH; x++) {
        out_table[x + REACH] = expl(-(long double)(x * x) / (2 * (long double)scale * scale));
        sum += out_table[x + REACH];
    }
    for (int i = 0; i < WIDTH; i++) {
        out_table[i] /= sum;
    }
}

/* |log| of the exact sum's probabilities over those of the one distribution, where both are no
 * rounding of 0. */
static double worst_ratio(double scale, int n_parts)
{
    static long double sum[WIDTH];
    static long double next[WIDTH];
    static long double one[WIDTH];
    static long double whole[WIDTH];
    fill_table(scale, one);
    fill_table(scale * sqrt((double)n_parts), whole);
    memcpy(sum, one, sizeof sum);
    for (int part = 1; part < n_parts; part++) {
        for (int z = 0; z < WIDTH; z++) {
            next[z] = 0;
            for (int x = 0; x < WIDTH; x++) {
                const int y = z - x + REACH;
                next[z] += y >= 0 && y < WIDTH ? one[x] * sum[y] : 0;
            }
        }
        memcpy(sum, next, sizeof sum);
    }
    double worst = 0;
    for (int i = 0; i < WIDTH; i++) {
        if (whole[i] > 1e-30L) {
            worst = fmax(worst, fabs((double)logl(sum[i] / whole[i])));
        }
    }
    return worst;
}

/* A sum of discrete Gaussians is none: by how much is bounded, for two of them not far above. */
Test(secagg_noise, sums_are_within_the_gap)
{
    static const double scales[] = {0.5, 0.6, 0.8, 1.0, 1.3};
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        for (int n = 2; n <= 5; n++) {
            const double gap = dunlin__secagg_noise_gap(scales[s], (uint64_t)n);
            const double worst = worst_ratio(scales[s], n);
            cr_expect_leq(worst, gap, "scale %g, %d parts: %g of %g", scales[s], n, worst, gap);
            cr_expect_geq(worst, n == 2 ? gap / 3 : 0, "scale %g, %d parts: %g of %g", scales[s], n,
                          worst, gap);
        }
    }
    cr_expect_float_eq(dunlin__secagg_noise_gap(2, 1), 0, 0);
    /* The end of the sum is cut off on the safe side. */
    double slow = 0;
    for (int k = 1; k < 5000; k++) {
        slow += 5 * exp(-2 * 9.869604401089358 * 2.25 * k / (k + 1));
    }
    const double quick = dunlin__secagg_noise_gap(1.5, 5000);
    cr_expect(quick >= slow && quick <= slow * 1.002, "%g, %g", quick, slow);
}

/* Chance of all elements that some sum leaves the reach: at most 2^-40, and not for nothing. */
Test(secagg_noise, the_reach_is_left_once_in_2_to_the_40)
{
    static const uint32_t devices[] = {10, 100, 1000};
    for (size_t i = 0; i < 3; i++) {
        dunlin__secagg_plan plan = noisy_terms(10, 300);
        plan.n_cohort = devices[i];
        plan.n_values = 61706;
        const double reach = (double)dunlin__secagg_noise_reach(&plan);
        const double deviation = 300 * sqrt((double)devices[i]);
        const double chance = (double)plan.n_values * erfc(reach / deviation / sqrt(2.0));
        cr_expect_leq(log2(chance), -40, "%u devices: 2^%g", devices[i], log2(chance));
        cr_expect_geq(log2(chance), -46, "%u devices: 2^%g", devices[i], log2(chance));
    }
    const dunlin__secagg_plan plain = secagg_terms(10, 9, 9, 32, 1000);
    cr_expect_eq(dunlin__secagg_noise_reach(&plain), 0);
}

/* ---- what it costs ---- */

Test(secagg_noise, the_cost_is_that_of_the_orders)
{
    static const double noises[] = {0.3, 1, 4, 30};
    static const uint64_t rounds[] = {1, 10, 1000};
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 3; k++) {
            double costs[DUNLIN_RDP_ORDERS];
            for (size_t o = 0; o < DUNLIN_RDP_ORDERS; o++) {
                costs[o] =
                    (double)rounds[k] * dunlin__rdp_gaussian(noises[i], dunlin__rdp_order(o));
            }
            const double slow = dunlin__rdp_epsilon(costs, 1e-5, NULL);
            const double quick = dunlin__secagg_noise_epsilon(noises[i], 0, rounds[k], 1e-5);
            /* Never above it but for rounding; below it where the best order is not in the list. */
            cr_expect_leq(quick, slow * (1 + 1e-8), "noise %g, %d rounds: %g, %g", noises[i],
                          (int)rounds[k], quick, slow);
            cr_expect_geq(quick,
                          slow * (noises[i] * noises[i] < (double)rounds[k] / 100 ? 0.8 : 0.999),
                          "noise %g, %d rounds: %g, %g", noises[i], (int)rounds[k], quick, slow);
        }
    }
}

/* What a sum may differ by is added: it is on epsilon twice, and takes its part of delta. */
Test(secagg_noise, the_gap_costs)
{
    const double without = dunlin__secagg_noise_epsilon(1, 0, 10, 1e-5);
    const double tiny = dunlin__secagg_noise_epsilon(1, 1e-9, 10, 1e-5);
    const double with = dunlin__secagg_noise_epsilon(1, 0.01, 10, 1e-5);
    const double less_delta = dunlin__secagg_noise_epsilon(1, 0, 10, 1e-5 * exp(-0.1));
    cr_expect(tiny > without && tiny < without + 1e-7, "%.12g, %.12g", tiny, without);
    cr_expect_float_eq(with, less_delta + 0.2, 1e-6);
    cr_expect(isinf(dunlin__secagg_noise_epsilon(1, HUGE_VAL, 1, 1e-5)));
    cr_expect_float_eq(dunlin__secagg_noise_epsilon(1, 0, 0, 1e-5), 0, 0);
    /* At a scale of 1 and a million values the gap is all there is. */
    const double gap = 1e6 * dunlin__secagg_noise_gap(1, 100);
    cr_expect_gt(dunlin__secagg_noise_epsilon(10, gap, 1, 1e-5), 100);
}

/* ---- terms ---- */

/* Keys, signatures and sealed shares are bound to the noise as to the other terms. */
Test(secagg_noise, each_number_of_the_noise_is_in_the_digest)
{
    dunlin__secagg_plan plan = noisy_terms(10, 100);
    uint8_t digests[5][DUNLIN_SHA256_BYTES];
    cr_assert_eq(dunlin__secagg_digest(&plan, digests[0], NULL), DUNLIN_OK);
    plan.noise_scale++;
    cr_assert_eq(dunlin__secagg_digest(&plan, digests[1], NULL), DUNLIN_OK);
    plan.least_honest++;
    cr_assert_eq(dunlin__secagg_digest(&plan, digests[2], NULL), DUNLIN_OK);
    plan.noise_kind = DUNLIN_V1_SECAGG_NOISE_SKELLAM;
    cr_assert_eq(dunlin__secagg_digest(&plan, digests[3], NULL), DUNLIN_OK);
    plan.noise_kind = DUNLIN_V1_SECAGG_NOISE_NONE;
    cr_assert_eq(dunlin__secagg_digest(&plan, digests[4], NULL), DUNLIN_OK);
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < i; k++) {
            cr_expect_neq(memcmp(digests[i], digests[k], DUNLIN_SHA256_BYTES), 0, "%d, %d", i, k);
        }
    }
}

/* ---- the length of whole numbers ---- */

#define N_VALUES 1000

/* A vector at the length that values are clipped to, in as many equal parts: all of its roundings
 * are drawn, half of them up. */
static size_t count_too_long(double length_factor, size_t n_runs)
{
    const dunlin__secagg_plan plan = noisy_terms(10, 100);
    static float values[N_VALUES];
    static uint32_t elements[N_VALUES];
    const double length = dunlin__fixed_point_length(&plan) * length_factor;
    size_t n_long = 0;
    for (int i = 0; i < N_VALUES; i++) {
        values[i] = (float)(length / sqrt(N_VALUES)) * (i % 2 == 0 ? 1.0f : -1.0f);
    }
    for (size_t run = 0; run < n_runs; run++) {
        dunlin__fixed_point fixed;
        uint64_t squares = 0;
        cr_assert_eq(dunlin__fixed_point_begin(&plan, 1, &fixed, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__fixed_point_next(&fixed, values, N_VALUES, elements, NULL), DUNLIN_OK);
        for (int i = 0; i < N_VALUES; i++) {
            const int64_t number = dunlin__ring_signed(elements[i], 32);
            squares += (uint64_t)(number * number);
        }
        cr_assert_eq(fixed.squares, squares);
        const bool is_within = squares <= (uint64_t)plan.value_limit * plan.value_limit;
        cr_assert_eq(dunlin__fixed_point_is_within(&fixed, &plan), is_within);
        n_long += is_within ? 0 : 1;
        dunlin__fixed_point_end(&fixed);
    }
    return n_long;
}

Test(secagg_noise, roundings_are_seldom_too_long)
{
    cr_expect_leq(count_too_long(1, 500), 12, "a chance of at most 2^-8 each");
    cr_expect_eq(count_too_long(1.01, 20), 20, "longer values are longer");
    dunlin__secagg_plan plan = noisy_terms(10, 100);
    const double length = dunlin__fixed_point_length(&plan);
    cr_expect(length < 0.5 && length > 0.499, "%g", length);
    plan.n_values = 100000000;
    cr_expect_float_eq(dunlin__fixed_point_length(&plan), 0, 0, "no length is left");
}

Test(secagg_noise, roundings_are_repeated)
{
    const dunlin__secagg_plan plan = noisy_terms(10, 100);
    uint64_t state = test_seed(77);
    float values[300];
    uint32_t first[300];
    uint32_t again[300];
    dunlin__fixed_point fixed;
    test_random_fill(values, 300, -0.01, 0.01, &state);
    cr_assert_eq(dunlin__fixed_point_begin(&plan, 1, &fixed, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__fixed_point_next(&fixed, values, 300, first, NULL), DUNLIN_OK);
    const uint64_t squares = fixed.squares;
    cr_assert_eq(dunlin__fixed_point_again(&fixed, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__fixed_point_next(&fixed, values, 300, again, NULL), DUNLIN_OK);
    cr_expect_eq(fixed.squares, squares);
    dunlin__fixed_point_end(&fixed);
    cr_expect_eq(memcmp(first, again, sizeof first), 0);
}
