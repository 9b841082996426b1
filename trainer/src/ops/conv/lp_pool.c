/*
 * lp_pool.c - the p-norm of each window: (sum of |x|^p)^(1/p).
 *
 * Three kernels forward, their gradients backward: powers, their sums over the window, roots. Where
 * a window is all zeros its gradient is 0, as that of a norm over dimensions is. Padding adds
 * nothing; a last window that hangs over the edge is one with more padding (the reader and the
 * builder say it so).
 */
#include "ops/common/maps.h"
#include "pool_shapes.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define MAX_P 64

enum { SAVED_X = 0, SAVED_SUMS };

/* Operands: x, sums; backward: dsums, dx. */
static dunlin_status run_sums(const dunlin_kernel_call *call)
{
    call->run->kernels->average_pool(call->params, call->n_samples, call->operands[0],
                                     call->operands[1], call->run->threads);
    return DUNLIN_OK;
}

static dunlin_status run_sums_grad(const dunlin_kernel_call *call)
{
    call->run->kernels->average_pool_grad(call->params, call->n_samples, call->operands[0],
                                          call->operands[1], call->run->threads);
    return DUNLIN_OK;
}

typedef struct power_params {
    int64_t n_elements; /* per sample */
    float exponent;
} power_params;

/* Operands: x, out; or dy, out, x. */
static dunlin_status run_power(const dunlin_kernel_call *call, bool is_backward)
{
    const power_params *p = call->params;
    const dunlin_unary_call unary = {
        .fn = DUNLIN_UNARY_ABS_POWER,
        .a = p->exponent,
        .n = call->n_samples * p->n_elements,
        .x = call->operands[is_backward ? 2 : 0],
        .dy = is_backward ? call->operands[0] : NULL,
        .out = call->operands[1],
        .threads = call->run->threads,
    };
    call->run->kernels->unary(&unary);
    return DUNLIN_OK;
}

static dunlin_status run_power_forward(const dunlin_kernel_call *call)
{
    return run_power(call, false);
}

static dunlin_status run_power_grad(const dunlin_kernel_call *call)
{
    return run_power(call, true);
}

static const dunlin_step_kernel sums_kernel = {
    .name = "window_sums",
    .run_fn = run_sums,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel sums_grad_kernel = {
    .name = "window_sums_grad",
    .run_fn = run_sums_grad,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel power_kernel = {
    .name = "abs_power",
    .run_fn = run_power_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 1,
    .in_place_read = 0,
};

static const dunlin_step_kernel power_grad_kernel = {
    .name = "abs_power_grad",
    .run_fn = run_power_grad,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 1,
    .in_place_read = 0,
};

static void emit_sums(dunlin_emit *emit, const dunlin_net_node *node,
                      const dunlin_step_kernel *kernel, const char *suffix, uint32_t from,
                      uint32_t to)
{
    dunlin_pool_shape shape = dunlin__op_pool_shape(dunlin__emit_net(emit), node);
    shape.is_sum = true;
    const dunlin_mem_access accesses[] = {
        {from, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {to, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, kernel, suffix, &shape, sizeof shape, accesses, 2,
                        (double)dunlin__op_elements(emit, node->output) * shape.kernel_h *
                            shape.kernel_w);
}

/* |x|^exponent of a value's numbers, or with `dy` its gradient. */
static void emit_power(dunlin_emit *emit, uint32_t value, const char *suffix, float exponent,
                       const uint32_t tensors[3])
{
    const bool is_backward = tensors[2] != DUNLIN_STEP_NONE;
    const power_params params = {dunlin__op_elements(emit, value), exponent};
    const dunlin_mem_access accesses[] = {
        {tensors[0], DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {tensors[1], DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {tensors[2], DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, is_backward ? &power_grad_kernel : &power_kernel, suffix, &params,
                        sizeof params, accesses, is_backward ? 3 : 2,
                        20.0 * (double)params.n_elements);
}

static uint32_t like(dunlin_emit *emit, uint32_t value, const char *suffix)
{
    return dunlin__emit_tensor(emit, suffix, DUNLIN_F32, true, dunlin__op_elements(emit, value),
                               DUNLIN_MEM_ACTIVATION);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const float p = (float)node->u.pool.p;
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const uint32_t powers = like(emit, node->inputs[0], "/powers");
    const uint32_t sums = like(emit, node->output, "/sums");
    const uint32_t y = dunlin__emit_output(emit, node->output);
    emit_power(emit, node->inputs[0], "/powers", p, (uint32_t[]){x, powers, DUNLIN_STEP_NONE});
    emit_sums(emit, node, &sums_kernel, "/sums", powers, sums);
    emit_power(emit, node->output, "", 1.0F / p, (uint32_t[]){sums, y, DUNLIN_STEP_NONE});
    dunlin__emit_save(emit, SAVED_X, x);
    dunlin__emit_save(emit, SAVED_SUMS, sums);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const float p = (float)node->u.pool.p;
    const uint32_t dy = dunlin__emit_grad(emit, node->output);
    const uint32_t dsums = like(emit, node->output, "/sums_grad");
    const uint32_t dpowers = like(emit, node->inputs[0], "/powers_grad");
    emit_power(emit, node->output, "/sums_grad", 1.0F / p,
               (uint32_t[]){dy, dsums, dunlin__emit_saved(emit, SAVED_SUMS)});
    emit_sums(emit, node, &sums_grad_kernel, "/powers_grad", dsums, dpowers);
    emit_power(emit, node->inputs[0], "/input_grad", p,
               (uint32_t[]){dpowers, dunlin__emit_grad_target(emit, node->inputs[0]),
                            dunlin__emit_saved(emit, SAVED_X)});
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    const dunlin_net_pool *p = &node->u.pool;
    if (p->p < 1 || p->p > MAX_P) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' takes a norm of p = %" PRId32 ", not 1 to %d",
                            node->name, p->p, MAX_P);
    }
    return dunlin__op_infer_pool(net, node, error);
}

/* A last window that hangs over the edge, by padding. */
static void extend(const dunlin_net *net, dunlin_net_node *node)
{
    dunlin_net_pool *p = &node->u.pool;
    int32_t sizes[2] = {0};
    int32_t channels = 0;
    dunlin__value_hwc(&net->values[node->inputs[0]], &sizes[0], &sizes[1], &channels);
    int32_t *const pads[2] = {&p->pad_bottom, &p->pad_right};
    const dunlin_op_axis axes[2] = {
        {sizes[0], p->kernel_h, p->stride_h, p->pad_top, p->pad_bottom, 1, true},
        {sizes[1], p->kernel_w, p->stride_w, p->pad_left, p->pad_right, 1, true}};
    for (int i = 0; i < 2; i++) {
        int64_t n = 0;
        dunlin_error error;
        if (dunlin__op_slide(node, "", &axes[i], &n, &error) == DUNLIN_OK) {
            const int64_t over =
                (n - 1) * axes[i].stride + axes[i].kernel - axes[i].in - axes[i].pad_before;
            *pads[i] = over > *pads[i] ? (int32_t)over : *pads[i];
        }
    }
    p->is_ceil = false;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    const bool is_global = strcmp(dunlin__onnx_op_type(onnx), "GlobalLpPool") == 0;
    node->kind = DUNLIN_OP_LP_POOL;
    if (is_global) {
        DUNLIN_TRY(dunlin__op_read_global_pool(onnx, net, node));
    } else {
        DUNLIN_TRY(dunlin__op_read_pool(onnx, net, node));
    }
    const int64_t p = dunlin__onnx_int(onnx, "p", 2);
    if (p < 1 || p > MAX_P) {
        return dunlin__onnx_reject(onnx, "p", "is %" PRId64 ", not 1 to %d", p, MAX_P);
    }
    node->u.pool.p = (int32_t)p;
    if (node->u.pool.dilation_h > 1 || node->u.pool.dilation_w > 1) {
        return dunlin__onnx_reject(onnx, "dilations", "is not 1");
    }
    if (node->u.pool.is_ceil) {
        extend(net, node);
    }
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    dunlin__onnx_begin_node(writer, "LpPool", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__op_write_pool_window(writer, net, node);
    dunlin__onnx_attr_int(writer, "p", node->u.pool.p);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"LpPool", "GlobalLpPool", NULL};

const dunlin_op_row dunlin__op_lp_pool = {
    .kind = DUNLIN_OP_LP_POOL,
    .name = "lp_pool",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
