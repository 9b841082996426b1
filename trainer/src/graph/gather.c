/*
 * gather.c - see gather.h.
 *
 * Invariant: which concatenations are gathered follows from the network alone, so plans, slices and
 * forms agree on what each reader sees.
 */
#include "gather.h"

#include "narrow.h"
#include "net/outputs.h"
#include "rounded.h"

#include <string.h>

bool dunlin__gather_is_rounded(const dunlin_emit *emit, uint32_t value)
{
    const dunlin_net *net = emit->net;
    uint32_t producer = net->values[value].producer;
    if (!dunlin__emit_is_rounding(emit) || producer == DUNLIN_NET_NONE ||
        emit->values[value].norm != DUNLIN_STEP_NONE || dunlin__net_is_output(net, value)) {
        return false;
    }
    if (dunlin__fuse_is_folded(emit, producer)) {
        producer = net->values[net->nodes[producer].inputs[0]].producer;
    }
    const dunlin_op_kind kind = net->nodes[producer].kind;
    return kind == DUNLIN_OP_CONV || kind == DUNLIN_OP_DENSE || kind == DUNLIN_OP_ADD;
}

bool dunlin__gather_is_apart(const dunlin_emit *emit, size_t node_index)
{
    return dunlin__emit_is_rounding(emit) &&
           dunlin__net_is_output(emit->net, emit->net->nodes[node_index].output);
}

/* Some input of a concatenation, or of those that it goes on from, is stored rounded. */
static bool has_rounded(const dunlin_emit *emit, uint32_t node_index)
{
    for (uint32_t at = node_index; at != DUNLIN_STEP_NONE; at = emit->chains[at].base) {
        const dunlin_emit_chain *chain = &emit->chains[at];
        for (uint32_t i = 0; i < chain->n_leaves; i++) {
            if (dunlin__gather_is_rounded(emit, emit->leaves[chain->first_leaf + i].value)) {
                return true;
            }
        }
    }
    return false;
}

/* With all that it goes on from. */
static void gather_chain(dunlin_emit *emit, uint32_t node_index)
{
    for (uint32_t at = node_index; at != DUNLIN_STEP_NONE; at = emit->chains[at].base) {
        dunlin_emit_chain *chain = &emit->chains[at];
        chain->is_gathered = true;
        for (uint32_t i = 0; i < chain->n_leaves; i++) {
            emit->leaves[chain->first_leaf + i].is_copied = false;
        }
    }
}

void dunlin__gather_plan(dunlin_emit *emit)
{
    const dunlin_net *net = emit->net;
    for (uint32_t i = 0; i < net->n_nodes && dunlin__emit_is_rounding(emit); i++) {
        if (dunlin__fuse_is_chained(emit, i) && emit->chains[i].next == DUNLIN_STEP_NONE &&
            !dunlin__gather_is_apart(emit, i) && has_rounded(emit, i)) {
            gather_chain(emit, i);
        }
    }
}

/* --- emission --- */

/* Where an input lies compact. It is copied where it is gathered itself, so that members are few,
 * and where its rows are not those that its scales are of. */
static uint32_t member_of(dunlin_emit *emit, uint32_t value)
{
    const uint32_t tensor = dunlin__emit_value(emit, value);
    if (emit->status != DUNLIN_OK) {
        return tensor;
    }
    const dunlin_step_tensor *t = &emit->graph->tensors[tensor];
    const bool has_other_rows =
        dunlin__narrow_is_scaled(t) && t->scaled_channels != dunlin__emit_channels(emit, value);
    return t->is_gathered || has_other_rows ? dunlin__emit_copy(emit, value) : tensor;
}

void dunlin__gather_emit(dunlin_emit *emit, uint32_t node_index)
{
    const dunlin_emit_chain *chain = &emit->chains[node_index];
    const uint32_t output = emit->net->nodes[node_index].output;
    for (uint32_t i = 0; i < chain->n_leaves; i++) {
        dunlin_emit_leaf *leaf = &emit->leaves[chain->first_leaf + i];
        leaf->tensor = member_of(emit, leaf->value);
    }
    const uint32_t tensor = dunlin__emit_output(emit, output);
    dunlin_step_gather *gather = dunlin__step_pool_take(
        &emit->graph->pool, sizeof *gather + chain->n_parts * sizeof gather->members[0]);
    if (emit->status != DUNLIN_OK || gather == NULL) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
        return;
    }
    *gather = (dunlin_step_gather){.channels = chain->width};
    if (chain->base != DUNLIN_STEP_NONE) {
        const uint32_t base = emit->values[emit->net->nodes[chain->base].output].tensor;
        const dunlin_step_gather *from = emit->graph->tensors[base].gather;
        gather->n_members = from->n_members;
        memcpy(gather->members, from->members, from->n_members * sizeof from->members[0]);
    }
    for (uint32_t i = 0; i < chain->n_leaves; i++) {
        gather->members[gather->n_members++] = emit->leaves[chain->first_leaf + i].tensor;
    }
    emit->graph->tensors[tensor].is_gathered = true;
    emit->graph->tensors[tensor].gather = gather;
}
