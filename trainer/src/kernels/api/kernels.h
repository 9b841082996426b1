/*
 * kernels.h - everything that computes: one table of functions per instruction set, chosen at
 * start.
 *
 * Kernels know no graph and no planner, allocate nothing, and take workspace from the caller.
 * Images are NHWC. `threads` may be NULL: serial. Work is split by fixed tiles, never by the number
 * of threads.
 *
 * Bits: every output element (with Winograd's algorithm every point of a tile) is a sum of chains
 * of multiply-adds (PART_DEPTH, gemm.h), both in a fixed order, whatever the block, slice or
 * thread; of few channels, depthwise or in attention one chain. Sums over samples have a fixed
 * order: with 64 rows (pixels, tokens) a sample or more, the sample's partial is made from zero and
 * added in sample order; with fewer the chain goes on in the accumulator (weight gradients: see
 * conv_grad.c). So slices change no bit.
 */
#ifndef DUNLIN_KERNELS_KERNELS_H
#define DUNLIN_KERNELS_KERNELS_H

#include "functions.h"
#include "image_calls.h"
#include "kernels/parallel/threads.h"
#include "loss_calls.h"
#include "row_sums.h"
#include "scaled.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUNLIN_KERNEL_ROWS_PER_PARTIAL 64

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
    dunlin_threads *threads;
} dunlin_norm_call;

/*
 * Group norm: mean and variance of each sample's groups of channels (`channels` divides by
 * `groups`) over its rows; y = (x - mean) * inv_std * gamma + beta, inv_std = 1 / sqrt(variance +
 * epsilon). Tensors are compact. dx and y are maps; dgamma and dbeta are added to sample by sample.
 */
typedef struct dunlin_group_norm_call {
    int64_t rows_per_sample, n_samples;
    int32_t channels, groups;
    float epsilon;
    const float *x;
    const float *gamma, *beta; /* of each channel; backward: beta unused */
    float *statistics; /* n_samples x groups x (mean, inv_std): forward writes, backward reads */
    float *y;          /* forward; may be x */
    const float *dy;
    float *dx;             /* backward, may be dy; NULL: not wanted */
    float *dgamma, *dbeta; /* backward, both or neither NULL */
    bool is_reset;         /* dgamma and dbeta start from zero */
    void *workspace;       /* group_norm_workspace_bytes() */
    dunlin_threads *threads;
} dunlin_group_norm_call;

/*
 * Layer norm: each row of `width` by itself. Fields as above; statistics: rows x (mean, inv_std).
 */
typedef struct dunlin_layer_norm_call {
    int64_t rows_per_sample, n_samples;
    int32_t width;
    float epsilon;
    bool is_about_zero; /* RMSNorm: about 0, not the mean; beta is not read */
    const float *x;
    const float *gamma, *beta; /* `width` each */
    float *statistics;
    float *y; /* forward; may be x */
    const float *dy;
    float *dx; /* may be dy */
    float *dgamma, *dbeta;
    bool is_reset;
    void *workspace; /* backward: layer_norm_workspace_bytes() */
    dunlin_threads *threads;
} dunlin_layer_norm_call;

/* The gradient that an update takes in: clip(gradient, -limit, limit) * factor. */
typedef struct dunlin_update_gradient {
    const float *values;
    float limit;  /* INFINITY: none */
    float factor; /* 1: none */
} dunlin_update_gradient;

/* What is known of a row of a table between updates. */
enum {
    DUNLIN_ROW_UNKNOWN = 0, /* its state is looked at when it matters */
    DUNLIN_ROW_SKIPPABLE,   /* all bits of its state are zero */
    DUNLIN_ROW_MOVES
};

/* An update of a table whose gradient is dunlin_row_sums: gradient.values are theirs. */
typedef struct dunlin_update_rows {
    int64_t width;
    const int32_t *slots; /* of each row */
    uint8_t *states;      /* DUNLIN_ROW_ of each row; NULL: the optimiser keeps nothing */
    bool may_skip; /* without a gradient and with a state of zero a row would not change: it is left
                      alone */
} dunlin_update_rows;

typedef struct dunlin_sgd_call {
    int64_t n;
    float *weights;
    float *momentum; /* NULL: plain SGD */
    dunlin_update_gradient gradient;
    const dunlin_update_rows *rows; /* NULL: the gradient has all elements */
    float lr, momentum_factor, weight_decay;
    bool is_nesterov;
    dunlin_threads *threads;
} dunlin_sgd_call;

/* Step t = 1, 2, ... of Adam: correction = 1 - beta^t. */
typedef struct dunlin_adam_call {
    int64_t n;
    float *weights;
    float *mean;   /* of the gradient */
    float *square; /* of its squares */
    dunlin_update_gradient gradient;
    const dunlin_update_rows *rows; /* NULL: the gradient has all elements */
    double lr, beta1, beta2, eps, weight_decay;
    double correction1, correction2;
    bool is_decoupled; /* AdamW: the decay goes past the means */
    dunlin_threads *threads;
} dunlin_adam_call;

/* Floats whose squares make one sum of square_sums(). */
#define DUNLIN_SQUARE_BLOCK 16384

/* out = f(x) of n elements; with dy: out = dy * f'(x), where x is the output if
 * dunlin__unary_is_from_output(). out may be x or dy. */
typedef struct dunlin_unary_call {
    dunlin_unary_fn fn;
    float a, b;
    int64_t n;
    const float *x;
    const float *dy;
    float *out;
    dunlin_threads *threads;
} dunlin_unary_call;

/* PReLU: element i of a sample of n_rows * n_slopes * inner has slope i / inner % n_slopes. Forward
 * writes y; with dy dx, the slopes' gradient or both. y may be x, dx may be dy. */
typedef struct dunlin_prelu_call {
    int64_t n_rows, n_slopes, inner, n_samples;
    const float *x, *slopes;
    float *y;
    const float *dy;
    float *dx;      /* NULL: not wanted */
    float *dslopes; /* NULL: not wanted; added to sample by sample */
    bool is_reset;  /* dslopes starts from zero */
    void *workspace;
    dunlin_threads *threads;
} dunlin_prelu_call;

#define DUNLIN_RESPONSE_NORM_MAX_SIZE 255

/*
 * Across the channels of each pixel: x / (bias + alpha * sum of squares)^beta, the sum over `size`
 * channels, (size - 1) / 2 of them before the channel. With dy: the gradient. `out` is no input.
 */
typedef struct dunlin_response_norm_call {
    int64_t n_pixels;
    int32_t channels;
    int32_t size; /* 1 to DUNLIN_RESPONSE_NORM_MAX_SIZE */
    float alpha, beta, bias;
    const float *x;
    const float *dy; /* NULL: forward */
    float *out;
    dunlin_threads *threads;
} dunlin_response_norm_call;

#define DUNLIN_WALK_MAX_DIMS 8

typedef enum dunlin_walk_fn {
    DUNLIN_WALK_COPY = 0, /* in[0] */
    DUNLIN_WALK_ADD,      /* in[0] + in[1], and so on */
    DUNLIN_WALK_SUB,
    DUNLIN_WALK_MUL,
    DUNLIN_WALK_DIV,
    DUNLIN_WALK_DIV_GRAD, /* -in[0] * in[1] / in[2]^2 */
    DUNLIN_WALK_ABS,      /* |in[0]| */
    DUNLIN_WALK_SIGN,     /* in[0] with the sign of in[1] as a factor; 0 where that is 0 */
    DUNLIN_WALK_ROOT,     /* sqrt(in[0]) */
    DUNLIN_WALK_UNIT,     /* in[0] * in[1] / in[2]; 0 where in[2] is 0 */
    DUNLIN_WALK_EXP_SUB,  /* exp(in[0] - in[1]) */
    DUNLIN_WALK_LOG_ADD,  /* in[0] + log(in[1]) */
    DUNLIN_WALK_EXP_GRAD, /* in[0] * exp(in[1] - in[2]) */
    DUNLIN_WALK_EQUAL,    /* 1 where in[0] is in[1], else 0 */
    DUNLIN_WALK_PICK,     /* in[0] where in[1] is in[2], else 0 */
    DUNLIN_WALK_MAX,      /* the larger of in[0] and in[1]; not-a-number wins */
    DUNLIN_WALK_MIN,
    DUNLIN_WALK_MAX_GRAD /* in[0] where in[1] is above in[2], half of it where they are the same */
} dunlin_walk_fn;

/* What becomes of elements that meet in one of the output. */
typedef enum dunlin_walk_meeting {
    DUNLIN_WALK_TOTAL = 0,
    DUNLIN_WALK_LARGEST, /* of DUNLIN_WALK_COPY only, as the next; not-a-number wins */
    DUNLIN_WALK_SMALLEST
} dunlin_walk_meeting;

typedef struct dunlin_walk_operand {
    int64_t sample_stride; /* floats; 0: the same for all samples */
    int64_t strides[DUNLIN_WALK_MAX_DIMS];
} dunlin_walk_operand;

/* Elementwise arithmetic over one sample's elements, row-major; a stride of 0 repeats. */
typedef struct dunlin_walk {
    dunlin_walk_fn fn;
    int32_t n_dims; /* at least 1 */
    int64_t dims[DUNLIN_WALK_MAX_DIMS];
    dunlin_walk_operand in[3];
    dunlin_walk_operand out;
    int64_t n_out; /* elements of the output, per sample or in all */
    float factor;
    bool is_sum; /* elements of the walk may meet in one of the output */
    dunlin_walk_meeting meeting;
} dunlin_walk;

typedef struct dunlin_walk_call {
    const dunlin_walk *walk;
    int64_t n_samples;
    const float *in[3]; /* those that `fn` reads */
    float *out;         /* may be an input that lies the same way, if nothing is summed */
    bool is_reset;      /* an output for all samples starts from zero; one per sample always does */
    dunlin_threads *threads;
} dunlin_walk_call;

/* Rows of a table by number: ids are floats, whole, in [0, n_rows). */
typedef struct dunlin_embedding_call {
    int64_t n_ids;
    int64_t width, n_rows;
    bool is_transposed; /* the table and its gradient lie as [width][n_rows]; then without sums */
    const float *ids;
    const float *table; /* forward */
    const float *dy;    /* gradient */
    float *out;         /* forward: n_ids x width; gradient: the table's, added to in token order */
    dunlin_row_sums sums; /* gradient: in place of `out`; slots NULL: not */
    bool is_reset;
    dunlin_threads *threads;
} dunlin_embedding_call;

/* out = softmax of each row of x, or its logarithm; with dy: its gradient, x being what came out.
 * out may be x or dy. */
typedef struct dunlin_softmax_call {
    int64_t n_rows, width;
    bool is_log;
    const float *x;
    const float *dy;
    float *out;
    dunlin_threads *threads;
} dunlin_softmax_call;

/* n_products a sample: out (m x n) = A (m x k, or k x m turned) B (k x n, or n x k turned). */
typedef struct dunlin_matmul_shape {
    int64_t n_products;
    int64_t m, n, k;
    bool is_a_transposed, is_b_transposed;
} dunlin_matmul_shape;

typedef struct dunlin_matmul_call {
    const dunlin_matmul_shape *shape;
    int64_t n_samples;
    const float *a, *b;
    float *out;
    void *workspace;
    dunlin_threads *threads;
} dunlin_matmul_call;

/*
 * Head h of a token's query is `width` floats at h * width; q, k, v may be parts of one tensor.
 * Head h reads head h / (heads / kv_heads) of the keys and the values.
 */
typedef struct dunlin_attention_shape {
    int32_t heads, width;
    int32_t kv_heads; /* of k and v; divides `heads` */
    int32_t n_queries, n_keys;
    int32_t mask_rows;   /* 1: a mask for all queries, n_queries: one for each; without mask: 0 */
    int32_t fixed_rows;  /* the same of the mask that all samples share */
    int32_t fixed_heads; /* 1: it is one for all heads; else `heads` */
    bool is_causal;      /* query i sees keys 0 to i alone; then n_queries == n_keys */
    bool is_rotary; /* q and k are turned by their place first; n_queries == n_keys, width even */
    float scale;
    int64_t q_pitch, k_pitch, v_pitch; /* floats from one token to the next; gradients alike */
} dunlin_attention_shape;

typedef struct dunlin_attention_call {
    const dunlin_attention_shape *shape;
    int64_t n_samples;
    const float *q, *k, *v;
    const float *mask;  /* added to the scores: mask_rows x n_keys a sample; may be NULL */
    const float *fixed; /* added too: fixed_heads x fixed_rows x n_keys; may be NULL */
    const float *cosines, *sines; /* rotary: n_keys x width each */
    float *stats;        /* 2 x heads x n_queries a sample: written forward, read backward */
    float *out;          /* forward: n_queries x heads * width a sample */
    const float *dy;     /* NULL: forward */
    float *dq, *dk, *dv; /* overwritten; NULL: not wanted */
    void *workspace;
    dunlin_threads *threads;
} dunlin_attention_call;

typedef struct dunlin_kernels {
    const char *isa;

    /* Independent of batch and image size: packing panels only. */
    uint64_t (*conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                     size_t n_threads);
    void (*conv_forward)(const dunlin_conv_call *call);
    void (*conv_input_grad)(const dunlin_conv_call *call);
    void (*conv_weight_grad)(const dunlin_conv_call *call);

    /* Fused convolution; `uses` are DUNLIN_FUSED_ bits. */
    uint64_t (*fused_workspace_bytes)(const dunlin_conv_shape *shape, uint32_t uses,
                                      size_t n_threads, uint64_t *out_sample_bytes);
    void (*fused_forward)(const dunlin_fused_call *call);
    void (*fused_backward)(const dunlin_fused_call *call);
    void (*blend)(const dunlin_blend_call *call);
    uint64_t (*close_workspace_bytes)(int32_t channels, int64_t rows_per_sample,
                                      uint64_t *out_sample_bytes);
    void (*close)(const dunlin_close_call *call);
    void (*sums)(const dunlin_sums_call *call);
    uint64_t (*pool_workspace_bytes)(const dunlin_pool_shape *shape, uint64_t *out_sample_bytes);
    void (*pool_forward)(const dunlin_pool_call *call);
    void (*pool_backward)(const dunlin_pool_call *call);

    /* index: the winner's place in its window, one byte per output (kernel area <= 255); NULL: not
     * wanted. */
    void (*max_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                     uint8_t *index, dunlin_threads *threads);
    void (*max_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy,
                          const uint8_t *index, float *dx, dunlin_threads *threads);
    void (*average_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                         dunlin_threads *threads);
    void (*average_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy, float *dx,
                              dunlin_threads *threads);

    /* y may be x, dx may be dy. The mask is taken from the output: low < y < high. */
    void (*clip)(int64_t n, const float *x, float low, float high, float *y,
                 dunlin_threads *threads);
    void (*clip_grad)(int64_t n, const float *dy, const float *y, float low, float high, float *dx,
                      dunlin_threads *threads);
    void (*add)(int64_t n, const float *a, const float *b, float *out, dunlin_threads *threads);
    /* rows of `width` floats from one pitch to another (in floats): concat and its gradient */
    void (*copy_rows)(int64_t n_rows, int64_t width, const float *from, int64_t from_pitch,
                      float *to, int64_t to_pitch, dunlin_threads *threads);
    /* n floats to the nearest bfloat16, as simd/bf16.h says it, and back */
    void (*bf16_store)(int64_t n, const float *x, uint16_t *out, dunlin_threads *threads);
    void (*bf16_load)(int64_t n, const uint16_t *x, float *out, dunlin_threads *threads);
    /* floats to int8 with scales, and back; the same bits on every instruction set */
    void (*scaled_store)(const dunlin_scaled_call *call);
    void (*scaled_load)(const dunlin_scaled_call *call);
    /* per sample: a (rows x columns) matrix transposed: NHWC <-> NCHW */
    void (*transpose)(int64_t n, int64_t rows, int64_t columns, const float *x, float *y,
                      dunlin_threads *threads);
    /*
     * Keeps element i of sample s with probability 1 - ratio, scaled by 1 / (1 - ratio); decided by
     * a counter-based generator keyed on (key, s * n_elements + i), so forward, backward and
     * recomputation agree. y may be x.
     */
    void (*dropout)(int64_t first_sample, int64_t n_samples, int64_t n_elements, float ratio,
                    uint64_t key, const float *x, float *y, dunlin_threads *threads);

    void (*norm_sums)(const dunlin_norm_call *call);      /* x, shift -> sums */
    void (*norm_apply)(const dunlin_norm_call *call);     /* x, mean, inv_std, gamma, beta -> out */
    void (*norm_grad_sums)(const dunlin_norm_call *call); /* x, dy, mean, inv_std -> sums */
    void (*norm_grad_apply)(const dunlin_norm_call *call); /* + gamma, sums, n_rows_batch -> out */
    /* frozen statistics: dx = dy * gamma * inv_std */
    void (*norm_grad_frozen)(const dunlin_norm_call *call);

    /* Both directions; all workspace is by the sample. */
    uint64_t (*group_norm_workspace_bytes)(int32_t channels);
    void (*group_norm)(const dunlin_group_norm_call *call);
    void (*group_norm_grad)(const dunlin_group_norm_call *call);
    /* Without dslopes no bytes of samples are needed. */
    uint64_t (*prelu_workspace_bytes)(int64_t n_slopes, int64_t inner, uint64_t *out_sample_bytes);
    void (*prelu)(const dunlin_prelu_call *call);
    uint64_t (*layer_norm_workspace_bytes)(int32_t width, int64_t rows_per_sample);
    void (*layer_norm)(const dunlin_layer_norm_call *call);
    void (*layer_norm_grad)(const dunlin_layer_norm_call *call);
    void (*response_norm)(const dunlin_response_norm_call *call);
    void (*resize)(const dunlin_resize_call *call);

    /* cross-entropy of the softmax with a class; rows in order */
    void (*softmax_loss)(const dunlin_loss_call *call);
    /* the same of a dense layer's outputs, which are never whole */
    uint64_t (*dense_loss_workspace_bytes)(const dunlin_dense_loss_shape *shape, size_t n_threads);
    void (*dense_loss)(const dunlin_dense_loss_call *call);
    /* mean of (logit - target)^2 over a row */
    void (*squared_loss)(const dunlin_loss_call *call);
    /* mean over a row of the cross-entropy of sigmoid(logit) with a target in [0, 1] */
    void (*logistic_loss)(const dunlin_loss_call *call);

    /* False: the gradient, or a value of weights or state as they would be, is not finite; then
     * nothing is written. */
    bool (*sgd)(const dunlin_sgd_call *call);
    bool (*adam)(const dunlin_adam_call *call);
    /* The sum of squares of clip(x, -limit, limit) of each block of DUNLIN_SQUARE_BLOCK; not finite
     * if an x of the block is not. */
    void (*square_sums)(int64_t n, const float *x, float limit, double *out_sums,
                        dunlin_threads *threads);

    /*
     * Staged images (per sample C x H x W, u8 or f32) to NHWC float: y = (value * scale - mean[c])
     * * inv_std[c]. mean, inv_std never NULL.
     */
    void (*stage_u8)(int64_t n, int64_t pixels, int32_t channels, const uint8_t *x, float scale,
                     const float *mean, const float *inv_std, float *y, dunlin_threads *threads);
    void (*stage_f32)(int64_t n, int64_t pixels, int32_t channels, const float *x, float scale,
                      const float *mean, const float *inv_std, float *y, dunlin_threads *threads);
    /* Transformers. */
    void (*unary)(const dunlin_unary_call *call);
    void (*walk)(const dunlin_walk_call *call);
    void (*embedding)(const dunlin_embedding_call *call);
    void (*embedding_grad)(const dunlin_embedding_call *call);
    /* out = a (n_rows x width) + the sums of its rows; out may be a */
    void (*add_row_sums)(int64_t n_rows, int64_t width, const float *a, const dunlin_row_sums *sums,
                         float *out, dunlin_threads *threads);
    void (*softmax)(const dunlin_softmax_call *call);
    uint64_t (*matmul_workspace_bytes)(const dunlin_matmul_shape *shape, size_t n_threads);
    void (*matmul)(const dunlin_matmul_call *call);
    uint64_t (*attention_workspace_bytes)(const dunlin_attention_shape *shape, bool is_backward,
                                          size_t n_threads);
    void (*attention)(const dunlin_attention_call *call);
} dunlin_kernels;

/*
 * The table for an instruction set by name, for the best one of this machine when `isa` is NULL or
 * ""; NULL if the name is unknown or the machine does not have it. `dunlin__kernels_isa(i)` lists
 * the usable ones, best first, NULL past the last. A name of dunlin__int_kernels_isa() stands for
 * the set that it is of.
 */
const dunlin_kernels *dunlin__kernels_select(const char *isa);
const char *dunlin__kernels_isa(int index);

#endif
