/*
 * builder_layers.c - the layers that an application adds to a network, call by call. Initial
 * distributions are PyTorch's of the same layers.
 */
#include "builder_nodes.h"

#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

static void add_uniform(dunlin_builder *builder, uint32_t index, const char *layer,
                        const dunlin_shape *shape, dunlin_param_layout layout, int64_t fan_in)
{
    dunlin_net_param *param =
        dunlin__builder_param(builder, index, layer, index == 0 ? "weight" : "bias", shape);
    if (param != NULL) {
        param->layout = layout;
        param->origin = DUNLIN_PARAM_UNIFORM;
        param->bound = fan_in > 0 ? (float)(1.0 / sqrt((double)fan_in)) : 0.0f;
    }
}

static int32_t or_default(int32_t value, int32_t fallback)
{
    return value == 0 ? fallback : value;
}

dunlin_value dunlin__builder_conv(dunlin_builder *builder, const char *name, dunlin_value input,
                                  const dunlin_net_conv *conv, bool has_bias)
{
    if (dunlin__builder_is_failed(builder) || !dunlin__builder_is_name_good(builder, name)) {
        return -1;
    }
    dunlin_net_node *node = dunlin__builder_begin_node(builder, DUNLIN_OP_CONV, name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.conv = *conv;
    const dunlin_net_value *value = &builder->net.values[input];
    const bool is_signal = value->shape.n_dims == 2;
    if (is_signal) {
        node->u.conv.kernel_h = node->u.conv.stride_h = node->u.conv.dilation_h = 1;
        node->u.conv.pad_top = node->u.conv.pad_bottom = 0;
    }
    int64_t channels = value->shape.dims[0];
    if (value->layout != DUNLIN_LAYOUT_IMAGE || conv->groups < 1 || channels % conv->groups != 0) {
        (void)dunlin__fail(&builder->error, DUNLIN_MODEL, "net", 0,
                           "conv '%.100s': its input must be an image or a signal whose %" PRId64
                           " channels divide into %" PRId32 " groups",
                           name, channels, conv->groups);
        return -1;
    }
    const int32_t kernel_h = node->u.conv.kernel_h;
    dunlin_shape weight = {4,
                           {conv->out_channels, channels / conv->groups, kernel_h, conv->kernel_w}};
    dunlin_shape bias = {1, {conv->out_channels}};
    if (is_signal) {
        weight = (dunlin_shape){3, {conv->out_channels, channels / conv->groups, conv->kernel_w}};
    }
    int64_t fan_in = channels / conv->groups * conv->kernel_w * kernel_h;
    add_uniform(builder, 0, name, &weight, DUNLIN_PARAM_CONV, fan_in);
    if (has_bias) {
        add_uniform(builder, 1, name, &bias, DUNLIN_PARAM_PLAIN, fan_in);
    }
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_conv(dunlin_builder *builder, const char *name, dunlin_value input,
                                 int32_t out_channels, int32_t kernel,
                                 const dunlin_conv_options *options)
{
    dunlin_conv_options o = DUNLIN_CONV_OPTIONS_INIT;
    if (dunlin__builder_is_failed(builder) ||
        (options != NULL &&
         DUNLIN_STRUCT_TAKE(dunlin_conv_options, options, &o, &builder->error) != DUNLIN_OK)) {
        return -1;
    }
    const int32_t stride = or_default(o.stride, 1);
    const int32_t dilation = or_default(o.dilation, 1);
    return dunlin__builder_conv(builder, name, input,
                                &(dunlin_net_conv){.out_channels = out_channels,
                                                   .kernel_h = kernel,
                                                   .kernel_w = kernel,
                                                   .stride_h = stride,
                                                   .stride_w = stride,
                                                   .pad_top = o.padding,
                                                   .pad_left = o.padding,
                                                   .pad_bottom = o.padding,
                                                   .pad_right = o.padding,
                                                   .dilation_h = dilation,
                                                   .dilation_w = dilation,
                                                   .groups = or_default(o.groups, 1)},
                                !o.no_bias);
}

dunlin_value dunlin_builder_dense(dunlin_builder *builder, const char *name, dunlin_value input,
                                  int32_t out_features)
{
    if (dunlin__builder_is_failed(builder) || !dunlin__builder_is_name_good(builder, name) ||
        dunlin__builder_begin_node(builder, DUNLIN_OP_DENSE, name, &input, 1) == NULL) {
        return -1;
    }
    const dunlin_shape *shape = &builder->net.values[input].shape;
    int64_t in_features = shape->n_dims > 0 ? shape->dims[shape->n_dims - 1] : 0;
    dunlin_shape weight = {2, {out_features, in_features}};
    dunlin_shape bias = {1, {out_features}};
    add_uniform(builder, 0, name, &weight, DUNLIN_PARAM_DENSE, in_features);
    add_uniform(builder, 1, name, &bias, DUNLIN_PARAM_PLAIN, in_features);
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_batch_norm(dunlin_builder *builder, const char *name,
                                       dunlin_value input)
{
    static const char *const suffixes[4] = {"weight", "bias", "running_mean", "running_var"};
    static const float starts[4] = {1.0f, 0.0f, 0.0f, 1.0f};
    if (dunlin__builder_is_failed(builder) || !dunlin__builder_is_name_good(builder, name)) {
        return -1;
    }
    dunlin_net_node *node =
        dunlin__builder_begin_node(builder, DUNLIN_OP_BATCH_NORM, name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.batch_norm = (dunlin_net_batch_norm){.eps = 1e-5f, .momentum = 0.1f};
    dunlin_shape shape = {1, {builder->net.values[input].shape.dims[0]}};
    for (uint32_t i = 0; i < 4; i++) {
        dunlin_net_param *param = dunlin__builder_param(builder, i, name, suffixes[i], &shape);
        if (param != NULL) {
            param->origin = DUNLIN_PARAM_CONSTANT;
            param->bound = starts[i];
            param->role = i < 2 ? DUNLIN_PARAMETER_TRAINABLE : DUNLIN_PARAMETER_STATISTIC;
        }
    }
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_group_norm(dunlin_builder *builder, const char *name,
                                       dunlin_value input, int32_t groups)
{
    if (dunlin__builder_is_failed(builder) || !dunlin__builder_is_name_good(builder, name)) {
        return -1;
    }
    dunlin_net_node *node =
        dunlin__builder_begin_node(builder, DUNLIN_OP_GROUP_NORM, name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.group_norm.groups = groups;
    node->u.group_norm.eps = 1e-5f;
    dunlin_shape shape = {1, {builder->net.values[input].shape.dims[0]}};
    for (uint32_t i = 0; i < 2; i++) {
        dunlin_net_param *param =
            dunlin__builder_param(builder, i, name, i == 0 ? "weight" : "bias", &shape);
        if (param != NULL) {
            param->origin = DUNLIN_PARAM_CONSTANT;
            param->bound = i == 0 ? 1.0f : 0.0f;
        }
    }
    return dunlin__builder_end(builder);
}

static dunlin_value add_clip(dunlin_builder *builder, const char *kind_name, dunlin_value input,
                             float high)
{
    dunlin_net_node *node =
        dunlin__builder_begin_unnamed(builder, DUNLIN_OP_CLIP, kind_name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.clip.low = 0.0f;
    node->u.clip.high = high;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_relu(dunlin_builder *builder, dunlin_value input)
{
    return add_clip(builder, "relu", input, INFINITY);
}

dunlin_value dunlin_builder_relu6(dunlin_builder *builder, dunlin_value input)
{
    return add_clip(builder, "relu6", input, 6.0f);
}

/* A layer without parameters and attributes. */
static dunlin_value add_plain(dunlin_builder *builder, dunlin_op_kind kind, const char *kind_name,
                              const dunlin_value *inputs, int32_t n_inputs)
{
    return dunlin__builder_begin_unnamed(builder, kind, kind_name, inputs, n_inputs) == NULL
               ? -1
               : dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_global_average_pool(dunlin_builder *builder, dunlin_value input)
{
    return add_plain(builder, DUNLIN_OP_GLOBAL_AVERAGE_POOL, "global_average_pool", &input, 1);
}

dunlin_value dunlin_builder_add(dunlin_builder *builder, dunlin_value left, dunlin_value right)
{
    dunlin_value inputs[2] = {left, right};
    return add_plain(builder, DUNLIN_OP_ADD, "add", inputs, 2);
}

dunlin_value dunlin_builder_concat(dunlin_builder *builder, const dunlin_value *inputs,
                                   int32_t n_inputs)
{
    return add_plain(builder, DUNLIN_OP_CONCAT, "concat", inputs, n_inputs);
}

dunlin_value dunlin_builder_flatten(dunlin_builder *builder, dunlin_value input)
{
    return add_plain(builder, DUNLIN_OP_FLATTEN, "flatten", &input, 1);
}

static dunlin_value add_dropout(dunlin_builder *builder, dunlin_value input, float ratio,
                                bool is_whole)
{
    const char *kind = is_whole ? "stochastic_depth" : "dropout";
    if (dunlin__builder_is_failed(builder)) {
        return -1;
    }
    if (!(ratio >= 0.0f && ratio < 1.0f)) {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                           "%s %zu: the ratio %g is not in [0, 1)", kind, builder->net.n_nodes,
                           (double)ratio);
        return -1;
    }
    dunlin_net_node *node =
        dunlin__builder_begin_unnamed(builder, DUNLIN_OP_DROPOUT, kind, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.dropout.ratio = ratio;
    node->u.dropout.is_whole = is_whole;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_dropout(dunlin_builder *builder, dunlin_value input, float ratio)
{
    return add_dropout(builder, input, ratio, false);
}

dunlin_value dunlin_builder_stochastic_depth(dunlin_builder *builder, dunlin_value input,
                                             float ratio)
{
    return add_dropout(builder, input, ratio, true);
}
