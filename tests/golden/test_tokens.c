/*
 * test_tokens.c - the operators of transformers against PyTorch in float64 (make_tokens.py).
 */
#include "net/infer.h"
#include "net_make.h"
#include "op_check.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

static dunlin_net *net;

static void open_all(void)
{
    net = op_check_open("tokens.golden");
}

TestSuite(golden_tokens, .init = open_all, .fini = op_check_close);

static uint32_t finish(void)
{
    dunlin_error error = {0};
    const uint32_t index = (uint32_t)net->n_nodes - 1;
    const dunlin_status status = dunlin__net_infer_node(net, index, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    return net->nodes[index].output;
}

/* The case's rows under another shape, behind the identity; `out_x` is what op_check() wants. */
static uint32_t begin(const char *name, const dunlin_shape *shape, uint32_t *out_x)
{
    *out_x = op_check_begin(name);
    make_node(net, DUNLIN_OP_RESHAPE, out_x, 1)->u.reshape.shape = *shape;
    return finish();
}

/* Compared as a row, which the file holds. */
static void end(const char *name, uint32_t x, uint32_t y)
{
    op_check(name, x, make_flatten(net, y));
}

static void check_function(const char *name, dunlin_unary_fn fn, float a)
{
    const uint32_t x = op_check_begin(name);
    dunlin_net_node *node = make_node(net, DUNLIN_OP_UNARY, &x, 1);
    node->u.unary.fn = fn;
    node->u.unary.a = a;
    op_check(name, x, finish());
}

Test(golden_tokens, tanh)
{
    check_function("tanh", DUNLIN_UNARY_TANH, 0.0F);
}

Test(golden_tokens, erf)
{
    check_function("erf", DUNLIN_UNARY_ERF, 0.0F);
}

Test(golden_tokens, gelu)
{
    check_function("gelu", DUNLIN_UNARY_GELU, 0.0F);
}

Test(golden_tokens, sqrt)
{
    check_function("sqrt", DUNLIN_UNARY_SQRT, 0.0F);
}

Test(golden_tokens, cube)
{
    check_function("cube", DUNLIN_UNARY_POWER, 3.0F);
}

Test(golden_tokens, layer_norm)
{
    uint32_t x = 0;
    const uint32_t in = begin("layer_norm", &(dunlin_shape){2, {3, 37}}, &x);
    const dunlin_shape shape = {1, {37}};
    dunlin_net_node *node = make_node(net, DUNLIN_OP_LAYER_NORM, &in, 1);
    node->params[0] = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->params[1] = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 2;
    node->u.layer_norm.eps = 1e-5F;
    end("layer_norm", x, finish());
}

Test(golden_tokens, softmax)
{
    uint32_t x = 0;
    const uint32_t in = begin("softmax", &(dunlin_shape){2, {3, 19}}, &x);
    make_node(net, DUNLIN_OP_SOFTMAX, &in, 1);
    end("softmax", x, finish());
}

Test(golden_tokens, attention)
{
    uint32_t x = 0;
    const uint32_t in = begin("attention", &(dunlin_shape){2, {66, 12}}, &x);
    make_node(net, DUNLIN_OP_ATTENTION, &in, 1)->u.attention =
        (dunlin_net_attention){.heads = 2, .scale = (float)(1.0 / sqrt(2.0))};
    end("attention", x, finish());
}

Test(golden_tokens, dense_rows)
{
    uint32_t x = 0;
    const uint32_t in = begin("dense_rows", &(dunlin_shape){2, {5, 7}}, &x);
    end("dense_rows", x, make_dense(net, in, 9, true));
}

Test(golden_tokens, positions)
{
    uint32_t x = 0;
    const dunlin_shape shape = {2, {5, 7}};
    const uint32_t in = begin("positions", &shape, &x);
    const uint32_t param = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    dunlin_net_node *node = make_node(net, DUNLIN_OP_BINARY, &in, 1);
    node->u.binary.fn = DUNLIN_BINARY_ADD;
    node->params[0] = param;
    node->n_params = 1;
    end("positions", x, finish());
}

Test(golden_tokens, transpose)
{
    uint32_t x = 0;
    const uint32_t in = begin("transpose", &(dunlin_shape){3, {2, 5, 7}}, &x);
    const int32_t perm[] = {2, 0, 1};
    memcpy(make_node(net, DUNLIN_OP_TRANSPOSE, &in, 1)->u.transpose.perm, perm, sizeof perm);
    end("transpose", x, finish());
}

Test(golden_tokens, mean)
{
    uint32_t x = 0;
    const uint32_t in = begin("mean", &(dunlin_shape){3, {2, 5, 7}}, &x);
    make_node(net, DUNLIN_OP_MEAN, &in, 1)->u.mean.axes = 2;
    end("mean", x, finish());
}

Test(golden_tokens, matmul)
{
    uint32_t x = 0;
    const uint32_t in = begin("matmul", &(dunlin_shape){2, {7, 5}}, &x);
    make_node(net, DUNLIN_OP_MATMUL, (uint32_t[]){in, in}, 2)->u.matmul.is_right_turned = true;
    end("matmul", x, finish());
}
