/*
 * folded.c - what was decided on the network before anything was emitted (fuse.c), as the emitter
 * asks for it.
 */
#include "emit.h"

bool dunlin__fuse_is_chained(const dunlin_emit *emit, size_t node_index)
{
    return emit->options->is_fused && emit->net->nodes[node_index].kind == DUNLIN_OP_CONCAT;
}

bool dunlin__emit_keeps_signs(const dunlin_emit *emit, uint32_t value)
{
    return emit->values[value].has_signs;
}

bool dunlin__emit_is_fused(const dunlin_emit *emit)
{
    return emit->options->is_fused;
}

uint32_t dunlin__fuse_n_inputs(const dunlin_emit *emit, size_t node_index)
{
    if (!dunlin__fuse_is_chained(emit, node_index)) {
        return emit->net->nodes[node_index].n_inputs;
    }
    const dunlin_emit_chain *chain = &emit->chains[node_index];
    return chain->n_leaves + (chain->base != DUNLIN_STEP_NONE ? 1 : 0);
}

uint32_t dunlin__fuse_input(const dunlin_emit *emit, size_t node_index, uint32_t index)
{
    if (!dunlin__fuse_is_chained(emit, node_index)) {
        return emit->net->nodes[node_index].inputs[index];
    }
    const dunlin_emit_chain *chain = &emit->chains[node_index];
    if (chain->base == DUNLIN_STEP_NONE) {
        return emit->leaves[chain->first_leaf + index].value;
    }
    return index == 0 ? emit->net->nodes[chain->base].output
                      : emit->leaves[chain->first_leaf + index - 1].value;
}

bool dunlin__fuse_is_folded(const dunlin_emit *emit, size_t node_index)
{
    const dunlin_net_node *node = &emit->net->nodes[node_index];
    return emit->options->is_fused &&
           (node->kind == DUNLIN_OP_CLIP || node->kind == DUNLIN_OP_UNARY) &&
           emit->values[node->inputs[0]].stored_as == node->output;
}

void dunlin__fuse_forward(dunlin_emit *emit, size_t node_index)
{
    const dunlin_net_node *node = &emit->net->nodes[node_index];
    const dunlin_emit_value *from = &emit->values[node->inputs[0]];
    dunlin_emit_value *to = &emit->values[node->output];
    to->tensor = from->tensor;
    to->pitch = from->pitch;
}
