/*
 * test_scaled.c - floats to int8 with scales and back: against a model in plain C, the mean and the
 * spread of what is drawn against the formula, and what may change no bit.
 */
#include "checks/buffers.h"
#include "kernels/api/integer.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(scaled, .timeout = 900);

#define MARK 0xA5U
#define KEY UINT64_C(0x1234567890ABCDEF)

static float float_of(uint32_t bits)
{
    float x = 0.0F;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- the model --- */

/* The least bfloat16 that is no less than a 127th of the largest, and 2^-100 at least; a number
 * that is none if 127 of it are not finite. */
static uint16_t model_scale(const float *x, int32_t n)
{
    float largest = 0.0F;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return 0x7FC0;
        }
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const float part = largest * 0x1.02042p-7F; /* 1.0000015 times a 127th */
    uint16_t scale = 0x0D80;                    /* 2^-100 */
    uint16_t above = 0x7F80;
    if (float_of((uint32_t)scale << 16) >= part) {
        return scale;
    }
    /* Numbers above zero are in the order of their bits: scale < part <= above. */
    while (above - scale > 1) {
        const uint16_t middle = (uint16_t)((scale + above) / 2);
        if (float_of((uint32_t)middle << 16) >= part) {
            above = middle;
        } else {
            scale = middle;
        }
    }
    return (double)float_of((uint32_t)above << 16) * 127.0 <= (double)FLT_MAX ? above : 0x7FC0;
}

/* Uniform in [0, 1), of 23 bits. */
static double model_draw(uint64_t key, int64_t sample, uint32_t element)
{
    const uint64_t bits = dunlin__int_draw(key, (uint64_t)sample);
    uint32_t z = element ^ (uint32_t)bits;
    z = (z ^ (z >> 16)) * 0x85EBCA6BU;
    z ^= (uint32_t)(bits >> 32);
    z = (z ^ (z >> 13)) * 0xC2B2AE35U;
    return (double)(z >> 9) * 0x1p-23;
}

static int model_number(const dunlin_scaled_call *call, float quotient, int64_t sample,
                        uint32_t element)
{
    if (!call->is_drawn) {
        return (int)nearbyint((double)quotient);
    }
    const double v = trunc((double)quotient * 0x1p23) * 0x1p-23; /* as fine as the draw */
    return (int)floor(v + model_draw(call->key, call->first_sample + sample, element));
}

/* Bytes of a sample and the floats that are read from them. */
static void model_store(const dunlin_scaled_call *call, int64_t sample, unsigned char *bytes,
                        float *back)
{
    const int64_t rows = call->rows_per_sample;
    const int32_t channels = call->channels;
    const int32_t n_blocks = (channels + 31) / 32;
    for (int64_t r = 0; r < rows; r++) {
        for (int32_t b = 0; b < n_blocks; b++) {
            const int32_t n = channels - 32 * b < 32 ? channels - 32 * b : 32;
            const int64_t at = r * channels + 32 * b;
            const float *x = call->floats + sample * rows * channels + at;
            const uint16_t half = model_scale(x, n);
            const float scale = float_of((uint32_t)half << 16);
            memcpy(bytes + 2 * (r * n_blocks + b), &half, 2);
            for (int32_t i = 0; i < n; i++) {
                const int q = half == 0x7FC0 ? 0
                                             : model_number(call, x[i] * (1.0F / scale), sample,
                                                            (uint32_t)(at + i));
                bytes[2 * rows * n_blocks + at + i] = (unsigned char)(signed char)q;
                back[at + i] = (float)q * scale;
            }
        }
    }
}

/* --- against it --- */

typedef struct scaled_case {
    int64_t rows, n_samples;
    int32_t channels;
} scaled_case;

static const scaled_case cases[] = {{1, 1, 1},   {1, 3, 5},    {7, 2, 6},   {9, 3, 16},  {5, 2, 24},
                                    {3, 5, 31},  {11, 2, 32},  {13, 3, 33}, {4, 2, 64},  {6, 2, 65},
                                    {2, 3, 515}, {197, 2, 96}, {1, 9, 100}, {900, 3, 20}};
#define N_CASES ((int)(sizeof cases / sizeof cases[0]))

/* Values of all sizes: rows of a common one, zeros among them, some far from the others. */
static float *values(int64_t n, int32_t channels, uint64_t *rng)
{
    float *x = buffer_random(n, rng);
    for (int64_t r = 0; r < n / channels; r++) {
        const int exponent = (int)test_random_below(rng, 226) - 100;
        for (int32_t c = 0; c < channels; c++) {
            float *at = x + r * channels + c;
            const uint64_t kind = test_random_below(rng, 16);
            *at = kind == 0 ? 0.0F : kind == 1 ? -0.0F : ldexpf(*at, exponent);
            *at = kind == 2 ? *at * 0.01F : *at;
        }
    }
    return x;
}

/* One call in every way, beside the model; what was stored, in malloc()ed bytes. */
static unsigned char *check_case(const dunlin_kernels *kernels, const scaled_case *shape, float *x,
                                 bool is_drawn, dunlin_threads *threads)
{
    const int64_t n_row = shape->rows * shape->channels;
    const int64_t n = shape->n_samples * n_row;
    const int64_t sample_bytes = dunlin__scaled_bytes(shape->rows, shape->channels);
    const size_t n_bytes = (size_t)(shape->n_samples * sample_bytes);
    unsigned char *bytes = malloc(n_bytes + 1);
    unsigned char *expected = malloc((size_t)sample_bytes);
    float *copy = buffer_new(n);
    float *loaded = buffer_new(n);
    float *back = buffer_new(n_row);
    cr_assert(bytes != NULL && expected != NULL);
    memcpy(copy, x, (size_t)n * sizeof *x);
    bytes[n_bytes] = MARK;
    dunlin_scaled_call call = {.rows_per_sample = shape->rows,
                               .n_samples = shape->n_samples,
                               .channels = shape->channels,
                               .floats = copy,
                               .bytes = bytes,
                               .is_drawn = is_drawn,
                               .key = KEY,
                               .first_sample = 7,
                               .threads = threads};
    kernels->scaled_store(&call);
    cr_assert_arr_eq(copy, x, (size_t)n * sizeof *x, "what is stored is left as it was");
    call.writes_back = true;
    kernels->scaled_store(&call);
    call.writes_back = false;
    call.floats = loaded;
    kernels->scaled_load(&call);
    call.floats = x;
    for (int64_t s = 0; s < shape->n_samples; s++) {
        model_store(&call, s, expected, back);
        cr_assert_arr_eq(bytes + s * sample_bytes, expected, (size_t)sample_bytes,
                         "%s: %d channels, sample %d", kernels->isa, (int)shape->channels, (int)s);
        for (int64_t i = 0; i < n_row; i++) {
            const float a = loaded[s * n_row + i];
            const float b = copy[s * n_row + i];
            cr_assert(isnan(back[i]) ? isnan(a) && isnan(b) : a == back[i] && b == back[i]);
        }
    }
    cr_assert_eq(bytes[n_bytes], MARK);
    cr_assert(buffer_is_intact(copy) && buffer_is_intact(loaded) && buffer_is_intact(x));
    buffer_free(copy);
    buffer_free(loaded);
    buffer_free(back);
    free(expected);
    return bytes;
}

static void check_model(const dunlin_kernels *kernels)
{
    dunlin_threads *threads = start_threads(3);
    uint64_t rng = 11;
    for (int i = 0; i < 4 * N_CASES; i++) {
        const scaled_case *shape = &cases[i / 4];
        const int64_t n = shape->n_samples * shape->rows * shape->channels;
        float *x = values(n, shape->channels, &rng);
        if (i % 4 >= 2) { /* some blocks have no scale */
            static const uint32_t odd[] = {0x7FC00000U, 0x7F800000U, 0xFF800000U,
                                           0x7F7FFFFFU, 0xFFFFFFFFU, 1};
            for (int k = 0; k < 6; k++) {
                x[test_random_below(&rng, (uint64_t)n)] = float_of(odd[k]);
            }
        }
        free(check_case(kernels, shape, x, i % 2 == 0, i % 4 == 1 ? NULL : threads));
        buffer_free(x);
    }
    stop_threads(threads);
}

Test(scaled, as_the_model_has_it)
{
    each_isa(check_model);
}

/* Of the largest number of a block 127 scales, whatever its size; nothing beyond. */
static void check_limits(const dunlin_kernels *kernels)
{
    const scaled_case one = {1, 1, 1};
    for (uint32_t bits = 0; bits < 0x7F800000U; bits += 0x00035797U) {
        float *x = buffer_new(1);
        x[0] = bits % 2 == 0 ? float_of(bits) : -float_of(bits);
        unsigned char *bytes = check_case(kernels, &one, x, true, NULL);
        uint16_t half = 0;
        memcpy(&half, bytes, 2);
        const double scale = (double)float_of((uint32_t)half << 16);
        if (half == 0x7FC0) {
            cr_assert_gt(fabs((double)x[0]), 3.4026e38);
        } else {
            const double size = fabs((double)x[0]);
            const double read = scale * fabs((double)(signed char)bytes[2]);
            cr_assert_leq(fabs(size - read), scale, "%a", (double)x[0]);
            /* a bfloat16 is 1/128 coarse */
            cr_assert(half == 0x0D80 || (signed char)bytes[2] >= 126 ||
                      (signed char)bytes[2] <= -126);
        }
        free(bytes);
        buffer_free(x);
    }
}

Test(scaled, scales_of_all_sizes)
{
    each_isa(check_limits);
}

/* --- what is drawn --- */

#define N_DRAWS 4000
#define N_VALUES 96 /* three blocks */

/*
 * Over steps an element's number has the mean v = x / scale and the variance f (1 - f), f what v is
 * above a whole number; and draws of neighbours, samples and steps know nothing of each other, so
 * errors of a whole row add up in squares.
 */
static void check_draws(const dunlin_kernels *kernels)
{
    static const char *const ways[] = {"steps", "samples"};
    uint64_t rng = 5;
    float *x = buffer_random(N_VALUES, &rng);
    for (int way = 0; way < 2; way++) {
        double sum[N_VALUES] = {0.0};
        double row_square = 0.0;
        double spread[N_VALUES];
        double v[N_VALUES];
        unsigned char bytes[N_VALUES + 6];
        for (int64_t k = 0; k < N_DRAWS; k++) {
            double row = 0.0;
            kernels->scaled_store(
                &(dunlin_scaled_call){.rows_per_sample = 1,
                                      .n_samples = 1,
                                      .channels = N_VALUES,
                                      .floats = x,
                                      .bytes = bytes,
                                      .is_drawn = true,
                                      .key = dunlin__int_key(1, way == 0 ? (uint64_t)k : 3, 9),
                                      .first_sample = way == 1 ? k : 0});
            for (int i = 0; i < N_VALUES; i++) {
                uint16_t half = 0;
                memcpy(&half, bytes + (size_t)2 * (size_t)(i / 32), 2);
                v[i] = (double)x[i] / (double)float_of((uint32_t)half << 16);
                spread[i] = (v[i] - floor(v[i])) * (1.0 - (v[i] - floor(v[i])));
                const double error = (double)(signed char)bytes[6 + i] - v[i];
                cr_assert_lt(fabs(error), 1.0 + 1e-5);
                sum[i] += error;
                row += error;
            }
            row_square += row * row;
        }
        /* squares of N_VALUES standard normals, of mean 1 and standard deviation sqrt(2) each */
        double squares = 0.0;
        double variance = 0.0;
        for (int i = 0; i < N_VALUES; i++) {
            squares += sum[i] * sum[i] / (N_DRAWS * spread[i]);
            variance += spread[i];
        }
        cr_expect_lt(fabs(squares - N_VALUES), 4.0 * sqrt(2.0 * N_VALUES), "%s, %s: %g",
                     kernels->isa, ways[way], squares);
        const double ratio = row_square / N_DRAWS / variance;
        cr_expect_lt(fabs(ratio - 1.0), 4.0 * sqrt(2.0 / N_DRAWS), "%s, %s: %g", kernels->isa,
                     ways[way], ratio);
    }
    buffer_free(x);
}

Test(scaled, drawn_numbers_have_the_true_mean_and_no_more_spread_than_they_must)
{
    each_isa(check_draws);
}

/* The seed, the step, the tensor, the sample and the place each change the draws. */
Test(scaled, draws_are_keyed_by_all_that_they_should_be)
{
    const dunlin_kernels *kernels = dunlin__kernels_select(NULL);
    enum { N = 64 };
    float x[N];
    signed char drawn[6][N];
    const uint64_t keys[6][4] = {{1, 2, 3, 4}, {2, 2, 3, 4}, {1, 3, 3, 4},
                                 {1, 2, 4, 4}, {1, 2, 3, 5}, {1, 2, 3, 4}};
    for (int k = 0; k < 6; k++) {
        unsigned char bytes[N + 4];
        for (int i = 0; i < N; i++) {
            x[i] = i % 32 == 0 ? 127.0F : 0.5F;
        }
        kernels->scaled_store(
            &(dunlin_scaled_call){.rows_per_sample = 1,
                                  .n_samples = 1,
                                  .channels = N,
                                  .floats = x,
                                  .bytes = bytes,
                                  .is_drawn = true,
                                  .key = dunlin__int_key(keys[k][0], keys[k][1], keys[k][2]),
                                  .first_sample = (int64_t)keys[k][3]});
        memcpy(drawn[k], bytes + 4, N);
        cr_expect(memcmp(drawn[k], drawn[k] + 32, 32) != 0, "places");
    }
    for (int k = 1; k < 5; k++) {
        cr_expect(memcmp(drawn[0], drawn[k], N) != 0, "part %d of the key", k);
    }
    cr_expect_arr_eq(drawn[0], drawn[5], N);
}

/* --- what may change no bit --- */

Test(scaled, one_result_on_every_instruction_set_and_however_it_is_cut)
{
    const int n_channels[] = {24, 100};
    for (int c = 0; c < 2; c++) {
        enum { ROWS = 113, SAMPLES = 6 };
        const int64_t n_row = (int64_t)ROWS * n_channels[c];
        const int64_t sample_bytes = dunlin__scaled_bytes(ROWS, n_channels[c]);
        uint64_t rng = 17;
        float *x = values(SAMPLES * n_row, n_channels[c], &rng);
        unsigned char *bytes = malloc((size_t)(2 * SAMPLES * sample_bytes));
        cr_assert_not_null(bytes);
        dunlin_scaled_call whole = {.rows_per_sample = ROWS,
                                    .n_samples = SAMPLES,
                                    .channels = n_channels[c],
                                    .floats = x,
                                    .bytes = bytes,
                                    .is_drawn = true,
                                    .key = KEY};
        dunlin__kernels_select(NULL)->scaled_store(&whole);
        const char *isa = NULL;
        for (int i = 0; (isa = dunlin__kernels_isa(i)) != NULL; i++) {
            for (int64_t s = 0; s < SAMPLES; s += 1 + i % 3) {
                dunlin_scaled_call piece = whole;
                piece.n_samples = s + 1 + i % 3 > SAMPLES ? SAMPLES - s : 1 + i % 3;
                piece.first_sample = s;
                piece.floats = x + s * n_row;
                piece.bytes = bytes + (SAMPLES + s) * sample_bytes;
                dunlin__kernels_select(isa)->scaled_store(&piece);
            }
            cr_expect_arr_eq(bytes, bytes + SAMPLES * sample_bytes,
                             (size_t)(SAMPLES * sample_bytes), "%s", isa);
        }
        free(bytes);
        buffer_free(x);
    }
}
