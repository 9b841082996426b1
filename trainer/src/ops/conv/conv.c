/*
 * conv.c - two-dimensional convolution, grouped and depthwise too; y = conv(x, w) + b.
 *
 * Invariant: forward and input gradient are maps, the weight gradient is a reducer, so a batch may
 * be cut into slices at any sample. A bias is part of the same kernels.
 */
#include "graph/fused.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>

typedef struct conv_params {
    dunlin_conv_shape shape;
    uint64_t weight_bytes;
    bool has_weight_grad;
    bool has_bias; /* forward: a bias; weight gradient: a gradient of the bias */
} conv_params;

/* --- kernels --- */

static uint64_t pass_workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                               dunlin_conv_pass pass)
{
    const conv_params *p = params;
    return kernels->conv_workspace_bytes(&p->shape, pass, n_threads);
}

static uint64_t forward_workspace(const dunlin_kernels *kernels, const void *params,
                                  size_t n_threads, uint64_t *out_sample_bytes)
{
    *out_sample_bytes = 0;
    return pass_workspace(kernels, params, n_threads, DUNLIN_CONV_FORWARD);
}

static uint64_t input_grad_workspace(const dunlin_kernels *kernels, const void *params,
                                     size_t n_threads, uint64_t *out_sample_bytes)
{
    *out_sample_bytes = 0;
    return pass_workspace(kernels, params, n_threads, DUNLIN_CONV_INPUT_GRAD);
}

/* Workspace is aligned to 64 bytes, so what follows an aligned size is too. */
static uint64_t align_64(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

static uint64_t weight_grad_workspace(const dunlin_kernels *kernels, const void *params,
                                      size_t n_threads, uint64_t *out_sample_bytes)
{
    const conv_params *p = params;
    *out_sample_bytes = 0;
    uint64_t bytes = pass_workspace(kernels, params, n_threads, DUNLIN_CONV_WEIGHT_GRAD);
    /* A frozen weight with a trained bias: the kernel's weight gradient goes nowhere. */
    return p->has_weight_grad ? bytes : align_64(bytes) + p->weight_bytes;
}

/* Operands: x, weight, y, bias if there is one. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const conv_params *p = call->params;
    call->run->kernels->conv_forward(&(dunlin_conv_call){
        .shape = &p->shape,
        .n_samples = call->n_samples,
        .x = call->operands[0],
        .w = call->operands[1],
        .out = call->operands[2],
        .bias = p->has_bias ? call->operands[3] : NULL,
        .workspace = call->workspace,
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

/* Operands: dy, weight, dx. */
static dunlin_status run_input_grad(const dunlin_kernel_call *call)
{
    const conv_params *p = call->params;
    call->run->kernels->conv_input_grad(&(dunlin_conv_call){
        .shape = &p->shape,
        .n_samples = call->n_samples,
        .dy = call->operands[0],
        .w = call->operands[1],
        .out = call->operands[2],
        .workspace = call->workspace,
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

/* Operands: x, dy, then dw and db as far as they are wanted. */
static dunlin_status run_weight_grad(const dunlin_kernel_call *call)
{
    const conv_params *p = call->params;
    size_t next = 2;
    dunlin_conv_call conv = {
        .shape = &p->shape,
        .n_samples = call->n_samples,
        .x = call->operands[0],
        .dy = call->operands[1],
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    if (p->has_weight_grad) {
        conv.out = call->operands[next++];
    } else {
        size_t offset = call->workspace_bytes - (size_t)p->weight_bytes;
        conv.out = (float *)(void *)((unsigned char *)call->workspace + (offset & ~(size_t)63));
    }
    if (p->has_bias) {
        conv.out_bias = call->operands[next];
    }
    call->run->kernels->conv_weight_grad(&conv);
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "conv",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = forward_workspace,
};

static const dunlin_step_kernel input_grad_kernel = {
    .name = "conv_input_grad",
    .run_fn = run_input_grad,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = input_grad_workspace,
};

static const dunlin_step_kernel weight_grad_kernel = {
    .name = "conv_weight_grad",
    .run_fn = run_weight_grad,
    .parts = DUNLIN_MEM_REDUCE,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = weight_grad_workspace,
};

/* --- emission, for convolution and dense layers --- */

static double shape_flops(const dunlin_conv_shape *s)
{
    return 2.0 * s->out_h * s->out_w * s->out_c * ((double)s->in_c / s->groups) * s->kernel_h *
           s->kernel_w;
}

void dunlin__op_emit_conv(dunlin_emit *emit, const dunlin_net_node *node,
                          const dunlin_conv_shape *shape)
{
    if (dunlin__emit_is_fused(emit)) {
        dunlin__op_emit_fused_conv(emit, node, shape);
        return;
    }
    conv_params params = {.shape = *shape, .has_bias = dunlin__op_has_param(node, 1)};
    uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    dunlin_mem_access accesses[4] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    if (params.has_bias) {
        accesses[3] = (dunlin_mem_access){dunlin__emit_param(emit, node->params[1]),
                                          DUNLIN_MEM_READ, DUNLIN_MEM_MAP};
    }
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &forward_kernel,
                               .suffix = "",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = params.has_bias ? 4 : 3,
                               .flops_per_sample = shape_flops(shape),
                           });
    dunlin__emit_save(emit, 0, x);
}

/* The weight gradient comes first: after it x is dead when dx is made. */
static void emit_weight_grad(dunlin_emit *emit, const dunlin_net_node *node,
                             const dunlin_conv_shape *shape, uint32_t dy)
{
    bool has_bias = dunlin__op_has_param(node, 1) && dunlin__emit_is_trained(emit, node->params[1]);
    conv_params params = {
        .shape = *shape,
        .weight_bytes =
            (uint64_t)dunlin__emit_net(emit)->params[node->params[0]].n_elements * sizeof(float),
        .has_weight_grad = dunlin__emit_is_trained(emit, node->params[0]),
        .has_bias = has_bias,
    };
    dunlin_mem_access accesses[4] = {
        {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, DUNLIN_MEM_REDUCE},
        {dy, DUNLIN_MEM_READ, DUNLIN_MEM_REDUCE},
    };
    uint32_t n = 2;
    if (params.has_weight_grad) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_param_grad(emit, node->params[0]),
                                            DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE};
    }
    if (has_bias) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_param_grad(emit, node->params[1]),
                                            DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE};
    }
    if (n == 2) {
        return;
    }
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &weight_grad_kernel,
                               .suffix = "/weight_grad",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = n,
                               .flops_per_sample = shape_flops(shape),
                           });
}

void dunlin__op_emit_conv_grads(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_conv_shape *shape)
{
    if (dunlin__emit_is_fused(emit)) {
        dunlin__op_emit_fused_conv_grads(emit, node, shape);
        return;
    }
    uint32_t dy = dunlin__emit_grad(emit, node->output);
    emit_weight_grad(emit, node, shape, dy);
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    conv_params params = {.shape = *shape};
    dunlin_mem_access accesses[3] = {
        {dy, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &input_grad_kernel,
                               .suffix = "/input_grad",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = 3,
                               .flops_per_sample = shape_flops(shape),
                           });
}

/* --- a dense layer with its matrix transposed --- */

static void emit_pass(dunlin_emit *emit, const dunlin_step_kernel *kernel, const char *suffix,
                      const dunlin_conv_shape *shape, const dunlin_mem_access accesses[3])
{
    const conv_params params = {.shape = *shape, .has_weight_grad = true};
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = kernel,
                               .suffix = suffix,
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = 3,
                               .flops_per_sample = shape_flops(shape),
                           });
}

/* With the layer's Y = X W: X' W^T is its gradient of the input, X' takes the part of dY. */
void dunlin__op_emit_transposed(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_conv_shape *shape, uint32_t y)
{
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const dunlin_mem_access accesses[3] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {y, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    emit_pass(emit, &input_grad_kernel, "", shape, accesses);
    dunlin__emit_save(emit, 0, x);
}

/* dW = dY'^T X': the layer's gradient of the weight with dY' as X and X' as dY; dX' = dY' W: the
 * layer itself. */
void dunlin__op_emit_transposed_grads(dunlin_emit *emit, const dunlin_net_node *node,
                                      const dunlin_conv_shape *shape)
{
    const uint32_t dy = dunlin__emit_grad(emit, node->output);
    if (dunlin__emit_is_trained(emit, node->params[0])) {
        const dunlin_mem_access accesses[3] = {
            {dy, DUNLIN_MEM_READ, DUNLIN_MEM_REDUCE},
            {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, DUNLIN_MEM_REDUCE},
            {dunlin__emit_param_grad(emit, node->params[0]), DUNLIN_MEM_ACCUMULATE,
             DUNLIN_MEM_REDUCE},
        };
        emit_pass(emit, &weight_grad_kernel, "/weight_grad", shape, accesses);
    }
    if (dunlin__emit_needs_grad(emit, node->inputs[0])) {
        const dunlin_mem_access accesses[3] = {
            {dy, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
            {dunlin__emit_param(emit, node->params[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
            {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        };
        emit_pass(emit, &forward_kernel, "/input_grad", shape, accesses);
    }
}

/* --- the row --- */

dunlin_conv_shape dunlin__op_conv_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_conv *c = &node->u.conv;
    dunlin_conv_shape shape = {
        .kernel_h = c->kernel_h,
        .kernel_w = c->kernel_w,
        .stride_h = c->stride_h,
        .stride_w = c->stride_w,
        .pad_top = c->pad_top,
        .pad_left = c->pad_left,
        .dilation_h = c->dilation_h,
        .dilation_w = c->dilation_w,
        .groups = c->groups,
    };
    dunlin__value_hwc(&net->values[node->inputs[0]], &shape.in_h, &shape.in_w, &shape.in_c);
    dunlin__value_hwc(&net->values[node->output], &shape.out_h, &shape.out_w, &shape.out_c);
    return shape;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin_conv_shape shape = dunlin__op_conv_shape(dunlin__emit_net(emit), node);
    dunlin__op_emit_conv(emit, node, &shape);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin_conv_shape shape = dunlin__op_conv_shape(dunlin__emit_net(emit), node);
    dunlin__op_emit_conv_grads(emit, node, &shape);
}

/* (C); what a file adds by a node of its own has a 1 for each other dimension: (C, 1, 1), or (C, 1)
 * of a signal; and may have one for the batch. */
static dunlin_shape bias_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    const int32_t n_dims = net->params[node->params[1]].shape.n_dims;
    const int32_t n_whole = net->values[node->inputs[0]].shape.n_dims;
    const bool is_whole = n_dims == n_whole || n_dims == n_whole + 1;
    dunlin_shape shape = {is_whole ? n_dims : 1, {1, 1, 1, 1}};
    shape.dims[is_whole ? n_dims - n_whole : 0] = node->u.conv.out_channels;
    return shape;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    const dunlin_net_conv *c = &node->u.conv;
    int32_t in_h = 0;
    int32_t in_w = 0;
    int32_t in_c = 0;
    dunlin__value_hwc(&net->values[node->inputs[0]], &in_h, &in_w, &in_c);
    if (c->groups < 1 || in_c % c->groups != 0 || c->out_channels % c->groups != 0) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': %" PRId32 " groups must divide %" PRId32
                            " input and %" PRId32 " output channels",
                            node->name, c->groups, in_c, c->out_channels);
    }
    const bool is_signal = dunlin__op_n_axes(net, node->inputs[0]) == 1;
    dunlin_shape weight = {4, {c->out_channels, in_c / c->groups, c->kernel_h, c->kernel_w}};
    if (is_signal) {
        weight = (dunlin_shape){3, {c->out_channels, in_c / c->groups, c->kernel_w}};
    }
    DUNLIN_TRY(dunlin__op_want_param(net, node, 0, &weight, DUNLIN_PARAM_CONV, error));
    if (dunlin__op_has_param(node, 1)) {
        const dunlin_shape bias = bias_shape(net, node);
        DUNLIN_TRY(dunlin__op_want_param(net, node, 1, &bias, DUNLIN_PARAM_PLAIN, error));
    }
    const dunlin_op_axis axes[2] = {
        {in_h, c->kernel_h, c->stride_h, c->pad_top, c->pad_bottom, c->dilation_h, false},
        {in_w, c->kernel_w, c->stride_w, c->pad_left, c->pad_right, c->dilation_w, false}};
    return dunlin__op_slide_both(net, node, axes, c->out_channels, error);
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_CONV;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 1, "the weight", node));
    if (dunlin__onnx_has_input(onnx, 2)) {
        DUNLIN_TRY(dunlin__op_take_param(onnx, 2, "the bias", node));
    }
    dunlin_net_param *weight = &net->params[node->params[0]];
    dunlin_op_window window;
    DUNLIN_TRY(dunlin__op_read_window(onnx, net, &weight->shape, &window));
    for (int i = 0; i < 2; i++) {
        if (weight->shape.dims[i] < 1 || weight->shape.dims[i] > INT32_MAX) {
            return dunlin__onnx_reject(onnx, "", "its weight has a dimension of %" PRId64,
                                       weight->shape.dims[i]);
        }
    }
    int64_t groups = dunlin__onnx_int(onnx, "group", 1);
    if (groups < 1 || groups > INT32_MAX) {
        return dunlin__onnx_reject(onnx, "group", "is %" PRId64, groups);
    }
    dunlin_net_conv *conv = &node->u.conv;
    *conv = (dunlin_net_conv){
        .out_channels = (int32_t)weight->shape.dims[0],
        .kernel_h = window.kernel[0],
        .kernel_w = window.kernel[1],
        .stride_h = window.strides[0],
        .stride_w = window.strides[1],
        .pad_top = window.pads[0],
        .pad_left = window.pads[1],
        .pad_bottom = window.pads[2],
        .pad_right = window.pads[3],
        .dilation_h = window.dilations[0],
        .dilation_w = window.dilations[1],
        .groups = (int32_t)groups,
    };
    weight->layout = DUNLIN_PARAM_CONV;
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_conv *c = &node->u.conv;
    const bool has_bias = dunlin__op_has_param(node, 1);
    const bool is_added = has_bias && net->params[node->params[1]].shape.n_dims > 1;
    dunlin_op_window window = {
        .n_axes = dunlin__op_n_axes(net, node->inputs[0]),
        .kernel = {c->kernel_h, c->kernel_w},
        .strides = {c->stride_h, c->stride_w},
        .dilations = {c->dilation_h, c->dilation_w},
        .pads = {c->pad_top, c->pad_left, c->pad_bottom, c->pad_right},
    };
    dunlin__onnx_begin_node(writer, "Conv", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_param(writer, node->params[0]);
    if (has_bias && !is_added) {
        dunlin__onnx_add_param(writer, node->params[1]);
    }
    dunlin__op_write_window(writer, &window, true);
    dunlin__onnx_attr_int(writer, "group", c->groups);
    if (is_added) {
        dunlin__onnx_end_part(writer, "/product");
        dunlin__onnx_begin_node(writer, "Add", node);
        dunlin__onnx_add_part(writer, "/product");
        dunlin__onnx_add_param(writer, node->params[1]);
    }
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Conv", NULL};

const dunlin_op_row dunlin__op_conv = {
    .kind = DUNLIN_OP_CONV,
    .name = "conv",
    .onnx_names = onnx_names,
    .stores_parts = true,
    .stores_clipped = true,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
