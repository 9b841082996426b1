/*
 * vecact.h - activation functions of a vector that are computed in more than one place, and their
 * derivatives: the same operations in the same order wherever it is.
 */
#ifndef DUNLIN_KERNELS_VECACT_H
#define DUNLIN_KERNELS_VECACT_H

#include "vecmath.h"

/* x / (1 + e^-x) */
ALWAYS_INLINE vfloat vsilu(vfloat x)
{
    return x / (1.0F + vexp(-x));
}

ALWAYS_INLINE vfloat vsilu_slope(vfloat x)
{
    const vfloat s = 1.0F / (1.0F + vexp(-x));
    return s * vfma(x, 1.0F - s, vset1(1.0F));
}

/* Both, with one exponential; the same bits. */
ALWAYS_INLINE vfloat vsilu_both(vfloat x, vfloat *out_slope)
{
    const vfloat below = 1.0F + vexp(-x);
    const vfloat s = 1.0F / below;
    *out_slope = s * vfma(x, 1.0F - s, vset1(1.0F));
    return x / below;
}

/* x * ((x + 3) / 6 within [0, 1]) */
ALWAYS_INLINE vfloat vhard_swish(vfloat x)
{
    return x * (vclip(x + 3.0F, vzero(), vset1(6.0F)) * 0.16666667F);
}

ALWAYS_INLINE vfloat vhard_swish_slope(vfloat x)
{
    const vfloat low =
        vselect_less(x, vset1(-3.0F), vzero(), vfma(x, vset1(0.33333334F), vset1(0.5F)));
    return vselect_less(x, vset1(3.0F), low, vset1(1.0F));
}

ALWAYS_INLINE vfloat vhard_swish_both(vfloat x, vfloat *out_slope)
{
    *out_slope = vhard_swish_slope(x);
    return vhard_swish(x);
}

#endif
