/*
 * int_columns.h - depthwise convolutions by columns, with x86's dot product: the lines of a group
 * are laid side by side once for each column of the image, and every tap of the kernel's row and
 * every output line that reads the column takes it from there.
 */
#ifndef DUNLIN_KERNELS_INT_COLUMNS_H
#define DUNLIN_KERNELS_INT_COLUMNS_H

#include "int_depthwise.h"

/* Bytes of workspace; 0: the shape is not for it. */
uint64_t K(int_columns_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                              size_t n_threads);
/* False: it is not for it, and nothing has been done. */
bool K(int_columns_run)(const dunlin_int_conv_call *call, const conv_view *view, bool is_input_grad,
                        int_tally *tally);
/* The same of the weight gradient. */
uint64_t K(int_columns_grad_bytes)(const conv_view *view, size_t n_threads);
bool K(int_columns_grad)(const dunlin_int_conv_call *call, const conv_view *view);

#if DOT_OFFSET != 0

#define COLUMNS_BYTES (8 << 10)  /* of columns of a worker, about */
#define COLUMNS_MOST (192 << 10) /* more than this are not worth it */

/* Four lines from a run's first channel on; NULL: zeros. */
typedef struct int_columns {
    const int8_t *lines[RUN_GROUP];
    int64_t width;    /* pixels of a line */
    int64_t channels; /* from a pixel to the next */
    int64_t n;        /* bytes of the pixels of a run */
    int64_t at_once;  /* these pixels */
    int8_t flip;
} int_columns;

/* The columns of pixels x, x + step, ...: a run of pixels from there on each; pixels outside the
 * line are zero. */
void K(int_columns_pack)(const int_columns *columns, int64_t x, int64_t step, int64_t n,
                         int_run *to);

/* Pixels that a run takes where they lie together: few channels. `width`: of a line of output. */
static inline int64_t int_columns_together(const conv_view *view, int64_t width)
{
    const int64_t channels = view->source_pitch;
    const bool is_together =
        view->w.step == 1 && view->w.out_step == 1 && RUN_CHANNELS % channels == 0;
    const int64_t n = is_together ? RUN_CHANNELS / channels : 1;
    return width % n == 0 ? n : 1;
}

#endif

#endif
