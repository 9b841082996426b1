/*
 * join_moves.c - reshapes, transpositions and rearrangements in a row are one: channel shuffle, an
 * image as (H, W, C), space to depth. And a convolution and the bias that is added to it.
 *
 * Invariant: values that others read stay as they were.
 */
#include "join.h"
#include "ops/common/support.h"
#include "ops/shape/atoms.h"

#include <string.h>

static void keep_order(dunlin_rearrangement *r)
{
    for (int32_t i = 0; i < DUNLIN_MAX_DIMS; i++) {
        r->perm[i] = i;
    }
}

/* The node as a rearrangement; false if it is another operator. */
static bool as_move(const dunlin_net *net, const dunlin_net_node *node, dunlin_rearrangement *out)
{
    if (node->kind == DUNLIN_OP_REARRANGE) {
        *out = node->u.rearrange.to;
        return true;
    }
    if (node->kind != DUNLIN_OP_RESHAPE && node->kind != DUNLIN_OP_TRANSPOSE &&
        node->kind != DUNLIN_OP_FLATTEN) {
        return false;
    }
    out->split = net->values[node->inputs[0]].shape;
    out->shape = net->values[node->output].shape;
    keep_order(out);
    if (node->kind == DUNLIN_OP_TRANSPOSE) {
        memcpy(out->perm, node->u.transpose.perm, sizeof out->perm);
    }
    return out->split.n_dims > 0;
}

/* Nothing has to be copied for it. */
static bool is_still(const dunlin_net *net, const dunlin_net_node *node,
                     const dunlin_rearrangement *to)
{
    dunlin_atoms atoms;
    return dunlin__atoms_of(&net->values[node->inputs[0]], net->values[node->output].layout, to,
                            &atoms) &&
           dunlin__atoms_are_still(&atoms);
}

static bool has_order(const dunlin_net_node *node)
{
    return node->kind == DUNLIN_OP_REARRANGE || node->kind == DUNLIN_OP_TRANSPOSE;
}

/* A rearrangement that the reader of files has put in: the same under another layout. */
static bool is_layout_only(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    const dunlin_shape *y = &net->values[node->output].shape;
    return node->kind == DUNLIN_OP_REARRANGE && dunlin__is_in_order(&node->u.rearrange.to) &&
           x->n_dims == y->n_dims &&
           memcmp(x->dims, y->dims, (size_t)x->n_dims * sizeof x->dims[0]) == 0;
}

/* An input or the output of the file, which stays as the file has it. */
static bool is_of_border(const dunlin_net *net, uint32_t value)
{
    for (size_t i = 0; i < net->n_ports; i++) {
        if (net->ports[i].value == value) {
            return true;
        }
    }
    return false;
}

/* `node` reads what the move before it reads. */
static bool join_two(const dunlin_joiner *j, dunlin_net_node *node)
{
    const dunlin_net *net = j->net;
    const dunlin_net_value *between = &net->values[node->inputs[0]];
    dunlin_rearrangement first;
    dunlin_rearrangement second;
    if (between->producer == DUNLIN_NET_NONE || is_of_border(net, node->inputs[0]) ||
        !as_move(net, node, &second)) {
        return false;
    }
    const dunlin_net_node *before = &net->nodes[between->producer];
    if (!as_move(net, before, &first) || (!has_order(node) && !has_order(before))) {
        return false;
    }
    dunlin_net_node made = {
        .kind = DUNLIN_OP_REARRANGE, .inputs = {before->inputs[0]}, .n_inputs = 1};
    made.output = node->output;
    made.u.rearrange.is_image = net->values[node->output].layout == DUNLIN_LAYOUT_IMAGE;
    dunlin_rearrangement *to = &made.u.rearrange.to;
    const dunlin_net_value *x = &net->values[before->inputs[0]];
    dunlin_atoms atoms;
    if (!dunlin__rearrange_both(&x->shape, &first, &second, to) ||
        !dunlin__atoms_of(x, net->values[node->output].layout, to, &atoms) ||
        atoms.n > DUNLIN_MAX_DIMS) {
        return false;
    }
    /* What others read as well is there anyway: then a pass of its own must be worth it. */
    if (between->n_consumers > 1 && !dunlin__atoms_are_still(&atoms) &&
        is_still(net, node, &second)) {
        return false;
    }
    const bool is_row = to->shape.n_dims == 1 && dunlin__is_in_order(to) &&
                        x->layout == DUNLIN_LAYOUT_PLAIN && !made.u.rearrange.is_image;
    if (is_row) { /* as it would be read again */
        made = (dunlin_net_node){
            .kind = DUNLIN_OP_FLATTEN, .inputs = {before->inputs[0]}, .n_inputs = 1};
    }
    const bool takes_name = between->n_consumers == 1 && is_layout_only(net, node);
    const char *const names[2] = {before->name, between->name};
    dunlin__join_replace(j, node, &made);
    if (takes_name) { /* else one ending would be added each time a file is read and written */
        node->name = names[0];
        j->net->values[node->output].name = names[1];
    }
    return true;
}

void dunlin__join_moves(const dunlin_joiner *j, dunlin_net_node *node)
{
    while (join_two(j, node)) {
        /* once for each move before it */
    }
}

static uint32_t n_readers(const dunlin_net *net, uint32_t param)
{
    uint32_t n = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < net->nodes[i].n_params; k++) {
            n += net->nodes[i].params[k] == param ? 1 : 0;
        }
    }
    return n;
}

bool dunlin__join_conv_bias(const dunlin_joiner *j, dunlin_net_node *node)
{
    const dunlin_net *net = j->net;
    if (node->kind != DUNLIN_OP_BINARY || node->u.binary.fn != DUNLIN_BINARY_ADD ||
        node->n_inputs != 1) {
        return false;
    }
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const dunlin_shape *shape = &net->params[node->params[0]].shape;
    if (x->producer == DUNLIN_NET_NONE || x->n_consumers != 1 || shape->n_dims < 3 ||
        shape->dims[shape->n_dims - 3] != net->params[node->params[0]].n_elements ||
        shape->dims[shape->n_dims - 3] != x->shape.dims[0]) {
        return false;
    }
    const dunlin_net_node *conv = &net->nodes[x->producer];
    if (conv->kind != DUNLIN_OP_CONV || dunlin__op_has_param(conv, 1) ||
        n_readers(net, node->params[0]) != 1) {
        return false;
    }
    dunlin_net_node made = *conv;
    made.params[1] = node->params[0];
    made.n_params = 2;
    dunlin__join_replace(j, node, &made);
    return true;
}
