/*
 * net_make.c - see net_make.h. Names count up: node3, value4, param7.
 */
#include "net_make.h"

#include "ops/table/infer.h"

#include <criterion/criterion.h>

#include <stdio.h>

static uint32_t add_value(dunlin_net *net)
{
    char name[32];
    snprintf(name, sizeof name, "value%zu", net->n_values);
    uint32_t value = dunlin__net_add_value(net, name);
    cr_assert(value != DUNLIN_NET_NONE);
    return value;
}

uint32_t make_input(dunlin_net *net, int64_t c, int64_t h, int64_t w)
{
    uint32_t value = add_value(net);
    net->input = value;
    net->values[value].shape = h > 0 ? (dunlin_shape){3, {c, h, w}} : (dunlin_shape){1, {c}};
    net->values[value].layout = h > 0 ? DUNLIN_LAYOUT_IMAGE : DUNLIN_LAYOUT_PLAIN;
    return value;
}

uint32_t make_signal(dunlin_net *net, int64_t c, int64_t length)
{
    uint32_t value = add_value(net);
    net->input = value;
    net->values[value].shape = (dunlin_shape){2, {c, length}};
    net->values[value].layout = DUNLIN_LAYOUT_IMAGE;
    return value;
}

uint32_t make_param(dunlin_net *net, const dunlin_shape *shape, dunlin_param_layout layout,
                    dunlin_parameter_role role)
{
    char name[32];
    snprintf(name, sizeof name, "param%zu", net->n_params);
    uint32_t index = dunlin__net_add_param(net, name);
    cr_assert(index != DUNLIN_NET_NONE);
    dunlin_net_param *param = &net->params[index];
    param->shape = *shape;
    param->layout = layout;
    param->role = role;
    return index;
}

dunlin_net_node *make_node(dunlin_net *net, dunlin_op_kind kind, const uint32_t *inputs,
                           uint32_t n_inputs)
{
    char name[32];
    snprintf(name, sizeof name, "node%zu", net->n_nodes);
    uint32_t output = add_value(net);
    uint32_t index = dunlin__net_add_node(net, kind, name);
    cr_assert(index != DUNLIN_NET_NONE);
    dunlin_net_node *node = &net->nodes[index];
    for (uint32_t i = 0; i < n_inputs; i++) {
        node->inputs[i] = inputs[i];
    }
    node->n_inputs = n_inputs;
    node->output = output;
    return node;
}

static uint32_t infer_last(dunlin_net *net)
{
    dunlin_error error = {0};
    uint32_t index = (uint32_t)net->n_nodes - 1;
    dunlin_status status = dunlin__net_infer_node(net, index, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    return net->nodes[index].output;
}

static int32_t or_one(int32_t value)
{
    return value == 0 ? 1 : value;
}

/* A convolution's or a transposed one's: the weight's first two dimensions are given. */
static uint32_t make_window(dunlin_net *net, dunlin_op_kind kind, uint32_t x,
                            const dunlin_net_conv *conv, bool has_bias, bool is_transposed)
{
    dunlin_net_node *node = make_node(net, kind, &x, 1);
    dunlin_net_conv *c = &node->u.conv;
    *c = *conv;
    c->kernel_h = or_one(c->kernel_h);
    c->kernel_w = or_one(c->kernel_w);
    c->stride_h = or_one(c->stride_h);
    c->stride_w = or_one(c->stride_w);
    c->dilation_h = or_one(c->dilation_h);
    c->dilation_w = or_one(c->dilation_w);
    c->groups = or_one(c->groups);
    const int64_t in_c = net->values[x].shape.dims[0];
    const int64_t outer = is_transposed ? in_c : c->out_channels;
    const int64_t inner = (is_transposed ? c->out_channels : in_c) / c->groups;
    dunlin_shape weight = {4, {outer, inner, c->kernel_h, c->kernel_w}};
    if (net->values[x].shape.n_dims == 2) {
        weight = (dunlin_shape){3, {outer, inner, c->kernel_w}};
    }
    dunlin_shape bias = {1, {c->out_channels}};
    node->params[0] = make_param(net, &weight, DUNLIN_PARAM_CONV, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 1;
    if (has_bias) {
        node->params[1] = make_param(net, &bias, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
        node->n_params = 2;
    }
    return infer_last(net);
}

uint32_t make_conv(dunlin_net *net, uint32_t x, int32_t out_channels, const dunlin_net_conv *conv,
                   bool has_bias)
{
    dunlin_net_conv c = *conv;
    c.out_channels = out_channels;
    return make_window(net, DUNLIN_OP_CONV, x, &c, has_bias, false);
}

uint32_t make_conv_transposed(dunlin_net *net, uint32_t x, int32_t out_channels,
                              const dunlin_net_conv *conv, bool has_bias)
{
    dunlin_net_conv c = *conv;
    c.out_channels = out_channels;
    return make_window(net, DUNLIN_OP_CONV_TRANSPOSED, x, &c, has_bias, true);
}

uint32_t make_resize(dunlin_net *net, uint32_t x, const dunlin_net_resize *how)
{
    make_node(net, DUNLIN_OP_RESIZE, &x, 1)->u.resize = *how;
    return infer_last(net);
}

uint32_t make_dense(dunlin_net *net, uint32_t x, int64_t n_out, bool has_bias)
{
    dunlin_net_node *node = make_node(net, DUNLIN_OP_DENSE, &x, 1);
    const dunlin_shape *in = &net->values[x].shape;
    dunlin_shape weight = {2, {n_out, in->dims[in->n_dims - 1]}};
    dunlin_shape bias = {1, {n_out}};
    node->params[0] = make_param(net, &weight, DUNLIN_PARAM_DENSE, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 2; /* an absent bias may also be a slot that names nothing */
    if (has_bias) {
        node->params[1] = make_param(net, &bias, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    }
    return infer_last(net);
}

uint32_t make_batch_norm(dunlin_net *net, uint32_t x)
{
    dunlin_net_node *node = make_node(net, DUNLIN_OP_BATCH_NORM, &x, 1);
    dunlin_shape shape = {1, {net->values[x].shape.dims[0]}};
    for (uint32_t i = 0; i < 4; i++) {
        node->params[i] =
            make_param(net, &shape, DUNLIN_PARAM_PLAIN,
                       i < 2 ? DUNLIN_PARAMETER_TRAINABLE : DUNLIN_PARAMETER_STATISTIC);
    }
    node->n_params = 4;
    node->u.batch_norm = (dunlin_net_batch_norm){.eps = 1e-5F, .momentum = 0.1F};
    return infer_last(net);
}

uint32_t make_group_norm(dunlin_net *net, uint32_t x, int32_t groups)
{
    dunlin_net_node *node = make_node(net, DUNLIN_OP_GROUP_NORM, &x, 1);
    dunlin_shape shape = {1, {net->values[x].shape.dims[0]}};
    for (uint32_t i = 0; i < 2; i++) {
        node->params[i] = make_param(net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    }
    node->n_params = 2;
    node->u.group_norm.groups = groups;
    node->u.group_norm.eps = 1e-5F;
    return infer_last(net);
}

uint32_t make_clip(dunlin_net *net, uint32_t x, float low, float high)
{
    dunlin_net_node *node = make_node(net, DUNLIN_OP_CLIP, &x, 1);
    node->u.clip.low = low;
    node->u.clip.high = high;
    return infer_last(net);
}

uint32_t make_function(dunlin_net *net, uint32_t x, dunlin_unary_fn fn)
{
    make_node(net, DUNLIN_OP_UNARY, &x, 1)->u.unary.fn = fn;
    return infer_last(net);
}

uint32_t make_pool(dunlin_net *net, uint32_t x, dunlin_op_kind kind, const dunlin_net_pool *pool)
{
    dunlin_net_node *node = make_node(net, kind, &x, 1);
    node->u.pool = *pool;
    return infer_last(net);
}

uint32_t make_global_pool(dunlin_net *net, uint32_t x)
{
    make_node(net, DUNLIN_OP_GLOBAL_AVERAGE_POOL, &x, 1);
    return infer_last(net);
}

uint32_t make_add(dunlin_net *net, uint32_t a, uint32_t b)
{
    make_node(net, DUNLIN_OP_ADD, (uint32_t[]){a, b}, 2);
    return infer_last(net);
}

uint32_t make_concat(dunlin_net *net, const uint32_t *inputs, uint32_t n_inputs)
{
    make_node(net, DUNLIN_OP_CONCAT, inputs, n_inputs);
    return infer_last(net);
}

uint32_t make_flatten(dunlin_net *net, uint32_t x)
{
    make_node(net, DUNLIN_OP_FLATTEN, &x, 1);
    return infer_last(net);
}

uint32_t make_dropout(dunlin_net *net, uint32_t x, float ratio)
{
    dunlin_net_node *node = make_node(net, DUNLIN_OP_DROPOUT, &x, 1);
    node->u.dropout.ratio = ratio;
    return infer_last(net);
}

void make_end(dunlin_net *net, uint32_t output)
{
    dunlin_error error = {0};
    net->output = output;
    dunlin_status status = dunlin__net_infer(net, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
}
