/*
 * pool_forward.c - max and average pooling, forward. A task is one output row; vectors along the
 * channels, which pass through the view as they are loaded.
 *
 * Padding never wins a maximum and adds nothing to an average. A window with no pixel at all gives
 * zero.
 */
#include "kernels/epilogue/activation.h"
#include "kernels/gemm/gemm.h"
#include "window.h"

#include <math.h>

#define NO_WINNER 255
#define AVERAGE_VECTORS 4 /* summed at once: a longer run of each pixel */

/* A window of one sample: its first tap's address if all lay inside, and what lies between taps. */
typedef struct pool_source {
    const float *x;
    int64_t row_step, pitch;
    const pool_window *window;
    int32_t kernel_w;
    float factor; /* of an average */
} pool_source;

ALWAYS_INLINE vfloat pool_load(const dunlin_view *view, bool is_view, const float *x, vfloat scale,
                               vfloat shift, int32_t n)
{
    const vfloat v = vload_n(x, n);
    return is_view
               ? view_value(view->fn, vfma(v, scale, shift), vset1(view->low), vset1(view->high))
               : v;
}

/* Winner and its place; ties stay with the first; not-a-number wins and stays, so that it is seen.
 */
ALWAYS_INLINE void max_vector(const dunlin_view *view, bool is_view, const pool_source *from,
                              int64_t c, int32_t n, float *y, uint8_t *index)
{
    const vfloat scale = is_view ? vload_n(view->scale + c, n) : vzero();
    const vfloat shift = is_view ? vload_n(view->shift + c, n) : vzero();
    const pool_window *window = from->window;
    vfloat best = vset1(-INFINITY);
    vplace winner = vplace_set1((uint8_t)(window->first_h * from->kernel_w + window->first_w));
    for (int64_t i = window->first_h; i < window->end_h; i++) {
        for (int64_t j = window->first_w; j < window->end_w; j++) {
            const vfloat v = pool_load(
                view, is_view, from->x + i * from->row_step + j * from->pitch + c, scale, shift, n);
            vmax_take(&best, &winner, v, vplace_set1((uint8_t)(i * from->kernel_w + j)));
        }
    }
    vstore_n(y + c, best, n);
    if (index != NULL) {
        vbytes_store(index + c, vplace_bytes(winner), n);
    }
}

static void empty_pixel(int64_t channels, float *y, uint8_t *index)
{
    memset(y, 0, (size_t)channels * sizeof(float));
    if (index != NULL) {
        memset(index, NO_WINNER, (size_t)channels);
    }
}

ALWAYS_INLINE void max_pixel(const dunlin_pool_call *call, bool is_view, const pool_source *from,
                             float *y, uint8_t *index)
{
    const int64_t channels = call->shape->channels;
    int64_t c = 0;
    for (; c + VEC <= channels; c += VEC) {
        max_vector(&call->x, is_view, from, c, VEC, y, index);
    }
    if (c < channels) {
        max_vector(&call->x, is_view, from, c, (int32_t)(channels - c), y, index);
    }
}

/* Channels [c, c + (vectors - 1) * VEC + n): sums in the taps' order, times the factor. */
ALWAYS_INLINE void average_vectors(const dunlin_view *view, bool is_view, const pool_source *from,
                                   int64_t c, int vectors, int32_t n, float *y)
{
    vfloat sum[AVERAGE_VECTORS];
    vfloat scale[AVERAGE_VECTORS];
    vfloat shift[AVERAGE_VECTORS];
    UNROLL
    for (int v = 0; v < vectors; v++) {
        sum[v] = vzero();
        scale[v] = is_view ? vload_n(view->scale + c + (int64_t)v * VEC, n) : vzero();
        shift[v] = is_view ? vload_n(view->shift + c + (int64_t)v * VEC, n) : vzero();
    }
    const pool_window *window = from->window;
    for (int64_t i = window->first_h; i < window->end_h; i++) {
        const float *x = from->x + i * from->row_step + c;
        for (int64_t j = window->first_w; j < window->end_w; j++) {
            UNROLL
            for (int v = 0; v < vectors; v++) {
                sum[v] += pool_load(view, is_view, x + j * from->pitch + (int64_t)v * VEC, scale[v],
                                    shift[v], n);
            }
        }
    }
    UNROLL
    for (int v = 0; v < vectors; v++) {
        vstore_n(y + c + (int64_t)v * VEC, sum[v] * vset1(from->factor), n);
    }
}

ALWAYS_INLINE void average_pixel(const dunlin_pool_call *call, bool is_view,
                                 const pool_source *from, float *y)
{
    const int64_t channels = call->shape->channels;
    int64_t c = 0;
    for (; c + AVERAGE_VECTORS * VEC <= channels; c += AVERAGE_VECTORS * VEC) {
        average_vectors(&call->x, is_view, from, c, AVERAGE_VECTORS, VEC, y);
    }
    for (; c + VEC <= channels; c += VEC) {
        average_vectors(&call->x, is_view, from, c, 1, VEC, y);
    }
    if (c < channels) {
        average_vectors(&call->x, is_view, from, c, 1, (int32_t)(channels - c), y);
    }
}

/* Works on copies: what is stored cannot be what they say. */
ALWAYS_INLINE void pool_row(const dunlin_pool_call *given, bool is_max, bool is_view, int64_t row)
{
    const dunlin_pool_shape shape = *given->shape;
    dunlin_pool_call call = *given;
    call.shape = &shape;
    const int64_t sample = row / shape.out_h;
    const int64_t oy = row % shape.out_h;
    const float *x = call.x.x + sample * shape.in_h * shape.in_w * call.x.pitch;
    float *y = call.y + row * shape.out_w * call.y_pitch;
    uint8_t *index = call.index == NULL ? NULL : call.index + row * shape.out_w * shape.channels;
    for (int64_t ox = 0; ox < shape.out_w; ox++, y += call.y_pitch) {
        const pool_window window = pool_window_at(&shape, oy, ox);
        pool_source from = {.x = x + (window.y * shape.in_w + window.x) * call.x.pitch,
                            .row_step = shape.in_w * call.x.pitch * pool_step(shape.dilation_h),
                            .pitch = call.x.pitch * pool_step(shape.dilation_w),
                            .window = &window,
                            .kernel_w = shape.kernel_w};
        if (window.first_h >= window.end_h || window.first_w >= window.end_w) {
            empty_pixel(shape.channels, y, index);
        } else if (is_max) {
            max_pixel(&call, is_view, &from, y, index);
        } else {
            from.factor = pool_factor(&shape, &window);
            average_pixel(&call, is_view, &from, y);
        }
        index = index == NULL ? NULL : index + shape.channels;
    }
}

static void max_view_task(void *ctx, size_t row)
{
    pool_row(ctx, true, true, (int64_t)row);
}

static void max_plain_task(void *ctx, size_t row)
{
    pool_row(ctx, true, false, (int64_t)row);
}

static void average_view_task(void *ctx, size_t row)
{
    pool_row(ctx, false, true, (int64_t)row);
}

static void average_plain_task(void *ctx, size_t row)
{
    pool_row(ctx, false, false, (int64_t)row);
}

void K(pool_forward)(const dunlin_pool_call *call)
{
    dunlin_pool_call copy = *call;
    const dunlin_pool_shape *shape = call->shape;
    const bool is_view = call->x.scale != NULL;
    const pthreadpool_task_1d_t max_task = is_view ? max_view_task : max_plain_task;
    const pthreadpool_task_1d_t average_task = is_view ? average_view_task : average_plain_task;
    run_tasks(call->threads, call->is_max ? max_task : average_task, &copy,
              call->n_samples * shape->out_h,
              call->n_samples * shape->in_h * shape->in_w * shape->channels);
}

void K(max_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                 uint8_t *index, dunlin_threads *threads)
{
    dunlin_pool_call call = {.shape = shape,
                             .is_max = true,
                             .n_samples = n,
                             .x = {.x = x, .pitch = shape->channels},
                             .y_pitch = shape->channels,
                             .threads = threads};
    call.y = y;
    call.index = index;
    K(pool_forward)(&call);
}

void K(average_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                     dunlin_threads *threads)
{
    dunlin_pool_call call = {.shape = shape,
                             .n_samples = n,
                             .x = {.x = x, .pitch = shape->channels},
                             .y_pitch = shape->channels,
                             .threads = threads};
    call.y = y;
    K(pool_forward)(&call);
}
