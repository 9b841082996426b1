/*
 * builder_patches.c - images as tokens, and a token that stands for the whole (Dosovitskiy et al.
 * 2021, "An Image is Worth 16x16 Words").
 */
#include "builder_nodes.h"

#include <dunlin/attention.h>

#define CLASS_DEVIATION 1e-6F /* of first values, as timm's */

dunlin_value dunlin_builder_image_tokens(dunlin_builder *builder, dunlin_value input)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_REARRANGE, NULL, "tokens", &input, 1);
    if (node == NULL) {
        return -1;
    }
    const dunlin_net_value *x = &builder->net.values[input];
    const int64_t *dims = x->shape.dims;
    if (x->layout != DUNLIN_LAYOUT_IMAGE) {
        return dunlin__builder_refuse(builder, "only images and signals become tokens");
    }
    node->u.rearrange.to =
        x->shape.n_dims == 2
            ? (dunlin_rearrangement){x->shape, {1, 0}, {2, {dims[1], dims[0]}}}
            : (dunlin_rearrangement){x->shape, {1, 2, 0}, {2, {dims[1] * dims[2], dims[0]}}};
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_class_token(dunlin_builder *builder, const char *name,
                                        dunlin_value input)
{
    if (dunlin__builder_is_failed(builder) || !dunlin__builder_join_inputs(builder)) {
        return -1;
    }
    dunlin_net *net = &builder->net;
    const bool is_value = input >= 0 && (size_t)input < net->n_values;
    const dunlin_shape *rows = is_value ? &net->values[input].shape : NULL;
    if (rows == NULL || rows->n_dims != 2 || net->values[input].layout != DUNLIN_LAYOUT_PLAIN) {
        return dunlin__builder_refuse(builder, "a class token goes before rows of tokens");
    }
    const dunlin_shape shape = {3, {1, 1, rows->dims[1]}};
    const dunlin_value whole = (dunlin_value)net->input;
    if (dunlin__builder_begin(builder, DUNLIN_OP_EXPAND, name == NULL ? "" : name, "", &whole, 1) ==
        NULL) {
        return -1;
    }
    dunlin_net_param *token = dunlin__builder_param(builder, 0, name, "", &shape);
    if (token != NULL) {
        token->origin = DUNLIN_PARAM_NORMAL;
        token->bound = CLASS_DEVIATION;
    }
    const dunlin_value parts[2] = {dunlin__builder_end(builder), input};
    if (dunlin__builder_begin(builder, DUNLIN_OP_STACK, NULL, "with_class", parts, 2) == NULL) {
        return -1;
    }
    return dunlin__builder_end(builder); /* along dimension 0 */
}
