/*
 * emit_integer.c - a step in integers: the same walk over the network as autodiff.c's, with the
 * precision's rows in place of the float ones.
 *
 * Invariant: when a node's backward is emitted, all consumers of its output have been, so its error
 * is complete; a parameter has one reader, so its gradient is complete after that reader's.
 */
#include "emit_integer.h"

#include "integer/int_emit.h"
#include "integer/products.h"

#include <mem/support.h>

static void begin(dunlin_emit *emit, size_t node_index)
{
    emit->node_index = node_index;
    emit->node_name = emit->net->nodes[node_index].name;
}

static void walk_forward(dunlin_integer *integer)
{
    dunlin_emit *emit = integer->emit;
    for (size_t i = 0; i < emit->net->n_nodes && emit->status == DUNLIN_OK; i++) {
        begin(emit, i);
        const dunlin_net_node *node = &emit->net->nodes[i];
        integer->precision->rows[node->kind]->forward_fn(integer, node);
    }
    emit->graph->logits = integer->values[emit->net->output].tensor;
}

static void update_node(dunlin_integer *integer, const dunlin_net_node *node, bool is_late)
{
    dunlin_emit *emit = integer->emit;
    for (uint32_t k = 0; k < node->n_params; k++) {
        const uint32_t param = node->params[k];
        if (param != DUNLIN_NET_NONE && emit->params[param].gradient != DUNLIN_STEP_NONE &&
            is_late == emit->options->updates_last) {
            dunlin__integer_emit_update(integer, param);
            emit->params[param].gradient = DUNLIN_STEP_NONE;
        }
    }
}

static void walk_backward(dunlin_integer *integer)
{
    dunlin_emit *emit = integer->emit;
    const dunlin_net *net = emit->net;
    emit->is_backward = true;
    for (size_t i = net->n_nodes; i-- > 0 && emit->status == DUNLIN_OK;) {
        begin(emit, i);
        const dunlin_net_node *node = &net->nodes[i];
        if (integer->errors[node->output].tensor != DUNLIN_STEP_NONE &&
            emit->values[node->output].needs_grad) {
            dunlin__integer_emit_mask(integer, node->output);
            integer->precision->rows[node->kind]->backward_fn(integer, node);
        }
        update_node(integer, node, false);
    }
    for (size_t i = net->n_nodes; i-- > 0 && emit->status == DUNLIN_OK;) {
        update_node(integer, &net->nodes[i], true);
    }
    dunlin__integer_emit_adapt(integer);
    dunlin__emit_guard_input(emit);
}

static void walk(dunlin_integer *integer)
{
    dunlin_emit *emit = integer->emit;
    const bool is_training = emit->options->mode == DUNLIN_EMIT_TRAIN;
    if (is_training) {
        integer->counts = dunlin__emit_named_tensor(
            emit, "scales", "/counts",
            &(dunlin_step_tensor){.dtype = DUNLIN_I32,
                                  .n_elements = (int64_t)dunlin__integer_n_sites(emit->net) *
                                                DUNLIN_COUNT_INTS,
                                  .mem_class = DUNLIN_MEM_ACCUMULATOR});
    }
    dunlin__emit_input(emit);
    dunlin__integer_emit_input(integer);
    walk_forward(integer);
    if (emit->status != DUNLIN_OK) {
        return;
    }
    emit->node_index = emit->net->n_nodes;
    emit->node_name = "loss";
    dunlin__integer_emit_loss(integer);
    if (is_training) {
        walk_backward(integer);
    }
}

void dunlin__emit_integer_sites(dunlin_emit *emit)
{
    dunlin_step_graph *graph = emit->graph;
    const bool is_whole = dunlin__precision_is_whole(emit->options->precision);
    const int64_t n_ints = is_whole ? DUNLIN_SITE_INTS : DUNLIN_RANGE_INTS;
    graph->precision = emit->options->precision;
    graph->n_sites = is_whole ? dunlin__integer_n_sites(emit->net)
                              : dunlin__products_n_ranges(emit->options->precision, emit->net);
    graph->sites = dunlin__emit_named_tensor(
        emit, is_whole ? "scales" : "ranges", "",
        &(dunlin_step_tensor){.dtype = DUNLIN_I32,
                              .n_elements = (int64_t)graph->n_sites * n_ints,
                              .mem_class = DUNLIN_MEM_STATISTIC,
                              .is_persistent = true});
}

void dunlin__emit_integer_step(dunlin_emit *emit)
{
    const dunlin_alloc *alloc = &emit->graph->alloc;
    const size_t n = emit->net->n_values + 1;
    const size_t n_params = emit->net->n_params + 1;
    dunlin_integer integer = {
        .emit = emit, .precision = emit->options->precision, .counts = DUNLIN_STEP_NONE};
    integer.values = dunlin__alloc_zeroed(alloc, n, sizeof *integer.values);
    integer.errors = dunlin__alloc_zeroed(alloc, n, sizeof *integer.errors);
    integer.folds = dunlin__alloc_zeroed(alloc, n, sizeof *integer.folds);
    integer.is_updated = dunlin__alloc_zeroed(alloc, n_params, sizeof *integer.is_updated);
    if (integer.values == NULL || integer.errors == NULL || integer.folds == NULL ||
        integer.is_updated == NULL) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory to build a step in integers");
    } else {
        for (size_t i = 0; i < n; i++) {
            integer.values[i].tensor = DUNLIN_STEP_NONE;
            integer.errors[i].tensor = DUNLIN_STEP_NONE;
        }
        dunlin__integer_plan_folds(&integer);
        walk(&integer);
    }
    dunlin__free_array(alloc, integer.values, n, sizeof *integer.values);
    dunlin__free_array(alloc, integer.errors, n, sizeof *integer.errors);
    dunlin__free_array(alloc, integer.folds, n, sizeof *integer.folds);
    dunlin__free_array(alloc, integer.is_updated, n_params, sizeof *integer.is_updated);
    dunlin__free_array(alloc, integer.links, integer.links_capacity, sizeof *integer.links);
}
