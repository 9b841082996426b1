/*
 * int_depthwise.h - depthwise convolutions in integers: a run of channels of some pixels at once.
 *
 * With x86's dot product the four taps (weight gradient: pixels) of a group are four rows of bytes
 * that are laid side by side within lanes of 16 bytes, and packing the rounded sums undoes just
 * that order. Without it a run is one vector of int32.
 */
#ifndef DUNLIN_KERNELS_INT_DEPTHWISE_H
#define DUNLIN_KERNELS_INT_DEPTHWISE_H

#include "int_conv.h"

#if DOT_OFFSET != 0
#define RUN_VECTORS 4
#else
#define RUN_VECTORS 1
#endif
#define RUN_CHANNELS (RUN_VECTORS * VEC)
#define RUN_GROUP 4 /* rows of bytes that are taken at once */

/* Taps at most: a pixel's pointers to them stand on the stack. */
#define INT_DEPTHWISE_TAPS 225

typedef struct int_run {
    vint of[RUN_VECTORS];
} int_run;

#if DOT_OFFSET != 0

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

/* Four rows at `rows` from channel c on, n of them. */
ALWAYS_INLINE int_run run_rows(const int8_t *const *rows, int64_t c, int64_t n, int8_t flip)
{
    const vwide with = (vwide){0} + flip;
    return run_interleave(run_load(rows[0] + c, n) ^ with, run_load(rows[1] + c, n) ^ with,
                          run_load(rows[2] + c, n) ^ with, run_load(rows[3] + c, n) ^ with);
}

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
        const vint whole = (vint)(((vuint)size + (uint32_t)half) >> (uint32_t)shift);
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
    bytes = WIDE(max_epi8, bytes, (vwide){0} + (int8_t)target->low);
    bytes = WIDE(min_epi8, bytes, (vwide){0} + (int8_t)target->high);
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
