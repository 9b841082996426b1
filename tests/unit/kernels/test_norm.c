/*
 * test_norm.c - batch norm's sums and maps against the double reference, its gradient against
 * differences, and the same bits for every slice and thread count.
 */
#include "checks/buffers.h"
#include "random.h"
#include "reference.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(norm, .timeout = 900);

#define EPSILON 1e-5

typedef struct norm_data {
    int32_t channels;
    int64_t rows, n, count;
    float *x, *dy, *gamma, *beta, *shift;
    float *mean, *inv_std, *out;
    double *sums;
} norm_data;

static void norm_open(norm_data *d, int32_t channels, int64_t rows, int64_t n, uint64_t seed)
{
    uint64_t state = seed;
    *d = (norm_data){.channels = channels, .rows = rows, .n = n, .count = n * rows * channels};
    d->x = buffer_random(d->count, &state);
    d->dy = buffer_random(d->count, &state);
    d->gamma = buffer_random(channels, &state);
    d->beta = buffer_random(channels, &state);
    d->shift = buffer_random(channels, &state);
    d->mean = buffer_new(channels);
    d->inv_std = buffer_new(channels);
    d->out = buffer_new(d->count);
    d->sums = malloc(2 * (size_t)channels * sizeof(double));
    cr_assert_not_null(d->sums);
}

static void norm_close(norm_data *d)
{
    float *all[] = {d->x, d->dy, d->gamma, d->beta, d->shift, d->mean, d->inv_std, d->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cr_assert(buffer_is_intact(all[i]));
        buffer_free(all[i]);
    }
    free(d->sums);
}

static dunlin_norm_call call_of(const norm_data *d, int64_t first, int64_t n,
                                dunlin_threads *threads)
{
    const int64_t at = first * d->rows * d->channels;
    return (dunlin_norm_call){.channels = d->channels,
                              .rows_per_sample = d->rows,
                              .n_samples = n,
                              .x = d->x + at,
                              .dy = d->dy + at,
                              .mean = d->mean,
                              .inv_std = d->inv_std,
                              .gamma = d->gamma,
                              .beta = d->beta,
                              .shift = d->shift,
                              .sums = d->sums,
                              .out = d->out + at,
                              .n_rows_batch = (double)(d->n * d->rows),
                              .is_reset = first == 0,
                              .threads = threads};
}

/* Statistics from the kernel's sums. */
static void finish(norm_data *d)
{
    const double n = (double)(d->n * d->rows);
    for (int32_t c = 0; c < d->channels; c++) {
        double offset = d->sums[c] / n;
        double var = d->sums[d->channels + c] / n - offset * offset;
        d->mean[c] = (float)((double)d->shift[c] + offset);
        d->inv_std[c] = (float)(1.0 / sqrt(var + EPSILON));
    }
}

static const int64_t sizes[][3] = {
    /* channels, rows a sample, samples */
    {1, 1, 5},    {3, 7, 4},   {16, 49, 5},  {17, 63, 3},   {24, 64, 3},
    {40, 100, 3}, {5, 300, 2}, {130, 65, 7}, {2100, 70, 3}, {96, 784, 4},
};
#define N_SIZES (sizeof sizes / sizeof sizes[0])

static void check_forward(const dunlin_kernels *kernels)
{
    for (size_t s = 0; s < N_SIZES; s++) {
        norm_data d;
        norm_open(&d, (int32_t)sizes[s][0], sizes[s][1], sizes[s][2], s + 1);
        dunlin_norm_call call = call_of(&d, 0, d.n, NULL);
        kernels->norm_sums(&call);
        finish(&d);
        kernels->norm_apply(&call);
        double *x = buffer_doubles(d.x, d.count);
        double *gamma = buffer_doubles(d.gamma, d.channels);
        double *beta = buffer_doubles(d.beta, d.channels);
        double *y = buffer_doubles(NULL, d.count);
        reference_norm(d.n * d.rows, d.channels, x, gamma, beta, EPSILON, y);
        /* five rows of one value each may lie close together: their deviation is small */
        double factor = d.n * d.rows < 16 ? 400.0 : 40.0;
        cr_assert_lt(buffer_first_wrong(d.out, y, NULL, factor, d.count), 0, "%s: size %zu",
                     kernels->isa, s);
        free(x);
        free(gamma);
        free(beta);
        free(y);
        norm_close(&d);
    }
}

Test(norm, forward_agrees_with_double)
{
    each_isa(check_forward);
}

/* A mean of 1000 with a deviation near one: squares about zero would lose the variance. */
static void check_cancellation(const dunlin_kernels *kernels)
{
    norm_data d;
    norm_open(&d, 20, 500, 4, 9);
    for (int64_t i = 0; i < d.count; i++) {
        d.x[i] += 1000.0f;
    }
    for (int32_t c = 0; c < d.channels; c++) {
        d.shift[c] = 999.5f;
    }
    dunlin_norm_call call = call_of(&d, 0, d.n, NULL);
    kernels->norm_sums(&call);
    finish(&d);
    double *x = buffer_doubles(d.x, d.count);
    double mean[20];
    double inv_std[20];
    reference_norm_statistics(d.n * d.rows, d.channels, x, EPSILON, mean, inv_std);
    for (int32_t c = 0; c < d.channels; c++) {
        cr_assert_float_eq((double)d.inv_std[c] / inv_std[c], 1.0, 1e-5, "%s", kernels->isa);
        cr_assert_float_eq((double)d.mean[c], mean[c], 1e-4, "%s", kernels->isa);
    }
    free(x);
    norm_close(&d);
}

Test(norm, variance_does_not_cancel)
{
    each_isa(check_cancellation);
}

/* dot(dy, norm(x)) */
static double weighted_sum(const norm_data *d, const double *x, double *y)
{
    double *gamma = buffer_doubles(d->gamma, d->channels);
    double *beta = buffer_doubles(d->beta, d->channels);
    reference_norm(d->n * d->rows, d->channels, x, gamma, beta, EPSILON, y);
    double sum = 0.0;
    for (int64_t i = 0; i < d->count; i++) {
        sum += (double)d->dy[i] * y[i];
    }
    free(gamma);
    free(beta);
    return sum;
}

static void check_slopes(const dunlin_kernels *kernels)
{
    uint64_t state = test_seed(8);
    for (size_t s = 1; s < 8; s++) {
        norm_data d;
        norm_open(&d, (int32_t)sizes[s][0], sizes[s][1], sizes[s][2], s + 1);
        dunlin_norm_call call = call_of(&d, 0, d.n, NULL);
        kernels->norm_sums(&call);
        finish(&d);
        kernels->norm_grad_sums(&call);
        kernels->norm_grad_apply(&call);
        double *x = buffer_doubles(d.x, d.count);
        double *y = buffer_doubles(NULL, d.count);
        for (int i = 0; i < 6; i++) {
            int64_t at = (int64_t)test_random_below(&state, (uint64_t)d.count);
            const double kept = x[at];
            x[at] = kept + 1e-4;
            double up = weighted_sum(&d, x, y);
            x[at] = kept - 1e-4;
            double slope = (up - weighted_sum(&d, x, y)) / 2e-4;
            x[at] = kept;
            cr_assert_float_eq(d.out[at], slope, 2e-5, "%s: size %zu, dx[%lld]", kernels->isa, s,
                               (long long)at);
        }
        /* the sums are the gradients of beta and gamma */
        double dbeta = 0.0;
        double dgamma = 0.0;
        for (int64_t i = 0; i < d.count; i += d.channels) {
            dbeta += (double)d.dy[i];
            dgamma += (double)d.dy[i] * ((double)d.x[i] - (double)d.mean[0]) * (double)d.inv_std[0];
        }
        cr_assert_float_eq(d.sums[0], dbeta, 1e-4);
        cr_assert_float_eq(d.sums[d.channels], dgamma, 1e-3);
        free(x);
        free(y);
        norm_close(&d);
    }
}

Test(norm, gradient_is_the_slope)
{
    each_isa(check_slopes);
}

static void check_frozen(const dunlin_kernels *kernels)
{
    norm_data d;
    norm_open(&d, 24, 50, 3, 3);
    for (int32_t c = 0; c < d.channels; c++) {
        d.mean[c] = 0.0f;
        d.inv_std[c] = 1.0f + (float)c;
    }
    dunlin_norm_call call = call_of(&d, 0, d.n, NULL);
    kernels->norm_grad_frozen(&call);
    for (int64_t i = 0; i < d.count; i++) {
        int64_t c = i % d.channels;
        cr_assert_float_eq(d.out[i], d.dy[i] * d.gamma[c] * d.inv_std[c], 1e-5);
    }
    norm_close(&d);
}

Test(norm, frozen_statistics)
{
    each_isa(check_frozen);
}

/* Everything a step takes from batch norm, by slices. */
static void run_all(const dunlin_kernels *kernels, norm_data *d, int64_t slice,
                    dunlin_threads *threads, float *out, double *sums)
{
    const size_t sums_bytes = 2 * (size_t)d->channels * sizeof(double);
    for (int phase = 0; phase < 4; phase++) {
        for (int64_t first = 0; first < d->n; first += slice) {
            int64_t n = d->n - first < slice ? d->n - first : slice;
            dunlin_norm_call call = call_of(d, first, n, threads);
            switch (phase) {
            case 0:
                kernels->norm_sums(&call);
                break;
            case 1:
                kernels->norm_apply(&call);
                break;
            case 2:
                kernels->norm_grad_sums(&call);
                break;
            default:
                kernels->norm_grad_apply(&call);
            }
        }
        if (phase == 0) {
            finish(d);
            memcpy(sums, d->sums, sums_bytes);
        } else if (phase == 2) {
            memcpy(sums + 2 * d->channels, d->sums, sums_bytes);
        } else {
            memcpy(out + phase / 2 * d->count, d->out, (size_t)d->count * sizeof(float));
        }
    }
}

static void check_bits(const dunlin_kernels *kernels)
{
    dunlin_threads *pools[4] = {NULL, start_threads(2), start_threads(4), NULL};
    for (size_t s = 0; s < N_SIZES; s++) {
        norm_data d;
        norm_open(&d, (int32_t)sizes[s][0], sizes[s][1], sizes[s][2], s + 1);
        const size_t sums_bytes = 4 * (size_t)d.channels * sizeof(double);
        float *out = buffer_new(2 * d.count);
        float *other = buffer_new(2 * d.count);
        double *sums = malloc(sums_bytes);
        double *other_sums = malloc(sums_bytes);
        cr_assert(sums != NULL && other_sums != NULL);
        run_all(kernels, &d, d.n, NULL, out, sums);
        for (int64_t slice = 1; slice <= d.n; slice++) {
            run_all(kernels, &d, slice, pools[slice % 4], other, other_sums);
            cr_assert(buffer_same_bits(out, other, 2 * d.count) &&
                          memcmp(sums, other_sums, sums_bytes) == 0,
                      "%s: size %zu in slices of %lld", kernels->isa, s, (long long)slice);
        }
        free(sums);
        free(other_sums);
        buffer_free(out);
        buffer_free(other);
        norm_close(&d);
    }
    stop_threads(pools[1]);
    stop_threads(pools[2]);
}

Test(norm, slices_and_threads_change_no_bit)
{
    each_isa(check_bits);
}
