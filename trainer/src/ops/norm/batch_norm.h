/*
 * batch_norm.h - the kernels of batch norm, each with the operands it expects, in order.
 */
#ifndef DUNLIN_OPS_BATCH_NORM_H
#define DUNLIN_OPS_BATCH_NORM_H

#include "ops/common/op.h"

typedef struct dunlin_norm_params {
    int32_t channels;
    int64_t rows_per_sample;
    float eps;
    float momentum;
    bool is_ghost; /* statistics and sums are of each slice alone */
    bool has_gamma_grad;
    bool has_beta_grad;
    const char *running[2]; /* names of the running mean and variance, the graph's copies */
} dunlin_norm_params;

/* Training. x, running mean, sums (accumulated). */
extern const dunlin_step_kernel dunlin__norm_sums;
/* Fixed. sums, running mean; written: mean, 1 / deviation, variance. */
extern const dunlin_step_kernel dunlin__norm_finish;
/* x, mean, 1 / deviation, gamma, beta, y. */
extern const dunlin_step_kernel dunlin__norm_apply;
/* Fixed. mean and variance of the batch; updated: running mean and variance. */
extern const dunlin_step_kernel dunlin__norm_commit;
/* x, dy, mean, 1 / deviation, sums (accumulated). */
extern const dunlin_step_kernel dunlin__norm_grad_sums;
/* Fixed. sums; written: the gradients of gamma and beta as far as they are wanted. */
extern const dunlin_step_kernel dunlin__norm_grad_params;
/* x, dy, mean, 1 / deviation, gamma, sums, dx; dx may lie on dy. */
extern const dunlin_step_kernel dunlin__norm_grad_apply;

/*
 * Ghost statistics: the same of each slice alone, as map parts; what goes on to fixed ops is
 * accumulated. The finish writes no variance, and accumulates moments: the means over the batch's
 * samples so far of the slices' means and of their unbiased variances, in double.
 */
extern const dunlin_step_kernel dunlin__norm_sums_ghost;
/* sums, running mean; written: mean, 1 / deviation; accumulated: moments. */
extern const dunlin_step_kernel dunlin__norm_finish_ghost;
/* Fixed. moments; updated: running mean and variance. */
extern const dunlin_step_kernel dunlin__norm_commit_ghost;
extern const dunlin_step_kernel dunlin__norm_grad_sums_ghost;
/* The gradients are accumulated. */
extern const dunlin_step_kernel dunlin__norm_grad_params_ghost;

/* Rows that statistics are taken over, when an op runs: of the batch, or of the slice. */
double dunlin__norm_rows(const dunlin_kernel_call *call, const dunlin_norm_params *params);
/* Variance about the true mean, from that about the sample's; a single row's stays. */
double dunlin__norm_unbiased(double variance, double n_rows);
/* Of one channel; NUMERIC, naming the running statistic that they would go into. */
DUNLIN_NODISCARD dunlin_status dunlin__norm_check(const dunlin_kernel_call *call,
                                                  const dunlin_norm_params *params, float mean,
                                                  float variance);
/* Takes a slice's mean and variance into the moments: 2 x channels. */
void dunlin__norm_gather(const dunlin_kernel_call *call, const dunlin_norm_params *params,
                         int32_t channel, float mean, float variance, double *moments);
/* Emits what updates the running statistics: from mean and variance, or as a ghost from moments. */
void dunlin__norm_emit_commit(dunlin_emit *emit, const dunlin_net_node *node,
                              const dunlin_norm_params *params, const uint32_t from[2]);

/* Running statistics: plain maps. x, running mean, running variance, gamma, beta, y. */
extern const dunlin_step_kernel dunlin__norm_apply_running;
/* x, dy, running mean, running variance, sums (accumulated). */
extern const dunlin_step_kernel dunlin__norm_grad_sums_running;
/* dy, running variance, gamma, dx. */
extern const dunlin_step_kernel dunlin__norm_grad_running;
/* Both passes in a fused step (batch_norm_fused.c). */
void dunlin__norm_fused_forward(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_norm_params *params);
void dunlin__norm_fused_backward(dunlin_emit *emit, const dunlin_net_node *node,
                                 const dunlin_norm_params *norm);

#endif
