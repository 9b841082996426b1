/*
 * cut_ends.c - a network with several outputs without what their losses take from their ends, or
 * without all but one of them.
 */
#include "cut_ends.h"

#include "net/outputs.h"
#include "net/parts.h"

#include <mem/support.h>

#include <string.h>

dunlin_step_loss dunlin__loss_of(const dunlin_step_build_options *options, uint32_t index)
{
    return options->losses != NULL ? options->losses[index]
                                   : (dunlin_step_loss){.loss = options->loss,
                                                        .weight = 1.0F,
                                                        .smoothing = options->label_smoothing};
}

/* Takes out the dead nodes. */
static dunlin_status take_out(dunlin_net *net, const bool *is_dead, dunlin_error *error)
{
    const size_t n_values = net->n_values;
    uint32_t *map = dunlin__alloc_array(&net->alloc, n_values, sizeof *map);
    if (map == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "step", 0, "no memory for %zu values", n_values);
    }
    dunlin__net_compact(net, is_dead, map);
    dunlin__free_array(&net->alloc, map, n_values, sizeof *map);
    return dunlin__net_infer_values(net, error);
}

/* The output becomes what its loss is over. */
static dunlin_end cut_one(dunlin_net *net, uint32_t index, dunlin_loss loss, bool *is_dead)
{
    uint32_t value = dunlin__net_output_at(net, index);
    uint32_t before = value;
    uint32_t n_nodes = 0;
    const dunlin_end end = dunlin__end_find(net, value, loss, &before, &n_nodes);
    for (uint32_t i = 0; i < n_nodes; i++) {
        const uint32_t node = net->values[value].producer;
        is_dead[node] = true;
        value = net->nodes[node].inputs[0];
    }
    *(index == 0 ? &net->output : &net->heads[index - 1]) = before;
    return end;
}

/* Marks what leads to no other output than the first; ports of the others are taken off. */
static void keep_first(dunlin_net *net, bool *is_dead)
{
    memset(is_dead, 1, net->n_nodes * sizeof *is_dead);
    is_dead[net->values[net->output].producer] = false;
    for (size_t i = net->n_nodes; i-- > 0;) {
        const dunlin_net_node *node = &net->nodes[i];
        is_dead[i] = is_dead[i] && !dunlin__net_cuts_input(net, node);
        for (uint32_t k = 0; !is_dead[i] && k < node->n_inputs; k++) {
            const uint32_t producer = net->values[node->inputs[k]].producer;
            if (producer != DUNLIN_NET_NONE) {
                is_dead[producer] = false;
            }
        }
    }
    net->n_ports -= net->n_ports > 0 ? net->n_heads : 0;
    net->n_heads = 0;
}

dunlin_status dunlin__ends_cut(const dunlin_net *net, const dunlin_step_build_options *options,
                               const dunlin_alloc *alloc, dunlin_net *out_cut, dunlin_end *out_ends,
                               dunlin_error *error)
{
    const dunlin_status copied = dunlin__net_copy(net, alloc, out_cut);
    if (copied != DUNLIN_OK) {
        return dunlin__fail(error, copied, "step", 0, "no %s for a copy of a network",
                            copied == DUNLIN_MEMORY ? "memory" : "descriptor");
    }
    const size_t n_nodes = out_cut->n_nodes;
    bool *is_dead = dunlin__alloc_zeroed(alloc, n_nodes, sizeof *is_dead);
    dunlin_status status = DUNLIN_OK;
    if (is_dead == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "step", 0, "no memory for %zu nodes", n_nodes);
    } else {
        if (options->has_first_output_alone) {
            keep_first(out_cut, is_dead);
        }
        for (uint32_t i = 0; i < dunlin__net_n_outputs(out_cut); i++) {
            out_ends[i] = cut_one(out_cut, i, dunlin__loss_of(options, i).loss, is_dead);
        }
        status = take_out(out_cut, is_dead, error);
    }
    dunlin__free_array(alloc, is_dead, n_nodes, sizeof *is_dead);
    if (status != DUNLIN_OK) {
        dunlin__net_free(out_cut);
    }
    return status;
}
