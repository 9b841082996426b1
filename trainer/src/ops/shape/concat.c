/*
 * concat.c - activations side by side: images along the channels and values along the last
 * dimension (concatenation), or along any other one (stack).
 *
 * In memory all are the same: rows of one pitch, in which every input has its own columns. Only
 * concatenations are made in place in a fused step.
 */
#include "graph/fused.h"
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>

typedef struct concat_params {
    int64_t rows_per_sample;
    int64_t pitch;  /* floats of a row of the output */
    int64_t offset; /* gradient: first column of the input */
    uint32_t n_inputs;
    int32_t widths[DUNLIN_NET_MAX_INPUTS]; /* gradient: of the one input, widths[0] */
} concat_params;

/* Operands: the inputs, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const concat_params *p = call->params;
    float *y = call->operands[p->n_inputs];
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        call->run->kernels->copy_rows(call->n_samples * p->rows_per_sample, p->widths[i],
                                      call->operands[i], p->widths[i], y, p->pitch,
                                      call->run->threads);
        y += p->widths[i];
    }
    return DUNLIN_OK;
}

/* Operands: dy, dx of one input. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const concat_params *p = call->params;
    const float *dy = call->operands[0];
    call->run->kernels->copy_rows(call->n_samples * p->rows_per_sample, p->widths[0],
                                  dy + p->offset, p->pitch, call->operands[1], p->widths[0],
                                  call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "concat",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "concat_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

/* The dimension that is joined: of a concatenation the one that lies innermost. */
static int32_t axis_of(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_value *first = &net->values[node->inputs[0]];
    if (node->kind == DUNLIN_OP_STACK) {
        return node->u.stack.axis;
    }
    return first->layout == DUNLIN_LAYOUT_IMAGE ? 0 : first->shape.n_dims - 1;
}

static concat_params node_params(const dunlin_net *net, const dunlin_net_node *node)
{
    concat_params params = {.n_inputs = node->n_inputs, .rows_per_sample = 1};
    const dunlin_net_value *y = &net->values[node->output];
    const int32_t axis = dunlin__op_stored_axis(y, axis_of(net, node));
    const dunlin_shape stored = dunlin__op_stored(y);
    int64_t inner = 1;
    for (int32_t i = 0; i < stored.n_dims; i++) {
        params.rows_per_sample *= i < axis ? stored.dims[i] : 1;
        inner *= i > axis ? stored.dims[i] : 1;
    }
    params.pitch = stored.dims[axis] * inner;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const dunlin_shape part = dunlin__op_stored(&net->values[node->inputs[i]]);
        params.widths[i] = (int32_t)(part.dims[axis] * inner);
    }
    return params;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_is_fused(emit) && node->kind == DUNLIN_OP_CONCAT) {
        dunlin__emit_concat(emit, node);
        return;
    }
    concat_params params = node_params(dunlin__emit_net(emit), node);
    dunlin_mem_access accesses[DUNLIN_NET_MAX_INPUTS + 1];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        accesses[i] = (dunlin_mem_access){dunlin__emit_value(emit, node->inputs[i]),
                                          DUNLIN_MEM_READ, DUNLIN_MEM_MAP};
    }
    accesses[node->n_inputs] = (dunlin_mem_access){dunlin__emit_output(emit, node->output),
                                                   DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &forward_kernel,
                               .suffix = "",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = node->n_inputs + 1,
                           });
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_is_fused(emit) && node->kind == DUNLIN_OP_CONCAT) {
        dunlin__emit_concat_grad(emit, node);
        return;
    }
    concat_params whole = node_params(dunlin__emit_net(emit), node);
    uint32_t dy = dunlin__emit_grad(emit, node->output);
    int64_t offset = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        concat_params params = {
            .rows_per_sample = whole.rows_per_sample,
            .pitch = whole.pitch,
            .offset = offset,
            .n_inputs = 1,
            .widths = {whole.widths[i]},
        };
        offset += whole.widths[i];
        if (!dunlin__emit_needs_grad(emit, node->inputs[i])) {
            continue;
        }
        const dunlin_mem_access accesses[] = {
            {dy, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
            {dunlin__emit_grad_target(emit, node->inputs[i]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        };
        dunlin__emit_run(emit, &(dunlin_emit_op){
                                   .kernel = &backward_kernel,
                                   .suffix = "/input_grad",
                                   .params = &params,
                                   .params_bytes = sizeof params,
                                   .accesses = accesses,
                                   .n_accesses = 2,
                               });
    }
}

/* All dimensions but the joined one must agree. */
static bool fits(const dunlin_net_value *first, const dunlin_net_value *other, int32_t axis)
{
    if (other->layout != first->layout || other->shape.n_dims != first->shape.n_dims) {
        return false;
    }
    for (int32_t i = 0; i < first->shape.n_dims; i++) {
        if (i != axis && other->shape.dims[i] != first->shape.dims[i]) {
            return false;
        }
    }
    return true;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    const dunlin_net_value *first = &net->values[node->inputs[0]];
    const int32_t axis = axis_of(net, node);
    const bool has_axis = axis >= 0 && axis < first->shape.n_dims;
    int64_t joined = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const dunlin_net_value *x = &net->values[node->inputs[i]];
        if (!has_axis || !fits(first, x, axis)) {
            char one[DUNLIN_OP_SHAPE_TEXT_BYTES];
            char other[DUNLIN_OP_SHAPE_TEXT_BYTES];
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "node '%.60s' joins %.50s and %.50s along dimension %" PRId32
                                ": all others must be the same",
                                node->name, dunlin__op_shape_text(&first->shape, one),
                                dunlin__op_shape_text(&x->shape, other), axis);
        }
        joined += x->shape.dims[axis]; /* at most 64 numbers of 31 bits */
    }
    dunlin_net_value *y = &net->values[node->output];
    y->shape = first->shape;
    y->shape.dims[axis] = joined;
    y->layout = first->layout;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_CONCAT;
    const int64_t axis = dunlin__onnx_int(onnx, "axis", 0);
    uint32_t n_inputs = dunlin__onnx_n_inputs(onnx);
    if (n_inputs < 1 || n_inputs > DUNLIN_NET_MAX_INPUTS) {
        return dunlin__onnx_reject(onnx, "", "it has %" PRIu32 " inputs, not 1 to %d", n_inputs,
                                   DUNLIN_NET_MAX_INPUTS);
    }
    bool has_image = false;
    for (uint32_t i = 0; i < n_inputs; i++) {
        DUNLIN_TRY(dunlin__op_take_value(onnx, i, node));
        has_image = has_image || net->values[node->inputs[i]].layout == DUNLIN_LAYOUT_IMAGE;
    }
    const int32_t n_dims = net->values[node->inputs[0]].shape.n_dims;
    const int64_t at = axis < 0 ? axis + n_dims : axis - 1;
    if (at < 0 || at >= n_dims) {
        return dunlin__onnx_reject(onnx, "axis", "is %" PRId64 ", the batch's or not there", axis);
    }
    if (at != (has_image ? 0 : n_dims - 1)) {
        node->kind = DUNLIN_OP_STACK;
        node->u.stack.axis = (int32_t)at;
    }
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    dunlin__onnx_begin_node(writer, "Concat", node);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        dunlin__onnx_add_value(writer, node->inputs[i]);
    }
    dunlin__onnx_attr_int(writer, "axis", axis_of(net, node) + 1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Concat", NULL};

const dunlin_op_row dunlin__op_concat = {
    .kind = DUNLIN_OP_CONCAT,
    .name = "concat",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_ALIKE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};

static const char *const no_names[] = {NULL}; /* Concat is read by the row above */

const dunlin_op_row dunlin__op_stack = {
    .kind = DUNLIN_OP_STACK,
    .name = "stack",
    .onnx_names = no_names,
    .wish = DUNLIN_WISH_ALIKE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
