/*
 * builder_tokens.c - the builder's layers of transformers and of reshaped values.
 *
 * Invariant: as in builder.c, nothing happens after the first error. Initial distributions are
 * PyTorch's.
 */
#include "builder.h"

#include <dunlin/pixels.h>

#include <math.h>
#include <string.h>

static dunlin_net_param *add_constant(dunlin_builder *builder, uint32_t index, const char *layer,
                                      const char *suffix, const dunlin_shape *shape, float value)
{
    dunlin_net_param *param = dunlin__builder_param(builder, index, layer, suffix, shape);
    if (param != NULL) {
        param->origin = DUNLIN_PARAM_CONSTANT;
        param->bound = value;
    }
    return param;
}

/* The last dimension of a value that the current node reads. */
static int64_t width_of(dunlin_builder *builder, dunlin_value value)
{
    const dunlin_shape *shape = &dunlin__builder_net(builder)->values[value].shape;
    return shape->n_dims > 0 ? shape->dims[shape->n_dims - 1] : 0;
}

dunlin_value dunlin_builder_embedding(dunlin_builder *builder, const char *name, dunlin_value input,
                                      int64_t rows, int64_t width)
{
    const dunlin_shape shape = {2, {rows, width}};
    if (dunlin__builder_begin(builder, DUNLIN_OP_EMBEDDING, name == NULL ? "" : name, "", &input,
                              1) == NULL) {
        return -1;
    }
    dunlin_net_param *table = dunlin__builder_param(builder, 0, name, "weight", &shape);
    if (table != NULL) {
        table->origin = DUNLIN_PARAM_NORMAL;
        table->bound = 1.0F;
    }
    return dunlin__builder_end(builder);
}

/* The parameter of that name; NONE: there is none. */
static uint32_t find_param(const dunlin_net *net, const char *name)
{
    for (uint32_t i = 0; name != NULL && i < net->n_params; i++) {
        if (strcmp(net->params[i].name, name) == 0) {
            return i;
        }
    }
    return DUNLIN_NET_NONE;
}

dunlin_value dunlin_builder_dense_tied(dunlin_builder *builder, const char *name,
                                       dunlin_value input, const char *parameter)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_DENSE, name == NULL ? "" : name, "", &input, 1);
    if (node == NULL) {
        return -1;
    }
    const dunlin_net *net = dunlin__builder_net(builder);
    node->params[0] = find_param(net, parameter);
    node->n_params = 1;
    if (node->params[0] == DUNLIN_NET_NONE) {
        return dunlin__builder_refuse(builder, "a tied layer names a parameter that is not there");
    }
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_layer_norm(dunlin_builder *builder, const char *name,
                                       dunlin_value input)
{
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_LAYER_NORM,
                                                  name == NULL ? "" : name, "", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.layer_norm.eps = 1e-5F;
    const dunlin_shape shape = {1, {width_of(builder, input)}};
    (void)add_constant(builder, 0, name, "weight", &shape, 1.0F);
    (void)add_constant(builder, 1, name, "bias", &shape, 0.0F);
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_add_parameter(dunlin_builder *builder, const char *name,
                                          dunlin_value input, const dunlin_shape *shape)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_BINARY, name == NULL ? "" : name, "", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.binary.fn = DUNLIN_BINARY_ADD;
    (void)add_constant(builder, 0, name, "", shape, 0.0F);
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_attention(dunlin_builder *builder, const dunlin_value *qkv,
                                      int32_t n_qkv, int32_t heads, dunlin_value mask)
{
    dunlin_value inputs[4] = {-1, -1, -1, -1};
    const int32_t n = n_qkv == 1 ? 1 : 3;
    if (n_qkv != n || qkv == NULL) {
        return dunlin__builder_refuse(builder, "attention takes q, k and v, or all in one value");
    }
    memcpy(inputs, qkv, (size_t)n * sizeof inputs[0]);
    inputs[n] = mask;
    const bool has_mask = mask >= 0;
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_ATTENTION, NULL, "attention",
                                                  inputs, has_mask ? n + 1 : n);
    if (node == NULL) {
        return -1;
    }
    const int64_t head_width = heads > 0 ? width_of(builder, qkv[0]) / heads / (n == 1 ? 3 : 1) : 1;
    const double width = (double)head_width;
    node->u.attention =
        (dunlin_net_attention){.heads = heads,
                               .scale = width > 0.0 ? (float)(1.0 / sqrt(width)) : 1.0F,
                               .has_mask = has_mask};
    return dunlin__builder_end(builder);
}

static dunlin_value add_unary(dunlin_builder *builder, const char *kind_name, dunlin_value input,
                              dunlin_unary_fn fn)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_UNARY, NULL, kind_name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.unary.fn = fn;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_gelu(dunlin_builder *builder, dunlin_value input)
{
    return add_unary(builder, "gelu", input, DUNLIN_UNARY_GELU);
}

dunlin_value dunlin_builder_tanh(dunlin_builder *builder, dunlin_value input)
{
    return add_unary(builder, "tanh", input, DUNLIN_UNARY_TANH);
}

dunlin_value dunlin_builder_erf(dunlin_builder *builder, dunlin_value input)
{
    return add_unary(builder, "erf", input, DUNLIN_UNARY_ERF);
}

dunlin_value dunlin_builder_leaky_relu(dunlin_builder *builder, dunlin_value input, float alpha)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_UNARY, NULL, "leaky_relu", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.unary.fn = DUNLIN_UNARY_LEAKY_RELU;
    node->u.unary.a = alpha;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_sigmoid(dunlin_builder *builder, dunlin_value input)
{
    return add_unary(builder, "sigmoid", input, DUNLIN_UNARY_SIGMOID);
}

dunlin_value dunlin_builder_silu(dunlin_builder *builder, dunlin_value input)
{
    return add_unary(builder, "silu", input, DUNLIN_UNARY_SILU);
}

dunlin_value dunlin_builder_hard_swish(dunlin_builder *builder, dunlin_value input)
{
    return add_unary(builder, "hard_swish", input, DUNLIN_UNARY_HARD_SWISH);
}

dunlin_value dunlin_builder_softplus(dunlin_builder *builder, dunlin_value input)
{
    return add_unary(builder, "softplus", input, DUNLIN_UNARY_SOFTPLUS);
}

dunlin_value dunlin_builder_mish(dunlin_builder *builder, dunlin_value input)
{
    return add_unary(builder, "mish", input, DUNLIN_UNARY_MISH);
}

dunlin_value dunlin_builder_elu(dunlin_builder *builder, dunlin_value input, float alpha)
{
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_UNARY, NULL, "elu", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.unary.fn = DUNLIN_UNARY_ELU;
    node->u.unary.a = alpha;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_hard_sigmoid(dunlin_builder *builder, dunlin_value input)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_UNARY, NULL, "hard_sigmoid", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.unary.fn = DUNLIN_UNARY_HARD_SIGMOID;
    node->u.unary.a = (float)(1.0 / 6.0);
    node->u.unary.b = 0.5F;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_prelu(dunlin_builder *builder, const char *name, dunlin_value input,
                                  int64_t slopes)
{
    const dunlin_shape shape = {1, {slopes}};
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_PRELU, name == NULL ? "" : name, "", &input, 1);
    if (node == NULL) {
        return -1;
    }
    const dunlin_net_value *x = &dunlin__builder_net(builder)->values[input];
    node->u.prelu.axis = x->layout == DUNLIN_LAYOUT_IMAGE ? 0 : x->shape.n_dims - 1;
    (void)add_constant(builder, 0, name, "weight", &shape, 0.25F);
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_softmax(dunlin_builder *builder, dunlin_value input)
{
    return dunlin__builder_begin(builder, DUNLIN_OP_SOFTMAX, NULL, "softmax", &input, 1) == NULL
               ? -1
               : dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_matmul(dunlin_builder *builder, dunlin_value left, dunlin_value right)
{
    const dunlin_value inputs[2] = {left, right};
    return dunlin__builder_begin(builder, DUNLIN_OP_MATMUL, NULL, "matmul", inputs, 2) == NULL
               ? -1
               : dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_multiply(dunlin_builder *builder, dunlin_value left, dunlin_value right)
{
    const dunlin_value inputs[2] = {left, right};
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_BINARY, NULL, "multiply", inputs, 2);
    if (node == NULL) {
        return -1;
    }
    node->u.binary.fn = DUNLIN_BINARY_MUL;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_slice(dunlin_builder *builder, dunlin_value input, int32_t axis,
                                  int64_t start, int64_t end)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_SLICE, NULL, "slice", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.slice.axis = axis;
    node->u.slice.start = start;
    node->u.slice.end = end;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_reshape(dunlin_builder *builder, dunlin_value input,
                                    const dunlin_shape *shape)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_RESHAPE, NULL, "reshape", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.reshape.shape = *shape;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_transpose(dunlin_builder *builder, dunlin_value input,
                                      const int32_t *order)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_TRANSPOSE, NULL, "transpose", &input, 1);
    if (node == NULL) {
        return -1;
    }
    const int32_t n_dims = dunlin__builder_net(builder)->values[input].shape.n_dims;
    memcpy(node->u.transpose.perm, order, (size_t)n_dims * sizeof order[0]);
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_mean(dunlin_builder *builder, dunlin_value input, int32_t axis)
{
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_MEAN, NULL, "mean", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.mean.axes = axis >= 0 && axis < DUNLIN_MAX_DIMS ? 1U << axis : 0;
    return dunlin__builder_end(builder);
}
