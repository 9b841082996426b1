/*
 * dense_loss.h - the logits of some rows, each class's together, and what becomes of them.
 */
#ifndef DUNLIN_KERNELS_UPDATE_DENSE_LOSS_H
#define DUNLIN_KERNELS_UPDATE_DENSE_LOSS_H

#include "kernels/gemm/gemm.h"

/* What a row adds to the sums of the loss. */
typedef struct class_row {
    double loss, right, right5;
} class_row;

typedef struct class_block {
    const dunlin_dense_loss_call *call;
    int64_t first; /* row of the call */
    int64_t n_rows;
    float *logits; /* classes x pitch: a column a row; then their gradient */
    int64_t pitch;
    class_row *rows;
    bool has_grad;
} class_block;

/* Columns that one task takes. */
#define CLASS_COLUMNS 64

/* Losses of the rows of a task, and their logits into gradients if those are wanted; a
 * pthreadpool_task over a class_block. */
void K(class_rows)(void *ctx, size_t task);

#endif
