/*
 * builder.c - a network written down as calls.
 *
 * Invariant: the first error is kept and every call after it does nothing, so that the values it
 * hands out are checked in one place. Initial distributions are PyTorch's of the same layers.
 */
#include "builder.h"

#include "ops/table/infer.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_LAYER_NAME (DUNLIN_NET_MAX_NAME - 24) /* room for ".running_mean" and the like */

struct dunlin_builder {
    dunlin_alloc alloc;
    dunlin_net net;
    dunlin_error error; /* status OK: none so far */
};

dunlin_status dunlin_builder_create(const dunlin_alloc *hooks, dunlin_builder **out_builder)
{
    if (out_builder == NULL) {
        return DUNLIN_ARGUMENT;
    }
    *out_builder = NULL;
    dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    dunlin_builder *builder = dunlin__alloc_zeroed(&alloc, 1, sizeof *builder);
    if (builder == NULL) {
        return DUNLIN_MEMORY;
    }
    builder->alloc = alloc;
    dunlin__net_init(&builder->net, &alloc);
    *out_builder = builder;
    return DUNLIN_OK;
}

void dunlin_builder_destroy(dunlin_builder *builder)
{
    if (builder != NULL) {
        dunlin_alloc alloc = builder->alloc;
        dunlin__net_free(&builder->net);
        dunlin__free_array(&alloc, builder, 1, sizeof *builder);
    }
}

dunlin_net *dunlin__builder_net(dunlin_builder *builder)
{
    return builder == NULL || builder->error.status != DUNLIN_OK ? NULL : &builder->net;
}

dunlin_value dunlin__builder_fail(dunlin_builder *builder, const char *format, ...)
{
    if (builder != NULL && builder->error.status == DUNLIN_OK) {
        char text[sizeof builder->error.text];
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        (void)dunlin__fail(&builder->error, DUNLIN_UNSUPPORTED, "net", 0, "%s", text);
    }
    return -1;
}

static bool is_failed(const dunlin_builder *builder)
{
    return builder == NULL || builder->error.status != DUNLIN_OK;
}

static void fail_memory(dunlin_builder *builder)
{
    (void)dunlin__fail(&builder->error, DUNLIN_MEMORY, "net", 0,
                       "no memory for a network of %zu nodes", builder->net.n_nodes);
}

static bool is_name_good(dunlin_builder *builder, const char *name)
{
    if (name == NULL || name[0] == '\0') {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                           "layer %zu has parameters and needs a name", builder->net.n_nodes);
        return false;
    }
    if (strlen(name) > MAX_LAYER_NAME) {
        (void)dunlin__fail(&builder->error, DUNLIN_LIMIT, "net", 0,
                           "the name '%.40s...' has %zu characters; the limit is %d", name,
                           strlen(name), MAX_LAYER_NAME);
        return false;
    }
    return true;
}

dunlin_value dunlin_builder_input(dunlin_builder *builder, const char *name,
                                  const dunlin_shape *shape)
{
    if (is_failed(builder) || !is_name_good(builder, name)) {
        return -1;
    }
    if (builder->net.n_values > 0) {
        (void)dunlin__fail(&builder->error, DUNLIN_STATE, "net", 0,
                           "input '%.100s': the network has its input already", name);
        return -1;
    }
    if (shape == NULL || shape->n_dims < 1 || shape->n_dims > 3) {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                           "input '%.100s': the shape must be (C, H, W) or (features)", name);
        return -1;
    }
    uint32_t value = dunlin__net_add_value(&builder->net, name);
    if (value == DUNLIN_NET_NONE) {
        fail_memory(builder);
        return -1;
    }
    builder->net.values[value].shape = *shape;
    builder->net.values[value].layout =
        shape->n_dims == 3 ? DUNLIN_LAYOUT_IMAGE : DUNLIN_LAYOUT_PLAIN;
    builder->net.input = value;
    return (dunlin_value)value;
}

/* A node over earlier values, not yet inferred; NULL when the builder has failed. */
static dunlin_net_node *begin_node(dunlin_builder *builder, dunlin_op_kind kind, const char *name,
                                   const dunlin_value *inputs, int32_t n_inputs)
{
    if (is_failed(builder)) {
        return NULL;
    }
    dunlin_net *net = &builder->net;
    if (n_inputs < 1 || n_inputs > DUNLIN_NET_MAX_INPUTS || inputs == NULL) {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                           "layer '%.100s' has %" PRId32 " inputs, not 1 to %d", name, n_inputs,
                           DUNLIN_NET_MAX_INPUTS);
        return NULL;
    }
    for (int32_t i = 0; i < n_inputs; i++) {
        if (inputs[i] < 0 || (size_t)inputs[i] >= net->n_values) {
            (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                               "layer '%.100s': input %" PRId32
                               " is not a value of this network (%" PRId32 " of %zu)",
                               name, i, inputs[i], net->n_values);
            return NULL;
        }
    }
    uint32_t index = dunlin__net_add_node(net, kind, name);
    char output[DUNLIN_NET_MAX_NAME + 1];
    (void)snprintf(output, sizeof output, "%s/out", name);
    uint32_t value = index == DUNLIN_NET_NONE ? index : dunlin__net_add_value(net, output);
    if (value == DUNLIN_NET_NONE) {
        fail_memory(builder);
        return NULL;
    }
    dunlin_net_node *node = &net->nodes[index];
    for (int32_t i = 0; i < n_inputs; i++) {
        node->inputs[i] = (uint32_t)inputs[i];
    }
    node->n_inputs = (uint32_t)n_inputs;
    node->output = value;
    return node;
}

static dunlin_value end_node(dunlin_builder *builder)
{
    dunlin_net *net = &builder->net;
    if (is_failed(builder)) {
        return -1;
    }
    uint32_t index = (uint32_t)(net->n_nodes - 1);
    dunlin_error error = {0};
    dunlin_status status = dunlin__net_infer_node(net, index, &error);
    if (status != DUNLIN_OK) {
        error.status = status;
        builder->error = error;
        return -1;
    }
    return (dunlin_value)net->nodes[index].output;
}

/* For layers without parameters: the kind and the number of the node. */
static dunlin_net_node *begin_unnamed(dunlin_builder *builder, dunlin_op_kind kind,
                                      const char *kind_name, const dunlin_value *inputs,
                                      int32_t n_inputs)
{
    if (is_failed(builder)) {
        return NULL;
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%s_%zu", kind_name, builder->net.n_nodes);
    return begin_node(builder, kind, name, inputs, n_inputs);
}

/* The parameter `index` of the node under construction. */
static dunlin_net_param *add_param(dunlin_builder *builder, uint32_t index, const char *layer,
                                   const char *suffix, const dunlin_shape *shape)
{
    if (is_failed(builder)) {
        return NULL;
    }
    dunlin_net *net = &builder->net;
    char name[DUNLIN_NET_MAX_NAME + 1];
    (void)snprintf(name, sizeof name, "%s%s%s", layer, suffix[0] == '\0' ? "" : ".", suffix);
    uint32_t param_index = dunlin__net_add_param(net, name);
    if (param_index == DUNLIN_NET_NONE) {
        fail_memory(builder);
        return NULL;
    }
    dunlin_net_node *node = &net->nodes[net->n_nodes - 1];
    node->params[index] = param_index;
    if (node->n_params <= index) {
        node->n_params = index + 1;
    }
    net->params[param_index].shape = *shape;
    return &net->params[param_index];
}

static void add_uniform(dunlin_builder *builder, uint32_t index, const char *layer,
                        const dunlin_shape *shape, dunlin_param_layout layout, int64_t fan_in)
{
    dunlin_net_param *param =
        add_param(builder, index, layer, index == 0 ? "weight" : "bias", shape);
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

dunlin_value dunlin_builder_conv(dunlin_builder *builder, const char *name, dunlin_value input,
                                 int32_t out_channels, int32_t kernel,
                                 const dunlin_conv_options *options)
{
    if (is_failed(builder) || !is_name_good(builder, name)) {
        return -1;
    }
    dunlin_net_node *node = begin_node(builder, DUNLIN_OP_CONV, name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    dunlin_conv_options o = options != NULL ? *options : (dunlin_conv_options){0};
    int32_t stride = or_default(o.stride, 1);
    int32_t dilation = or_default(o.dilation, 1);
    int32_t groups = or_default(o.groups, 1);
    node->u.conv = (dunlin_net_conv){
        .out_channels = out_channels,
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
        .groups = groups,
    };
    const dunlin_net_value *value = &builder->net.values[input];
    int64_t channels = value->shape.dims[0];
    if (value->layout != DUNLIN_LAYOUT_IMAGE || groups < 1 || channels % groups != 0) {
        (void)dunlin__fail(&builder->error, DUNLIN_MODEL, "net", 0,
                           "conv '%.100s': its input must be an image whose %" PRId64
                           " channels divide into %" PRId32 " groups",
                           name, channels, groups);
        return -1;
    }
    dunlin_shape weight = {4, {out_channels, channels / groups, kernel, kernel}};
    dunlin_shape bias = {1, {out_channels}};
    int64_t fan_in = channels / groups * kernel * kernel;
    add_uniform(builder, 0, name, &weight, DUNLIN_PARAM_CONV, fan_in);
    if (!o.no_bias) {
        add_uniform(builder, 1, name, &bias, DUNLIN_PARAM_PLAIN, fan_in);
    }
    return end_node(builder);
}

dunlin_value dunlin_builder_dense(dunlin_builder *builder, const char *name, dunlin_value input,
                                  int32_t out_features)
{
    if (is_failed(builder) || !is_name_good(builder, name) ||
        begin_node(builder, DUNLIN_OP_DENSE, name, &input, 1) == NULL) {
        return -1;
    }
    const dunlin_shape *shape = &builder->net.values[input].shape;
    int64_t in_features = shape->n_dims > 0 ? shape->dims[shape->n_dims - 1] : 0;
    dunlin_shape weight = {2, {out_features, in_features}};
    dunlin_shape bias = {1, {out_features}};
    add_uniform(builder, 0, name, &weight, DUNLIN_PARAM_DENSE, in_features);
    add_uniform(builder, 1, name, &bias, DUNLIN_PARAM_PLAIN, in_features);
    return end_node(builder);
}

dunlin_value dunlin_builder_batch_norm(dunlin_builder *builder, const char *name,
                                       dunlin_value input)
{
    static const char *const suffixes[4] = {"weight", "bias", "running_mean", "running_var"};
    static const float starts[4] = {1.0f, 0.0f, 0.0f, 1.0f};
    if (is_failed(builder) || !is_name_good(builder, name)) {
        return -1;
    }
    dunlin_net_node *node = begin_node(builder, DUNLIN_OP_BATCH_NORM, name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.batch_norm = (dunlin_net_batch_norm){.eps = 1e-5f, .momentum = 0.1f};
    dunlin_shape shape = {1, {builder->net.values[input].shape.dims[0]}};
    for (uint32_t i = 0; i < 4; i++) {
        dunlin_net_param *param = add_param(builder, i, name, suffixes[i], &shape);
        if (param != NULL) {
            param->origin = DUNLIN_PARAM_CONSTANT;
            param->bound = starts[i];
            param->role = i < 2 ? DUNLIN_PARAMETER_TRAINABLE : DUNLIN_PARAMETER_STATISTIC;
        }
    }
    return end_node(builder);
}

dunlin_value dunlin_builder_group_norm(dunlin_builder *builder, const char *name,
                                       dunlin_value input, int32_t groups)
{
    if (is_failed(builder) || !is_name_good(builder, name)) {
        return -1;
    }
    dunlin_net_node *node = begin_node(builder, DUNLIN_OP_GROUP_NORM, name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.group_norm.groups = groups;
    node->u.group_norm.eps = 1e-5f;
    dunlin_shape shape = {1, {builder->net.values[input].shape.dims[0]}};
    for (uint32_t i = 0; i < 2; i++) {
        dunlin_net_param *param = add_param(builder, i, name, i == 0 ? "weight" : "bias", &shape);
        if (param != NULL) {
            param->origin = DUNLIN_PARAM_CONSTANT;
            param->bound = i == 0 ? 1.0f : 0.0f;
        }
    }
    return end_node(builder);
}

static dunlin_value add_clip(dunlin_builder *builder, const char *kind_name, dunlin_value input,
                             float high)
{
    dunlin_net_node *node = begin_unnamed(builder, DUNLIN_OP_CLIP, kind_name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.clip.low = 0.0f;
    node->u.clip.high = high;
    return end_node(builder);
}

dunlin_value dunlin_builder_relu(dunlin_builder *builder, dunlin_value input)
{
    return add_clip(builder, "relu", input, INFINITY);
}

dunlin_value dunlin_builder_relu6(dunlin_builder *builder, dunlin_value input)
{
    return add_clip(builder, "relu6", input, 6.0f);
}

dunlin_value dunlin__builder_pool(dunlin_builder *builder, dunlin_op_kind kind, dunlin_value input,
                                  const dunlin_net_pool *pool)
{
    const char *name = kind == DUNLIN_OP_MAX_POOL ? "max_pool" : "average_pool";
    dunlin_net_node *node = begin_unnamed(builder, kind, name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.pool = *pool;
    return end_node(builder);
}

static dunlin_value add_square_pool(dunlin_builder *builder, dunlin_op_kind kind,
                                    dunlin_value input, int32_t kernel, int32_t stride,
                                    int32_t padding)
{
    int32_t step = or_default(stride, kernel);
    return dunlin__builder_pool(builder, kind, input,
                                &(dunlin_net_pool){
                                    .kernel_h = kernel,
                                    .kernel_w = kernel,
                                    .stride_h = step,
                                    .stride_w = step,
                                    .pad_top = padding,
                                    .pad_left = padding,
                                    .pad_bottom = padding,
                                    .pad_right = padding,
                                    .counts_padding = kind == DUNLIN_OP_AVERAGE_POOL,
                                });
}

dunlin_value dunlin_builder_max_pool(dunlin_builder *builder, dunlin_value input, int32_t kernel,
                                     int32_t stride, int32_t padding)
{
    return add_square_pool(builder, DUNLIN_OP_MAX_POOL, input, kernel, stride, padding);
}

dunlin_value dunlin_builder_average_pool(dunlin_builder *builder, dunlin_value input,
                                         int32_t kernel, int32_t stride, int32_t padding)
{
    return add_square_pool(builder, DUNLIN_OP_AVERAGE_POOL, input, kernel, stride, padding);
}

/* A layer without parameters and attributes. */
static dunlin_value add_plain(dunlin_builder *builder, dunlin_op_kind kind, const char *kind_name,
                              const dunlin_value *inputs, int32_t n_inputs)
{
    return begin_unnamed(builder, kind, kind_name, inputs, n_inputs) == NULL ? -1
                                                                             : end_node(builder);
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

dunlin_value dunlin_builder_dropout(dunlin_builder *builder, dunlin_value input, float ratio)
{
    if (is_failed(builder)) {
        return -1;
    }
    if (!(ratio >= 0.0f && ratio < 1.0f)) {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                           "dropout %zu: the ratio %g is not in [0, 1)", builder->net.n_nodes,
                           (double)ratio);
        return -1;
    }
    dunlin_net_node *node = begin_unnamed(builder, DUNLIN_OP_DROPOUT, "dropout", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.dropout.ratio = ratio;
    return end_node(builder);
}

dunlin_net_node *dunlin__builder_begin(dunlin_builder *builder, dunlin_op_kind kind,
                                       const char *name, const char *kind_name,
                                       const dunlin_value *inputs, int32_t n_inputs)
{
    if (name == NULL) {
        return begin_unnamed(builder, kind, kind_name, inputs, n_inputs);
    }
    if (is_failed(builder) || !is_name_good(builder, name)) {
        return NULL;
    }
    return begin_node(builder, kind, name, inputs, n_inputs);
}

dunlin_net_param *dunlin__builder_param(dunlin_builder *builder, uint32_t index, const char *layer,
                                        const char *suffix, const dunlin_shape *shape)
{
    return add_param(builder, index, layer, suffix, shape);
}

dunlin_value dunlin__builder_end(dunlin_builder *builder)
{
    return end_node(builder);
}

dunlin_value dunlin__builder_refuse(dunlin_builder *builder, const char *text)
{
    if (!is_failed(builder)) {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0, "layer %zu: %s",
                           builder->net.n_nodes, text);
    }
    return -1;
}

static dunlin_status make_model(dunlin_builder *builder, dunlin_value output,
                                dunlin_model **out_model, dunlin_error *error)
{
    dunlin_net *net = &builder->net;
    if (output < 0 || (size_t)output >= net->n_values || net->n_nodes == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "net", 0,
                            "the output (%" PRId32 ") is not a value of a layer of this network",
                            output);
    }
    net->output = (uint32_t)output;
    DUNLIN_TRY(dunlin__net_infer(net, error));
    DUNLIN_TRY(dunlin__net_check_logits(net, error));
    for (size_t i = 0; i < net->n_values; i++) {
        if (net->values[i].n_consumers == 0) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "value '%.150s' leads to nothing: not to the output",
                                net->values[i].name);
        }
    }
    return dunlin__model_from_net(net, out_model, error);
}

dunlin_status dunlin_builder_finish(dunlin_builder *builder, dunlin_value output,
                                    dunlin_model **out_model, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (out_model != NULL) {
        *out_model = NULL;
    }
    if (builder == NULL || out_model == NULL) {
        dunlin_builder_destroy(builder);
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "net", 0,
                            "a builder and a place for the model are needed");
    }
    dunlin_status status = builder->error.status;
    if (status != DUNLIN_OK) {
        if (out_error != NULL) {
            *out_error = builder->error;
        }
    } else {
        status = make_model(builder, output, out_model, out_error);
    }
    dunlin_builder_destroy(builder);
    return status;
}
