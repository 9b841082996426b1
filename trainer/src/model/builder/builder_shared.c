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

static dunlin_value add_binary(dunlin_builder *builder, dunlin_binary_fn fn, const char *kind_name,
                               dunlin_value left, dunlin_value right)
{
    const dunlin_value sides[2] = {left, right};
    dunlin_net_node *node =
        dunlin__builder_begin_unnamed(builder, DUNLIN_OP_BINARY, kind_name, sides, 2);
    if (node == NULL) {
        return -1;
    }
    node->u.binary.fn = fn;
    return dunlin__builder_end(builder);
}

static dunlin_value add_unary(dunlin_builder *builder, dunlin_unary_fn fn, const char *kind_name,
                              dunlin_value input, float a, float b)
{
    dunlin_net_node *node =
        dunlin__builder_begin_unnamed(builder, DUNLIN_OP_UNARY, kind_name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.unary.fn = fn;
    node->u.unary.a = a;
    node->u.unary.b = b;
    return dunlin__builder_end(builder);
}

/* The sum of a row of numbers: one. */
static dunlin_value add_sum(dunlin_builder *builder, dunlin_value row)
{
    return dunlin_builder_reduce(builder, row, DUNLIN_REDUCTION_SUM, 0);
}

dunlin_value dunlin_builder_subtract(dunlin_builder *builder, dunlin_value left, dunlin_value right)
{
    return add_binary(builder, DUNLIN_BINARY_SUB, "difference", left, right);
}

dunlin_value dunlin_builder_abs_difference(dunlin_builder *builder, dunlin_value left,
                                           dunlin_value right)
{
    const dunlin_value difference = dunlin_builder_subtract(builder, left, right);
    return add_unary(builder, DUNLIN_UNARY_ABS, "abs", difference, 0.0F, 0.0F);
}

#define LEAST_SQUARE 1e-12F /* under a root, whose slope at 0 is infinite */

dunlin_value dunlin_builder_distance(dunlin_builder *builder, dunlin_value left, dunlin_value right)
{
    dunlin_value x = dunlin_builder_flatten(builder, dunlin_builder_subtract(builder, left, right));
    x = add_sum(builder, dunlin_builder_multiply(builder, x, x));
    x = add_unary(builder, DUNLIN_UNARY_AFFINE, "above", x, 1.0F, LEAST_SQUARE);
    return add_unary(builder, DUNLIN_UNARY_SQRT, "root", x, 0.0F, 0.0F);
}

dunlin_value dunlin_builder_cosine(dunlin_builder *builder, dunlin_value left, dunlin_value right)
{
    const dunlin_value sides[2] = {dunlin_builder_flatten(builder, left),
                                   dunlin_builder_flatten(builder, right)};
    dunlin_value squares[2];
    for (int i = 0; i < 2; i++) {
        squares[i] = add_sum(builder, dunlin_builder_multiply(builder, sides[i], sides[i]));
        squares[i] =
            add_unary(builder, DUNLIN_UNARY_AFFINE, "above", squares[i], 1.0F, LEAST_SQUARE);
    }
    const dunlin_value product = dunlin_builder_multiply(builder, squares[0], squares[1]);
    const dunlin_value both =
        add_sum(builder, dunlin_builder_multiply(builder, sides[0], sides[1]));
    return add_binary(builder, DUNLIN_BINARY_DIV, "cosine", both,
                      add_unary(builder, DUNLIN_UNARY_SQRT, "root", product, 0.0F, 0.0F));
}
