/*
 * int_depthwise.h - depthwise convolutions in integers: a run of channels of some pixels at once.
 *
 * With x86's dot product the four taps (weight gradient: pixels) of a group are four rows of bytes
 * that are laid side by side within lanes of 16 bytes, and packing the rounded sums undoes just
 * that order. On arm64, with a dot product or without, a group is two rows: their products are
 * added in 16 bits, which hold two of values within DUNLIN_INT_MOST, and then to the sums; a dot
 * product would need its rows laid side by side first, which takes more. Else a run is one vector
 * of int32.
 */
#ifndef DUNLIN_KERNELS_INT_DEPTHWISE_H
#define DUNLIN_KERNELS_INT_DEPTHWISE_H

#include "int_conv.h"

#if DOT_OFFSET != 0 || USES_ARM
#define RUN_VECTORS 4
#else
#define RUN_VECTORS 1
#endif
#define RUN_CHANNELS (RUN_VECTORS * VEC)
#define RUN_GROUP (USES_ARM ? 2 : 4) /* rows of bytes that are taken at once */

/* Taps at most: a pixel's pointers to them stand on the stack. */
#define INT_DEPTHWISE_TAPS 225

typedef struct int_run {
    vint of[RUN_VECTORS];
} int_run;

#if RUN_VECTORS > 1

typedef int8_t vwide __attribute__((vector_size(RUN_CHANNELS)));

/* n channels, the others zero. */
ALWAYS_INLINE vwide run_load(const int8_t *p, int64_t n)
{
    vwide v = {0};
    if (n >= RUN_CHANNELS) {
        memcpy(&v, p, sizeof v);
        return v;
    }
#if VEC == 16
    return (vwide)_mm512_maskz_loadu_epi8(~(__mmask64)0 >> (64 - n), p);
#else
    memcpy(&v, p, (size_t)n);
    return v;
#endif
}

ALWAYS_INLINE void run_store(int8_t *p, vwide v, int64_t n)
{
    if (n >= RUN_CHANNELS) {
        memcpy(p, &v, sizeof v);
        return;
    }
#if VEC == 16
    _mm512_mask_storeu_epi8(p, ~(__mmask64)0 >> (64 - n), (__m512i)v);
#else
    memcpy(p, &v, (size_t)n);
#endif
}

#if USES_ARM

/* The rows of a group. */
typedef struct run_group {
    vwide of[RUN_GROUP];
} run_group;

/* From int32 to int8, what is beyond as the last there is; in the order of channels. */
ALWAYS_INLINE vwide run_pack(const int_run *run)
{
    const int16x8_t low =
        vcombine_s16(vqmovn_s32((int32x4_t)run->of[0]), vqmovn_s32((int32x4_t)run->of[1]));
    const int16x8_t high =
        vcombine_s16(vqmovn_s32((int32x4_t)run->of[2]), vqmovn_s32((int32x4_t)run->of[3]));
    return (vwide)vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
}

ALWAYS_INLINE vwide run_within(vwide v, int8_t low, int8_t high)
{
    return (vwide)vminq_s8(vmaxq_s8((int8x16_t)v, vdupq_n_s8(low)), vdupq_n_s8(high));
}

/* The rows of a group at `rows` from channel c on, n channels of them. */
ALWAYS_INLINE run_group run_rows(const int8_t *const *rows, int64_t c, int64_t n, int8_t flip)
{
    (void)flip;
    return (run_group){{run_load(rows[0] + c, n), run_load(rows[1] + c, n)}};
}

/* The sums and the products of two groups. */
ALWAYS_INLINE int_run run_dot(int_run sums, const run_group *a, const run_group *b)
{
    const int8x16_t a0 = (int8x16_t)a->of[0];
    const int8x16_t a1 = (int8x16_t)a->of[1];
    const int8x16_t b0 = (int8x16_t)b->of[0];
    const int8x16_t b1 = (int8x16_t)b->of[1];
    const int16x8_t low =
        vmlal_s8(vmull_s8(vget_low_s8(a0), vget_low_s8(b0)), vget_low_s8(a1), vget_low_s8(b1));
    const int16x8_t high = vmlal_high_s8(vmull_high_s8(a0, b0), a1, b1);
    return (int_run){{(vint)vaddw_s16((int32x4_t)sums.of[0], vget_low_s16(low)),
                      (vint)vaddw_high_s16((int32x4_t)sums.of[1], low),
                      (vint)vaddw_s16((int32x4_t)sums.of[2], vget_low_s16(high)),
                      (vint)vaddw_high_s16((int32x4_t)sums.of[3], high)}};
}

/* What DOT_OFFSET is times of: nothing. */
ALWAYS_INLINE int_run run_total(int_run sums, const run_group *rows)
{
    (void)rows;
    return sums;
}

#else

/* The rows of a group, side by side. */
typedef int_run run_group;

#if VEC == 16
#define WIDE(op, a, b) ((vwide)_mm512_##op((__m512i)(a), (__m512i)(b)))
#else
#define WIDE(op, a, b) ((vwide)_mm256_##op((__m256i)(a), (__m256i)(b)))
#endif

/* Four rows side by side. */
ALWAYS_INLINE int_run run_interleave(vwide a, vwide b, vwide c, vwide d)
{
    const vwide ab_low = WIDE(unpacklo_epi8, a, b);
    const vwide ab_high = WIDE(unpackhi_epi8, a, b);
    const vwide cd_low = WIDE(unpacklo_epi8, c, d);
    const vwide cd_high = WIDE(unpackhi_epi8, c, d);
    return (int_run){{(vint)WIDE(unpacklo_epi16, ab_low, cd_low),
                      (vint)WIDE(unpackhi_epi16, ab_low, cd_low),
                      (vint)WIDE(unpacklo_epi16, ab_high, cd_high),
                      (vint)WIDE(unpackhi_epi16, ab_high, cd_high)}};
}

/* From int32 within int8 to channels in their order. */
ALWAYS_INLINE vwide run_pack(const int_run *run)
{
    const vwide low = WIDE(packs_epi32, run->of[0], run->of[1]);
    const vwide high = WIDE(packs_epi32, run->of[2], run->of[3]);
    return WIDE(packs_epi16, low, high);
}

ALWAYS_INLINE vwide run_within(vwide v, int8_t low, int8_t high)
{
    return WIDE(min_epi8, WIDE(max_epi8, v, (vwide){0} + low), (vwide){0} + high);
}

/* The rows of a group at `rows` from channel c on, n channels of them. */
ALWAYS_INLINE int_run run_rows(const int8_t *const *rows, int64_t c, int64_t n, int8_t flip)
{
    const vwide with = (vwide){0} + flip;
    return run_interleave(run_load(rows[0] + c, n) ^ with, run_load(rows[1] + c, n) ^ with,
                          run_load(rows[2] + c, n) ^ with, run_load(rows[3] + c, n) ^ with);
}

/* The sums and the products of two groups. */
ALWAYS_INLINE int_run run_dot(int_run sums, const run_group *a, const run_group *b)
{
    UNROLL
    for (int j = 0; j < RUN_VECTORS; j++) {
        sums.of[j] = vdot(sums.of[j], a->of[j], b->of[j]);
    }
    return sums;
}

/* The sums and those of the rows: what DOT_OFFSET is times of. */
ALWAYS_INLINE int_run run_total(int_run sums, const run_group *rows)
{
    const vint ones = (vint){0} + 0x01010101;
    UNROLL
    for (int j = 0; j < RUN_VECTORS; j++) {
        sums.of[j] = vdot(sums.of[j], ones, rows->of[j]);
    }
    return sums;
}

#endif

/* What runs have counted. */
typedef struct run_count {
    vint largest;
    int64_t n_clipped;
} run_count;

/* As K(int_store) without an addend. */
ALWAYS_INLINE void run_finish(const int_target *target, const int_run *sums, int64_t at, int64_t n,
                              run_count *count)
{
    const int32_t shift = target->shift > 0 ? target->shift : 0;
    const int32_t half = (int32_t)int_half(shift);
    const vint unclipped = (vint){0} + int_most_unclipped(shift);
    vint largest = {0};
    int_run q;
    UNROLL
    for (int j = 0; j < RUN_VECTORS; j++) {
        const vint size = vint_abs(sums->of[j]);
        const vint whole = (vint)vuint_down((vuint)size + (uint32_t)half, shift);
        largest = vint_max(largest, size);
        q.of[j] = vint_signed(whole, sums->of[j]);
    }
    count->largest = vint_max(count->largest, largest);
    if (vint_count(largest > unclipped) > 0) { /* seldom */
        for (int j = 0; j < RUN_VECTORS; j++) {
            count->n_clipped += vint_count(vint_abs(sums->of[j]) > unclipped);
        }
    }
    if (target->out == NULL) {
        return;
    }
    vwide bytes = run_pack(&q); /* what is beyond saturates */
    bytes = run_within(bytes, (int8_t)target->low, (int8_t)target->high);
    if (target->mask != NULL) {
        const int32_t high = target->mask_high > 128 ? 127 : target->mask_high - 1;
        const vwide mask = run_load(target->mask + at, n);
        bytes &= (vwide)(mask > (int8_t)target->mask_low) & (vwide)(mask <= (int8_t)high);
    }
    run_store(target->out + at, bytes, n);
}

ALWAYS_INLINE void count_close(const run_count *count, int_target *to)
{
    to->largest = vint_max(to->largest, count->largest);
    to->count.n_clipped += count->n_clipped;
}

/* int32 in the order of channels. */
ALWAYS_INLINE void run_ints(const int_run *run, int32_t *out)
{
    for (int j = 0; j < RUN_VECTORS; j++) {
        for (int i = 0; i < VEC; i++) {
            out[i / 4 * 16 + j * 4 + i % 4] = run->of[j][i];
        }
    }
}

#else

typedef int_run run_group;

ALWAYS_INLINE void run_ints(const int_run *run, int32_t *out)
{
    vint_store(out, run->of[0]);
}

#endif

/* Whether these are for it. */
static inline bool int_is_depthwise(const dunlin_conv_shape *shape)
{
    return dunlin__shape_is_depthwise(shape) &&
           (int64_t)shape->kernel_h * shape->kernel_w <= INT_DEPTHWISE_TAPS;
}

/* By the way of K(int_store), a run of channels of one pixel. */
void K(int_store_run)(int_target *target, const int_run *sums, int64_t n, int64_t at);

uint64_t K(int_depthwise_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                size_t n_threads);
void K(int_depthwise)(const dunlin_int_conv_call *call, const conv_view *view, bool is_input_grad,
                      int_tally *tally);
void K(int_depthwise_grad)(const dunlin_int_conv_call *call);

#endif
