/*
 * image_calls.h - what the kernels of images are called with: convolutions, dense layers and
 * pooling, the views that they read and the epilogues that they end with.
 *
 * Invariants of all kernels, bits among them: kernels.h.
 */
#ifndef DUNLIN_KERNELS_IMAGE_CALLS_H
#define DUNLIN_KERNELS_IMAGE_CALLS_H

#include "functions.h"
#include "kernels/parallel/threads.h"

#include <stdbool.h>
#include <stdint.h>

/* A convolution of one sample; a dense layer is kernel 1x1 with in_h = rows, in_w = 1, in_c =
 * features. */
typedef struct dunlin_conv_shape {
    int32_t in_h, in_w, in_c;
    int32_t out_h, out_w, out_c;
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t pad_top, pad_left;
    int32_t dilation_h, dilation_w;
    int32_t groups; /* weights [kh][kw][in_c / groups][out_c]; out channel o belongs to group o /
                       (out_c / groups) */
} dunlin_conv_shape;

typedef enum dunlin_conv_pass {
    DUNLIN_CONV_FORWARD = 0,
    DUNLIN_CONV_INPUT_GRAD,
    DUNLIN_CONV_WEIGHT_GRAD
} dunlin_conv_pass;

typedef struct dunlin_conv_call {
    const dunlin_conv_shape *shape;
    int64_t n_samples;
    const float *x;    /* forward, weight gradient */
    const float *w;    /* forward, input gradient */
    const float *bias; /* forward; may be NULL */
    const float *dy;   /* both gradients */
    float *out; /* forward: y; input gradient: dx (overwritten); weight gradient: dw (added to) */
    float *out_bias; /* weight gradient: db (added to); may be NULL */
    bool is_reset;   /* weight gradient: out and out_bias start from zero */
    void *workspace; /* conv_workspace_bytes(), 64-byte aligned */
    dunlin_threads *threads;
} dunlin_conv_call;

/*
 * Fused calls. What batch norm and activations would write is never in memory: a view says how the
 * raw output of a convolution becomes the activation while it is loaded, a gradient how what lies
 * in memory becomes the gradient of the raw output, a sink what is done to a gradient when it is
 * stored.
 *
 * A tensor marked `half` holds bfloat16, whatever the pointer's type, and is widened as it is
 * loaded; pitches stay in elements. Only calls of convolutions and dense layers take these.
 */

/* An activation: fn(x * scale + shift) of each channel, or clip(x * scale + shift + plus) of a
 * residual sum. Padding is zero after it. */
typedef struct dunlin_view {
    const float *x;
    int64_t pitch;      /* floats from one pixel to the next; more than the channels in a concat */
    const float *scale; /* NULL: x as it lies, nothing of what follows applies */
    const float *shift;
    dunlin_view_fn fn; /* a clip if there is `plus` */
    float low, high;   /* of the clip; -INFINITY, INFINITY: none */
    const float *plus; /* only for the weight gradient of a convolution in one group; NULL: none */
    int64_t plus_pitch;
    const float *plus_scale, *plus_shift; /* NULL: plus as it lies */
    bool is_rounded; /* with plus: the sum is rounded to bfloat16 after its clip */
    bool is_half, is_plus_half;
} dunlin_view;

/* A gradient of a raw output: g * factor + raw * slope + offset of each channel. */
typedef struct dunlin_grad {
    const float *g;
    int64_t pitch;
    const float *factor; /* NULL: 1 */
    const float *raw;    /* NULL: the last two terms are zero */
    int64_t raw_pitch;
    const float *slope, *offset;
    bool is_half, is_raw_half;
} dunlin_grad;

/*
 * Sums over rows for batch norm: sums[c] += t, sums[channels + c] += t * (raw - about) backward;
 * forward t is raw itself: += (t - about), += (t - about)^2. Taken over fixed units of rows that
 * never span two samples, in float or double within a unit, in double and in order between them: so
 * neither slices nor threads change a bit.
 */
typedef struct dunlin_stat {
    const float *raw; /* forward: NULL, it is what the call writes */
    int64_t raw_pitch;
    const float *about;
    double *sums;     /* 2 x channels */
    bool is_raw_half; /* backward */
} dunlin_stat;

#define DUNLIN_EPILOGUE_MAX_STATS 2

/*
 * Where a gradient goes. dx is what the call computes.
 *   is_direct:  t = mask(dx + addend),  out = t                (a value that lies as it is read)
 *   otherwise:  t = mask(dx),           out = t * factor + addend     (through a batch norm's view)
 * mask(v) is v where low < mask * mask_scale + mask_shift + plus < high, else 0; if `mask_fn` is no
 * clip, it is v times that function's derivative at mask * mask_scale + mask_shift. Stats are sums
 * of t. `plus` is that of a view; depthwise convolutions and pooling do not take it. `out` may be
 * the same memory as `addend` if the pitches are equal.
 */
typedef struct dunlin_epilogue {
    float *out; /* NULL: this gradient is not wanted */
    int64_t pitch;
    bool is_direct;
    const float *addend; /* NULL: none */
    int64_t addend_pitch;
    const float *mask; /* NULL: no mask */
    int64_t mask_pitch;
    const float *mask_scale, *mask_shift; /* NULL: mask as it lies */
    const float *plus;                    /* NULL: none */
    int64_t plus_pitch;
    const float *plus_scale, *plus_shift; /* NULL: plus as it lies */
    bool is_plus_rounded;                 /* as is_rounded of a view */
    bool is_addend_half, is_mask_half, is_plus_half;
    bool is_out_half; /* t is what is stored, rounded to bfloat16 before sums are taken of it */
    dunlin_view_fn mask_fn; /* no clip only with mask_scale and without plus */
    float low, high;
    const float *factor; /* NULL: 1; never with is_direct */
    uint32_t n_stats;
    dunlin_stat stats[DUNLIN_EPILOGUE_MAX_STATS];
} dunlin_epilogue;

/* What a fused convolution does: for its workspace. */
enum {
    DUNLIN_FUSED_FORWARD = 1,
    DUNLIN_FUSED_INPUT_GRAD = 2,
    DUNLIN_FUSED_WEIGHT_GRAD = 4,
    DUNLIN_FUSED_VIEW = 8,  /* x has a scale */
    DUNLIN_FUSED_GRAD = 16, /* dy has a factor or raw */
    DUNLIN_FUSED_STATS = 32 /* sums of the output, or of the sink */
};

/*
 * A convolution or dense layer, forward or backward. Backward takes both gradients in one call
 * where that is faster; dx (a map) and dw, db, the sink's sums (reducers) have the same bits
 * whether they are asked for together or one by one.
 */
typedef struct dunlin_fused_call {
    const dunlin_conv_shape *shape;
    int64_t n_samples;
    dunlin_view x;  /* forward, weight gradient */
    const float *w; /* forward, input gradient */
    /* forward */
    const float *bias; /* may be NULL */
    float *y;
    int64_t y_pitch;
    float low, high;  /* y is clipped to it as it is stored; -INFINITY, INFINITY: not */
    dunlin_stat stat; /* of y; sums NULL: none (never with a clip) */
    /* backward */
    dunlin_grad dy;
    float *dw;          /* NULL: not wanted */
    float *db;          /* NULL: not wanted */
    dunlin_epilogue dx; /* out NULL: not wanted */
    bool is_reset;      /* dw, db and all sums start from zero */
    void *workspace; /* fused_workspace_bytes() + n_samples x its sample bytes, 64-byte aligned */
    dunlin_threads *threads;
} dunlin_fused_call;

/* Elementwise over rows: out = clip(a + b), either a view; b.x NULL: a alone. */
typedef struct dunlin_blend_call {
    int64_t rows_per_sample, n_samples;
    int32_t channels;
    dunlin_view a, b;
    float low, high;
    float *out;
    int64_t out_pitch;
    dunlin_threads *threads;
} dunlin_blend_call;

/* A compact tensor of floats that is rounded to bfloat16 where it lies and stored as that, before
 * sums are taken of it. */
typedef struct dunlin_rounding {
    float *floats; /* NULL: nothing is rounded */
    uint16_t *halves;
} dunlin_rounding;

/* A gradient that lies in memory into a sink: closes what no kernel closed while writing it. */
typedef struct dunlin_close_call {
    int64_t rows_per_sample, n_samples;
    int32_t channels;
    dunlin_grad from;
    dunlin_epilogue to;       /* to.out may be from.g with the same pitch; NULL: the sums alone */
    dunlin_rounding rounding; /* of from.g, which has no factor and no raw then */
    bool is_reset;
    void *workspace; /* close_workspace_bytes() */
    dunlin_threads *threads;
} dunlin_close_call;

typedef struct dunlin_pool_shape {
    int32_t in_h, in_w, channels;
    int32_t out_h, out_w;
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t pad_top, pad_left;
    bool counts_padding;
    int32_t pad_bottom,
        pad_right; /* average with counts_padding: the divisor counts padding, not ceil overhang */
    int32_t dilation_h, dilation_w; /* from one tap to the next; 0: 1 */
    bool is_sum;                    /* average: divide by nothing */
} dunlin_pool_shape;

/* One row or column of the output: a share of `second`, the rest of `first`. */
typedef struct dunlin_resize_tap {
    int32_t first, second; /* `second` is `first` or the next */
    float share;           /* 0 if they are the same */
} dunlin_resize_tap;

typedef struct dunlin_resize_shape {
    int32_t in_h, in_w, out_h, out_w, channels;
    bool is_linear; /* else each pixel is the one at the first tap of its row and column */
} dunlin_resize_shape;

/* Forward from x to y; backward from dy to dx. Taps never go back from one to the next. */
typedef struct dunlin_resize_call {
    const dunlin_resize_shape *shape;
    const dunlin_resize_tap *rows, *columns; /* out_h, out_w */
    int64_t n_samples;
    bool is_backward;
    const float *from;
    float *to;
    dunlin_threads *threads;
} dunlin_resize_call;

/* Pooling from a view, and its gradient into a sink. */
typedef struct dunlin_pool_call {
    const dunlin_pool_shape *shape;
    bool is_max;
    int64_t n_samples;
    dunlin_view x; /* forward: normalised before the maximum is taken */
    float *y;
    int64_t y_pitch;
    uint8_t *index; /* max: the winner's place in its window (kernel area <= 255), of an output
                       pixel dunlin__place_bytes() of dunlin__place_bits() (place_bits.h); forward:
                       NULL if not wanted */
    uint8_t *signs; /* average over the whole image: 1 for each element of x strictly between x.low
                       and x.high, of an input pixel dunlin__place_bytes() of DUNLIN_SIGN_BITS;
                       backward the others' gradients are 0; NULL: none, and no mask */
    dunlin_grad dy;
    dunlin_epilogue dx;
    bool is_reset;   /* the sink's sums start from zero */
    void *workspace; /* backward: pool_workspace_bytes() */
    dunlin_threads *threads;
} dunlin_pool_call;

/* Batch norm's sums over a tensor that no kernel summed while writing it: stat.raw is the tensor.
 */
typedef struct dunlin_sums_call {
    int64_t rows_per_sample, n_samples;
    int32_t channels;
    dunlin_stat stat;
    dunlin_rounding rounding; /* of stat.raw */
    bool is_reset;
    void *workspace; /* close_workspace_bytes() */
    dunlin_threads *threads;
} dunlin_sums_call;

#endif
