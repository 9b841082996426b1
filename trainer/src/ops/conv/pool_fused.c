/*
 * pool_fused.c - see pool_fused.h.
 *
 * Invariant: a maximum is taken of what the view shows, never of the raw tensor: a batch norm's
 * scale may be negative.
 */
#include "pool_fused.h"

#include "graph/rounded.h"
#include "kernels/api/place_bits.h"
#include "ops/common/support.h"
#include "pool_shapes.h"

enum { SAVED_INDEX = 0, SAVED_SIGNS = 0 }; /* a pooling has one of them */

typedef struct pool_params {
    dunlin_pool_shape shape;
    bool is_max;
    dunlin_view_ref x;
    dunlin_store_ref y;
    int32_t index, signs; /* -1: none */
    dunlin_grad_ref dy;
    dunlin_epilogue_ref dx;
} pool_params;

static dunlin_pool_call pool_call(const dunlin_kernel_call *call)
{
    const pool_params *p = call->params;
    return (dunlin_pool_call){
        .shape = &p->shape,
        .is_max = p->is_max,
        .n_samples = call->n_samples,
        .index = p->index < 0 ? NULL : call->operands[p->index],
        .signs = p->signs < 0 ? NULL : call->operands[p->signs],
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
}

static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const pool_params *p = call->params;
    dunlin_pool_call pool = pool_call(call);
    pool.x = dunlin__view_at(call, &p->x);
    pool.y = call->operands[p->y.y];
    pool.y_pitch = p->y.pitch;
    call->run->kernels->pool_forward(&pool);
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "pool",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static uint64_t backward_workspace(const dunlin_kernels *kernels, const void *params,
                                   size_t n_threads, uint64_t *out_sample_bytes)
{
    (void)n_threads;
    const pool_params *p = params;
    const uint64_t bytes = kernels->pool_workspace_bytes(&p->shape, out_sample_bytes);
    const dunlin_late_room room = {bytes, p->shape.channels,
                                   (int64_t)p->shape.in_h * p->shape.in_w};
    return p->dx.is_rounded ? dunlin__late_workspace(kernels, &room, out_sample_bytes) : bytes;
}

static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const pool_params *p = call->params;
    dunlin_pool_call pool = pool_call(call);
    pool.dy = dunlin__grad_at(call, &p->dy);
    pool.dx = dunlin__epilogue_at(call, &p->dx);
    const dunlin_late_sums late = dunlin__epilogue_hold(&p->dx, &pool.dx);
    call->run->kernels->pool_backward(&pool);
    dunlin__epilogue_finish(call, &p->dx, &late, (int64_t)p->shape.in_h * p->shape.in_w);
    return DUNLIN_OK;
}

static const dunlin_step_kernel backward_kernels[] =
    DUNLIN_FUSED_KERNELS("pool_grad", run_backward, backward_workspace);

static void run(dunlin_emit *emit, const dunlin_step_kernel *kernel, const char *suffix,
                const pool_params *params, const dunlin_op_list *list)
{
    const dunlin_pool_shape *s = &params->shape;
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = kernel,
                               .suffix = suffix,
                               .params = params,
                               .params_bytes = sizeof *params,
                               .accesses = list->accesses,
                               .n_accesses = list->n,
                               .flops_per_sample = (double)s->out_h * s->out_w * s->channels *
                                                   s->kernel_h * s->kernel_w,
                           });
}

void dunlin__op_emit_fused_pool(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_pool_shape *shape)
{
    pool_params params = {
        .shape = *shape, .is_max = node->kind == DUNLIN_OP_MAX_POOL, .index = -1, .signs = -1};
    const bool has_gradient = dunlin__emit_mode(emit) == DUNLIN_EMIT_TRAIN &&
                              dunlin__emit_needs_grad(emit, node->inputs[0]);
    dunlin_op_list list = {.n = 0};
    dunlin__emit_store(emit, node->output, false, &list, &params.y);
    dunlin__emit_read_view(emit, node->inputs[0], &list, DUNLIN_MEM_MAP, &params.x);
    if (params.is_max && has_gradient) {
        const uint32_t index = dunlin__emit_tensor(emit, "/index", DUNLIN_U8, true,
                                                   dunlin__op_place_bytes(shape), DUNLIN_MEM_SAVED);
        params.index = dunlin__op_touch(&list, index, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP);
        dunlin__emit_save(emit, SAVED_INDEX, index);
    }
    if (has_gradient && dunlin__emit_keeps_signs(emit, node->inputs[0])) {
        const uint32_t signs =
            dunlin__emit_tensor(emit, "/signs", DUNLIN_U8, true,
                                (int64_t)shape->in_h * shape->in_w *
                                    dunlin__place_bytes(DUNLIN_SIGN_BITS, shape->channels),
                                DUNLIN_MEM_SAVED);
        params.signs = dunlin__op_touch(&list, signs, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP);
        dunlin__emit_save(emit, SAVED_SIGNS, signs);
    }
    run(emit, &forward_kernel, "", &params, &list);
}

void dunlin__op_emit_fused_pool_grad(dunlin_emit *emit, const dunlin_net_node *node,
                                     const dunlin_pool_shape *shape)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    pool_params params = {
        .shape = *shape, .is_max = node->kind == DUNLIN_OP_MAX_POOL, .index = -1, .signs = -1};
    dunlin_op_list list = {.n = 0};
    dunlin__emit_finish_grad(emit, node->output);
    dunlin__emit_epilogue(emit, node->inputs[0], &list, &params.dx);
    const uint32_t parts = DUNLIN_MEM_MAP | dunlin__epilogue_sums_parts(&params.dx);
    dunlin__emit_read_grad(emit, node->output, &list, (uint8_t)parts, &params.dy);
    if (params.is_max) {
        params.index = dunlin__op_touch(&list, dunlin__emit_saved(emit, SAVED_INDEX),
                                        DUNLIN_MEM_READ, (uint8_t)parts);
    }
    if (dunlin__emit_keeps_signs(emit, node->inputs[0])) {
        params.signs = dunlin__op_touch(&list, dunlin__emit_saved(emit, SAVED_SIGNS),
                                        DUNLIN_MEM_READ, (uint8_t)parts);
    }
    dunlin__op_trim(&list, parts);
    run(emit, dunlin__fused_kernel(backward_kernels, parts, &params.dx), "/input_grad", &params,
        &list);
}
