/*
 * matmul.h - products of small matrices that lie with a pitch, by the GEMM's blocks.
 */
#ifndef DUNLIN_KERNELS_MATMUL_H
#define DUNLIN_KERNELS_MATMUL_H

#include "isa.h"

#define MATMUL_ROWS 96

/* Floats of a packed B of k rows and n columns. */
static inline int64_t matmul_panel_floats(int64_t k, int64_t n)
{
    return round_up(k * round_up(n, VEC), 16);
}

/* C rows at c + i * c_pitch; `block` without its c_rows, its m of any size. */
static inline void matmul_rows(const gemm_block *block, float *c, int64_t c_pitch)
{
    float *c_rows[MATMUL_ROWS];
    gemm_block part = *block;
    part.c_rows = c_rows;
    for (int64_t i = 0; i < block->m; i += MATMUL_ROWS) {
        part.m = min_i64(MATMUL_ROWS, block->m - i);
        part.a = block->a + i * (block->is_column_form ? 1 : block->a_pitch);
        for (int64_t r = 0; r < part.m; r++) {
            c_rows[r] = c + (i + r) * c_pitch;
        }
        K(gemm)(&part);
    }
}

#endif
