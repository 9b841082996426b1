/*
 * vec.h - one vector of floats, as wide as the instruction set this file is compiled for, and the
 * names that carry the set's suffix.
 *
 * Everything that rounds goes through vfma() or plain operators: no intrinsic with a rounding of
 * its own.
 */
#ifndef DUNLIN_KERNELS_VEC_H
#define DUNLIN_KERNELS_VEC_H

#include <stdint.h>
#include <string.h>

/* The set `generic` is written in the compiler's own vectors of 16 bytes alone, and has no
 * intrinsic: for processors that have no set of their own, and to be compared with on those that
 * have. */
#if defined(DUNLIN_GENERIC)
#define USES_X86 0
#define USES_ARM 0
#elif defined(__SSE2__)
#include <immintrin.h>
#define USES_X86 1
#define USES_ARM 0
#elif defined(__aarch64__)
#include <arm_neon.h>
#define USES_X86 0
#define USES_ARM 1
#else
#error "this processor has the instruction set `generic` alone"
#endif

#define DUNLIN_PASTE_(a, b) a##b
#define DUNLIN_PASTE(a, b) DUNLIN_PASTE_(a, b)
#define DUNLIN_QUOTE_(a) #a
#define DUNLIN_QUOTE(a) DUNLIN_QUOTE_(a)
#define K(name) DUNLIN_PASTE(dunlin__##name##_, DUNLIN_ISA)

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/*
 * VEC: floats in a vector. TILE_ROWS x TILE_VECTORS: the GEMM's accumulators, as many as the
 * registers hold beside one row of B and one broadcast. TALL_ROWS: where panels are narrower, in
 * row form, if there are registers for them.
 */
#if defined(__AVX512F__)
#define VEC 16
#define TILE_ROWS 8
#define TALL_ROWS 14 /* divides most lines of pixels */
#define TILE_VECTORS 3
#elif defined(__AVX2__)
#define VEC 8
#define TILE_ROWS 6
#define TILE_VECTORS 2
#elif USES_ARM
#define VEC 4
#define TILE_ROWS 8
#define TILE_VECTORS 2
#else
#define VEC 4
#define TILE_ROWS 6
#define TILE_VECTORS 2
#endif

#ifndef TALL_ROWS
#define TALL_ROWS TILE_ROWS
#endif

typedef float vfloat __attribute__((vector_size(VEC * 4)));
typedef int32_t vint __attribute__((vector_size(VEC * 4)));
typedef uint8_t vbytes __attribute__((vector_size(VEC)));
typedef float vfloat_unaligned __attribute__((vector_size(VEC * 4), aligned(4), may_alias));

ALWAYS_INLINE vfloat vzero(void)
{
    return (vfloat){0};
}

ALWAYS_INLINE vfloat vload(const float *p)
{
    return *(const vfloat_unaligned *)p;
}

ALWAYS_INLINE void vstore(float *p, vfloat v)
{
    *(vfloat_unaligned *)p = v;
}

/*
 * Stores past the caches: a line that is written whole is not read first, and takes nobody's place.
 * p is aligned as a vector; a task that stores so ends with vstream_done(), for these stores come
 * in no order.
 */
#if defined(__AVX512F__) || defined(__AVX2__)
#define CAN_STREAM true
#else
#define CAN_STREAM false
#endif

ALWAYS_INLINE void vstream(float *p, vfloat v)
{
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX2__)
    _mm256_stream_ps(p, (__m256)v);
#else
    vstore(p, v);
#endif
}

ALWAYS_INLINE void vstream_done(void)
{
#if USES_X86
    _mm_sfence();
#endif
}

#if defined(__AVX512F__)

ALWAYS_INLINE vfloat vset1(float s)
{
    return (vfloat)_mm512_set1_ps(s);
}

ALWAYS_INLINE vfloat vfma(vfloat a, vfloat b, vfloat c)
{
    return (vfloat)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

/* The first n floats, 1 <= n <= VEC; the others read as zero and are not touched. */
ALWAYS_INLINE vfloat vload_part(const float *p, int32_t n)
{
    return (vfloat)_mm512_maskz_loadu_ps((__mmask16)(0xFFFFU >> (16 - n)), p);
}

ALWAYS_INLINE void vstore_part(float *p, vfloat v, int32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)(0xFFFFU >> (16 - n)), (__m512)v);
}

#else

#if defined(__AVX2__)

ALWAYS_INLINE vfloat vset1(float s)
{
    return (vfloat)_mm256_set1_ps(s);
}

ALWAYS_INLINE vfloat vfma(vfloat a, vfloat b, vfloat c)
{
    return (vfloat)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

#elif USES_ARM

ALWAYS_INLINE vfloat vset1(float s)
{
    return (vfloat)vdupq_n_f32(s);
}

ALWAYS_INLINE vfloat vfma(vfloat a, vfloat b, vfloat c)
{
    return (vfloat)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

#else

ALWAYS_INLINE vfloat vset1(float s)
{
    return (vfloat){s, s, s, s};
}

/* No fused instruction in the baseline: two roundings. */
ALWAYS_INLINE vfloat vfma(vfloat a, vfloat b, vfloat c)
{
    return a * b + c;
}

#endif

/* The first n floats, 1 <= n <= VEC; the others read as zero and are not touched. */
#if defined(__AVX2__)

ALWAYS_INLINE vfloat vload_part(const float *p, int32_t n)
{
    static const int32_t masks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    __m256i mask = _mm256_loadu_si256((const __m256i_u *)(masks + 8 - n));
    return (vfloat)_mm256_maskload_ps(p, mask);
}

#else

ALWAYS_INLINE vfloat vload_part(const float *p, int32_t n)
{
    return (vfloat){p[0], n > 1 ? p[1] : 0.0f, n > 2 ? p[2] : 0.0f, n > 3 ? p[3] : 0.0f};
}

#endif

ALWAYS_INLINE void vstore_part(float *p, vfloat v, int32_t n)
{
#if defined(__AVX2__)
    int32_t i = 0;
    if (n >= 4) {
        _mm_storeu_ps(p, _mm256_castps256_ps128((__m256)v));
        v = (vfloat)_mm256_permute2f128_ps((__m256)v, (__m256)v, 1);
        i = 4;
    }
#else
    const int32_t i = 0;
#endif
    if (n > i) {
        p[i] = v[0];
    }
    if (n > i + 1) {
        p[i + 1] = v[1];
    }
    if (n > i + 2) {
        p[i + 2] = v[2];
    }
    if (n > i + 3) {
        p[i + 3] = v[3];
    }
}

#endif

/* What is left of a row of n floats at i: a whole vector or its part. */
ALWAYS_INLINE int32_t vec_left(int64_t n, int64_t i)
{
    return n - i < VEC ? (int32_t)(n - i) : VEC;
}

ALWAYS_INLINE vfloat vload_n(const float *p, int32_t n)
{
    return n == VEC ? vload(p) : vload_part(p, n);
}

ALWAYS_INLINE void vstore_n(float *p, vfloat v, int32_t n)
{
    if (n == VEC) {
        vstore(p, v);
    } else {
        vstore_part(p, v, n);
    }
}

/* The first n bytes, 1 <= n <= VEC; the others read as zero and are not touched. */
ALWAYS_INLINE vbytes vbytes_load(const uint8_t *p, int32_t n)
{
    vbytes v = {0};
    if (n == VEC) {
        memcpy(&v, p, VEC);
        return v;
    }
#if defined(__AVX512F__)
    return (vbytes)_mm_maskz_loadu_epi8((__mmask16)(0xFFFFU >> (16 - n)), p);
#else
    uint8_t part[VEC] = {0};
    for (int32_t i = 0; i < n; i++) {
        part[i] = p[i];
    }
    memcpy(&v, part, VEC);
    return v;
#endif
}

ALWAYS_INLINE void vbytes_store(uint8_t *p, vbytes v, int32_t n)
{
    if (n == VEC) {
        memcpy(p, &v, VEC);
        return;
    }
#if defined(__AVX512F__)
    _mm_mask_storeu_epi8(p, (__mmask16)(0xFFFFU >> (16 - n)), (__m128i)v);
#else
    for (int32_t i = 0; i < n; i++) {
        p[i] = v[i];
    }
#endif
}

/* a + b where the byte is `is`, else a. */
ALWAYS_INLINE vfloat vadd_where(vfloat a, vfloat b, vbytes bytes, uint8_t is)
{
#if defined(__AVX512F__)
    const __mmask16 where = _mm_cmpeq_epi8_mask((__m128i)bytes, _mm_set1_epi8((char)is));
    return (vfloat)_mm512_mask_add_ps((__m512)a, where, (__m512)a, (__m512)b);
#else
    return a + (vfloat)((vint)b & (__builtin_convertvector(bytes, vint) == (int32_t)is));
#endif
}

/* a + b where two bytes are the same, else a. */
ALWAYS_INLINE vfloat vadd_equal(vfloat a, vfloat b, vbytes bytes, vbytes others)
{
#if defined(__AVX512F__)
    const __mmask16 where = _mm_cmpeq_epi8_mask((__m128i)bytes, (__m128i)others);
    return (vfloat)_mm512_mask_add_ps((__m512)a, where, (__m512)a, (__m512)b);
#else
    return a + (vfloat)((vint)b & (__builtin_convertvector(bytes ^ others, vint) == 0));
#endif
}

/* Where a maximum was found: as it is fastest to select. */
#if defined(__AVX512F__)
typedef vbytes vplace;
#else
typedef vint vplace;
#endif

ALWAYS_INLINE vplace vplace_set1(uint8_t place)
{
#if defined(__AVX512F__)
    return (vplace)_mm_set1_epi8((char)place);
#else
    return (vint){0} + (int32_t)place;
#endif
}

ALWAYS_INLINE vbytes vplace_bytes(vplace place)
{
#if defined(__AVX512F__)
    return place;
#else
    return __builtin_convertvector(place, vbytes);
#endif
}

/* v and its place where v is larger than the best, or not a number. */
ALWAYS_INLINE void vmax_take(vfloat *best, vplace *best_place, vfloat v, vplace place)
{
#if defined(__AVX512F__)
    const __mmask16 larger = _mm512_cmp_ps_mask((__m512)v, (__m512)*best, _CMP_GT_OQ);
    const __mmask16 wins = larger | _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    *best = (vfloat)_mm512_mask_mov_ps((__m512)*best, wins, (__m512)v);
    *best_place = (vplace)_mm_mask_mov_epi8((__m128i)*best_place, wins, (__m128i)place);
#else
    const vint wins = (vint)(v > *best) | ~(vint)(v <= vset1(__builtin_inff()));
    *best = (vfloat)((wins & (vint)v) | (~wins & (vint)*best));
    *best_place = (wins & place) | (~wins & *best_place);
#endif
}

#if !USES_X86 && !USES_ARM
/* Element by element: `yes` where `where` is all ones, `no` where it is zero. */
ALWAYS_INLINE vfloat vselect(vint where, vfloat yes, vfloat no)
{
    return (vfloat)((where & (vint)yes) | (~where & (vint)no));
}
#endif

/* Within [low, high]; not-a-number passes. */
ALWAYS_INLINE vfloat vclip(vfloat v, vfloat low, vfloat high)
{
#if defined(__AVX512F__)
    v = (vfloat)_mm512_max_ps((__m512)low, (__m512)v);
    return (vfloat)_mm512_min_ps((__m512)high, (__m512)v);
#elif defined(__AVX2__)
    v = (vfloat)_mm256_max_ps((__m256)low, (__m256)v);
    return (vfloat)_mm256_min_ps((__m256)high, (__m256)v);
#elif USES_ARM
    v = (vfloat)vmaxq_f32((float32x4_t)low, (float32x4_t)v);
    return (vfloat)vminq_f32((float32x4_t)high, (float32x4_t)v);
#elif USES_X86
    v = (vfloat)_mm_max_ps((__m128)low, (__m128)v);
    return (vfloat)_mm_min_ps((__m128)high, (__m128)v);
#else
    v = vselect(low > v, low, v);
    return vselect(high < v, high, v);
#endif
}

/* v where low < by < high, else zero. */
ALWAYS_INLINE vfloat vmasked(vfloat v, vfloat by, vfloat low, vfloat high)
{
#if defined(__AVX512F__)
    __mmask16 inside = _mm512_cmp_ps_mask((__m512)by, (__m512)low, _CMP_GT_OQ);
    inside = _mm512_mask_cmp_ps_mask(inside, (__m512)by, (__m512)high, _CMP_LT_OQ);
    return (vfloat)_mm512_maskz_mov_ps(inside, (__m512)v);
#else
    return (vfloat)((vint)v & (vint)(by > low) & (vint)(by < high));
#endif
}

/* 1 where low < v < high, else 0. */
ALWAYS_INLINE vbytes vinside(vfloat v, vfloat low, vfloat high)
{
    const vint inside = (vint)(v > low) & (vint)(v < high) & 1;
    return __builtin_convertvector(inside, vbytes);
}

/* v where the byte is 0, else zero. */
ALWAYS_INLINE vfloat vkeep(vfloat v, vbytes bytes)
{
#if defined(__AVX512F__)
    const __mmask16 kept = _mm_cmpeq_epi8_mask((__m128i)bytes, _mm_setzero_si128());
    return (vfloat)_mm512_maskz_mov_ps(kept, (__m512)v);
#else
    return (vfloat)((vint)v & (__builtin_convertvector(bytes, vint) == 0));
#endif
}

/* Copies a run of floats that is often shorter than what pays for a call of memcpy. */
ALWAYS_INLINE void vcopy(float *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        vstore(to + i, vload(from + i));
    }
    if (i < n) {
        vstore_part(to + i, vload_part(from + i, (int32_t)(n - i)), (int32_t)(n - i));
    }
}

ALWAYS_INLINE void vclear(float *to, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        vstore(to + i, vzero());
    }
    for (; i < n; i++) {
        to[i] = 0.0f;
    }
}

#endif
