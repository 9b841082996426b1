/*
 * concat.c - activations side by side: images along the channels, rows along the features.
 *
 * In memory both are the same: rows of one pitch, in which every input has its own columns.
 */
#include "graph/fused.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>

typedef struct concat_params {
    int64_t rows_per_sample;
    int64_t pitch;  /* floats of a row of the output */
    int64_t offset; /* gradient: first column of the input */
    uint32_t n_inputs;
    int32_t widths[DUNLIN_NET_MAX_INPUTS]; /* gradient: of the one input, widths[0] */
} concat_params;

/* Operands: the inputs, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const concat_params *p = call->params;
    float *y = call->operands[p->n_inputs];
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        call->run->kernels->copy_rows(call->n_samples * p->rows_per_sample, p->widths[i],
                                      call->operands[i], p->widths[i], y, p->pitch,
                                      call->run->threads);
        y += p->widths[i];
    }
    return DUNLIN_OK;
}

/* Operands: dy, dx of one input. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const concat_params *p = call->params;
    const float *dy = call->operands[0];
    call->run->kernels->copy_rows(call->n_samples * p->rows_per_sample, p->widths[0],
                                  dy + p->offset, p->pitch, call->operands[1], p->widths[0],
                                  call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "concat",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_redo = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "concat_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_redo = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static concat_params node_params(const dunlin_net *net, const dunlin_net_node *node)
{
    concat_params params = {.n_inputs = node->n_inputs};
    int32_t h = 0;
    int32_t w = 0;
    int32_t c = 0;
    dunlin__value_hwc(&net->values[node->output], &h, &w, &c);
    params.rows_per_sample = (int64_t)h * w;
    params.pitch = c;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        dunlin__value_hwc(&net->values[node->inputs[i]], &h, &w, &params.widths[i]);
    }
    return params;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_is_fused(emit)) {
        dunlin__emit_concat(emit, node);
        return;
    }
    concat_params params = node_params(dunlin__emit_net(emit), node);
    dunlin_mem_access accesses[DUNLIN_NET_MAX_INPUTS + 1];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        accesses[i] = (dunlin_mem_access){dunlin__emit_value(emit, node->inputs[i]),
                                          DUNLIN_MEM_READ, DUNLIN_MEM_MAP};
    }
    accesses[node->n_inputs] = (dunlin_mem_access){dunlin__emit_output(emit, node->output),
                                                   DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &forward_kernel,
                               .suffix = "",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = node->n_inputs + 1,
                           });
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_is_fused(emit)) {
        dunlin__emit_concat_grad(emit, node);
        return;
    }
    concat_params whole = node_params(dunlin__emit_net(emit), node);
    uint32_t dy = dunlin__emit_grad(emit, node->output);
    int64_t offset = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        concat_params params = {
            .rows_per_sample = whole.rows_per_sample,
            .pitch = whole.pitch,
            .offset = offset,
            .n_inputs = 1,
            .widths = {whole.widths[i]},
        };
        offset += whole.widths[i];
        if (!dunlin__emit_needs_grad(emit, node->inputs[i])) {
            continue;
        }
        const dunlin_mem_access accesses[] = {
            {dy, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
            {dunlin__emit_grad_target(emit, node->inputs[i]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        };
        dunlin__emit_run(emit, &(dunlin_emit_op){
                                   .kernel = &backward_kernel,
                                   .suffix = "/input_grad",
                                   .params = &params,
                                   .params_bytes = sizeof params,
                                   .accesses = accesses,
                                   .n_accesses = 2,
                               });
    }
}

/* All dimensions but the joined one must agree. */
static bool fits(const dunlin_net_value *first, const dunlin_net_value *other, int32_t axis)
{
    if (other->layout != first->layout || other->shape.n_dims != first->shape.n_dims) {
        return false;
    }
    for (int32_t i = 0; i < first->shape.n_dims; i++) {
        if (i != axis && other->shape.dims[i] != first->shape.dims[i]) {
            return false;
        }
    }
    return true;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    const dunlin_net_value *first = &net->values[node->inputs[0]];
    bool is_image = first->layout == DUNLIN_LAYOUT_IMAGE && first->shape.n_dims == 3;
    bool is_row = first->layout == DUNLIN_LAYOUT_PLAIN && first->shape.n_dims == 1;
    int64_t joined = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const dunlin_net_value *x = &net->values[node->inputs[i]];
        if ((!is_image && !is_row) || !fits(first, x, 0)) {
            char one[DUNLIN_OP_SHAPE_TEXT_BYTES];
            char other[DUNLIN_OP_SHAPE_TEXT_BYTES];
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "node '%.60s' joins %.50s and %.50s: they must be images of one "
                                "height and width, or rows of features",
                                node->name, dunlin__op_shape_text(&first->shape, one),
                                dunlin__op_shape_text(&x->shape, other));
        }
        joined += x->shape.dims[0]; /* at most 64 numbers of 31 bits */
    }
    dunlin_net_value *y = &net->values[node->output];
    y->shape = first->shape;
    y->shape.dims[0] = joined;
    y->layout = first->layout;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_CONCAT;
    int64_t axis = dunlin__onnx_int(onnx, "axis", 0);
    if (axis != 1) {
        return dunlin__onnx_reject(onnx, "axis",
                                   "is %" PRId64 "; only 1 (channels, features) is trained", axis);
    }
    uint32_t n_inputs = dunlin__onnx_n_inputs(onnx);
    if (n_inputs < 1 || n_inputs > DUNLIN_NET_MAX_INPUTS) {
        return dunlin__onnx_reject(onnx, "", "it has %" PRIu32 " inputs, not 1 to %d", n_inputs,
                                   DUNLIN_NET_MAX_INPUTS);
    }
    for (uint32_t i = 0; i < n_inputs; i++) {
        DUNLIN_TRY(dunlin__op_take_value(onnx, i, node));
    }
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    dunlin__onnx_begin_node(writer, "Concat", node);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        dunlin__onnx_add_value(writer, node->inputs[i]);
    }
    dunlin__onnx_attr_int(writer, "axis", 1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Concat", NULL};

const dunlin_op_row dunlin__op_concat = {
    .kind = DUNLIN_OP_CONCAT,
    .name = "concat",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
