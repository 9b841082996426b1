/*
 * window.h - where a pooling window lies: the taps inside the image, and an average's divisor.
 */
#ifndef DUNLIN_KERNELS_WINDOW_H
#define DUNLIN_KERNELS_WINDOW_H

#include "kernels/api/kernels.h"
#include "kernels/parallel/tasks.h"

typedef struct pool_window {
    int64_t y, x;           /* source pixel of the first tap, maybe outside */
    int64_t first_h, end_h; /* rows of taps inside the image */
    int64_t first_w, end_w; /* columns */
} pool_window;

/* Taps of a dilated window in the first `room` pixels. */
static inline int64_t pool_taps(int64_t room, int32_t dilation)
{
    return dilation <= 1 ? room : ceil_div(max_i64(0, room), dilation);
}

static inline int64_t pool_step(int32_t dilation)
{
    return dilation <= 1 ? 1 : dilation;
}

static inline pool_window pool_window_at(const dunlin_pool_shape *shape, int64_t oy, int64_t ox)
{
    pool_window window;
    window.y = oy * shape->stride_h - shape->pad_top;
    window.x = ox * shape->stride_w - shape->pad_left;
    window.first_h = pool_taps(max_i64(0, -window.y), shape->dilation_h);
    window.end_h = min_i64(shape->kernel_h, pool_taps(shape->in_h - window.y, shape->dilation_h));
    window.first_w = pool_taps(max_i64(0, -window.x), shape->dilation_w);
    window.end_w = min_i64(shape->kernel_w, pool_taps(shape->in_w - window.x, shape->dilation_w));
    return window;
}

/* The number of elements an average divides by; a sum: 1. 0: the window lies outside. */
static inline int64_t pool_count(const dunlin_pool_shape *shape, const pool_window *window)
{
    if (shape->is_sum) {
        return 1;
    }
    int64_t h = max_i64(0, window->end_h - window->first_h);
    int64_t w = max_i64(0, window->end_w - window->first_w);
    if (shape->counts_padding) {
        h = min_i64(shape->kernel_h,
                    pool_taps(shape->in_h + shape->pad_bottom - window->y, shape->dilation_h));
        w = min_i64(shape->kernel_w,
                    pool_taps(shape->in_w + shape->pad_right - window->x, shape->dilation_w));
    }
    return h <= 0 || w <= 0 ? 0 : h * w;
}

/* 1 / pool_count(). */
static inline float pool_factor(const dunlin_pool_shape *shape, const pool_window *window)
{
    const int64_t n = pool_count(shape, window);
    return n <= 0 ? 0.0f : 1.0f / (float)n;
}

/* The windows [first, end) along an axis that cover pixel i. */
static inline void pool_windows_over(int64_t i, int64_t kernel, int64_t stride, int64_t pad,
                                     int64_t n_out, int64_t *out_first, int64_t *out_end)
{
    int64_t from = i + pad - kernel + 1;
    *out_first = from <= 0 ? 0 : ceil_div(from, stride);
    *out_end = min_i64(n_out, (i + pad) / stride + 1);
}

#endif
