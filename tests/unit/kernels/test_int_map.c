/*
 * test_int_map.c - roundings, sums, rows and floats in integers, on every table, against the
 * model; and how tables are chosen.
 */
#include "checks/int_model.h"
#include "kernels/api/kernels.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(int_map, .timeout = 900);

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)test_random_below(state, (uint64_t)n);
}

/* Up or not, by the definition of each rounding. */
static int64_t model_mode(dunlin_int_mode mode, int64_t size, int32_t shift, uint64_t draw)
{
    if (shift <= 0) {
        return size;
    }
    const int64_t unit = (int64_t)1 << shift;
    const int64_t rest = size % unit;
    if (mode == DUNLIN_INT_STOCHASTIC) {
        return size / unit + (rest > (int64_t)(draw % (uint64_t)unit) ? 1 : 0);
    }
    if (mode == DUNLIN_INT_PSEUDO) {
        const int64_t half = (int64_t)1 << (shift / 2);
        const int64_t low = rest % half * (shift % 2 == 1 ? 2 : 1);
        return size / unit + (rest / half > low ? 1 : 0);
    }
    return size / unit + (2 * rest >= unit ? 1 : 0);
}

static void check_round(const dunlin_int_kernels *k, dunlin_int_mode mode, int32_t shift,
                        bool is_wide, uint64_t seed, dunlin_threads *threads)
{
    uint64_t state = seed;
    const int64_t n = 1 + below(&state, threads == NULL ? 300 : 200000);
    int32_t *narrow = int_new(n, sizeof *narrow);
    int64_t *wide = int_new(n, sizeof *wide);
    int8_t *start = int_random(n, &state);
    int8_t *out = int_new(n, 1);
    int8_t *wanted = int_new(n, 1);
    const bool is_update = below(&state, 2) == 0;
    const uint64_t key = dunlin__int_key(seed, 5, 7);
    const uint64_t first = test_random_below(&state, (uint64_t)1 << 40);
    const int32_t spread = shift + 8 > 31 ? 31 : shift + 8;
    const int32_t low = below(&state, 2) == 0 ? -127 : 0;
    dunlin_int_stats expected = {3, 4};
    dunlin_int_stats stats = expected; /* added to */
    for (int64_t i = 0; i < n; i++) {
        wide[i] = (int64_t)test_random_below(&state, (uint64_t)1 << spread) -
                  ((int64_t)1 << (spread - 1));
        wide[i] = i == 0 ? INT32_MIN : i == 1 ? INT32_MAX : wide[i];
        if (i > 2 && i % 4 == 0 && shift > 0) { /* halves and wholes */
            wide[i] -= wide[i] % ((int64_t)1 << (shift - 1));
        }
        narrow[i] = (int32_t)wide[i];
        const int64_t v = is_wide ? (wide[i] *= 1 + below(&state, 3)) : narrow[i];
        const int64_t size = v < 0 ? -v : v;
        int64_t q = model_mode(mode, size, shift, dunlin__int_draw(key, first + (uint64_t)i));
        bool is_clipped = q > 127;
        q = q > 127 ? 127 : q;
        q = v < 0 ? -q : q;
        q = q < low ? low : q;
        if (is_update) {
            q = start[i] - q;
            is_clipped = is_clipped || q > 127 || q < -127;
            q = q > 127 ? 127 : q < -127 ? -127 : q;
        }
        wanted[i] = (int8_t)q;
        out[i] = start[i];
        expected.n_clipped += is_clipped ? 1 : 0;
        expected.largest = size > expected.largest ? size : expected.largest;
    }
    const dunlin_int_round_call call = {.n = n,
                                        .sums = is_wide ? NULL : narrow,
                                        .wide_sums = is_wide ? wide : NULL,
                                        .mode = mode,
                                        .key = key,
                                        .first = first,
                                        .low = low,
                                        .high = 127,
                                        .out = out,
                                        .is_subtracted = is_update,
                                        .rounding = {.shift = shift, .stats = &stats},
                                        .threads = threads};
    k->round(&call);
    char what[80];
    (void)snprintf(what, sizeof what, "mode %d, shift %d, seed %llu", (int)mode, shift,
                   (unsigned long long)seed);
    int_same(k, what, out, wanted, n);
    int_same_stats(k, what, &stats, &expected);
    cr_assert_eq(k->largest(n, is_wide ? NULL : narrow, wide, threads), expected.largest, "%s: %s",
                 k->isa, what);
    int_free(narrow);
    int_free(wide);
    int_free(start);
    int_free(out);
    int_free(wanted);
}

static void check_rounds(const dunlin_int_kernels *k)
{
    dunlin_threads *threads = start_threads(3);
    for (int mode = 0; mode < 3; mode++) {
        for (int32_t shift = -1; shift < 32; shift++) {
            const uint64_t seed = test_seed(9) + (uint64_t)(shift + 1);
            check_round(k, (dunlin_int_mode)mode, shift, false, seed, NULL);
            check_round(k, (dunlin_int_mode)mode, shift, true, seed, NULL);
        }
        check_round(k, (dunlin_int_mode)mode, 5, false, 77, threads);
    }
    stop_threads(threads);
}

Test(int_map, sums_are_rounded_as_defined)
{
    each_int(check_rounds);
}

/* The mean of many draws is the value, whatever the shift. */
static void check_fair(const dunlin_int_kernels *k)
{
    enum { N = 20000 };
    int32_t *sums = int_new(N, sizeof *sums);
    int8_t *out = int_new(N, 1);
    for (int i = 0; i < N; i++) {
        sums[i] = -83; /* 5.1875 units of 16 */
    }
    const dunlin_int_round_call call = {.n = N,
                                        .sums = sums,
                                        .mode = DUNLIN_INT_STOCHASTIC,
                                        .key = dunlin__int_key(1, 2, 3),
                                        .low = -127,
                                        .high = 127,
                                        .out = out,
                                        .rounding = {.shift = 4}};
    k->round(&call);
    int64_t total = 0;
    for (int i = 0; i < N; i++) {
        total += out[i];
    }
    cr_assert_float_eq((double)total / N, -5.1875, 0.02, "%s: mean %f", k->isa, (double)total / N);
    int_free(sums);
    int_free(out);
}

Test(int_map, stochastic_rounding_keeps_the_mean)
{
    each_int(check_fair);
}

static void check_add(const dunlin_int_kernels *k, uint64_t seed, dunlin_threads *threads)
{
    uint64_t state = seed;
    const int64_t n = 1 + below(&state, threads == NULL ? 500 : 300000);
    int8_t *a = int_random(n, &state);
    int8_t *b = int_random(n, &state);
    int8_t *out = int_new(n, 1);
    int8_t *wanted = int_new(n, 1);
    const bool has_b = below(&state, 4) != 0;
    dunlin_int_stats stats = {1000, 1000};
    dunlin_int_stats expected = {0, 0};
    const dunlin_int_add_call call = {
        .n = n,
        .a = a,
        .b = has_b ? b : NULL,
        .a_shift = below(&state, 12) - 1,
        .b_shift = below(&state, 12) - 1,
        .low = below(&state, 2) == 0 ? -127 : 0,
        .high = below(&state, 2) == 0 ? 127 : 60,
        .out = out,
        .rounding = {.shift = below(&state, 4) - 1, .stats = &stats, .is_reset = true},
        .threads = threads};
    for (int64_t i = 0; i < n; i++) {
        const int32_t sum = int_model_round(a[i], call.a_shift, NULL) +
                            (has_b ? int_model_round(b[i], call.b_shift, NULL) : 0);
        const int32_t q = int_model_round(sum, call.rounding.shift, &expected);
        wanted[i] = (int8_t)(q < call.low ? call.low : q > call.high ? call.high : q);
    }
    k->add(&call);
    int_same(k, "add", out, wanted, n);
    int_same_stats(k, "add", &stats, &expected);
    int_free(a);
    int_free(b);
    int_free(out);
    int_free(wanted);
}

static void check_rows(const dunlin_int_kernels *k, uint64_t seed, dunlin_threads *threads)
{
    uint64_t state = seed;
    const int64_t n_rows = 1 + below(&state, threads == NULL ? 40 : 4000);
    const int64_t width = 1 + below(&state, 70);
    const int64_t from_pitch = width + below(&state, 20);
    const int64_t to_pitch = width + below(&state, 20);
    int8_t *from = int_random(n_rows * from_pitch, &state);
    int8_t *to = int_random(n_rows * to_pitch, &state);
    int8_t *wanted = int_new(n_rows * to_pitch, 1);
    const int32_t shift = below(&state, 12) - 1;
    dunlin_int_stats stats = {0, 0};
    dunlin_int_stats expected = {0, 0};
    memcpy(wanted, to, (size_t)(n_rows * to_pitch));
    for (int64_t i = 0; i < n_rows * width; i++) {
        wanted[i / width * to_pitch + i % width] =
            (int8_t)int_model_round(from[i / width * from_pitch + i % width], shift, &expected);
    }
    dunlin_int_rows_call call = {.n_rows = n_rows,
                                 .width = width,
                                 .from = from,
                                 .from_pitch = from_pitch,
                                 .to = to,
                                 .to_pitch = to_pitch,
                                 .rounding = {.shift = shift, .stats = &stats},
                                 .threads = threads};
    k->copy_rows(&call);
    int_same(k, "rows", to, wanted, n_rows * to_pitch);
    int_same_stats(k, "rows", &stats, &expected);
    for (int64_t i = 0; i < n_rows * width; i++) { /* of them alone */
        to[i / width * to_pitch + i % width] ^= 1;
    }
    call.rounding.stats = NULL;
    k->copy_rows(&call);
    int_same(k, "rows that nobody counts", to, wanted, n_rows * to_pitch);
    int_free(from);
    int_free(to);
    int_free(wanted);
}

static void check_clips(const dunlin_int_kernels *k, uint64_t seed, dunlin_threads *threads)
{
    uint64_t state = seed;
    const int64_t n = 1 + below(&state, threads == NULL ? 500 : 300000);
    int8_t *x = int_random(n, &state);
    int8_t *by = int_random(n, &state);
    int8_t *out = int_new(n, 1);
    int8_t *wanted = int_new(n, 1);
    const int32_t low = below(&state, 20) - 10;
    const int32_t high = below(&state, 2) == 0 ? 128 : 20 + below(&state, 100);
    for (int64_t i = 0; i < n; i++) {
        const int32_t most = high > 127 ? 127 : high;
        wanted[i] = (int8_t)(x[i] < low ? low : x[i] > most ? most : x[i]);
    }
    k->clip(n, x, low, high > 127 ? 127 : high, out, threads);
    int_same(k, "clip", out, wanted, n);
    for (int64_t i = 0; i < n; i++) {
        wanted[i] = by[i] > low && by[i] < high ? x[i] : 0;
    }
    k->clip_grad(n, x, by, low, high, out, threads);
    int_same(k, "clip's gradient", out, wanted, n);
    k->clip_grad(n, x, by, low, high, x, threads);
    int_same(k, "clip's gradient in place", x, wanted, n);
    int_free(x);
    int_free(by);
    int_free(out);
    int_free(wanted);
}

static void check_transpose(const dunlin_int_kernels *k, uint64_t seed, dunlin_threads *threads)
{
    uint64_t state = seed;
    const int64_t n = 1 + below(&state, 3);
    const int64_t rows = 1 + below(&state, threads == NULL ? 90 : 900);
    const int64_t columns = 1 + below(&state, 90);
    int8_t *x = int_random(n * rows * columns, &state);
    int8_t *y = int_new(n * rows * columns, 1);
    int8_t *wanted = int_new(n * rows * columns, 1);
    for (int64_t i = 0; i < n * rows * columns; i++) {
        const int64_t sample = i / (rows * columns);
        const int64_t row = i / columns % rows;
        wanted[(sample * columns + i % columns) * rows + row] = x[i];
    }
    k->transpose(n, rows, columns, x, y, threads);
    int_same(k, "transpose", y, wanted, n * rows * columns);
    int_free(x);
    int_free(y);
    int_free(wanted);
}

static void check_maps(const dunlin_int_kernels *k)
{
    uint64_t state = test_seed(31);
    dunlin_threads *threads = start_threads(3);
    for (int i = 0; i < test_cases(60); i++) {
        dunlin_threads *with = i % 10 == 9 ? threads : NULL;
        check_add(k, test_random_u64(&state), with);
        check_rows(k, test_random_u64(&state), with);
        check_clips(k, test_random_u64(&state), with);
        check_transpose(k, test_random_u64(&state), with);
    }
    stop_threads(threads);
}

Test(int_map, elements_are_as_in_the_model)
{
    each_int(check_maps);
}

static void check_quantise(const dunlin_int_kernels *k)
{
    uint64_t state = test_seed(8);
    enum { N = 4000 };
    float *x = int_new(N, sizeof *x);
    float *back = int_new(N, sizeof *back);
    int8_t *out = int_new(N, 1);
    for (int exponent = -140; exponent <= 120; exponent += 13) {
        int64_t clipped = 5;
        int64_t wanted_clipped = 5;
        const double unit = ldexp(1.0, exponent);
        for (int i = 0; i < N; i++) {
            x[i] = (float)(test_random_range(-140.0, 140.0, &state) * unit);
            x[i] =
                i % 3 == 0 ? (float)(((double)(i % 290) - 145.0 + 0.5) * unit) : x[i]; /* halves */
        }
        x[5] = nextafterf((float)(0.5 * unit), 0.0f);
        x[6] = (float)(0.5 * unit);
        float largest = -1.0f;
        float wanted_largest = 0.0f;
        const dunlin_int_quantise_call call = {.n = N,
                                               .x = x,
                                               .exponent = exponent,
                                               .out = out,
                                               .out_clipped = &clipped,
                                               .out_largest = &largest};
        cr_assert(k->quantise(&call), "%s", k->isa);
        for (int i = 0; i < N; i++) {
            double q = round((double)x[i] / unit); /* half away from zero; exact */
            wanted_clipped += fabs(q) > 127.0 ? 1 : 0;
            wanted_largest = fmaxf(wanted_largest, fabsf(x[i]));
            q = q > 127.0 ? 127.0 : q < -127.0 ? -127.0 : q;
            cr_assert_eq(out[i], (int8_t)q, "%s: %a with exponent %d is %d", k->isa, (double)x[i],
                         exponent, out[i]);
        }
        cr_assert_eq(clipped, wanted_clipped, "%s", k->isa);
        cr_assert_eq(largest, wanted_largest, "%s: %a, not %a", k->isa, (double)largest,
                     (double)wanted_largest);
        k->dequantise(N, out, exponent, back, NULL);
        for (int i = 0; i < N; i++) {
            cr_assert_eq((double)back[i], (double)(float)(out[i] * unit), "%s", k->isa);
        }
    }
    cr_assert(int_is_intact(out) && int_is_intact(back), "%s", k->isa);
    int_free(x);
    int_free(back);
    int_free(out);
}

Test(int_map, floats_become_the_nearest)
{
    each_int(check_quantise);
}

static void check_not_finite(const dunlin_int_kernels *k)
{
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        for (int at = 0; at < 37; at += 9) {
            float x[37];
            int8_t out[37];
            for (int j = 0; j < 37; j++) {
                x[j] = 3.0f;
            }
            x[at] = bad[i];
            dunlin_int_quantise_call call = {.n = 37, .x = x, .out = out};
            cr_assert_not(k->quantise(&call), "%s: %f at %d", k->isa, (double)bad[i], at);
            cr_assert(out[(at + 1) % 37] == 3 && (i > 1 || out[at] == 0), "%s", k->isa);
            x[at] = 3.4e38f;
            cr_assert(k->quantise(&call), "%s", k->isa);
            cr_assert_eq(out[at], 127, "%s", k->isa);
        }
    }
}

Test(int_map, what_is_not_finite_is_told)
{
    each_int(check_not_finite);
}

Test(int_map, names_find_their_tables)
{
    const dunlin_int_kernels *best = dunlin__int_kernels_select(NULL);
    cr_assert_not_null(best);
    cr_assert_eq(dunlin__int_kernels_select(""), best);
    cr_assert_str_eq(best->isa, dunlin__int_kernels_isa(0));
    for (int i = 0; dunlin__int_kernels_isa(i) != NULL; i++) {
        const char *name = dunlin__int_kernels_isa(i);
        cr_assert_str_eq(dunlin__int_kernels_select(name)->isa, name);
        /* and the set of floats that it belongs to */
        const dunlin_kernels *floats = dunlin__kernels_select(name);
        cr_assert_not_null(floats, "%s", name);
        cr_assert_eq(strncmp(name, floats->isa, strlen(floats->isa)), 0, "%s", name);
        /* by whose name the best of its tables is found */
        const dunlin_int_kernels *of_set = dunlin__int_kernels_select(floats->isa);
        cr_assert_not_null(of_set);
        cr_assert_eq(strncmp(of_set->isa, floats->isa, strlen(floats->isa)), 0, "%s", name);
    }
    cr_assert_null(dunlin__int_kernels_isa(-1));
    cr_assert_null(dunlin__int_kernels_select("vnni"));
    cr_assert_null(dunlin__int_kernels_select("avx512+"));
    cr_assert_null(dunlin__kernels_select("avx512+vnnix"));
    cr_assert_null(dunlin__kernels_select("avx2-"));
}

static void check_complete(const dunlin_int_kernels *k)
{
    const unsigned char *bytes = (const unsigned char *)k;
    static const unsigned char zero[sizeof(void (*)(void))];
    for (size_t at = 0; at < sizeof *k; at += sizeof zero) {
        cr_assert(memcmp(bytes + at, zero, sizeof zero) != 0, "%s: entry %zu is empty", k->isa,
                  at / sizeof zero);
    }
}

Test(int_map, every_table_is_complete)
{
    each_int(check_complete);
}
