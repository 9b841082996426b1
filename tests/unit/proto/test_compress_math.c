/*
 * test_compress_math.c - what is drawn and rounded at random has the mean and the variance that the
 * formulas give; the parts against their definitions. Bounds are six deviations wide.
 */
#include "compress/bits.h"
#include "compress/entropy.h"
#include "compress/rotate.h"
#include "compress/sample.h"
#include "pack_model.h"
#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* RFC 8439, 2.3.2: key 00 01 ... 1f, counter 1, nonce 000000090000004a00000000. */
Test(compress_math, the_generator_is_chacha20)
{
    static const uint32_t wanted[16] = {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3,
                                        0xc7f4d1c7, 0x0368c033, 0x9aaa2204, 0x4e6cd4c3,
                                        0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                                        0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
    dunlin__draws draws = {.tensor = 0x09000000, .block = 0x4a000000};
    uint32_t words[DUNLIN_DRAW_WORDS];
    for (uint32_t i = 0; i < 8; i++) {
        draws.key[i] = 0x03020100u + 0x04040404u * i;
    }
    dunlin__draws_words(&draws, 0, words);
    cr_assert_eq(memcmp(words + 16, wanted, sizeof(wanted)), 0);
}

/* By the definition: entry (i, j) of H is -1 to the number of bits that i and j share. */
Test(compress_math, the_rotation_is_hadamards)
{
    uint64_t state = test_seed(51);
    float values[256];
    float turned[256];
    for (size_t n = 1; n <= 256; n *= 2) {
        const dunlin__draws draws = {.key = {1, 2, 3}, .tensor = 4, .block = 5};
        uint32_t words[DUNLIN_DRAW_WORDS];
        dunlin__draws_words(&draws, 0, words);
        for (size_t i = 0; i < n; i++) {
            values[i] = turned[i] = (float)pack_normal(&state);
        }
        dunlin__rotate(turned, n, &draws);
        for (size_t i = 0; i < n; i++) {
            double sum = 0.0;
            for (size_t j = 0; j < n; j++) {
                unsigned is_odd = (unsigned)__builtin_popcountll((unsigned long long)(i & j)) & 1u;
                is_odd ^= words[j / 32] >> (j % 32) & 1u;
                sum += is_odd ? -(double)values[j] : (double)values[j];
            }
            cr_assert_float_eq(turned[i], sum / sqrt((double)n), 1e-5, "%zu of %zu", i, n);
        }
        dunlin__rotate_back(turned, n, &draws);
        for (size_t i = 0; i < n; i++) {
            cr_assert_float_eq(turned[i], values[i], 1e-5);
        }
    }
}

/* Sums of what was decoded and of its squares, entry by entry, over many rounds. */
typedef struct moments {
    size_t n;
    int n_rounds;
    double *sums;
    double *squares;
} moments;

static moments measure(dunlin__packing packing, const pack_model *model, int n_rounds)
{
    moments found = {.n = model->n_all, .n_rounds = n_rounds};
    found.sums = calloc(found.n, sizeof(double));
    found.squares = calloc(found.n, sizeof(double));
    for (int r = 0; r < n_rounds; r++) {
        packing.round = (uint64_t)r;
        const dunlin__pack_options options = pack_options(&packing, model, 1);
        pack_result packed = pack_all_of(&options, model, 1.0f, found.n, false);
        for (size_t i = 0; i < found.n; i++) {
            double error = (double)packed.mirrored[i] - (double)model->values[i];
            found.sums[i] += error;
            found.squares[i] += error * error;
        }
        pack_result_free(&packed);
    }
    return found;
}

static void moments_free(moments *found)
{
    free(found->sums);
    free(found->squares);
}

/* Rounding between `low` and `low` + `step` to the mean: p (1 - p) step^2. */
static double two_point_variance(double value, double step)
{
    double p = value / step - floor(value / step);
    return p * (1.0 - p) * step * step;
}

/* Means near 0 and the sum of squares near the variances', as Bernstein's inequality bounds them to
 * 1e-9: six deviations and more, and some of the largest error that there is. */
static void check_moments(const moments *found, const double *variances, const double *steps,
                          const char *name)
{
    double wanted = 0.0;
    double seen = 0.0;
    double spread = 0.0;
    double most = 0.0;
    for (size_t i = 0; i < found->n; i++) {
        const double deviation = sqrt(variances[i] * found->n_rounds);
        cr_assert(fabs(found->sums[i]) <= 6.5 * deviation + 8.0 * steps[i] + 1e-6 * found->n_rounds,
                  "%s, entry %zu: %g of %g", name, i, found->sums[i], deviation);
        wanted += variances[i] * found->n_rounds;
        seen += found->squares[i];
        spread += variances[i] * steps[i] * steps[i] * found->n_rounds;
        most = fmax(most, steps[i]);
    }
    cr_assert(fabs(seen - wanted) <= 6.5 * sqrt(spread) + 8.0 * most * most + 1e-6 * wanted,
              "%s: %g, not %g", name, seen, wanted);
}

/* The step of a half or of a bfloat16 around a value. */
static double short_step(double value, int n_bits, int least_exponent)
{
    int exponent = 0;
    (void)frexp(value, &exponent);
    exponent = (exponent - 1 < least_exponent) ? least_exponent : exponent - 1;
    return ldexp(1.0, exponent - n_bits);
}

static double largest_of(const float *values, size_t n)
{
    float most = 0.0f;
    for (size_t i = 0; i < n; i++) {
        const float size = fabsf(values[i]);
        most = size > most ? size : most;
    }
    return (double)most;
}

Test(compress_math, rounding_has_its_mean_and_its_variance)
{
    uint64_t state = test_seed(52);
    const size_t n = 300;
    const int n_rounds = test_cases(4000);
    double variances[300];
    double steps[300];
    pack_model model = pack_model_normal(n, &state);
    for (size_t i = 0; i < n; i++) {
        model.values[i] *= (i % 3 == 0) ? 1e-3f : 1.0f; /* small ones beside large ones */
    }
    for (uint32_t bits = 2; bits <= 8; bits++) {
        const dunlin__packing packing = {
            .version = 1, .values = DUNLIN_V1_VALUES_LEVELS, .bits = bits, .block_values = 512};
        const double most = largest_of(model.values, n);
        for (size_t i = 0; i < n; i++) {
            steps[i] = most / (double)((1u << (bits - 1)) - 1u);
            variances[i] = two_point_variance((double)model.values[i], steps[i]);
        }
        moments found = measure(packing, &model, n_rounds);
        check_moments(&found, variances, steps, "levels");
        moments_free(&found);
    }
    for (int is_half = 0; is_half < 2; is_half++) {
        const dunlin__packing packing = {.version = 1,
                                         .values =
                                             is_half ? DUNLIN_V1_VALUES_F16 : DUNLIN_V1_VALUES_BF16,
                                         .block_values = 512};
        for (size_t i = 0; i < n; i++) {
            /* Down to the halves below the normal ones, whose step is 2^-24. */
            model.values[i] *= (is_half && i % 5 == 0) ? 1e-3f : 1.0f;
            const double value = fabs((double)model.values[i]);
            variances[i] = two_point_variance(value, is_half ? short_step(value, 10, -14)
                                                             : short_step(value, 7, -126));
        }
        moments found = measure(packing, &model, n_rounds);
        check_moments(&found, variances, steps, is_half ? "f16" : "bf16");
        moments_free(&found);
    }
    pack_model_free(&model);
}

/* An element is sent with probability k / n, n / k times itself: variance x^2 (n / k - 1). */
Test(compress_math, a_random_choice_has_its_mean_and_its_variance)
{
    uint64_t state = test_seed(53);
    const size_t n = 200;
    double variances[200];
    pack_model model = pack_model_normal(n, &state);
    dunlin__packing packing = pack_kind(17); /* a tenth, as they are */
    for (size_t i = 0; i < n; i++) {
        variances[i] = (double)model.values[i] * (double)model.values[i] * 9.0;
    }
    moments found = measure(packing, &model, test_cases(6000));
    for (size_t i = 0; i < n; i++) {
        const double deviation = sqrt(variances[i] * found.n_rounds);
        const double largest = 9.0 * fabs((double)model.values[i]);
        cr_assert(fabs(found.sums[i]) <= 6.5 * deviation + 8.0 * largest, "entry %zu", i);
        /* Each square is (9 x)^2 with probability 0.1 and x^2 else: its deviation is 24 x^2. */
        const double square = (double)model.values[i] * (double)model.values[i];
        cr_assert(fabs(found.squares[i] - variances[i] * found.n_rounds) <=
                      6.5 * 24.0 * square * sqrt((double)found.n_rounds) + 8.0 * 81.0 * square,
                  "entry %zu", i);
    }
    moments_free(&found);
    pack_model_free(&model);
}

/* One bit an entry: over rotations the mean is the vector, the error pi / 2 - 1 of its square. */
Test(compress_math, signs_have_the_error_of_drive)
{
    uint64_t state = test_seed(54);
    const size_t n = 4096;
    const int n_rounds = test_cases(400);
    pack_model model = pack_model_normal(n, &state);
    dunlin__packing packing = pack_kind(11);
    double square = 0.0;
    double along = 0.0;
    double errors = 0.0;
    double bias = 0.0;
    for (size_t i = 0; i < n; i++) {
        model.values[i] *=
            (test_random_below(&state, 64) == 0) ? 20.0f : 1.0f; /* a few are large */
        square += (double)model.values[i] * (double)model.values[i];
    }
    moments found = measure(packing, &model, n_rounds);
    for (size_t i = 0; i < n; i++) {
        errors += found.squares[i];
        bias += found.sums[i] / n_rounds * (found.sums[i] / n_rounds);
        along += found.sums[i] / n_rounds * (double)model.values[i];
    }
    const double relative = errors / n_rounds / square;
    cr_assert(fabs(relative - (1.5707963 - 1.0)) < 0.02 + 0.2 / sqrt(n_rounds), "%g", relative);
    /* The scale makes the part along the vector exact in each round. */
    cr_assert(fabs(along / square) < 1e-5, "%g", along / square);
    /* What is left of the mean's error is that of n_rounds draws, not more. */
    cr_assert(bias / square < 1.3 * relative / n_rounds, "%g", bias / square);
    moments_free(&found);
    pack_model_free(&model);
}

/* Each half that there is comes back as itself, whatever is drawn. */
Test(compress_math, halves_are_kept)
{
    for (int is_half = 0; is_half < 2; is_half++) {
        dunlin__packing packing = {.version = 1,
                                   .values = is_half ? DUNLIN_V1_VALUES_F16 : DUNLIN_V1_VALUES_BF16,
                                   .block_values = 8192};
        pack_model model = {.n_tensors = 1, .rules = {DUNLIN_V1_RULE_AVERAGE}};
        model.values = calloc(65536, sizeof(float));
        for (uint32_t code = 0; code < 65536; code++) {
            double value = 0.0;
            if (is_half) {
                const int exponent = (int)(code >> 10 & 31u);
                const double fraction = (double)(code & 1023u);
                value = (exponent == 0) ? ldexp(fraction, -24)
                                        : ldexp(1024.0 + fraction, exponent - 25);
                value = ((code >> 15) != 0) ? -value : value;
                if (exponent == 31) {
                    continue;
                }
            } else {
                value = (double)dunlin__float_of(code << 16);
                if ((code & 0x7f80u) == 0x7f80u) {
                    continue;
                }
            }
            model.values[model.n_all++] = (float)value;
        }
        model.n_values[0] = model.n_all;
        const dunlin__pack_options options = pack_options(&packing, &model, 3);
        pack_result packed = pack_all_of(&options, &model, 1.0f, 0, false);
        cr_assert_eq(memcmp(packed.mirrored, model.values, model.n_all * sizeof(float)), 0);
        pack_result_free(&packed);
        pack_model_free(&model);
    }
}

/* ---- codes ---- */

static double entropy_bits(const uint8_t *numbers, size_t n)
{
    size_t counts[256] = {0};
    double bits = 0.0;
    for (size_t i = 0; i < n; i++) {
        counts[numbers[i]]++;
    }
    for (size_t s = 0; s < 256; s++) {
        bits -= (counts[s] > 0) ? (double)counts[s] * log2((double)counts[s] / (double)n) : 0.0;
    }
    return bits;
}

Test(compress_math, entropy_coding_is_near_the_entropy)
{
    uint64_t state = test_seed(55);
    static uint8_t slots[DUNLIN_ENTROPY_SLOTS];
    static uint8_t numbers[8192];
    static uint8_t again[8192];
    static uint8_t bytes[8192];
    for (int i = 0; i < test_cases(400); i++) {
        const size_t n = 1 + (size_t)test_random_below(&state, 8192);
        const double spread = pow(2.0, test_random_range(-3.0, 6.0, &state));
        for (size_t j = 0; j < n; j++) {
            numbers[j] = (uint8_t)(127.0 + fmax(-127.0, fmin(127.0, spread * pack_normal(&state))));
        }
        const size_t n_bytes = dunlin__entropy_pack(numbers, n, bytes, n);
        if (n_bytes == 0) {
            continue;
        }
        cr_assert_lt(n_bytes, n);
        /* The table costs up to two bytes a symbol; frequencies of 12 bits up to a twentieth. */
        cr_assert_lt((double)n_bytes, entropy_bits(numbers, n) / 8.0 * 1.05 + 2.0 * 255.0 + 8.0);
        cr_assert(dunlin__entropy_unpack(bytes, n_bytes, n, 255, slots, again));
        cr_assert_eq(memcmp(again, numbers, n), 0);
        cr_assert(!dunlin__entropy_unpack(bytes, n_bytes - 1, n, 255, slots, again));
    }
    memset(numbers, 9, sizeof(numbers));
    const size_t n_bytes = dunlin__entropy_pack(numbers, 8192, bytes, 8192);
    cr_assert_eq(n_bytes, 8); /* one symbol */
    cr_assert(dunlin__entropy_unpack(bytes, n_bytes, 8192, 10, slots, again));
    cr_assert(!dunlin__entropy_unpack(bytes, n_bytes, 8192, 9, slots, again));
}

Test(compress_math, gaps_come_back)
{
    uint64_t state = test_seed(56);
    static uint32_t gaps[1024];
    static uint32_t again[1024];
    static uint8_t bytes[8192];
    for (int i = 0; i < test_cases(500); i++) {
        const size_t n = 1 + (size_t)test_random_below(&state, 1024);
        const uint64_t most = (UINT64_C(1) << test_random_below(&state, 32)) / n;
        uint64_t room = 0;
        size_t n_bytes = 0;
        for (size_t j = 0; j < n; j++) {
            gaps[j] = (most > 0) ? (uint32_t)test_random_below(&state, most) : 0;
            room += (uint64_t)gaps[j] + 1;
        }
        const unsigned rice = dunlin__rice_choose(gaps, n, &n_bytes);
        cr_assert_leq(n_bytes, DUNLIN_RICE_BYTES(n));
        dunlin__rice_pack(gaps, n, rice, bytes);
        cr_assert_eq(dunlin__rice_unpack(bytes, n_bytes, n, rice, room, again), n);
        cr_assert_eq(memcmp(again, gaps, n * sizeof(gaps[0])), 0);
        /* One place too few, one byte too many, one too few. */
        cr_assert_lt(dunlin__rice_unpack(bytes, n_bytes, n, rice, room - 1, again), n);
        bytes[n_bytes] = 0;
        cr_assert_eq(dunlin__rice_unpack(bytes, n_bytes + 1, n, rice, room, again), n + 1);
        cr_assert_neq(dunlin__rice_unpack(bytes, n_bytes - 1, n, rice, room, again), n);
    }
}

Test(compress_math, bits_come_back)
{
    uint64_t state = test_seed(57);
    uint8_t numbers[200];
    uint8_t again[200];
    uint8_t bytes[201];
    for (unsigned width = 1; width <= 8; width++) {
        for (size_t n = 1; n <= 200; n++) {
            for (size_t i = 0; i < n; i++) {
                numbers[i] = (uint8_t)test_random_below(&state, UINT64_C(1) << width);
            }
            const size_t n_bytes = (size_t)dunlin__bits_bytes(n, width);
            bytes[n_bytes] = 0xa5;
            dunlin__bits_pack(numbers, n, width, bytes);
            cr_assert_eq(bytes[n_bytes], 0xa5);
            cr_assert(dunlin__bits_unpack(bytes, n, width, again));
            cr_assert_eq(memcmp(again, numbers, n), 0);
            if (n * width % 8 != 0) {
                bytes[n_bytes - 1] |= 0x80;
                cr_assert(!dunlin__bits_unpack(bytes, n, width, again));
            }
        }
    }
}

/* Whatever the pieces: the same bits. And near the sum that a plain loop gives. */
Test(compress_math, norms_do_not_depend_on_pieces)
{
    uint64_t state = test_seed(58);
    pack_model model = pack_model_normal(5000, &state);
    dunlin__norm whole = {.n_values = 0};
    double plain = 0.0;
    memset(model.values + 777, 0, 1000 * sizeof(float));
    dunlin__norm_add(&whole, model.values, model.n_all);
    for (size_t i = 0; i < model.n_all; i++) {
        plain += (double)model.values[i] * (double)model.values[i];
    }
    cr_assert_float_eq(dunlin__norm_square(&whole), plain, 1e-9);
    for (int i = 0; i < 50; i++) {
        dunlin__norm parts = {.n_values = 0};
        for (size_t at = 0; at < model.n_all;) {
            if (at == 777) {
                dunlin__norm_skip(&parts, 1000);
                at += 1000;
                continue;
            }
            const size_t end = (at < 777) ? 777 : model.n_all;
            size_t n = 1 + (size_t)test_random_below(&state, 100);
            n = (n < end - at) ? n : end - at;
            dunlin__norm_add(&parts, model.values + at, n);
            at += n;
        }
        cr_assert(dunlin__norm_square(&parts) == dunlin__norm_square(&whole));
    }
    pack_model_free(&model);
}
