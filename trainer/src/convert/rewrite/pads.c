/*
 * pads.c - Pad: an operator for each dimension that grows, a slice for each that shrinks; zeros
 * before a convolution or an average go into that one's own padding.
 *
 * Invariant: padding goes into a layer only where the layer means the same by it.
 */
#include "fold.h"
#include "join.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PADS = 2 * (DUNLIN_MAX_DIMS + 1), MAX_STEP = 65535 };

/* Those of all dimensions, the batch's too; false after a rejection. */
static bool read_pads(dunlin_onnx_node *node, int32_t rank, int64_t pads[MAX_PADS])
{
    int64_t given[MAX_PADS];
    int64_t axes[DUNLIN_MAX_DIMS + 1];
    int32_t n_axes = rank;
    const int32_t n = dunlin__onnx_ints_input(node, 1, given, MAX_PADS);
    memset(pads, 0, MAX_PADS * sizeof *pads);
    for (int32_t i = 0; i < rank; i++) {
        axes[i] = i;
    }
    if (dunlin__onnx_has_input(node, 3)) {
        n_axes = dunlin__onnx_ints_input(node, 3, axes, DUNLIN_MAX_DIMS + 1);
    }
    bool is_good = n_axes >= 0 && n_axes <= rank && n == 2 * n_axes;
    for (int32_t i = 0; is_good && i < n_axes; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        is_good = axis >= 0 && axis < rank && llabs(given[i]) <= INT32_MAX &&
                  llabs(given[n_axes + i]) <= INT32_MAX;
        if (is_good) {
            pads[axis] = given[i];
            pads[rank + axis] = given[n_axes + i];
        }
    }
    if (!is_good || pads[0] != 0 || pads[rank] != 0) {
        (void)dunlin__onnx_reject(
            node, "pads", "must be constants, two for each dimension, and none of the batch");
        return false;
    }
    return true;
}

static bool read_mode(dunlin_onnx_node *node, dunlin_net_node *made)
{
    const char *mode = dunlin__onnx_text(node, "mode", "constant");
    double value = 0.0;
    made->u.pad.mode = strcmp(mode, "reflect") == 0 ? DUNLIN_PAD_REFLECT
                       : strcmp(mode, "edge") == 0  ? DUNLIN_PAD_EDGE
                                                    : DUNLIN_PAD_CONSTANT;
    if (made->u.pad.mode == DUNLIN_PAD_CONSTANT && strcmp(mode, "constant") != 0) {
        (void)dunlin__onnx_reject(node, "mode", "is %.40s, not constant, reflect or edge", mode);
        return false;
    }
    if (made->u.pad.mode == DUNLIN_PAD_CONSTANT && dunlin__onnx_has_input(node, 2) &&
        (!dunlin__onnx_scalar_input(node, 2, &value) || !isfinite(value))) {
        (void)dunlin__onnx_reject(node, "", "what it pads with is not a finite constant");
        return false;
    }
    made->u.pad.value = (float)value;
    return true;
}

/* What is taken away of a dimension first, then what is added; NONE after a rejection. The last
 * node has the ONNX node's name. */
static bool make_one(dunlin_onnx_node *node, dunlin_net_node *made, uint32_t *value, bool is_last)
{
    char suffix[32];
    (void)snprintf(suffix, sizeof suffix, "/pad%" PRId32 "%s", made->u.pad.axis + 1,
                   made->kind == DUNLIN_OP_SLICE ? "c" : "");
    made->inputs[0] = *value;
    made->n_inputs = 1;
    if (is_last) {
        dunlin__onnx_finish(node, made);
        return true;
    }
    *value = dunlin__onnx_make(node, made, suffix);
    return *value != DUNLIN_NET_NONE;
}

bool dunlin__onnx_fold_pad(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    dunlin_net_node pad = {.kind = DUNLIN_OP_PAD};
    int64_t pads[MAX_PADS];
    if (input == NULL) {
        return false;
    }
    const dunlin_shape shape = input->shape;
    const int32_t rank = shape.n_dims + 1;
    int32_t n_left = 0;
    if (!read_mode(node, &pad) || !read_pads(node, rank, pads)) {
        return true;
    }
    for (int32_t i = 1; i < rank; i++) {
        n_left += pads[i] < 0 || pads[rank + i] < 0 ? 1 : 0;
        n_left += pads[i] > 0 || pads[rank + i] > 0 ? 1 : 0;
    }
    if (n_left == 0) {
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
        return true;
    }
    uint32_t value = dunlin__onnx_value_input(node, 0);
    bool is_good = true;
    for (int32_t i = 1; i < rank && is_good; i++) {
        const int64_t before = pads[i];
        const int64_t after = pads[rank + i];
        if (before < 0 || after < 0) {
            dunlin_net_node cut = {.kind = DUNLIN_OP_SLICE};
            cut.u.slice.axis = i - 1;
            cut.u.slice.start = before < 0 ? -before : 0;
            cut.u.slice.end = shape.dims[i - 1] + (after < 0 ? after : 0);
            is_good = make_one(node, &cut, &value, --n_left == 0);
        }
        if (is_good && (before > 0 || after > 0)) {
            dunlin_net_node one = pad;
            one.u.pad.axis = i - 1;
            one.u.pad.before = before > 0 ? before : 0;
            one.u.pad.after = after > 0 ? after : 0;
            is_good = make_one(node, &one, &value, --n_left == 0);
        }
    }
    return true;
}

/* --- into the layer that reads it --- */

static bool add_pads(int32_t *first, int32_t *last, const dunlin_net_node *pad, int64_t most)
{
    if (*first + pad->u.pad.before > most || *last + pad->u.pad.after > most) {
        return false;
    }
    *first += (int32_t)pad->u.pad.before;
    *last += (int32_t)pad->u.pad.after;
    return true;
}

static bool join_one(const dunlin_joiner *j, dunlin_net_node *node)
{
    const dunlin_net *net = j->net;
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const bool is_average = node->kind == DUNLIN_OP_AVERAGE_POOL;
    if ((node->kind != DUNLIN_OP_CONV && !is_average) || x->producer == DUNLIN_NET_NONE) {
        return false;
    }
    const dunlin_net_node *pad = &net->nodes[x->producer];
    const bool is_zero = pad->kind == DUNLIN_OP_PAD && pad->u.pad.mode == DUNLIN_PAD_CONSTANT &&
                         !(pad->u.pad.value < 0.0F) && !(pad->u.pad.value > 0.0F);
    if (!is_zero || pad->u.pad.axis == 0) {
        return false;
    }
    const bool is_width = pad->u.pad.axis == x->shape.n_dims - 1;
    dunlin_net_node made = *node;
    made.inputs[0] = pad->inputs[0];
    if (is_average) {
        dunlin_net_pool *p = &made.u.pool;
        const bool is_padded = (p->pad_top | p->pad_left | p->pad_bottom | p->pad_right) != 0;
        if (p->is_ceil || (is_padded && !p->counts_padding) ||
            !(is_width ? add_pads(&p->pad_left, &p->pad_right, pad, p->kernel_w - 1)
                       : add_pads(&p->pad_top, &p->pad_bottom, pad, p->kernel_h - 1))) {
            return false;
        }
        p->counts_padding = true;
    } else {
        dunlin_net_conv *c = &made.u.conv;
        if (!(is_width ? add_pads(&c->pad_left, &c->pad_right, pad, MAX_STEP)
                       : add_pads(&c->pad_top, &c->pad_bottom, pad, MAX_STEP))) {
            return false;
        }
    }
    dunlin__join_replace(j, node, &made);
    return true;
}

bool dunlin__join_pads(const dunlin_joiner *j, dunlin_net_node *node)
{
    bool has_joined = false;
    const bool is_read = j->net->values[node->output].n_consumers > 0;
    if (node->kind == DUNLIN_OP_PAD && !is_read && !j->is_dead[node - j->net->nodes]) {
        dunlin__join_drop(j, node); /* a layer has it as its own (pools.c) */
        return true;
    }
    while (join_one(j, node)) {
        has_joined = true;
    }
    return has_joined;
}
