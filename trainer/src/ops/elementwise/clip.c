/*
 * clip.c - ReLU, ReLU6 and any other clipping to a range.
 *
 * Invariant: the backward pass reads the output alone (the gradient passes where low < y < high),
 * so the input may be dropped, and the output may lie on it.
 */
#include "ops/common/support.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

typedef struct clip_params {
    int64_t n_elements; /* per sample */
    float low;
    float high;
} clip_params;

/* Operands: x, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const clip_params *p = call->params;
    call->run->kernels->clip(call->n_samples * p->n_elements, call->operands[0], p->low, p->high,
                             call->operands[1], call->run->threads);
    return DUNLIN_OK;
}

/* Operands: dy, y, dx. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const clip_params *p = call->params;
    call->run->kernels->clip_grad(call->n_samples * p->n_elements, call->operands[0],
                                  call->operands[1], p->low, p->high, call->operands[2],
                                  call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "clip",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 1,
    .in_place_read = 0,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "clip_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 2,
    .in_place_read = 0,
};

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    clip_params params = {dunlin__op_elements(emit, node->output), node->u.clip.low,
                          node->u.clip.high};
    uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    uint32_t y = dunlin__emit_output(emit, node->output);
    const dunlin_mem_access accesses[] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {y, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &forward_kernel,
                               .suffix = "",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = 2,
                           });
    dunlin__emit_save(emit, 0, y);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    clip_params params = {dunlin__op_elements(emit, node->output), node->u.clip.low,
                          node->u.clip.high};
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &backward_kernel,
                               .suffix = "/input_grad",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = 3,
                           });
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    if (!(node->u.clip.low < node->u.clip.high)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' clips to [%g, %g]: the range is empty", node->name,
                            (double)node->u.clip.low, (double)node->u.clip.high);
    }
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    dunlin_net_value *y = &net->values[node->output];
    y->shape = x->shape;
    y->layout = x->layout;
    return DUNLIN_OK;
}

/* A bound that is absent does not bound. */
static dunlin_status read_bound(dunlin_onnx_node *onnx, uint32_t index, const char *name,
                                double *bound)
{
    if (dunlin__onnx_has_input(onnx, index) && !dunlin__onnx_scalar_input(onnx, index, bound)) {
        return dunlin__onnx_reject(onnx, name, "is not a constant");
    }
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_CLIP;
    bool is_relu = strcmp(dunlin__onnx_op_type(onnx), "Relu") == 0;
    double low = is_relu ? 0.0 : -HUGE_VAL;
    double high = HUGE_VAL;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    if (!is_relu) {
        DUNLIN_TRY(read_bound(onnx, 1, "min", &low));
        DUNLIN_TRY(read_bound(onnx, 2, "max", &high));
    }
    node->u.clip.low = (float)low;
    node->u.clip.high = (float)high;
    if (!(node->u.clip.low < node->u.clip.high)) {
        return dunlin__onnx_reject(onnx, "", "it clips to [%g, %g]: the range is empty", low, high);
    }
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    bool is_relu =
        !(node->u.clip.low < 0.0F) && !(node->u.clip.low > 0.0F) && isinf(node->u.clip.high);
    dunlin__onnx_begin_node(writer, is_relu ? "Relu" : "Clip", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    if (!is_relu) {
        dunlin__onnx_add_scalar(writer, "/min", node->u.clip.low);
        dunlin__onnx_add_scalar(writer, "/max", node->u.clip.high);
    }
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Relu", "Clip", NULL};

const dunlin_op_row dunlin__op_clip = {
    .kind = DUNLIN_OP_CLIP,
    .name = "clip",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
