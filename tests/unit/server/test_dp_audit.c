/*
 * test_dp_audit.c - an attack on private rounds: a canary device that is there or not, told apart
 * by the models of many small runs. What it finds is a lower bound of epsilon, which must never be
 * above the one that is told.
 *
 * The bound is that of Jagielski, Ullman, Oprea 2020 ("Auditing Differentially Private Machine
 * Learning"): rates of one fixed test with the limits of Clopper and Pearson.
 */
#include "dp_fleet.h"
#include "random.h"
#include "server/must.h"
#include "state/db.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS 3
#define WRONG 1e-5 /* the chance of each limit to be wrong */

/* log of the chance of k of n. */
static double log_chance(int n, int k, double p)
{
    const double ways = lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0);
    return ways + (k > 0 ? k * log(p) : 0) + (k < n ? (n - k) * log1p(-p) : 0);
}

/* The largest rate with which k of n or fewer still happen with the chance WRONG. */
static double rate_at_most(int n, int k)
{
    double low = (double)k / n;
    double high = 1;
    if (k == n) {
        return 1;
    }
    for (int i = 0; i < 60; i++) {
        const double p = (low + high) / 2;
        double tail = 0;
        for (int j = 0; j <= k; j++) {
            tail += exp(log_chance(n, j, p));
        }
        *(tail > WRONG ? &low : &high) = p;
    }
    return high;
}

/* The epsilon that a test shows which says "there" k_in of n times when the canary is there and
 * k_out of n times when it is not. */
static double least_epsilon(int n, int k_in, int k_out, double delta)
{
    const double hit = 1 - rate_at_most(n, n - k_in);
    const double alarm = rate_at_most(n, k_out);
    const double calm = 1 - alarm;
    const double miss = 1 - hit;
    double least = 0;
    least = hit > delta ? fmax(least, log((hit - delta) / alarm)) : least;
    return calm > delta ? fmax(least, log((calm - delta) / miss)) : least;
}

/* One run; gives how far the model went along the canary's update. */
static double run_once(const char *keys, bool is_there, double *out_epsilon)
{
    test_server fixture;
    test_device canary;
    float update[DP_VALUES];
    float model[DP_VALUES];
    double along = 0;
    dp_begin(&fixture);
    test_server_open(&fixture, keys, 0);
    dp_join_all(&fixture, &canary, 1);
    dp_fill(update, 0);
    update[0] = DP_CLIP;
    for (int round = 0; round < ROUNDS; round++) {
        if (is_there) {
            cr_assert_eq(dp_contribute_all(&canary, 1, update, 9), 1);
        }
        dp_close_round(&fixture);
    }
    *out_epsilon = fixture.server.closed[ROUNDS - 1].epsilon;
    test_read_model(&fixture, ROUNDS + 1, model);
    for (int i = 0; i < DP_VALUES; i++) {
        along += (double)model[i] * (double)update[i];
    }
    dp_end(&fixture);
    return along;
}

static double audit(const char *keys, int n, double *out_epsilon)
{
    int k_in = 0;
    int k_out = 0;
    for (int i = 0; i < n; i++) {
        k_in += run_once(keys, true, out_epsilon) > ROUNDS * DP_CLIP / 2 ? 1 : 0;
        k_out += run_once(keys, false, out_epsilon) > ROUNDS * DP_CLIP / 2 ? 1 : 0;
    }
    const double least = least_epsilon(n, k_in, k_out, 1e-5);
    (void)printf("%d runs each: %d and %d, epsilon at least %.3f, told %.3f\n", n, k_in, k_out,
                 least, *out_epsilon);
    return least;
}

/* 250 runs with the canary and 250 without, with --long. */
Test(dp_audit, the_canary_never_shows_more_than_is_told)
{
    const int n = test_cases(25);
    double told = 0;
    const double least = audit(DP("4", "1", "1", "\"noise\": 1"), n, &told);
    cr_expect_leq(least, told);
    cr_expect_gt(told, 0);
    const double tree =
        audit(DP("4", "1", "1", "\"noise\": 1.5, \"mechanism\": \"tree\""), n, &told);
    cr_expect_leq(tree, told);
}

/* The attack finds what there is to be found: with hardly any noise it shows a large epsilon. */
Test(dp_audit, the_attack_sees_a_canary_without_noise)
{
    const int n = test_cases(25);
    double told = 0;
    const double least = audit(DP("4", "1", "1", "\"noise\": 0.05"), n, &told);
    cr_expect_leq(least, told);
    if (n >= 25) { /* fewer runs tell nothing at 1e-5 */
        cr_expect_gt(least, 0.3, "%g of %d", least, n);
    }
}

Test(dp_audit, limits_of_rates_are_those_of_the_tables)
{
    /* Of Clopper and Pearson at 1e-5: with none of n the limit is 1 - 1e-5^(1/n). */
    cr_expect_float_eq(rate_at_most(100, 0), 1 - pow(WRONG, 0.01), 1e-9);
    cr_expect_float_eq(rate_at_most(1, 0), 1 - WRONG, 1e-9);
    cr_expect_float_eq(least_epsilon(1000, 500, 500, 0), 0, 0, "a test that tells nothing");
    cr_expect_gt(least_epsilon(1000, 1000, 0, 0), 4.4);
}
