/*
 * test_privacy_composed.c - epsilon of composed rounds: the bracket holds the true value, and is
 * narrow, up to 10,000 rounds; the transform; grids of one round.
 */
#include "privacy/fourier.h"
#include "privacy/gaussian.h"
#include "privacy/loss.h"
#include "privacy/pld.h"
#include "privacy_table.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <random.h>
#include <stdlib.h>
#include <string.h>

#define NARROW 1e-3
#define ROUNDED 1e-9 /* what the slow program's last digits may be off by */

static dunlin__pld_bracket bracket_of(const dunlin__pld_rounds *kinds, size_t n, double delta,
                                      bool wants_lower)
{
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__pld_bracket found;
    cr_assert_eq(dunlin__pld_epsilon(kinds, n, delta, wants_lower, &alloc, &found, &error),
                 DUNLIN_OK, "%s", error.text);
    return found;
}

static size_t read_kinds(const char *text, dunlin__pld_rounds kinds[4])
{
    size_t n = 0;
    while (n < 4 && text != NULL && *text != 0) {
        char *end = NULL;
        kinds[n].noise = strtod(text, &end);
        kinds[n].rate = strtod(end + 1, &end);
        kinds[n].n_rounds = strtoull(end + 1, &end, 10);
        text = *end == ';' ? end + 1 : NULL;
        n++;
    }
    return n;
}

Test(privacy_composed, brackets_hold_the_true_epsilon)
{
    FILE *file = table_open("composed");
    table_row row;
    int n = 0;
    while (table_next(file, &row)) {
        dunlin__pld_rounds kinds[4];
        const size_t n_kinds = read_kinds(row.text[1], kinds);
        const double wanted = fmax(row.value[2], row.value[3]);
        const dunlin__pld_bracket found = bracket_of(kinds, n_kinds, row.value[0], true);
        cr_assert_geq(found.upper, wanted - ROUNDED * wanted, "%s: %.12g, not %.12g", row.text[1],
                      found.upper, wanted);
        cr_assert_leq(found.lower, wanted + ROUNDED * wanted, "%s: %.12g, not %.12g", row.text[1],
                      found.lower, wanted);
        cr_assert_leq(found.upper - found.lower, NARROW, "%s: %.12g to %.12g", row.text[1],
                      found.lower, found.upper);
        const dunlin__pld_bracket upper = bracket_of(kinds, n_kinds, row.value[0], false);
        cr_assert_geq(upper.upper, wanted - ROUNDED * wanted, "%s", row.text[1]);
        cr_assert_leq(upper.upper, wanted + NARROW, "%s: %.12g, not %.12g", row.text[1],
                      upper.upper, wanted);
        n++;
    }
    cr_assert_geq(n, 11);
}

/* Figures of Google's dp_accounting. */
Test(privacy_composed, another_accountant_finds_the_same)
{
    static const double cases[][5] = {{0.01, 1.1, 1000, 1e-5, 1.515370},
                                      {0.01, 1.0, 1500, 1e-6, 2.568385},
                                      {0.05, 1.0, 1500, 1e-6, 15.358794},
                                      {0.001, 0.8, 10000, 1e-8, 1.476799}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const dunlin__pld_rounds rounds = {
            .noise = cases[c][1], .rate = cases[c][0], .n_rounds = (uint64_t)cases[c][2]};
        const dunlin__pld_bracket found = bracket_of(&rounds, 1, cases[c][3], true);
        cr_assert(fabs(found.upper - cases[c][4]) <= 1e-3, "case %zu: %.9g", c, found.upper);
    }
}

Test(privacy_composed, rounds_with_everybody_are_the_plain_gaussian)
{
    uint64_t state = test_seed(371);
    const int n_cases = test_cases(20);
    for (int c = 0; c < n_cases; c++) {
        const dunlin__pld_rounds rounds = {
            .noise = exp(test_random_range(log(0.1), log(100), &state)),
            .rate = 1,
            .n_rounds = 1 + test_random_below(&state, c % 2 == 0 ? 5 : 10000)};
        const double mu = sqrt((double)rounds.n_rounds) / rounds.noise;
        const double delta = exp(test_random_range(log(1e-15), log(0.1), &state));
        if (mu > 15) {
            continue; /* epsilons of hundreds */
        }
        const double wanted = dunlin__gaussian_epsilon(mu, delta);
        const dunlin__pld_bracket found = bracket_of(&rounds, 1, delta, true);
        cr_assert(found.lower <= wanted && found.upper >= wanted * (1 - 2e-9) &&
                      found.upper <= wanted + NARROW && found.lower >= wanted - NARROW,
                  "noise %.17g, %llu rounds, delta %.17g: %.12g to %.12g, not %.12g", rounds.noise,
                  (unsigned long long)rounds.n_rounds, delta, found.lower, found.upper, wanted);
    }
}

/* Delta of one round, in both directions, by the definition. */
static double delta_of_one(const dunlin__loss_round *round, double epsilon)
{
    double sum = 0;
    const double s = round->noise;
    const double step = s / 2000;
    for (double z = -12 * s; z < 1 + 12 * s; z += step) {
        const double near = exp(-z * z / (2 * s * s));
        const double away = exp(-(z - 1) * (z - 1) / (2 * s * s));
        const double mixed = (1 - round->rate) * near + round->rate * away;
        const bool is_remove = round->direction == DUNLIN_LOSS_REMOVE;
        sum += fmax((is_remove ? mixed : near) - exp(epsilon) * (is_remove ? near : mixed), 0);
    }
    return sum * step / (s * sqrt(2 * 3.14159265358979323846));
}

static double delta_of_grid(const dunlin__loss *loss, double epsilon)
{
    double sum = loss->infinite;
    for (size_t i = 0; i < loss->n; i++) {
        const double away = (double)(loss->first + (int64_t)i) * loss->interval - epsilon;
        sum += away > 0 ? loss->mass[i] * -expm1(-away) : 0;
    }
    return sum;
}

/* The pessimistic curve of delta touches the true one at the points of the grid and is above it
 * between them; the optimistic one is nowhere above. */
Test(privacy_composed, grids_of_one_round_have_delta_between_them)
{
    static const double rounds[][3] = {
        {1, 0.1, 0.05}, {0.4, 0.01, 0.002}, {6, 0.7, 0.01}, {2, 1, 0.1}};
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    for (size_t c = 0; c < 8; c++) {
        const double interval = rounds[c / 2][2];
        const dunlin__loss_round round = {.noise = rounds[c / 2][0],
                                          .rate = rounds[c / 2][1],
                                          .reach = 10,
                                          .direction =
                                              c % 2 == 0 ? DUNLIN_LOSS_REMOVE : DUNLIN_LOSS_ADD};
        dunlin__loss upper;
        dunlin__loss lower;
        cr_assert_eq(dunlin__loss_upper(&upper, &round, interval, &alloc, &error), DUNLIN_OK);
        cr_assert_eq(dunlin__loss_lower(&lower, &round, interval, &alloc, &error), DUNLIN_OK);
        for (int i = -8; i < 24; i++) {
            const double epsilon = i * interval / 2;
            const double wanted = delta_of_one(&round, epsilon);
            const double above = delta_of_grid(&upper, epsilon);
            const double below = delta_of_grid(&lower, epsilon);
            cr_assert_geq(above, wanted - 1e-7, "case %zu, epsilon %g", c, epsilon);
            cr_assert_leq(below, wanted + 1e-7, "case %zu, epsilon %g", c, epsilon);
            if (i % 2 == 0) {
                cr_assert_leq(above, wanted + 1e-7, "case %zu, epsilon %g", c, epsilon);
            }
            /* The last outcomes of the optimistic grid go down by an interval at most. */
            cr_assert_leq(above - below, interval + 2e-7, "case %zu, epsilon %g: %g to %g", c,
                          epsilon, below, above);
        }
        dunlin__loss_free(&upper, &alloc);
        dunlin__loss_free(&lower, &alloc);
    }
}

Test(privacy_composed, no_memory_and_too_fine_a_grid_are_said)
{
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__loss loss;
    const dunlin__loss_round round = {.noise = 1, .rate = 0.1, .reach = 8};
    cr_assert_eq(dunlin__loss_upper(&loss, &round, 1e-9, &alloc, &error), DUNLIN_LIMIT);
    cr_assert_not_null(strstr(error.text, "above the limit of 4194304"), "%s", error.text);
    dunlin__pld_rounds kinds[DUNLIN_PLD_KINDS + 1] = {0};
    dunlin__pld_bracket found;
    cr_assert_eq(
        dunlin__pld_epsilon(kinds, DUNLIN_PLD_KINDS + 1, 1e-5, true, &alloc, &found, &error),
        DUNLIN_LIMIT);
    cr_assert_eq(dunlin__pld_epsilon(kinds, 0, 1e-5, true, &alloc, &found, &error), DUNLIN_LIMIT);
}

/* Hooks that fail at the n-th call and count what is out. */
typedef struct counted {
    int64_t left;
    int64_t out;
} counted;

static void *take(void *context, size_t n_bytes, size_t alignment)
{
    counted *count = context;
    if (count->left-- <= 0) {
        return NULL;
    }
    count->out++;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    return alloc.alloc_fn(alloc.ctx, n_bytes, alignment);
}

static void give(void *context, void *memory, size_t n_bytes)
{
    counted *count = context;
    count->out -= memory != NULL;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    alloc.free_fn(alloc.ctx, memory, n_bytes);
}

Test(privacy_composed, whatever_allocation_fails_nothing_is_left_behind)
{
    const dunlin__pld_rounds kinds[2] = {{.noise = 2, .rate = 0.5, .n_rounds = 3},
                                         {.noise = 3, .rate = 1, .n_rounds = 2}};
    bool has_passed = false;
    for (int64_t n = 0; n < 200 && !has_passed; n++) {
        counted count = {.left = n};
        const dunlin_alloc alloc = {.alloc_fn = take, .free_fn = give, .ctx = &count};
        dunlin__pld_bracket found;
        dunlin_error error = {0};
        const dunlin_status status =
            dunlin__pld_epsilon(kinds, 2, 1e-5, true, &alloc, &found, &error);
        cr_assert(status == DUNLIN_MEMORY || status == DUNLIN_OK, "%d", (int)status);
        cr_assert_eq(count.out, 0, "at %lld", (long long)n);
        has_passed = status == DUNLIN_OK;
    }
    cr_assert(has_passed);
}

/* Beside the sum of the definition, and back again. */
Test(privacy_fourier, is_the_sum_and_its_inverse)
{
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    for (uint32_t log2_n = 1; log2_n <= 9; log2_n++) {
        static double values[1024];
        static double before[1024];
        dunlin__fourier fourier;
        uint64_t state = log2_n;
        cr_assert_eq(dunlin__fourier_make(&fourier, log2_n, &alloc, &error), DUNLIN_OK);
        const size_t n = fourier.n;
        for (size_t i = 0; i < 2 * n; i++) {
            values[i] = test_random_range(-1, 1, &state);
        }
        memcpy(before, values, sizeof before);
        dunlin__fourier_run(&fourier, values, false);
        for (size_t k = 0; k < n; k++) {
            double re = 0;
            double im = 0;
            for (size_t i = 0; i < n; i++) {
                const double angle = -2 * 3.14159265358979323846 * (double)(i * k % n) / (double)n;
                re += before[2 * i] * cos(angle) - before[2 * i + 1] * sin(angle);
                im += before[2 * i] * sin(angle) + before[2 * i + 1] * cos(angle);
            }
            cr_assert(fabs(re - values[2 * k]) < 1e-11 && fabs(im - values[2 * k + 1]) < 1e-11,
                      "2^%u values, number %zu", log2_n, k);
        }
        dunlin__fourier_run(&fourier, values, true);
        for (size_t i = 0; i < 2 * n; i++) {
            cr_assert(fabs(values[i] / (double)n - before[i]) < 1e-13, "2^%u", log2_n);
        }
        dunlin__fourier_free(&fourier, &alloc);
    }
}
