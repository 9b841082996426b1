/*
 * zoo_common.c - names and initial distributions that the ready-made networks share. He
 * initialisation: He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015.
 */
#include "zoo.h"

#include <math.h>
#include <stdio.h>

const char *dunlin__zoo_name(char *out, const char *prefix, const char *suffix)
{
    (void)snprintf(out, DUNLIN_NET_MAX_NAME + 1, "%s.%s", prefix, suffix);
    return out;
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
