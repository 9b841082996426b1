/*
 * bf16.h - the nearest bfloat16 of a float: its upper half, of two as near the one whose last bit
 * is 0. What lies beyond the largest becomes infinity, not-a-number stays so.
 */
#ifndef DUNLIN_KERNELS_BF16_H
#define DUNLIN_KERNELS_BF16_H

#include "vec.h"

typedef uint32_t vwords __attribute__((vector_size(VEC * 4)));
typedef uint16_t vhalves __attribute__((vector_size(VEC * 2)));
typedef uint16_t vhalves_unaligned __attribute__((vector_size(VEC * 2), aligned(2), may_alias));

/* The bits of a float, rounded; the lower half is not cleared. */
static inline uint32_t bf16_round_bits(uint32_t bits)
{
    const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
    return (bits & 0x7FFFFFFFU) > 0x7F800000U ? bits | 0x400000U : rounded;
}

/* The same as a float, of each of a vector's. */
ALWAYS_INLINE vfloat vround_bf16(vfloat v)
{
    const vwords bits = (vwords)v;
    const vwords rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
    const vwords is_number = (vwords)(v == v); // NOLINT(misc-redundant-expression): not of a NaN
    return (vfloat)(((is_number & rounded) | (~is_number & (bits | 0x400000U))) & 0xFFFF0000U);
}

/* The upper halves of a vector, which has been rounded, and back. */
ALWAYS_INLINE void vstore_halves(uint16_t *p, vfloat v)
{
    *(vhalves_unaligned *)p = (vhalves_unaligned) __builtin_convertvector((vwords)v >> 16, vhalves);
}

ALWAYS_INLINE vfloat vload_halves(const uint16_t *p)
{
    const vhalves halves = (vhalves) * (const vhalves_unaligned *)p;
    return (vfloat)(__builtin_convertvector(halves, vwords) << 16);
}

/* One float, rounded. */
static inline float bf16_round(float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    bits = bf16_round_bits(bits) & 0xFFFF0000U;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t bf16_half(float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

#endif
