/*
 * test_int_sums.c - what becomes of the sums of a step in integers, on every table: updates of
 * weights of 16 bits, gradients in floats, their proportions alone; and the largest of floats. The
 * very bits of a model in plain C, with and without threads.
 */
#include "checks/int_model.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(int_sums, .timeout = 900);

#define MOST_N 3000

static const dunlin_int_kernels *table(int t)
{
    return dunlin__int_kernels_isa(t) == NULL
               ? NULL
               : dunlin__int_kernels_select(dunlin__int_kernels_isa(t));
}

/* --- updates of 16 bits --- */

static int64_t limit(int64_t v)
{
    return v > DUNLIN_INT_PAIR_MOST    ? DUNLIN_INT_PAIR_MOST
           : v < -DUNLIN_INT_PAIR_MOST ? -DUNLIN_INT_PAIR_MOST
                                       : v;
}

/* By the definition; what is shifted away is divided off. */
static int64_t model_pair(int64_t weight, int64_t sum, int32_t shift)
{
    const int64_t size = llabs(sum);
    int64_t step = shift < 0 ? size * (INT64_C(1) << -shift) : size;
    if (shift > 0) {
        const int64_t rest = size % (INT64_C(1) << shift);
        const int64_t low = (rest % (INT64_C(1) << shift / 2)) * (shift % 2 == 1 ? 2 : 1);
        step = size / (INT64_C(1) << shift) + (rest / (INT64_C(1) << shift / 2) > low ? 1 : 0);
    }
    step = limit(step);
    return limit(weight - (sum < 0 ? -step : step));
}

static int64_t draw_sum(uint64_t *state, int32_t bits)
{
    const int64_t size = (int64_t)(test_random_u64(state) >> (64 - bits));
    return test_random_below(state, 2) == 0 ? size : -size;
}

/* Sums of about so many bits that updates have up to sixteen. */
static void check_pairs(const dunlin_int_kernels *k, int32_t shift, bool is_wide, int64_t n,
                        uint64_t *state, dunlin_threads *threads)
{
    const int32_t most = is_wide ? 62 : 31;
    const int32_t bits = shift + 16 < most ? shift + 16 : most;
    int32_t *sums = int_new(n, sizeof *sums);
    int64_t *wide = int_new(n, sizeof *wide);
    int8_t *high = int_new(n, 1);
    int8_t *low = int_new(n, 1);
    int64_t *wanted = int_new(n, sizeof *wanted);
    for (int64_t i = 0; i < n; i++) {
        const int64_t weight = limit((int64_t)test_random_below(state, 65600) - 32800);
        wide[i] = draw_sum(state, bits < 1 ? 1 : bits);
        sums[i] = is_wide ? 0 : (int32_t)wide[i];
        high[i] = (int8_t)floor(((double)weight + 128.0) / 256.0);
        low[i] = (int8_t)(weight - 256 * high[i]);
        wanted[i] = model_pair(weight, wide[i], shift);
    }
    k->update_pairs(&(dunlin_int_pairs_call){.n = n,
                                             .sums = is_wide ? NULL : sums,
                                             .wide_sums = is_wide ? wide : NULL,
                                             .shift = shift,
                                             .high = high,
                                             .low = low,
                                             .threads = threads});
    for (int64_t i = 0; i < n; i++) {
        cr_assert_eq(256 * high[i] + low[i], wanted[i], "%s, shift %d: %d and %d, not %lld", k->isa,
                     shift, high[i], low[i], (long long)wanted[i]);
        cr_assert(high[i] >= -DUNLIN_INT_MOST, "%s", k->isa);
    }
    cr_assert(int_is_intact(high) && int_is_intact(low), "%s", k->isa);
    void *all[] = {sums, wide, high, low, wanted};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int_free(all[i]);
    }
}

Test(int_sums, weights_of_16_bits_are_updated)
{
    uint64_t state = test_seed(16);
    dunlin_threads *threads = start_threads(3);
    for (int t = 0; table(t) != NULL; t++) {
        for (int32_t shift = -8; shift <= 40; shift++) {
            const int64_t n = 1 + (int64_t)test_random_below(&state, MOST_N);
            dunlin_threads *some = shift % 2 == 0 ? threads : NULL;
            if (shift <= 20) {
                check_pairs(table(t), shift, false, n, &state, some);
            }
            check_pairs(table(t), shift, true, n, &state, some);
        }
    }
    stop_threads(threads);
}

/* Sums of 32 bits that are shifted by more than these are: nothing is left of them but a rest. */
Test(int_sums, of_shifts_beyond_32_bits_rests_are_left)
{
    uint64_t state = test_seed(18);
    for (int t = 0; table(t) != NULL; t++) {
        for (int32_t shift = 31; shift <= 62; shift++) {
            check_pairs(table(t), shift, false, 300, &state, NULL);
            int32_t sums[3] = {INT32_MAX, -INT32_MAX, INT32_MIN};
            int8_t out[3] = {5, 5, 5};
            table(t)->round(&(dunlin_int_round_call){.n = 3,
                                                     .sums = sums,
                                                     .mode = DUNLIN_INT_PSEUDO,
                                                     .low = -DUNLIN_INT_MOST,
                                                     .high = DUNLIN_INT_MOST,
                                                     .out = out,
                                                     .is_subtracted = true,
                                                     .rounding.shift = shift});
            for (int i = 0; i < 3; i++) {
                const int64_t step = -model_pair(0, sums[i], shift);
                cr_assert_eq(out[i], 5 - step, "%s, shift %d: %d", table(t)->isa, shift, out[i]);
            }
        }
    }
}

/* --- growth --- */

/* Weights of which about one in four is at an end. */
static void check_growth(const dunlin_int_kernels *k, bool has_low, int64_t n, uint64_t *state,
                         dunlin_threads *threads)
{
    const int64_t most = has_low ? DUNLIN_INT_PAIR_MOST : DUNLIN_INT_MOST;
    int8_t *high = int_new(n, 1);
    int8_t *low = int_new(n, 1);
    int64_t *wanted = int_new(n, sizeof *wanted);
    int64_t n_ends = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t drawn = (int64_t)test_random_below(state, 2 * (uint64_t)most + 1) - most;
        const uint64_t kind = test_random_below(state, 8);
        const int64_t v = kind == 0 ? most : kind == 1 ? -most : kind == 2 ? drawn % 9 : drawn;
        n_ends += llabs(v) == most ? 1 : 0;
        high[i] = (int8_t)(has_low ? (int64_t)floor(((double)v + 128.0) / 256.0) : v);
        low[i] = (int8_t)(has_low ? v - 256 * high[i] : (int64_t)test_random_below(state, 3));
        wanted[i] = (int64_t)nearbyint((double)v / 2.0);
    }
    cr_assert_eq(k->count_ends(n, high, has_low ? low : NULL, threads), n_ends, "%s", k->isa);
    k->halve(n, high, has_low ? low : NULL, threads);
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = has_low ? 256 * high[i] + low[i] : high[i];
        cr_assert_eq(v, wanted[i], "%s: %lld, not %lld", k->isa, (long long)v,
                     (long long)wanted[i]);
    }
    cr_assert(int_is_intact(high) && int_is_intact(low), "%s", k->isa);
    int_free(high);
    int_free(low);
    int_free(wanted);
}

Test(int_sums, weights_at_the_ends_are_counted_and_all_are_halved)
{
    uint64_t state = test_seed(17);
    dunlin_threads *threads = start_threads(3);
    for (int t = 0; table(t) != NULL; t++) {
        for (int i = 0; i < 40; i++) {
            const int64_t n = i == 0 ? 200000 : 1 + (int64_t)test_random_below(&state, MOST_N);
            check_growth(table(t), i % 2 == 0, n, &state, i % 4 < 2 ? threads : NULL);
        }
    }
    stop_threads(threads);
}

/* --- gradients --- */

static void check_scale(const dunlin_int_kernels *k, bool is_wide, bool has_low, uint64_t *state,
                        dunlin_threads *threads)
{
    const int64_t n_rows = 1 + (int64_t)test_random_below(state, 60);
    const int64_t channels = 1 + (int64_t)test_random_below(state, 70);
    const int64_t n = n_rows * channels;
    int32_t *sums = int_new(2 * n, sizeof *sums);
    int64_t *wide = int_new(2 * n, sizeof *wide);
    double *factors = int_new(channels, sizeof *factors);
    float *out = int_new(n, sizeof *out);
    for (int64_t i = 0; i < 2 * n; i++) {
        sums[i] = (int32_t)draw_sum(state, 31);
        wide[i] = draw_sum(state, is_wide ? 45 : 31);
    }
    for (int64_t c = 0; c < channels; c++) {
        factors[c] = pow(2.0, test_random_range(-30.0, 3.0, state));
    }
    k->scale_sums(&(dunlin_int_scale_call){.n_rows = n_rows,
                                           .channels = channels,
                                           .sums = is_wide ? NULL : sums,
                                           .low_sums = is_wide || !has_low ? NULL : sums + n,
                                           .wide_sums = is_wide ? wide : NULL,
                                           .wide_low_sums = is_wide && has_low ? wide + n : NULL,
                                           .factors = factors,
                                           .out = out,
                                           .threads = threads});
    for (int64_t i = 0; i < n; i++) {
        const int64_t high = is_wide ? wide[i] : sums[i];
        const int64_t low = is_wide ? wide[n + i] : sums[n + i];
        const double sum = (double)(has_low ? 128 * high + low : high); /* exact */
        cr_assert_eq(out[i], (float)(sum * factors[i % channels]), "%s: element %lld", k->isa,
                     (long long)i);
    }
    cr_assert(int_is_intact(out), "%s", k->isa);
    int_free(sums);
    int_free(wide);
    int_free(factors);
    int_free(out);
}

Test(int_sums, become_floats)
{
    uint64_t state = test_seed(32);
    dunlin_threads *threads = start_threads(3);
    for (int t = 0; table(t) != NULL; t++) {
        for (int i = 0; i < 8; i++) {
            check_scale(table(t), i % 2 == 1, i / 2 % 2 == 1, &state, i < 4 ? NULL : threads);
        }
    }
    stop_threads(threads);
}

/* --- proportions --- */

static void check_proportions(const dunlin_int_kernels *k, uint64_t *state, dunlin_threads *threads)
{
    const int64_t n = 1 + (int64_t)test_random_below(state, MOST_N);
    const uint64_t key = test_random_u64(state);
    const double scale = 512.0;
    float *values = int_new(n, sizeof *values);
    float *wanted = int_new(n, sizeof *wanted);
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float)test_random_range(-0.3, 0.3, state); /* some are beyond 127 */
        const double size = fabs((double)values[i]) * scale;
        const double draw = (double)(dunlin__int_draw(key, (uint64_t)i) >> 11) * 0x1p-53;
        const double up = floor(size) + (size - floor(size) > draw ? 1.0 : 0.0);
        wanted[i] = (float)((up > 127.0 ? 127.0 : up) * (values[i] < 0.0F ? -0x1p-14 : 0x1p-14));
    }
    k->keep_proportions(n, values, scale, key, threads);
    for (int64_t i = 0; i < n; i++) {
        cr_assert_eq(values[i], wanted[i], "%s: element %lld", k->isa, (long long)i);
    }
    cr_assert(int_is_intact(values), "%s", k->isa);
    int_free(values);
    int_free(wanted);
}

Test(int_sums, keep_their_proportions)
{
    uint64_t state = test_seed(64);
    dunlin_threads *threads = start_threads(3);
    for (int t = 0; table(t) != NULL; t++) {
        for (int i = 0; i < 6; i++) {
            check_proportions(table(t), &state, i % 2 == 0 ? NULL : threads);
        }
    }
    stop_threads(threads);
}

/* --- the largest --- */

static void check_largest(const dunlin_int_kernels *k, uint64_t *state, dunlin_threads *threads)
{
    const int64_t n = 1 + (int64_t)test_random_below(state, MOST_N);
    const float one = 1.0F;
    float *x = int_new(n, sizeof *x);
    dunlin_int_spread spread = {.n = 5, .largest = 1};
    float largest = 0.0F;
    float found = 0.0F;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)test_random_range(-1e30, 1e3, state);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    dunlin_int_real_call call = {.n_rows = 1,
                                 .channels = n,
                                 .x = x,
                                 .units = &one,
                                 .finds_largest = true,
                                 .spreads = &spread,
                                 .threads = threads};
    k->quantise_real(&call);
    memcpy(&found, &spread.largest, sizeof found);
    cr_assert_eq(found, largest, "%s: %g, not %g", k->isa, (double)found, (double)largest);
    cr_assert_eq(spread.n, n + 5);
    cr_assert_eq(spread.n_clipped, 0, "%s: nothing was rounded", k->isa);
    x[n / 2] = NAN;
    k->quantise_real(&call);
    cr_assert_geq(spread.largest, 0x7F800000, "%s", k->isa);
    int_free(x);
}

Test(int_sums, the_largest_of_floats)
{
    uint64_t state = test_seed(128);
    dunlin_threads *threads = start_threads(3);
    for (int t = 0; table(t) != NULL; t++) {
        for (int i = 0; i < 6; i++) {
            check_largest(table(t), &state, i % 2 == 0 ? NULL : threads);
        }
    }
    stop_threads(threads);
}
