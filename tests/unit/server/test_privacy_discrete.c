/*
 * test_privacy_discrete.c - the epsilon of Gaussian noise that stands for discrete noise, beside
 * sums over all outcomes of the discrete Gaussian.
 */
#include "privacy/gaussian.h"
#include "privacy/pld.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>

#define MOST_OUTCOMES 262144
#define MOST_REACH 400

/* Discrete Gaussians of the parameter `steps`, moved by `shift` in two coordinates (0: not there),
 * in a round with the chance `rate`. */
typedef struct discrete_case {
    double steps;
    int shift[2];
    double rate;
    int n_rounds; /* 1 or 2; 1 with two coordinates */
} discrete_case;

/* All outcomes of one round, with their chances without the device and with it. */
typedef struct outcomes {
    size_t n;
    double without[MOST_OUTCOMES];
    double with[MOST_OUTCOMES];
} outcomes;

static double density(double steps, int z)
{
    return exp(-(double)z * z / (2 * steps * steps));
}

static void outcomes_make(const discrete_case *c, outcomes *out_all)
{
    const int reach = (int)ceil(11 * c->steps);
    const int second = c->shift[1] > 0 ? reach : 0;
    cr_assert_leq(reach, MOST_REACH);
    double sum = 0;
    for (int z = -2 * reach; z <= 2 * reach; z++) {
        sum += density(c->steps, z);
    }
    const double whole = second > 0 ? sum * sum : sum;
    out_all->n = 0;
    for (int y = -second; y <= second + c->shift[1]; y++) {
        for (int x = -reach; x <= reach + c->shift[0]; x++) {
            const double here = density(c->steps, x) * density(c->steps, y) / whole;
            const double moved =
                density(c->steps, x - c->shift[0]) * density(c->steps, y - c->shift[1]) / whole;
            cr_assert_lt(out_all->n, MOST_OUTCOMES);
            out_all->without[out_all->n] = here;
            out_all->with[out_all->n++] = (1 - c->rate) * here + c->rate * moved;
        }
    }
}

/* Delta by its definition, the larger of both directions. */
static double true_delta(const outcomes *all, int n_rounds, double epsilon)
{
    const double factor = exp(epsilon);
    double remove = 0;
    double add = 0;
    for (size_t i = 0; i < all->n; i++) {
        for (size_t k = 0; k < (n_rounds > 1 ? all->n : 1); k++) {
            const double p = all->with[i] * (n_rounds > 1 ? all->with[k] : 1);
            const double q = all->without[i] * (n_rounds > 1 ? all->without[k] : 1);
            remove += fmax(p - factor * q, 0);
            add += fmax(q - factor * p, 0);
        }
    }
    return fmax(remove, add);
}

/* The epsilon that is told for Gaussian noise of this deviation. */
static double told_epsilon(const discrete_case *c, double noise, double delta)
{
    const dunlin__pld_rounds rounds = {
        .noise = noise, .rate = c->rate, .n_rounds = (uint64_t)c->n_rounds};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__pld_bracket found;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__pld_epsilon(&rounds, 1, delta, false, &alloc, &found, &error), DUNLIN_OK,
                 "%s", error.text);
    return found.upper;
}

/* Also where steps are so coarse that the difference counts. The sum sees what is told too low:
 * noise that is a twentieth more than there is gives an epsilon that it refutes. */
Test(privacy_discrete, never_costs_more_than_the_gaussian_noise_it_stands_for)
{
    static const discrete_case cases[] = {
        {5, {1, 0}, 0.5, 2},   {8, {8, 0}, 0.3, 2}, {12, {5, 0}, 0.05, 2}, {16, {20, 0}, 1, 2},
        {24, {30, 0}, 0.1, 1}, {6, {3, 4}, 0.2, 1}, {9, {12, 5}, 0.7, 1}};
    static const double deltas[] = {1e-2, 1e-4, 1e-6};
    static outcomes all;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const discrete_case *c = &cases[i];
        const double noise = c->steps / hypot(c->shift[0], c->shift[1]);
        const double worth = dunlin__gaussian_of_discrete(noise, c->steps);
        cr_assert_lt(worth, noise);
        outcomes_make(c, &all);
        for (size_t k = 0; k < sizeof deltas / sizeof deltas[0]; k++) {
            const double delta = deltas[k];
            const double epsilon = told_epsilon(c, worth, delta) + DUNLIN_DISCRETE_GAP;
            const double found = true_delta(&all, c->n_rounds, epsilon);
            cr_expect_leq(found, delta, "case %zu, delta %g, epsilon %g: %g", i, delta, epsilon,
                          found);
            const double too_low = told_epsilon(c, 1.05 * noise, delta);
            cr_expect(!(too_low > 0) || true_delta(&all, c->n_rounds, too_low) > delta,
                      "case %zu, delta %g, epsilon %g", i, delta, too_low);
        }
    }
}

/* With the steps of real rounds nothing is lost that could be seen. */
Test(privacy_discrete, fine_steps_are_worth_all_of_their_noise)
{
    const double worth = dunlin__gaussian_of_discrete(1.3, DUNLIN_DISCRETE_STEPS);
    cr_expect(worth < 1.3 && worth > 1.3 * (1 - 1e-11), "%.17g", worth);
    cr_expect_float_eq(dunlin__gaussian_of_discrete(2, 5), 1.2, 1e-12);
}
