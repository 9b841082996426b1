/*
 * test_tokens.c - the operators of transformers against PyTorch in float64 (make_tokens.py).
 */
#include "op_check.h"
#include "ops/table/infer.h"
#include "step/net_make.h"

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

/* The case's rows under another shape, after the identity: what op_check() wants for x. */
static uint32_t begin(const char *name, const dunlin_shape *shape)
{
    const uint32_t x = op_check_begin(name);
    make_node(net, DUNLIN_OP_RESHAPE, &x, 1)->u.reshape.shape = *shape;
    return finish();
}

/* A copy, whose gradient is a tensor with x's name and not another's or a sum. */
static uint32_t copy_of(uint32_t x)
{
    make_node(net, DUNLIN_OP_UNARY, &x, 1)->u.unary.a = 1.0F;
    return finish();
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
    const uint32_t x = begin("layer_norm", &(dunlin_shape){2, {3, 37}});
    const dunlin_shape shape = {1, {37}};
    dunlin_net_node *node = make_node(net, DUNLIN_OP_LAYER_NORM, &x, 1);
    node->params[0] = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->params[1] = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 2;
    node->u.layer_norm.eps = 1e-5F;
    op_check("layer_norm", x, finish());
}

Test(golden_tokens, softmax)
{
    const uint32_t x = begin("softmax", &(dunlin_shape){2, {3, 19}});
    make_node(net, DUNLIN_OP_SOFTMAX, &x, 1);
    op_check("softmax", x, finish());
}

Test(golden_tokens, attention)
{
    const uint32_t x = begin("attention", &(dunlin_shape){2, {66, 12}});
    make_node(net, DUNLIN_OP_ATTENTION, &x, 1)->u.attention =
        (dunlin_net_attention){.heads = 2, .scale = (float)(1.0 / sqrt(2.0))};
    op_check("attention", x, finish());
}

Test(golden_tokens, dense_rows)
{
    const uint32_t x = begin("dense_rows", &(dunlin_shape){2, {5, 7}});
    op_check("dense_rows", x, make_dense(net, x, 9, true));
}

Test(golden_tokens, positions)
{
    const dunlin_shape shape = {2, {5, 7}};
    const uint32_t x = begin("positions", &shape);
    const uint32_t copy = copy_of(x);
    const uint32_t param = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    dunlin_net_node *node = make_node(net, DUNLIN_OP_BINARY, &copy, 1);
    node->u.binary.fn = DUNLIN_BINARY_ADD;
    node->params[0] = param;
    node->n_params = 1;
    op_check("positions", x, finish());
}

Test(golden_tokens, transpose)
{
    const uint32_t x = begin("transpose", &(dunlin_shape){3, {2, 5, 7}});
    const int32_t perm[] = {2, 0, 1};
    memcpy(make_node(net, DUNLIN_OP_TRANSPOSE, &x, 1)->u.transpose.perm, perm, sizeof perm);
    op_check("transpose", x, finish());
}

Test(golden_tokens, mean)
{
    const uint32_t x = begin("mean", &(dunlin_shape){3, {2, 5, 7}});
    make_node(net, DUNLIN_OP_MEAN, &x, 1)->u.mean.axes = 2;
    op_check("mean", x, finish());
}

Test(golden_tokens, matmul)
{
    const uint32_t x = begin("matmul", &(dunlin_shape){2, {7, 5}});
    const uint32_t copy = copy_of(x);
    make_node(net, DUNLIN_OP_MATMUL, (uint32_t[]){copy, copy}, 2)->u.matmul.is_right_transposed =
        true;
    op_check("matmul", x, finish());
}

/* --- data/tokens_more.golden --- */

static void open_more(void)
{
    net = op_check_open("tokens_more.golden");
}

TestSuite(golden_tokens_more, .init = open_more, .fini = op_check_close);

Test(golden_tokens_more, functions)
{
    check_function("gelu_tanh", DUNLIN_UNARY_GELU_TANH, 0.0F);
}

Test(golden_tokens_more, sigmoid)
{
    check_function("sigmoid", DUNLIN_UNARY_SIGMOID, 0.0F);
}

Test(golden_tokens_more, log_softmax)
{
    const uint32_t x = begin("log_softmax", &(dunlin_shape){2, {3, 19}});
    make_node(net, DUNLIN_OP_SOFTMAX, &x, 1)->u.softmax.is_log = true;
    op_check("log_softmax", x, finish());
}

Test(golden_tokens_more, affine)
{
    const uint32_t x = op_check_begin("affine");
    dunlin_net_node *node = make_node(net, DUNLIN_OP_UNARY, &x, 1);
    node->u.unary.fn = DUNLIN_UNARY_AFFINE;
    node->u.unary.a = 1.5F;
    node->u.unary.b = -0.25F;
    op_check("affine", x, finish());
}

Test(golden_tokens_more, inverse)
{
    check_function("inverse", DUNLIN_UNARY_POWER, -1.0F);
}

/* Elements [start, end) of a row, in this shape. */
static uint32_t part_of(uint32_t x, int64_t start, int64_t end, const dunlin_shape *shape)
{
    dunlin_net_node *node = make_node(net, DUNLIN_OP_SLICE, &x, 1);
    node->u.slice.start = start;
    node->u.slice.end = end;
    const uint32_t part = finish();
    make_node(net, DUNLIN_OP_RESHAPE, &part, 1)->u.reshape.shape = *shape;
    return finish();
}

static void check_binary(const char *name, dunlin_binary_fn fn)
{
    const uint32_t x = op_check_begin(name);
    const uint32_t copy = copy_of(x);
    const uint32_t left = part_of(copy, 0, 60, &(dunlin_shape){3, {3, 4, 5}});
    const uint32_t right = part_of(copy, 60, 64, &(dunlin_shape){3, {1, 4, 1}});
    make_node(net, DUNLIN_OP_BINARY, (uint32_t[]){left, right}, 2)->u.binary.fn = fn;
    op_check(name, x, finish());
}

Test(golden_tokens_more, multiply)
{
    check_binary("multiply", DUNLIN_BINARY_MUL);
}

Test(golden_tokens_more, subtract)
{
    check_binary("subtract", DUNLIN_BINARY_SUB);
}

Test(golden_tokens_more, divide)
{
    check_binary("divide", DUNLIN_BINARY_DIV);
}

Test(golden_tokens_more, slice)
{
    const uint32_t x = begin("slice", &(dunlin_shape){3, {3, 7, 4}});
    dunlin_net_node *node = make_node(net, DUNLIN_OP_SLICE, &x, 1);
    node->u.slice.axis = 1;
    node->u.slice.start = 2;
    node->u.slice.end = 5;
    op_check("slice", x, finish());
}

Test(golden_tokens_more, mean_of_two)
{
    const uint32_t x = begin("mean_of_two", &(dunlin_shape){3, {3, 7, 4}});
    make_node(net, DUNLIN_OP_MEAN, &x, 1)->u.mean.axes = 1 | 4;
    op_check("mean_of_two", x, finish());
}

/* The mask is made of the network's input alone; the second sample's hides half of its keys. */
Test(golden_tokens_more, attention_masked)
{
    const uint32_t x = op_check_begin("attention_masked");
    const uint32_t mask = part_of(net->input, 72, 78, &(dunlin_shape){1, {6}});
    const uint32_t qkv = part_of(x, 0, 72, &(dunlin_shape){2, {6, 12}});
    make_node(net, DUNLIN_OP_ATTENTION, (uint32_t[]){qkv, mask}, 2)->u.attention =
        (dunlin_net_attention){.heads = 2, .scale = (float)(1.0 / sqrt(2.0)), .has_mask = true};
    op_check("attention_masked", x, finish());
}

/* Tokens have no gradient, so nothing stands before the table. */
Test(golden_tokens_more, embedding)
{
    const uint32_t x = op_check_begin_bare("embedding");
    const dunlin_shape shape = {2, {9, 4}};
    dunlin_net_node *node = make_node(net, DUNLIN_OP_EMBEDDING, &x, 1);
    node->params[0] = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 1;
    op_check("embedding", x, finish());
}
