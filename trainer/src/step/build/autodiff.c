/*
 * autodiff.c - reverse mode over the network: forward in node order, the loss, backward in reverse,
 * updates as early as they are right, running statistics last.
 *
 * Invariant: when a node's backward is emitted, all consumers of its output have been, so the
 * output's gradient is complete; when a parameter's update is emitted, all of its readers have
 * been.
 */
#include "choice.h"
#include "cut_ends.h"
#include "emit_integer.h"
#include "graph/emit.h"
#include "graph/rounded.h"
#include "integer/precision.h"
#include "integer/products.h"
#include "net/outputs.h"
#include "net/parts.h"
#include "ops/common/op.h"
#include "shrink.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <string.h>

void dunlin__step_graph_destroy(dunlin_step_graph *graph)
{
    if (graph == NULL) {
        return;
    }
    const dunlin_alloc alloc = graph->alloc;
    dunlin__free_array(&alloc, graph->tensors, graph->tensors_capacity, sizeof *graph->tensors);
    dunlin__free_array(&alloc, graph->ops, graph->ops_capacity, sizeof *graph->ops);
    dunlin__free_array(&alloc, graph->params, graph->n_params, sizeof *graph->params);
    dunlin__step_pool_free(&graph->pool);
    dunlin__free_array(&alloc, graph, 1, sizeof *graph);
}

static void add_persistent(dunlin_emit *emit, uint32_t param, const char *suffix,
                           dunlin_mem_class mem_class, uint32_t *out_tensor)
{
    const dunlin_net_param *net_param = &emit->net->params[param];
    const dunlin_precision *precision = emit->options->precision;
    *out_tensor = dunlin__emit_named_tensor(
        emit, net_param->name, suffix,
        &(dunlin_step_tensor){.dtype = precision != NULL ? precision->weights : DUNLIN_F32,
                              .n_elements = net_param->n_elements,
                              .mem_class = mem_class,
                              .is_persistent = true});
}

/* What is known of a table's rows, a byte each. */
static void add_row_states(dunlin_emit *emit, uint32_t param, uint32_t *out_tensor)
{
    const dunlin_net_param *net_param = &emit->net->params[param];
    *out_tensor =
        dunlin__emit_named_tensor(emit, net_param->name, "/rows",
                                  &(dunlin_step_tensor){.dtype = DUNLIN_U8,
                                                        .n_elements = net_param->shape.dims[0],
                                                        .mem_class = DUNLIN_MEM_OPTIMIZER,
                                                        .is_persistent = true});
}

/* The parameters first, then what the optimiser keeps of each: the same for both modes. */
static void add_params(dunlin_emit *emit)
{
    const dunlin_net *net = emit->net;
    const dunlin_step_build_options *options = emit->options;
    for (uint32_t i = 0; i < net->n_params; i++) {
        const bool is_statistic = net->params[i].role == DUNLIN_PARAMETER_STATISTIC;
        emit->params[i].gradient = DUNLIN_STEP_NONE;
        emit->params[i].waiting = DUNLIN_STEP_NONE;
        emit->params[i].first_node = SIZE_MAX;
        const dunlin_choice choice = dunlin__choose(net, options, i);
        emit->params[i].is_fixed = choice.is_fixed;
        emit->params[i].is_trained = choice.is_trained;
        emit->params[i].lr_factor = choice.lr_factor;
        emit->params[i].decay_factor = choice.decay_factor;
        dunlin_step_param *param = &emit->graph->params[i];
        param->is_trained = emit->params[i].is_trained;
        param->group = choice.group;
        param->low = DUNLIN_STEP_NONE;
        param->momentum = DUNLIN_STEP_NONE;
        param->square = DUNLIN_STEP_NONE;
        param->rows = DUNLIN_STEP_NONE;
        for (size_t s = 0; s < DUNLIN_STEP_MAX_SLOTS; s++) {
            param->slots[s] = DUNLIN_STEP_NONE;
        }
        add_persistent(emit, i, "", is_statistic ? DUNLIN_MEM_STATISTIC : DUNLIN_MEM_WEIGHT,
                       &param->tensor);
    }
    static const char *const slot_names[DUNLIN_STEP_MAX_SLOTS] = {"/slot0", "/slot1", "/slot2",
                                                                  "/slot3"};
    for (uint32_t i = 0; i < net->n_params; i++) {
        dunlin_step_param *param = &emit->graph->params[i];
        if (options->precision != NULL && options->precision->has_low_bytes) {
            add_persistent(emit, i, "/low", DUNLIN_MEM_WEIGHT, &param->low);
        }
        const bool is_adam = options->optimizer != DUNLIN_OPTIMIZER_SGD;
        if (param->is_trained && (options->has_momentum || is_adam)) {
            add_persistent(emit, i, is_adam ? "/mean" : "/momentum", DUNLIN_MEM_OPTIMIZER,
                           &param->momentum);
        }
        if (param->is_trained && is_adam) {
            add_persistent(emit, i, "/square", DUNLIN_MEM_OPTIMIZER, &param->square);
        }
        if (param->momentum != DUNLIN_STEP_NONE && emit->params[i].is_by_rows) {
            add_row_states(emit, i, &param->rows);
        }
        for (int32_t s = 0; param->is_trained && s < options->n_gradient_slots; s++) {
            add_persistent(emit, i, slot_names[s], DUNLIN_MEM_OPTIMIZER, &param->slots[s]);
        }
    }
    if (options->precision != NULL) {
        dunlin__emit_integer_sites(emit);
    }
    emit->graph->n_persistent = (uint32_t)emit->graph->n_tensors;
}

/* Which values lead back to a trained parameter, and which node is a parameter's first reader. */
static void mark_gradients(dunlin_emit *emit)
{
    const dunlin_net *net = emit->net;
    for (size_t v = 0; v < net->n_values; v++) {
        emit->values[v] = (dunlin_emit_value){.tensor = DUNLIN_STEP_NONE};
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        bool needs_grad = false;
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            needs_grad = needs_grad || emit->values[node->inputs[k]].needs_grad;
        }
        for (uint32_t k = 0; k < node->n_params; k++) {
            const uint32_t param = node->params[k];
            if (param == DUNLIN_NET_NONE) {
                continue;
            }
            needs_grad = needs_grad || dunlin__emit_is_trained(emit, param);
            if (emit->params[param].first_node == SIZE_MAX) {
                emit->params[param].first_node = i;
            }
        }
        emit->values[node->output].needs_grad = needs_grad;
    }
    dunlin__emit_reset_grads(emit);
}

static void begin_node(dunlin_emit *emit, size_t node_index)
{
    emit->node_index = node_index;
    emit->node_name = emit->net->nodes[node_index].name;
}

static void note_norm(dunlin_emit *emit)
{
    dunlin_step_graph *graph = emit->graph;
    const bool is_live =
        emit->options->mode == DUNLIN_EMIT_TRAIN && !dunlin__emit_is_norm_frozen(emit);
    if (is_live && graph->live_norm == NULL) {
        graph->live_norm = dunlin__step_pool_text(&graph->pool, emit->node_name, "");
        if (graph->live_norm == NULL) {
            (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
        }
    }
    graph->n_ghost_norms += dunlin__emit_is_norm_ghost(emit) ? 1 : 0;
}

static void emit_forward(dunlin_emit *emit)
{
    const dunlin_net *net = emit->net;
    for (size_t i = 0; i < net->n_nodes && emit->status == DUNLIN_OK; i++) {
        begin_node(emit, i);
        for (size_t k = 0; k < DUNLIN_EMIT_MAX_SAVED; k++) {
            emit->kept[i].tensors[k] = DUNLIN_STEP_NONE;
        }
        if (dunlin__net_cuts_input(net, &net->nodes[i]) && dunlin__emit_stages_parts(emit)) {
            continue;
        }
        if (dunlin__fuse_is_folded(emit, i)) {
            dunlin__fuse_forward(emit, i);
        } else if (dunlin__emit_is_product(emit, &net->nodes[i])) {
            dunlin__products_forward(emit, &net->nodes[i]);
        } else if (i != emit->class_layer) {
            dunlin__op_row(net->nodes[i].kind)->forward_fn(emit, &net->nodes[i]);
        }
        if (net->nodes[i].kind == DUNLIN_OP_BATCH_NORM) {
            note_norm(emit);
        }
    }
    dunlin_step_graph *graph = emit->graph;
    const bool has_logits = emit->status == DUNLIN_OK && emit->class_layer == DUNLIN_STEP_NONE;
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const uint32_t value = dunlin__net_output_at(net, i);
        graph->outputs[i].logits = has_logits ? dunlin__emit_value(emit, value) : DUNLIN_STEP_NONE;
    }
    graph->logits = graph->outputs[0].logits;
}

/* Updates of the parameters that no node before this one reads. */
static void emit_updates(dunlin_emit *emit, size_t node_index)
{
    const dunlin_net_node *node = &emit->net->nodes[node_index];
    for (uint32_t k = 0; k < node->n_params; k++) {
        const uint32_t param = node->params[k];
        if (param != DUNLIN_NET_NONE && emit->params[param].first_node == node_index &&
            emit->params[param].gradient != DUNLIN_STEP_NONE) {
            dunlin__emit_update(emit, param);
            emit->params[param].gradient = DUNLIN_STEP_NONE;
        }
    }
}

/* One reader less to wait for, whether it contributed or not. */
static void close_edges(dunlin_emit *emit, size_t node_index)
{
    for (uint32_t k = 0; k < dunlin__fuse_n_inputs(emit, node_index); k++) {
        emit->values[dunlin__fuse_input(emit, node_index, k)].n_open--;
    }
}

static void emit_backward(dunlin_emit *emit, const uint32_t *gradients)
{
    const dunlin_net *net = emit->net;
    emit->is_backward = true;
    emit->node_index = net->n_nodes;
    for (uint32_t i = 0; i < emit->graph->n_outputs; i++) {
        const uint32_t value = dunlin__net_output_at(net, i);
        if (gradients[i] != DUNLIN_STEP_NONE) {
            dunlin__emit_grad_alias(emit, value, gradients[i]);
            dunlin__emit_settle(emit);
        }
        emit->values[value].n_open--;
    }
    for (size_t i = net->n_nodes; i-- > 0 && emit->status == DUNLIN_OK;) {
        const dunlin_net_node *node = &net->nodes[i];
        begin_node(emit, i);
        if (i == emit->class_layer) {
            dunlin__emit_settle(emit); /* what the loss has made */
        } else if (dunlin__emit_has_grad(emit, node->output) &&
                   emit->values[node->output].needs_grad) {
            if (dunlin__fuse_is_folded(emit, i)) {
                dunlin__emit_pass_grad(emit, node->output, node->inputs[0]);
            } else if (dunlin__emit_is_product(emit, node)) {
                dunlin__products_backward(emit, node);
                dunlin__emit_settle(emit);
            } else {
                dunlin__op_row(node->kind)->backward_fn(emit, node);
                dunlin__emit_settle(emit);
            }
        }
        close_edges(emit, i);
        emit_updates(emit, i);
    }
    dunlin__emit_waiting_updates(emit);
    dunlin__emit_flush_last(emit);
    if (emit->products != NULL) {
        dunlin__products_emit_adapt(emit);
    }
    dunlin__emit_guard_input(emit);
}

static void emit_floats(dunlin_emit *emit)
{
    dunlin__fuse_plan(emit);
    dunlin__emit_input(emit);
    emit_forward(emit);
    if (emit->status != DUNLIN_OK) {
        return;
    }
    emit->node_name = "loss";
    uint32_t gradients[DUNLIN_NET_MAX_OUTPUTS];
    dunlin__emit_loss(emit, gradients);
    if (emit->options->mode == DUNLIN_EMIT_TRAIN) {
        emit_backward(emit, gradients);
    }
}

static dunlin_status emit_all(dunlin_emit *emit)
{
    struct dunlin_products products;
    dunlin__rows_plan(emit);
    add_params(emit);
    if (!dunlin__choice_keep_groups(emit->options, emit->graph)) {
        return dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the groups of parameters");
    }
    mark_gradients(emit);
    if (dunlin__precision_is_whole(emit->options->precision)) {
        dunlin__emit_integer_step(emit);
        return emit->status;
    }
    if (emit->options->precision != NULL) {
        dunlin__products_open(emit, &products);
    }
    emit_floats(emit);
    dunlin__products_close(emit);
    return emit->status;
}

/* A row of logits a sample, a pixel, or a token: the classes are what lies together. */
static dunlin_status describe_output(const dunlin_net *net, uint32_t value, dunlin_step_output *out,
                                     dunlin_error *error)
{
    const dunlin_net_value *output = &net->values[value];
    const dunlin_shape *shape = &output->shape;
    const int64_t n = dunlin__value_elements(output);
    if (n < 1 || n > INT32_MAX) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "step", 0,
                            "output \"%.80s\" has %d dimensions and %lld elements a sample, not 1 "
                            "to %d",
                            output->name, (int)shape->n_dims, (long long)n, INT32_MAX);
    }
    int64_t classes = 0;
    dunlin__value_rows(output, &out->n_rows, &classes);
    out->n_classes = (int32_t)classes;
    out->is_image = output->layout == DUNLIN_LAYOUT_IMAGE && out->n_rows > 1 && out->n_classes > 1;
    return DUNLIN_OK;
}

/* The first output's are the graph's own too. `whole`: with its ends, whose names they have. */
static dunlin_status describe_outputs(const dunlin_net *net, const dunlin_net *whole,
                                      const dunlin_step_build_options *options,
                                      const dunlin_end *ends, dunlin_step_graph *graph,
                                      dunlin_error *error)
{
    graph->n_outputs = dunlin__net_n_outputs(net);
    graph->outputs =
        dunlin__step_pool_take(&graph->pool, graph->n_outputs * sizeof *graph->outputs);
    if (graph->outputs == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "step", 0, "no memory for the graph of a step");
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        graph->outputs[i] =
            (dunlin_step_output){.loss = dunlin__loss_of(options, i), .end = ends[i]};
        DUNLIN_TRY(describe_output(net, dunlin__net_output_at(net, i), &graph->outputs[i], error));
        const char *name = whole->values[dunlin__net_output_at(whole, i)].name;
        graph->outputs[i].name = dunlin__step_pool_text(&graph->pool, name, "");
        if (graph->outputs[i].name == NULL) {
            return dunlin__fail(error, DUNLIN_MEMORY, "step", 0,
                                "no memory for the graph of a step");
        }
    }
    graph->n_classes = graph->outputs[0].n_classes;
    graph->n_rows = graph->outputs[0].n_rows;
    graph->is_image = graph->outputs[0].is_image;
    return DUNLIN_OK;
}

static size_t count_leaves(const dunlin_net *net)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        n += net->nodes[i].kind == DUNLIN_OP_CONCAT ? net->nodes[i].n_inputs : 0;
    }
    return n;
}

/* What the network, without its ends, and the options ask for. */
static dunlin_status check_build(const dunlin_net *net, const dunlin_step_build_options *options,
                                 const dunlin_step_graph *graph, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__choice_check(net, options, error));
    if (options->n_class_weights > 0 && options->n_class_weights != graph->n_classes) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "step", 0,
                            "there are %d weights of classes; the model has %d classes",
                            (int)options->n_class_weights, (int)graph->n_classes);
    }
    if (dunlin__precision_is_whole(options->precision) && graph->n_rows > 1) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "step", 0,
                            "the output has %lld rows of logits a sample; a precision of integers "
                            "has one",
                            (long long)graph->n_rows);
    }
    if (options->precision != NULL && graph->n_outputs > 1) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "step", 0,
                            "there are %u outputs; a precision of integers has one",
                            (unsigned int)graph->n_outputs);
    }
    if (options->precision != NULL) {
        DUNLIN_TRY(dunlin__precision_check(options->precision, net, options->loss, error));
    }
    return DUNLIN_OK;
}

/* Of a network without what the losses take from its ends. */
static dunlin_status build_cut(const dunlin_net *net, const dunlin_net *whole,
                               const dunlin_end *ends, const dunlin_step_build_options *options,
                               dunlin_step_graph *graph, dunlin_error *error)
{
    DUNLIN_TRY(describe_outputs(net, whole, options, ends, graph, error));
    DUNLIN_TRY(check_build(net, options, graph, error));
    graph->batch = options->batch;
    graph->storage = options->storage;
    /* The pieces in which narrow tensors become floats are a part of the batch (narrow.c). */
    graph->follows_batch = options->storage != DUNLIN_STORAGE_EXACT;
    const dunlin_alloc *alloc = &graph->alloc;
    dunlin_emit *emit = dunlin__alloc_zeroed(alloc, 1, sizeof *emit);
    if (emit == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "step", 0, "no memory to build a step");
    }
    emit->net = net;
    emit->end = ends[0];
    emit->options = options;
    emit->graph = graph;
    emit->error = error;
    emit->node_name = "";
    emit->squares = DUNLIN_STEP_NONE;
    emit->class_layer = DUNLIN_STEP_NONE;
    /* A network without parameters is legal; arrays are never of length zero. */
    emit->values = dunlin__alloc_zeroed(alloc, net->n_values + 1, sizeof *emit->values);
    emit->params = dunlin__alloc_zeroed(alloc, net->n_params + 1, sizeof *emit->params);
    emit->kept = dunlin__alloc_zeroed(alloc, net->n_nodes + 1, sizeof *emit->kept);
    emit->norms = dunlin__alloc_zeroed(alloc, net->n_nodes + 1, sizeof *emit->norms);
    emit->chains = dunlin__alloc_zeroed(alloc, net->n_nodes + 1, sizeof *emit->chains);
    emit->leaves_capacity = count_leaves(net) + 1;
    emit->leaves = dunlin__alloc_zeroed(alloc, emit->leaves_capacity, sizeof *emit->leaves);
    dunlin_status status = DUNLIN_OK;
    if (emit->values == NULL || emit->params == NULL || emit->kept == NULL || emit->norms == NULL ||
        emit->chains == NULL || emit->leaves == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "step", 0,
                              "no memory to build a step of %zu nodes", net->n_nodes);
    } else {
        status = emit_all(emit);
    }
    dunlin__free_array(alloc, emit->last_ops, emit->last_ops_capacity, sizeof *emit->last_ops);
    dunlin__free_array(alloc, emit->values, net->n_values + 1, sizeof *emit->values);
    dunlin__free_array(alloc, emit->params, net->n_params + 1, sizeof *emit->params);
    dunlin__free_array(alloc, emit->kept, net->n_nodes + 1, sizeof *emit->kept);
    dunlin__free_array(alloc, emit->norms, net->n_nodes + 1, sizeof *emit->norms);
    dunlin__free_array(alloc, emit->chains, net->n_nodes + 1, sizeof *emit->chains);
    dunlin__free_array(alloc, emit->leaves, emit->leaves_capacity, sizeof *emit->leaves);
    dunlin__free_array(alloc, emit, 1, sizeof *emit);
    return status == DUNLIN_OK ? dunlin__step_shrink(graph, error) : status;
}

static dunlin_status build_into(const dunlin_net *whole, const dunlin_step_build_options *options,
                                dunlin_step_graph *graph, dunlin_error *error)
{
    dunlin_net cut;
    dunlin_end ends[DUNLIN_NET_MAX_OUTPUTS];
    if (whole->n_heads == 0) {
        ends[0] = dunlin__end_cut(whole, dunlin__loss_of(options, 0).loss, &cut);
        return build_cut(&cut, whole, ends, options, graph, error);
    }
    DUNLIN_TRY(dunlin__ends_cut(whole, options, &graph->alloc, &cut, ends, error));
    const dunlin_status status = build_cut(&cut, whole, ends, options, graph, error);
    dunlin__net_free(&cut);
    return status;
}

dunlin_status dunlin__step_build(const dunlin_net *net, const dunlin_step_build_options *options,
                                 const dunlin_alloc *alloc, dunlin_step_graph **out_graph,
                                 dunlin_error *error)
{
    *out_graph = NULL;
    const dunlin_alloc hooks = dunlin__alloc_or_default(alloc);
    dunlin_step_graph *graph = dunlin__alloc_zeroed(&hooks, 1, sizeof *graph);
    if (graph == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "step", 0, "no memory for the graph of a step");
    }
    graph->alloc = hooks;
    graph->pool.alloc = hooks;
    graph->n_params = net->n_params;
    dunlin_status status = DUNLIN_OK;
    if (net->n_params > 0) {
        graph->params = dunlin__alloc_zeroed(&hooks, net->n_params, sizeof *graph->params);
        if (graph->params == NULL) {
            status = dunlin__fail(error, DUNLIN_MEMORY, "step", 0,
                                  "no memory for the tables of %zu parameters", net->n_params);
        }
    }
    if (status == DUNLIN_OK) {
        status = build_into(net, options, graph, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__step_graph_destroy(graph);
        return status;
    }
    *out_graph = graph;
    return DUNLIN_OK;
}
