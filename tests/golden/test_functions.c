/*
 * test_functions.c - functions of one element against PyTorch in float64 (make_tokens.py).
 */
#include "op_check.h"
#include "ops/table/infer.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

static dunlin_net *net;

static void open_all(void)
{
    net = op_check_open("functions.golden");
}

TestSuite(golden_functions, .init = open_all, .fini = op_check_close);

static void check(const char *name, dunlin_unary_fn fn, float a, float b)
{
    dunlin_error error = {0};
    const uint32_t x = op_check_begin(name);
    dunlin_net_node *node = make_node(net, DUNLIN_OP_UNARY, &x, 1);
    node->u.unary.fn = fn;
    node->u.unary.a = a;
    node->u.unary.b = b;
    const uint32_t y = node->output;
    const dunlin_status status = dunlin__net_infer_node(net, (uint32_t)net->n_nodes - 1, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    op_check(name, x, y);
}

Test(golden_functions, silu)
{
    check("silu", DUNLIN_UNARY_SILU, 0.0F, 0.0F);
}

Test(golden_functions, hard_sigmoid)
{
    check("hard_sigmoid", DUNLIN_UNARY_HARD_SIGMOID, 1.0F / 6.0F, 0.5F);
}

Test(golden_functions, hard_swish)
{
    check("hard_swish", DUNLIN_UNARY_HARD_SWISH, 0.0F, 0.0F);
}
