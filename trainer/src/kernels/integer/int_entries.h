/*
 * int_entries.h - the entries of one instruction set's table of integer kernels.
 */
#ifndef DUNLIN_KERNELS_INT_ENTRIES_H
#define DUNLIN_KERNELS_INT_ENTRIES_H

#include "kernels/api/integer.h"
#include "kernels/simd/vec.h"

uint64_t K(int_conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                     int64_t n_samples, size_t n_threads);
void K(int_conv_forward)(const dunlin_int_conv_call *call);
void K(int_conv_input_grad)(const dunlin_int_conv_call *call);
void K(int_conv_weight_grad)(const dunlin_int_conv_call *call);

void K(int_round)(const dunlin_int_round_call *call);
void K(int_update_pairs)(const dunlin_int_pairs_call *call);
int64_t K(int_largest)(int64_t n, const int32_t *x, const int64_t *wide, dunlin_threads *threads);
int64_t K(int_count_ends)(int64_t n, const int8_t *high, const int8_t *low,
                          dunlin_threads *threads);
void K(int_halve)(int64_t n, int8_t *high, int8_t *low, dunlin_threads *threads);
void K(int_add)(const dunlin_int_add_call *call);
void K(int_copy_rows)(const dunlin_int_rows_call *call);
void K(int_clip)(int64_t n, const int8_t *x, int32_t low, int32_t high, int8_t *y,
                 dunlin_threads *threads);
void K(int_clip_grad)(int64_t n, const int8_t *dy, const int8_t *y, int32_t low, int32_t high,
                      int8_t *dx, dunlin_threads *threads);
void K(int_pool_forward)(const dunlin_int_pool_call *call);
void K(int_pool_backward)(const dunlin_int_pool_call *call);
void K(int_transpose)(int64_t n, int64_t rows, int64_t columns, const int8_t *x, int8_t *y,
                      dunlin_threads *threads);
bool K(int_quantise)(const dunlin_int_quantise_call *call);
void K(int_quantise_real)(const dunlin_int_real_call *call);
void K(int_scale_sums)(const dunlin_int_scale_call *call);
void K(int_keep_proportions)(int64_t n, float *values, double scale, uint64_t key,
                             dunlin_threads *threads);
void K(int_dequantise)(int64_t n, const int8_t *x, int32_t exponent, float *out,
                       dunlin_threads *threads);

#endif
