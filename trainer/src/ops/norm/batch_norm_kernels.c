/*
 * batch_norm_kernels.c - see batch_norm.h.
 *
 * Invariant: sums are taken about the running mean as it was before the step and held in double, so
 * that the variance does not cancel. Running statistics are written both and finite, or not at all.
 */
#include "batch_norm.h"

#include <mem/support.h>

#include <math.h>

double dunlin__norm_rows(const dunlin_kernel_call *call, const dunlin_norm_params *params)
{
    const int64_t n = params->is_ghost ? call->n_samples : call->run->n_batch;
    return (double)n * (double)params->rows_per_sample;
}

double dunlin__norm_unbiased(double variance, double n_rows)
{
    return n_rows > 1.0 ? n_rows / (n_rows - 1.0) * variance : variance;
}

dunlin_status dunlin__norm_check(const dunlin_kernel_call *call, const dunlin_norm_params *params,
                                 float mean, float variance)
{
    if (isfinite(mean) && isfinite(variance)) {
        return DUNLIN_OK;
    }
    return dunlin__run_ends_forward(call->run, "the batch's statistic for",
                                    params->running[isfinite(mean) ? 1 : 0]);
}

void dunlin__norm_gather(const dunlin_kernel_call *call, const dunlin_norm_params *params,
                         int32_t channel, float mean, float variance, double *moments)
{
    const double share = (double)call->n_samples / (double)(call->first_sample + call->n_samples);
    const double unbiased =
        dunlin__norm_unbiased((double)variance, dunlin__norm_rows(call, params));
    double *means = moments + channel;
    double *variances = moments + params->channels + channel;
    /* Of the first slice exactly its own, so that a single slice gives what a batch does. */
    *means = call->is_first ? (double)mean : *means + ((double)mean - *means) * share;
    *variances = call->is_first ? unbiased : *variances + (unbiased - *variances) * share;
}

static dunlin_norm_call norm_call(const dunlin_kernel_call *call)
{
    const dunlin_norm_params *p = call->params;
    return (dunlin_norm_call){
        .channels = p->channels,
        .rows_per_sample = p->rows_per_sample,
        .n_samples = call->n_samples,
        .n_rows_batch = dunlin__norm_rows(call, p),
        .is_reset = call->is_first || p->is_ghost,
        .threads = call->run->threads,
    };
}

/* --- training, forward --- */

static dunlin_status run_sums(const dunlin_kernel_call *call)
{
    dunlin_norm_call norm = norm_call(call);
    norm.x = call->operands[0];
    norm.shift = call->operands[1];
    norm.sums = call->operands[2];
    call->run->kernels->norm_sums(&norm);
    return DUNLIN_OK;
}

static dunlin_status run_finish(const dunlin_kernel_call *call)
{
    const dunlin_norm_params *p = call->params;
    const double *sums = call->operands[0];
    const float *shift = call->operands[1];
    float *mean = call->operands[2];
    float *inv_std = call->operands[3];
    float *variance = p->is_ghost ? NULL : call->operands[4];
    double *moments = p->is_ghost ? call->operands[4] : NULL;
    const double n = dunlin__norm_rows(call, p);
    for (int32_t c = 0; c < p->channels; c++) {
        double offset = sums[c] / n;
        double var = sums[p->channels + c] / n - offset * offset;
        var = var < 0.0 ? 0.0 : var; /* rounding; a NaN stays one */
        const float centre = (float)((double)shift[c] + offset);
        DUNLIN_TRY(dunlin__norm_check(call, p, centre, (float)var));
        if (mean != NULL) {
            mean[c] = centre;
            inv_std[c] = (float)(1.0 / sqrt(var + (double)p->eps));
        }
        if (variance != NULL) {
            variance[c] = (float)var;
        }
        if (moments != NULL) {
            dunlin__norm_gather(call, p, c, centre, (float)var, moments);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status run_apply(const dunlin_kernel_call *call)
{
    dunlin_norm_call norm = norm_call(call);
    norm.x = call->operands[0];
    norm.mean = call->operands[1];
    norm.inv_std = call->operands[2];
    norm.gamma = call->operands[3];
    norm.beta = call->operands[4];
    norm.out = call->operands[5];
    call->run->kernels->norm_apply(&norm);
    return DUNLIN_OK;
}

/* A running statistic goes a part of the way to this step's. */
static float approach(float running, double momentum, double value)
{
    return (float)((1.0 - momentum) * (double)running + momentum * value);
}

/* Where running statistics go: means and variances of all channels, as float or as double. */
typedef struct norm_goal {
    const float *mean, *variance;
    bool is_moments; /* in their place: */
    const double *moments;
    double n_rows; /* that the variances are of, which are biased */
} norm_goal;

static void next_running(const dunlin_norm_params *p, const norm_goal *goal, int32_t c,
                         const float *const running[2], float out[2])
{
    const double momentum = (double)p->momentum;
    const double mean = goal->is_moments ? goal->moments[c] : (double)goal->mean[c];
    const double variance = goal->is_moments
                                ? goal->moments[p->channels + c]
                                : dunlin__norm_unbiased((double)goal->variance[c], goal->n_rows);
    out[0] = approach(running[0][c], momentum, mean);
    out[1] = approach(running[1][c], momentum, variance);
}

static dunlin_status commit(const dunlin_kernel_call *call, const norm_goal *goal,
                            float *running_mean, float *running_var)
{
    const dunlin_norm_params *p = call->params;
    const float *const running[2] = {running_mean, running_var};
    float next[2];
    if (call->run->is_calibrating) {
        return DUNLIN_OK;
    }
    for (int32_t c = 0; c < p->channels; c++) {
        next_running(p, goal, c, running, next);
        DUNLIN_TRY(dunlin__norm_check(call, p, next[0], next[1]));
    }
    for (int32_t c = 0; c < p->channels; c++) {
        next_running(p, goal, c, running, next);
        running_mean[c] = next[0];
        running_var[c] = next[1];
    }
    dunlin__run_note_change(call->run);
    return DUNLIN_OK;
}

static dunlin_status run_commit(const dunlin_kernel_call *call)
{
    const norm_goal goal = {.mean = call->operands[0],
                            .variance = call->operands[1],
                            .n_rows = dunlin__norm_rows(call, call->params)};
    return commit(call, &goal, call->operands[2], call->operands[3]);
}

static dunlin_status run_commit_ghost(const dunlin_kernel_call *call)
{
    const norm_goal goal = {.is_moments = true, .moments = call->operands[0]};
    return commit(call, &goal, call->operands[1], call->operands[2]);
}

/* --- running statistics: a plain map --- */

static uint64_t channel_workspace(const dunlin_kernels *kernels, const void *params,
                                  size_t n_threads, uint64_t *out_sample_bytes)
{
    (void)kernels;
    (void)n_threads;
    const dunlin_norm_params *p = params;
    *out_sample_bytes = 0;
    return (uint64_t)p->channels * sizeof(float);
}

/* 1 / deviation of the running variance, into the workspace: cheaper than a tensor of its own. */
static const float *running_inv_std(const dunlin_kernel_call *call, const float *running_var)
{
    const dunlin_norm_params *p = call->params;
    float *inv_std = call->workspace;
    for (int32_t c = 0; c < p->channels; c++) {
        inv_std[c] = (float)(1.0 / sqrt((double)running_var[c] + (double)p->eps));
    }
    return inv_std;
}

static dunlin_status run_apply_running(const dunlin_kernel_call *call)
{
    dunlin_norm_call norm = norm_call(call);
    norm.x = call->operands[0];
    norm.mean = call->operands[1];
    norm.inv_std = running_inv_std(call, call->operands[2]);
    norm.gamma = call->operands[3];
    norm.beta = call->operands[4];
    norm.out = call->operands[5];
    call->run->kernels->norm_apply(&norm);
    return DUNLIN_OK;
}

static dunlin_status run_grad_running(const dunlin_kernel_call *call)
{
    dunlin_norm_call norm = norm_call(call);
    norm.dy = call->operands[0];
    norm.inv_std = running_inv_std(call, call->operands[1]);
    norm.gamma = call->operands[2];
    norm.out = call->operands[3];
    call->run->kernels->norm_grad_frozen(&norm);
    return DUNLIN_OK;
}

static dunlin_status run_grad_sums_running(const dunlin_kernel_call *call)
{
    dunlin_norm_call norm = norm_call(call);
    norm.x = call->operands[0];
    norm.dy = call->operands[1];
    norm.mean = call->operands[2];
    norm.inv_std = running_inv_std(call, call->operands[3]);
    norm.sums = call->operands[4];
    call->run->kernels->norm_grad_sums(&norm);
    return DUNLIN_OK;
}

/* --- training, backward --- */

static dunlin_status run_grad_sums(const dunlin_kernel_call *call)
{
    dunlin_norm_call norm = norm_call(call);
    norm.x = call->operands[0];
    norm.dy = call->operands[1];
    norm.mean = call->operands[2];
    norm.inv_std = call->operands[3];
    norm.sums = call->operands[4];
    call->run->kernels->norm_grad_sums(&norm);
    return DUNLIN_OK;
}

static dunlin_status run_grad_params(const dunlin_kernel_call *call)
{
    const dunlin_norm_params *p = call->params;
    const double *sums = call->operands[0];
    size_t next = 1;
    if (p->has_gamma_grad) {
        float *dgamma = call->operands[next++];
        for (int32_t c = 0; c < p->channels; c++) {
            const double old = call->is_first ? 0.0 : (double)dgamma[c];
            dgamma[c] = (float)(old + sums[p->channels + c]);
        }
    }
    if (p->has_beta_grad) {
        float *dbeta = call->operands[next];
        for (int32_t c = 0; c < p->channels; c++) {
            const double old = call->is_first ? 0.0 : (double)dbeta[c];
            dbeta[c] = (float)(old + sums[c]);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status run_grad_apply(const dunlin_kernel_call *call)
{
    dunlin_norm_call norm = norm_call(call);
    norm.x = call->operands[0];
    norm.dy = call->operands[1];
    norm.mean = call->operands[2];
    norm.inv_std = call->operands[3];
    norm.gamma = call->operands[4];
    norm.sums = call->operands[5];
    norm.out = call->operands[6];
    call->run->kernels->norm_grad_apply(&norm);
    return DUNLIN_OK;
}

/* --- the kernels --- */

const dunlin_step_kernel dunlin__norm_sums = {
    .name = "norm_sums",
    .run_fn = run_sums,
    .parts = DUNLIN_MEM_REDUCE,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_finish = {
    .name = "norm_finish",
    .run_fn = run_finish,
    .parts = DUNLIN_MEM_FIXED,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_apply = {
    .name = "norm_apply",
    .run_fn = run_apply,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_commit = {
    .name = "norm_commit",
    .run_fn = run_commit,
    .parts = DUNLIN_MEM_FIXED,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_apply_running = {
    .name = "norm_apply_running",
    .run_fn = run_apply_running,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 5,
    .in_place_read = 0,
    .workspace_fn = channel_workspace,
};

const dunlin_step_kernel dunlin__norm_grad_sums = {
    .name = "norm_grad_sums",
    .run_fn = run_grad_sums,
    .parts = DUNLIN_MEM_REDUCE,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_grad_sums_running = {
    .name = "norm_grad_sums_running",
    .run_fn = run_grad_sums_running,
    .parts = DUNLIN_MEM_REDUCE,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = channel_workspace,
};

const dunlin_step_kernel dunlin__norm_grad_params = {
    .name = "norm_grad_params",
    .run_fn = run_grad_params,
    .parts = DUNLIN_MEM_FIXED,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_grad_apply = {
    .name = "norm_grad_apply",
    .run_fn = run_grad_apply,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 6,
    .in_place_read = 1,
};

const dunlin_step_kernel dunlin__norm_grad_running = {
    .name = "norm_grad_running",
    .run_fn = run_grad_running,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 3,
    .in_place_read = 0,
    .workspace_fn = channel_workspace,
};

/* --- ghosts --- */

const dunlin_step_kernel dunlin__norm_sums_ghost = {
    .name = "norm_sums",
    .run_fn = run_sums,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_finish_ghost = {
    .name = "norm_finish",
    .run_fn = run_finish,
    .parts = DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_commit_ghost = {
    .name = "norm_commit",
    .run_fn = run_commit_ghost,
    .parts = DUNLIN_MEM_FIXED,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_grad_sums_ghost = {
    .name = "norm_grad_sums",
    .run_fn = run_grad_sums,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

const dunlin_step_kernel dunlin__norm_grad_params_ghost = {
    .name = "norm_grad_params",
    .run_fn = run_grad_params,
    .parts = DUNLIN_MEM_REDUCE,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};
