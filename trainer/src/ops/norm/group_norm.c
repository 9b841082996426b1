/*
 * group_norm.c - normalisation of each sample's groups of channels (Wu and He 2018): what federated
 * training takes for batch norm when clients' data differ.
 *
 * Invariant: a sample's result depends on that sample alone, so the step slices as if there were no
 * norm; backward is one op, the input's gradient a map, those of scale and shift a reducer.
 */
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct group_norm_params {
    int64_t rows_per_sample;
    int32_t channels, groups;
    float eps;
    bool has_dx, has_grads;
} group_norm_params;

enum { GAMMA = 0, BETA = 1 };
enum { SAVED_X = 0, SAVED_STATISTICS = 1 };

static dunlin_group_norm_call norm_call(const dunlin_kernel_call *call)
{
    const group_norm_params *p = call->params;
    return (dunlin_group_norm_call){
        .rows_per_sample = p->rows_per_sample,
        .n_samples = call->n_samples,
        .channels = p->channels,
        .groups = p->groups,
        .epsilon = p->eps,
        .x = call->operands[0],
        .gamma = call->operands[1],
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
}

/* Operands: x, scale, shift, statistics, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    dunlin_group_norm_call norm = norm_call(call);
    norm.beta = call->operands[2];
    norm.statistics = call->operands[3];
    norm.y = call->operands[4];
    call->run->kernels->group_norm(&norm);
    return DUNLIN_OK;
}

/* Operands: x, scale, statistics, dy; then dx and the two parameters' gradients, as far as they are
 * wanted. What the current parts do not touch is NULL. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const group_norm_params *p = call->params;
    dunlin_group_norm_call norm = norm_call(call);
    norm.statistics = call->operands[2];
    norm.dy = call->operands[3];
    uint32_t next = 4;
    if (p->has_dx) {
        norm.dx = call->operands[next++];
    }
    if (p->has_grads) {
        norm.dgamma = call->operands[next];
        norm.dbeta = call->operands[next + 1];
    }
    call->run->kernels->group_norm_grad(&norm);
    return DUNLIN_OK;
}

static uint64_t workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                          uint64_t *out_sample_bytes)
{
    (void)n_threads;
    const group_norm_params *p = params;
    *out_sample_bytes = kernels->group_norm_workspace_bytes(p->channels);
    return 0;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "group_norm",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 4,
    .in_place_read = 0,
    .workspace_fn = workspace,
};

#define BACKWARD_KERNEL(parts_of, recomputes, write, read)                                         \
    {                                                                                              \
        .name = "group_norm_grad", .run_fn = run_backward, .parts = (parts_of),                    \
        .may_recompute = (recomputes), .in_place_write = (write), .in_place_read = (read),         \
        .workspace_fn = workspace                                                                  \
    }

static const dunlin_step_kernel backward_map = BACKWARD_KERNEL(DUNLIN_MEM_MAP, true, 4, 3);
static const dunlin_step_kernel backward_reduce = BACKWARD_KERNEL(DUNLIN_MEM_REDUCE, false, -1, -1);
static const dunlin_step_kernel backward_both =
    BACKWARD_KERNEL(DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, true, 4, 3);

static group_norm_params node_params(const dunlin_net *net, const dunlin_net_node *node)
{
    int32_t h = 0;
    int32_t w = 0;
    group_norm_params params = {.groups = node->u.group_norm.groups, .eps = node->u.group_norm.eps};
    dunlin__value_hwc(&net->values[node->inputs[0]], &h, &w, &params.channels);
    params.rows_per_sample = (int64_t)h * w;
    return params;
}

static void run(dunlin_emit *emit, const dunlin_step_kernel *kernel, const char *suffix,
                const group_norm_params *params, const dunlin_mem_access *accesses,
                uint32_t n_accesses, double flops)
{
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = kernel,
                               .suffix = suffix,
                               .params = params,
                               .params_bytes = sizeof *params,
                               .accesses = accesses,
                               .n_accesses = n_accesses,
                               .flops_per_sample = flops * (double)params->rows_per_sample *
                                                   (double)params->channels,
                           });
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const group_norm_params params = node_params(dunlin__emit_net(emit), node);
    uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    uint32_t statistics = dunlin__emit_tensor(emit, "/statistics", DUNLIN_F32, true,
                                              2 * (int64_t)params.groups, DUNLIN_MEM_SAVED);
    const dunlin_mem_access accesses[] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[GAMMA]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[BETA]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {statistics, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    run(emit, &forward_kernel, "", &params, accesses, 5, 6.0);
    dunlin__emit_save(emit, SAVED_X, x);
    dunlin__emit_save(emit, SAVED_STATISTICS, statistics);
}

/* The accumulator of a parameter's gradient. The kernel makes both: that of a frozen one is lost.
 */
static uint32_t grad_tensor(dunlin_emit *emit, uint32_t param, int32_t channels)
{
    return dunlin__emit_is_trained(emit, param)
               ? dunlin__emit_param_grad(emit, param)
               : dunlin__emit_tensor(emit, "/frozen_grad", DUNLIN_F32, false, channels,
                                     DUNLIN_MEM_ACCUMULATOR);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    group_norm_params params = node_params(dunlin__emit_net(emit), node);
    params.has_dx = dunlin__emit_needs_grad(emit, node->inputs[0]);
    params.has_grads = dunlin__emit_is_trained(emit, node->params[GAMMA]) ||
                       dunlin__emit_is_trained(emit, node->params[BETA]);
    const uint8_t parts = (uint8_t)((params.has_dx ? DUNLIN_MEM_MAP : 0) |
                                    (params.has_grads ? DUNLIN_MEM_REDUCE : 0));
    if (parts == 0) {
        return;
    }
    dunlin_mem_access accesses[7] = {
        {dunlin__emit_saved(emit, SAVED_X), DUNLIN_MEM_READ, parts},
        {dunlin__emit_param(emit, node->params[GAMMA]), DUNLIN_MEM_READ, parts},
        {dunlin__emit_saved(emit, SAVED_STATISTICS), DUNLIN_MEM_READ, parts},
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, parts},
    };
    uint32_t n = 4;
    if (params.has_dx) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_grad_target(emit, node->inputs[0]),
                                            DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
    }
    for (uint32_t slot = GAMMA; params.has_grads && slot <= BETA; slot++) {
        accesses[n++] = (dunlin_mem_access){grad_tensor(emit, node->params[slot], params.channels),
                                            DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE};
    }
    const dunlin_step_kernel *kernel = !params.has_grads ? &backward_map
                                       : params.has_dx   ? &backward_both
                                                         : &backward_reduce;
    run(emit, kernel, "/grad", &params, accesses, n, 10.0);
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const int64_t channels = x->shape.dims[0];
    const int32_t groups = node->u.group_norm.groups;
    const float eps = node->u.group_norm.eps;
    if (groups < 1 || channels % groups != 0) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': %" PRId64 " channels do not divide into %" PRId32
                            " groups",
                            node->name, channels, groups);
    }
    if (!(eps > 0.0F && eps <= 1.0F)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': epsilon %g must be in (0, 1]", node->name, (double)eps);
    }
    const dunlin_shape wanted = {1, {channels}};
    DUNLIN_TRY(dunlin__op_want_param(net, node, GAMMA, &wanted, DUNLIN_PARAM_PLAIN, error));
    DUNLIN_TRY(dunlin__op_want_param(net, node, BETA, &wanted, DUNLIN_PARAM_PLAIN, error));
    dunlin_net_value *y = &net->values[node->output];
    y->shape = x->shape;
    y->layout = x->layout;
    return DUNLIN_OK;
}

/* --- ONNX: an operator of its own from opset 18 on, with a scale for each channel from 21 on. As
 * PyTorch writes it out it is read by onnx/norms.c, and written below --- */

/* What scale and shift are for: a channel each. */
static dunlin_status read_groups(dunlin_onnx_node *onnx, int64_t channels, int64_t *out_groups)
{
    *out_groups = dunlin__onnx_int(onnx, "num_groups", 0);
    if (*out_groups < 1 || *out_groups > INT32_MAX) {
        return dunlin__onnx_reject(onnx, "num_groups", "is %" PRId64 ", not positive", *out_groups);
    }
    if (dunlin__onnx_int(onnx, "stash_type", 1) != 1) {
        return dunlin__onnx_reject(onnx, "stash_type", "is not 1 (float32)");
    }
    if (dunlin__onnx_opset(onnx) < 21 && *out_groups != channels) {
        return dunlin__onnx_reject(onnx, "num_groups",
                                   "below opset 21 its scale and shift are for groups; only those "
                                   "for channels are trained: export with opset 21");
    }
    return DUNLIN_OK;
}

/* InstanceNormalization is a group a channel. */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_GROUP_NORM;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 1, "the scale", node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 2, "the shift", node));
    int64_t groups = net->values[node->inputs[0]].shape.dims[0];
    if (strcmp(dunlin__onnx_op_type(onnx), "GroupNormalization") == 0) {
        DUNLIN_TRY(read_groups(onnx, groups, &groups));
    }
    node->u.group_norm.groups = (int32_t)groups;
    node->u.group_norm.eps = dunlin__onnx_float(onnx, "epsilon", 1e-5F);
    return DUNLIN_OK;
}

static void reshape(dunlin_onnx_writer *writer, const dunlin_net_node *node, const char *from,
                    const char *to, const int64_t *dims, int32_t n_dims)
{
    char shape[32];
    (void)snprintf(shape, sizeof shape, "%s_shape", to);
    dunlin__onnx_begin_node(writer, "Reshape", node);
    if (from == NULL) {
        dunlin__onnx_add_value(writer, node->inputs[0]);
    } else {
        dunlin__onnx_add_part(writer, from);
    }
    dunlin__onnx_add_ints(writer, shape, dims, n_dims);
    dunlin__onnx_end_part(writer, to);
}

/* A constant for each group. */
static void expand(dunlin_onnx_writer *writer, const dunlin_net_node *node, float value,
                   const char *to)
{
    char name[32];
    const int64_t groups = node->u.group_norm.groups;
    dunlin__onnx_begin_node(writer, "Expand", node);
    (void)snprintf(name, sizeof name, "%s_value", to);
    dunlin__onnx_add_scalar(writer, name, value);
    (void)snprintf(name, sizeof name, "%s_shape", to);
    dunlin__onnx_add_ints(writer, name, &groups, 1);
    dunlin__onnx_end_part(writer, to);
}

/* A parameter (C) as (C, 1, 1), or (C, 1). */
static void unsqueeze(dunlin_onnx_writer *writer, const dunlin_net_node *node, uint32_t slot,
                      int32_t n_axes, const char *to)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%s_axes", to);
    dunlin__onnx_begin_node(writer, "Unsqueeze", node);
    dunlin__onnx_add_param(writer, node->params[slot]);
    dunlin__onnx_add_ints(writer, name, (const int64_t[]){1, 2}, n_axes);
    dunlin__onnx_end_part(writer, to);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const int64_t *dims = net->values[node->output].shape.dims;
    reshape(writer, node, NULL, "/groups", (const int64_t[]){0, node->u.group_norm.groups, -1}, 3);
    expand(writer, node, 1.0F, "/ones");
    expand(writer, node, 0.0F, "/zeros");
    dunlin__onnx_begin_node(writer, "InstanceNormalization", node);
    dunlin__onnx_add_part(writer, "/groups");
    dunlin__onnx_add_part(writer, "/ones");
    dunlin__onnx_add_part(writer, "/zeros");
    dunlin__onnx_attr_float(writer, "epsilon", node->u.group_norm.eps);
    dunlin__onnx_end_part(writer, "/normed");
    reshape(writer, node, "/normed", "/image", (const int64_t[]){0, dims[0], dims[1], dims[2]},
            net->values[node->output].shape.n_dims + 1);
    const int32_t n_axes = dunlin__op_n_axes(net, node->output);
    unsqueeze(writer, node, GAMMA, n_axes, "/scale");
    unsqueeze(writer, node, BETA, n_axes, "/shift");
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_part(writer, "/image");
    dunlin__onnx_add_part(writer, "/scale");
    dunlin__onnx_end_part(writer, "/scaled");
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, "/scaled");
    dunlin__onnx_add_part(writer, "/shift");
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"GroupNormalization", "InstanceNormalization", NULL};

const dunlin_op_row dunlin__op_group_norm = {
    .kind = DUNLIN_OP_GROUP_NORM,
    .name = "group_norm",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
