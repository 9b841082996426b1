/*
 * layer_norm.c - normalisation over the last dimension, or over the last ones, with a scale and a
 * shift (Ba, Kiros, Hinton 2016), or about 0 with a scale alone (RMSNorm, Zhang and Sennrich 2019).
 *
 * Backward is one op: the gradient of the input as a map, those of scale and shift as a reducer.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

typedef struct layer_norm_params {
    int64_t rows_per_sample;
    int64_t width;
    float eps;
    bool is_about_zero;
    bool has_dx, has_dgamma, has_dbeta;
} layer_norm_params;

enum { GAMMA = 0, BETA = 1 };
enum { SAVED_X = 0, SAVED_STATS = 1 };

/* Operands: x, scale, shift if there is one, rows' statistics, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const layer_norm_params *p = call->params;
    const uint32_t next = p->is_about_zero ? 2 : 3;
    call->run->kernels->layer_norm(&(dunlin_layer_norm_call){
        .rows_per_sample = p->rows_per_sample,
        .n_samples = call->n_samples,
        .width = (int32_t)p->width,
        .epsilon = p->eps,
        .is_about_zero = p->is_about_zero,
        .x = call->operands[0],
        .gamma = call->operands[1],
        .beta = p->is_about_zero ? NULL : call->operands[2],
        .statistics = call->operands[next],
        .y = call->operands[next + 1],
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

/* Workspace is aligned to 64 bytes, so what lies an aligned size before its end is too. */
static uint64_t spare_bytes(const layer_norm_params *p)
{
    return ((uint64_t)p->width * sizeof(float) + 63) & ~(uint64_t)63;
}

/* Operands: x, scale, rows' statistics, dy; then dx, the gradients of scale and shift as far as
 * they are wanted. What the current parts do not touch is NULL. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const layer_norm_params *p = call->params;
    uint32_t next = 4;
    dunlin_layer_norm_call norm = {
        .rows_per_sample = p->rows_per_sample,
        .n_samples = call->n_samples,
        .width = (int32_t)p->width,
        .is_about_zero = p->is_about_zero,
        .x = call->operands[0],
        .gamma = call->operands[1],
        .statistics = call->operands[2],
        .dy = call->operands[3],
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    if (p->has_dx) {
        norm.dx = call->operands[next++];
    }
    if (p->has_dgamma) {
        norm.dgamma = call->operands[next++];
    }
    if (p->has_dbeta) {
        norm.dbeta = call->operands[next];
    }
    if (p->has_dgamma != p->has_dbeta && (call->parts & DUNLIN_MEM_REDUCE) != 0) {
        unsigned char *end =
            (unsigned char *)call->workspace + (call->workspace_bytes & ~(size_t)63);
        float *spare = (float *)(void *)(end - spare_bytes(p));
        *(p->has_dgamma ? &norm.dbeta : &norm.dgamma) = spare;
    }
    call->run->kernels->layer_norm_grad(&norm);
    return DUNLIN_OK;
}

static uint64_t backward_workspace(const dunlin_kernels *kernels, const void *params,
                                   size_t n_threads, uint64_t *out_sample_bytes)
{
    (void)n_threads;
    const layer_norm_params *p = params;
    *out_sample_bytes = kernels->layer_norm_workspace_bytes((int32_t)p->width, p->rows_per_sample);
    /* One of the two alone: the kernel makes both, the other goes nowhere. */
    return p->has_dgamma != p->has_dbeta ? spare_bytes(p) : 0;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "layer_norm",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

#define BACKWARD_KERNEL(parts_of, recomputes, write, read)                                         \
    {                                                                                              \
        .name = "layer_norm_grad", .run_fn = run_backward, .parts = (parts_of),                    \
        .may_recompute = (recomputes), .in_place_write = (write), .in_place_read = (read),         \
        .workspace_fn = backward_workspace                                                         \
    }

static const dunlin_step_kernel backward_map = BACKWARD_KERNEL(DUNLIN_MEM_MAP, true, 4, 3);
static const dunlin_step_kernel backward_reduce = BACKWARD_KERNEL(DUNLIN_MEM_REDUCE, false, -1, -1);
static const dunlin_step_kernel backward_both =
    BACKWARD_KERNEL(DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, true, 4, 3);

static layer_norm_params node_params(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const int64_t width = net->params[node->params[GAMMA]].n_elements;
    return (layer_norm_params){.rows_per_sample = dunlin__value_elements(x) / width,
                               .width = width,
                               .eps = node->u.layer_norm.eps,
                               .is_about_zero = node->u.layer_norm.is_about_zero};
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const layer_norm_params params = node_params(dunlin__emit_net(emit), node);
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const uint32_t stats = dunlin__emit_tensor(emit, "/rows", DUNLIN_F32, true,
                                               2 * params.rows_per_sample, DUNLIN_MEM_SAVED);
    dunlin_mem_access accesses[5] = {{x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP}};
    uint32_t n = 1;
    for (uint32_t slot = GAMMA; slot <= (params.is_about_zero ? GAMMA : BETA); slot++) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_param(emit, node->params[slot]),
                                            DUNLIN_MEM_READ, DUNLIN_MEM_MAP};
    }
    accesses[n++] = (dunlin_mem_access){stats, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
    accesses[n++] = (dunlin_mem_access){dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE,
                                        DUNLIN_MEM_MAP};
    dunlin__op_emit_map(emit, &forward_kernel, "", &params, sizeof params, accesses, n,
                        8.0 * (double)(params.rows_per_sample * params.width));
    dunlin__emit_save(emit, SAVED_X, x);
    dunlin__emit_save(emit, SAVED_STATS, stats);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    layer_norm_params params = node_params(dunlin__emit_net(emit), node);
    params.has_dx = dunlin__emit_needs_grad(emit, node->inputs[0]);
    params.has_dgamma = dunlin__emit_is_trained(emit, node->params[GAMMA]);
    params.has_dbeta = !params.is_about_zero && dunlin__emit_is_trained(emit, node->params[BETA]);
    const bool has_sums = params.has_dgamma || params.has_dbeta;
    const uint8_t parts =
        (uint8_t)((params.has_dx ? DUNLIN_MEM_MAP : 0) | (has_sums ? DUNLIN_MEM_REDUCE : 0));
    dunlin_mem_access accesses[7] = {
        {dunlin__emit_saved(emit, SAVED_X), DUNLIN_MEM_READ, parts},
        {dunlin__emit_param(emit, node->params[GAMMA]), DUNLIN_MEM_READ, parts},
        {dunlin__emit_saved(emit, SAVED_STATS), DUNLIN_MEM_READ, parts},
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, parts},
    };
    uint32_t n = 4;
    if (params.has_dx) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_grad_target(emit, node->inputs[0]),
                                            DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
    }
    const bool is_trained[2] = {params.has_dgamma, params.has_dbeta};
    for (uint32_t slot = GAMMA; slot <= BETA; slot++) {
        if (is_trained[slot]) {
            accesses[n++] = (dunlin_mem_access){dunlin__emit_param_grad(emit, node->params[slot]),
                                                DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE};
        }
    }
    if (parts == 0) {
        return;
    }
    const dunlin_step_kernel *kernel = !has_sums       ? &backward_map
                                       : params.has_dx ? &backward_both
                                                       : &backward_reduce;
    dunlin__op_emit_map(emit, kernel, "/grad", &params, sizeof params, accesses, n,
                        14.0 * (double)(params.rows_per_sample * params.width));
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    DUNLIN_TRY(dunlin__op_want_plain(net, node, 0, 1, error));
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    const float eps = node->u.layer_norm.eps;
    if (!(eps > 0.0F && eps <= 1.0F)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': epsilon %g must be in (0, 1]", node->name, (double)eps);
    }
    /* As many dimensions as the scale has. */
    const int32_t n_scale =
        dunlin__op_has_param(node, GAMMA) ? net->params[node->params[GAMMA]].shape.n_dims : 1;
    const int32_t n_normed = n_scale < 1 || n_scale > x->n_dims ? 1 : n_scale;
    dunlin_shape wanted = {.n_dims = n_normed};
    memcpy(wanted.dims, x->dims + x->n_dims - n_normed, (size_t)n_normed * sizeof x->dims[0]);
    DUNLIN_TRY(dunlin__op_want_param(net, node, GAMMA, &wanted, DUNLIN_PARAM_PLAIN, error));
    if (!node->u.layer_norm.is_about_zero) {
        DUNLIN_TRY(dunlin__op_want_param(net, node, BETA, &wanted, DUNLIN_PARAM_PLAIN, error));
    }
    dunlin__op_keep_shape(net, node);
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_LAYER_NORM;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 1, "the scale", node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 2, "the shift", node));
    node->u.layer_norm.eps = dunlin__onnx_float(onnx, "epsilon", 1e-5F);
    if (dunlin__onnx_int(onnx, "stash_type", 1) != 1) {
        return dunlin__onnx_reject(onnx, "stash_type", "is not 1 (float32)");
    }
    const int32_t n_dims = net->values[node->inputs[0]].shape.n_dims;
    const int64_t axis = dunlin__onnx_int(onnx, "axis", -1);
    const int64_t n_normed = axis < 0 ? -axis : n_dims + 1 - axis;
    const int32_t n_scale = net->params[node->params[GAMMA]].shape.n_dims;
    if (n_normed < 1 || n_normed > n_dims || n_normed != n_scale) {
        return dunlin__onnx_reject(onnx, "axis",
                                   "is %" PRId64 " of %" PRId32
                                   " dimensions, the scale has %" PRId32
                                   "; only the last ones, which the scale has too, are trained",
                                   axis, n_dims + 1, n_scale);
    }
    return DUNLIN_OK;
}

/* x / sqrt(mean of x^2 + eps) * scale: ONNX has no such operator before opset 23. */
static void write_about_zero(dunlin_onnx_writer *writer, const dunlin_net_node *node)
{
    const int64_t axis = -1;
    dunlin__onnx_begin_node(writer, "Pow", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_scalar(writer, "/two", 2.0F);
    dunlin__onnx_end_part(writer, "/squares");
    dunlin__onnx_begin_node(writer, "ReduceMean", node);
    dunlin__onnx_add_part(writer, "/squares");
    dunlin__onnx_attr_ints(writer, "axes", &axis, 1);
    dunlin__onnx_end_part(writer, "/square");
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, "/square");
    dunlin__onnx_add_scalar(writer, "/epsilon", node->u.layer_norm.eps);
    dunlin__onnx_end_part(writer, "/sum");
    dunlin__onnx_begin_node(writer, "Sqrt", node);
    dunlin__onnx_add_part(writer, "/sum");
    dunlin__onnx_end_part(writer, "/root");
    dunlin__onnx_begin_node(writer, "Div", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_part(writer, "/root");
    dunlin__onnx_end_part(writer, "/normed");
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_part(writer, "/normed");
    dunlin__onnx_add_param(writer, node->params[GAMMA]);
    dunlin__onnx_end_node(writer);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    if (node->u.layer_norm.is_about_zero) {
        write_about_zero(writer, node);
        return;
    }
    dunlin__onnx_begin_node(writer, "LayerNormalization", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_param(writer, node->params[GAMMA]);
    dunlin__onnx_add_param(writer, node->params[BETA]);
    dunlin__onnx_attr_int(writer, "axis", -net->params[node->params[GAMMA]].shape.n_dims);
    dunlin__onnx_attr_float(writer, "epsilon", node->u.layer_norm.eps);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"LayerNormalization", NULL};

const dunlin_op_row dunlin__op_layer_norm = {
    .kind = DUNLIN_OP_LAYER_NORM,
    .name = "layer_norm",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_PLAIN,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
