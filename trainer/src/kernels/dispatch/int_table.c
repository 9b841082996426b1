/*
 * int_table.c - one instruction set's integer kernels, as the table that the rest of the trainer
 * calls. DUNLIN_INT_NAME is the set's name as integer.h gives it.
 */
#include "kernels/integer/int_entries.h"

extern const dunlin_int_kernels K(int_kernels);

const dunlin_int_kernels K(int_kernels) = {
    .isa = DUNLIN_INT_NAME,
    .conv_workspace_bytes = K(int_conv_workspace_bytes),
    .conv_forward = K(int_conv_forward),
    .conv_input_grad = K(int_conv_input_grad),
    .conv_weight_grad = K(int_conv_weight_grad),
    .round = K(int_round),
    .update_pairs = K(int_update_pairs),
    .largest = K(int_largest),
    .count_ends = K(int_count_ends),
    .halve = K(int_halve),
    .add = K(int_add),
    .copy_rows = K(int_copy_rows),
    .clip = K(int_clip),
    .clip_grad = K(int_clip_grad),
    .pool_forward = K(int_pool_forward),
    .pool_backward = K(int_pool_backward),
    .transpose = K(int_transpose),
    .quantise = K(int_quantise),
    .quantise_real = K(int_quantise_real),
    .scale_sums = K(int_scale_sums),
    .keep_proportions = K(int_keep_proportions),
    .dequantise = K(int_dequantise),
};
