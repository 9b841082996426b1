/*
 * softmax_kernel.h - softmax of one row and its gradient, for the operator and for attention.
 *
 * Scores are taken relative to the row's largest, so no exponential overflows. Sums run in VEC
 * lanes that are added up at the end: one order for a row's width.
 */
#ifndef DUNLIN_KERNELS_SOFTMAX_KERNEL_H
#define DUNLIN_KERNELS_SOFTMAX_KERNEL_H

#include "kernels/simd/vecmath.h"

typedef struct softmax_row {
    float largest;
    float inv_sum;
} softmax_row;

/* s = x * scale + mask (may be NULL): one element's score, everywhere the same. */
ALWAYS_INLINE vfloat softmax_score(const float *x, const float *mask, int64_t i, int32_t n,
                                   float scale)
{
    const vfloat s = vload_n(x + i, n) * scale;
    return mask == NULL ? s : s + vload_n(mask + i, n);
}

ALWAYS_INLINE float softmax_largest(const float *x, int64_t width, float scale, const float *mask)
{
    const vfloat lowest = vset1(-__builtin_inff());
    vfloat most = lowest;
    float largest = -__builtin_inff();
    for (int64_t i = 0; i < width; i += VEC) {
        const int32_t n = vec_left(width, i);
        const vfloat s = softmax_score(x, mask, i, n, scale);
        if (n == VEC) {
            most = vmax(s, most);
        }
        for (int32_t k = 0; n < VEC && k < n; k++) {
            largest = s[k] > largest ? s[k] : largest;
        }
    }
    const float of_lanes = vlargest(most);
    return of_lanes > largest ? of_lanes : largest;
}

/* out = exp(score - largest), and what it is to be multiplied by. */
ALWAYS_INLINE softmax_row softmax_exp(const float *x, int64_t width, float scale, const float *mask,
                                      float *out)
{
    softmax_row row = {.largest = softmax_largest(x, width, scale, mask)};
    vfloat sum = vzero();
    float tail = 0.0F;
    for (int64_t i = 0; i < width; i += VEC) {
        const int32_t n = vec_left(width, i);
        const vfloat e = vexp(softmax_score(x, mask, i, n, scale) - row.largest);
        vstore_n(out + i, e, n);
        if (n == VEC) {
            sum += e;
        }
        for (int32_t k = 0; n < VEC && k < n; k++) {
            tail += e[k];
        }
    }
    row.inv_sum = 1.0F / (vsum(sum) + tail);
    return row;
}

ALWAYS_INLINE void softmax_scale(float *x, int64_t width, float factor)
{
    for (int64_t i = 0; i < width; i += VEC) {
        const int32_t n = vec_left(width, i);
        vstore_n(x + i, vload_n(x + i, n) * factor, n);
    }
}

/* out = y * (dy - sum(y * dy)) * scale */
ALWAYS_INLINE void softmax_row_grad(const float *y, const float *dy, int64_t width, float scale,
                                    float *out)
{
    vfloat sum = vzero();
    for (int64_t i = 0; i < width; i += VEC) {
        const int32_t n = vec_left(width, i);
        sum = vfma(vload_n(y + i, n), vload_n(dy + i, n), sum);
    }
    const float mean = vsum(sum);
    for (int64_t i = 0; i < width; i += VEC) {
        const int32_t n = vec_left(width, i);
        vstore_n(out + i, vload_n(y + i, n) * (vload_n(dy + i, n) - mean) * scale, n);
    }
}

#endif
