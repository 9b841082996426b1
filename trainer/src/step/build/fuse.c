/*
 * fuse.c - decides on the network, before anything is emitted, which nodes are folded into others:
 * activations into what stores or reads their input, concatenations into what writes their parts;
 * and about which running means the sums of a tensor are taken.
 *
 * Invariant: a value that is folded away has one reader, so no other op needs it.
 */
#include "graph/emit.h"
#include "graph/fused.h"
#include "graph/gather.h"
#include "net/outputs.h"
#include "net/uses.h"
#include "ops/common/op.h"

#include <mem/support.h>

#include <math.h>

static const dunlin_net_node *producer_of(const dunlin_emit *emit, uint32_t value)
{
    const uint32_t producer = emit->net->values[value].producer;
    return producer == DUNLIN_NET_NONE ? NULL : &emit->net->nodes[producer];
}

/* --- concatenations --- */

/* All inputs of `first` are the first ones of `node`. */
static bool begins_with(const dunlin_net_node *node, const dunlin_net_node *first)
{
    if (first->n_inputs >= node->n_inputs) {
        return false;
    }
    for (uint32_t i = 0; i < first->n_inputs; i++) {
        if (node->inputs[i] != first->inputs[i]) {
            return false;
        }
    }
    return true;
}

/* Nothing goes on from it yet, and with so many more inputs its parts can still be listed. */
static bool may_go_on(const dunlin_emit *emit, size_t base, uint32_t n_more)
{
    return emit->chains[base].next == DUNLIN_STEP_NONE && !dunlin__gather_is_apart(emit, base) &&
           emit->chains[base].n_parts + n_more <= DUNLIN_NET_MAX_INPUTS;
}

/* The concatenation that this one goes on from, and how many of its inputs that stands for. */
static uint32_t find_base(const dunlin_emit *emit, size_t node_index, uint32_t *out_n_inputs)
{
    const dunlin_net *net = emit->net;
    const dunlin_net_node *node = &net->nodes[node_index];
    const uint32_t producer = net->values[node->inputs[0]].producer;
    *out_n_inputs = 0;
    if (dunlin__gather_is_apart(emit, node_index)) {
        return DUNLIN_STEP_NONE;
    }
    if (producer != DUNLIN_NET_NONE && net->nodes[producer].kind == DUNLIN_OP_CONCAT &&
        may_go_on(emit, producer, node->n_inputs - 1)) {
        *out_n_inputs = 1;
        return producer;
    }
    uint32_t base = DUNLIN_STEP_NONE;
    for (size_t i = 0; i < node_index; i++) {
        const dunlin_net_node *other = &net->nodes[i];
        if (other->kind == DUNLIN_OP_CONCAT && other->n_inputs > *out_n_inputs &&
            begins_with(node, other) && may_go_on(emit, i, node->n_inputs - other->n_inputs)) {
            base = (uint32_t)i;
            *out_n_inputs = other->n_inputs;
        }
    }
    return base;
}

static void plan_chain(dunlin_emit *emit, size_t node_index)
{
    const dunlin_net_node *node = &emit->net->nodes[node_index];
    dunlin_emit_chain *chain = &emit->chains[node_index];
    uint32_t n_shared = 0;
    chain->base = find_base(emit, node_index, &n_shared);
    if (chain->base != DUNLIN_STEP_NONE) {
        emit->chains[chain->base].next = (uint32_t)node_index;
        chain->width = emit->chains[chain->base].width;
        chain->n_parts = emit->chains[chain->base].n_parts;
    }
    chain->first_leaf = (uint32_t)emit->n_leaves;
    for (uint32_t i = n_shared; i < node->n_inputs; i++) {
        emit->leaves[emit->n_leaves++] =
            (dunlin_emit_leaf){.value = node->inputs[i],
                               .tensor = DUNLIN_STEP_NONE,
                               .offset = chain->width,
                               .width = dunlin__emit_channels(emit, node->inputs[i]),
                               .is_copied = true,
                               .stat = {.sums = DUNLIN_STEP_NONE, .about = DUNLIN_STEP_NONE}};
        chain->width += emit->leaves[emit->n_leaves - 1].width;
        chain->n_leaves++;
    }
    chain->n_parts += chain->n_leaves;
}

/* What can write its output with a pitch. */
static bool can_store_part(const dunlin_emit *emit, uint32_t value)
{
    const dunlin_net_node *node = producer_of(emit, value);
    if (node == NULL) {
        return false;
    }
    return (dunlin__op_row(node->kind)->stores_parts && !dunlin__emit_is_product(emit, node)) ||
           (node->kind == DUNLIN_OP_CLIP && emit->values[value].norm == DUNLIN_STEP_NONE &&
            emit->values[node->inputs[0]].stored_as == value);
}

static void place_leaves(dunlin_emit *emit, size_t node_index)
{
    const dunlin_emit_chain *chain = &emit->chains[node_index];
    for (uint32_t i = 0; i < chain->n_leaves; i++) {
        dunlin_emit_leaf *leaf = &emit->leaves[chain->first_leaf + i];
        dunlin_emit_value *value = &emit->values[leaf->value];
        if (value->part_of == DUNLIN_STEP_NONE && can_store_part(emit, leaf->value) &&
            !chain->is_gathered && !dunlin__gather_is_rounded(emit, leaf->value)) {
            value->part_of = (uint32_t)node_index;
            leaf->is_copied = false;
        }
    }
}

/* All parts clipped to one range: then one mask serves them all. */
static void find_common_clip(dunlin_emit *emit, size_t node_index)
{
    const uint32_t output = emit->net->nodes[node_index].output;
    const uint32_t first = dunlin__fuse_input(emit, node_index, 0);
    float low = emit->values[first].low;
    float high = emit->values[first].high;
    for (uint32_t i = 0; i < dunlin__fuse_n_inputs(emit, node_index); i++) {
        const dunlin_emit_value *value = &emit->values[dunlin__fuse_input(emit, node_index, i)];
        if (value->norm != DUNLIN_STEP_NONE || value->low != low || value->high != high) {
            return;
        }
    }
    emit->values[output].low = low;
    emit->values[output].high = high;
}

/* --- activations --- */

static void fold_clip(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_net_node *producer = producer_of(emit, node->inputs[0]);
    dunlin_emit_value *from = &emit->values[node->inputs[0]];
    if (producer == NULL || from->n_edges != 1) {
        return;
    }
    dunlin_emit_value *to = &emit->values[node->output];
    const bool is_view = producer->kind == DUNLIN_OP_BATCH_NORM;
    const bool stores_clipped =
        dunlin__op_row(producer->kind)->stores_clipped && !dunlin__emit_is_product(emit, producer);
    if (!is_view && !stores_clipped) {
        return;
    }
    from->stored_as = node->output;
    to->low = node->u.clip.low;
    to->high = node->u.clip.high;
    if (is_view) {
        to->norm = emit->net->values[node->inputs[0]].producer;
    }
}

/* What comes out of the node lies at a bound of the range just where what it was made of did. */
static bool keeps_bounds(const dunlin_net_node *node, float low, float high)
{
    const dunlin_op_bounds bounds = dunlin__op_row(node->kind)->bounds;
    return bounds == DUNLIN_BOUNDS_KEPT ||
           (bounds == DUNLIN_BOUNDS_OF_ZERO && low == 0.0F && high == HUGE_VALF);
}

/*
 * A maximum of clipped values is clipped by itself, and where it lies at a bound so does the
 * element that won: a gradient that is masked by the maximum needs no mask by what the maximum was
 * taken of. So a stored value that only a max-pool reads, or what only moves or drops it, need not
 * be kept for its mask; the output, which the next layer keeps as a rule, stands in. Of a sum over
 * windows each one is masked, or none is, so the bits are the same.
 */
static void mask_later(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin_emit_value *from = &emit->values[node->inputs[0]];
    const bool is_clipped = from->low > -HUGE_VALF || from->high < HUGE_VALF;
    if (!is_clipped || from->norm != DUNLIN_STEP_NONE || from->n_edges != 1 ||
        !keeps_bounds(node, from->low, from->high)) {
        return;
    }
    dunlin_emit_value *to = &emit->values[node->output];
    to->low = from->low;
    to->high = from->high;
    from->is_masked_later = true;
}

/* A global average needs nothing of its input but where its gradient is masked: a bit an element.
 */
static void keep_signs(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin_emit_value *from = &emit->values[node->inputs[0]];
    const bool is_clipped = from->low > -HUGE_VALF || from->high < HUGE_VALF;
    from->has_signs = is_clipped && from->norm == DUNLIN_STEP_NONE && from->n_edges == 1;
}

/* The function as views have it; a clip: they do not. */
static dunlin_view_fn view_fn_of(const dunlin_net_node *node)
{
    return node->u.unary.fn == DUNLIN_UNARY_HARD_SWISH ? DUNLIN_VIEW_HARD_SWISH
           : node->u.unary.fn == DUNLIN_UNARY_SILU     ? DUNLIN_VIEW_SILU
                                                       : DUNLIN_VIEW_CLIP;
}

/* Only behind a batch norm: it is its view's. */
static void fold_function(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_net_node *producer = producer_of(emit, node->inputs[0]);
    dunlin_emit_value *from = &emit->values[node->inputs[0]];
    const dunlin_view_fn fn = view_fn_of(node);
    if (producer == NULL || producer->kind != DUNLIN_OP_BATCH_NORM || from->n_edges != 1 ||
        fn == DUNLIN_VIEW_CLIP) {
        return;
    }
    dunlin_emit_value *to = &emit->values[node->output];
    from->stored_as = node->output;
    to->fn = fn;
    to->norm = emit->net->values[node->inputs[0]].producer;
}

/* --- sums of batch norm --- */

static void note_stat(dunlin_emit_stat *stat, uint32_t about, int64_t offset)
{
    if (stat->about == DUNLIN_STEP_NONE) {
        stat->about = about;
        stat->about_offset = offset;
    }
}

/* The running mean of the first batch norm that reads a tensor is what its sums are taken about. */
static void note_stats(dunlin_emit *emit, uint32_t value, uint32_t about)
{
    uint32_t at = emit->net->values[value].producer;
    if (at == DUNLIN_NET_NONE || !dunlin__fuse_is_chained(emit, at)) {
        note_stat(&emit->values[value].stat, about, 0);
        return;
    }
    for (; at != DUNLIN_STEP_NONE; at = emit->chains[at].base) {
        const dunlin_emit_chain *chain = &emit->chains[at];
        for (uint32_t i = 0; i < chain->n_leaves; i++) {
            dunlin_emit_leaf *leaf = &emit->leaves[chain->first_leaf + i];
            note_stat(leaf->is_copied ? &leaf->stat : &emit->values[leaf->value].stat, about,
                      leaf->offset);
        }
    }
}

static void plan_norm(dunlin_emit *emit, size_t node_index)
{
    const dunlin_net_node *node = &emit->net->nodes[node_index];
    emit->node_index = node_index;
    if (emit->options->mode == DUNLIN_EMIT_TRAIN && !dunlin__emit_is_norm_frozen(emit)) {
        note_stats(emit, node->inputs[0], dunlin__emit_param(emit, node->params[2]));
    }
}

/* --- residual sums --- */

/* Who reads each value, as far as that says whether backward a sum may be read through its terms
 * (dunlin__emit_add()). */
static void note_readers(dunlin_emit *emit, const dunlin_net_node *node)
{
    const bool is_conv = node->kind == DUNLIN_OP_CONV && node->u.conv.groups == 1 &&
                         !dunlin__emit_is_product(emit, node);
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        dunlin_emit_value *input = &emit->values[node->inputs[k]];
        if (is_conv) {
            input->is_kept = input->is_kept || dunlin__emit_is_trained(emit, node->params[0]);
        } else if (node->kind != DUNLIN_OP_ADD) {
            input->is_materialised = true;
        }
    }
}

/* --- all --- */

static void reset(dunlin_emit *emit)
{
    for (uint32_t v = 0; v < emit->net->n_values; v++) {
        dunlin_emit_value *value = &emit->values[v];
        value->n_edges = 0;
        value->pitch = dunlin__emit_channels(emit, v);
        value->copy = DUNLIN_STEP_NONE;
        value->norm = DUNLIN_STEP_NONE;
        value->stored_as = DUNLIN_STEP_NONE;
        value->part_of = DUNLIN_STEP_NONE;
        value->behind[0] = DUNLIN_STEP_NONE;
        value->behind[1] = DUNLIN_STEP_NONE;
        value->terms[0] = DUNLIN_STEP_NONE;
        value->terms[1] = DUNLIN_STEP_NONE;
        value->is_kept = false;
        value->is_materialised = false;
        value->fn = DUNLIN_VIEW_CLIP;
        value->low = -HUGE_VALF;
        value->high = HUGE_VALF;
        value->is_masked_later = false;
        value->has_signs = false;
        value->stat.sums = DUNLIN_STEP_NONE;
        value->stat.about = DUNLIN_STEP_NONE;
    }
    for (size_t i = 0; i < emit->net->n_nodes; i++) {
        emit->chains[i] = (dunlin_emit_chain){.base = DUNLIN_STEP_NONE, .next = DUNLIN_STEP_NONE};
    }
}

void dunlin__fuse_plan(dunlin_emit *emit)
{
    const dunlin_net *net = emit->net;
    reset(emit);
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (dunlin__fuse_is_chained(emit, i)) {
            plan_chain(emit, i);
        }
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < dunlin__fuse_n_inputs(emit, i); k++) {
            emit->values[dunlin__fuse_input(emit, i, k)].n_edges++;
        }
    }
    for (uint32_t i = 0; i < dunlin__net_n_outputs(net); i++) {
        emit->values[dunlin__net_output_at(net, i)].n_edges++;
    }
    for (size_t i = 0; i < net->n_nodes && emit->options->is_fused; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_BATCH_NORM) {
            emit->values[net->nodes[i].output].norm = (uint32_t)i;
        } else if (net->nodes[i].kind == DUNLIN_OP_CLIP) {
            fold_clip(emit, &net->nodes[i]);
        } else if (net->nodes[i].kind == DUNLIN_OP_UNARY) {
            fold_function(emit, &net->nodes[i]);
        }
    }
    dunlin__gather_plan(emit);
    for (size_t i = 0; i < net->n_nodes && emit->options->is_fused; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_CONCAT) {
            place_leaves(emit, i);
            find_common_clip(emit, i);
        } else if (net->nodes[i].kind == DUNLIN_OP_GLOBAL_AVERAGE_POOL) {
            keep_signs(emit, &net->nodes[i]);
        } else if (net->nodes[i].n_inputs > 0) {
            mask_later(emit, &net->nodes[i]);
        }
    }
    for (size_t i = 0; i < net->n_nodes && emit->options->is_fused; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_BATCH_NORM) {
            plan_norm(emit, i);
        }
    }
    for (uint32_t i = 0; i < dunlin__net_n_outputs(net); i++) {
        emit->values[dunlin__net_output_at(net, i)].is_materialised = true;
    }
    const bool is_class_loss = emit->options->is_fused && emit->graph->n_outputs == 1 &&
                               emit->graph->outputs[0].loss.loss == DUNLIN_LOSS_CROSS_ENTROPY &&
                               emit->graph->outputs[0].loss.weight == 1.0F;
    emit->class_layer =
        is_class_loss ? dunlin__net_class_layer(net, net->output) : DUNLIN_STEP_NONE;
    for (size_t i = 0; i < net->n_nodes; i++) {
        note_readers(emit, &net->nodes[i]);
    }
    for (size_t v = 0; v < net->n_values; v++) {
        emit->values[v].n_open = emit->values[v].n_edges;
    }
}
