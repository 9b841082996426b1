/*
 * test_pointwise.c - clip, add, rows, transpose, dropout, staging: each against
 * its definition, serial and on threads, in place where that is allowed.
 */
#include "checks/buffers.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(pointwise, .timeout = 900);

#define LONG 100003 /* beyond what one thread keeps to itself */

static dunlin_threads *pools[2]; /* none, three threads */

static void each(each_isa_fn fn)
{
    pools[1] = start_threads(3);
    each_isa(fn);
    stop_threads(pools[1]);
}

static void check_clip(const dunlin_kernels *kernels)
{
    uint64_t state = 1;
    float *x = buffer_random(LONG, &state);
    float *dy = buffer_random(LONG, &state);
    float *y = buffer_new(LONG);
    float *dx = buffer_new(LONG);
    x[7] = NAN;
    x[8] = 0.0f;
    for (int p = 0; p < 2; p++) {
        kernels->clip(LONG, x, 0.0f, 0.5f, y, pools[p]);
        kernels->clip_grad(LONG, dy, y, 0.0f, 0.5f, dx, pools[p]);
        for (int64_t i = 0; i < LONG; i++) {
            if (i == 7) {
                cr_assert(isnan(y[7]));
                continue;
            }
            cr_assert_eq(y[i], fminf(fmaxf(x[i], 0.0f), 0.5f));
            cr_assert_eq(dx[i], x[i] > 0.0f && x[i] < 0.5f ? dy[i] : 0.0f);
        }
    }
    kernels->clip(LONG, x, 0.0f, INFINITY, x, NULL);
    kernels->clip_grad(LONG, dy, x, 0.0f, INFINITY, dy, NULL);
    cr_assert_eq(x[8], 0.0f);
    cr_assert_eq(dy[8], 0.0f);
    cr_assert(buffer_is_intact(y) && buffer_is_intact(dx));
    buffer_free(x);
    buffer_free(dy);
    buffer_free(y);
    buffer_free(dx);
}

Test(pointwise, clip_and_its_gradient)
{
    each(check_clip);
}

static void check_add(const dunlin_kernels *kernels)
{
    uint64_t state = 2;
    float *a = buffer_random(LONG, &state);
    float *b = buffer_random(LONG, &state);
    float *sum = buffer_new(LONG);
    kernels->add(LONG, a, b, sum, pools[1]);
    for (int64_t i = 0; i < LONG; i++) {
        cr_assert_eq(sum[i], a[i] + b[i]);
    }
    kernels->add(LONG, a, b, a, NULL);
    cr_assert(buffer_same_bits(a, sum, LONG));
    cr_assert(buffer_is_intact(sum));
    buffer_free(a);
    buffer_free(b);
    buffer_free(sum);
}

Test(pointwise, add)
{
    each(check_add);
}

static void check_rows(const dunlin_kernels *kernels)
{
    uint64_t state = 3;
    static const int64_t widths[] = {1, 3, 7, 16, 17, 40};
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        const int64_t n = LONG / widths[w] / 2;
        const int64_t from_pitch = widths[w] + 2;
        const int64_t to_pitch = widths[w] + 5;
        float *from = buffer_random(n * from_pitch, &state);
        float *to = buffer_new(n * to_pitch);
        memset(to, 0, (size_t)(n * to_pitch) * sizeof(float));
        kernels->copy_rows(n, widths[w], from, from_pitch, to + 3, to_pitch, pools[w % 2]);
        for (int64_t i = 0; i < n * to_pitch; i++) {
            int64_t column = i % to_pitch - 3;
            bool is_copied = column >= 0 && column < widths[w];
            cr_assert_eq(to[i], is_copied ? from[i / to_pitch * from_pitch + column] : 0.0f);
        }
        cr_assert(buffer_is_intact(to));
        buffer_free(from);
        buffer_free(to);
    }
}

Test(pointwise, rows_are_copied_and_gaps_left_alone)
{
    each(check_rows);
}

static void check_transpose(const dunlin_kernels *kernels)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {2, 3, 5},    {3, 4, 8},   {1, 49, 16},
                                       {2, 65, 70}, {3, 1, 100},  {2, 196, 3}, {1, 7, 1},
                                       {1, 64, 64}, {2, 300, 130}};
    uint64_t state = 4;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t rows = sizes[s][1];
        const int64_t columns = sizes[s][2];
        const int64_t n = sizes[s][0] * rows * columns;
        float *x = buffer_random(n, &state);
        float *y = buffer_new(n);
        kernels->transpose(sizes[s][0], rows, columns, x, y, pools[s % 2]);
        for (int64_t i = 0; i < n; i++) {
            int64_t sample = i / rows / columns;
            int64_t row = i / columns % rows;
            cr_assert_eq(y[(sample * columns + i % columns) * rows + row], x[i]);
        }
        cr_assert(buffer_is_intact(y));
        buffer_free(x);
        buffer_free(y);
    }
}

Test(pointwise, transpose)
{
    each(check_transpose);
}

static void check_dropout(const dunlin_kernels *kernels)
{
    const int64_t n_elements = 1001;
    const int64_t n = 101;
    uint64_t state = 5;
    float *x = buffer_random(n * n_elements, &state);
    float *y = buffer_new(n * n_elements);
    float *part = buffer_new(n * n_elements);
    kernels->dropout(0, n, n_elements, 0.3f, 42, x, y, pools[1]);
    int64_t kept = 0;
    for (int64_t i = 0; i < n * n_elements; i++) {
        cr_assert(y[i] == 0.0f || y[i] == x[i] * (1.0f / (1.0f - 0.3f)));
        kept += y[i] != 0.0f;
    }
    /* five deviations of a binomial */
    const double mean = 0.7 * (double)(n * n_elements);
    cr_assert_float_eq((double)kept, mean, 5.0 * sqrt(0.3 * mean));
    for (int64_t first = 0; first < n; first += 7) {
        const int64_t count = n - first < 7 ? n - first : 7;
        kernels->dropout(first, count, n_elements, 0.3f, 42, x + first * n_elements,
                         part + first * n_elements, NULL);
    }
    cr_assert(buffer_same_bits(part, y, n * n_elements), "%s: slices differ", kernels->isa);
    kernels->dropout(0, n, n_elements, 0.3f, 43, x, part, NULL);
    int64_t changed = 0;
    for (int64_t i = 0; i < n * n_elements; i++) {
        changed += (part[i] == 0.0f) != (y[i] == 0.0f);
    }
    /* two independent masks differ in 2 * 0.3 * 0.7 of the places */
    cr_assert_float_eq((double)changed / (double)(n * n_elements), 0.42, 0.01);
    kernels->dropout(0, n, n_elements, 0.0f, 42, x, part, NULL);
    cr_assert(buffer_same_bits(part, x, n * n_elements));
    kernels->dropout(0, n, n_elements, 0.3f, 42, x, x, NULL);
    cr_assert(buffer_same_bits(x, y, n * n_elements));
    buffer_free(x);
    buffer_free(y);
    buffer_free(part);
}

Test(pointwise, dropout_depends_on_key_and_place_alone)
{
    each(check_dropout);
}

static void check_stage(const dunlin_kernels *kernels)
{
    static const int64_t sizes[][3] = {{3, 784, 1}, {2, 1024, 3}, {1, 5, 7}, {4, 9000, 3}};
    const float mean[7] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f};
    const float inv_std[7] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f};
    uint64_t state = 6;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t pixels = sizes[s][1];
        const int64_t channels = sizes[s][2];
        const int64_t n = sizes[s][0] * pixels * channels;
        float *floats = buffer_random(n, &state);
        float *y = buffer_new(n);
        uint8_t *bytes = malloc((size_t)n);
        cr_assert_not_null(bytes);
        for (int64_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)test_random_below(&state, 256);
        }
        for (int kind = 0; kind < 2; kind++) {
            const float scale = kind == 0 ? 1.0f / 255.0f : 2.0f;
            if (kind == 0) {
                kernels->stage_u8(sizes[s][0], pixels, (int32_t)channels, bytes, scale, mean,
                                  inv_std, y, pools[s % 2]);
            } else {
                kernels->stage_f32(sizes[s][0], pixels, (int32_t)channels, floats, scale, mean,
                                   inv_std, y, pools[s % 2]);
            }
            for (int64_t i = 0; i < n; i++) {
                int64_t sample = i / pixels / channels;
                int64_t c = i / pixels % channels;
                float value = kind == 0 ? (float)bytes[i] : floats[i];
                cr_assert_eq(y[(sample * pixels + i % pixels) * channels + c],
                             (value * scale - mean[c]) * inv_std[c]);
            }
        }
        cr_assert(buffer_is_intact(y));
        free(bytes);
        buffer_free(floats);
        buffer_free(y);
    }
}

Test(pointwise, staging_ordered_planes_to_pixels)
{
    each(check_stage);
}
