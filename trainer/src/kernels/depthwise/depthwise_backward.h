/*
 * depthwise_backward.h - a worker of the depthwise backward pass, and what it does with a row.
 *
 * A phase is every stride-th pixel of a row of the input, and sees every stride-th tap.
 */
#ifndef DUNLIN_KERNELS_DEPTHWISE_BACKWARD_H
#define DUNLIN_KERNELS_DEPTHWISE_BACKWARD_H

#include "depthwise.h"
#include "kernels/gemm/gemm.h"

#if VEC == 16 || USES_ARM
#define BACKWARD_PIXELS 8 /* two accumulators' worth of registers each */
#else
#define BACKWARD_PIXELS 4
#endif

typedef struct backward_sizes {
    row_ring ring;      /* of the gradient */
    int64_t row_pixels; /* of x and dx with what hangs over */
    int64_t n_taps;
    int64_t channel_floats, worker_floats;
} backward_sizes;

typedef struct backward_job {
    const dunlin_fused_call *call;
    bool is_direct, is_tiled, is_streamed;
    strip_units units;
    backward_sizes sizes;
    float *workspace;
    double *stat_partials; /* [strip][stat][2][channels] */
    float *dw_partials;    /* [strip][tap][channels] */
    shares shared;
} backward_job;

/*
 * A row whose sink is batch norm's with an activation passes through registers alone: x is viewed
 * as it is loaded, dx masked, summed and stored as it is made. All are at the row's first pixel and
 * the part's first channel.
 */
typedef struct backward_direct {
    dunlin_view x;
    const float *mask;
    int64_t mask_pitch;
    const float *mask_scale, *mask_shift, *about;
    dunlin_view_fn mask_fn;
    bool is_one; /* the mask is the view that x is read through */
    float low, high;
    float *out;
    int64_t out_pitch;
} backward_direct;

typedef struct backward_worker {
    const backward_job *job;
    row_ring ring;
    float *w, *dw; /* [tap][width] of the part */
    float *x, *dx; /* the row */
    float *ones;   /* width */
    float *sums;   /* [stat][2][n_channels] */
    float *lines;  /* a chunk's gradient */
    backward_direct direct;
    const float **taps;     /* rows of the gradient that a phase's taps meet */
    prefetch_list prefetch; /* rows that come soon */
    int64_t n_channels;
    int64_t stat_count, dw_count; /* pixels in the chains */
} backward_worker;

/* One phase of a row: the pixels phase, phase + stride, ... */
typedef struct backward_phase {
    backward_worker *worker;
    conv_view view;
    int32_t pixel; /* the first */
} backward_phase;

/* Pixels that the last tile of a phase may hang over by belong to its row. */
static inline int64_t tile_pixels(int64_t n)
{
    return n > BACKWARD_PIXELS / 2 && n > 2 ? BACKWARD_PIXELS : n;
}

/* One phase of a row: dx, and its part of dw. */
void K(backward_row)(const backward_phase *phase);

#endif
