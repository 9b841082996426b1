/*
 * kernels.h - everything that computes: one table of functions per instruction set, chosen at
 * start.
 *
 * Kernels know no graph and no planner, allocate nothing, and take workspace from the caller.
 * Images are NHWC. `threads` may be NULL: serial. Work is split by fixed tiles, never by the number
 * of threads.
 *
 * Bits: every output element is one chain of multiply-adds in a fixed order, whatever the tile,
 * slice or thread. Sums over samples have a fixed order: with 64 rows (pixels, tokens) a sample or
 * more, the sample's partial is made from zero and added in sample order; with fewer the chain goes
 * on in the accumulator. So cutting a batch into slices changes no bit.
 */
#ifndef DUNLIN_KERNELS_KERNELS_H
#define DUNLIN_KERNELS_KERNELS_H

#include <pthreadpool.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUNLIN_KERNEL_ROWS_PER_PARTIAL 64

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
    pthreadpool_t threads;
} dunlin_conv_call;

typedef struct dunlin_pool_shape {
    int32_t in_h, in_w, channels;
    int32_t out_h, out_w;
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t pad_top, pad_left;
    bool counts_padding;
    int32_t pad_bottom,
        pad_right; /* average with counts_padding: the divisor counts padding, not ceil overhang */
} dunlin_pool_shape;

/* Statistics of batch norm: all arrays have `channels` elements. */
typedef struct dunlin_norm_call {
    int32_t channels;
    int64_t rows_per_sample;
    int64_t n_samples;
    const float *x;
    const float *dy;
    const float *mean;
    const float *inv_std;
    const float *gamma;
    const float *beta;
    const float *shift; /* statistics are taken about it, so that the variance does not cancel */
    double *sums; /* 2 x channels: forward sum(x - shift), sum((x - shift)^2); backward sum(dy),
                     sum(dy * xhat) */
    float *out;   /* y or dx */
    double n_rows_batch; /* rows of the whole batch: the divisor */
    bool is_reset;       /* sums start from zero */
    pthreadpool_t threads;
} dunlin_norm_call;

typedef struct dunlin_loss_call {
    int32_t classes;
    int64_t n_rows;
    const float *logits;
    const int32_t *labels;
    const float *weights; /* of each row in the loss, or NULL for 1 */
    float scale;    /* of the gradient: 1 / samples of the batch, or 1 / the sum of their weights */
    float *dlogits; /* map part; may be NULL */
    double *sums;   /* reducer part: sum of losses, number right; may be NULL */
    bool is_reset;
} dunlin_loss_call;

typedef struct dunlin_sgd_call {
    int64_t n;
    float *weights;
    float *momentum; /* NULL: plain SGD */
    const float *gradient;
    float lr, momentum_factor, weight_decay;
    bool is_nesterov;
    pthreadpool_t threads;
} dunlin_sgd_call;

typedef struct dunlin_kernels {
    const char *isa;

    /* Independent of batch and image size: packing panels only. */
    size_t (*conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                   size_t n_threads);
    void (*conv_forward)(const dunlin_conv_call *call);
    void (*conv_input_grad)(const dunlin_conv_call *call);
    void (*conv_weight_grad)(const dunlin_conv_call *call);

    /* index: the winner's place in its window, one byte per output (kernel area <= 255); NULL: not
     * wanted. */
    void (*max_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                     uint8_t *index, pthreadpool_t threads);
    void (*max_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy,
                          const uint8_t *index, float *dx, pthreadpool_t threads);
    void (*average_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                         pthreadpool_t threads);
    void (*average_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy, float *dx,
                              pthreadpool_t threads);

    /* y may be x, dx may be dy. The mask is taken from the output: low < y < high. */
    void (*clip)(int64_t n, const float *x, float low, float high, float *y, pthreadpool_t threads);
    void (*clip_grad)(int64_t n, const float *dy, const float *y, float low, float high, float *dx,
                      pthreadpool_t threads);
    void (*add)(int64_t n, const float *a, const float *b, float *out, pthreadpool_t threads);
    /* rows of `width` floats from one pitch to another (in floats): concat and its gradient */
    void (*copy_rows)(int64_t n_rows, int64_t width, const float *from, int64_t from_pitch,
                      float *to, int64_t to_pitch, pthreadpool_t threads);
    /* per sample: a (rows x columns) matrix transposed: NHWC <-> NCHW */
    void (*transpose)(int64_t n, int64_t rows, int64_t columns, const float *x, float *y,
                      pthreadpool_t threads);
    /*
     * Keeps element i of sample s with probability 1 - ratio, scaled by 1 / (1 - ratio); decided by
     * a counter-based generator keyed on (key, s * n_elements + i), so forward, backward and a redo
     * agree. y may be x.
     */
    void (*dropout)(int64_t first_sample, int64_t n_samples, int64_t n_elements, float ratio,
                    uint64_t key, const float *x, float *y, pthreadpool_t threads);

    void (*norm_sums)(const dunlin_norm_call *call);      /* x, shift -> sums */
    void (*norm_apply)(const dunlin_norm_call *call);     /* x, mean, inv_std, gamma, beta -> out */
    void (*norm_grad_sums)(const dunlin_norm_call *call); /* x, dy, mean, inv_std -> sums */
    void (*norm_grad_apply)(const dunlin_norm_call *call); /* + gamma, sums, n_rows_batch -> out */
    /* frozen statistics: dx = dy * gamma * inv_std */
    void (*norm_grad_frozen)(const dunlin_norm_call *call);

    void (*softmax_loss)(const dunlin_loss_call *call);
    void (*sgd)(const dunlin_sgd_call *call);

    /*
     * Staged images (per sample C x H x W, u8 or f32) to NHWC float: y = (value * scale - mean[c])
     * * inv_std[c]. mean, inv_std never NULL.
     */
    void (*stage_u8)(int64_t n, int64_t pixels, int32_t channels, const uint8_t *x, float scale,
                     const float *mean, const float *inv_std, float *y, pthreadpool_t threads);
    void (*stage_f32)(int64_t n, int64_t pixels, int32_t channels, const float *x, float scale,
                      const float *mean, const float *inv_std, float *y, pthreadpool_t threads);
} dunlin_kernels;

/*
 * The table for an instruction set by name, for the best one of this machine when `isa` is NULL or
 * ""; NULL if the name is unknown or the machine does not have it. `dunlin__kernels_isa(i)` lists
 * the usable ones, best first, NULL past the last.
 */
const dunlin_kernels *dunlin__kernels_select(const char *isa);
const char *dunlin__kernels_isa(int index);

#endif
