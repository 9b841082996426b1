/*
 * parts.c - the inputs of a network that has several, and the nodes that cut them out.
 */
#include "parts.h"

#include "outputs.h"

#include <stdio.h>

/* The input of the file, or of the builder's calls, that the value is; NULL if it is none. The
 * outputs' ports come last. */
static const dunlin_net_port *port_of(const dunlin_net *net, uint32_t value)
{
    for (size_t i = 0; i < dunlin__net_n_input_ports(net); i++) {
        if (net->ports[i].value == value) {
            return &net->ports[i];
        }
    }
    return NULL;
}

/* An example is several inputs. */
static bool is_joined(const dunlin_net *net)
{
    return net->n_ports > 0 && port_of(net, net->input) == NULL;
}

bool dunlin__net_cuts_input(const dunlin_net *net, const dunlin_net_node *node)
{
    if (!is_joined(net)) {
        return false;
    }
    return (node->kind == DUNLIN_OP_SLICE && node->inputs[0] == net->input) ||
           ((node->kind == DUNLIN_OP_RESHAPE || node->kind == DUNLIN_OP_REARRANGE) &&
            port_of(net, node->output) != NULL);
}

uint32_t dunlin__net_n_parts(const dunlin_net *net)
{
    uint32_t n = 0;
    for (size_t i = 0; is_joined(net) && i < dunlin__net_n_input_ports(net); i++) {
        n += net->ports[i].value != DUNLIN_NET_NONE ? 1 : 0;
    }
    return n > 0 ? n : 1;
}

dunlin_net_part dunlin__net_part_at(const dunlin_net *net, uint32_t index)
{
    uint32_t n_before = 0;
    for (size_t i = 0; is_joined(net) && i < dunlin__net_n_input_ports(net); i++) {
        const dunlin_net_port *port = &net->ports[i];
        if (port->value == DUNLIN_NET_NONE || n_before++ != index) {
            continue;
        }
        const dunlin_net_node *shaped = &net->nodes[net->values[port->value].producer];
        const dunlin_net_node *cut = &net->nodes[net->values[shaped->inputs[0]].producer];
        return (dunlin_net_part){.value = port->value,
                                 .name = port->name,
                                 .first = cut->u.slice.start,
                                 .n = cut->u.slice.end - cut->u.slice.start};
    }
    const dunlin_net_value *whole = &net->values[net->input];
    return (dunlin_net_part){
        .value = net->input, .name = whole->name, .n = dunlin__value_elements(whole)};
}

/* A node over one value; its output is `output`, or (NONE) a new value of the node's name. */
static dunlin_net_node *add_node(dunlin_net *net, dunlin_op_kind kind, const char *name,
                                 uint32_t input, uint32_t output)
{
    const uint32_t index = dunlin__net_add_node(net, kind, name);
    if (index == DUNLIN_NET_NONE) {
        return NULL;
    }
    const uint32_t value = output == DUNLIN_NET_NONE ? dunlin__net_add_value(net, name) : output;
    if (value == DUNLIN_NET_NONE) {
        return NULL;
    }
    dunlin_net_node *node = &net->nodes[index];
    node->inputs[0] = input;
    node->n_inputs = 1;
    node->output = value;
    return node;
}

bool dunlin__net_add_part(dunlin_net *net, uint32_t value, int64_t first, int64_t n,
                          const dunlin_shape *shape, dunlin_net_layout layout)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    (void)snprintf(name, sizeof name, "%.240s/part", net->values[value].name);
    const bool is_image = layout == DUNLIN_LAYOUT_IMAGE;
    dunlin_net_node *cut = add_node(net, DUNLIN_OP_SLICE, name, net->input, DUNLIN_NET_NONE);
    if (cut == NULL) {
        return false;
    }
    cut->u.slice.start = first;
    cut->u.slice.end = first + n;
    dunlin_net_node *shaped = add_node(net, is_image ? DUNLIN_OP_REARRANGE : DUNLIN_OP_RESHAPE,
                                       net->values[value].name, cut->output, value);
    if (shaped == NULL) {
        return false;
    }
    if (is_image) {
        shaped->u.rearrange.to = (dunlin_rearrangement){*shape, {0, 1, 2}, *shape};
        shaped->u.rearrange.is_image = true;
    } else {
        shaped->u.reshape.shape = *shape;
    }
    return true;
}
