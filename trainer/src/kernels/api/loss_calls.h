/*
 * loss_calls.h - losses over rows of outputs; and a dense layer over many classes with the
 * cross-entropy of its softmax, whose logits exist for some rows at a time, never for a batch.
 *
 * Bits of the latter: each logit, each element of dx and each of dw is the sum of multiply-adds
 * that the layer by itself computes, and a row's loss is that of softmax_loss(), so cutting rows,
 * samples or threads changes none. dw and db go on from row to row through the batch; with
 * DUNLIN_DENSE_LOSS_PARTS rows a sample or more a block of a sample's rows is made from zero and
 * added in order.
 */
#ifndef DUNLIN_KERNELS_LOSS_CALLS_H
#define DUNLIN_KERNELS_LOSS_CALLS_H

#include "kernels/parallel/threads.h"

#include <stdbool.h>
#include <stdint.h>

/* What a loss sums up over rows. */
enum {
    DUNLIN_SUM_LOSS = 0, /* weight * loss */
    DUNLIN_SUM_RIGHT,    /* softmax: rows whose label scores highest; logistic: right outputs */
    DUNLIN_SUM_RIGHT5,   /* softmax: rows whose label is among the five highest scores */
    DUNLIN_N_LOSS_SUMS
};

/* The label of a row that does not count. */
#define DUNLIN_NO_LABEL INT32_MIN

/* Rows with weight 0 or without a label add nothing to the sums, and their gradient is 0. */
typedef struct dunlin_loss_call {
    int32_t classes; /* or outputs of a row */
    int64_t n_rows;
    const float *logits;
    const int32_t *labels;   /* softmax: the class of each row, or NULL for shares in `targets` */
    const float *targets;    /* the others: as many as logits */
    const float *weights;    /* in the loss, or NULL for 1: one for each `rows_per_weight` rows */
    int64_t rows_per_weight; /* 0: 1 */
    /* Softmax with labels: the weight of each class; logistic: of each output's share in a target
     * (PyTorch's weight and pos_weight). NULL: 1 each. */
    const float *class_weights;
    float smoothing; /* softmax: share of the label's weight that all classes divide */
    float scale;    /* of the gradient: 1 / samples of the batch, or 1 / the sum of their weights */
    float *dlogits; /* map part; may be NULL */
    double *sums;   /* reducer part: DUNLIN_N_LOSS_SUMS; may be NULL */
    bool is_reset;
    dunlin_threads *threads;
} dunlin_loss_call;

#define DUNLIN_DENSE_LOSS_PARTS 512

typedef struct dunlin_dense_loss_shape {
    int64_t rows_per_sample;
    int32_t width;   /* numbers of a row of x */
    int32_t classes; /* at most 2^24 */
} dunlin_dense_loss_shape;

/* Rows whose logits exist at once: of the shape alone. */
static inline int64_t dunlin__dense_loss_rows(int32_t classes)
{
    enum { FLOATS = 8 << 20, MOST = 256, LEAST = 32 };
    const int64_t fit = FLOATS / (int64_t)classes / LEAST * LEAST;
    return fit > MOST ? MOST : fit < LEAST ? LEAST : fit;
}

typedef struct dunlin_dense_loss_call {
    const dunlin_dense_loss_shape *shape;
    const float *x;    /* rows x width */
    const float *w;    /* classes x width */
    const float *bias; /* classes; NULL: none */
    /* Rows, labels, weights, smoothing, scale, sums, is_reset (of dw and db too) and threads;
     * logits, targets and dlogits are not looked at. */
    dunlin_loss_call loss;
    float *dx;          /* rows x width; NULL: not wanted */
    float *dw;          /* classes x width, added to; NULL: not wanted */
    float *db;          /* classes, added to; NULL: not wanted */
    int64_t *confusion; /* classes x classes, added to: rows of a label by the first of their
                           largest logits; NULL: not wanted */
    float *logits;      /* rows x classes: then these alone are made; NULL: not wanted */
    void *workspace;    /* dense_loss_workspace_bytes() */
} dunlin_dense_loss_call;

#endif
