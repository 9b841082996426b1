/*
 * pool.c - maximum, average and global average pooling.
 *
 * Invariant: a window always covers a pixel of the image (padding is smaller than the window, and
 * no window starts beyond the image). For the backward pass the maximum keeps the winner's place in
 * its window, one byte per output; averages keep nothing.
 */
#include "ops/common/support.h"
#include "pool_fused.h"

#include <mem/support.h>

#include <inttypes.h>

#define MAX_WINDOW_AREA 255 /* the place in the window is one byte */

typedef struct pool_params {
    dunlin_pool_shape shape;
    bool has_index;
} pool_params;

/* --- kernels --- */

/* Operands: x, y, index if it is kept. */
static dunlin_status run_max(const dunlin_kernel_call *call)
{
    const pool_params *p = call->params;
    call->run->kernels->max_pool(&p->shape, call->n_samples, call->operands[0], call->operands[1],
                                 p->has_index ? call->operands[2] : NULL, call->run->threads);
    return DUNLIN_OK;
}

/* Operands: dy, index, dx. */
static dunlin_status run_max_grad(const dunlin_kernel_call *call)
{
    const pool_params *p = call->params;
    call->run->kernels->max_pool_grad(&p->shape, call->n_samples, call->operands[0],
                                      call->operands[1], call->operands[2], call->run->threads);
    return DUNLIN_OK;
}

/* Operands: x, y. */
static dunlin_status run_average(const dunlin_kernel_call *call)
{
    const pool_params *p = call->params;
    call->run->kernels->average_pool(&p->shape, call->n_samples, call->operands[0],
                                     call->operands[1], call->run->threads);
    return DUNLIN_OK;
}

/* Operands: dy, dx. */
static dunlin_status run_average_grad(const dunlin_kernel_call *call)
{
    const pool_params *p = call->params;
    call->run->kernels->average_pool_grad(&p->shape, call->n_samples, call->operands[0],
                                          call->operands[1], call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel max_kernel = {
    .name = "max_pool",
    .run_fn = run_max,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel max_grad_kernel = {
    .name = "max_pool_grad",
    .run_fn = run_max_grad,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel average_kernel = {
    .name = "average_pool",
    .run_fn = run_average,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel average_grad_kernel = {
    .name = "average_pool_grad",
    .run_fn = run_average_grad,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

/* --- emission --- */

static dunlin_pool_shape node_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    dunlin_pool_shape shape = {0};
    int32_t out_c = 0;
    dunlin__value_hwc(&net->values[node->inputs[0]], &shape.in_h, &shape.in_w, &shape.channels);
    dunlin__value_hwc(&net->values[node->output], &shape.out_h, &shape.out_w, &out_c);
    if (node->kind == DUNLIN_OP_GLOBAL_AVERAGE_POOL) {
        shape.kernel_h = shape.in_h;
        shape.kernel_w = shape.in_w;
        shape.stride_h = shape.in_h;
        shape.stride_w = shape.in_w;
        return shape;
    }
    const dunlin_net_pool *p = &node->u.pool;
    shape.kernel_h = p->kernel_h;
    shape.kernel_w = p->kernel_w;
    shape.stride_h = p->stride_h;
    shape.stride_w = p->stride_w;
    shape.pad_top = p->pad_top;
    shape.pad_left = p->pad_left;
    shape.pad_bottom = p->pad_bottom;
    shape.pad_right = p->pad_right;
    shape.counts_padding = p->counts_padding;
    return shape;
}

static void run(dunlin_emit *emit, const dunlin_step_kernel *kernel, const char *suffix,
                const pool_params *params, const dunlin_mem_access *accesses, uint32_t n_accesses)
{
    const dunlin_pool_shape *s = &params->shape;
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = kernel,
                               .suffix = suffix,
                               .params = params,
                               .params_bytes = sizeof *params,
                               .accesses = accesses,
                               .n_accesses = n_accesses,
                               .flops_per_sample = (double)s->out_h * s->out_w * s->channels *
                                                   s->kernel_h * s->kernel_w,
                           });
}

static void forward_max(dunlin_emit *emit, const dunlin_net_node *node)
{
    pool_params params = {.shape = node_shape(dunlin__emit_net(emit), node)};
    if (dunlin__emit_is_fused(emit)) {
        dunlin__op_emit_fused_pool(emit, node, &params.shape);
        return;
    }
    params.has_index = dunlin__emit_mode(emit) == DUNLIN_EMIT_TRAIN &&
                       dunlin__emit_needs_grad(emit, node->inputs[0]);
    dunlin_mem_access accesses[3] = {
        {dunlin__emit_value(emit, node->inputs[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    if (params.has_index) {
        uint32_t index =
            dunlin__emit_tensor(emit, "/index", DUNLIN_U8, true,
                                dunlin__op_elements(emit, node->output), DUNLIN_MEM_SAVED);
        accesses[2] = (dunlin_mem_access){index, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
        dunlin__emit_save(emit, 0, index);
    }
    run(emit, &max_kernel, "", &params, accesses, params.has_index ? 3 : 2);
}

static void backward_max(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    pool_params params = {.shape = node_shape(dunlin__emit_net(emit), node), .has_index = true};
    if (dunlin__emit_is_fused(emit)) {
        dunlin__op_emit_fused_pool_grad(emit, node, &params.shape);
        return;
    }
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    run(emit, &max_grad_kernel, "/input_grad", &params, accesses, 3);
}

static void forward_average(dunlin_emit *emit, const dunlin_net_node *node)
{
    pool_params params = {.shape = node_shape(dunlin__emit_net(emit), node)};
    if (dunlin__emit_is_fused(emit)) {
        dunlin__op_emit_fused_pool(emit, node, &params.shape);
        return;
    }
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_value(emit, node->inputs[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    run(emit, &average_kernel, "", &params, accesses, 2);
}

static void backward_average(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    pool_params params = {.shape = node_shape(dunlin__emit_net(emit), node)};
    if (dunlin__emit_is_fused(emit)) {
        dunlin__op_emit_fused_pool_grad(emit, node, &params.shape);
        return;
    }
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    run(emit, &average_grad_kernel, "/input_grad", &params, accesses, 2);
}

/* --- shapes --- */

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const dunlin_net_pool *p = &node->u.pool;
    int32_t in_h = 0;
    int32_t in_w = 0;
    int32_t channels = 0;
    dunlin__value_hwc(x, &in_h, &in_w, &channels);
    if (node->kind == DUNLIN_OP_MAX_POOL && (int64_t)p->kernel_h * p->kernel_w > MAX_WINDOW_AREA) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': a window of %" PRId32 "x%" PRId32
                            " has more than %d pixels",
                            node->name, p->kernel_h, p->kernel_w, MAX_WINDOW_AREA);
    }
    if (p->pad_top >= p->kernel_h || p->pad_bottom >= p->kernel_h || p->pad_left >= p->kernel_w ||
        p->pad_right >= p->kernel_w) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': padding must be smaller than the window of %" PRId32
                            "x%" PRId32,
                            node->name, p->kernel_h, p->kernel_w);
    }
    const dunlin_op_axis axes[2] = {
        {in_h, p->kernel_h, p->stride_h, p->pad_top, p->pad_bottom, 1, p->is_ceil},
        {in_w, p->kernel_w, p->stride_w, p->pad_left, p->pad_right, 1, p->is_ceil}};
    return dunlin__op_slide_both(net, node, axes, channels, error);
}

static dunlin_status infer_global(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    dunlin_net_value *y = &net->values[node->output];
    y->layout = DUNLIN_LAYOUT_IMAGE;
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    y->shape = (dunlin_shape){x->n_dims, {x->dims[0], 1, 1}};
    return DUNLIN_OK;
}

/* --- ONNX --- */

static dunlin_status read_pool(dunlin_onnx_node *onnx, const dunlin_net *net, dunlin_net_node *node)
{
    dunlin_op_window window;
    DUNLIN_TRY(dunlin__op_read_window(onnx, net, NULL, &window));
    if (window.dilations[0] != 1 || window.dilations[1] != 1) {
        return dunlin__onnx_reject(onnx, "dilations", "is not 1");
    }
    if (dunlin__onnx_n_outputs(onnx) > 1) {
        return dunlin__onnx_reject(onnx, "", "its second output (indices) is not supported");
    }
    node->u.pool = (dunlin_net_pool){
        .kernel_h = window.kernel[0],
        .kernel_w = window.kernel[1],
        .stride_h = window.strides[0],
        .stride_w = window.strides[1],
        .pad_top = window.pads[0],
        .pad_left = window.pads[1],
        .pad_bottom = window.pads[2],
        .pad_right = window.pads[3],
        .is_ceil = dunlin__onnx_int(onnx, "ceil_mode", 0) != 0,
        .counts_padding = dunlin__onnx_int(onnx, "count_include_pad", 0) != 0,
    };
    return dunlin__op_take_value(onnx, 0, node);
}

static dunlin_status max_from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_MAX_POOL;
    if (dunlin__onnx_int(onnx, "storage_order", 0) != 0) {
        return dunlin__onnx_reject(onnx, "storage_order", "is not 0");
    }
    DUNLIN_TRY(read_pool(onnx, net, node));
    int32_t kernel_h = node->u.pool.kernel_h;
    int32_t kernel_w = node->u.pool.kernel_w;
    if ((int64_t)kernel_h * kernel_w > MAX_WINDOW_AREA) {
        return dunlin__onnx_reject(onnx, "kernel_shape",
                                   "of %" PRId32 "x%" PRId32 " has more than %d pixels", kernel_h,
                                   kernel_w, MAX_WINDOW_AREA);
    }
    return DUNLIN_OK;
}

static dunlin_status average_from_onnx(dunlin_onnx_node *onnx, dunlin_net *net,
                                       dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_AVERAGE_POOL;
    return read_pool(onnx, net, node);
}

static dunlin_status global_from_onnx(dunlin_onnx_node *onnx, dunlin_net *net,
                                      dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_GLOBAL_AVERAGE_POOL;
    return dunlin__op_take_value(onnx, 0, node);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_pool *p = &node->u.pool;
    bool is_max = node->kind == DUNLIN_OP_MAX_POOL;
    dunlin_op_window window = {
        .n_axes = dunlin__op_n_axes(net, node->inputs[0]),
        .kernel = {p->kernel_h, p->kernel_w},
        .strides = {p->stride_h, p->stride_w},
        .pads = {p->pad_top, p->pad_left, p->pad_bottom, p->pad_right},
    };
    dunlin__onnx_begin_node(writer, is_max ? "MaxPool" : "AveragePool", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__op_write_window(writer, &window, false);
    dunlin__onnx_attr_int(writer, "ceil_mode", p->is_ceil);
    if (!is_max) {
        dunlin__onnx_attr_int(writer, "count_include_pad", p->counts_padding);
    }
    dunlin__onnx_end_node(writer);
}

static void global_to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net,
                           const dunlin_net_node *node)
{
    (void)net;
    dunlin__onnx_begin_node(writer, "GlobalAveragePool", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_end_node(writer);
}

/* --- the rows --- */

static const char *const max_names[] = {"MaxPool", NULL};
static const char *const average_names[] = {"AveragePool", NULL};
static const char *const global_names[] = {"GlobalAveragePool", NULL};

const dunlin_op_row dunlin__op_max_pool = {
    .kind = DUNLIN_OP_MAX_POOL,
    .name = "max_pool",
    .onnx_names = max_names,
    .stores_parts = true,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = max_from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward_max,
    .backward_fn = backward_max,
};

const dunlin_op_row dunlin__op_average_pool = {
    .kind = DUNLIN_OP_AVERAGE_POOL,
    .name = "average_pool",
    .onnx_names = average_names,
    .stores_parts = true,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = average_from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward_average,
    .backward_fn = backward_average,
};

const dunlin_op_row dunlin__op_global_average_pool = {
    .kind = DUNLIN_OP_GLOBAL_AVERAGE_POOL,
    .name = "global_average_pool",
    .onnx_names = global_names,
    .stores_parts = true,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer_global,
    .from_onnx_fn = global_from_onnx,
    .to_onnx_fn = global_to_onnx,
    .forward_fn = forward_average,
    .backward_fn = backward_average,
};
