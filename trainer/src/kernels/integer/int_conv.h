/*
 * int_conv.h - how a convolution in integers is cut, and its ways by shape.
 */
#ifndef DUNLIN_KERNELS_INT_CONV_H
#define DUNLIN_KERNELS_INT_CONV_H

#include "int_gemm.h"
#include "kernels/parallel/ranges.h"

/* Bytes of packed weights and of packed rows at once: both lie in the second cache. */
#define INT_PART_BYTES (384 << 10)
#define INT_BLOCK_BYTES (192 << 10)
#define INT_BLOCK_TILES 16 /* at most */
/* Packed weights that stay in the first cache while tile by tile goes over all columns: what is
 * stored then follows one another. */
#define INT_NEAR_BYTES (20 << 10)

/* One worker's piece of the workspace begins at a cache's line. */
static inline int64_t int_room(int64_t bytes)
{
    return round_up(bytes, 64);
}

uint64_t K(int_weight_grad_bytes)(const dunlin_conv_shape *shape, int64_t n_samples,
                                  size_t n_threads);

#endif
