/*
 * pool.c - maximum, average and global average pooling.
 *
 * Invariant: a window reaches over a pixel of the image (padding is smaller than the window, and
 * no window starts beyond the image). For the backward pass the maximum keeps the winner's place in
 * its window, a few bits per output; averages keep nothing, but a global one the signs that an
 * activation before it would be kept for.
 */
#include "ops/common/support.h"
#include "pool_fused.h"
#include "pool_shapes.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

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
    pool_params params = {.shape = dunlin__op_pool_shape(dunlin__emit_net(emit), node)};
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
                                dunlin__op_place_bytes(&params.shape), DUNLIN_MEM_SAVED);
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
    pool_params params = {.shape = dunlin__op_pool_shape(dunlin__emit_net(emit), node),
                          .has_index = true};
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
    pool_params params = {.shape = dunlin__op_pool_shape(dunlin__emit_net(emit), node)};
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
    pool_params params = {.shape = dunlin__op_pool_shape(dunlin__emit_net(emit), node)};
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
    const dunlin_net_pool *p = &node->u.pool;
    if (node->kind == DUNLIN_OP_MAX_POOL &&
        (int64_t)p->kernel_h * p->kernel_w > DUNLIN_MAX_POOL_AREA) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': a window of %" PRId32 "x%" PRId32
                            " has more than %d pixels",
                            node->name, p->kernel_h, p->kernel_w, DUNLIN_MAX_POOL_AREA);
    }
    return dunlin__op_infer_pool(net, node, error);
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

/* Windows of more pixels are made by the reader, of several (convert/rewrite/pools.c). */
static dunlin_status max_from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_MAX_POOL;
    if (strcmp(dunlin__onnx_op_type(onnx), "GlobalMaxPool") == 0) {
        return dunlin__op_read_global_pool(onnx, net, node);
    }
    if (dunlin__onnx_int(onnx, "storage_order", 0) != 0) {
        return dunlin__onnx_reject(onnx, "storage_order", "is not 0");
    }
    return dunlin__op_read_pool(onnx, net, node);
}

static dunlin_status average_from_onnx(dunlin_onnx_node *onnx, dunlin_net *net,
                                       dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_AVERAGE_POOL;
    DUNLIN_TRY(dunlin__op_read_pool(onnx, net, node));
    /* Opset 17, which is written, has them of the largest alone. */
    if (node->u.pool.dilation_h > 1 || node->u.pool.dilation_w > 1) {
        return dunlin__onnx_reject(onnx, "dilations", "is not 1");
    }
    return DUNLIN_OK;
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
    const bool is_max = node->kind == DUNLIN_OP_MAX_POOL;
    dunlin__onnx_begin_node(writer, is_max ? "MaxPool" : "AveragePool", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__op_write_pool_window(writer, net, node);
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

static const char *const max_names[] = {"MaxPool", "GlobalMaxPool", NULL};
static const char *const average_names[] = {"AveragePool", NULL};
static const char *const global_names[] = {"GlobalAveragePool", NULL};

const dunlin_op_row dunlin__op_max_pool = {
    .kind = DUNLIN_OP_MAX_POOL,
    .name = "max_pool",
    .onnx_names = max_names,
    .bounds = DUNLIN_BOUNDS_KEPT,
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
