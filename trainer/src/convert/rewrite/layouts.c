/*
 * layouts.c - values of two and three dimensions lie as images or row-major; what an operator
 * cannot read as it lies is rearranged before it.
 *
 * Invariant: such a rearrangement has the name of the value that it reads and an ending, and no
 * name of the file stands for it. In a file that this library wrote it is an Identity, which the
 * reader skips and the importer inserts again.
 */
#include "fold.h"
#include "ops/common/op.h"
#include "ops/table/infer.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

/* The value as an operator before has had it rearranged; NONE if none has. */
static uint32_t find_laid(const dunlin_net *net, uint32_t value, bool is_image)
{
    for (size_t i = net->n_nodes; i > 0; i--) {
        const dunlin_net_node *node = &net->nodes[i - 1];
        const dunlin_rearrangement *to = &node->u.rearrange.to;
        const dunlin_shape *shape = &net->values[value].shape;
        if (node->kind == DUNLIN_OP_REARRANGE && node->inputs[0] == value &&
            node->u.rearrange.is_image == is_image && to->shape.n_dims == shape->n_dims &&
            memcmp(to->shape.dims, shape->dims, (size_t)shape->n_dims * sizeof(int64_t)) == 0 &&
            to->split.n_dims == shape->n_dims && to->perm[0] == 0 && to->perm[1] == 1) {
            return node->output;
        }
    }
    return DUNLIN_NET_NONE;
}

/* The node before node `*index`, which moves on by one; NONE after a failure. */
static uint32_t lay(dunlin_onnx_node *node, uint32_t *index, uint32_t value, bool is_image)
{
    dunlin_net *net = node->import->net;
    char name[DUNLIN_NET_MAX_NAME + 1];
    const int n =
        snprintf(name, sizeof name, "%s/%s", net->values[value].name, is_image ? "image" : "plain");
    if (n > DUNLIN_NET_MAX_NAME) {
        (void)dunlin__onnx_reject(node, "", "the name of its input is too long to be added to");
        return DUNLIN_NET_NONE;
    }
    const uint32_t last = dunlin__net_add_node(net, DUNLIN_OP_REARRANGE, name);
    const uint32_t laid = last != DUNLIN_NET_NONE ? dunlin__net_add_value(net, name) : last;
    if (laid == DUNLIN_NET_NONE) {
        node->import->node_status = dunlin__onnx_fail_memory(node->import);
        return DUNLIN_NET_NONE;
    }
    dunlin_net_node made = net->nodes[last];
    const dunlin_shape *shape = &net->values[value].shape;
    made.inputs[0] = value;
    made.n_inputs = 1;
    made.output = laid;
    made.u.rearrange.to = (dunlin_rearrangement){*shape, {0, 1, 2}, *shape};
    made.u.rearrange.is_image = is_image;
    net->nodes[last] = net->nodes[*index];
    net->nodes[*index] = made;
    dunlin_error error = {0};
    if (dunlin__net_infer_node(net, *index, &error) != DUNLIN_OK) {
        (void)dunlin__onnx_reject(node, "", "%.190s", error.text);
        return DUNLIN_NET_NONE;
    }
    *index = last;
    return laid;
}

static bool has_image(const dunlin_net *net, const dunlin_net_node *node)
{
    bool is_one = false;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        is_one = is_one || net->values[node->inputs[i]].layout == DUNLIN_LAYOUT_IMAGE;
    }
    return is_one;
}

bool dunlin__onnx_infer(dunlin_onnx_node *node, uint32_t index)
{
    dunlin_net *net = node->import->net;
    const dunlin_op_row *row = dunlin__op_row(net->nodes[index].kind);
    const dunlin_op_wish wish = row != NULL ? row->wish : DUNLIN_WISH_NONE;
    const bool is_image = wish == DUNLIN_WISH_IMAGE ||
                          (wish == DUNLIN_WISH_ALIKE && has_image(net, &net->nodes[index]));
    for (uint32_t i = 0; wish != DUNLIN_WISH_NONE && i < net->nodes[index].n_inputs; i++) {
        const uint32_t value = net->nodes[index].inputs[i];
        const bool is_so = net->values[value].layout == DUNLIN_LAYOUT_IMAGE;
        const int32_t n_dims = net->values[value].shape.n_dims;
        if ((n_dims != 2 && n_dims != 3) || is_so == is_image) {
            continue;
        }
        uint32_t laid = find_laid(net, value, is_image);
        laid = laid == DUNLIN_NET_NONE ? lay(node, &index, value, is_image) : laid;
        if (laid == DUNLIN_NET_NONE) {
            return false;
        }
        net->nodes[index].inputs[i] = laid;
    }
    dunlin_error error = {0};
    const dunlin_status status = dunlin__net_infer_node(net, index, &error);
    if (status == DUNLIN_MEMORY) {
        node->import->node_status = dunlin__onnx_fail_memory(node->import);
    } else if (status != DUNLIN_OK) {
        (void)dunlin__onnx_reject(node, "", "%.190s", error.text);
    }
    return status == DUNLIN_OK;
}
