/*
 * stored.h - values that are read where they lie: floats, or bfloat16, which is a float's upper
 * half, so that widening it is exact. Where a kernel takes both, the pointer's type is that of
 * floats, and addresses are counted in elements.
 */
#ifndef DUNLIN_KERNELS_STORED_H
#define DUNLIN_KERNELS_STORED_H

#include "bf16.h"

#include <stdbool.h>

/* `n` elements after the one at `p`. */
ALWAYS_INLINE const float *stored_at(const float *p, int64_t n, bool is_half)
{
    const char *bytes = (const char *)p;
    const int64_t size = is_half ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    return (const float *)(const void *)(bytes + n * size);
}

ALWAYS_INLINE float *stored_to(float *p, int64_t n, bool is_half)
{
    char *bytes = (char *)p;
    const int64_t size = is_half ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    return (float *)(void *)(bytes + n * size);
}

/* The first n of a vector of bfloat16, 1 <= n <= VEC; the others read as zero and are not touched.
 */
ALWAYS_INLINE vfloat vload_halves_n(const uint16_t *p, int32_t n)
{
    if (n == VEC) {
        return vload_halves(p);
    }
    uint16_t part[VEC] = {0};
    if (n == VEC / 2) {
        memcpy(part, p, sizeof part / 2);
    } else {
        for (int32_t i = 0; i < n; i++) {
            part[i] = p[i];
        }
    }
    return vload_halves(part);
}

ALWAYS_INLINE vfloat vload_stored(const float *p, int32_t n, bool is_half)
{
    return is_half ? vload_halves_n((const uint16_t *)(const void *)p, n) : vload_n(p, n);
}

/* A vector; as bfloat16 it has been rounded. */
ALWAYS_INLINE void vstore_stored(float *p, vfloat v, int32_t n, bool is_half)
{
    if (!is_half) {
        vstore_n(p, v, n);
    } else if (n == VEC) {
        vstore_halves((uint16_t *)(void *)p, v);
    } else {
        uint16_t part[VEC];
        vstore_halves(part, v);
        for (int32_t i = 0; i < n; i++) {
            ((uint16_t *)(void *)p)[i] = part[i];
        }
    }
}

#endif
