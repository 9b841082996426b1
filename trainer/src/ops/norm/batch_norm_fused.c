/*
 * batch_norm_fused.c - batch norm as a view: nothing per sample is computed here. Forward: sums,
 * that others took, to scales and shifts. Backward: sums, that others took, to the parameters'
 * gradients and to the slopes and offsets of the input's.
 *
 * Invariant: with t the gradient of the output, x the input, m and v the batch's mean and variance
 * and N its rows, the input's gradient is t * scale + x * slope + offset, where scale = gamma /
 * sqrt(v + eps), slope = -scale * sum(t (x - m)) / (N (v + eps)) and offset = -scale * sum(t) / N -
 * slope * m.
 */
#include "batch_norm.h"
#include "graph/fused.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <math.h>
#include <stddef.h>

enum { GAMMA = 0, BETA = 1, RUNNING_MEAN = 2, RUNNING_VAR = 3 };
enum { SAVED_INV_STD = 0 };

typedef struct part_ref {
    int32_t sums, about;
    int64_t about_offset, offset, width;
} part_ref;

typedef struct finish_params {
    dunlin_norm_params norm;
    uint32_t n_parts;
    part_ref parts[DUNLIN_NET_MAX_INPUTS]; /* only those that there are are kept */
} finish_params;

/* Operands of the finish: those it writes, parameters, then sums and what they are about. A ghost's
 * moments stand for the variance. */
enum { MEAN = 0, INV_STD, VARIANCE, AFFINE, FINISH_GAMMA, FINISH_BETA };

static void set_affine(float *affine, int32_t channels, int32_t c, double scale, double beta,
                       double mean)
{
    affine[c] = (float)scale;
    affine[channels + c] = (float)(beta - mean * (double)affine[c]);
}

/* One channel whose mean and variance are known. */
static void finish_channel(const dunlin_kernel_call *call, int32_t c, float centre, double var)
{
    const finish_params *p = call->params;
    const float *gamma = call->operands[FINISH_GAMMA];
    const float *beta = call->operands[FINISH_BETA];
    float *mean = call->operands[MEAN];
    if (mean != NULL) {
        float *inv_std = call->operands[INV_STD];
        mean[c] = centre;
        inv_std[c] = (float)(1.0 / sqrt(var + (double)p->norm.eps));
        set_affine(call->operands[AFFINE], p->norm.channels, c,
                   (double)gamma[c] * (double)inv_std[c], (double)beta[c], (double)mean[c]);
    }
    if (!p->norm.is_ghost) {
        float *variance = call->operands[VARIANCE];
        variance[c] = (float)var;
    } else if (call->operands[VARIANCE] != NULL) {
        dunlin__norm_gather(call, &p->norm, c, centre, (float)var, call->operands[VARIANCE]);
    }
}

static dunlin_status run_finish(const dunlin_kernel_call *call)
{
    const finish_params *p = call->params;
    const double n = dunlin__norm_rows(call, &p->norm);
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const part_ref *part = &p->parts[i];
        const double *sums = call->operands[part->sums];
        const float *about = (const float *)call->operands[part->about] + part->about_offset;
        for (int64_t k = 0; k < part->width; k++) {
            const int32_t c = (int32_t)(part->offset + k);
            const double shift = sums[k] / n;
            double var = sums[part->width + k] / n - shift * shift;
            var = var < 0.0 ? 0.0 : var; /* rounding; a NaN stays one */
            const float centre = (float)((double)about[k] + shift);
            DUNLIN_TRY(dunlin__norm_check(call, &p->norm, centre, (float)var));
            finish_channel(call, c, centre, var);
        }
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel finish_kernel = {
    .name = "norm_finish",
    .run_fn = run_finish,
    .parts = DUNLIN_MEM_FIXED,
    .in_place_write = -1,
    .in_place_read = -1,
};

/* Operands: affine, gamma, beta, running mean, running variance. */
static dunlin_status run_running(const dunlin_kernel_call *call)
{
    const dunlin_norm_params *p = call->params;
    const float *gamma = call->operands[1];
    const float *beta = call->operands[2];
    const float *mean = call->operands[3];
    const float *variance = call->operands[4];
    for (int32_t c = 0; c < p->channels; c++) {
        const double inv_std = 1.0 / sqrt((double)variance[c] + (double)p->eps);
        set_affine(call->operands[0], p->channels, c, (double)gamma[c] * inv_std, (double)beta[c],
                   (double)mean[c]);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel running_kernel = {
    .name = "norm_running",
    .run_fn = run_running,
    .parts = DUNLIN_MEM_FIXED,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel finish_ghost_kernel = {
    .name = "norm_finish",
    .run_fn = run_finish,
    .parts = DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static uint32_t vector(dunlin_emit *emit, const char *suffix, bool is_ghost, int64_t n)
{
    return dunlin__emit_statistic(emit, suffix, DUNLIN_F32, is_ghost, n, DUNLIN_MEM_SAVED);
}

static void run(dunlin_emit *emit, const dunlin_step_kernel *kernel, const char *suffix,
                const void *params, size_t params_bytes, const dunlin_op_list *list)
{
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = kernel,
                                             .suffix = suffix,
                                             .params = params,
                                             .params_bytes = params_bytes,
                                             .accesses = list->accesses,
                                             .n_accesses = list->n});
}

static int32_t touch_param(dunlin_emit *emit, const dunlin_net_node *node, uint32_t slot,
                           uint8_t parts, dunlin_op_list *list)
{
    return dunlin__op_touch(list, dunlin__emit_param(emit, node->params[slot]), DUNLIN_MEM_READ,
                            parts);
}

static bool has_trained_param(const dunlin_emit *emit, const dunlin_net_node *node)
{
    return dunlin__emit_is_trained(emit, node->params[GAMMA]) ||
           dunlin__emit_is_trained(emit, node->params[BETA]);
}

static void forward_running(dunlin_emit *emit, const dunlin_net_node *node,
                            const dunlin_norm_params *params)
{
    dunlin_op_list list = {.n = 0};
    const uint32_t affine = vector(emit, "/affine", false, 2 * (int64_t)params->channels);
    (void)dunlin__op_touch(&list, affine, DUNLIN_MEM_WRITE, DUNLIN_MEM_FIXED);
    for (uint32_t slot = GAMMA; slot <= RUNNING_VAR; slot++) {
        (void)touch_param(emit, node, slot, DUNLIN_MEM_FIXED, &list);
    }
    run(emit, &running_kernel, "", params, sizeof *params, &list);
    dunlin__emit_norm(emit, node, affine, dunlin__emit_param(emit, node->params[RUNNING_MEAN]),
                      has_trained_param(emit, node));
}

void dunlin__norm_fused_forward(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_norm_params *params)
{
    if (dunlin__emit_mode(emit) == DUNLIN_EMIT_INFER || dunlin__emit_is_norm_frozen(emit)) {
        forward_running(emit, node, params);
        return;
    }
    dunlin_stat_part parts[DUNLIN_NET_MAX_INPUTS];
    finish_params finish = {.norm = *params};
    const bool is_ghost = dunlin__emit_is_norm_ghost(emit);
    const int64_t channels = params->channels;
    finish.norm.is_ghost = is_ghost;
    finish.n_parts = dunlin__emit_stats(emit, node->inputs[0], parts);
    dunlin_op_list list = {.n = 0};
    const uint32_t mean = vector(emit, "/mean", is_ghost, channels);
    const uint32_t inv_std = vector(emit, "/inv_std", is_ghost, channels);
    const uint32_t variance = is_ghost ? dunlin__emit_tensor(emit, "/moments", DUNLIN_F64, false,
                                                             2 * channels, DUNLIN_MEM_ACCUMULATOR)
                                       : vector(emit, "/variance", false, channels);
    const uint32_t affine = vector(emit, "/affine", is_ghost, 2 * channels);
    const uint8_t once = is_ghost ? DUNLIN_MEM_REDUCE : DUNLIN_MEM_FIXED;
    const uint8_t own = is_ghost ? DUNLIN_MEM_MAP : DUNLIN_MEM_FIXED;
    const uint8_t all = once | own;
    (void)dunlin__op_touch(&list, mean, DUNLIN_MEM_WRITE, own);
    (void)dunlin__op_touch(&list, inv_std, DUNLIN_MEM_WRITE, own);
    (void)dunlin__op_touch(&list, variance, is_ghost ? DUNLIN_MEM_ACCUMULATE : DUNLIN_MEM_WRITE,
                           once);
    (void)dunlin__op_touch(&list, affine, DUNLIN_MEM_WRITE, own);
    (void)touch_param(emit, node, GAMMA, own, &list);
    (void)touch_param(emit, node, BETA, own, &list);
    for (uint32_t i = 0; i < finish.n_parts; i++) {
        finish.parts[i] =
            (part_ref){.sums = dunlin__op_touch(&list, parts[i].sums, DUNLIN_MEM_READ, all),
                       .about = dunlin__op_touch(&list, parts[i].about, DUNLIN_MEM_READ, all),
                       .about_offset = parts[i].about_offset,
                       .offset = parts[i].offset,
                       .width = parts[i].width};
    }
    run(emit, is_ghost ? &finish_ghost_kernel : &finish_kernel, "/finish", &finish,
        offsetof(finish_params, parts) + finish.n_parts * sizeof(part_ref), &list);
    const uint32_t from[2] = {is_ghost ? variance : mean, variance};
    dunlin__norm_emit_commit(emit, node, &finish.norm, from);
    dunlin__emit_norm(emit, node, affine, mean, true);
    dunlin__emit_save(emit, SAVED_INV_STD, inv_std);
}

/* --- backward --- */

typedef struct grad_params {
    dunlin_norm_params norm;
    int32_t sums, spread, mean, affine; /* spread: 1 / deviation, or the running variance */
    int32_t coef;                       /* -1: the input's gradient has none */
    int32_t old_coef;
    int64_t old_offset, old_width;
    int32_t gamma_grad, beta_grad;
    bool is_running;
} grad_params;

static void fill_coef(const dunlin_kernel_call *call, const double *sums)
{
    const grad_params *p = call->params;
    const int32_t channels = p->norm.channels;
    const float *inv_std = call->operands[p->spread];
    const float *mean = call->operands[p->mean];
    const float *scale = call->operands[p->affine];
    const float *old = p->old_coef < 0 ? NULL : call->operands[p->old_coef];
    float *coef = call->operands[p->coef];
    const double n = dunlin__norm_rows(call, &p->norm);
    for (int32_t c = 0; c < channels; c++) {
        const double spread = (double)inv_std[c] * (double)inv_std[c];
        double slope = -(double)scale[c] * spread * sums[channels + c] / n;
        double offset = -(double)scale[c] * sums[c] / n - slope * (double)mean[c];
        if (old != NULL) {
            slope += (double)old[p->old_offset + c];
            offset += (double)old[p->old_width + p->old_offset + c];
        }
        coef[c] = (float)slope;
        coef[channels + c] = (float)offset;
    }
}

static dunlin_status run_grad(const dunlin_kernel_call *call)
{
    const grad_params *p = call->params;
    const int32_t channels = p->norm.channels;
    const double *sums = call->operands[p->sums];
    const float *spread = call->operands[p->spread];
    float *gamma_grad = p->gamma_grad < 0 ? NULL : call->operands[p->gamma_grad];
    float *beta_grad = p->beta_grad < 0 ? NULL : call->operands[p->beta_grad];
    /* Slices of a ghost add to each other's; another comes once. */
    for (int32_t c = 0; c < channels; c++) {
        const double inv_std =
            p->is_running ? 1.0 / sqrt((double)spread[c] + (double)p->norm.eps) : (double)spread[c];
        if (gamma_grad != NULL) {
            const double old = call->is_first ? 0.0 : (double)gamma_grad[c];
            gamma_grad[c] = (float)(old + inv_std * sums[channels + c]);
        }
        if (beta_grad != NULL) {
            const double old = call->is_first ? 0.0 : (double)beta_grad[c];
            beta_grad[c] = (float)(old + sums[c]);
        }
    }
    if (p->coef >= 0 && call->operands[p->coef] != NULL) {
        fill_coef(call, sums);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel grad_kernel = {
    .name = "norm_grad",
    .run_fn = run_grad,
    .parts = DUNLIN_MEM_FIXED,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel grad_ghost_kernels[] =
    DUNLIN_FUSED_KERNELS("norm_grad", run_grad, NULL);

static int32_t touch_grad(dunlin_emit *emit, const dunlin_net_node *node, uint32_t slot,
                          bool is_ghost, dunlin_op_list *list)
{
    return dunlin__emit_is_trained(emit, node->params[slot])
               ? dunlin__op_touch(list, dunlin__emit_param_grad(emit, node->params[slot]),
                                  is_ghost ? DUNLIN_MEM_ACCUMULATE : DUNLIN_MEM_WRITE,
                                  is_ghost ? DUNLIN_MEM_REDUCE : DUNLIN_MEM_FIXED)
               : -1;
}

/* The op that makes the parameters' gradients from the sums, and slopes and offsets of the input's:
 * a tensor, or NONE. */
static uint32_t emit_grad(dunlin_emit *emit, const dunlin_net_node *node,
                          const dunlin_norm_params *norm, const dunlin_norm_grad *grad)
{
    const bool is_running = dunlin__emit_is_norm_frozen(emit);
    const bool is_ghost = norm->is_ghost;
    const uint8_t own = is_ghost ? DUNLIN_MEM_MAP : DUNLIN_MEM_FIXED;
    const uint32_t spread = is_running ? dunlin__emit_param(emit, node->params[RUNNING_VAR])
                                       : dunlin__emit_saved(emit, SAVED_INV_STD);
    dunlin_op_list list = {.n = 0};
    grad_params params = {.norm = *norm,
                          .mean = -1,
                          .affine = -1,
                          .coef = -1,
                          .old_coef = -1,
                          .is_running = is_running};
    uint32_t parts = is_ghost ? 0 : DUNLIN_MEM_FIXED;
    params.sums = dunlin__op_touch(&list, grad->sums, DUNLIN_MEM_READ, UINT8_MAX);
    params.spread = dunlin__op_touch(&list, spread, DUNLIN_MEM_READ, UINT8_MAX);
    params.gamma_grad = touch_grad(emit, node, GAMMA, is_ghost, &list);
    params.beta_grad = touch_grad(emit, node, BETA, is_ghost, &list);
    if (is_ghost && (params.gamma_grad >= 0 || params.beta_grad >= 0)) {
        parts |= DUNLIN_MEM_REDUCE;
    }
    uint32_t coef = DUNLIN_STEP_NONE;
    if (!is_running && grad->has_input) {
        parts |= own;
        coef = vector(emit, "/coef", is_ghost, 2 * (int64_t)norm->channels);
        params.mean = dunlin__op_touch(&list, grad->mean, DUNLIN_MEM_READ, own);
        params.affine = dunlin__op_touch(&list, grad->affine, DUNLIN_MEM_READ, own);
        params.coef = dunlin__op_touch(&list, coef, DUNLIN_MEM_WRITE, own);
        params.old_offset = grad->old_offset;
        params.old_width = grad->old_width;
        if (grad->old_coef != DUNLIN_STEP_NONE) {
            params.old_coef = dunlin__op_touch(&list, grad->old_coef, DUNLIN_MEM_READ, own);
        }
    }
    if (parts != 0) {
        dunlin__op_trim(&list, parts);
        run(emit, is_ghost ? dunlin__fused_kernel(grad_ghost_kernels, parts, NULL) : &grad_kernel,
            "/grad", &params, sizeof params, &list);
    }
    return coef;
}

void dunlin__norm_fused_backward(dunlin_emit *emit, const dunlin_net_node *node,
                                 const dunlin_norm_params *norm)
{
    dunlin_norm_grad grad;
    dunlin_norm_params params = *norm;
    params.is_ghost = dunlin__emit_is_norm_ghost(emit);
    dunlin__emit_norm_grad(emit, node, &grad);
    uint32_t coef = DUNLIN_STEP_NONE;
    if (grad.sums != DUNLIN_STEP_NONE) {
        coef = emit_grad(emit, node, &params, &grad);
    }
    dunlin__emit_norm_done(emit, node, coef);
}
