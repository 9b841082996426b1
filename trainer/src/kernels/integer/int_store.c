/*
 * int_store.c - a tile of sums to int8: rounded, counted, added to, masked and clipped; or to
 * floats, each times one unit.
 *
 * Invariant: a mask is read where it is written over, and before.
 */
#include "int_gemm.h"

/* |v|, its sign as a mask in *out_sign. */
ALWAYS_INLINE vint size_of(vint v, vint *out_sign)
{
    *out_sign = v >> 31;
    return (v ^ *out_sign) - *out_sign;
}

typedef int8_t vchars_wide __attribute__((vector_size(VEC * 4)));

ALWAYS_INLINE vint rounded(vint size, int32_t shift, int32_t half)
{
    return (vint)vuint_down((vuint)size + (uint32_t)half, shift);
}

/* What an addend makes of q; counted are lanes that either rounding clipped. */
static vint added(const int_target *target, int64_t at, int32_t n, vint q, vint *clipped)
{
    const int32_t shift = (int32_t)min_i64(9, max_i64(0, target->addend_shift));
    vint sign;
    const vint addend = vint_chars(target->addend + at, n);
    const vint size = rounded(size_of(addend, &sign), shift, (int32_t)int_half(shift));
    const vint most = (vint){0} + DUNLIN_INT_MOST;
    q += (size ^ sign) - sign;
    *clipped |= (q > most) | (q < -most);
    return vint_max(-most, vint_min(most, q));
}

/* A vector of a row, with all that may be asked for. */
ALWAYS_INLINE vint store_vector(int_target *target, int64_t at, int32_t used, vint sums,
                                bool is_plain)
{
    const int32_t shift = target->shift > 0 ? target->shift : 0;
    const vint most = (vint){0} + DUNLIN_INT_MOST;
    vint sign;
    const vint size = size_of(sums, &sign);
    const vint whole = rounded(size, shift, (int32_t)int_half(shift));
    vint q = vint_min(whole, most);
    q = (q ^ sign) - sign;
    if (!is_plain) {
        vint clipped = whole > most;
        q = added(target, at, used, q, &clipped);
        target->count.n_clipped += vint_count(clipped);
    }
    if (target->mask != NULL) {
        const vint mask = vint_chars(target->mask + at, used);
        q &= (mask > target->mask_low) & (mask < target->mask_high);
    }
    q = vint_max((vint){0} + target->low, vint_min((vint){0} + target->high, q));
    vint_store_chars(target->out + at, q, used);
    return size;
}

#if VEC >= 8 && INT_VECTORS == 2

#if VEC == 16
#define WIDE(op, a, b) _mm512_##op((__m512i)(a), (__m512i)(b))
typedef __m512i wide;
#else
#define WIDE(op, a, b) _mm256_##op((__m256i)(a), (__m256i)(b))
typedef __m256i wide;
#endif

/* Four vectors as bytes; what is beyond int8 saturates. */
ALWAYS_INLINE wide packed(const vint v[4])
{
    return WIDE(packs_epi16, WIDE(packs_epi32, v[0], v[1]), WIDE(packs_epi32, v[2], v[3]));
}

#if VEC == 16

/* Magnitudes with the signs of v, packed: signs cost less for bytes, once v is packed too. The
 * least value has no magnitude, and stays beyond -127. */
ALWAYS_INLINE wide packed_signed(const vint size[4], const vint v[4])
{
    const wide q = packed(size);
    return _mm512_mask_sub_epi8(q, _mm512_movepi8_mask(packed(v)), _mm512_setzero_si512(), q);
}

/* Two rows of two vectors or four of one, as packing leaves their bytes, in order. */
ALWAYS_INLINE wide in_order(wide v)
{
    const wide places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(places, v);
}
#else

ALWAYS_INLINE wide packed_signed(const vint size[4], const vint v[4])
{
    vint q[4];
    UNROLL
    for (int j = 0; j < 4; j++) {
        q[j] = vint_signed(size[j], v[j]);
    }
    return packed(q);
}

ALWAYS_INLINE wide in_order(wide v)
{
    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
#endif

/* The bytes of the rows of a vector: two of two vectors (INT_WIDTH) or four of one, n of each. */
#if VEC == 16

ALWAYS_INLINE wide rows_load(const int8_t *from, const int64_t *at, int64_t width, int64_t n)
{
    if (width == INT_WIDTH) {
        const __mmask32 used = (__mmask32)(0xFFFFFFFFU >> (INT_WIDTH - n));
        const __m512i low = _mm512_castsi256_si512(_mm256_maskz_loadu_epi8(used, from + at[0]));
        return _mm512_inserti64x4(low, _mm256_maskz_loadu_epi8(used, from + at[1]), 1);
    }
    const __mmask16 used = (__mmask16)(0xFFFFU >> (VEC - n));
    __m512i v = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(used, from + at[0]));
    v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(used, from + at[1]), 1);
    v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(used, from + at[2]), 2);
    return _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(used, from + at[3]), 3);
}

ALWAYS_INLINE void rows_store(int8_t *to, const int64_t *at, int64_t width, int64_t n, wide v)
{
    if (width == INT_WIDTH && n == width) {
        _mm256_storeu_si256((__m256i_u *)(to + at[0]), _mm512_castsi512_si256(v));
        _mm256_storeu_si256((__m256i_u *)(to + at[1]), _mm512_extracti64x4_epi64(v, 1));
        return;
    }
    if (width == INT_WIDTH) {
        const __mmask32 used = (__mmask32)(0xFFFFFFFFU >> (INT_WIDTH - n));
        _mm256_mask_storeu_epi8(to + at[0], used, _mm512_castsi512_si256(v));
        _mm256_mask_storeu_epi8(to + at[1], used, _mm512_extracti64x4_epi64(v, 1));
        return;
    }
    const __mmask16 used = (__mmask16)(0xFFFFU >> (VEC - n));
    _mm_mask_storeu_epi8(to + at[0], used, _mm512_castsi512_si128(v));
    _mm_mask_storeu_epi8(to + at[1], used, _mm512_extracti32x4_epi32(v, 1));
    _mm_mask_storeu_epi8(to + at[2], used, _mm512_extracti32x4_epi32(v, 2));
    _mm_mask_storeu_epi8(to + at[3], used, _mm512_extracti32x4_epi32(v, 3));
}

#else

ALWAYS_INLINE wide rows_load(const int8_t *from, const int64_t *at, int64_t width, int64_t n)
{
    int8_t bytes[sizeof(wide)] = {0};
    wide v;
    for (int64_t j = 0; j < (int64_t)sizeof bytes / width; j++) {
        const int8_t *row = from + at[j];
        if (n == width) {
            memcpy(bytes + j * width, row, (size_t)width);
            continue;
        }
        for (int64_t k = 0; k < n; k += VEC) {
            const vbytes part = vbytes_load((const uint8_t *)row + k, vec_left(n, k));
            memcpy(bytes + j * width + k, &part, sizeof part);
        }
    }
    memcpy(&v, bytes, sizeof v);
    return v;
}

ALWAYS_INLINE void rows_store(int8_t *to, const int64_t *at, int64_t width, int64_t n, wide v)
{
    char bytes[sizeof v];
    memcpy(bytes, &v, sizeof v);
    for (int64_t j = 0; j < (int64_t)sizeof bytes / width; j++) {
        const char *row = bytes + j * width;
        if (n == width) {
            memcpy(to + at[j], row, (size_t)width);
            continue;
        }
        vbytes part;
        for (int64_t k = 0; k < n; k += VEC) {
            memcpy(&part, row + k, sizeof part);
            vbytes_store((uint8_t *)to + at[j] + k, part, vec_left(n, k));
        }
    }
}

#endif

/* 0 where the mask is at a bound. */
ALWAYS_INLINE wide masked(const int_target *target, const int64_t *at, int64_t width, int64_t n,
                          wide q)
{
    const vchars_wide mask = (vchars_wide)rows_load(target->mask, at, width, n);
    const int8_t most = (int8_t)min_i64(DUNLIN_INT_MOST, (int64_t)target->mask_high - 1);
    const vchars_wide in = (mask > (int8_t)target->mask_low) & (mask <= most);
    return (wide)((vchars_wide)q & in);
}

/* Rows of `width`, n of it, as many as four vectors are, without an addend: what is beyond int8
 * saturates as it is packed. */
ALWAYS_INLINE vint store_whole(const int_target *target, const int64_t *at, int64_t n_rows,
                               int64_t width, int64_t n, const int32_t *tile)
{
    const int vectors = (int)(width / VEC);
    int8_t *out = target->out; /* copies: nothing stored changes them */
    const int32_t shift = target->shift > 0 ? target->shift : 0;
    const int32_t half = (int32_t)int_half(shift);
    const wide low = (wide)((vchars_wide){0} + (int8_t)target->low);
    const wide high = (wide)((vchars_wide){0} + (int8_t)target->high);
    vint largest = {0};
    for (int64_t i = 0; i < n_rows; i += 4 / vectors) {
        vint v[4];
        vint size[4];
        UNROLL
        for (int j = 0; j < 4; j++) {
            v[j] = vint_load(tile + (i + j / vectors) * INT_WIDTH + j % vectors * VEC);
            size[j] = vint_abs(v[j]);
            largest = vint_max(largest, size[j]);
            size[j] = rounded(size[j], shift, half);
        }
        wide both = packed_signed(size, v);
        both = in_order(WIDE(max_epi8, low, WIDE(min_epi8, high, both)));
        if (target->mask != NULL) {
            both = masked(target, at + i, width, n, both);
        }
        rows_store(out, at + i, width, n, both);
    }
    return largest;
}

#else

ALWAYS_INLINE vint store_whole(const int_target *target, const int64_t *at, int64_t n_rows,
                               int64_t width, int64_t n, const int32_t *tile)
{
    (void)width;
    (void)n;
    (void)target;
    (void)at;
    (void)n_rows;
    (void)tile;
    return (vint){0};
}

#endif

static vint largest_of(int64_t n_rows, int64_t n, const int32_t *tile)
{
    vint largest = {0};
    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t j = 0; j < n; j += VEC) {
            largest = vint_max(largest, vint_abs(vint_load(tile + i * INT_WIDTH + j)));
        }
    }
    return largest;
}

static void store_real(const int_target *target, const int64_t *at, int64_t n_rows, int64_t n,
                       const int32_t *tile)
{
    const vfloat unit = vset1(target->unit);
    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t j = 0; j < n; j += VEC) {
            const vint sums = vint_load(tile + i * INT_WIDTH + j);
            const int32_t left = vec_left(n, j);
            float *to = target->real + at[i] + j;
            const vfloat v = __builtin_convertvector(sums, vfloat) * unit;
            vstore_n(to, target->is_added ? vload_n(to, left) + v : v, left);
        }
    }
}

void K(int_store)(const int_block *block, int64_t row, int64_t n_rows, int64_t column, int64_t n,
                  const int32_t *tile)
{
    int_target *target = (int_target *)block->target;
    const int32_t shift = target->shift > 0 ? target->shift : 0;
    const int32_t half = (int32_t)int_half(shift);
    const bool is_plain = target->addend == NULL;
    vint largest = {0};
    int64_t at[INT_ROWS];
    for (int64_t i = 0; i < n_rows; i++) {
        at[i] = target->at[row + i] + target->column + column;
    }
    if (target->real != NULL) {
        store_real(target, at, n_rows, n, tile);
        return;
    }
    if (target->out == NULL) {
        largest = largest_of(n_rows, n, tile);
    } else if (VEC >= 8 && is_plain && n > VEC && n_rows % 2 == 0) {
        largest = store_whole(target, at, n_rows, INT_WIDTH, n, tile);
    } else if (VEC >= 8 && is_plain && n <= VEC && n_rows % 4 == 0) {
        largest = store_whole(target, at, n_rows, VEC, n, tile);
    } else {
        for (int64_t i = 0; i < n_rows; i++) {
            for (int64_t j = 0; j < n; j += VEC) {
                const vint sums = vint_load(tile + i * INT_WIDTH + j);
                largest = vint_max(largest,
                                   store_vector(target, at[i] + j, vec_left(n, j), sums, is_plain));
            }
        }
    }
    target->largest = vint_max(target->largest, largest);
    /* Seldom: so it is counted only where there is one. */
    if (is_plain && vint_count(largest > int_most_unclipped(shift)) > 0) {
        for (int64_t i = 0; i < n_rows; i++) {
            for (int64_t j = 0; j < n; j++) {
                const uint32_t size = int_size(tile[i * INT_WIDTH + j]);
                target->count.n_clipped +=
                    int_shifted(size, shift, (uint32_t)half) > DUNLIN_INT_MOST ? 1 : 0;
            }
        }
    }
}
