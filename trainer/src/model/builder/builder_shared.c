/*
 * builder_shared.c - layers that use the parameters of another one, and what compares two values.
 */
#include "builder_nodes.h"

#include <dunlin/several.h>
#include <mem/support.h>

#include <string.h>

/* The layer with parameters that made the value, perhaps with activations behind it. */
static const dunlin_net_node *layer_of(const dunlin_net *net, dunlin_value value)
{
    uint32_t at = (uint32_t)value;
    while (net->values[at].producer != DUNLIN_NET_NONE) {
        const dunlin_net_node *node = &net->nodes[net->values[at].producer];
        if (node->n_params > 0 || node->n_inputs != 1) {
            return node->n_params > 0 && node->n_inputs == 1 ? node : NULL;
        }
        at = node->inputs[0];
    }
    return NULL;
}

dunlin_value dunlin_builder_share(dunlin_builder *builder, dunlin_value layer, dunlin_value input)
{
    if (dunlin__builder_is_failed(builder)) {
        return -1;
    }
    dunlin_net *net = &builder->net;
    const bool is_value = layer >= 0 && (size_t)layer < net->n_values;
    const dunlin_net_node *first = is_value ? layer_of(net, layer) : NULL;
    if (first == NULL) {
        return dunlin__builder_refuse(builder,
                                      "the value whose layer is to be shared is not made by a "
                                      "layer with parameters");
    }
    const dunlin_net_node like = *first; /* adding a node moves it */
    dunlin_net_node *node = dunlin__builder_begin_unnamed(builder, like.kind, "shared", &input, 1);
    if (node == NULL) {
        return -1;
    }
    memcpy(node->params, like.params, sizeof node->params);
    node->n_params = like.n_params;
    node->u = like.u;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_abs_difference(dunlin_builder *builder, dunlin_value left,
                                           dunlin_value right)
{
    const dunlin_value sides[2] = {left, right};
    dunlin_net_node *node =
        dunlin__builder_begin_unnamed(builder, DUNLIN_OP_BINARY, "difference", sides, 2);
    if (node == NULL) {
        return -1;
    }
    node->u.binary.fn = DUNLIN_BINARY_SUB;
    const dunlin_value difference = dunlin__builder_end(builder);
    if (difference < 0) {
        return -1;
    }
    node = dunlin__builder_begin_unnamed(builder, DUNLIN_OP_UNARY, "abs", &difference, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.unary.fn = DUNLIN_UNARY_ABS;
    return dunlin__builder_end(builder);
}
