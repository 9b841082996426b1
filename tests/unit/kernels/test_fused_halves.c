/*
 * test_fused_halves.c - fused convolution calls on tensors in bfloat16: what is read so has the
 * bits of the same numbers in float32; an input gradient that is stored so is that of the call with
 * floats, rounded, its sums those of what is stored, and no cut changes a bit.
 */
#include "checks/fused_halves.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(fused_halves, .timeout = 900);

static bool same_rows(const float *a, const float *b, int64_t rows, int64_t pitch, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        if (!buffer_same_bits(a + i * pitch, b + i * pitch, n)) {
            return false;
        }
    }
    return true;
}

static bool same_sums(const double *a, const double *b, int64_t channels)
{
    return memcmp(a, b, 2 * (size_t)channels * sizeof(double)) == 0;
}

/* What no gradient of the input is part of. */
static const char *differs(const fused_data *d, const fused_results *a, const fused_results *b)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    if (!same_rows(a->y, b->y, d->n_out, d->pitch[PY], s->out_c)) {
        return "y";
    }
    if (d->choice.has_forward_stat && !same_sums(a->y_sums, b->y_sums, s->out_c)) {
        return "the sums of y";
    }
    if (!buffer_same_bits(a->dw, b->dw, d->conv.n_w)) {
        return "dw";
    }
    return d->choice.has_db && !buffer_same_bits(a->db, b->db, s->out_c) ? "db" : NULL;
}

static const char *differs_in_dx(const fused_data *d, const fused_results *a,
                                 const fused_results *b)
{
    const int64_t channels = d->conv.shape.in_c;
    if (!same_rows(a->dx, b->dx, d->n_in, d->pitch[PDX], channels)) {
        return "dx";
    }
    for (uint32_t i = 0; i < d->choice.n_stats; i++) {
        if (!same_sums(a->dx_sums[i], b->dx_sums[i], channels)) {
            return "the sums of the sink";
        }
    }
    return NULL;
}

static float raw_of(const fused_data *d, uint32_t stat, int64_t row, int64_t c)
{
    return stat == 0 && d->choice.is_raw_mask ? fused_mask(d)[row * d->pitch[PMASK] + c]
                                              : d->stat_raw[stat][row * d->pitch[PSTAT] + c];
}

static void expect_sums(const char *isa, const fused_data *d, const fused_results *r)
{
    const int64_t channels = d->conv.shape.in_c;
    for (uint32_t k = 0; k < d->choice.n_stats; k++) {
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0.0;
            double product = 0.0;
            double size = 1.0;
            for (int64_t row = 0; row < d->n_in; row++) {
                const double t = (double)r->dx[row * d->pitch[PDX] + c];
                const double away = (double)raw_of(d, k, row, c) - (double)d->about[k][c];
                sum += t;
                product += t * away;
                size += fabs(t);
            }
            cr_assert(fabs(r->dx_sums[k][c] - sum) <= 1e-5 * size, "%s: sum of channel %lld is %g",
                      isa, (long long)c, r->dx_sums[k][c]);
            cr_assert(fabs(r->dx_sums[k][channels + c] - product) <= 4e-5 * size,
                      "%s: product of channel %lld is %g", isa, (long long)c,
                      r->dx_sums[k][channels + c]);
        }
    }
}

/* Of the same dx, in whatever order: depthwise rows of floats may be summed up by phases. */
static void expect_same_sums(const char *isa, const fused_data *d, const fused_results *a,
                             const fused_results *b)
{
    const int64_t channels = d->conv.shape.in_c;
    for (uint32_t k = 0; k < d->choice.n_stats; k++) {
        for (int64_t c = 0; c < 2 * channels; c++) {
            double size = 1.0;
            for (int64_t row = 0; row < d->n_in; row++) {
                size += fabs((double)a->dx[row * d->pitch[PDX] + c % channels]);
            }
            cr_assert(fabs(a->dx_sums[k][c] - b->dx_sums[k][c]) <= 1e-5 * size,
                      "%s: sum %lld is %g of floats, %g of bfloat16", isa, (long long)c,
                      a->dx_sums[k][c], b->dx_sums[k][c]);
        }
    }
}

/* dx as it is stored, of the same call with floats. */
static void expect_rounded(const char *isa, const fused_data *d, const fused_results *floats,
                           const fused_results *stored)
{
    const int64_t channels = d->conv.shape.in_c;
    for (int64_t i = 0; i < d->n_in * channels; i++) {
        const int64_t at = i / channels * d->pitch[PDX] + i % channels;
        cr_assert_eq(stored->dx[at], fused_rounded(floats->dx[at]), "%s: dx is %g, not %g rounded",
                     isa, (double)stored->dx[at], (double)floats->dx[at]);
    }
    expect_sums(isa, d, stored);
}

/* The same in slices, on threads and in parts. */
static void expect_cuts(const dunlin_kernels *kernels, const fused_data *d,
                        const fused_results *whole)
{
    for (int i = 0; i < 3; i++) {
        fused_results other;
        dunlin_threads *threads = i == 0 ? NULL : start_threads((size_t)i + 1);
        fused_run(kernels, d, i == 1 ? d->conv.n : 1 + i / 2, threads, i != 2, &other);
        const char *what = differs(d, whole, &other);
        what = what == NULL ? differs_in_dx(d, whole, &other) : what;
        cr_assert_null(what, "%s: %s, cut in way %d", kernels->isa, what, i);
        fused_results_close(&other);
        if (threads != NULL) {
            stop_threads(threads);
        }
    }
}

static void check(const dunlin_kernels *kernels, const conv_recipe *recipe, uint64_t state)
{
    fused_data d;
    fused_results floats;
    fused_results halves;
    fused_data_open(&d, recipe, &state);
    fused_data_round(&d);
    fused_run(kernels, &d, recipe->n, NULL, true, &floats);
    d.reads_halves = true;
    fused_run(kernels, &d, recipe->n, NULL, true, &halves);
    const char *what = differs(&d, &floats, &halves);
    if (what == NULL && !same_rows(floats.dx, halves.dx, d.n_in, d.pitch[PDX], recipe->in_c)) {
        what = "dx";
    }
    char text[200];
    cr_assert_null(what, "%s: %s differs when %s is read in bfloat16", kernels->isa, what,
                   conv_recipe_text(recipe, text, sizeof text));
    expect_same_sums(kernels->isa, &d, &floats, &halves);
    expect_cuts(kernels, &d, &halves);
    fused_results_close(&halves);
    d.stores_halves = fused_may_store_halves(&d.choice);
    if (d.stores_halves) {
        fused_run(kernels, &d, recipe->n, NULL, true, &halves);
        what = differs(&d, &floats, &halves);
        cr_assert_null(what, "%s: %s differs when dx is stored in bfloat16", kernels->isa, what);
        expect_rounded(kernels->isa, &d, &floats, &halves);
        expect_cuts(kernels, &d, &halves);
        fused_results_close(&halves);
    }
    fused_results_close(&floats);
    fused_data_close(&d);
}

static void check_random(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(8800);
    for (int i = 0; i < test_cases(60); i++, seed++) {
        uint64_t state = seed * 131;
        const conv_recipe recipe = conv_recipe_random(&state);
        check(kernels, &recipe, state);
    }
}

Test(fused_halves, same_numbers_on_random_calls)
{
    each_isa(check_random);
}

/* Of each engine: pointwise, many and few pixels; depthwise by tiles and by rows; Winograd; few
 * channels; groups. */
static const conv_recipe engines[] = {
    {28, 28, 24, 144, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4},
    {14, 14, 96, 150, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4},
    {7, 7, 1100, 70, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {4, 4, 260, 260, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 13},
    {16, 4, 400, 344, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {1, 1, 96, 160, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 29},
    {58, 63, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 32, 2},
    {58, 63, 32, 32, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 32, 3},
    {7, 7, 256, 256, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 256, 5},
    {33, 35, 30, 30, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 30, 3},
    {24, 26, 40, 40, 5, 5, 2, 2, 2, 2, 2, 2, 1, 1, 40, 2},
    {42, 41, 32, 48, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},
    {17, 17, 32, 64, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 4, 5},
    {31, 33, 3, 20, 7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3},
    {28, 28, 1, 6, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 1, 9},
};

static void check_engines(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i += TEST_STRIDE) {
        for (int seed = 1; seed <= test_cases(4); seed++) {
            check(kernels, &engines[i], (uint64_t)seed * 733 + i);
        }
    }
}

Test(fused_halves, same_numbers_in_each_engine)
{
    each_isa(check_engines);
}
