/*
 * batch_norm.h - the kernels of batch norm, each with the operands it expects, in order.
 */
#ifndef DUNLIN_OPS_BATCH_NORM_H
#define DUNLIN_OPS_BATCH_NORM_H

#include "op.h"

typedef struct dunlin_norm_params {
    int32_t channels;
    int64_t rows_per_sample;
    float eps;
    float momentum;
    bool has_gamma_grad;
    bool has_beta_grad;
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
