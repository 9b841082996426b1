/*
 * matmul_kernel.h - products of small matrices that lie with a pitch, by the GEMM's blocks.
 */
#ifndef DUNLIN_KERNELS_MATMUL_KERNEL_H
#define DUNLIN_KERNELS_MATMUL_KERNEL_H

#include "gemm.h"

#define MATMUL_ROWS 96

/* Floats of a packed B of k rows and n columns. */
static inline int64_t matmul_panel_floats(int64_t k, int64_t n)
{
    return round_up(k * round_up(n, VEC), 16);
}

/* C (m x n) from A, whose row i begins at a + i * a_pitch (turned: whose column k does), and a
 * packed B. */
typedef struct matmul_block {
    const float *a;
    int64_t a_pitch;
    bool is_a_transposed;
    const float *b;
    int64_t m, n, k;
    gemm_start start;
    bool is_parted;
} matmul_block;

/* C's row i at c + i * c_pitch. */
static inline void matmul_rows(const matmul_block *block, float *c, int64_t c_pitch)
{
    float *c_rows[MATMUL_ROWS];
    const float *a_rows[MATMUL_ROWS];
    const gemm_run run = {.n = block->k};
    gemm_block gemm = {.a_rows = block->is_a_transposed ? NULL : a_rows,
                       .a_pitch = block->a_pitch,
                       .lane_pitch = LANES,
                       .runs = &run,
                       .n_runs = 1,
                       .b = block->b,
                       .n = block->n,
                       .k = block->k,
                       .c_rows = c_rows,
                       .start = block->start,
                       .is_parted = block->is_parted};
    for (int64_t i = 0; i < block->m; i += MATMUL_ROWS) {
        gemm.m = min_i64(MATMUL_ROWS, block->m - i);
        gemm.a = block->a + i;
        for (int64_t r = 0; r < gemm.m; r++) {
            c_rows[r] = c + (i + r) * c_pitch;
            a_rows[r] = block->is_a_transposed ? NULL : block->a + (i + r) * block->a_pitch;
        }
        K(gemm)(&gemm);
    }
}

#endif
