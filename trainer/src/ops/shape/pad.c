/*
 * pad.c - a dimension of a sample with more elements before and after it: one number, the mirrored
 * elements, or the outermost one again.
 *
 * A sample is rows of `size` blocks of `inner` floats each. In the backward pass every element
 * takes its own gradient and then those of its copies, in their order.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

typedef struct pad_params {
    int64_t n_rows; /* per sample */
    int64_t size, inner;
    int64_t before, after;
    dunlin_pad_mode mode;
    float value;
} pad_params;

/* The block of the input that block `at` of the output is; it may lie outside: a constant. */
static int64_t source_of(const pad_params *p, int64_t at)
{
    const int64_t from = at - p->before;
    const int64_t last = p->size - 1;
    if (from >= 0 && from <= last) {
        return from;
    }
    if (p->mode == DUNLIN_PAD_EDGE) {
        return from < 0 ? 0 : last;
    }
    return from < 0 ? -from : 2 * last - from;
}

static bool is_added(const pad_params *p, int64_t at)
{
    return at < p->before || at >= p->before + p->size;
}

/* Operands: x, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const pad_params *p = call->params;
    const float *x = call->operands[0];
    float *y = call->operands[1];
    const int64_t n_rows = call->n_samples * p->n_rows;
    const int64_t n_out = p->before + p->size + p->after;
    const int64_t pitch = n_out * p->inner;
    for (int64_t i = 0; p->mode == DUNLIN_PAD_CONSTANT && i < n_rows * pitch; i++) {
        y[i] = p->value;
    }
    call->run->kernels->copy_rows(n_rows, p->size * p->inner, x, p->size * p->inner,
                                  y + p->before * p->inner, pitch, call->run->threads);
    for (int64_t at = 0; p->mode != DUNLIN_PAD_CONSTANT && at < n_out; at++) {
        if (is_added(p, at)) {
            call->run->kernels->copy_rows(n_rows, p->inner, x + source_of(p, at) * p->inner,
                                          p->size * p->inner, y + at * p->inner, pitch,
                                          call->run->threads);
        }
    }
    return DUNLIN_OK;
}

/* Operands: dy, dx. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const pad_params *p = call->params;
    const float *dy = call->operands[0];
    float *dx = call->operands[1];
    const int64_t n_rows = call->n_samples * p->n_rows;
    const int64_t n_out = p->before + p->size + p->after;
    const int64_t pitch = n_out * p->inner;
    call->run->kernels->copy_rows(n_rows, p->size * p->inner, dy + p->before * p->inner, pitch, dx,
                                  p->size * p->inner, call->run->threads);
    for (int64_t at = 0; p->mode != DUNLIN_PAD_CONSTANT && at < n_out; at++) {
        for (int64_t row = 0; is_added(p, at) && row < n_rows; row++) {
            float *to = dx + (row * p->size + source_of(p, at)) * p->inner;
            const float *from = dy + row * pitch + at * p->inner;
            for (int64_t i = 0; i < p->inner; i++) {
                to[i] += from[i];
            }
        }
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "pad",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "pad_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static void emit_pad(dunlin_emit *emit, const dunlin_net_node *node,
                     const dunlin_step_kernel *kernel, const char *suffix, uint32_t from,
                     uint32_t to)
{
    const dunlin_net_value *value = &dunlin__emit_net(emit)->values[node->inputs[0]];
    const dunlin_shape x = dunlin__op_stored(value);
    const int32_t axis = dunlin__op_stored_axis(value, node->u.pad.axis);
    pad_params params = {.n_rows = 1,
                         .size = x.dims[axis],
                         .inner = 1,
                         .before = node->u.pad.before,
                         .after = node->u.pad.after,
                         .mode = node->u.pad.mode,
                         .value = node->u.pad.value};
    for (int32_t i = 0; i < x.n_dims; i++) {
        params.n_rows *= i < axis ? x.dims[i] : 1;
        params.inner *= i > axis ? x.dims[i] : 1;
    }
    const dunlin_mem_access accesses[] = {
        {from, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {to, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, kernel, suffix, &params, sizeof params, accesses, 2, 0.0);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    emit_pad(emit, node, &forward_kernel, "", x, dunlin__emit_output(emit, node->output));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_needs_grad(emit, node->inputs[0])) {
        const uint32_t dy = dunlin__emit_grad(emit, node->output);
        emit_pad(emit, node, &backward_kernel, "/input_grad", dy,
                 dunlin__emit_grad_target(emit, node->inputs[0]));
    }
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    const int32_t axis = node->u.pad.axis;
    const int64_t before = node->u.pad.before;
    const int64_t after = node->u.pad.after;
    const bool has_axis = axis >= 0 && axis < x->n_dims;
    const int64_t most =
        has_axis && node->u.pad.mode == DUNLIN_PAD_REFLECT ? x->dims[axis] - 1 : INT32_MAX;
    if (!has_axis || before < 0 || after < 0 || before > most || after > most ||
        x->dims[axis] + before + after > INT32_MAX) {
        char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.80s' puts %" PRId64 " before and %" PRId64
                            " after dimension %" PRId32 " of %.60s; 0 to %" PRId64 " can be",
                            node->name, before, after, axis, dunlin__op_shape_text(x, text), most);
    }
    dunlin__op_keep_shape(net, node);
    net->values[node->output].shape.dims[axis] += before + after;
    return DUNLIN_OK;
}

static const char *const modes[] = {"constant", "reflect", "edge"};

/* The reader makes one node for each dimension itself (convert/rewrite/pads.c). */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    (void)node;
    return dunlin__onnx_reject(onnx, "", "its input has no known shape");
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const int32_t n = net->values[node->output].shape.n_dims + 1;
    int64_t pads[2 * (DUNLIN_MAX_DIMS + 1)] = {0};
    pads[node->u.pad.axis + 1] = node->u.pad.before;
    pads[n + node->u.pad.axis + 1] = node->u.pad.after;
    dunlin__onnx_begin_node(writer, "Pad", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_ints(writer, "/pads", pads, 2 * n);
    if (node->u.pad.mode == DUNLIN_PAD_CONSTANT) {
        dunlin__onnx_add_scalar(writer, "/value", node->u.pad.value);
    }
    dunlin__onnx_attr_text(writer, "mode", modes[node->u.pad.mode]);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Pad", NULL};

const dunlin_op_row dunlin__op_pad = {
    .kind = DUNLIN_OP_PAD,
    .name = "pad",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
