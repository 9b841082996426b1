/*
 * slice.c - a stretch of one dimension of a sample.
 *
 * A sample is rows of `whole` floats, of which `part` from `offset` on are taken; the gradient of
 * the others is zero.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

typedef struct slice_params {
    int64_t n_rows; /* per sample */
    int64_t whole, part, offset;
} slice_params;

/* Operands: x, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const slice_params *p = call->params;
    const float *x = call->operands[0];
    call->run->kernels->copy_rows(call->n_samples * p->n_rows, p->part, x + p->offset, p->whole,
                                  call->operands[1], p->part, call->run->threads);
    return DUNLIN_OK;
}

/* Operands: dy, dx. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const slice_params *p = call->params;
    float *dx = call->operands[1];
    const int64_t n_rows = call->n_samples * p->n_rows;
    memset(dx, 0, (size_t)(n_rows * p->whole) * sizeof *dx);
    call->run->kernels->copy_rows(n_rows, p->part, call->operands[0], p->part, dx + p->offset,
                                  p->whole, call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "slice",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "slice_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static slice_params node_params(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_value *value = &net->values[node->inputs[0]];
    const dunlin_shape x = dunlin__op_stored(value);
    const int32_t axis = dunlin__op_stored_axis(value, node->u.slice.axis);
    int64_t inner = 1;
    slice_params p = {.n_rows = 1};
    for (int32_t i = 0; i < x.n_dims; i++) {
        p.n_rows *= i < axis ? x.dims[i] : 1;
        inner *= i > axis ? x.dims[i] : 1;
    }
    p.whole = x.dims[axis] * inner;
    p.part = (node->u.slice.end - node->u.slice.start) * inner;
    p.offset = node->u.slice.start * inner;
    return p;
}

static void emit_slice(dunlin_emit *emit, const dunlin_net_node *node,
                       const dunlin_step_kernel *kernel, const char *suffix, uint32_t from,
                       uint32_t to)
{
    const slice_params params = node_params(dunlin__emit_net(emit), node);
    const dunlin_mem_access accesses[] = {
        {from, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {to, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, kernel, suffix, &params, sizeof params, accesses, 2, 0.0);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    emit_slice(emit, node, &forward_kernel, "", x, dunlin__emit_output(emit, node->output));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_needs_grad(emit, node->inputs[0])) {
        const uint32_t dy = dunlin__emit_grad(emit, node->output);
        emit_slice(emit, node, &backward_kernel, "/input_grad", dy,
                   dunlin__emit_grad_target(emit, node->inputs[0]));
    }
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    const int32_t axis = node->u.slice.axis;
    const int64_t start = node->u.slice.start;
    const int64_t end = node->u.slice.end;
    if (axis < 0 || axis >= x->n_dims || start < 0 || end <= start || end > x->dims[axis]) {
        char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.80s' takes [%" PRId64 ", %" PRId64 ") of dimension %" PRId32
                            " of %.60s",
                            node->name, start, end, axis, dunlin__op_shape_text(x, text));
    }
    dunlin__op_keep_shape(net, node);
    net->values[node->output].shape.dims[axis] = end - start;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_SLICE;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    int64_t start = 0;
    int64_t end = 0;
    int64_t axis = 0;
    int64_t step = 1;
    const bool has_one = dunlin__onnx_ints_input(onnx, 1, &start, 1) == 1 &&
                         dunlin__onnx_ints_input(onnx, 2, &end, 1) == 1 &&
                         dunlin__onnx_ints_input(onnx, 3, &axis, 1) == 1;
    if (!has_one) {
        return dunlin__onnx_reject(onnx, "", "start, end and axis must be constants, one of each");
    }
    if (dunlin__onnx_has_input(onnx, 4) &&
        (dunlin__onnx_ints_input(onnx, 4, &step, 1) != 1 || step != 1)) {
        return dunlin__onnx_reject(onnx, "", "its step is not 1");
    }
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    axis = axis < 0 ? axis + x->n_dims + 1 : axis;
    if (axis < 1 || axis > x->n_dims) {
        return dunlin__onnx_reject(onnx, "", "axis %" PRId64 " is the batch's, or not there", axis);
    }
    const int64_t size = x->dims[axis - 1];
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end;
    node->u.slice.axis = (int32_t)axis - 1;
    node->u.slice.start = start < 0 ? 0 : start;
    node->u.slice.end = end > size ? size : end;
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    const int64_t axis = node->u.slice.axis + 1;
    dunlin__onnx_begin_node(writer, "Slice", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_ints(writer, "/start", &node->u.slice.start, 1);
    dunlin__onnx_add_ints(writer, "/end", &node->u.slice.end, 1);
    dunlin__onnx_add_ints(writer, "/axis", &axis, 1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Slice", NULL};

const dunlin_op_row dunlin__op_slice = {
    .kind = DUNLIN_OP_SLICE,
    .name = "slice",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
