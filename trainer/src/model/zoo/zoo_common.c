/*
 * zoo_common.c - names and initial distributions that the ready-made networks share. He
 * initialisation: He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015.
 */
#include "zoo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *dunlin__zoo_name(char *out, const char *prefix, const char *suffix)
{
    (void)snprintf(out, DUNLIN_NET_MAX_NAME + 1, "%s.%s", prefix, suffix);
    return out;
}

dunlin_value dunlin__zoo_adaptive_pool(dunlin_builder *builder, dunlin_value x, int32_t pooled,
                                       const char *network, const char *sizes)
{
    dunlin_net *net = dunlin__builder_net(builder);
    if (net == NULL) {
        return -1;
    }
    int64_t size = net->values[x].shape.dims[1];
    if (size != 1 && size % pooled != 0) {
        return dunlin__builder_fail(builder,
                                    "%s: its features of %lld pixels a side do not divide into "
                                    "%d; the image must have %s pixels a side",
                                    network, (long long)size, (int)pooled, sizes);
    }
    int32_t kernel = size == 1 ? pooled : (int32_t)(size / pooled);
    int32_t stride = size == 1 ? 1 : kernel;
    int32_t padding = size == 1 ? pooled - 1 : 0;
    return dunlin__builder_pool(builder, DUNLIN_OP_AVERAGE_POOL, x,
                                &(dunlin_net_pool){
                                    .kernel_h = kernel,
                                    .kernel_w = kernel,
                                    .stride_h = stride,
                                    .stride_w = stride,
                                    .pad_top = padding,
                                    .pad_left = padding,
                                    .pad_bottom = padding,
                                    .pad_right = padding,
                                });
}

dunlin_value dunlin__zoo_conv_bn_relu(dunlin_builder *builder, const char *prefix, dunlin_value x,
                                      const dunlin_net_conv *conv)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    x = dunlin__builder_conv(builder, dunlin__zoo_name(name, prefix, "conv"), x, conv, false);
    x = dunlin_builder_batch_norm(builder, dunlin__zoo_name(name, prefix, "bn"), x);
    return dunlin_builder_relu(builder, x);
}

void dunlin__zoo_set_norms(dunlin_builder *builder, float eps, float momentum)
{
    dunlin_net *net = dunlin__builder_net(builder);
    for (size_t i = 0; net != NULL && i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_BATCH_NORM) {
            net->nodes[i].u.batch_norm = (dunlin_net_batch_norm){.eps = eps, .momentum = momentum};
        }
    }
}

void dunlin__zoo_set_layer_norms(dunlin_builder *builder, float eps)
{
    dunlin_net *net = dunlin__builder_net(builder);
    for (size_t i = 0; net != NULL && i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_LAYER_NORM) {
            net->nodes[i].u.layer_norm.eps = eps;
        }
    }
}

void dunlin__zoo_swap_params(dunlin_net *net, uint32_t a, uint32_t b)
{
    const dunlin_net_param param = net->params[a];
    net->params[a] = net->params[b];
    net->params[b] = param;
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < net->nodes[i].n_params; k++) {
            uint32_t *index = &net->nodes[i].params[k];
            *index = *index == a ? b : *index == b ? a : *index;
        }
    }
}

void dunlin__zoo_put_first(dunlin_builder *builder, const char *name)
{
    dunlin_net *net = dunlin__builder_net(builder);
    uint32_t at = 0;
    while (net != NULL && at < net->n_params && strcmp(net->params[at].name, name) != 0) {
        at++;
    }
    for (; net != NULL && at < net->n_params && at > 0; at--) {
        dunlin__zoo_swap_params(net, at, at - 1);
    }
}

void dunlin__zoo_init_normal(dunlin_builder *builder, float deviation)
{
    dunlin_net *net = dunlin__builder_net(builder);
    for (size_t i = 0; net != NULL && i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_CONV || net->nodes[i].kind == DUNLIN_OP_DENSE) {
            dunlin_net_param *weight = &net->params[net->nodes[i].params[0]];
            weight->origin = DUNLIN_PARAM_NORMAL;
            weight->bound = deviation;
        }
    }
}

static void set_bias_zero(dunlin_net *net, const dunlin_net_node *node)
{
    if (node->n_params > 1 && node->params[1] != DUNLIN_NET_NONE) {
        net->params[node->params[1]].origin = DUNLIN_PARAM_CONSTANT;
        net->params[node->params[1]].bound = 0.0f;
    }
}

void dunlin__zoo_init_he(dunlin_builder *builder, dunlin_zoo_he kind)
{
    dunlin_net *net = dunlin__builder_net(builder);
    for (size_t i = 0; net != NULL && i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        if (node->kind != DUNLIN_OP_CONV) {
            continue;
        }
        const dunlin_net_conv *conv = &node->u.conv;
        dunlin_net_param *weight = &net->params[node->params[0]];
        double fan_out = (double)conv->out_channels * conv->kernel_h * conv->kernel_w;
        double fan_in = (double)weight->n_elements / conv->out_channels;
        double variance = 2.0 / (kind == DUNLIN_ZOO_HE_NORMAL_OUT ? fan_out : fan_in);
        bool is_uniform = kind == DUNLIN_ZOO_HE_UNIFORM_IN;
        weight->origin = is_uniform ? DUNLIN_PARAM_UNIFORM : DUNLIN_PARAM_NORMAL;
        weight->bound = (float)sqrt(is_uniform ? 3.0 * variance : variance);
        set_bias_zero(net, node);
    }
}

static void set_normal(dunlin_net *net, const dunlin_net_node *node, float deviation)
{
    dunlin_net_param *weight = &net->params[node->params[0]];
    weight->origin = DUNLIN_PARAM_NORMAL;
    weight->bound = deviation;
    set_bias_zero(net, node);
}

void dunlin__zoo_init_dense(dunlin_builder *builder, float deviation)
{
    dunlin_net *net = dunlin__builder_net(builder);
    for (size_t i = 0; net != NULL && i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_DENSE) {
            if (deviation > 0.0f) {
                set_normal(net, &net->nodes[i], deviation);
            } else {
                set_bias_zero(net, &net->nodes[i]);
            }
        }
    }
}

void dunlin__zoo_init_head(dunlin_builder *builder, float deviation)
{
    dunlin_net *net = dunlin__builder_net(builder);
    for (size_t i = net != NULL ? net->n_nodes : 0; i > 0; i--) {
        const dunlin_net_node *node = &net->nodes[i - 1];
        if (node->kind == DUNLIN_OP_DENSE || node->kind == DUNLIN_OP_CONV) {
            set_normal(net, node, deviation);
            return;
        }
    }
}
