/*
 * test_fused.c - fused convolution calls in all their combinations, against the same steps taken
 * one after another in double; and the same bits for every slice, thread count and part asked for.
 */
#include "checks/fused_data.h"
#include "checks/view_double.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(fused, .timeout = 900);
/* --- the reference --- */

/* The other term of a sum. */
static double plus_of(const fused_data *d, int32_t n_terms, int64_t row, int64_t c)
{
    const double plus = (double)d->plus[row * d->conv.shape.in_c + c];
    return n_terms == 0   ? 0.0
           : n_terms == 1 ? plus
                          : plus * (double)d->plus_scale[c] + (double)d->plus_shift[c];
}

static double *reference_x(const fused_data *d, int32_t n_terms)
{
    const int64_t channels = d->conv.shape.in_c;
    double *x = buffer_doubles(NULL, d->n_in * channels);
    for (int64_t i = 0; i < d->n_in * channels; i++) {
        const int64_t c = i % channels;
        x[i] = (double)d->x[i / channels * d->pitch[PX] + c];
        if (d->choice.has_view) {
            x[i] = x[i] * (double)d->scale[c] + (double)d->shift[c];
            x[i] += plus_of(d, n_terms, i / channels, c);
            x[i] = d->choice.x_fn != DUNLIN_VIEW_CLIP || d->choice.has_clip
                       ? view_double(d->choice.x_fn, x[i], (double)-0.4f, (double)0.6f)
                       : x[i];
        }
    }
    return x;
}

static double *reference_dy(const fused_data *d)
{
    const int64_t channels = d->conv.shape.out_c;
    double *dy = buffer_doubles(NULL, d->n_out * channels);
    for (int64_t i = 0; i < d->n_out * channels; i++) {
        const int64_t c = i % channels;
        dy[i] = (double)d->g[i / channels * d->pitch[PG] + c];
        dy[i] *= d->choice.has_grad_factor ? (double)d->factor[c] : 1.0;
        if (d->choice.has_grad_raw) {
            dy[i] += (double)d->raw[i / channels * d->pitch[PRAW] + c] * (double)d->slope[c] +
                     (double)d->offset[c];
        }
    }
    return dy;
}

/* Of a chain of so many products, rounded inputs counted in. */
static double factor_of(double products)
{
    return 8.0 + 2.0 * sqrt(products);
}

static void want(const char *what, const dunlin_kernels *kernels, double got, double expected,
                 double size)
{
    cr_assert(fabs(got - expected) <= size * (double)FLT_EPSILON, "%s: %s is %g, not %g (%g off)",
              kernels->isa, what, got, expected, got - expected);
}

static void compare_forward(const dunlin_kernels *kernels, const fused_data *d,
                            const fused_results *r, const double *x)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const int64_t channels = s->out_c;
    const double depth = (double)s->kernel_h * s->kernel_w * s->in_c / s->groups;
    double *w = buffer_doubles(d->conv.w, d->conv.n_w);
    double *bias = buffer_doubles(d->conv.bias, channels);
    double *y = buffer_doubles(NULL, d->n_out * channels);
    double *size = buffer_doubles(NULL, d->n_out * channels);
    double *sums = buffer_doubles(NULL, 4 * channels);
    reference_conv_forward(s, d->conv.n, x, w, d->choice.has_bias ? bias : NULL, y, size);
    for (int64_t i = 0; i < d->n_out * channels; i++) {
        const int64_t c = i % channels;
        const double got = (double)r->y[i / channels * d->pitch[PY] + c];
        y[i] = d->choice.clips_y ? view_double(DUNLIN_VIEW_CLIP, y[i], (double)-0.5f, (double)0.7f)
                                 : y[i];
        want("y", kernels, got, y[i], (size[i] + depth) * factor_of(depth));
        const double t = got - (double)d->about_y[c];
        sums[c] += t;
        sums[channels + c] += t * t;
        sums[2 * channels + c] += fabs(t);
    }
    for (int64_t c = 0; d->choice.has_forward_stat && c < channels; c++) {
        double error = factor_of(1000.0);
        want("a sum of y", kernels, r->y_sums[c], sums[c], (sums[2 * channels + c] + 1.0) * error);
        want("a sum of squares", kernels, r->y_sums[channels + c], sums[channels + c],
             (sums[channels + c] + 1.0) * error);
    }
    double *all[] = {w, bias, y, size, sums};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

/* Element i = row * channels + c: what is stored, and t. */
static double epilogue_value(const fused_data *d, int64_t row, int64_t c, double dx, double *out_t)
{
    const fused_choice *k = &d->choice;
    const double addend = k->has_addend ? (double)d->addend[row * d->pitch[PADDEND] + c] : 0.0;
    double t = k->is_direct ? dx + addend : dx;
    if (k->has_mask) {
        float m = fused_mask_value(d, row, c);
        if (k->mask_terms > 0) {
            const float plus = d->plus[row * d->conv.shape.in_c + c];
            m += k->mask_terms == 1 ? plus : fmaf(plus, d->plus_scale[c], d->plus_shift[c]);
        }
        t *= view_double_slope(k->mask_fn, m, -0.3f, 0.5f);
    }
    *out_t = t;
    return k->is_direct ? t : t * (k->has_factor ? (double)d->epilogue_factor[c] : 1.0) + addend;
}

static void compare_input(const dunlin_kernels *kernels, const fused_data *d,
                          const fused_results *r, const double *dy)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const int64_t channels = s->in_c;
    const double depth = (double)s->kernel_h * s->kernel_w * s->out_c / s->groups;
    double *w = buffer_doubles(d->conv.w, d->conv.n_w);
    double *dx = buffer_doubles(NULL, d->n_in * channels);
    double *size = buffer_doubles(NULL, d->n_in * channels);
    double *sums = buffer_doubles(NULL, 4 * channels);
    double *sizes = buffer_doubles(NULL, 4 * channels);
    reference_conv_input_grad(s, d->conv.n, w, dy, dx, size);
    for (int64_t i = 0; i < d->n_in * channels; i++) {
        const int64_t row = i / channels;
        const int64_t c = i % channels;
        double t = 0.0;
        double expected = epilogue_value(d, row, c, dx[i], &t);
        double error = (size[i] + depth + 2.0) * factor_of(depth);
        want("dx", kernels, (double)r->dx[row * d->pitch[PDX] + c], expected, error);
        for (uint32_t k = 0; k < d->choice.n_stats; k++) {
            const float raw = k == 0 && d->choice.is_raw_mask
                                  ? fused_mask(d)[row * d->pitch[PMASK] + c]
                                  : d->stat_raw[k][row * d->pitch[PSTAT] + c];
            double away = (double)raw - (double)d->about[k][c];
            sums[2 * k * channels + c] += t;
            sums[(2 * k + 1) * channels + c] += t * away;
            sizes[2 * k * channels + c] += error + 12.0 * fabs(t);
            sizes[(2 * k + 1) * channels + c] += (error + 12.0 * fabs(t)) * fabs(away);
        }
    }
    for (int64_t i = 0; i < 2 * channels * d->choice.n_stats; i++) {
        want("a sum of the sink", kernels, r->dx_sums[i / channels / 2][i % (2 * channels)],
             sums[i], 4.0 * sizes[i] + 1.0);
    }
    double *all[] = {w, dx, size, sums, sizes};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void compare_weights(const dunlin_kernels *kernels, const fused_data *d,
                            const fused_results *r, const double *x, const double *dy)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const double pixels = (double)d->n_out;
    double *dw = buffer_doubles(NULL, d->conv.n_w);
    double *size = buffer_doubles(NULL, d->conv.n_w);
    double *db = buffer_doubles(NULL, s->out_c);
    double *db_size = buffer_doubles(NULL, s->out_c);
    reference_conv_weight_grad(s, d->conv.n, x, dy, dw, size);
    reference_bias_grad(s, d->conv.n, dy, db, db_size);
    for (int64_t i = 0; i < d->conv.n_w; i++) {
        want("dw", kernels, (double)r->dw[i], dw[i], (size[i] + pixels) * factor_of(pixels));
    }
    for (int64_t i = 0; d->choice.has_db && i < s->out_c; i++) {
        want("db", kernels, (double)r->db[i], db[i], (db_size[i] + pixels) * factor_of(pixels));
    }
    double *all[] = {dw, size, db, db_size};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void compare(const dunlin_kernels *kernels, const fused_data *d, const fused_results *r)
{
    double *x = reference_x(d, 0);
    double *backward_x = reference_x(d, d->choice.x_terms);
    double *dy = reference_dy(d);
    compare_forward(kernels, d, r, x);
    compare_input(kernels, d, r, dy);
    compare_weights(kernels, d, r, backward_x, dy);
    free(x);
    free(backward_x);
    free(dy);
}

static void check_random(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(3100);
    for (int i = 0; i < test_cases(60); i++, seed++) {
        uint64_t state = seed * 613;
        conv_recipe recipe = conv_recipe_random(&state);
        fused_data data;
        fused_results results;
        fused_data_open(&data, &recipe, &state);
        fused_run(kernels, &data, recipe.n, NULL, true, &results);
        compare(kernels, &data, &results);
        fused_results_close(&results);
        fused_data_close(&data);
    }
}

Test(fused, agrees_with_double_on_random_calls)
{
    each_isa(check_random);
}

/* --- bits --- */

static bool rows_same(const float *a, const float *b, int64_t rows, int64_t pitch, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        if (!buffer_same_bits(a + i * pitch, b + i * pitch, n)) {
            return false;
        }
    }
    return true;
}

static const char *differs(const fused_data *d, const fused_results *a, const fused_results *b)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    if (!rows_same(a->y, b->y, d->n_out, d->pitch[PY], s->out_c)) {
        return "y";
    }
    if (!rows_same(a->dx, b->dx, d->n_in, d->pitch[PDX], s->in_c)) {
        return "dx";
    }
    if (!buffer_same_bits(a->dw, b->dw, d->conv.n_w)) {
        return "dw";
    }
    if (d->choice.has_db && !buffer_same_bits(a->db, b->db, s->out_c)) {
        return "db";
    }
    if (d->choice.has_forward_stat &&
        memcmp(a->y_sums, b->y_sums, (size_t)s->out_c * 2 * sizeof(double)) != 0) {
        return "the sums of y";
    }
    for (uint32_t i = 0; i < d->choice.n_stats; i++) {
        if (memcmp(a->dx_sums[i], b->dx_sums[i], (size_t)s->in_c * 2 * sizeof(double)) != 0) {
            return "the sums of the sink";
        }
    }
    return NULL;
}

static void check_same(const dunlin_kernels *kernels, const fused_data *d,
                       const fused_results *whole, int64_t slice, size_t n_threads, bool is_joint)
{
    fused_results other;
    dunlin_threads *threads = n_threads == 0 ? NULL : start_threads(n_threads);
    fused_run(kernels, d, slice, threads, is_joint, &other);
    const char *what = differs(d, whole, &other);
    cr_assert_null(what, "%s: %s by slices of %lld on %zu threads, %s", kernels->isa, what,
                   (long long)slice, n_threads, is_joint ? "at once" : "apart");
    fused_results_close(&other);
    if (threads != NULL) {
        stop_threads(threads);
    }
}

static void check_data_bits(const dunlin_kernels *kernels, const fused_data *data, int64_t n)
{
    fused_results whole;
    fused_run(kernels, data, n, NULL, true, &whole);
    check_same(kernels, data, &whole, n, 0, false);
    check_same(kernels, data, &whole, 1, 0, true);
    check_same(kernels, data, &whole, 2, 3, false);
    check_same(kernels, data, &whole, n, 2, true);
    check_same(kernels, data, &whole, n, 3, true);
    check_same(kernels, data, &whole, n, 4, false);
    fused_results_close(&whole);
}

static void check_bits(const dunlin_kernels *kernels, const conv_recipe *recipe, uint64_t seed)
{
    uint64_t state = seed;
    fused_data data;
    fused_data_open(&data, recipe, &state);
    check_data_bits(kernels, &data, recipe->n);
    fused_data_close(&data);
}

static void check_bits_random(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(5200);
    for (int i = 0; i < test_cases(20); i++, seed++) {
        uint64_t state = seed * 71;
        conv_recipe recipe = conv_recipe_random(&state);
        check_bits(kernels, &recipe, seed);
    }
}

Test(fused, same_bits_for_slices_threads_and_parts)
{
    each_isa(check_bits_random);
}

/* Large enough that work is handed to threads and panels are cut. */
static const conv_recipe large[] = {
    {40, 40, 24, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},
    {33, 35, 30, 30, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 30, 3},
    {1, 1, 300, 500, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 11},
    {14, 14, 96, 150, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4},
    {28, 28, 24, 144, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4},
    {17, 17, 32, 64, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 4, 5},
    {7, 7, 160, 200, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4},
    {42, 41, 32, 48, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3}, /* Winograd, many blocks a sample */
    {14, 14, 160, 256, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},
    {15, 15, 64, 70, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 3},
    {7, 7, 1100, 70, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 5},
    {31, 33, 3, 20, 7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3},
    {61, 57, 20, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 20, 2},
    {64, 56, 40, 40, 5, 5, 2, 2, 2, 2, 2, 2, 1, 1, 40, 2},
    {7, 7, 200, 200, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 200, 5},
    {16, 130, 24, 24, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 24, 2},
    {4, 4, 260, 260, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 13}, /* few rows, and many */
    /* images of few pixels: groups of blocks, the last one shorter; channels or columns shared out
     */
    {4, 4, 32, 192, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 41},
    {7, 5, 190, 40, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 23},
    {5, 4, 7, 100, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 47},
    {7, 7, 30, 5, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 33},
    /* even shares of few pixels: weights as they lie, samples, columns of Winograd's, channels */
    {1, 1, 96, 160, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 29},
    {2, 2, 72, 64, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 45},
    {2, 2, 48, 176, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 21},
    {4, 4, 144, 144, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 144, 11},
    /* depthwise in whole vectors: bands, tiles that hang over, padding of both sides and none */
    {61, 57, 48, 48, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 48, 2},
    {58, 63, 32, 32, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 32, 3},
    {7, 7, 256, 256, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 256, 5},
    {19, 9, 64, 64, 3, 3, 2, 2, 0, 2, 1, 0, 1, 1, 64, 4},
    {9, 5, 16, 16, 3, 3, 1, 1, 2, 0, 2, 2, 1, 1, 16, 7},
    /* taps that only meet padding */
    {1, 1, 70, 90, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 40},
    {1, 1, 48, 48, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 48, 9},
    {1, 6, 20, 36, 5, 3, 1, 1, 2, 1, 2, 1, 1, 1, 2, 7},
    {2, 2, 40, 200, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 30},
    {3, 1, 33, 20, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 1, 6},
    /* few channels: planes, in one band and in several */
    {28, 28, 1, 6, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 1, 19},
    {14, 14, 6, 16, 5, 5, 1, 1, 0, 0, 0, 0, 1, 1, 1, 5},
    {13, 40, 3, 8, 3, 2, 1, 1, 1, 2, 3, 0, 2, 1, 1, 3},
    {90, 130, 5, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 2, 1, 3},
    {70, 150, 4, 1, 1, 5, 1, 1, 0, 3, 1, 2, 1, 1, 1, 2},
    /* groups of few channels, as in test_conv_bits.c */
    {22, 61, 8, 16, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 8, 3},
    {22, 61, 12, 10, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {1, 3000, 6, 24, 1, 9, 1, 1, 0, 4, 0, 4, 1, 1, 6, 2},
    {40, 44, 68, 68, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 17, 3},
    {20, 20, 10, 15, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 5, 4},
    {16, 16, 33, 11, 3, 2, 1, 1, 2, 1, 0, 3, 2, 1, 11, 5},
    {14, 40, 4, 8, 21, 1, 1, 1, 20, 0, 11, 0, 1, 1, 4, 3},
};

static void check_large(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i += TEST_STRIDE) {
        for (int seed = 1; seed <= test_cases(2); seed++) {
            check_bits(kernels, &large[i], (uint64_t)seed * 977 + i);
        }
    }
}

Test(fused, same_bits_on_large_shapes)
{
    each_isa(check_large);
}

static void check_large_values(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i += TEST_STRIDE) {
        uint64_t state = i + 40;
        fused_data data;
        fused_results results;
        conv_recipe recipe = large[i];
        recipe.n = 2;
        fused_data_open(&data, &recipe, &state);
        fused_run(kernels, &data, recipe.n, NULL, true, &results);
        compare(kernels, &data, &results);
        fused_results_close(&results);
        fused_data_close(&data);
    }
}

Test(fused, agrees_with_double_on_large_shapes)
{
    each_isa(check_large_values);
}

#if defined(__x86_64__)
/* Outputs and gradients that are more than caches keep are written past them; slices of them are
 * not. */
static const conv_recipe vast[] = {
    {112, 112, 16, 96, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 11},
    {112, 112, 96, 16, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 11},
    {112, 112, 96, 96, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 96, 11},
    {112, 112, 96, 96, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 96, 11},
};

static void check_vast(const dunlin_kernels *kernels)
{
    uint64_t state = 31337;
    if (strcmp(kernels->isa, "sse2") == 0 || strcmp(kernels->isa, "generic") == 0) {
        return; /* has no such stores */
    }
    for (size_t i = 0; i < sizeof vast / sizeof vast[0]; i++) {
        fused_data data;
        fused_results whole;
        fused_data_open(&data, &vast[i], &state);
        for (int k = 0; k < 8; k++) {
            data.pitch[k] -= data.choice.gap[k];
        }
        data.pitch[PMASK] = data.conv.shape.in_c;
        data.pitch[PADDEND] = data.pitch[PDX];
        data.choice.is_in_place = false; /* what is read again stays */
        data.choice.has_forward_stat = i != 0;
        data.uses |= DUNLIN_FUSED_STATS;
        fused_run(kernels, &data, vast[i].n, NULL, true, &whole);
        check_same(kernels, &data, &whole, 4, 0, true);
        check_same(kernels, &data, &whole, vast[i].n, 2, false);
        fused_results_close(&whole);
        fused_data_close(&data);
    }
}

Test(fused, same_bits_past_the_caches)
{
    each_isa(check_vast);
}
#endif

/* Dense layers over many rows: the second and third have too many weights for both gradients at
 * once, the third more outputs than channels; the fourth is deep. */
static const conv_recipe dense[] = {
    {16, 4, 400, 344, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {69, 1, 600, 530, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {200, 1, 400, 530, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {64, 1, 2100, 70, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 2},
};

/* With nothing to do on reading and storing but a clip, and a gradient to add to. */
static void open_plain(fused_data *data, const conv_recipe *recipe, bool has_addend,
                       uint64_t *state)
{
    fused_data_open(data, recipe, state);
    const fused_choice drawn = data->choice;
    data->choice = (fused_choice){.has_bias = drawn.has_bias,
                                  .clips_y = drawn.clips_y,
                                  .is_direct = drawn.is_direct,
                                  .has_addend = has_addend,
                                  .is_in_place = drawn.is_in_place,
                                  .has_db = drawn.has_db};
    memcpy(data->choice.gap, drawn.gap, sizeof drawn.gap);
    data->uses = DUNLIN_FUSED_FORWARD | DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD;
}

static void check_dense(const dunlin_kernels *kernels)
{
    uint64_t state = 4711;
    for (size_t i = 0; i < 2 * (sizeof dense / sizeof dense[0]); i += TEST_STRIDE) {
        fused_data data;
        fused_results results;
        conv_recipe recipe = dense[i / 2];
        open_plain(&data, &recipe, i % 2 == 1, &state);
        check_data_bits(kernels, &data, recipe.n);
        fused_data_close(&data);
        recipe.n = 1;
        open_plain(&data, &recipe, i % 2 == 1, &state);
        fused_run(kernels, &data, recipe.n, NULL, true, &results);
        compare(kernels, &data, &results);
        fused_results_close(&results);
        fused_data_close(&data);
    }
}

Test(fused, dense_layers_over_many_rows)
{
    each_isa(check_dense);
}
