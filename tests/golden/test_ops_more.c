/*
 * test_ops_more.c - more cases of the operators against PyTorch in float64: more channels than a
 * vector holds, all attributes of a convolution at once, group norm, frozen batch norm.
 */
#include "op_check.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <math.h>

static dunlin_net *net;

/* --- convolutions --- */

static void open_conv(void)
{
    net = op_check_open("ops_conv.golden");
}

TestSuite(golden_conv, .init = open_conv, .fini = op_check_close);

static void check_conv(const char *name, const dunlin_net_conv *conv)
{
    uint32_t x = op_check_begin(name);
    const golden_array *weight = op_check_find(name, "weight");
    dunlin_net_conv full = *conv;
    full.kernel_h = (int32_t)weight->shape.dims[2];
    full.kernel_w = (int32_t)weight->shape.dims[3];
    op_check(name, x,
             make_conv(net, x, (int32_t)weight->shape.dims[0], &full,
                       op_check_find(name, "bias") != NULL));
}

static dunlin_net_conv padded(int32_t padding, int32_t groups)
{
    return (dunlin_net_conv){.pad_top = padding,
                             .pad_left = padding,
                             .pad_bottom = padding,
                             .pad_right = padding,
                             .groups = groups};
}

Test(golden_conv, odd)
{
    check_conv("conv_odd", &(dunlin_net_conv){.stride_h = 3,
                                              .stride_w = 2,
                                              .pad_top = 2,
                                              .pad_left = 1,
                                              .pad_bottom = 1,
                                              .pad_right = 3});
}

Test(golden_conv, everything)
{
    check_conv("conv_everything", &(dunlin_net_conv){.stride_w = 2,
                                                     .dilation_h = 2,
                                                     .pad_top = 1,
                                                     .pad_left = 2,
                                                     .pad_bottom = 2,
                                                     .pad_right = 1,
                                                     .groups = 3});
}

Test(golden_conv, pointwise)
{
    check_conv("conv_pointwise", &(dunlin_net_conv){0});
}

Test(golden_conv, pointwise_strided)
{
    check_conv("conv_pointwise_strided", &(dunlin_net_conv){.stride_h = 2, .stride_w = 2});
}

Test(golden_conv, wide)
{
    dunlin_net_conv conv = padded(1, 1);
    check_conv("conv_wide", &conv);
}

Test(golden_conv, depthwise_dilated)
{
    dunlin_net_conv conv = padded(2, 5);
    conv.dilation_h = 2;
    conv.dilation_w = 2;
    check_conv("depthwise_dilated", &conv);
}

Test(golden_conv, depthwise_large)
{
    dunlin_net_conv conv = padded(2, 9);
    conv.stride_h = 2;
    conv.stride_w = 2;
    check_conv("depthwise_large", &conv);
}

Test(golden_conv, depthwise_multiplied)
{
    dunlin_net_conv conv = padded(1, 3);
    check_conv("depthwise_multiplied", &conv);
}

/* --- the others --- */

static void open_more(void)
{
    net = op_check_open("ops_more.golden");
}

TestSuite(golden_more, .init = open_more, .fini = op_check_close);

Test(golden_more, dense_wide)
{
    uint32_t x = op_check_begin("dense_wide");
    op_check("dense_wide", x, make_dense(net, x, 17, false));
}

Test(golden_more, batch_norm_frozen)
{
    uint32_t x = op_check_begin("batch_norm_frozen");
    op_check_options()->freeze_batch_norm = true;
    op_check("batch_norm_frozen", x, make_batch_norm(net, x));
}

static void check_group_norm(const char *name, int32_t groups)
{
    uint32_t x = op_check_begin(name);
    op_check(name, x, make_group_norm(net, x, groups));
}

Test(golden_more, group_norm)
{
    check_group_norm("group_norm", 2);
}

Test(golden_more, group_norm_of_all_channels)
{
    check_group_norm("group_norm_one", 1);
}

Test(golden_more, group_norm_of_each_channel)
{
    check_group_norm("group_norm_each", 17);
}

Test(golden_more, clip)
{
    uint32_t x = op_check_begin("clip");
    op_check("clip", x, make_clip(net, x, -0.5F, 0.75F));
}

static void check_pool(const char *name, dunlin_op_kind kind, const dunlin_net_pool *pool)
{
    uint32_t x = op_check_begin(name);
    op_check(name, x, make_pool(net, x, kind, pool));
}

Test(golden_more, average_pool_uneven)
{
    check_pool("average_pool_uneven", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){2, 3, 2, 1, 1, 0, 0, 1, false, true, 0, 0, 0});
}

/* As VGG-16 brings a single pixel to 7x7. */
Test(golden_more, average_pool_repeating)
{
    check_pool("average_pool_repeating", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){7, 7, 1, 1, 6, 6, 6, 6, false, false, 0, 0, 0});
}

Test(golden_more, max_pool_small)
{
    check_pool("max_pool_small", DUNLIN_OP_MAX_POOL,
               &(dunlin_net_pool){2, 2, 2, 2, 0, 0, 0, 0, false, false, 0, 0, 0});
}

/* What two branches read, after a layer that changes nothing: the gradient of what is before it is
 * one tensor. */
static uint32_t make_fork(uint32_t x)
{
    return make_clip(net, x, -HUGE_VALF, HUGE_VALF);
}

/* A smooth branch of the same size. */
static uint32_t make_branch(uint32_t x)
{
    return make_pool(net, x, DUNLIN_OP_AVERAGE_POOL,
                     &(dunlin_net_pool){3, 3, 1, 1, 1, 1, 1, 1, false, true, 0, 0, 0});
}

Test(golden_more, add)
{
    uint32_t x = op_check_begin("add");
    uint32_t fork = make_fork(x);
    op_check("add", x, make_add(net, fork, make_branch(fork)));
}

Test(golden_more, concat)
{
    uint32_t x = op_check_begin("concat");
    uint32_t fork = make_fork(x);
    op_check("concat", x, make_concat(net, (uint32_t[]){make_branch(fork), fork}, 2));
}
