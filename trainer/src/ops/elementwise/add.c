/*
 * add.c - the sum of two activations of one shape.
 *
 * Invariant: the gradient of both inputs is the gradient of the output, unchanged, so the backward
 * pass computes nothing.
 */
#include "graph/fused.h"
#include "graph/rounded.h"
#include "ops/common/support.h"

#include <mem/support.h>

typedef struct add_params {
    int64_t n_elements; /* per sample */
} add_params;

/* Operands: a, b, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const add_params *p = call->params;
    call->run->kernels->add(call->n_samples * p->n_elements, call->operands[0], call->operands[1],
                            call->operands[2], call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel add_kernel = {
    .name = "add",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 2,
    .in_place_read = 0,
};

/* --- fused: of two views, clipped as it is stored --- */

typedef struct blend_params {
    int64_t rows_per_sample;
    int32_t channels;
    dunlin_store_ref y;
    dunlin_view_ref a, b;
} blend_params;

static dunlin_status run_blend(const dunlin_kernel_call *call)
{
    const blend_params *p = call->params;
    call->run->kernels->blend(&(dunlin_blend_call){
        .rows_per_sample = p->rows_per_sample,
        .n_samples = call->n_samples,
        .channels = p->channels,
        .a = dunlin__view_at(call, &p->a),
        .b = dunlin__view_at(call, &p->b),
        .low = p->y.low,
        .high = p->y.high,
        .out = call->operands[p->y.y],
        .out_pitch = p->y.pitch,
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

static const dunlin_step_kernel blend_kernel = {
    .name = "add",
    .run_fn = run_blend,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 0,
    .in_place_read = 1,
};

static void fused_forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    int32_t h = 0;
    int32_t w = 0;
    blend_params params;
    dunlin_op_list list = {.n = 0};
    dunlin__value_hwc(&dunlin__emit_net(emit)->values[node->output], &h, &w, &params.channels);
    params.rows_per_sample = (int64_t)h * w;
    dunlin__emit_store(emit, node->output, false, &list, &params.y);
    dunlin__emit_round_store(emit, node->output, &params.y);
    dunlin__emit_read_view(emit, node->inputs[0], &list, DUNLIN_MEM_MAP, &params.a);
    dunlin__emit_read_view(emit, node->inputs[1], &list, DUNLIN_MEM_MAP, &params.b);
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &blend_kernel,
                               .suffix = "",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = list.accesses,
                               .n_accesses = list.n,
                           });
    dunlin__emit_add(emit, node);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_is_fused(emit)) {
        fused_forward(emit, node);
        return;
    }
    add_params params = {dunlin__op_elements(emit, node->output)};
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_value(emit, node->inputs[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_value(emit, node->inputs[1]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &add_kernel,
                               .suffix = "",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = 3,
                           });
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_is_fused(emit)) {
        dunlin__emit_add_grad(emit, node);
        return;
    }
    uint32_t dy = dunlin__emit_grad(emit, node->output);
    for (int i = 0; i < 2; i++) {
        if (dunlin__emit_needs_grad(emit, node->inputs[i])) {
            dunlin__emit_grad_alias(emit, node->inputs[i], dy);
        }
    }
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 2, error));
    const dunlin_net_value *a = &net->values[node->inputs[0]];
    const dunlin_net_value *b = &net->values[node->inputs[1]];
    bool is_same = a->shape.n_dims == b->shape.n_dims && a->layout == b->layout;
    for (int32_t i = 0; is_same && i < a->shape.n_dims; i++) {
        is_same = a->shape.dims[i] == b->shape.dims[i];
    }
    if (!is_same) {
        char left[DUNLIN_OP_SHAPE_TEXT_BYTES];
        char right[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.80s' adds %.60s and %.60s: the shapes must be the same",
                            node->name, dunlin__op_shape_text(&a->shape, left),
                            dunlin__op_shape_text(&b->shape, right));
    }
    dunlin_net_value *y = &net->values[node->output];
    y->shape = a->shape;
    y->layout = a->layout;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_ADD;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    return dunlin__op_take_value(onnx, 1, node);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_value(writer, node->inputs[1]);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Add", NULL};

const dunlin_op_row dunlin__op_add = {
    .kind = DUNLIN_OP_ADD,
    .name = "add",
    .onnx_names = onnx_names,
    .stores_parts = true,
    .stores_clipped = true,
    .wish = DUNLIN_WISH_ALIKE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
