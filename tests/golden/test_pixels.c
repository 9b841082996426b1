/*
 * test_pixels.c - transposed convolutions and images of another size against PyTorch in float64
 * (make_pixels.py).
 */
#include "op_check.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

static dunlin_net *net;

static void open_pixels(void)
{
    net = op_check_open("pixels.golden");
}

TestSuite(golden_pixels, .init = open_pixels, .fini = op_check_close);

static void check_transposed(const char *name, int32_t channels, const dunlin_net_conv *conv,
                             bool has_bias)
{
    const uint32_t x = op_check_begin(name);
    op_check(name, x, make_conv_transposed(net, x, channels, conv, has_bias));
}

Test(golden_pixels, conv_transposed)
{
    check_transposed("conv_transposed", 4,
                     &(dunlin_net_conv){.kernel_h = 3,
                                        .kernel_w = 2,
                                        .stride_h = 2,
                                        .pad_top = 1,
                                        .pad_bottom = 1,
                                        .extra_h = 1},
                     true);
}

Test(golden_pixels, conv_transposed_twice)
{
    check_transposed("conv_transposed_twice", 3,
                     &(dunlin_net_conv){.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2},
                     true);
}

Test(golden_pixels, conv_transposed_grouped)
{
    check_transposed("conv_transposed_grouped", 6,
                     &(dunlin_net_conv){.kernel_h = 2,
                                        .kernel_w = 3,
                                        .stride_h = 3,
                                        .stride_w = 2,
                                        .dilation_h = 2,
                                        .dilation_w = 3,
                                        .groups = 2,
                                        .extra_h = 2,
                                        .extra_w = 1},
                     false);
}

static void check_resize(const char *name, const dunlin_net_resize *how)
{
    const uint32_t x = op_check_begin(name);
    op_check(name, x, make_resize(net, x, how));
}

static const dunlin_net_resize nearest = {.coordinates = DUNLIN_RESIZE_ASYMMETRIC,
                                          .rounding = DUNLIN_RESIZE_FLOOR};

Test(golden_pixels, resize_nearest)
{
    dunlin_net_resize how = nearest;
    how.out_h = 10;
    how.out_w = 9;
    check_resize("resize_nearest", &how);
}

Test(golden_pixels, resize_nearest_by)
{
    dunlin_net_resize how = nearest;
    how.out_h = 8;
    how.out_w = 3;
    how.factor_h = 1.7F;
    how.factor_w = 0.6F;
    check_resize("resize_nearest_by", &how);
}

Test(golden_pixels, resize_linear)
{
    check_resize("resize_linear", &(dunlin_net_resize){.out_h = 7, .out_w = 12, .is_linear = true});
}

Test(golden_pixels, resize_linear_less)
{
    check_resize("resize_linear_less",
                 &(dunlin_net_resize){.out_h = 3, .out_w = 2, .is_linear = true});
}

Test(golden_pixels, resize_linear_by)
{
    check_resize(
        "resize_linear_by",
        &(dunlin_net_resize){
            .out_h = 7, .out_w = 4, .factor_h = 1.5F, .factor_w = 0.7F, .is_linear = true});
}

Test(golden_pixels, resize_aligned)
{
    check_resize("resize_aligned",
                 &(dunlin_net_resize){.out_h = 8,
                                      .out_w = 11,
                                      .is_linear = true,
                                      .coordinates = DUNLIN_RESIZE_ALIGN_CORNERS});
}

Test(golden_pixels, resize_aligned_one)
{
    check_resize(
        "resize_aligned_one",
        &(dunlin_net_resize){
            .out_h = 1, .out_w = 3, .is_linear = true, .coordinates = DUNLIN_RESIZE_ALIGN_CORNERS});
}
