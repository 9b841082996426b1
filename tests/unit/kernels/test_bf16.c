/*
 * test_bf16.c - floats to bfloat16 and back, against a model that looks for the nearest number; and
 * sums of batch norm of what has been rounded.
 */
#include "checks/buffers.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(bf16, .timeout = 900);

#define N_LOWER 7
#define N_EACH (65536 * N_LOWER)

static float float_of(uint32_t bits)
{
    float x = 0.0F;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Of the two numbers around x the nearer one; of two as near the one whose last bit is 0. What is
 * half a step or more beyond the largest is infinite. */
static uint16_t model_of(float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t below = (uint16_t)(bits >> 16);
    if (isnan(x)) {
        return (uint16_t)(below | 0x40U);
    }
    if (isinf(x)) {
        return below;
    }
    const uint16_t above = (uint16_t)(below + 1);
    const double size = fabs((double)x);
    const double low = fabs((double)float_of((uint32_t)below << 16));
    const double high = isinf(float_of((uint32_t)above << 16))
                            ? 0x1p128
                            : fabs((double)float_of((uint32_t)above << 16));
    if (size - low == high - size) {
        return below % 2 == 0 ? below : above;
    }
    return size - low < high - size ? below : above;
}

/* All upper halves with lower ones around where the result turns. */
static float *every_case(void)
{
    static const uint32_t lower[N_LOWER] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF};
    float *x = buffer_new(N_EACH);
    for (uint32_t i = 0; i < N_EACH; i++) {
        const uint32_t bits = i / N_LOWER << 16 | lower[i % N_LOWER];
        memcpy(x + i, &bits, sizeof bits);
    }
    return x;
}

static void check_store(const dunlin_kernels *kernels)
{
    float *x = every_case();
    float *back = buffer_new(N_EACH);
    uint16_t *halves = malloc((N_EACH + 1) * sizeof *halves);
    cr_assert_not_null(halves);
    dunlin_threads *threads = start_threads(3);
    for (int p = 0; p < 2; p++) {
        halves[N_EACH] = 0xABCD;
        kernels->bf16_store(N_EACH, x, halves, p == 0 ? NULL : threads);
        cr_assert_eq(halves[N_EACH], 0xABCD);
        for (int64_t i = 0; i < N_EACH; i++) {
            const uint16_t expected = model_of(x[i]);
            cr_assert_eq(halves[i], expected, "%s: %a is %04x, not %04x", kernels->isa,
                         (double)x[i], halves[i], expected);
        }
        kernels->bf16_load(N_EACH, halves, back, p == 0 ? NULL : threads);
        for (int64_t i = 0; i < N_EACH; i++) {
            uint32_t bits = 0;
            memcpy(&bits, back + i, sizeof bits);
            cr_assert_eq(bits, (uint32_t)halves[i] << 16, "%s: %lld", kernels->isa, (long long)i);
        }
    }
    cr_assert(buffer_is_intact(back));
    stop_threads(threads);
    free(halves);
    buffer_free(x);
    buffer_free(back);
}

Test(bf16, the_nearest_and_back)
{
    each_isa(check_store);
}

static void check_sums(const dunlin_kernels *kernels)
{
    static const int64_t rows[] = {1, 63, 113, 900};
    static const int32_t widths[] = {1, 5, 16, 515};
    uint64_t state = 3;
    for (int i = 0; i < 16; i++) {
        const int64_t n_rows = rows[i / 4];
        const int32_t channels = widths[i % 4];
        const int64_t n_samples = 3;
        const int64_t n = n_samples * n_rows * channels;
        float *x = buffer_random(n, &state);
        float *rounded = buffer_new(n);
        float *about = buffer_random(channels, &state);
        uint16_t *halves = malloc((size_t)n * sizeof *halves);
        double *sums = calloc((size_t)channels * 4, sizeof *sums);
        uint64_t sample_bytes = 0;
        const uint64_t bytes = kernels->close_workspace_bytes(channels, n_rows, &sample_bytes);
        double *workspace = calloc(1, (size_t)(bytes + sample_bytes * 3 + 64));
        cr_assert(halves != NULL && sums != NULL && workspace != NULL);
        for (int64_t k = 0; k < n; k++) {
            rounded[k] = float_of((uint32_t)model_of(x[k]) << 16);
        }
        dunlin_sums_call call = {.rows_per_sample = n_rows,
                                 .n_samples = n_samples,
                                 .channels = channels,
                                 .stat = {.raw = rounded, .raw_pitch = channels, .about = about},
                                 .is_reset = true,
                                 .workspace = workspace};
        call.stat.sums = sums;
        kernels->sums(&call);
        call.stat.raw = x;
        call.stat.sums = sums + (int64_t)2 * channels;
        call.rounding = (dunlin_rounding){.floats = x, .halves = halves};
        kernels->sums(&call);
        cr_expect_arr_eq(sums, sums + (int64_t)2 * channels, (size_t)channels * 2 * sizeof *sums,
                         "%s: %d channels, %lld rows", kernels->isa, channels, (long long)n_rows);
        cr_expect_arr_eq(x, rounded, (size_t)n * sizeof *x);
        for (int64_t k = 0; k < n; k++) {
            cr_assert_eq(float_of((uint32_t)halves[k] << 16), rounded[k]);
        }
        cr_assert(buffer_is_intact(x));
        free(halves);
        free(sums);
        free(workspace);
        buffer_free(x);
        buffer_free(rounded);
        buffer_free(about);
    }
}

Test(bf16, sums_of_what_was_rounded)
{
    each_isa(check_sums);
}
