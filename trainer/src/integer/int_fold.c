/*
 * int_fold.c - decides on the network, before anything is emitted, which activations are folded
 * into what stores their input, and which values need no mask of their own.
 *
 * Invariant: a value that is folded away has one reader; the error of a clipped value is masked
 * once, by its one reader's kernel, by an op of its own, or by what was made of it.
 */
#include "int_emit.h"
#include "ops/common/op.h"

#include <math.h>

static void note_readers(dunlin_integer *integer)
{
    const dunlin_net *net = integer->emit->net;
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < net->nodes[i].n_inputs; k++) {
            integer->folds[net->nodes[i].inputs[k]].n_readers++;
        }
    }
    integer->folds[net->output].n_readers++;
}

static bool clips_as_it_stores(const dunlin_net *net, uint32_t value)
{
    const uint32_t producer = net->values[value].producer;
    if (producer == DUNLIN_NET_NONE) {
        return false;
    }
    const dunlin_op_kind kind = net->nodes[producer].kind;
    return kind == DUNLIN_OP_CONV || kind == DUNLIN_OP_DENSE || kind == DUNLIN_OP_ADD;
}

static void fold_activation(dunlin_integer *integer, const dunlin_net_node *node)
{
    dunlin_integer_fold *from = &integer->folds[node->inputs[0]];
    integer->folds[node->output].high = node->u.clip.high;
    if (integer->emit->options->is_fused && from->n_readers == 1 &&
        clips_as_it_stores(integer->emit->net, node->inputs[0])) {
        from->stored_as = node->output;
    }
}

/* An element of the output is 0, or at the upper bound, just where what it was made of is. */
static bool has_same_bounds(const dunlin_net_node *node, float high)
{
    const dunlin_op_bounds bounds = dunlin__op_row(node->kind)->bounds;
    return node->n_inputs == 1 &&
           (bounds == DUNLIN_BOUNDS_KEPT || (bounds == DUNLIN_BOUNDS_OF_ZERO && high == HUGE_VALF));
}

/* As mask_later() of the float step, and what a batch counts is counted of masked errors, in every
 * form of the step: a maximum of clipped values is clipped by itself, so the mask
 * of its own error is the mask of all, and what it was taken of need not be kept. */
static void pass_mask_on(dunlin_integer *integer, const dunlin_net_node *node)
{
    dunlin_integer_fold *from = &integer->folds[node->inputs[0]];
    if (from->high > 0.0F && from->n_readers == 1 && has_same_bounds(node, from->high)) {
        integer->folds[node->output].high = from->high;
        from->is_masked_later = true;
    }
}

void dunlin__integer_plan_folds(dunlin_integer *integer)
{
    const dunlin_net *net = integer->emit->net;
    for (uint32_t v = 0; v < net->n_values; v++) {
        integer->folds[v] = (dunlin_integer_fold){.stored_as = DUNLIN_STEP_NONE};
    }
    note_readers(integer);
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_CLIP) {
            fold_activation(integer, &net->nodes[i]);
        }
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (net->nodes[i].kind != DUNLIN_OP_CLIP && net->nodes[i].n_inputs > 0) {
            pass_mask_on(integer, &net->nodes[i]);
        }
    }
}

uint32_t dunlin__integer_stored_as(const dunlin_integer *integer, uint32_t value)
{
    const uint32_t stored_as = integer->folds[value].stored_as;
    return stored_as == DUNLIN_STEP_NONE ? value : stored_as;
}

float dunlin__integer_clips_to(const dunlin_integer *integer, uint32_t value)
{
    const uint32_t stored_as = integer->folds[value].stored_as;
    return stored_as == DUNLIN_STEP_NONE ? 0.0F : integer->folds[stored_as].high;
}

bool dunlin__integer_masks_error(dunlin_integer *integer, uint32_t value)
{
    dunlin_integer_fold *fold = &integer->folds[value];
    const bool masks = integer->emit->options->is_fused && fold->high > 0.0F &&
                       !fold->is_masked_later && fold->n_readers == 1;
    fold->is_masked = fold->is_masked || masks;
    return masks;
}
