/*
 * test_pools.c - pooling, norms of windows and across channels, extremes of two values against
 * PyTorch in float64 (make_pools.py).
 */
#include "op_check.h"
#include "ops/table/infer.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <math.h>

static dunlin_net *net;

static void open_pools(void)
{
    net = op_check_open("pools.golden");
}

TestSuite(golden_pools, .init = open_pools, .fini = op_check_close);

static void check_pool(const char *name, dunlin_op_kind kind, const dunlin_net_pool *pool)
{
    const uint32_t x = op_check_begin(name);
    op_check(name, x, make_pool(net, x, kind, pool));
}

static uint32_t finish(void)
{
    dunlin_error error = {0};
    const uint32_t index = (uint32_t)net->n_nodes - 1;
    cr_assert_eq(dunlin__net_infer_node(net, index, &error), DUNLIN_OK, "%s", error.text);
    return net->nodes[index].output;
}

Test(golden_pools, max_pool_dilated)
{
    check_pool("max_pool_dilated", DUNLIN_OP_MAX_POOL,
               &(dunlin_net_pool){3, 3, 2, 2, 1, 1, 1, 1, false, false, 2, 2, 0});
}

Test(golden_pools, max_pool_dilated_ceil)
{
    check_pool("max_pool_dilated_ceil", DUNLIN_OP_MAX_POOL,
               &(dunlin_net_pool){2, 3, 3, 2, 0, 0, 0, 0, true, false, 3, 2, 0});
}

Test(golden_pools, max_pool_ceil_padded)
{
    check_pool("max_pool_ceil_padded", DUNLIN_OP_MAX_POOL,
               &(dunlin_net_pool){2, 2, 3, 3, 1, 1, 1, 1, true, false, 0, 0, 0});
}

Test(golden_pools, average_pool_counted)
{
    check_pool("average_pool_counted", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){4, 4, 3, 3, 2, 2, 2, 2, true, true, 0, 0, 0});
}

Test(golden_pools, average_pool_uncounted)
{
    check_pool("average_pool_uncounted", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){4, 4, 3, 3, 2, 2, 2, 2, true, false, 0, 0, 0});
}

Test(golden_pools, average_pool_floor)
{
    check_pool("average_pool_floor", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){4, 4, 3, 3, 2, 2, 2, 2, false, true, 0, 0, 0});
}

Test(golden_pools, average_pool_dropped)
{
    check_pool("average_pool_dropped", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){2, 2, 3, 3, 1, 1, 1, 1, true, true, 0, 0, 0});
}

static void check_norm_of_windows(const char *name, int32_t p)
{
    check_pool(name, DUNLIN_OP_LP_POOL,
               &(dunlin_net_pool){3, 2, 2, 1, 0, 0, 0, 0, false, false, 0, 0, p});
}

Test(golden_pools, lp_pool1)
{
    check_norm_of_windows("lp_pool1", 1);
}

Test(golden_pools, lp_pool2)
{
    check_norm_of_windows("lp_pool2", 2);
}

Test(golden_pools, lp_pool3)
{
    check_norm_of_windows("lp_pool3", 3);
}

static void check_response_norm(const char *name, int32_t size, float alpha, float beta, float bias)
{
    const uint32_t x = op_check_begin(name);
    dunlin_net_node *node = make_node(net, DUNLIN_OP_RESPONSE_NORM, &x, 1);
    node->u.response_norm.size = size;
    node->u.response_norm.alpha = alpha;
    node->u.response_norm.beta = beta;
    node->u.response_norm.bias = bias;
    op_check(name, x, finish());
}

Test(golden_pools, response_norm)
{
    check_response_norm("response_norm", 5, 2.0F, 0.75F, 1.0F);
}

Test(golden_pools, response_norm_wide)
{
    check_response_norm("response_norm_wide", 9, 3.0F, 0.5F, 2.0F);
}

static void check_extreme(const char *name, dunlin_binary_fn fn, bool is_tied)
{
    const dunlin_net_pool one = {.kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1};
    const uint32_t x = op_check_begin(name);
    const uint32_t fork = make_clip(net, x, -HUGE_VALF, HUGE_VALF);
    const uint32_t other =
        is_tied ? make_pool(net, fork, DUNLIN_OP_MAX_POOL, &one) : make_global_pool(net, fork);
    make_node(net, DUNLIN_OP_BINARY, (uint32_t[]){fork, other}, 2)->u.binary.fn = fn;
    op_check(name, x, finish());
}

Test(golden_pools, larger)
{
    check_extreme("larger", DUNLIN_BINARY_MAX, false);
}

Test(golden_pools, smaller)
{
    check_extreme("smaller", DUNLIN_BINARY_MIN, false);
}

Test(golden_pools, larger_tied)
{
    check_extreme("larger_tied", DUNLIN_BINARY_MAX, true);
}

Test(golden_pools, smaller_tied)
{
    check_extreme("smaller_tied", DUNLIN_BINARY_MIN, true);
}
