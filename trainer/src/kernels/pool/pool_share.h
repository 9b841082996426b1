/*
 * pool_share.h - what the windows over an input pixel send back to it, summed in their order.
 */
#ifndef DUNLIN_KERNELS_POOL_SHARE_H
#define DUNLIN_KERNELS_POOL_SHARE_H

#include "kernels/gemm/gemm.h"
#include "place_pack.h"
#include "window.h"

/* What one window sends to a pixel: its addresses at the first channel. */
typedef struct pool_share {
    const float *g, *raw;
    const uint8_t *index; /* max: of the pixel; in bytes, of its first channel */
    uint8_t tap;          /* in all fields of a byte, if there are several */
    float factor;         /* average */
} pool_share;

typedef struct pool_form {
    bool is_max, is_plain;
    bool is_packed; /* max: winners of 2 bits */
    bool goes_on;   /* adds to what is in dx */
} pool_form;

/* A line's gradients and winners at its sample and first channel; a copy, so that the compiler
 * knows that no store to dx changes it. */
typedef struct pool_source {
    dunlin_grad dy;
    const uint8_t *index; /* in bytes, at the first channel */
    int64_t pixel_bytes;  /* of an output pixel's winners */
    int64_t channel;
    const place_reader *places;
} pool_source;

static pool_source source_of(const dunlin_pool_call *call, const place_reader *places,
                             pool_form form, int64_t sample, int64_t channel)
{
    const dunlin_pool_shape *shape = call->shape;
    const int64_t pixel = sample * shape->out_h * shape->out_w;
    pool_source from = {.dy = call->dy,
                        .pixel_bytes = places->form.pixel_bytes,
                        .channel = channel,
                        .places = places};
    from.dy.g += pixel * from.dy.pitch + channel;
    if (from.dy.raw != NULL) {
        from.dy.raw += pixel * from.dy.raw_pitch + channel;
        from.dy.slope += channel;
        from.dy.offset += channel;
    }
    if (from.dy.factor != NULL) {
        from.dy.factor += channel;
    }
    if (form.is_max) {
        from.index = call->index + pixel * from.pixel_bytes + (form.is_packed ? 0 : channel);
    }
    return from;
}

ALWAYS_INLINE pool_share share_of(const pool_source *from, pool_form form, int64_t pixel)
{
    pool_share share = {.g = from->dy.g + pixel * from->dy.pitch};
    if (!form.is_plain && from->dy.raw != NULL) {
        share.raw = from->dy.raw + pixel * from->dy.raw_pitch;
    }
    if (form.is_max) {
        share.index = from->index + pixel * from->pixel_bytes;
    }
    return share;
}

/* The gradient of the pooling's output. */
ALWAYS_INLINE vfloat output_grad(const dunlin_grad *dy, pool_form form, const pool_share *share,
                                 int64_t c, int32_t n)
{
    const vfloat g = vload_n(share->g + c, n);
    if (form.is_plain) {
        return g;
    }
    const vfloat v = dy->factor == NULL ? g : g * vload_n(dy->factor + c, n);
    if (dy->raw == NULL) {
        return v;
    }
    const vfloat raw = vload_n(share->raw + c, n);
    const vfloat rest = vfma(raw, vload_n(dy->slope + c, n), vload_n(dy->offset + c, n));
    return dy->factor == NULL ? g + rest : vfma(g, vload_n(dy->factor + c, n), rest);
}

/* The shares of n channels from c on, added in their order to zero or to what is in dx. A whole
 * vector is stored: what is above n is garbage. */
ALWAYS_INLINE void sum_vector(const pool_source *from, pool_form form, const pool_share *shares,
                              int n_shares, int64_t c, int32_t n, float *dx)
{
    vfloat sum = form.goes_on ? vload(dx + c) : vzero();
    place_at at = {.bytes = 1};
    if (form.is_packed) {
        at = place_of(from->places, from->channel + c);
    }
    for (int i = 0; i < n_shares; i++) {
        const vfloat v = output_grad(&from->dy, form, &shares[i], c, n);
        if (form.is_packed) {
            const vbytes winners = place_load(&at, shares[i].index);
            sum = vadd_where(sum, v, place_compare(&at, winners, shares[i].tap), 0);
        } else if (form.is_max) {
            sum = vadd_where(sum, v, vbytes_load(shares[i].index + c, n), shares[i].tap);
        } else {
            sum += v * vset1(shares[i].factor);
        }
    }
    vstore(dx + c, sum);
}

ALWAYS_INLINE void sum_shares(const pool_source *from, pool_form form, const pool_share *shares,
                              int n_shares, int64_t n_channels, float *dx)
{
    int64_t c = 0;
    for (; c + VEC <= n_channels; c += VEC) {
        sum_vector(from, form, shares, n_shares, c, VEC, dx);
    }
    if (c < n_channels) {
        sum_vector(from, form, shares, n_shares, c, (int32_t)(n_channels - c), dx);
    }
}

#define MAX_SHARES 16 /* at once */

/* The usual numbers of windows over a pixel without a loop. */
ALWAYS_INLINE void sum_few_shares(const pool_source *from, pool_form form, const pool_share *shares,
                                  int n_shares, int64_t n_channels, float *dx)
{
    if (n_shares == 1) {
        sum_shares(from, form, shares, 1, n_channels, dx);
    } else if (n_shares == 2) {
        sum_shares(from, form, shares, 2, n_channels, dx);
    } else if (n_shares == 4) {
        sum_shares(from, form, shares, 4, n_channels, dx);
    } else {
        sum_shares(from, form, shares, n_shares, n_channels, dx);
    }
}

#endif
