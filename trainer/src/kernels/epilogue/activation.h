/*
 * activation.h - what a view does to the normalised value, and what that does to a gradient. `fn`
 * is a literal where it matters: then the others are not there.
 */
#ifndef DUNLIN_KERNELS_ACTIVATION_H
#define DUNLIN_KERNELS_ACTIVATION_H

#include "kernels/api/functions.h"
#include "kernels/simd/vecact.h"

#include <stdbool.h>
#include <stdint.h>

/* The activation of v; a clip is to [low, high]. */
ALWAYS_INLINE vfloat view_value(dunlin_view_fn fn, vfloat v, vfloat low, vfloat high)
{
    switch (fn) {
    case DUNLIN_VIEW_HARD_SWISH:
        return vhard_swish(v);
    case DUNLIN_VIEW_SILU:
        return vsilu(v);
    case DUNLIN_VIEW_CLIP:
        break;
    }
    return vclip(v, low, high);
}

/* The gradient t of the activation as that of `v`, which it was taken of. */
ALWAYS_INLINE vfloat view_grad(dunlin_view_fn fn, vfloat t, vfloat v, vfloat low, vfloat high)
{
    switch (fn) {
    case DUNLIN_VIEW_HARD_SWISH:
        return t * vhard_swish_slope(v);
    case DUNLIN_VIEW_SILU:
        return t * vsilu_slope(v);
    case DUNLIN_VIEW_CLIP:
        break;
    }
    return vmasked(t, v, low, high);
}

/*
 * One vector of channels of a block of pixels, for kernels that would else compute the function
 * where registers are scarce, or twice. Steps are in elements.
 */
typedef struct activation_block {
    dunlin_view_fn fn;  /* no clip */
    const float *x;     /* the first row and pixel, which may lie outside the image */
    int64_t row, pixel; /* steps */
    int64_t first_row, end_row;
    int64_t first_pixel, end_pixel; /* others are zeros */
    int64_t n_pixels;               /* of a row of what is written */
    const float *scale, *shift;
    float *values, *slopes; /* [row][n_pixels][VEC], the function and its derivative; NULL: not
                               wanted */
    bool is_half;           /* x holds bfloat16 */
    const int64_t *lines;   /* n_lines asked for with each row, from its first pixel on */
    int n_lines;
    bool is_near;
} activation_block;

void K(activation_block)(const activation_block *block);

#endif
