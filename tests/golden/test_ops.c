/*
 * test_ops.c - each operator, forward and backward, against PyTorch in float64.
 */
#include "op_check.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <math.h>

static dunlin_net *net;

static void open_all(void)
{
    net = op_check_open("ops.golden");
}

TestSuite(golden_ops, .init = open_all, .fini = op_check_close);

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

Test(golden_ops, conv)
{
    check_conv("conv",
               &(dunlin_net_conv){.stride_h = 2, .pad_top = 1, .pad_left = 1, .pad_right = 1});
}

Test(golden_ops, conv_dilated)
{
    check_conv(
        "conv_dilated",
        &(dunlin_net_conv){
            .dilation_h = 2, .dilation_w = 3, .pad_top = 2, .pad_bottom = 1, .pad_right = 1});
}

static const dunlin_net_conv padded = {
    .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1};

Test(golden_ops, conv_grouped)
{
    dunlin_net_conv conv = padded;
    conv.groups = 2;
    check_conv("conv_grouped", &conv);
}

Test(golden_ops, conv_depthwise)
{
    dunlin_net_conv conv = padded;
    conv.groups = 5;
    conv.stride_h = 2;
    conv.stride_w = 2;
    check_conv("conv_depthwise", &conv);
}

Test(golden_ops, dense)
{
    uint32_t x = op_check_begin("dense");
    op_check("dense", x, make_dense(net, x, 7, true));
}

Test(golden_ops, batch_norm)
{
    uint32_t x = op_check_begin("batch_norm");
    op_check("batch_norm", x, make_batch_norm(net, x));
}

Test(golden_ops, batch_norm_rows)
{
    uint32_t x = op_check_begin("batch_norm_rows");
    op_check("batch_norm_rows", x, make_batch_norm(net, x));
}

Test(golden_ops, relu)
{
    uint32_t x = op_check_begin("relu");
    op_check("relu", x, make_clip(net, x, 0.0F, HUGE_VALF));
}

Test(golden_ops, relu6)
{
    uint32_t x = op_check_begin("relu6");
    op_check("relu6", x, make_clip(net, x, 0.0F, 6.0F));
}

static void check_pool(const char *name, dunlin_op_kind kind, const dunlin_net_pool *pool)
{
    uint32_t x = op_check_begin(name);
    op_check(name, x, make_pool(net, x, kind, pool));
}

Test(golden_ops, max_pool)
{
    check_pool("max_pool", DUNLIN_OP_MAX_POOL,
               &(dunlin_net_pool){3, 3, 2, 2, 1, 1, 1, 1, false, false, 0, 0, 0});
}

Test(golden_ops, max_pool_ceil)
{
    check_pool("max_pool_ceil", DUNLIN_OP_MAX_POOL,
               &(dunlin_net_pool){2, 3, 2, 2, 0, 0, 0, 0, true, false, 0, 0, 0});
}

Test(golden_ops, average_pool)
{
    check_pool("average_pool", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){3, 3, 2, 2, 1, 1, 1, 1, false, false, 0, 0, 0});
}

Test(golden_ops, average_pool_padded)
{
    check_pool("average_pool_padded", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){3, 3, 2, 2, 1, 1, 1, 1, true, true, 0, 0, 0});
}

Test(golden_ops, global_average_pool)
{
    uint32_t x = op_check_begin("global_average_pool");
    op_check("global_average_pool", x, make_global_pool(net, x));
}
