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

Test(golden_functions, elu)
{
    check("elu", DUNLIN_UNARY_ELU, 0.5F, 0.0F);
}

Test(golden_functions, selu)
{
    check("selu", DUNLIN_UNARY_SELU, 1.6732632F, 1.050701F);
}

Test(golden_functions, celu)
{
    check("celu", DUNLIN_UNARY_CELU, 2.0F, 0.0F);
}

Test(golden_functions, softplus)
{
    check("softplus", DUNLIN_UNARY_SOFTPLUS, 0.0F, 0.0F);
}

Test(golden_functions, softsign)
{
    check("softsign", DUNLIN_UNARY_SOFTSIGN, 0.0F, 0.0F);
}

Test(golden_functions, mish)
{
    check("mish", DUNLIN_UNARY_MISH, 0.0F, 0.0F);
}

Test(golden_functions, abs)
{
    check("abs", DUNLIN_UNARY_ABS, 0.0F, 0.0F);
}

Test(golden_functions, exp)
{
    check("exp", DUNLIN_UNARY_EXP, 0.0F, 0.0F);
}

Test(golden_functions, log)
{
    check("log", DUNLIN_UNARY_LOG, 0.0F, 0.0F);
}

Test(golden_functions, sin)
{
    check("sin", DUNLIN_UNARY_SIN, 0.0F, 0.0F);
}

Test(golden_functions, cos)
{
    check("cos", DUNLIN_UNARY_COS, 0.0F, 0.0F);
}

Test(golden_functions, threshold)
{
    check("threshold", DUNLIN_UNARY_THRESHOLD, 0.25F, 0.0F);
}

/* Exponents that products and roots do not make. */
Test(golden_functions, powers)
{
    check("root", DUNLIN_UNARY_POWER, 0.3F, 0.0F);
}

Test(golden_functions, powers_below_0)
{
    check("steep", DUNLIN_UNARY_POWER, -2.75F, 0.0F);
}

Test(golden_functions, whole_powers)
{
    check("ninth", DUNLIN_UNARY_POWER, 9.0F, 0.0F);
}

static void check_prelu(const char *name, int64_t n_slopes)
{
    dunlin_error error = {0};
    const dunlin_shape shape = {1, {n_slopes}};
    const uint32_t x = op_check_begin(name);
    const uint32_t param = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    dunlin_net_node *node = make_node(net, DUNLIN_OP_PRELU, &x, 1);
    node->params[0] = param;
    node->n_params = 1;
    const uint32_t y = node->output;
    const dunlin_status status = dunlin__net_infer_node(net, (uint32_t)net->n_nodes - 1, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    op_check(name, x, y);
}

Test(golden_functions, prelu)
{
    check_prelu("prelu", 5);
}

Test(golden_functions, prelu_with_one_slope)
{
    check_prelu("prelu_one", 1);
}
