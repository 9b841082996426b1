/*
 * test_depth.c - depth and precision of sums: long chains keep their bound, a padded window never
 * reads what lies outside, and not-a-number outside the window's reach stays outside.
 */
#include "checks/conv_check.h"
#include "random.h"

#include <criterion/criterion.h>

#include <math.h>

TestSuite(depth, .timeout = 900);

/* One bad pixel: only outputs whose window holds it may be bad. */
static void check_reach(const dunlin_kernels *kernels, const conv_recipe *recipe)
{
    uint64_t state = 5;
    conv_data data;
    conv_data_open(&data, recipe, &state);
    const int32_t bad_y = recipe->in_h / 2;
    const int32_t bad_x = recipe->in_w - 1;
    data.x[(bad_y * recipe->in_w + bad_x) * recipe->in_c] = NAN;
    float *y = buffer_new(data.n_y);
    size_t bytes = kernels->conv_workspace_bytes(&data.shape, DUNLIN_CONV_FORWARD, 1);
    float *workspace = buffer_new((int64_t)(bytes / 4));
    dunlin_conv_call call = {.shape = &data.shape,
                             .n_samples = 1,
                             .x = data.x,
                             .w = data.w,
                             .out = y,
                             .workspace = workspace};
    kernels->conv_forward(&call);
    const int32_t group_out = recipe->out_c / recipe->groups;
    for (int64_t i = 0; i < data.n_y; i++) {
        int64_t oy = i / data.shape.out_c / data.shape.out_w;
        int64_t ox = i / data.shape.out_c % data.shape.out_w;
        int64_t dy = bad_y - (oy * recipe->stride_h - recipe->pad_top);
        int64_t dx = bad_x - (ox * recipe->stride_w - recipe->pad_left);
        bool holds = dy >= 0 && dx >= 0 && dy < recipe->kernel_h && dx < recipe->kernel_w &&
                     i % data.shape.out_c < group_out;
        cr_assert_eq(isnan(y[i]) != 0, holds, "%s: output %lld", kernels->isa, (long long)i);
    }
    buffer_free(workspace);
    buffer_free(y);
    conv_data_close(&data);
}

static void check_reaches(const dunlin_kernels *kernels)
{
    static const conv_recipe recipes[] = {
        {8, 9, 3, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {8, 9, 24, 24, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 24, 1},
        {8, 9, 6, 10, 3, 3, 1, 1, 0, 2, 0, 2, 1, 1, 2, 1},
        {6, 6, 40, 40, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        check_reach(kernels, &recipes[i]);
    }
}

Test(depth, a_bad_pixel_reaches_its_windows_only)
{
    each_isa(check_reaches);
}

/* All products are one: every sum is a whole number and exact. */
static void check_counts(const dunlin_kernels *kernels)
{
    const conv_recipe recipe = {5, 5, 1000, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
    uint64_t state = 1;
    conv_data data;
    conv_data_open(&data, &recipe, &state);
    float *all[] = {data.x, data.w, data.bias, data.dy};
    const int64_t counts[] = {data.n * data.n_x, data.n_w, recipe.out_c, data.n * data.n_y};
    for (int i = 0; i < 4; i++) {
        for (int64_t j = 0; j < counts[i]; j++) {
            all[i][j] = 1.0f;
        }
    }
    conv_results results;
    conv_run(kernels, &data, 1, NULL, &results);
    for (int64_t i = 0; i < data.n * data.n_y; i++) {
        int64_t y = i / 40 / 5 % 5;
        int64_t x = i / 40 % 5;
        int taps = (y == 0 || y == 4 ? 2 : 3) * (x == 0 || x == 4 ? 2 : 3);
        cr_assert_eq(results.y[i], (float)(1 + 1000 * taps));
    }
    cr_assert_eq(results.dx[0], (float)(4 * 40));
    cr_assert_eq(results.dw[0], (float)(2 * 16));
    cr_assert_eq(results.dw[4 * 1000 * 40], (float)(2 * 25));
    cr_assert_eq(results.db[39], 50.0f);
    conv_results_free(&results);
    conv_data_close(&data);
}

Test(depth, whole_numbers_are_exact)
{
    each_isa(check_counts);
}
