/*
 * test_conv.c - every pass of convolutions of all kinds, on every instruction set, within
 * c * eps * sum |a||b| of the double reference; and the reference itself against differences of its
 * forward pass.
 */
#include "checks/conv_check.h"
#include "random.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

TestSuite(conv, .timeout = 900);

static const conv_recipe recipes[] = {
    /* in_h in_w in_c out_c  kernel stride  pads (t l b r)  dilation groups n */
    {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1},
    {1, 1, 84, 10, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 7},    /* dense, few rows */
    {7, 1, 300, 130, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},  /* dense over rows, long depth */
    {28, 28, 1, 6, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 1, 2},    /* LeNet's first */
    {14, 14, 6, 16, 5, 5, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},   /* its second */
    {23, 21, 3, 24, 3, 3, 2, 2, 0, 1, 1, 0, 1, 1, 1, 2},   /* a stem, uneven pads */
    {30, 31, 3, 64, 7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 1},   /* ResNet's stem */
    {9, 9, 33, 50, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 3},    /* pointwise with a stride */
    {10, 11, 17, 24, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 2},  /* stride 3 */
    {12, 9, 5, 17, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 2},    /* dilated */
    {13, 13, 4, 5, 3, 3, 2, 2, 2, 1, 0, 3, 2, 2, 1, 2},    /* dilated, stride shares a factor */
    {2, 2, 8, 8, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 1, 2},      /* window larger than the image */
    {6, 6, 16, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2},    /* two groups */
    {6, 6, 10, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 10, 2},   /* multiplier 2 */
    {15, 20, 40, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 40, 2}, /* depthwise */
    {15, 20, 40, 40, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 40, 2}, /* depthwise, stride 2 */
    {19, 33, 7, 7, 5, 5, 1, 2, 0, 3, 2, 1, 2, 1, 7, 2},    /* depthwise, all uneven */
    {4, 4, 70, 420, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 5},   /* more than a block of columns */
    {5, 7, 140, 100, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2},  /* depth of several blocks */
    {1, 1000, 8, 8, 1, 9, 1, 4, 0, 4, 0, 4, 1, 1, 1, 1},   /* one-dimensional, long */
    {5, 5, 3, 4, 1, 1, 4, 4, 0, 0, 0, 0, 1, 1, 1, 1},      /* stride beyond the kernel */
    {9, 8, 90, 96, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4},   /* weight gradients by groups of blocks */
    {2, 301, 80, 92, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, /* lines of tiles in pieces */
    {10, 12, 32, 48, 3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1, 2}, /* Winograd: read as it lies */
    {31, 29, 20, 17, 3, 3, 1, 1, 2, 0, 1, 2, 1, 1, 1, 2}, /* uneven pads, parts of vectors */
    {8, 8, 256, 288, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2}, /* more weights than are packed at once */
    {64, 1, 410, 400, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 2},
    {8, 8, 160, 1100, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1},
    /* groups of few channels: kernels as tall, or as wide, as the input; parts of a line; chunks of
       groups, the last one shorter; odd outputs; dilated; pointwise; taps that a band never meets
     */
    {22, 61, 8, 16, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 8, 3},
    {22, 61, 12, 10, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {61, 9, 12, 10, 1, 9, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {9, 40, 6, 9, 9, 3, 1, 1, 2, 1, 1, 1, 1, 1, 3, 2},
    {1, 3000, 6, 24, 1, 9, 1, 1, 0, 4, 0, 4, 1, 1, 6, 2},
    {40, 44, 68, 68, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 17, 3},
    {20, 20, 10, 15, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 5, 4},
    {16, 16, 33, 11, 3, 2, 1, 1, 2, 1, 0, 3, 2, 1, 11, 5},
    {12, 12, 40, 40, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 20, 5},
    {14, 40, 4, 8, 21, 1, 1, 1, 20, 0, 11, 0, 1, 1, 4, 3},
    {1, 700, 1, 8, 1, 65, 1, 1, 0, 32, 0, 32, 1, 1, 1, 18},
};

static void check(const dunlin_kernels *kernels, const conv_recipe *recipe, uint64_t seed)
{
    uint64_t state = seed;
    char text[200];
    conv_data data;
    conv_results results;
    conv_data_open(&data, recipe, &state);
    conv_run(kernels, &data, recipe->n, NULL, &results);
    const char *wrong = conv_compare(&data, &results);
    cr_assert_null(wrong, "%s: %s of %s, seed %llu", kernels->isa, wrong,
                   conv_recipe_text(recipe, text, sizeof text), (unsigned long long)seed);
    conv_results_free(&results);
    conv_data_close(&data);
}

static void check_recipes(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i += TEST_STRIDE) {
        check(kernels, &recipes[i], i + 1);
    }
}

Test(conv, agrees_with_double_on_chosen_shapes)
{
    each_isa(check_recipes);
}

static void check_random(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(11);
    for (int i = 0; i < test_cases(60); i++, seed++) {
        uint64_t state = seed * 977;
        conv_recipe recipe = conv_recipe_random(&state);
        check(kernels, &recipe, seed);
    }
}

Test(conv, agrees_with_double_on_random_shapes)
{
    each_isa(check_random);
}

/* Of a kernel as tall as its input each line of the input gradient meets one row of taps: a weight
 * that is not finite makes that line not finite, and no other. */
static void check_tall(const dunlin_kernels *kernels, const conv_recipe *recipe)
{
    uint64_t state = 5;
    conv_data data;
    conv_results results;
    conv_data_open(&data, recipe, &state);
    const int64_t row = data.n_w / recipe->kernel_h;
    const int64_t line = data.n_x / recipe->in_h;
    data.w[3 * row] = INFINITY;
    conv_run(kernels, &data, recipe->n, NULL, &results);
    int64_t n_odd[2] = {0};
    for (int64_t i = 0; i < data.n * data.n_x; i++) {
        n_odd[i % data.n_x / line == 3] += !isfinite(results.dx[i]);
    }
    cr_assert_eq(n_odd[0], 0, "%s: %lld elements of other lines", kernels->isa,
                 (long long)n_odd[0]);
    cr_assert_gt(n_odd[1], 0, "%s", kernels->isa);
    conv_results_free(&results);
    conv_data_close(&data);
}

static void check_all_tall(const dunlin_kernels *kernels)
{
    static const conv_recipe tall[] = {
        {22, 61, 8, 16, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 8, 2},
        {22, 61, 12, 10, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 2},
        {22, 61, 36, 36, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 3, 2},
    };
    for (size_t i = 0; i < sizeof tall / sizeof tall[0]; i++) {
        check_tall(kernels, &tall[i]);
    }
}

Test(conv, taps_that_meet_padding_alone_do_not_count)
{
    each_isa(check_all_tall);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* The slope of dot(dy, forward) along one element, by differences: exact but for rounding, as the
 * pass is linear in it. */
static double slope(const conv_data *data, double *x, double *w, const double *dy, double *at,
                    double *y)
{
    const double kept = *at;
    *at = kept + 0.5;
    reference_conv_forward(&data->shape, data->n, x, w, NULL, y, NULL);
    double up = dot(dy, y, data->n * data->n_y);
    *at = kept - 0.5;
    reference_conv_forward(&data->shape, data->n, x, w, NULL, y, NULL);
    double down = dot(dy, y, data->n * data->n_y);
    *at = kept;
    return up - down;
}

static void check_slopes(const dunlin_kernels *kernels, const conv_recipe *recipe, uint64_t seed)
{
    uint64_t state = seed;
    conv_data data;
    conv_results results;
    conv_data_open(&data, recipe, &state);
    conv_run(kernels, &data, recipe->n, NULL, &results);
    double *x = buffer_doubles(data.x, data.n * data.n_x);
    double *w = buffer_doubles(data.w, data.n_w);
    double *dy = buffer_doubles(data.dy, data.n * data.n_y);
    double *y = buffer_doubles(NULL, data.n * data.n_y);
    for (int i = 0; i < 12; i++) {
        int64_t at_x = (int64_t)test_random_below(&state, (uint64_t)(data.n * data.n_x));
        int64_t at_w = (int64_t)test_random_below(&state, (uint64_t)data.n_w);
        cr_assert_float_eq(results.dx[at_x], slope(&data, x, w, dy, x + at_x, y), 1e-4,
                           "%s: dx[%lld], seed %llu", kernels->isa, (long long)at_x,
                           (unsigned long long)seed);
        cr_assert_float_eq(results.dw[at_w], slope(&data, x, w, dy, w + at_w, y), 1e-4,
                           "%s: dw[%lld], seed %llu", kernels->isa, (long long)at_w,
                           (unsigned long long)seed);
    }
    free(x);
    free(w);
    free(dy);
    free(y);
    conv_results_free(&results);
    conv_data_close(&data);
}

static void check_all_slopes(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(500);
    for (int i = 0; i < test_cases(8); i++, seed++) {
        uint64_t state = seed * 31;
        conv_recipe recipe = conv_recipe_random(&state);
        recipe.n = 1;
        check_slopes(kernels, &recipe, seed);
    }
}

Test(conv, gradients_are_the_slopes_of_the_forward_pass)
{
    each_isa(check_all_slopes);
}

static void check_accumulation(const dunlin_kernels *kernels)
{
    uint64_t state = 3;
    conv_recipe recipe = {9, 9, 5, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
    conv_data data;
    conv_results once;
    conv_data_open(&data, &recipe, &state);
    conv_run(kernels, &data, 2, NULL, &once);
    size_t bytes = kernels->conv_workspace_bytes(&data.shape, DUNLIN_CONV_WEIGHT_GRAD, 1);
    float *workspace = buffer_new((int64_t)(bytes / 4));
    float *dw = buffer_new(data.n_w);
    for (int i = 0; i < 2; i++) {
        dunlin_conv_call call = {.shape = &data.shape,
                                 .n_samples = 2,
                                 .x = data.x,
                                 .dy = data.dy,
                                 .out = dw,
                                 .is_reset = i == 0,
                                 .workspace = workspace};
        kernels->conv_weight_grad(&call);
    }
    for (int64_t i = 0; i < data.n_w; i++) {
        cr_assert_float_eq(dw[i], 2.0f * once.dw[i], 1e-3, "%s: dw[%lld]", kernels->isa,
                           (long long)i);
    }
    buffer_free(dw);
    buffer_free(workspace);
    conv_results_free(&once);
    conv_data_close(&data);
}

static void check_large_workspace(const dunlin_kernels *kernels)
{
    const int32_t channels = 1 << 28;
    const dunlin_conv_shape shape = {.in_h = 2,
                                     .in_w = 2,
                                     .in_c = channels,
                                     .out_h = 1,
                                     .out_w = 1,
                                     .out_c = channels,
                                     .kernel_h = 2,
                                     .kernel_w = 2,
                                     .stride_h = 1,
                                     .stride_w = 1,
                                     .dilation_h = 1,
                                     .dilation_w = 1,
                                     .groups = channels};
    const uint64_t conv = kernels->conv_workspace_bytes(&shape, DUNLIN_CONV_WEIGHT_GRAD, 1);
    const uint64_t norm = kernels->group_norm_workspace_bytes(channels);
    cr_assert(conv == UINT64_C(1) << 32, "%s: %" PRIu64 " bytes", kernels->isa, conv);
    cr_assert(norm == UINT64_C(9) << 30, "%s: %" PRIu64 " bytes", kernels->isa, norm);
}

/* Where addresses have 32 bits as well: what does not fit is refused later, by these numbers. */
Test(conv, workspaces_above_4_gib_are_told_in_full)
{
    each_isa(check_large_workspace);
}

Test(conv, weight_gradient_adds_to_what_is_there)
{
    each_isa(check_accumulation);
}

static void check_workspace(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        uint64_t state = i;
        conv_data data;
        conv_data_open(&data, &recipes[i], &state);
        for (int pass = 0; pass < 3; pass++) {
            size_t one = kernels->conv_workspace_bytes(&data.shape, (dunlin_conv_pass)pass, 1);
            size_t four = kernels->conv_workspace_bytes(&data.shape, (dunlin_conv_pass)pass, 4);
            cr_assert(one <= 5 << 20, "%s: %zu bytes of panels", kernels->isa, one);
            /* a thread may have two runs of parts of the weights' gradient on the way
             * (ordered_sum.h) */
            const size_t part = (size_t)(data.n_w + data.shape.out_c + 16) * sizeof(float);
            const size_t parts = 2 * (part > 65536 ? part : 65536);
            cr_assert(four >= one && four <= 4 * (one + parts));
        }
        conv_data_close(&data);
    }
}

Test(conv, workspace_is_panels_only)
{
    each_isa(check_workspace);
}
