/*
 * test_pool.c - pooling against the double reference: overlapping windows, padding, windows that
 * hang over the edge; ties; gradients by differences.
 */
#include "checks/buffers.h"
#include "checks/places_check.h"
#include "checks/sink_check.h"
#include "checks/view_double.h"
#include "random.h"
#include "reference.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(pool, .timeout = 900);

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)test_random_below(state, (uint64_t)n);
}

/* Windows may end outside the padded image, as rounding up does. 528 channels are more than one
 * task takes of a pixel at once, and the rest is few. */
static dunlin_pool_shape random_shape(uint64_t *state)
{
    static const int32_t channels[] = {1, 3, 8, 17, 24, 64, 528};
    dunlin_pool_shape s = {.kernel_h = 1 + below(state, 4),
                           .kernel_w = 1 + below(state, 4),
                           .stride_h = 1 + below(state, 3),
                           .stride_w = 1 + below(state, 3),
                           .channels = channels[below(state, 7)],
                           .counts_padding = below(state, 2) == 1};
    if (below(state, 4) == 0) { /* taps that lie apart */
        s.dilation_h = 1 + below(state, 3);
        s.dilation_w = 1 + below(state, 3);
    }
    s.is_sum = below(state, 4) == 0;
    const int32_t reach_h = (s.kernel_h - 1) * (s.dilation_h > 1 ? s.dilation_h : 1) + 1;
    const int32_t reach_w = (s.kernel_w - 1) * (s.dilation_w > 1 ? s.dilation_w : 1) + 1;
    s.pad_top = below(state, s.kernel_h);
    s.pad_left = below(state, s.kernel_w);
    s.pad_bottom = below(state, s.kernel_h);
    s.pad_right = below(state, s.kernel_w);
    s.in_h = reach_h + below(state, 9);
    s.in_w = reach_w + below(state, 9);
    const int32_t up_h = below(state, 2) * (s.stride_h - 1);
    const int32_t up_w = below(state, 2) * (s.stride_w - 1);
    s.out_h = (s.in_h + s.pad_top + s.pad_bottom - reach_h + up_h) / s.stride_h + 1;
    s.out_w = (s.in_w + s.pad_left + s.pad_right - reach_w + up_w) / s.stride_w + 1;
    return s;
}

typedef struct pool_data {
    dunlin_pool_shape shape;
    int64_t n, n_x, n_y;
    float *x, *dy, *y, *dx;
    double *x_double, *dy_double, *y_double, *dx_double;
    uint8_t *index, *index_expected;
} pool_data;

static void pool_open(pool_data *d, uint64_t *state)
{
    d->shape = random_shape(state);
    d->n = 1 + below(state, 3);
    d->n_x = d->n * d->shape.in_h * d->shape.in_w * d->shape.channels;
    d->n_y = d->n * d->shape.out_h * d->shape.out_w * d->shape.channels;
    d->x = buffer_random(d->n_x, state);
    d->dy = buffer_random(d->n_y, state);
    for (int64_t i = 0; i < d->n_x; i++) {
        d->x[i] = roundf(d->x[i] * 8.0f); /* many ties */
    }
    d->y = buffer_new(d->n_y);
    d->dx = buffer_new(d->n_x);
    d->x_double = buffer_doubles(d->x, d->n_x);
    d->dy_double = buffer_doubles(d->dy, d->n_y);
    d->y_double = buffer_doubles(NULL, d->n_y);
    d->dx_double = buffer_doubles(NULL, d->n_x);
    d->index = places_new(d->n_y);
    d->index_expected = malloc((size_t)d->n_y);
    cr_assert_not_null(d->index_expected);
}

static void pool_close(pool_data *d)
{
    cr_assert(buffer_is_intact(d->y) && buffer_is_intact(d->dx));
    buffer_free(d->x);
    buffer_free(d->dy);
    buffer_free(d->y);
    buffer_free(d->dx);
    free(d->x_double);
    free(d->dy_double);
    free(d->y_double);
    free(d->dx_double);
    free(d->index);
    free(d->index_expected);
}

static void check_max(const dunlin_kernels *kernels, uint64_t seed)
{
    uint64_t state = seed;
    pool_data d;
    pool_open(&d, &state);
    reference_max_pool(&d.shape, d.n, d.x_double, d.y_double, d.index_expected);
    reference_max_pool_grad(&d.shape, d.n, d.dy_double, d.index_expected, d.dx_double);
    kernels->max_pool(&d.shape, d.n, d.x, d.y, d.index, NULL);
    cr_assert_lt(buffer_first_wrong(d.y, d.y_double, NULL, 0.0, d.n_y), 0, "%s: seed %llu",
                 kernels->isa, (unsigned long long)seed);
    expect_places(kernels->isa, &d.shape, d.n_y, d.index, d.index_expected, seed);
    kernels->max_pool_grad(&d.shape, d.n, d.dy, d.index, d.dx, NULL);
    cr_assert_lt(buffer_first_wrong(d.dx, d.dx_double, NULL, 16.0, d.n_x), 0, "%s: seed %llu",
                 kernels->isa, (unsigned long long)seed);
    float *other = buffer_new(d.n_y);
    kernels->max_pool(&d.shape, d.n, d.x, other, NULL, NULL);
    cr_assert(buffer_same_bits(other, d.y, d.n_y), "%s: without index, seed %llu", kernels->isa,
              (unsigned long long)seed);
    buffer_free(other);
    pool_close(&d);
}

static void check_all_max(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(21);
    for (int i = 0; i < test_cases(60); i++) {
        check_max(kernels, seed++);
    }
}

Test(pool, max_agrees_with_double)
{
    each_isa(check_all_max);
}

static void check_average(const dunlin_kernels *kernels, uint64_t seed)
{
    uint64_t state = seed;
    pool_data d;
    pool_open(&d, &state);
    reference_average_pool(&d.shape, d.n, d.x_double, d.y_double);
    reference_average_pool_grad(&d.shape, d.n, d.dy_double, d.dx_double);
    kernels->average_pool(&d.shape, d.n, d.x, d.y, NULL);
    cr_assert_lt(buffer_first_wrong(d.y, d.y_double, NULL, 16.0, d.n_y), 0, "%s: seed %llu",
                 kernels->isa, (unsigned long long)seed);
    kernels->average_pool_grad(&d.shape, d.n, d.dy, d.dx, NULL);
    cr_assert_lt(buffer_first_wrong(d.dx, d.dx_double, NULL, 32.0, d.n_x), 0, "%s: seed %llu",
                 kernels->isa, (unsigned long long)seed);
    pool_close(&d);
}

static void check_all_averages(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(22);
    for (int i = 0; i < test_cases(60); i++) {
        check_average(kernels, seed++);
    }
}

Test(pool, average_agrees_with_double)
{
    each_isa(check_all_averages);
}

static double weighted_sum(const pool_data *d, bool is_max)
{
    if (is_max) {
        reference_max_pool(&d->shape, d->n, d->x_double, d->y_double, NULL);
    } else {
        reference_average_pool(&d->shape, d->n, d->x_double, d->y_double);
    }
    double sum = 0.0;
    for (int64_t i = 0; i < d->n_y; i++) {
        sum += d->y_double[i] * d->dy_double[i];
    }
    return sum;
}

static void check_slopes(const dunlin_kernels *kernels, uint64_t seed, bool is_max)
{
    uint64_t state = seed;
    pool_data d;
    pool_open(&d, &state);
    for (int64_t i = 0; i < d.n_x; i++) { /* no ties here: the maximum has a kink there */
        d.x[i] = (float)((i * 7919) % 4099) / 16.0f;
        d.x_double[i] = (double)d.x[i];
    }
    if (is_max) {
        kernels->max_pool(&d.shape, d.n, d.x, d.y, d.index, NULL);
        kernels->max_pool_grad(&d.shape, d.n, d.dy, d.index, d.dx, NULL);
    } else {
        kernels->average_pool_grad(&d.shape, d.n, d.dy, d.dx, NULL);
    }
    for (int i = 0; i < 10; i++) {
        int64_t at = (int64_t)test_random_below(&state, (uint64_t)d.n_x);
        const double kept = d.x_double[at];
        d.x_double[at] = kept + 0x1p-7;
        double up = weighted_sum(&d, is_max);
        d.x_double[at] = kept - 0x1p-7;
        double slope = (up - weighted_sum(&d, is_max)) / 0x1p-6;
        d.x_double[at] = kept;
        cr_assert_float_eq(d.dx[at], slope, 1e-5, "%s: dx[%lld], seed %llu", kernels->isa,
                           (long long)at, (unsigned long long)seed);
    }
    pool_close(&d);
}

static void check_all_slopes(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(23);
    for (int i = 0; i < test_cases(10); i++, seed++) {
        check_slopes(kernels, seed, true);
        check_slopes(kernels, seed, false);
    }
}

Test(pool, gradients_are_slopes)
{
    each_isa(check_all_slopes);
}

static void check_nan(const dunlin_kernels *kernels)
{
    const dunlin_pool_shape shape = {.in_h = 2,
                                     .in_w = 2,
                                     .channels = 3,
                                     .out_h = 1,
                                     .out_w = 1,
                                     .kernel_h = 2,
                                     .kernel_w = 2,
                                     .stride_h = 2,
                                     .stride_w = 2};
    const float x[12] = {1.0f, -INFINITY, NAN,  NAN,  -INFINITY, 9.0f,
                         5.0f, -INFINITY, 1.0f, 2.0f, -INFINITY, 3.0f};
    float y[3] = {0};
    uint8_t index[3] = {9, 9, 9};
    kernels->max_pool(&shape, 1, x, y, index, NULL);
    cr_assert(isnan(y[0]) && place_number(&shape, index, 0) == 1, "%s", kernels->isa);
    cr_assert(isinf(y[1]) && place_number(&shape, index, 1) == 0, "%s", kernels->isa);
    cr_assert(isnan(y[2]) && place_number(&shape, index, 2) == 0, "%s", kernels->isa);
}

Test(pool, not_a_number_is_seen)
{
    each_isa(check_nan);
}

static void check_threads(const dunlin_kernels *kernels)
{
    const dunlin_pool_shape shape = {.in_h = 57,
                                     .in_w = 40,
                                     .channels = 24,
                                     .out_h = 29,
                                     .out_w = 20,
                                     .kernel_h = 3,
                                     .kernel_w = 3,
                                     .stride_h = 2,
                                     .stride_w = 2,
                                     .pad_top = 1,
                                     .pad_left = 1,
                                     .pad_bottom = 1,
                                     .pad_right = 1};
    const int64_t n_x = 2 * 57 * 40 * 24;
    const int64_t n_y = 2 * 29 * 20 * 24;
    uint64_t state = 4;
    float *x = buffer_random(n_x, &state);
    float *dy = buffer_random(n_y, &state);
    uint8_t *index = malloc((size_t)n_y);
    cr_assert_not_null(index);
    float *serial[4] = {buffer_new(n_y), buffer_new(n_x), buffer_new(n_y), buffer_new(n_x)};
    float *parallel[4] = {buffer_new(n_y), buffer_new(n_x), buffer_new(n_y), buffer_new(n_x)};
    dunlin_threads *threads = start_threads(3);
    for (int i = 0; i < 2; i++) {
        float **out = i == 0 ? serial : parallel;
        dunlin_threads *pool = i == 0 ? NULL : threads;
        kernels->max_pool(&shape, 2, x, out[0], index, pool);
        kernels->max_pool_grad(&shape, 2, dy, index, out[1], pool);
        kernels->average_pool(&shape, 2, x, out[2], pool);
        kernels->average_pool_grad(&shape, 2, dy, out[3], pool);
    }
    for (int i = 0; i < 4; i++) {
        cr_assert(buffer_same_bits(serial[i], parallel[i], i % 2 == 0 ? n_y : n_x));
        buffer_free(serial[i]);
        buffer_free(parallel[i]);
    }
    stop_threads(threads);
    free(index);
    buffer_free(x);
    buffer_free(dy);
}

Test(pool, threads_change_no_bit)
{
    each_isa(check_threads);
}

/* --- from a view, into a sink --- */

typedef struct sunk_pool {
    pool_data pool;
    int64_t x_pitch, y_pitch, g_pitch, raw_pitch;
    bool is_max, has_view, has_factor, has_raw;
    dunlin_view_fn fn;
    float *x, *scale, *shift, *g, *raw, *factor, *slope, *offset; /* as they lie */
    uint8_t *signs; /* of a global average without a view; NULL: not kept */
    epilogue_data epilogue;
} sunk_pool;

static float *spread(const float *from, int64_t n, int32_t channels, int64_t pitch)
{
    float *to = buffer_new(n / channels * pitch);
    for (int64_t i = 0; i < n; i++) {
        to[i / channels * pitch + i % channels] = from[i];
    }
    return to;
}

static void sunk_open(sunk_pool *d, uint64_t *state)
{
    pool_open(&d->pool, state);
    pool_data *p = &d->pool;
    const int32_t channels = p->shape.channels;
    d->is_max = below(state, 2) == 1;
    const bool is_global = below(state, 4) == 0;
    d->signs = NULL;
    if (is_global) {
        d->is_max = false;
        p->shape = (dunlin_pool_shape){.in_h = p->shape.in_h,
                                       .in_w = p->shape.in_w,
                                       .channels = channels,
                                       .out_h = 1,
                                       .out_w = 1,
                                       .kernel_h = p->shape.in_h,
                                       .kernel_w = p->shape.in_w,
                                       .stride_h = 1,
                                       .stride_w = 1};
        p->n_y = p->n * channels;
    }
    d->has_view = below(state, 2) == 1;
    if (is_global && !d->has_view) {
        d->signs = places_new(p->n_x / channels * dunlin__place_bytes(1, channels));
    }
    d->fn = view_fn_random(state);
    d->has_factor = below(state, 2) == 1;
    d->has_raw = below(state, 2) == 1;
    d->x_pitch = channels + below(state, 3);
    d->y_pitch = channels + below(state, 3);
    d->g_pitch = channels + below(state, 3);
    d->raw_pitch = channels + below(state, 3);
    d->x = spread(p->x, p->n_x, channels, d->x_pitch);
    d->g = spread(p->dy, p->n_y, channels, d->g_pitch);
    d->raw = buffer_random(p->n_y / channels * d->raw_pitch, state);
    float **numbers[] = {&d->scale, &d->shift, &d->factor, &d->slope, &d->offset};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        *numbers[i] = buffer_random(channels, state);
    }
    epilogue_data_open(&d->epilogue, p->n_x / channels, channels, state);
}

static void sunk_close(sunk_pool *d)
{
    float *all[] = {d->x, d->scale, d->shift, d->g, d->raw, d->factor, d->slope, d->offset};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        buffer_free(all[i]);
    }
    free(d->signs);
    epilogue_data_close(&d->epilogue);
    pool_close(&d->pool);
}

/* The double inputs become what view and gradient make of the floats. */
static void sunk_reference(sunk_pool *d)
{
    pool_data *p = &d->pool;
    const int32_t channels = p->shape.channels;
    for (int64_t i = 0; i < p->n_x && d->has_view; i++) {
        const int64_t c = i % channels;
        const double v = p->x_double[i] * (double)d->scale[c] + (double)d->shift[c];
        p->x_double[i] = view_double(d->fn, v, -1.0, 2.0);
    }
    for (int64_t i = 0; i < p->n_y; i++) {
        const int64_t c = i % channels;
        p->dy_double[i] *= d->has_factor ? (double)d->factor[c] : 1.0;
        if (d->has_raw) {
            const double raw = (double)d->raw[i / channels * d->raw_pitch + c];
            p->dy_double[i] += raw * (double)d->slope[c] + (double)d->offset[c];
        }
    }
    if (d->is_max) {
        reference_max_pool(&p->shape, p->n, p->x_double, p->y_double, p->index_expected);
        take_places(&p->shape, p->n_y, p->index, p->index_expected);
        reference_max_pool_grad(&p->shape, p->n, p->dy_double, p->index_expected, p->dx_double);
    } else {
        reference_average_pool(&p->shape, p->n, p->x_double, p->y_double);
        reference_average_pool_grad(&p->shape, p->n, p->dy_double, p->dx_double);
    }
    for (int64_t i = 0; i < p->n_x && d->signs != NULL; i++) {
        p->dx_double[i] = p->x[i] > -1.0f && p->x[i] < 2.0f ? p->dx_double[i] : 0.0;
    }
}

static void sunk_forward(const dunlin_kernels *kernels, sunk_pool *d, float *y)
{
    dunlin_pool_call call = {.shape = &d->pool.shape,
                             .is_max = d->is_max,
                             .n_samples = d->pool.n,
                             .x = {.x = d->x,
                                   .pitch = d->x_pitch,
                                   .scale = d->has_view ? d->scale : NULL,
                                   .shift = d->shift,
                                   .fn = d->fn,
                                   .low = -1.0f,
                                   .high = 2.0f},
                             .y_pitch = d->y_pitch};
    call.y = y;
    call.index = d->is_max ? d->pool.index : NULL;
    call.signs = d->signs;
    kernels->pool_forward(&call);
}

static void sunk_backward(const dunlin_kernels *kernels, sunk_pool *d, int64_t slice,
                          dunlin_threads *threads, epilogue_result *r)
{
    const dunlin_pool_shape *shape = &d->pool.shape;
    const int64_t sign_bytes = dunlin__place_bytes(1, shape->channels);
    epilogue_result_open(&d->epilogue, r);
    for (int64_t s = 0; s < d->pool.n; s += slice) {
        const int64_t in = s * shape->in_h * shape->in_w;
        const int64_t out = s * shape->out_h * shape->out_w;
        uint64_t sample_bytes = 0;
        uint64_t bytes = kernels->pool_workspace_bytes(shape, &sample_bytes);
        float *workspace = buffer_new((int64_t)(bytes + sample_bytes * (uint64_t)slice) / 4);
        dunlin_pool_call call = {.shape = shape,
                                 .is_max = d->is_max,
                                 .n_samples = slice,
                                 .index = d->pool.index + out * places_of_pixel(shape),
                                 .signs = d->signs == NULL ? NULL : d->signs + in * sign_bytes,
                                 .dy = {.g = d->g + out * d->g_pitch,
                                        .pitch = d->g_pitch,
                                        .factor = d->has_factor ? d->factor : NULL,
                                        .raw = d->has_raw ? d->raw + out * d->raw_pitch : NULL,
                                        .raw_pitch = d->raw_pitch,
                                        .slope = d->slope,
                                        .offset = d->offset},
                                 .dx = epilogue_of(&d->epilogue, r, in),
                                 .is_reset = s == 0,
                                 .workspace = workspace,
                                 .threads = threads};
        kernels->pool_backward(&call);
        cr_assert(buffer_is_intact(workspace), "%s: wrote outside its workspace", kernels->isa);
        buffer_free(workspace);
    }
}

static void check_sunk(const dunlin_kernels *kernels, uint64_t seed)
{
    uint64_t state = seed;
    sunk_pool d;
    sunk_open(&d, &state);
    pool_data *p = &d.pool;
    const int32_t channels = p->shape.channels;
    float *y = buffer_new(p->n_y / channels * d.y_pitch);
    sunk_forward(kernels, &d, y);
    sunk_reference(&d);
    for (int64_t i = 0; i < p->n_y; i++) {
        cr_assert_float_eq((double)y[i / channels * d.y_pitch + i % channels], p->y_double[i], 1e-4,
                           "%s: y, seed %llu", kernels->isa, (unsigned long long)seed);
    }
    double *size = buffer_doubles(NULL, p->n_x);
    for (int64_t i = 0; i < p->n_x; i++) {
        size[i] = 9.0;
    }
    epilogue_result whole;
    epilogue_result sliced;
    sunk_backward(kernels, &d, p->n, NULL, &whole);
    epilogue_compare(kernels->isa, &d.epilogue, &whole, p->dx_double, size, 8.0);
    dunlin_threads *threads = start_threads(2);
    sunk_backward(kernels, &d, 1, threads, &sliced);
    epilogue_compare_bits(kernels->isa, &d.epilogue, &whole, &sliced);
    stop_threads(threads);
    epilogue_result_close(&whole);
    epilogue_result_close(&sliced);
    buffer_free(y);
    free(size);
    sunk_close(&d);
}

static void check_all_sunk(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(24);
    for (int i = 0; i < test_cases(60); i++) {
        check_sunk(kernels, seed++);
    }
}

Test(pool, views_and_epilogues_agree_with_double)
{
    each_isa(check_all_sunk);
}
