/*
 * uses.c - what a network uses each parameter for, by the first layer that reads it.
 */
#include "uses.h"

static bool is_vector(const dunlin_shape *shape)
{
    int32_t n_wide = 0;
    for (int32_t d = 0; d < shape->n_dims; d++) {
        n_wide += shape->dims[d] > 1 ? 1 : 0;
    }
    return n_wide <= 1;
}

/* The use of parameter `place` of a node. */
static dunlin_parameter_use use_at(const dunlin_net *net, const dunlin_net_node *node,
                                   uint32_t place)
{
    const dunlin_op_kind kind = node->kind;
    if (kind == DUNLIN_OP_CONV || kind == DUNLIN_OP_DENSE || kind == DUNLIN_OP_DENSE_TRANSPOSED ||
        kind == DUNLIN_OP_CONV_TRANSPOSED) {
        return place == 0 ? DUNLIN_USE_WEIGHT : DUNLIN_USE_BIAS;
    }
    if (kind == DUNLIN_OP_BATCH_NORM || kind == DUNLIN_OP_LAYER_NORM ||
        kind == DUNLIN_OP_GROUP_NORM) {
        return place == 0 ? DUNLIN_USE_NORM_SCALE : DUNLIN_USE_NORM_SHIFT;
    }
    if (kind == DUNLIN_OP_EMBEDDING) {
        return DUNLIN_USE_TABLE;
    }
    if (kind == DUNLIN_OP_ATTENTION || kind == DUNLIN_OP_EXPAND) {
        return DUNLIN_USE_POSITION;
    }
    const bool is_sum = kind == DUNLIN_OP_BINARY && (node->u.binary.fn == DUNLIN_BINARY_ADD ||
                                                     node->u.binary.fn == DUNLIN_BINARY_SUB);
    if (!is_sum) {
        return DUNLIN_USE_FACTOR;
    }
    return is_vector(&net->params[node->params[place]].shape) ? DUNLIN_USE_BIAS
                                                              : DUNLIN_USE_POSITION;
}

dunlin_parameter_use dunlin__net_use(const dunlin_net *net, uint32_t param)
{
    if (net->params[param].role == DUNLIN_PARAMETER_STATISTIC) {
        return DUNLIN_USE_STATISTIC;
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        for (uint32_t k = 0; k < node->n_params; k++) {
            if (node->params[k] == param) {
                return use_at(net, node, k);
            }
        }
    }
    return DUNLIN_USE_UNUSED;
}

static bool is_head(const dunlin_net_node *node)
{
    const dunlin_net_conv *conv = &node->u.conv;
    return node->kind == DUNLIN_OP_DENSE || node->kind == DUNLIN_OP_DENSE_TRANSPOSED ||
           (node->kind == DUNLIN_OP_CONV && conv->kernel_h == 1 && conv->kernel_w == 1 &&
            conv->groups == 1);
}

/* Layers between the head and the output that keep the number of channels. */
static bool may_follow_head(dunlin_op_kind kind)
{
    return kind == DUNLIN_OP_CLIP || kind == DUNLIN_OP_DROPOUT || kind == DUNLIN_OP_FLATTEN ||
           kind == DUNLIN_OP_AVERAGE_POOL || kind == DUNLIN_OP_GLOBAL_AVERAGE_POOL ||
           kind == DUNLIN_OP_MAX_POOL || kind == DUNLIN_OP_UNARY || kind == DUNLIN_OP_SOFTMAX ||
           kind == DUNLIN_OP_PRELU || kind == DUNLIN_OP_LP_POOL;
}

const dunlin_net_node *dunlin__net_head(const dunlin_net *net)
{
    uint32_t producer = net->values[net->output].producer;
    while (producer != DUNLIN_NET_NONE) {
        const dunlin_net_node *node = &net->nodes[producer];
        if (is_head(node)) {
            return node;
        }
        if (!may_follow_head(node->kind)) {
            return NULL;
        }
        producer = net->values[node->inputs[0]].producer;
    }
    return NULL;
}

const char *dunlin_parameter_use_name(dunlin_parameter_use use)
{
    static const char *const names[DUNLIN_N_USES] = {
        [DUNLIN_USE_UNUSED] = "unused",
        [DUNLIN_USE_WEIGHT] = "weight",
        [DUNLIN_USE_BIAS] = "bias",
        [DUNLIN_USE_NORM_SCALE] = "norm_scale",
        [DUNLIN_USE_NORM_SHIFT] = "norm_shift",
        [DUNLIN_USE_TABLE] = "table",
        [DUNLIN_USE_POSITION] = "position",
        [DUNLIN_USE_FACTOR] = "factor",
        [DUNLIN_USE_STATISTIC] = "statistic",
    };
    return (unsigned int)use < DUNLIN_N_USES ? names[use] : NULL;
}

/* Only this layer and tables of embeddings read the parameter. */
static bool is_of_classes(const dunlin_net *net, uint32_t layer, uint32_t param)
{
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        for (uint32_t k = 0; k < node->n_params; k++) {
            if (node->params[k] == param && i != layer && node->kind != DUNLIN_OP_EMBEDDING) {
                return false;
            }
        }
    }
    return true;
}

uint32_t dunlin__net_class_layer(const dunlin_net *net, uint32_t output)
{
    const dunlin_net_value *value = &net->values[output];
    const uint32_t producer = value->producer;
    int64_t n_rows = 0;
    int64_t classes = 0;
    if (producer == DUNLIN_NET_NONE || net->nodes[producer].kind != DUNLIN_OP_DENSE ||
        value->layout != DUNLIN_LAYOUT_PLAIN || value->shape.n_dims < 2 ||
        value->n_consumers != 1) {
        return DUNLIN_NET_NONE;
    }
    dunlin__value_rows(value, &n_rows, &classes);
    const bool is_large = classes >= DUNLIN_NET_VOCABULARY && classes <= 1 << 24 && n_rows > 1;
    return is_large && is_of_classes(net, producer, net->nodes[producer].params[0])
               ? producer
               : DUNLIN_NET_NONE;
}

uint32_t dunlin__net_last_class_layer(const dunlin_net *net)
{
    const uint32_t producer = net->values[net->output].producer;
    const bool is_softmax =
        producer != DUNLIN_NET_NONE && net->nodes[producer].kind == DUNLIN_OP_SOFTMAX;
    return dunlin__net_class_layer(net, is_softmax ? net->nodes[producer].inputs[0] : net->output);
}
