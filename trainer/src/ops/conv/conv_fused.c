/*
 * conv_fused.c - convolution and dense layers in a fused step: forward reads a view, stores its raw
 * or clipped output, and sums it for batch norm; backward takes both gradients in one op and puts
 * the input's where the sink says.
 *
 * Invariant: the output and the input's gradient are maps; weights' gradients and all sums are
 * reducers, so a batch may be cut into slices at any sample.
 */
#include "graph/fused.h"
#include "graph/rounded.h"
#include "ops/common/support.h"

#include <math.h>

typedef struct forward_params {
    dunlin_conv_shape shape;
    dunlin_view_ref x;
    dunlin_store_ref y;
    int32_t w, bias;
    bool is_x_half; /* it is read where it lies */
} forward_params;

typedef struct backward_params {
    dunlin_conv_shape shape;
    dunlin_view_ref x; /* x -1: no weight gradient */
    dunlin_grad_ref dy;
    dunlin_epilogue_ref dx; /* out -1: not wanted */
    int32_t w, dw, db;
    bool reads_halves; /* where they lie, and writes them so */
    bool is_x_half, is_dy_half;
} backward_params;

static double shape_flops(const dunlin_conv_shape *s)
{
    return 2.0 * s->out_h * s->out_w * s->out_c * ((double)s->in_c / s->groups) * s->kernel_h *
           s->kernel_w;
}

static void *operand(const dunlin_kernel_call *call, int32_t index)
{
    return index < 0 ? NULL : call->operands[index];
}

static int64_t rows_of(const dunlin_conv_shape *shape, bool is_input)
{
    return is_input ? (int64_t)shape->in_h * shape->in_w : (int64_t)shape->out_h * shape->out_w;
}

/* --- forward --- */

static uint64_t forward_workspace(const dunlin_kernels *kernels, const void *params,
                                  size_t n_threads, uint64_t *out_sample_bytes)
{
    const forward_params *p = params;
    const bool is_viewed = p->x.affine >= 0 || p->is_x_half;
    const uint32_t uses = DUNLIN_FUSED_FORWARD | (is_viewed ? DUNLIN_FUSED_VIEW : 0U) |
                          (p->y.stat.sums >= 0 && !p->y.is_rounded ? DUNLIN_FUSED_STATS : 0U);
    const uint64_t bytes =
        kernels->fused_workspace_bytes(&p->shape, uses, n_threads, out_sample_bytes);
    const bool is_late = p->y.stat.sums >= 0 && p->y.is_rounded;
    return is_late
               ? dunlin__late_workspace(
                     kernels, &(dunlin_late_room){bytes, p->shape.out_c, rows_of(&p->shape, false)},
                     out_sample_bytes)
               : bytes;
}

static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const forward_params *p = call->params;
    dunlin_fused_call conv = {
        .shape = &p->shape,
        .n_samples = call->n_samples,
        .x = dunlin__view_at(call, &p->x),
        .w = call->operands[p->w],
        .bias = operand(call, p->bias),
        .y = call->operands[p->y.y],
        .y_pitch = p->y.pitch,
        .low = p->y.low,
        .high = p->y.high,
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    const bool has_sums = operand(call, p->y.stat.sums) != NULL;
    if (has_sums && !p->y.is_rounded) {
        conv.stat = dunlin__stat_at(call, &p->y.stat);
    }
    call->run->kernels->fused_forward(&conv);
    if (has_sums && p->y.is_rounded) {
        dunlin__store_finish(call, &p->y, rows_of(&p->shape, false), p->shape.out_c);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernels[] =
    DUNLIN_FUSED_KERNELS("conv", run_forward, forward_workspace);

void dunlin__op_emit_fused_conv(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_conv_shape *shape)
{
    forward_params params = {.shape = *shape, .bias = -1};
    dunlin_op_list list = {.n = 0};
    dunlin__emit_store(emit, node->output, true, &list, &params.y);
    dunlin__emit_round_store(emit, node->output, &params.y);
    dunlin__emit_read_view(emit, node->inputs[0], &list, DUNLIN_MEM_MAP, &params.x);
    params.is_x_half = dunlin__emit_is_half(emit, &list, params.x.x);
    params.w = dunlin__op_touch(&list, dunlin__emit_param(emit, node->params[0]), DUNLIN_MEM_READ,
                                DUNLIN_MEM_MAP);
    if (dunlin__op_has_param(node, 1)) {
        params.bias = dunlin__op_touch(&list, dunlin__emit_param(emit, node->params[1]),
                                       DUNLIN_MEM_READ, DUNLIN_MEM_MAP);
    }
    const bool has_reducer = params.y.stat.sums >= 0 && params.y.stat.n_own == 0;
    const uint32_t parts = has_reducer ? DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE : DUNLIN_MEM_MAP;
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = dunlin__fused_kernel(forward_kernels, parts, NULL),
                               .suffix = "",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = list.accesses,
                               .n_accesses = list.n,
                               .reads_halves = dunlin__emit_is_rounding(emit),
                               .flops_per_sample = shape_flops(shape),
                           });
}

/* --- backward --- */

static uint64_t backward_workspace(const dunlin_kernels *kernels, const void *params,
                                   size_t n_threads, uint64_t *out_sample_bytes)
{
    const backward_params *p = params;
    uint32_t uses = p->dx.out >= 0 ? DUNLIN_FUSED_INPUT_GRAD : 0;
    uses |= p->x.x >= 0 ? DUNLIN_FUSED_WEIGHT_GRAD : 0U;
    uses |= p->x.x >= 0 && (p->x.affine >= 0 || p->is_x_half) ? DUNLIN_FUSED_VIEW : 0U;
    uses |= p->dy.factor >= 0 || p->dy.raw >= 0 || p->is_dy_half ? DUNLIN_FUSED_GRAD : 0U;
    const bool is_late = p->dx.n_stats > 0 && p->dx.is_rounded && !p->reads_halves;
    uses |= p->dx.n_stats > 0 && !is_late ? DUNLIN_FUSED_STATS : 0U;
    const uint64_t bytes =
        kernels->fused_workspace_bytes(&p->shape, uses, n_threads, out_sample_bytes);
    return is_late
               ? dunlin__late_workspace(
                     kernels, &(dunlin_late_room){bytes, p->shape.in_c, rows_of(&p->shape, true)},
                     out_sample_bytes)
               : bytes;
}

static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const backward_params *p = call->params;
    dunlin_fused_call conv = {
        .shape = &p->shape,
        .n_samples = call->n_samples,
        .w = operand(call, p->w),
        .dy = dunlin__grad_at(call, &p->dy),
        .low = -HUGE_VALF,
        .high = HUGE_VALF,
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    dunlin_late_sums late = {.n = 0};
    if (p->dx.out >= 0) {
        conv.dx = dunlin__epilogue_at(call, &p->dx);
        late = dunlin__epilogue_hold(&p->dx, &conv.dx);
    }
    if ((call->parts & DUNLIN_MEM_REDUCE) != 0 && p->x.x >= 0) {
        conv.x = dunlin__view_at(call, &p->x);
        conv.dw = operand(call, p->dw);
        conv.db = operand(call, p->db);
    }
    call->run->kernels->fused_backward(&conv);
    dunlin__epilogue_finish(call, &p->dx, &late, rows_of(&p->shape, true));
    return DUNLIN_OK;
}

static const dunlin_step_kernel backward_kernels[] =
    DUNLIN_FUSED_KERNELS("conv_grad", run_backward, backward_workspace);

static int32_t touch_param_grad(dunlin_emit *emit, const dunlin_net_node *node, uint32_t slot,
                                dunlin_op_list *list)
{
    if (!dunlin__op_has_param(node, slot) || !dunlin__emit_is_trained(emit, node->params[slot])) {
        return -1;
    }
    return dunlin__op_touch(list, dunlin__emit_param_grad(emit, node->params[slot]),
                            DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE);
}

void dunlin__op_emit_fused_conv_grads(dunlin_emit *emit, const dunlin_net_node *node,
                                      const dunlin_conv_shape *shape)
{
    backward_params params = {.shape = *shape,
                              .x = DUNLIN_NO_VIEW,
                              .dx = {.out = -1},
                              .w = -1,
                              .reads_halves = dunlin__emit_is_rounding(emit)};
    dunlin_op_list list = {.n = 0};
    const uint32_t input = node->inputs[0];
    const bool has_dx = dunlin__emit_needs_grad(emit, input);
    /* Closing may take ops of its own: they come before this one. */
    dunlin__emit_finish_grad(emit, node->output);
    if (has_dx) {
        dunlin__emit_epilogue(emit, input, &list, &params.dx);
    }
    params.dw = touch_param_grad(emit, node, 0, &list);
    params.db = touch_param_grad(emit, node, 1, &list);
    const bool has_params = params.dw >= 0 || params.db >= 0;
    uint32_t parts = has_dx ? DUNLIN_MEM_MAP : 0;
    parts |= has_params ? DUNLIN_MEM_REDUCE : 0;
    parts |= dunlin__epilogue_sums_parts(&params.dx);
    if (parts == 0) {
        return;
    }
    dunlin__emit_read_grad(emit, node->output, &list, (uint8_t)parts, &params.dy);
    params.is_dy_half = dunlin__emit_is_half(emit, &list, params.dy.g);
    if (has_params) {
        dunlin__emit_read_view(emit, input, &list, DUNLIN_MEM_REDUCE, &params.x);
        params.is_x_half = dunlin__emit_is_half(emit, &list, params.x.x);
    }
    if (has_dx) {
        params.w = dunlin__op_touch(&list, dunlin__emit_param(emit, node->params[0]),
                                    DUNLIN_MEM_READ, (uint8_t)parts);
    }
    dunlin__op_trim(&list, parts);
    dunlin__emit_run(
        emit,
        &(dunlin_emit_op){
            .kernel = dunlin__fused_kernel(backward_kernels, parts, has_dx ? &params.dx : NULL),
            .suffix = "/grad",
            .params = &params,
            .params_bytes = sizeof params,
            .accesses = list.accesses,
            .n_accesses = list.n,
            .reads_halves = params.reads_halves,
            .writes_halves = params.reads_halves,
            .flops_per_sample =
                shape_flops(shape) * ((has_dx ? 1.0 : 0.0) + (has_params ? 1.0 : 0.0)),
            .reduce_flops_per_sample = has_dx && has_params ? shape_flops(shape) : 0.0,
        });
}
