/*
 * softmax.c - softmax over the last dimension, of an image over its channels, which lie innermost;
 * or its logarithm. The gradient is made from the output.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

typedef struct softmax_params {
    int64_t n_rows; /* per sample */
    int64_t width;
    bool is_log;
} softmax_params;

/* Operands: x, y; backward: dy, dx, y. */
static dunlin_status run_softmax(const dunlin_kernel_call *call, bool is_backward)
{
    const softmax_params *p = call->params;
    call->run->kernels->softmax(&(dunlin_softmax_call){
        .n_rows = call->n_samples * p->n_rows,
        .width = p->width,
        .is_log = p->is_log,
        .x = call->operands[is_backward ? 2 : 0],
        .dy = is_backward ? call->operands[0] : NULL,
        .out = call->operands[1],
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    return run_softmax(call, false);
}

static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    return run_softmax(call, true);
}

static const dunlin_step_kernel forward_kernel = {
    .name = "softmax",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 1,
    .in_place_read = 0,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "softmax_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 1,
    .in_place_read = 0,
};

static softmax_params node_params(const dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_net_value *y = &dunlin__emit_net(emit)->values[node->output];
    const int64_t width = y->shape.dims[y->layout == DUNLIN_LAYOUT_IMAGE ? 0 : y->shape.n_dims - 1];
    return (softmax_params){dunlin__op_elements(emit, node->output) / width, width,
                            node->u.softmax.is_log};
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const softmax_params params = node_params(emit, node);
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const uint32_t y = dunlin__emit_output(emit, node->output);
    const dunlin_mem_access accesses[] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {y, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, &forward_kernel, "", &params, sizeof params, accesses, 2,
                        30.0 * (double)(params.n_rows * params.width));
    dunlin__emit_save(emit, 0, y);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const softmax_params params = node_params(emit, node);
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, &backward_kernel, "/input_grad", &params, sizeof params, accesses, 3,
                        6.0 * (double)(params.n_rows * params.width));
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    if (net->values[node->inputs[0]].layout != DUNLIN_LAYOUT_IMAGE) {
        DUNLIN_TRY(dunlin__op_want_plain(net, node, 0, 1, error));
    }
    dunlin__op_keep_shape(net, node);
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_SOFTMAX;
    node->u.softmax.is_log = strcmp(dunlin__onnx_op_type(onnx), "LogSoftmax") == 0;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const int32_t n_dims = x->shape.n_dims;
    const int64_t axis = dunlin__onnx_int(onnx, "axis", -1);
    if (x->layout == DUNLIN_LAYOUT_IMAGE) {
        return axis == 1 || axis == -n_dims
                   ? DUNLIN_OK
                   : dunlin__onnx_reject(onnx, "axis",
                                         "is %" PRId64 "; of an image only the channels', 1, is "
                                         "trained",
                                         axis);
    }
    if (axis != -1 && axis != n_dims) {
        return dunlin__onnx_reject(onnx, "axis", "is %" PRId64 "; only the last one is trained",
                                   axis);
    }
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const bool is_image = net->values[node->output].layout == DUNLIN_LAYOUT_IMAGE;
    dunlin__onnx_begin_node(writer, node->u.softmax.is_log ? "LogSoftmax" : "Softmax", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_attr_int(writer, "axis", is_image ? 1 : -1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Softmax", "LogSoftmax", NULL};

const dunlin_op_row dunlin__op_softmax = {
    .kind = DUNLIN_OP_SOFTMAX,
    .name = "softmax",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
