/*
 * emit.c - the emitter: how the rows of ops/ add tensors and kernels to a graph under construction.
 *
 * Invariant: after the first failure nothing is added any more, and every index handed out before
 * it is valid.
 */
#include "emit.h"

#include "gather.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <assert.h>
#include <string.h>

#define MAX_TENSORS ((size_t)1 << 24)

dunlin_status dunlin__emit_fail(dunlin_emit *emit, dunlin_status status, const char *text)
{
    if (emit->status == DUNLIN_OK) {
        emit->status = dunlin__fail(emit->error, status, "step", 0, "node \"%.80s\": %s",
                                    emit->node_name, text);
    }
    return status;
}

dunlin_emit_mode dunlin__emit_mode(const dunlin_emit *emit)
{
    return emit->options->mode;
}

const dunlin_net *dunlin__emit_net(const dunlin_emit *emit)
{
    return emit->net;
}

bool dunlin__emit_is_norm_frozen(const dunlin_emit *emit)
{
    if (emit->options->freeze_batch_norm) {
        return true;
    }
    /* Running statistics under a frozen prefix stay as they are. */
    const dunlin_net_node *node = &emit->net->nodes[emit->node_index];
    for (uint32_t i = 0; i < node->n_params; i++) {
        const uint32_t param = node->params[i];
        if (param != DUNLIN_NET_NONE &&
            emit->net->params[param].role == DUNLIN_PARAMETER_STATISTIC &&
            emit->params[param].is_fixed) {
            return true;
        }
    }
    return false;
}

bool dunlin__emit_is_norm_ghost(const dunlin_emit *emit)
{
    return emit->options->is_ghost && emit->options->mode == DUNLIN_EMIT_TRAIN &&
           !dunlin__emit_is_norm_frozen(emit);
}

bool dunlin__emit_is_trained(const dunlin_emit *emit, uint32_t param)
{
    return param != DUNLIN_NET_NONE && emit->params[param].is_trained &&
           emit->options->mode == DUNLIN_EMIT_TRAIN;
}

bool dunlin__emit_needs_grad(const dunlin_emit *emit, uint32_t value)
{
    return value != DUNLIN_NET_NONE && emit->values[value].needs_grad;
}

uint32_t dunlin__emit_named_tensor(dunlin_emit *emit, const char *first, const char *second,
                                   const dunlin_step_tensor *like)
{
    if (emit->status != DUNLIN_OK) {
        return DUNLIN_STEP_NONE;
    }
    dunlin_step_graph *graph = emit->graph;
    int64_t bytes = 0;
    if (like->n_elements < 1 ||
        !dunlin__mul_i64(like->n_elements, (int64_t)dunlin_dtype_bytes(like->dtype), &bytes) ||
        graph->n_tensors >= MAX_TENSORS) {
        (void)dunlin__emit_fail(emit, DUNLIN_OVERFLOW, "a tensor is empty or too large");
        return DUNLIN_STEP_NONE;
    }
    void *tensors = graph->tensors;
    const char *name = dunlin__step_pool_text(&graph->pool, first, second);
    if (name == NULL || !dunlin__grow_array(&graph->alloc, &tensors, &graph->tensors_capacity,
                                            graph->n_tensors + 1, sizeof *graph->tensors)) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
        return DUNLIN_STEP_NONE;
    }
    graph->tensors = tensors;
    dunlin_step_tensor *tensor = &graph->tensors[graph->n_tensors];
    *tensor = *like;
    tensor->name = name;
    return (uint32_t)graph->n_tensors++;
}

uint32_t dunlin__emit_tensor(dunlin_emit *emit, const char *suffix, dunlin_dtype dtype,
                             bool is_batched, int64_t n_elements, dunlin_mem_class mem_class)
{
    return dunlin__emit_named_tensor(emit, emit->node_name, suffix,
                                     &(dunlin_step_tensor){.dtype = dtype,
                                                           .is_batched = is_batched,
                                                           .n_elements = n_elements,
                                                           .mem_class = mem_class});
}

uint32_t dunlin__emit_statistic(dunlin_emit *emit, const char *suffix, dunlin_dtype dtype,
                                bool is_ghost, int64_t n_elements, dunlin_mem_class mem_class)
{
    return dunlin__emit_named_tensor(
        emit, emit->node_name, suffix,
        &(dunlin_step_tensor){.dtype = dtype,
                              .is_per_slice = is_ghost,
                              .n_elements = n_elements,
                              .mem_class = is_ghost ? DUNLIN_MEM_SAVED : mem_class});
}

uint32_t dunlin__emit_output(dunlin_emit *emit, uint32_t value)
{
    const dunlin_net_value *net_value = &emit->net->values[value];
    const uint32_t tensor = dunlin__emit_named_tensor(
        emit, net_value->name, "",
        &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                              .is_batched = true,
                              .n_elements = dunlin__value_elements(net_value),
                              .mem_class = DUNLIN_MEM_ACTIVATION});
    emit->values[value].tensor = tensor;
    return tensor;
}

void dunlin__emit_alias(dunlin_emit *emit, uint32_t value, uint32_t tensor)
{
    emit->values[value].tensor = tensor;
}

uint32_t dunlin__emit_param(dunlin_emit *emit, uint32_t param)
{
    return emit->graph->params[param].tensor;
}

const char *dunlin__emit_param_name(const dunlin_emit *emit, uint32_t param)
{
    const dunlin_step_graph *graph = emit->graph;
    const uint32_t tensor = graph->params[param].tensor;
    return tensor < graph->n_tensors ? graph->tensors[tensor].name : "";
}

static uint32_t pending_of(const dunlin_emit *emit, uint32_t target, bool is_param)
{
    for (size_t i = 0; i < emit->n_pending; i++) {
        if (emit->pending[i].target == target && emit->pending[i].is_param == is_param) {
            return emit->pending[i].tensor;
        }
    }
    return DUNLIN_STEP_NONE;
}

static void add_pending(dunlin_emit *emit, uint32_t target, uint32_t tensor, bool is_param)
{
    if (tensor == DUNLIN_STEP_NONE || emit->status != DUNLIN_OK) {
        return;
    }
    if (emit->n_pending == sizeof emit->pending / sizeof emit->pending[0]) {
        (void)dunlin__emit_fail(emit, DUNLIN_INTERNAL, "more gradients than inputs");
        return;
    }
    emit->pending[emit->n_pending++] =
        (dunlin_emit_contribution){.target = target, .tensor = tensor, .is_param = is_param};
}

uint32_t dunlin__emit_param_grad(dunlin_emit *emit, uint32_t param)
{
    assert(dunlin__emit_is_trained(emit, param));
    uint32_t tensor = pending_of(emit, param, true);
    if (tensor == DUNLIN_STEP_NONE) {
        const bool follows_batch = emit->params[param].is_by_rows;
        tensor = dunlin__emit_named_tensor(
            emit, emit->net->params[param].name, "/grad",
            &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                                  .n_elements = dunlin__rows_elements(emit, param),
                                  .mem_class = DUNLIN_MEM_ACCUMULATOR,
                                  .follows_batch = follows_batch});
        emit->graph->follows_batch = emit->graph->follows_batch || follows_batch;
        add_pending(emit, param, tensor, true);
    }
    return tensor;
}

uint32_t dunlin__emit_grad_target(dunlin_emit *emit, uint32_t value)
{
    const dunlin_net_value *net_value = &emit->net->values[value];
    const uint32_t tensor = dunlin__emit_named_tensor(
        emit, net_value->name, "/grad",
        &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                              .is_batched = true,
                              .n_elements = dunlin__value_elements(net_value),
                              .mem_class = DUNLIN_MEM_GRADIENT});
    add_pending(emit, value, tensor, false);
    return tensor;
}

void dunlin__emit_grad_alias(dunlin_emit *emit, uint32_t value, uint32_t tensor)
{
    add_pending(emit, value, tensor, false);
}

void dunlin__emit_save(dunlin_emit *emit, uint32_t index, uint32_t tensor)
{
    assert(index < DUNLIN_EMIT_MAX_SAVED);
    emit->kept[emit->node_index].tensors[index] = tensor;
}

uint32_t dunlin__emit_saved(const dunlin_emit *emit, uint32_t index)
{
    assert(index < DUNLIN_EMIT_MAX_SAVED);
    return emit->kept[emit->node_index].tensors[index];
}

/* Checks the op against the graph and copies what it points to. */
static bool make_op(dunlin_emit *emit, const dunlin_emit_op *from, dunlin_step_op *out_op)
{
    if (emit->status != DUNLIN_OK) {
        return false;
    }
    dunlin_step_graph *graph = emit->graph;
    if (from->n_accesses > DUNLIN_STEP_MAX_ACCESSES) {
        (void)dunlin__emit_fail(emit, DUNLIN_OVERFLOW, "the op touches too many tensors");
        return false;
    }
    for (uint32_t i = 0; i < from->n_accesses; i++) {
        if (from->accesses[i].tensor >= graph->n_tensors) {
            (void)dunlin__emit_fail(emit, DUNLIN_INTERNAL, "the op touches a tensor not made yet");
            return false;
        }
    }
    const void *params = NULL;
    if (from->params_bytes > 0) {
        params = dunlin__step_pool_copy(&graph->pool, from->params, from->params_bytes);
    }
    uint32_t n_accesses = 0;
    const dunlin_mem_access *accesses = NULL;
    const dunlin_status gathered = dunlin__gather_accesses(graph, from, &accesses, &n_accesses);
    if (gathered != DUNLIN_OK) {
        (void)dunlin__emit_fail(emit, gathered,
                                gathered == DUNLIN_OVERFLOW ? "the op touches too many tensors"
                                                            : "no memory for the graph of a step");
        return false;
    }
    const char *name = dunlin__step_pool_text(&graph->pool, emit->node_name, from->suffix);
    if (name == NULL || (params == NULL && from->params_bytes > 0)) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
        return false;
    }
    *out_op = (dunlin_step_op){.kernel = from->kernel,
                               .name = name,
                               .params = params,
                               .accesses = accesses,
                               .n_accesses = (uint16_t)n_accesses,
                               .n_own = (uint16_t)from->n_accesses,
                               .is_backward = emit->is_backward,
                               .reads_halves = from->reads_halves,
                               .writes_halves = from->writes_halves,
                               .flops_per_sample = from->flops_per_sample,
                               .reduce_flops_per_sample = from->reduce_flops_per_sample,
                               .flops_fixed = from->flops_fixed};
    return true;
}

static bool append_op(dunlin_emit *emit, dunlin_step_op **ops, size_t *n, size_t *capacity,
                      const dunlin_step_op *op)
{
    void *array = *ops;
    if (!dunlin__grow_array(&emit->graph->alloc, &array, capacity, *n + 1, sizeof *op)) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
        return false;
    }
    *ops = array;
    (*ops)[(*n)++] = *op;
    return true;
}

void dunlin__emit_run(dunlin_emit *emit, const dunlin_emit_op *op)
{
    dunlin_step_op made;
    if (make_op(emit, op, &made)) {
        dunlin_step_graph *graph = emit->graph;
        (void)append_op(emit, &graph->ops, &graph->n_ops, &graph->ops_capacity, &made);
    }
}

void dunlin__emit_run_last(dunlin_emit *emit, const dunlin_emit_op *op)
{
    dunlin_step_op made;
    if (make_op(emit, op, &made)) {
        (void)append_op(emit, &emit->last_ops, &emit->n_last_ops, &emit->last_ops_capacity, &made);
    }
}

void dunlin__emit_flush_last(dunlin_emit *emit)
{
    dunlin_step_graph *graph = emit->graph;
    for (size_t i = 0; i < emit->n_last_ops && emit->status == DUNLIN_OK; i++) {
        (void)append_op(emit, &graph->ops, &graph->n_ops, &graph->ops_capacity, &emit->last_ops[i]);
    }
}

/* a + b of one value's gradients, or of two accumulators of a shared parameter. */
typedef struct sum_params {
    int64_t n_elements;
} sum_params;

static dunlin_status run_sum(const dunlin_kernel_call *call)
{
    const sum_params *params = call->params;
    const int64_t n = (call->parts & DUNLIN_MEM_FIXED) != 0 ? params->n_elements
                                                            : params->n_elements * call->n_samples;
    call->run->kernels->add(n, call->operands[0], call->operands[1], call->operands[2],
                            call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel sum_map_kernel = {.name = "sum",
                                                  .run_fn = run_sum,
                                                  .parts = DUNLIN_MEM_MAP,
                                                  .may_recompute = true,
                                                  .in_place_write = 2,
                                                  .in_place_read = 0};
static const dunlin_step_kernel sum_fixed_kernel = {.name = "sum",
                                                    .run_fn = run_sum,
                                                    .parts = DUNLIN_MEM_FIXED,
                                                    .in_place_write = -1,
                                                    .in_place_read = -1};

uint32_t dunlin__emit_sum(dunlin_emit *emit, uint32_t a, uint32_t b)
{
    if (emit->status != DUNLIN_OK) {
        return DUNLIN_STEP_NONE;
    }
    dunlin_step_tensor like = emit->graph->tensors[a];
    like.dtype = like.dtype == DUNLIN_BF16 ? DUNLIN_F32 : like.dtype; /* a sum is not rounded */
    const uint32_t out = dunlin__emit_named_tensor(emit, like.name, "+", &like);
    const uint8_t parts = like.is_batched ? DUNLIN_MEM_MAP : DUNLIN_MEM_FIXED;
    const dunlin_mem_access accesses[] = {
        {.tensor = a, .mode = DUNLIN_MEM_READ, .parts = parts},
        {.tensor = b, .mode = DUNLIN_MEM_READ, .parts = parts},
        {.tensor = out, .mode = DUNLIN_MEM_WRITE, .parts = parts},
    };
    const sum_params params = {.n_elements = like.n_elements};
    dunlin__emit_run(
        emit, &(dunlin_emit_op){.kernel = like.is_batched ? &sum_map_kernel : &sum_fixed_kernel,
                                .suffix = "/sum",
                                .params = &params,
                                .params_bytes = sizeof params,
                                .accesses = accesses,
                                .n_accesses = 3});
    return out;
}
