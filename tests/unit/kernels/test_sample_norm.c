/*
 * test_sample_norm.c - group norm and layer norm: forward against double, gradients against
 * differences of it, and the same bits for every slice and thread count.
 */
#include "checks/buffers.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sample_norm, .timeout = 900);

#define EPSILON 1e-5

typedef struct norm_data {
    int64_t rows, n, count;
    int32_t channels, groups; /* groups 0: layer norm */
    float *x, *dy, *gamma, *beta;
    double *x_double, *gamma_double, *beta_double, *y_double;
    double *y_size; /* what rounding x does to y */
} norm_data;

typedef struct norm_result {
    float *y, *dx, *dgamma, *dbeta, *statistics;
} norm_result;

static int64_t n_sets(const norm_data *d)
{
    return d->groups == 0 ? d->n * d->rows : d->n * d->groups;
}

static int64_t set_of(const norm_data *d, int64_t i)
{
    const int64_t row = i / d->channels;
    return d->groups == 0 ? row
                          : row / d->rows * d->groups + i % d->channels * d->groups / d->channels;
}

static void data_open(norm_data *d, bool is_layer, uint64_t *state)
{
    static const int32_t widths[] = {1, 3, 8, 17, 24, 40, 128, 520};
    static const int64_t rows[] = {1, 4, 49, 64, 100, 1000};
    *d = (norm_data){.n = 1 + (int64_t)test_random_below(state, 3)};
    d->rows = rows[test_random_below(state, 6)];
    d->channels = widths[test_random_below(state, 8)];
    if (!is_layer) {
        const int32_t width = 1 + (int32_t)test_random_below(state, 5);
        d->groups = 1 + (int32_t)test_random_below(state, 9);
        d->channels = width * d->groups;
    }
    d->count = d->n * d->rows * d->channels;
    d->x = buffer_random(d->count, state);
    for (int64_t i = 0; i < d->count; i++) {
        d->x[i] += 3.0f; /* a mean beside zero */
    }
    d->dy = buffer_random(d->count, state);
    d->gamma = buffer_random(d->channels, state);
    d->beta = buffer_random(d->channels, state);
    d->x_double = buffer_doubles(d->x, d->count);
    d->gamma_double = buffer_doubles(d->gamma, d->channels);
    d->beta_double = buffer_doubles(d->beta, d->channels);
    d->y_double = buffer_doubles(NULL, d->count);
    d->y_size = buffer_doubles(NULL, d->count);
}

static void data_close(norm_data *d)
{
    buffer_free(d->x);
    buffer_free(d->dy);
    buffer_free(d->gamma);
    buffer_free(d->beta);
    free(d->x_double);
    free(d->gamma_double);
    free(d->beta_double);
    free(d->y_double);
    free(d->y_size);
}

/* y in double; returns the sum of y * dy. */
static double reference(norm_data *d)
{
    double *mean = calloc((size_t)n_sets(d), sizeof *mean);
    double *variance = calloc((size_t)n_sets(d), sizeof *variance);
    cr_assert(mean != NULL && variance != NULL);
    const double of_set = (double)d->count / (double)n_sets(d);
    for (int64_t i = 0; i < d->count; i++) {
        mean[set_of(d, i)] += d->x_double[i] / of_set;
    }
    for (int64_t i = 0; i < d->count; i++) {
        const double apart = d->x_double[i] - mean[set_of(d, i)];
        variance[set_of(d, i)] += apart * apart / of_set;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < d->count; i++) {
        const int64_t set = set_of(d, i);
        const int64_t c = i % d->channels;
        const double xhat = (d->x_double[i] - mean[set]) / sqrt(variance[set] + EPSILON);
        d->y_double[i] = xhat * d->gamma_double[c] + d->beta_double[c];
        d->y_size[i] = fabs(d->x_double[i] * d->gamma_double[c]) / sqrt(variance[set] + EPSILON);
        sum += d->y_double[i] * (double)d->dy[i];
    }
    free(mean);
    free(variance);
    return sum;
}

static void result_open(const norm_data *d, norm_result *r)
{
    r->y = buffer_new(d->count);
    r->dx = buffer_new(d->count);
    r->dgamma = buffer_new(d->channels);
    r->dbeta = buffer_new(d->channels);
    r->statistics = buffer_new(2 * n_sets(d));
}

static void result_close(norm_result *r)
{
    float *all[] = {r->y, r->dx, r->dgamma, r->dbeta, r->statistics};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cr_assert(buffer_is_intact(all[i]));
        buffer_free(all[i]);
    }
}

static void run_group(const dunlin_kernels *kernels, const norm_data *d, int64_t s, int64_t n,
                      dunlin_threads *threads, norm_result *r)
{
    const int64_t at = s * d->rows * d->channels;
    const size_t bytes = kernels->group_norm_workspace_bytes(d->channels) * (size_t)n;
    float *workspace = buffer_new((int64_t)bytes / 4);
    dunlin_group_norm_call call = {.rows_per_sample = d->rows,
                                   .n_samples = n,
                                   .channels = d->channels,
                                   .groups = d->groups,
                                   .epsilon = (float)EPSILON,
                                   .x = d->x + at,
                                   .gamma = d->gamma,
                                   .beta = d->beta,
                                   .statistics = r->statistics + 2 * s * d->groups,
                                   .y = r->y + at,
                                   .dy = d->dy + at,
                                   .dx = r->dx + at,
                                   .dgamma = r->dgamma,
                                   .dbeta = r->dbeta,
                                   .is_reset = s == 0,
                                   .workspace = workspace,
                                   .threads = threads};
    kernels->group_norm(&call);
    kernels->group_norm_grad(&call);
    cr_assert(buffer_is_intact(workspace));
    buffer_free(workspace);
}

static void run_layer(const dunlin_kernels *kernels, const norm_data *d, int64_t s, int64_t n,
                      dunlin_threads *threads, norm_result *r)
{
    const int64_t at = s * d->rows * d->channels;
    const size_t bytes = kernels->layer_norm_workspace_bytes(d->channels, d->rows) * (size_t)n;
    float *workspace = buffer_new((int64_t)bytes / 4);
    dunlin_layer_norm_call call = {.rows_per_sample = d->rows,
                                   .n_samples = n,
                                   .width = d->channels,
                                   .epsilon = (float)EPSILON,
                                   .x = d->x + at,
                                   .gamma = d->gamma,
                                   .beta = d->beta,
                                   .statistics = r->statistics + 2 * s * d->rows,
                                   .y = r->y + at,
                                   .dy = d->dy + at,
                                   .dx = r->dx + at,
                                   .dgamma = r->dgamma,
                                   .dbeta = r->dbeta,
                                   .is_reset = s == 0,
                                   .workspace = workspace,
                                   .threads = threads};
    kernels->layer_norm(&call);
    kernels->layer_norm_grad(&call);
    cr_assert(buffer_is_intact(workspace));
    buffer_free(workspace);
}

static void run(const dunlin_kernels *kernels, const norm_data *d, int64_t slice,
                dunlin_threads *threads, norm_result *r)
{
    result_open(d, r);
    for (int64_t s = 0; s < d->n; s += slice) {
        (d->groups == 0 ? run_layer : run_group)(kernels, d, s, slice, threads, r);
    }
}

/* A slope of the weighted sum, by differences. */
static double slope_of(norm_data *d, double *at)
{
    const double kept = *at;
    *at = kept + 0x1p-12;
    const double up = reference(d);
    *at = kept - 0x1p-12;
    const double down = reference(d);
    *at = kept;
    return (up - down) / 0x1p-11;
}

static void want(const dunlin_kernels *kernels, uint64_t seed, const char *what, double got,
                 double expected, double bound)
{
    cr_assert_float_eq(got, expected, bound, "%s: %s is %g, not %g, seed %llu", kernels->isa, what,
                       got, expected, (unsigned long long)seed);
}

static void check_norm(const dunlin_kernels *kernels, uint64_t seed, bool is_layer)
{
    uint64_t state = seed;
    norm_data d;
    data_open(&d, is_layer, &state);
    norm_result whole;
    norm_result sliced;
    run(kernels, &d, d.n, NULL, &whole);
    reference(&d);
    for (int64_t i = 0; i < d.count; i++) {
        want(kernels, seed, "y", (double)whole.y[i], d.y_double[i],
             2e-5 + 4.0 * (double)FLT_EPSILON * d.y_size[i]);
    }
    /* With two or three elements a set the curve is too sharp for differences. */
    const double of_set = (double)d.count / (double)n_sets(&d);
    for (int i = 0; i < 4 && of_set > 7.0; i++) {
        const int64_t at = (int64_t)test_random_below(&state, (uint64_t)d.count);
        const int64_t c = at % d.channels;
        const double rows = sqrt((double)(d.n * d.rows));
        want(kernels, seed, "dx", (double)whole.dx[at], slope_of(&d, &d.x_double[at]), 1e-4);
        want(kernels, seed, "dgamma", (double)whole.dgamma[c], slope_of(&d, &d.gamma_double[c]),
             1e-5 * rows);
        want(kernels, seed, "dbeta", (double)whole.dbeta[c], slope_of(&d, &d.beta_double[c]),
             1e-5 * rows);
    }
    dunlin_threads *threads = start_threads(3);
    run(kernels, &d, 1, threads, &sliced);
    cr_assert(buffer_same_bits(whole.y, sliced.y, d.count) &&
                  buffer_same_bits(whole.dx, sliced.dx, d.count) &&
                  buffer_same_bits(whole.dgamma, sliced.dgamma, d.channels) &&
                  buffer_same_bits(whole.dbeta, sliced.dbeta, d.channels),
              "%s: bits, seed %llu", kernels->isa, (unsigned long long)seed);
    stop_threads(threads);
    result_close(&whole);
    result_close(&sliced);
    data_close(&d);
}

static void check_norms(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(71);
    for (int i = 0; i < test_cases(20); i++, seed++) {
        check_norm(kernels, seed, true);
        check_norm(kernels, seed, false);
    }
}

Test(sample_norm, agrees_with_double)
{
    each_isa(check_norms);
}

/* Values far from zero: the variance must not cancel. */
static void check_far(const dunlin_kernels *kernels)
{
    uint64_t state = 3;
    for (int is_layer = 0; is_layer < 2; is_layer++) {
        norm_data d;
        do {
            data_open(&d, is_layer == 1, &state);
        } while (d.count / n_sets(&d) < 30 && (data_close(&d), true));
        for (int64_t i = 0; i < d.count; i++) {
            d.x[i] = 1000.0f + floorf(d.x[i] * 64.0f) / 64.0f;
            d.x_double[i] = (double)d.x[i];
        }
        norm_result r;
        run(kernels, &d, d.n, NULL, &r);
        reference(&d);
        for (int64_t i = 0; i < d.count; i++) {
            want(kernels, 0, "y", (double)r.y[i], d.y_double[i], 2e-3);
        }
        result_close(&r);
        data_close(&d);
    }
}

Test(sample_norm, a_large_mean_does_not_cancel)
{
    each_isa(check_far);
}
