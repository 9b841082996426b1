/*
 * response_norm.c - local response normalisation across the channels of an image or a signal
 * (Krizhevsky, Sutskever and Hinton 2012, section 3.3), as ONNX's LRN: each element by
 * (bias + alpha / size * sum of squares over a window of channels)^beta.
 *
 * Of an even size the larger half of the window lies after the channel. The input is all that the
 * backward pass reads.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

typedef struct response_params {
    int64_t pixels; /* per sample */
    int32_t channels, size;
    float alpha, beta, bias; /* alpha: of the sum */
} response_params;

/* Operands: x, y; backward: dy, dx, x. */
static dunlin_status run(const dunlin_kernel_call *call, bool is_backward)
{
    const response_params *p = call->params;
    const dunlin_response_norm_call norm = {
        .n_pixels = call->n_samples * p->pixels,
        .channels = p->channels,
        .size = p->size,
        .alpha = p->alpha,
        .beta = p->beta,
        .bias = p->bias,
        .x = call->operands[is_backward ? 2 : 0],
        .dy = is_backward ? call->operands[0] : NULL,
        .out = call->operands[1],
        .threads = call->run->threads,
    };
    call->run->kernels->response_norm(&norm);
    return DUNLIN_OK;
}

static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    return run(call, false);
}

static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    return run(call, true);
}

static const dunlin_step_kernel forward_kernel = {
    .name = "response_norm",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "response_norm_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static response_params node_params(const dunlin_net *net, const dunlin_net_node *node)
{
    int32_t height = 0;
    int32_t width = 0;
    response_params p = {.size = node->u.response_norm.size,
                         .beta = node->u.response_norm.beta,
                         .bias = node->u.response_norm.bias};
    p.alpha = node->u.response_norm.alpha / (float)p.size;
    dunlin__value_hwc(&net->values[node->inputs[0]], &height, &width, &p.channels);
    p.pixels = (int64_t)height * width;
    return p;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const response_params params = node_params(dunlin__emit_net(emit), node);
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const dunlin_mem_access accesses[] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, &forward_kernel, "", &params, sizeof params, accesses, 2,
                        (40.0 + params.size) * (double)dunlin__op_elements(emit, node->output));
    dunlin__emit_save(emit, 0, x);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const response_params params = node_params(dunlin__emit_net(emit), node);
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, &backward_kernel, "/input_grad", &params, sizeof params, accesses, 3,
                        (50.0 + 2.0 * params.size) *
                            (double)dunlin__op_elements(emit, node->output));
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    const int32_t size = node->u.response_norm.size;
    if (size < 1 || size > DUNLIN_RESPONSE_NORM_MAX_SIZE) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' normalises over %" PRId32 " channels, not 1 to %d",
                            node->name, size, DUNLIN_RESPONSE_NORM_MAX_SIZE);
    }
    if (!isfinite(node->u.response_norm.alpha) || !isfinite(node->u.response_norm.beta) ||
        !isfinite(node->u.response_norm.bias)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s': its constants %g, %g and %g must be finite", node->name,
                            (double)node->u.response_norm.alpha, (double)node->u.response_norm.beta,
                            (double)node->u.response_norm.bias);
    }
    dunlin__op_keep_shape(net, node);
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    const int64_t size = dunlin__onnx_int(onnx, "size", 0);
    node->kind = DUNLIN_OP_RESPONSE_NORM;
    node->u.response_norm.alpha = dunlin__onnx_float(onnx, "alpha", 1e-4F);
    node->u.response_norm.beta = dunlin__onnx_float(onnx, "beta", 0.75F);
    node->u.response_norm.bias = dunlin__onnx_float(onnx, "bias", 1.0F);
    if (size < 1 || size > DUNLIN_RESPONSE_NORM_MAX_SIZE) {
        return dunlin__onnx_reject(onnx, "size", "is %" PRId64 ", not 1 to %d", size,
                                   DUNLIN_RESPONSE_NORM_MAX_SIZE);
    }
    node->u.response_norm.size = (int32_t)size;
    return dunlin__op_take_value(onnx, 0, node);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    dunlin__onnx_begin_node(writer, "LRN", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_attr_float(writer, "alpha", node->u.response_norm.alpha);
    dunlin__onnx_attr_float(writer, "beta", node->u.response_norm.beta);
    dunlin__onnx_attr_float(writer, "bias", node->u.response_norm.bias);
    dunlin__onnx_attr_int(writer, "size", node->u.response_norm.size);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"LRN", NULL};

const dunlin_op_row dunlin__op_response_norm = {
    .kind = DUNLIN_OP_RESPONSE_NORM,
    .name = "response_norm",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
