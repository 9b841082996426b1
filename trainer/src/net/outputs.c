/*
 * outputs.c - the outputs of a network, and a network without some of its nodes.
 */
#include "outputs.h"

uint32_t dunlin__net_n_outputs(const dunlin_net *net)
{
    return 1 + net->n_heads;
}

uint32_t dunlin__net_output_at(const dunlin_net *net, uint32_t index)
{
    return index == 0 ? net->output : net->heads[index - 1];
}

bool dunlin__net_is_output(const dunlin_net *net, uint32_t value)
{
    bool is_one = false;
    for (uint32_t i = 0; i < dunlin__net_n_outputs(net); i++) {
        is_one = is_one || dunlin__net_output_at(net, i) == value;
    }
    return is_one;
}

size_t dunlin__net_n_input_ports(const dunlin_net *net)
{
    return net->n_ports == 0 ? 0 : net->n_ports - dunlin__net_n_outputs(net);
}

void dunlin__net_compact(dunlin_net *net, const bool *is_dead, uint32_t *map)
{
    uint32_t n_values = 0;
    for (uint32_t i = 0; i < net->n_values; i++) {
        const uint32_t maker = net->values[i].producer;
        const bool stays = maker == DUNLIN_NET_NONE || !is_dead[maker];
        map[i] = stays ? n_values : DUNLIN_NET_NONE;
        if (stays) {
            net->values[n_values++] = net->values[i];
        }
    }
    uint32_t n_nodes = 0;
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        if (is_dead[i]) {
            continue;
        }
        dunlin_net_node *node = &net->nodes[n_nodes++];
        *node = net->nodes[i];
        node->output = map[node->output];
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            node->inputs[k] = map[node->inputs[k]];
        }
    }
    net->n_nodes = n_nodes;
    net->n_values = n_values;
    net->input = map[net->input];
    net->output = map[net->output];
    for (uint32_t i = 0; i < net->n_heads; i++) {
        net->heads[i] = map[net->heads[i]];
    }
    for (size_t i = 0; i < net->n_ports; i++) {
        const uint32_t value = net->ports[i].value;
        net->ports[i].value = value != DUNLIN_NET_NONE ? map[value] : value;
    }
}
