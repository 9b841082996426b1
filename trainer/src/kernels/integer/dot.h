/*
 * dot.h - the one instruction that integer products are made of, as each set has it: sums of
 * DOT_GROUP products of int8 for each of VEC columns.
 *
 * One operand holds DOT_GROUP elements of a row, the same for all columns (dot_a), the other
 * DOT_GROUP elements of each column, side by side (dot_b). x86's dot product takes its first
 * operand without sign: DOT_OFFSET is added to it, and DOT_OFFSET times the column's sum taken
 * from the result; exact, since sums wrap. Without a dot product, elements are 16 bits wide on
 * x86: vpmaddubsw would saturate.
 */
#ifndef DUNLIN_KERNELS_DOT_H
#define DUNLIN_KERNELS_DOT_H

#include "kernels/simd/vec.h"

/*
 * INT_ROWS x INT_VECTORS: the accumulators of a tile, INT_FEW rows where fewer are left.
 */
#if defined(__AVX512F__)
#define INT_ROWS 12
#define INT_FEW 4
#elif USES_ARM
#define INT_ROWS 8
#define INT_FEW 4
#else
#define INT_ROWS 6
#define INT_FEW 2
#endif
#define INT_VECTORS 2
#define INT_WIDTH (INT_VECTORS * VEC)

#if defined(DUNLIN_HAS_DOT) && USES_X86

#define DOT_GROUP 4
#define DOT_SPREADS_32 1
#define DOT_OFFSET 128
typedef uint8_t dot_a;
typedef int8_t dot_b;
typedef vint vdot_operand;

ALWAYS_INLINE vint vdot(vint sum, vdot_operand a, vdot_operand b)
{
#if VEC == 16
    return (vint)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
    return (vint)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#endif
}

#elif defined(DUNLIN_HAS_DOT)

#define DOT_GROUP 4
#define DOT_SPREADS_32 1
#define DOT_OFFSET 0
typedef int8_t dot_a;
typedef int8_t dot_b;
typedef vint vdot_operand;

ALWAYS_INLINE vint vdot(vint sum, vdot_operand a, vdot_operand b)
{
    return (vint)vdotq_s32((int32x4_t)sum, (int8x16_t)a, (int8x16_t)b);
}

#elif USES_X86

#define DOT_GROUP 2
#define DOT_SPREADS_32 1
#define DOT_OFFSET 0
typedef int16_t dot_a;
typedef int16_t dot_b;
typedef vint vdot_operand;

ALWAYS_INLINE vint vdot(vint sum, vdot_operand a, vdot_operand b)
{
#if VEC == 16
    return sum + (vint)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif VEC == 8
    return sum + (vint)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return sum + (vint)_mm_madd_epi16((__m128i)a, (__m128i)b);
#endif
}

#elif USES_ARM

#define DOT_GROUP 2
#define DOT_SPREADS_32 0
#define DOT_OFFSET 0
typedef int8_t dot_a;
typedef int8_t dot_b;
typedef int8_t vdot_operand __attribute__((vector_size(8)));

ALWAYS_INLINE vint vdot(vint sum, vdot_operand a, vdot_operand b)
{
    return (vint)vpadalq_s16((int32x4_t)sum, vmull_s8((int8x8_t)a, (int8x8_t)b));
}

#else

#define DOT_GROUP 1
#define DOT_SPREADS_32 0
#define DOT_OFFSET 0
typedef int16_t dot_a;
typedef int16_t dot_b;
typedef int16_t vdot_operand __attribute__((vector_size(VEC * 2)));

/* 127 * 127 fits in 16 bits. */
ALWAYS_INLINE vint vdot(vint sum, vdot_operand a, vdot_operand b)
{
    return sum + __builtin_convertvector(a * b, vint);
}

#endif

/* The group at p for every column. */
ALWAYS_INLINE vdot_operand vdot_spread(const dot_a *p)
{
#if DOT_SPREADS_32
    int32_t group;
    memcpy(&group, p, sizeof group);
    return (vdot_operand)((vint){0} + group);
#else
    typedef int16_t spread __attribute__((vector_size(sizeof(vdot_operand))));
    int16_t group;
    memcpy(&group, p, sizeof group);
    return (vdot_operand)((spread){0} + group);
#endif
}

ALWAYS_INLINE vdot_operand vdot_load(const dot_b *p)
{
    vdot_operand v;
    memcpy(&v, p, sizeof v);
    return v;
}

typedef uint32_t vuint __attribute__((vector_size(VEC * 4)));

ALWAYS_INLINE vint vint_load(const int32_t *p)
{
    vint v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE void vint_store(int32_t *p, vint v)
{
    memcpy(p, &v, sizeof v);
}

ALWAYS_INLINE vint vint_min(vint a, vint b)
{
#if defined(__AVX512F__)
    return (vint)_mm512_min_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vint)_mm256_min_epi32((__m256i)a, (__m256i)b);
#elif USES_ARM
    return (vint)vminq_s32((int32x4_t)a, (int32x4_t)b);
#else
    const vint less = a < b;
    return (less & a) | (~less & b);
#endif
}

ALWAYS_INLINE vint vint_max(vint a, vint b)
{
#if defined(__AVX512F__)
    return (vint)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vint)_mm256_max_epi32((__m256i)a, (__m256i)b);
#elif USES_ARM
    return (vint)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
#else
    const vint more = a > b;
    return (more & a) | (~more & b);
#endif
}

/* Lanes of a comparison that hold. */
ALWAYS_INLINE int32_t vint_count(vint mask)
{
#if defined(__AVX512F__)
    return __builtin_popcount(_mm512_movepi32_mask((__m512i)mask));
#elif defined(__AVX2__)
    return __builtin_popcount((unsigned)_mm256_movemask_ps((__m256)mask));
#elif USES_ARM
    return -vaddvq_s32((int32x4_t)mask);
#else
    int32_t n = 0;
    for (int i = 0; i < VEC; i++) {
        n -= mask[i];
    }
    return n;
#endif
}

/* |v|; the least value stays what it is. */
ALWAYS_INLINE vint vint_abs(vint v)
{
#if defined(__AVX512F__)
    return (vint)_mm512_abs_epi32((__m512i)v);
#elif defined(__AVX2__)
    return (vint)_mm256_abs_epi32((__m256i)v);
#elif USES_ARM
    return (vint)vabsq_s32((int32x4_t)v);
#else
    const vint sign = v >> 31;
    return (v ^ sign) - sign;
#endif
}

/* v / 2^shift of what has no sign, down. AVX-512 shifts by a vector in half the operations that a
 * number takes. */
ALWAYS_INLINE vuint vuint_down(vuint v, int32_t shift)
{
#if defined(__AVX512F__)
    return (vuint)_mm512_srlv_epi32((__m512i)v, _mm512_set1_epi32(shift));
#else
    return v >> (uint32_t)shift;
#endif
}

/* A magnitude with the sign of v; 0 where v is. */
ALWAYS_INLINE vint vint_signed(vint size, vint v)
{
#if defined(__AVX512F__)
    return (vint)_mm512_mask_sub_epi32((__m512i)size, _mm512_movepi32_mask((__m512i)v),
                                       _mm512_setzero_si512(), (__m512i)size);
#elif defined(__AVX2__)
    return (vint)_mm256_sign_epi32((__m256i)size, (__m256i)v);
#else
    const vint sign = v >> 31;
    return (size ^ sign) - sign;
#endif
}

typedef int8_t vchars __attribute__((vector_size(VEC)));

/* n int8, the others zero. */
ALWAYS_INLINE vint vint_chars(const int8_t *p, int32_t n)
{
    return __builtin_convertvector((vchars)vbytes_load((const uint8_t *)p, n), vint);
}

ALWAYS_INLINE void vint_store_chars(int8_t *p, vint v, int32_t n)
{
    vbytes_store((uint8_t *)p, (vbytes) __builtin_convertvector(v, vchars), n);
}

#endif
