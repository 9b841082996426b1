/*
 * flatten.c - an image as one row of features, in ONNX's order (channel, row, column).
 *
 * Images lie channels-last, so this is a transposition; where the two orders are the same (one
 * pixel, or one channel) and for plain values the output is the input's tensor.
 */
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>

typedef struct flatten_params {
    int64_t rows, columns;
} flatten_params;

/* Operands: x, y. */
static dunlin_status run_transpose(const dunlin_kernel_call *call)
{
    const flatten_params *p = call->params;
    call->run->kernels->transpose(call->n_samples, p->rows, p->columns, call->operands[0],
                                  call->operands[1], call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel transpose_kernel = {
    .name = "transpose",
    .run_fn = run_transpose,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

/* Rows and columns of the input as a matrix; false if transposing it changes nothing. */
static bool input_matrix(const dunlin_net *net, const dunlin_net_node *node, flatten_params *out)
{
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    int32_t h = 0;
    int32_t w = 0;
    int32_t c = 0;
    dunlin__value_hwc(x, &h, &w, &c);
    *out = (flatten_params){(int64_t)h * w, c};
    return x->layout == DUNLIN_LAYOUT_IMAGE && out->rows > 1 && out->columns > 1;
}

static void emit_transpose(dunlin_emit *emit, const flatten_params *params, const char *suffix,
                           uint32_t from, uint32_t to)
{
    const dunlin_mem_access accesses[] = {
        {from, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {to, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &transpose_kernel,
                               .suffix = suffix,
                               .params = params,
                               .params_bytes = sizeof *params,
                               .accesses = accesses,
                               .n_accesses = 2,
                           });
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    flatten_params params;
    uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    if (!input_matrix(dunlin__emit_net(emit), node, &params)) {
        dunlin__emit_alias(emit, node->output, x);
        return;
    }
    emit_transpose(emit, &params, "", x, dunlin__emit_output(emit, node->output));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    flatten_params params;
    uint32_t dy = dunlin__emit_grad(emit, node->output);
    if (!input_matrix(dunlin__emit_net(emit), node, &params)) {
        dunlin__emit_grad_alias(emit, node->inputs[0], dy);
        return;
    }
    const flatten_params back = {params.columns, params.rows};
    emit_transpose(emit, &back, "/input_grad", dy, dunlin__emit_grad_target(emit, node->inputs[0]));
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    dunlin_net_value *y = &net->values[node->output];
    y->layout = DUNLIN_LAYOUT_PLAIN;
    y->shape = (dunlin_shape){1, {dunlin__value_elements(x)}};
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_FLATTEN;
    int64_t axis = dunlin__onnx_int(onnx, "axis", 1);
    if (axis != 1) {
        return dunlin__onnx_reject(onnx, "axis", "is %" PRId64 "; only 1 keeps the samples apart",
                                   axis);
    }
    return dunlin__op_take_value(onnx, 0, node);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    dunlin__onnx_begin_node(writer, "Flatten", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_attr_int(writer, "axis", 1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Flatten", NULL};

const dunlin_op_row dunlin__op_flatten = {
    .kind = DUNLIN_OP_FLATTEN,
    .name = "flatten",
    .onnx_names = onnx_names,
    .bounds = DUNLIN_BOUNDS_KEPT,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
