/*
 * batch_norm.c - batch normalisation per channel, with batch statistics in training and running
 * ones in inference or when frozen (Ioffe and Szegedy 2015; PyTorch's rule for running statistics).
 *
 * Training is a reducer (sums over the batch), a fixed op (mean and deviation) and a map (apply);
 * backward has the same three. With ghost statistics (each slice by itself; Hoffer et al., "Train
 * longer, generalize better", NeurIPS 2017, section 4) all three are maps. Invariant: sums are
 * taken about the running mean as it was before the step, which is only written after all else, so
 * every part of a step sees the same one.
 */
#include "batch_norm.h"

#include "graph/fused.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

enum { GAMMA = 0, BETA = 1, RUNNING_MEAN = 2, RUNNING_VAR = 3 };
enum { SAVED_X = 0, SAVED_MEAN = 1, SAVED_INV_STD = 2 };

/* --- emission --- */

static dunlin_norm_params node_params(const dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_net *net = dunlin__emit_net(emit);
    int32_t h = 0;
    int32_t w = 0;
    dunlin_norm_params params = {
        .eps = node->u.batch_norm.eps,
        .momentum = node->u.batch_norm.momentum,
    };
    dunlin__value_hwc(&net->values[node->inputs[0]], &h, &w, &params.channels);
    params.rows_per_sample = (int64_t)h * w;
    for (uint32_t i = 0; i < 2; i++) {
        params.running[i] = dunlin__emit_param_name(emit, node->params[RUNNING_MEAN + i]);
    }
    return params;
}

static void run(dunlin_emit *emit, const dunlin_step_kernel *kernel, const char *suffix,
                const dunlin_norm_params *params, const dunlin_mem_access *accesses,
                uint32_t n_accesses)
{
    /* Nothing per sample: what finishes sums, also those of a slice. */
    bool is_fixed = kernel->parts == DUNLIN_MEM_FIXED || kernel == &dunlin__norm_finish_ghost ||
                    kernel == &dunlin__norm_grad_params_ghost;
    double flops = 4.0 * params->channels;
    dunlin_emit_op op = {
        .kernel = kernel,
        .suffix = suffix,
        .params = params,
        .params_bytes = sizeof *params,
        .accesses = accesses,
        .n_accesses = n_accesses,
        .flops_per_sample = is_fixed ? 0.0 : flops * (double)params->rows_per_sample,
        .flops_fixed = is_fixed ? flops : 0.0,
    };
    if (kernel == &dunlin__norm_commit || kernel == &dunlin__norm_commit_ghost) {
        dunlin__emit_run_last(emit, &op);
    } else {
        dunlin__emit_run(emit, &op);
    }
}

static uint32_t statistic(dunlin_emit *emit, const char *suffix, const dunlin_norm_params *params)
{
    return dunlin__emit_statistic(emit, suffix, DUNLIN_F32, params->is_ghost, params->channels,
                                  DUNLIN_MEM_SAVED);
}

/* The parts that gather a batch norm's sums: of the batch, or of each slice alone. */
static uint8_t gather_parts(const dunlin_norm_params *params)
{
    return params->is_ghost ? DUNLIN_MEM_MAP : DUNLIN_MEM_REDUCE;
}

static uint8_t gather_mode(const dunlin_norm_params *params)
{
    return params->is_ghost ? DUNLIN_MEM_WRITE : DUNLIN_MEM_ACCUMULATE;
}

void dunlin__norm_emit_commit(dunlin_emit *emit, const dunlin_net_node *node,
                              const dunlin_norm_params *params, const uint32_t from[2])
{
    dunlin_mem_access commit[4];
    uint32_t n = 0;
    for (int i = 0; i < (params->is_ghost ? 1 : 2); i++) {
        commit[n++] = (dunlin_mem_access){from[i], DUNLIN_MEM_READ, DUNLIN_MEM_FIXED};
    }
    for (uint32_t slot = RUNNING_MEAN; slot <= RUNNING_VAR; slot++) {
        commit[n++] = (dunlin_mem_access){dunlin__emit_param(emit, node->params[slot]),
                                          DUNLIN_MEM_UPDATE, DUNLIN_MEM_FIXED};
    }
    run(emit, params->is_ghost ? &dunlin__norm_commit_ghost : &dunlin__norm_commit, "/commit",
        params, commit, n);
}

static void forward_running(dunlin_emit *emit, const dunlin_net_node *node,
                            const dunlin_norm_params *params)
{
    uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const dunlin_mem_access apply[] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[RUNNING_MEAN]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[RUNNING_VAR]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[GAMMA]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[BETA]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    run(emit, &dunlin__norm_apply_running, "", params, apply, 6);
    dunlin__emit_save(emit, SAVED_X, x);
}

/* Sums, and what follows from them, of the batch or of each slice; the running statistics. */
static void forward_statistics(dunlin_emit *emit, const dunlin_net_node *node,
                               const dunlin_norm_params *params, uint32_t *out_mean,
                               uint32_t *out_inv_std)
{
    const bool is_ghost = params->is_ghost;
    const int64_t n_sums = 2 * (int64_t)params->channels;
    const uint32_t running_mean = dunlin__emit_param(emit, node->params[RUNNING_MEAN]);
    const uint32_t sums =
        dunlin__emit_statistic(emit, "/sums", DUNLIN_F64, is_ghost, n_sums, DUNLIN_MEM_ACCUMULATOR);
    *out_mean = statistic(emit, "/mean", params);
    *out_inv_std = statistic(emit, "/inv_std", params);
    /* Of a ghost the moments, which all slices add to. */
    const uint32_t variance = is_ghost ? dunlin__emit_tensor(emit, "/moments", DUNLIN_F64, false,
                                                             n_sums, DUNLIN_MEM_ACCUMULATOR)
                                       : statistic(emit, "/variance", params);
    const dunlin_mem_access gather[] = {
        {dunlin__emit_value(emit, node->inputs[0]), DUNLIN_MEM_READ, gather_parts(params)},
        {running_mean, DUNLIN_MEM_READ, gather_parts(params)},
        {sums, gather_mode(params), gather_parts(params)},
    };
    run(emit, is_ghost ? &dunlin__norm_sums_ghost : &dunlin__norm_sums, "/sums", params, gather, 3);
    const uint8_t once = is_ghost ? DUNLIN_MEM_REDUCE : DUNLIN_MEM_FIXED;
    const uint8_t written = is_ghost ? DUNLIN_MEM_MAP : DUNLIN_MEM_FIXED;
    const uint8_t all = once | written;
    const dunlin_mem_access finish[] = {
        {sums, DUNLIN_MEM_READ, all},
        {running_mean, DUNLIN_MEM_READ, all},
        {*out_mean, DUNLIN_MEM_WRITE, written},
        {*out_inv_std, DUNLIN_MEM_WRITE, written},
        {variance, is_ghost ? DUNLIN_MEM_ACCUMULATE : DUNLIN_MEM_WRITE, once},
    };
    run(emit, is_ghost ? &dunlin__norm_finish_ghost : &dunlin__norm_finish, "/finish", params,
        finish, 5);
    const uint32_t from[2] = {is_ghost ? variance : *out_mean, variance};
    dunlin__norm_emit_commit(emit, node, params, from);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin_norm_params params = node_params(emit, node);
    if (dunlin__emit_is_fused(emit)) {
        dunlin__norm_fused_forward(emit, node, &params);
        return;
    }
    if (dunlin__emit_mode(emit) == DUNLIN_EMIT_INFER || dunlin__emit_is_norm_frozen(emit)) {
        forward_running(emit, node, &params);
        return;
    }
    params.is_ghost = dunlin__emit_is_norm_ghost(emit);
    uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    uint32_t mean = DUNLIN_STEP_NONE;
    uint32_t inv_std = DUNLIN_STEP_NONE;
    forward_statistics(emit, node, &params, &mean, &inv_std);
    const dunlin_mem_access apply[] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {mean, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {inv_std, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[GAMMA]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[BETA]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    run(emit, &dunlin__norm_apply, "", &params, apply, 6);
    dunlin__emit_save(emit, SAVED_X, x);
    dunlin__emit_save(emit, SAVED_MEAN, mean);
    dunlin__emit_save(emit, SAVED_INV_STD, inv_std);
}

/* What the two parameters' gradients need: the finished sums. Returns the sums' tensor. */
static uint32_t emit_grad_sums(dunlin_emit *emit, const dunlin_net_node *node,
                               dunlin_norm_params *params, uint32_t dy, bool is_running)
{
    const bool is_ghost = params->is_ghost;
    uint32_t sums = dunlin__emit_statistic(emit, "/grad_sums", DUNLIN_F64, is_ghost,
                                           2 * (int64_t)params->channels, DUNLIN_MEM_ACCUMULATOR);
    uint32_t mean = is_running ? dunlin__emit_param(emit, node->params[RUNNING_MEAN])
                               : dunlin__emit_saved(emit, SAVED_MEAN);
    uint32_t spread = is_running ? dunlin__emit_param(emit, node->params[RUNNING_VAR])
                                 : dunlin__emit_saved(emit, SAVED_INV_STD);
    const uint8_t parts = gather_parts(params);
    const dunlin_mem_access gather[] = {
        {dunlin__emit_saved(emit, SAVED_X), DUNLIN_MEM_READ, parts},
        {dy, DUNLIN_MEM_READ, parts},
        {mean, DUNLIN_MEM_READ, parts},
        {spread, DUNLIN_MEM_READ, parts},
        {sums, gather_mode(params), parts},
    };
    run(emit,
        is_running ? &dunlin__norm_grad_sums_running
        : is_ghost ? &dunlin__norm_grad_sums_ghost
                   : &dunlin__norm_grad_sums,
        "/grad_sums", params, gather, 5);
    if (!params->has_gamma_grad && !params->has_beta_grad) {
        return sums;
    }
    const uint8_t once = is_ghost ? DUNLIN_MEM_REDUCE : DUNLIN_MEM_FIXED;
    const uint8_t mode = is_ghost ? DUNLIN_MEM_ACCUMULATE : DUNLIN_MEM_WRITE;
    dunlin_mem_access finish[3] = {{sums, DUNLIN_MEM_READ, once}};
    uint32_t n = 1;
    if (params->has_gamma_grad) {
        finish[n++] =
            (dunlin_mem_access){dunlin__emit_param_grad(emit, node->params[GAMMA]), mode, once};
    }
    if (params->has_beta_grad) {
        finish[n++] =
            (dunlin_mem_access){dunlin__emit_param_grad(emit, node->params[BETA]), mode, once};
    }
    run(emit, is_ghost ? &dunlin__norm_grad_params_ghost : &dunlin__norm_grad_params,
        "/grad_params", params, finish, n);
    return sums;
}

static void backward_running(dunlin_emit *emit, const dunlin_net_node *node,
                             dunlin_norm_params *params, uint32_t dy)
{
    if (params->has_gamma_grad || params->has_beta_grad) {
        (void)emit_grad_sums(emit, node, params, dy, true);
    }
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const dunlin_mem_access apply[] = {
        {dy, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[RUNNING_VAR]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[GAMMA]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    run(emit, &dunlin__norm_grad_running, "/grad_apply", params, apply, 4);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin_norm_params params = node_params(emit, node);
    if (dunlin__emit_is_fused(emit)) {
        dunlin__norm_fused_backward(emit, node, &params);
        return;
    }
    params.has_gamma_grad = dunlin__emit_is_trained(emit, node->params[GAMMA]);
    params.has_beta_grad = dunlin__emit_is_trained(emit, node->params[BETA]);
    uint32_t dy = dunlin__emit_grad(emit, node->output);
    if (dunlin__emit_is_norm_frozen(emit)) {
        backward_running(emit, node, &params, dy);
        return;
    }
    params.is_ghost = dunlin__emit_is_norm_ghost(emit);
    uint32_t sums = emit_grad_sums(emit, node, &params, dy, false);
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const dunlin_mem_access apply[] = {
        {dunlin__emit_saved(emit, SAVED_X), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dy, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_saved(emit, SAVED_MEAN), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_saved(emit, SAVED_INV_STD), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[GAMMA]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {sums, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    run(emit, &dunlin__norm_grad_apply, "/grad_apply", &params, apply, 7);
}

/* --- the row --- */

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    bool is_row = x->layout == DUNLIN_LAYOUT_PLAIN && x->shape.n_dims == 1;
    if (!is_row) {
        DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    }
    const dunlin_net_batch_norm *b = &node->u.batch_norm;
    if (!(b->eps > 0.0F && b->eps <= 1.0F) || !(b->momentum >= 0.0F && b->momentum <= 1.0F)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': epsilon %g must be in (0, 1], momentum %g in [0, 1]",
                            node->name, (double)b->eps, (double)b->momentum);
    }
    dunlin_shape wanted = {1, {x->shape.dims[0]}};
    for (uint32_t slot = 0; slot < 4; slot++) {
        DUNLIN_TRY(dunlin__op_want_param(net, node, slot, &wanted, DUNLIN_PARAM_PLAIN, error));
    }
    dunlin_net_value *y = &net->values[node->output];
    y->shape = x->shape;
    y->layout = x->layout;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    static const char *const what[4] = {"the scale", "the shift", "the running mean",
                                        "the running variance"};
    node->kind = DUNLIN_OP_BATCH_NORM;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    for (uint32_t i = 0; i < 4; i++) {
        DUNLIN_TRY(dunlin__op_take_param(onnx, i + 1, what[i], node));
    }
    net->params[node->params[RUNNING_MEAN]].role = DUNLIN_PARAMETER_STATISTIC;
    net->params[node->params[RUNNING_VAR]].role = DUNLIN_PARAMETER_STATISTIC;
    float keep = dunlin__onnx_float(onnx, "momentum", 0.9F);
    if (!(keep >= 0.0F && keep <= 1.0F)) {
        return dunlin__onnx_reject(onnx, "momentum", "is %g, not 0 to 1", (double)keep);
    }
    node->u.batch_norm = (dunlin_net_batch_norm){
        .eps = dunlin__onnx_float(onnx, "epsilon", 1e-5F),
        /* 1 - 0.9F is not 0.1F: six decimals bring back what was meant. */
        .momentum = (float)(round((1.0 - (double)keep) * 1e6) / 1e6),
    };
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    dunlin__onnx_begin_node(writer, "BatchNormalization", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    for (uint32_t slot = 0; slot < 4; slot++) {
        dunlin__onnx_add_param(writer, node->params[slot]);
    }
    dunlin__onnx_attr_float(writer, "epsilon", node->u.batch_norm.eps);
    dunlin__onnx_attr_float(writer, "momentum", 1.0F - node->u.batch_norm.momentum);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"BatchNormalization", NULL};

const dunlin_op_row dunlin__op_batch_norm = {
    .kind = DUNLIN_OP_BATCH_NORM,
    .name = "batch_norm",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
