/*
 * table.c - one instruction set's kernels, as the table that the rest of the trainer calls.
 */
#include "isa.h"

extern const dunlin_kernels K(kernels);

const dunlin_kernels K(kernels) = {
    .isa = DUNLIN_QUOTE(DUNLIN_ISA),
    .conv_workspace_bytes = K(conv_workspace_bytes),
    .conv_forward = K(conv_forward),
    .conv_input_grad = K(conv_input_grad),
    .conv_weight_grad = K(conv_weight_grad),
    .fused_workspace_bytes = K(fused_workspace_bytes),
    .fused_forward = K(fused_forward),
    .fused_backward = K(fused_backward),
    .blend = K(blend),
    .close_workspace_bytes = K(close_workspace_bytes),
    .close = K(close),
    .sums = K(sums),
    .pool_workspace_bytes = K(pool_workspace_bytes),
    .pool_forward = K(pool_forward),
    .pool_backward = K(pool_backward),
    .max_pool = K(max_pool),
    .max_pool_grad = K(max_pool_grad),
    .average_pool = K(average_pool),
    .average_pool_grad = K(average_pool_grad),
    .clip = K(clip),
    .clip_grad = K(clip_grad),
    .add = K(add),
    .copy_rows = K(copy_rows),
    .transpose = K(transpose),
    .dropout = K(dropout),
    .norm_sums = K(norm_sums),
    .norm_apply = K(norm_apply),
    .norm_grad_sums = K(norm_grad_sums),
    .norm_grad_apply = K(norm_grad_apply),
    .norm_grad_frozen = K(norm_grad_frozen),
    .softmax_loss = K(softmax_loss),
    .squared_loss = K(squared_loss),
    .logistic_loss = K(logistic_loss),
    .sgd = K(sgd),
    .adam = K(adam),
    .square_sums = K(square_sums),
    .stage_u8 = K(stage_u8),
    .stage_f32 = K(stage_f32),
};
