/*
 * test_privacy_noise.c - random bits by their published vectors; draws beside the table of their
 * distribution. With DUNLIN_CASES=100 the suite `privacy_draws` draws ten million times.
 */
#include "privacy/bits.h"
#include "privacy/discrete.h"

#include <criterion/criterion.h>

#include <math.h>
#include <random.h>
#include <stdlib.h>
#include <string.h>

static void begin(dunlin__bits *bits, uint8_t first, uint64_t stream)
{
    const uint8_t seed[DUNLIN_SEED_BYTES] = {first};
    dunlin__bits_begin(bits, seed, stream);
}

/* NIST SP 800-38A, F.5.5 (CTR-AES256), where the plain text was added. */
Test(privacy_bits, are_the_keystream_of_the_standard)
{
    static const uint8_t key[32] = {0x60, 0x3d, 0xeb, 0x10, 0x15, 0xca, 0x71, 0xbe,
                                    0x2b, 0x73, 0xae, 0xf0, 0x85, 0x7d, 0x77, 0x81,
                                    0x1f, 0x35, 0x2c, 0x07, 0x3b, 0x61, 0x08, 0xd7,
                                    0x2d, 0x98, 0x10, 0xa3, 0x09, 0x14, 0xdf, 0xf4};
    static const uint8_t wanted[16] = {0x0b, 0xdf, 0x7d, 0xf1, 0x59, 0x17, 0x16, 0x33,
                                       0x5e, 0x9a, 0x8b, 0x15, 0xc8, 0x60, 0xc5, 0x02};
    dunlin__bits bits;
    dunlin__bits_begin(&bits, key, 0xf0f1f2f3f4f5f6f7);
    for (int i = 0; i < 8; i++) {
        bits.counter[8 + i] = (uint8_t)(0xf8 + i);
    }
    for (int i = 0; i < 16; i++) {
        cr_assert_eq(dunlin__bits_below(&bits, 256), wanted[i], "byte %d", i);
    }
}

Test(privacy_bits, single_bits_are_those_of_the_bytes_from_the_lowest_on)
{
    dunlin__bits bytes;
    dunlin__bits ones;
    begin(&bytes, 7, 1);
    begin(&ones, 7, 1);
    for (unsigned i = 0; i < 3 * DUNLIN_BITS_BUFFER; i++) { /* over the end of a buffer */
        const uint64_t byte = dunlin__bits_below(&bytes, 256);
        for (int k = 0; k < 8; k++) {
            cr_assert_eq(dunlin__bits_one(&ones), byte >> k & 1, "byte %u, bit %d", i, k);
        }
    }
}

Test(privacy_bits, seeds_and_streams_differ_and_repeat)
{
    uint64_t drawn[3][2];
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            dunlin__bits bits;
            begin(&bits, (uint8_t)(i == 1), (uint64_t)(i == 2));
            drawn[i][k] = dunlin__bits_below(&bits, UINT64_MAX);
        }
        cr_assert_eq(drawn[i][0], drawn[i][1]);
    }
    cr_assert(drawn[0][0] != drawn[1][0] && drawn[0][0] != drawn[2][0]);
}

Test(privacy_bits, wiping_leaves_zeros)
{
    static const dunlin__bits zeros;
    dunlin__bits bits;
    begin(&bits, 9, 0);
    (void)dunlin__bits_one(&bits);
    dunlin__bits_wipe(&bits);
    cr_assert_eq(memcmp(&bits, &zeros, sizeof bits), 0);
}

/* Gives all first bytes to a chance with a denominator of 16, and counts: each of the 16 beginnings
 * of four bits decides, so a of 16 come true. */
Test(privacy_discrete, a_chance_is_exact)
{
    for (uint64_t a = 0; a <= 17; a++) {
        int n_true = 0;
        for (int byte = 0; byte < 256; byte++) {
            dunlin__bits bits;
            begin(&bits, 0, 0);
            bits.one = (uint32_t)byte;
            bits.one_left = 8;
            n_true += dunlin__discrete_chance(&bits, a, 16) ? 1 : 0;
        }
        cr_assert_eq(n_true, a < 16 ? (int)a * 16 : 256, "%d of 16: %d", (int)a, n_true);
    }
}

#define CELLS 4096

/* Counts of draws beside the probabilities; those of fewer than ten wanted draws are one cell. The
 * chi-square, in standard deviations above its mean. */
static double surprise(const double *chances, const int64_t *counts, int n_cells, int64_t n_draws)
{
    double sum = 0;
    double rare = 0;
    int64_t n_rare = 0;
    int n = 0;
    double left = 1;
    int64_t n_left = n_draws;
    for (int i = 0; i < n_cells; i++) {
        const double wanted = chances[i] * (double)n_draws;
        left -= chances[i];
        n_left -= counts[i];
        if (wanted < 10) {
            rare += wanted;
            n_rare += counts[i];
            continue;
        }
        sum += ((double)counts[i] - wanted) * ((double)counts[i] - wanted) / wanted;
        n++;
    }
    rare += left * (double)n_draws;
    n_rare += n_left;
    if (rare > 1) {
        sum += ((double)n_rare - rare) * ((double)n_rare - rare) / rare;
        n++;
    }
    return (sum - (n - 1)) / sqrt(2.0 * (n - 1));
}

static int n_draws_of(void)
{
    return test_cases(100000);
}

static void count(int64_t *counts, int64_t value)
{
    const int64_t cell = value + CELLS / 2;
    if (cell >= 0 && cell < CELLS) {
        counts[cell]++;
    }
}

Test(privacy_draws, the_discrete_laplace_has_its_table)
{
    static const uint64_t scales[] = {1, 2, 7, 60};
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        static double chances[CELLS];
        static int64_t counts[CELLS];
        memset(counts, 0, sizeof counts);
        const double t = (double)scales[s];
        for (int i = 0; i < CELLS; i++) {
            chances[i] = exp(-abs(i - CELLS / 2) / t) * tanh(0.5 / t);
        }
        dunlin__bits bits;
        begin(&bits, 3, s);
        const int n = n_draws_of();
        for (int i = 0; i < n; i++) {
            count(counts, dunlin__discrete_laplace(&bits, scales[s]));
        }
        const double found = surprise(chances, counts, CELLS, n);
        cr_assert(found < 6, "scale %g: %g standard deviations", t, found);
    }
}

/* Of a table: the probabilities, and the second and fourth moment. */
static void make_table(double variance, double *chances, double *out_second, double *out_fourth)
{
    double sum = 0;
    *out_second = 0;
    *out_fourth = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < CELLS; i++) {
            const double x = i - CELLS / 2;
            const double value = exp(-x * x / (2 * variance));
            if (pass == 0) {
                sum += value;
                continue;
            }
            chances[i] = value / sum;
            *out_second += chances[i] * x * x;
            *out_fourth += chances[i] * x * x * x * x;
        }
    }
}

Test(privacy_draws, the_discrete_gaussian_has_its_table_and_moments)
{
    static const uint64_t variances[][2] = {{1, 4}, {1, 1}, {7, 3}, {100, 1}, {1000001, 1000}};
    for (size_t v = 0; v < sizeof variances / sizeof variances[0]; v++) {
        static double chances[CELLS];
        static int64_t counts[CELLS];
        memset(counts, 0, sizeof counts);
        double second = 0;
        double fourth = 0;
        make_table((double)variances[v][0] / (double)variances[v][1], chances, &second, &fourth);
        dunlin__discrete_gaussian noise;
        dunlin_error error = {0};
        cr_assert_eq(
            dunlin__discrete_gaussian_make(&noise, variances[v][0], variances[v][1], &error),
            DUNLIN_OK);
        dunlin__bits bits;
        begin(&bits, 4, v);
        const int n = n_draws_of();
        double sum = 0;
        double squares = 0;
        for (int i = 0; i < n; i++) {
            const int64_t value = dunlin__discrete_gaussian_draw(&noise, &bits);
            count(counts, value);
            sum += (double)value;
            squares += (double)value * (double)value;
        }
        const double found = surprise(chances, counts, CELLS, n);
        cr_assert(found < 6, "variance %zu: %g standard deviations", v, found);
        cr_assert(fabs(sum / n) < 6 * sqrt(second / n), "variance %zu: mean %g", v, sum / n);
        cr_assert(fabs(squares / n - second) < 6 * sqrt((fourth - second * second) / n),
                  "variance %zu: second moment %g, not %g", v, squares / n, second);
    }
}

/* Far outside of what a table holds: mean, variance and the share within one deviation. */
Test(privacy_draws, large_variances_have_their_moments)
{
    static const uint64_t variances[][2] = {{(uint64_t)1 << 62, 1},
                                            {((uint64_t)1 << 62) - 1, ((uint64_t)1 << 32) - 5},
                                            {(uint64_t)1 << 40, 3}};
    for (size_t v = 0; v < sizeof variances / sizeof variances[0]; v++) {
        const double variance = (double)variances[v][0] / (double)variances[v][1];
        dunlin__discrete_gaussian noise;
        dunlin_error error = {0};
        cr_assert_eq(
            dunlin__discrete_gaussian_make(&noise, variances[v][0], variances[v][1], &error),
            DUNLIN_OK);
        dunlin__bits bits;
        begin(&bits, 5, v);
        const int n = test_cases(50000);
        double sum = 0;
        double squares = 0;
        int n_near = 0;
        for (int i = 0; i < n; i++) {
            const double value =
                (double)dunlin__discrete_gaussian_draw(&noise, &bits) / sqrt(variance);
            sum += value;
            squares += value * value;
            n_near += fabs(value) < 1 ? 1 : 0;
        }
        const double near = erf(sqrt(0.5));
        cr_assert(fabs(sum / n) < 6 / sqrt(n), "variance %zu: mean %g", v, sum / n);
        cr_assert(fabs(squares / n - 1) < 6 * sqrt(2.0 / n), "variance %zu: %g", v, squares / n);
        cr_assert(fabs((double)n_near / n - near) < 6 * sqrt(near * (1 - near) / n),
                  "variance %zu: %d of %d within a deviation", v, n_near, n);
    }
}

Test(privacy_draws, a_seed_repeats_its_draws)
{
    dunlin__discrete_gaussian noise;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__discrete_gaussian_make(&noise, 12345, 7, &error), DUNLIN_OK);
    dunlin__bits a;
    dunlin__bits b;
    begin(&a, 1, 2);
    begin(&b, 1, 2);
    int64_t n_other = 0;
    dunlin__bits other;
    begin(&other, 2, 2);
    for (int i = 0; i < 1000; i++) {
        const int64_t value = dunlin__discrete_gaussian_draw(&noise, &a);
        cr_assert_eq(value, dunlin__discrete_gaussian_draw(&noise, &b), "draw %d", i);
        n_other += value != dunlin__discrete_gaussian_draw(&noise, &other);
    }
    cr_assert_gt(n_other, 900);
}

Test(privacy_discrete, variances_outside_the_bounds_are_refused)
{
    static const uint64_t wrong[][2] = {{0, 1},
                                        {1, 0},
                                        {((uint64_t)1 << 62) + 1, 1},
                                        {1, ((uint64_t)1 << 32) + 1},
                                        {1, (uint64_t)1 << 22}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        dunlin__discrete_gaussian noise;
        dunlin_error error = {0};
        cr_assert_eq(dunlin__discrete_gaussian_make(&noise, wrong[i][0], wrong[i][1], &error),
                     DUNLIN_ARGUMENT, "%zu", i);
        cr_assert_not_null(strstr(error.text, "variance"), "%s", error.text);
    }
}
