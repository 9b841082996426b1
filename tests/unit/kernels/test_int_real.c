/*
 * test_int_real.c - what stands between floats and products of integers, on every table: floats
 * rounded with real units and what is counted of them, and sums that leave as floats. The very bits
 * of a model in plain C, with and without threads, whole and in slices.
 */
#include "checks/conv_check.h"
#include "checks/int_model.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(int_real, .timeout = 900);

/* --- rounding --- */

typedef struct real_case {
    int64_t n_rows, channels;
    bool is_by_channel, has_limits;
    float *x, *units, *limits;
} real_case;

static int64_t n_units(const real_case *c)
{
    return c->is_by_channel ? c->channels : 1;
}

static void real_open(real_case *c, uint64_t *state)
{
    *c = (real_case){.n_rows = 1 + (int64_t)test_random_below(state, 90),
                     .channels = 1 + (int64_t)test_random_below(state, 150),
                     .is_by_channel = test_random_below(state, 2) == 0};
    c->has_limits = c->is_by_channel && test_random_below(state, 2) == 0;
    c->x = int_new(c->n_rows * c->channels, sizeof(float));
    c->units = int_new(n_units(c), sizeof(float));
    c->limits = int_new(n_units(c), sizeof(float));
    for (int64_t i = 0; i < n_units(c); i++) {
        c->units[i] = (float)pow(10.0, test_random_range(-20.0, 4.0, state));
        c->limits[i] = c->units[i] * (float)test_random_range(0.0, 80.0, state);
    }
    for (int64_t i = 0; i < c->n_rows * c->channels; i++) {
        const float unit = c->units[c->is_by_channel ? i % c->channels : 0];
        const double q = test_random_range(-160.0, 160.0, state);
        const double halves = floor(q) + 0.5; /* where the rounding turns */
        c->x[i] = (float)((test_random_below(state, 4) == 0 ? halves : q) * (double)unit);
    }
}

static void real_close(real_case *c)
{
    int_free(c->x);
    int_free(c->units);
    int_free(c->limits);
}

/* By the definition. */
static int8_t model_real(float x, float unit, float limit, bool has_limit,
                         dunlin_int_spread *spread)
{
    const float inverse = 1.0F / unit;
    const float size = fabsf(x);
    const float scaled = size * inverse;
    const double whole = floor((double)scaled + 0.5);
    int32_t bits = 0;
    memcpy(&bits, &size, sizeof bits);
    spread->n++;
    spread->n_clipped += whole > 127.0 ? 1 : 0;
    spread->largest = bits > spread->largest ? bits : spread->largest;
    if (has_limit) {
        const double fine = floor(64.0 * (scaled < 127.5F ? (double)scaled : 127.5));
        spread->n_beyond += size > limit ? 1 : 0;
        spread->squares += fine * fine;
    }
    const double q = whole > 127.0 ? 127.0 : whole;
    return (int8_t)(signbit(x) ? -q : q);
}

static void expect_spread(const dunlin_int_kernels *k, const dunlin_int_spread *is,
                          const dunlin_int_spread *wanted, int64_t unit)
{
    cr_assert(is->n == wanted->n && is->n_clipped == wanted->n_clipped &&
                  is->n_beyond == wanted->n_beyond && is->largest == wanted->largest &&
                  is->squares == wanted->squares,
              "%s: counts of unit %lld", k->isa, (long long)unit);
}

static void check_real(const dunlin_int_kernels *k, const real_case *c, int64_t slice,
                       dunlin_threads *threads)
{
    const int64_t n = c->n_rows * c->channels;
    int8_t *out = int_new(n, 1);
    int8_t *wanted = int_new(n, 1);
    dunlin_int_spread *spreads = int_new(n_units(c), sizeof *spreads);
    dunlin_int_spread *model = int_new(n_units(c), sizeof *model);
    memset(spreads, 0, (size_t)n_units(c) * sizeof *spreads);
    memset(model, 0, (size_t)n_units(c) * sizeof *model);
    for (int64_t i = 0; i < n; i++) {
        const int64_t u = c->is_by_channel ? i % c->channels : 0;
        wanted[i] = model_real(c->x[i], c->units[u], c->limits[u], c->has_limits, &model[u]);
    }
    for (int64_t row = 0; row < c->n_rows; row += slice) {
        const int64_t n_rows = slice < c->n_rows - row ? slice : c->n_rows - row;
        dunlin_int_real_call call = {.n_rows = n_rows,
                                     .channels = c->channels,
                                     .is_by_channel = c->is_by_channel,
                                     .x = c->x + row * c->channels,
                                     .units = c->units,
                                     .limits = c->has_limits ? c->limits : NULL,
                                     .out = out + row * c->channels,
                                     .spreads = spreads,
                                     .threads = threads};
        k->quantise_real(&call);
        call.spreads = NULL; /* it may be done without */
        k->quantise_real(&call);
    }
    int_same(k, "rounded", out, wanted, n);
    for (int64_t u = 0; u < n_units(c); u++) {
        expect_spread(k, &spreads[u], &model[u], u);
    }
    cr_assert(int_is_intact(spreads), "%s", k->isa);
    int_free(out);
    int_free(wanted);
    int_free(spreads);
    int_free(model);
}

Test(int_real, rounds_and_counts_as_the_model)
{
    uint64_t state = test_seed(20261128);
    dunlin_threads *threads = start_threads(3);
    for (int i = 0; i < test_cases(40); i++) {
        real_case c;
        real_open(&c, &state);
        for (int t = 0; dunlin__int_kernels_isa(t) != NULL; t++) {
            const dunlin_int_kernels *k = dunlin__int_kernels_select(dunlin__int_kernels_isa(t));
            check_real(k, &c, c.n_rows, NULL);
            check_real(k, &c, 1 + c.n_rows / 3, threads);
        }
        real_close(&c);
    }
    stop_threads(threads);
}

static void check_large(const dunlin_int_kernels *k)
{
    dunlin_threads *threads = start_threads(3);
    uint64_t state = 5;
    real_case c = {.n_rows = 700, .channels = 200};
    c.x = int_new(c.n_rows * c.channels, sizeof(float));
    c.units = int_new(1, sizeof(float));
    c.limits = int_new(1, sizeof(float));
    c.units[0] = 0.01F;
    c.limits[0] = 0.0F;
    test_random_fill(c.x, c.n_rows * c.channels, -1.4, 1.4, &state);
    check_real(k, &c, c.n_rows, threads);
    real_close(&c);
    stop_threads(threads);
}

Test(int_real, many_values_are_shared_out)
{
    each_int(check_large);
}

/* The largest bits tell of it; what is rounded is within int8. */
static void check_bad(const dunlin_int_kernels *k)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        for (int by = 0; by < 2; by++) {
            float x[70];
            float units[70];
            int8_t out[70];
            dunlin_int_spread spreads[70];
            memset(spreads, 0, sizeof spreads);
            for (int j = 0; j < 70; j++) {
                x[j] = 3.0F;
                units[j] = 1.0F;
            }
            x[66] = bad[i];
            k->quantise_real(&(dunlin_int_real_call){.n_rows = 1,
                                                     .channels = 70,
                                                     .is_by_channel = by == 1,
                                                     .x = x,
                                                     .units = units,
                                                     .out = out,
                                                     .spreads = spreads});
            cr_assert_geq(spreads[by == 1 ? 66 : 0].largest, 0x7F800000, "%s: %d", k->isa, i);
            cr_assert(out[65] == 3 && out[66] == (i == 0   ? 0
                                                  : i == 1 ? 127
                                                           : -127),
                      "%s: %d", k->isa, i);
        }
    }
}

Test(int_real, what_is_not_finite_is_counted)
{
    each_int(check_bad);
}

/* --- products --- */

typedef struct product_case {
    conv_data data;
    int8_t *x, *w, *dy;
    int_sums sums;
    float unit;
} product_case;

static void product_open(product_case *c, const conv_recipe *recipe, uint64_t *state)
{
    conv_data_open(&c->data, recipe, state);
    c->x = int_random(c->data.n * c->data.n_x, state);
    c->w = int_random(c->data.n_w, state);
    c->dy = int_random(c->data.n * c->data.n_y, state);
    c->unit = (float)test_random_range(1e-6, 1e-2, state);
    int_model_conv(&c->data.shape, c->data.n, c->x, c->w, c->dy, &c->sums);
}

static void product_close(product_case *c)
{
    conv_data_close(&c->data);
    int_free(c->x);
    int_free(c->w);
    int_free(c->dy);
    int_sums_free(&c->sums);
}

static void expect_real(const dunlin_int_kernels *k, const product_case *c, const float *is,
                        const int64_t *sums, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float wanted = (float)(int32_t)sums[i] * c->unit;
        cr_assert_eq(is[i], wanted, "%s: element %lld of %lld is %g, not %g", k->isa, (long long)i,
                     (long long)n, (double)is[i], (double)wanted);
    }
    cr_assert(int_is_intact(is), "%s", k->isa);
}

static void check_products(const dunlin_int_kernels *k, const product_case *c, int64_t slice,
                           dunlin_threads *threads)
{
    const conv_data *d = &c->data;
    const size_t n_threads = dunlin__threads_count(threads);
    float *y = int_new(d->n * d->n_y, sizeof *y);
    float *dx = int_new(d->n * d->n_x, sizeof *dx);
    for (int64_t i = 0; i < d->n; i += slice) {
        for (int pass = 0; pass < 2; pass++) {
            const uint64_t bytes =
                k->conv_workspace_bytes(&d->shape, (dunlin_conv_pass)pass, slice, n_threads);
            void *workspace = int_new((int64_t)bytes, 1);
            dunlin_int_conv_call call = {.shape = &d->shape,
                                         .n_samples = slice < d->n - i ? slice : d->n - i,
                                         .x = c->x + i * d->n_x,
                                         .dy = c->dy + i * d->n_y,
                                         .w = c->w,
                                         .unit = c->unit,
                                         .workspace = workspace,
                                         .threads = threads};
            if (pass == DUNLIN_CONV_FORWARD) {
                call.out_real = y + i * d->n_y;
                k->conv_forward(&call);
            } else {
                call.out_real = dx + i * d->n_x;
                k->conv_input_grad(&call);
            }
            cr_assert(int_is_intact(workspace), "%s", k->isa);
            int_free(workspace);
        }
    }
    expect_real(k, c, y, c->sums.y, d->n * d->n_y);
    expect_real(k, c, dx, c->sums.dx, d->n * d->n_x);
    int_free(y);
    int_free(dx);
}

static void check_recipe(const conv_recipe *recipe, uint64_t *state, dunlin_threads *threads)
{
    product_case c;
    product_open(&c, recipe, state);
    for (int t = 0; dunlin__int_kernels_isa(t) != NULL; t++) {
        const dunlin_int_kernels *k = dunlin__int_kernels_select(dunlin__int_kernels_isa(t));
        check_products(k, &c, threads == NULL ? c.data.n : (c.data.n + 1) / 2, threads);
    }
    product_close(&c);
}

static const conv_recipe recipes[] = {
    /* in_h in_w in_c out_c  kernel stride  pads (t l b r)  dilation groups n */
    {1, 1, 84, 10, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 7},
    {1, 1, 1027, 1030, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 8}, /* weights as they lie */
    {14, 14, 6, 16, 5, 5, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {9, 9, 33, 50, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 3}, /* pixels of dx that no product reaches */
    {6, 6, 10, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 10, 2},
    {15, 20, 40, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 40, 2},
    {15, 20, 140, 140, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 140, 2},
    {9, 23, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 32, 2},
    {5, 5, 3, 4, 1, 1, 4, 4, 0, 0, 0, 0, 1, 1, 1, 1},
};

Test(int_real, products_are_the_sums_times_a_unit)
{
    uint64_t state = test_seed(7);
    dunlin_threads *threads = start_threads(3);
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i += TEST_STRIDE) {
        check_recipe(&recipes[i], &state, NULL);
        check_recipe(&recipes[i], &state, threads);
    }
    for (int i = 0; i < test_cases(40); i++) {
        const conv_recipe recipe = conv_recipe_random(&state);
        check_recipe(&recipe, &state, NULL);
    }
    stop_threads(threads);
}
