/*
 * pool_forward.c - max and average pooling, forward. A task is one output row; vectors along the
 * channels, which pass through the view as they are loaded.
 *
 * Padding never wins a maximum and adds nothing to an average. A window with no pixel at all gives
 * zero, and whatever place: no pixel asks for it.
 */
#include "kernels/epilogue/activation.h"
#include "kernels/gemm/gemm.h"
#include "place_pack.h"
#include "window.h"

#include <math.h>

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

/* Stores winners and returns their places; ties stay with the first; not-a-number wins and stays,
 * so that it is seen. */
ALWAYS_INLINE vbytes max_vector(const dunlin_view *view, bool is_view, const pool_source *from,
                                int64_t c, int32_t n, float *y)
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
    return vplace_bytes(winner);
}

static void empty_pixel(int64_t channels, float *y, const place_form *places, uint8_t *index)
{
    memset(y, 0, (size_t)channels * sizeof(float));
    if (index != NULL) {
        memset(index, 0, (size_t)places->pixel_bytes);
    }
}

/* With places of 2 bits. */
ALWAYS_INLINE void max_packed_pixel(const dunlin_pool_call *call, bool is_view,
                                    const pool_source *from, const place_form *places, float *y,
                                    uint8_t *index)
{
    const int32_t bits = DUNLIN_PLACE_BITS;
    const int64_t channels = call->shape->channels;
    const int64_t whole = DUNLIN_PLACE_GROUP / 8 * bits;
    uint64_t packed = 0;
    int64_t c = 0;
    for (; c + DUNLIN_PLACE_GROUP <= channels; c += DUNLIN_PLACE_GROUP) {
        packed = 0;
        UNROLL
        for (int64_t v = 0; v < DUNLIN_PLACE_GROUP; v += VEC) {
            const vbytes place = max_vector(&call->x, is_view, from, c + v, VEC, y);
            packed |= place_pack(place, v, bits, whole);
        }
        place_store(index, packed, whole);
        index += whole;
    }
    if (c == channels) {
        return;
    }
    const int64_t last = places->last_bytes;
    packed = 0;
    int64_t v = 0;
    do {
        const int32_t n = (int32_t)min_i64(VEC, channels - c - v);
        const vbytes place = max_vector(&call->x, is_view, from, c + v, n, y);
        packed |= place_pack_last(place, v, bits, last);
        v += VEC;
    } while (v < DUNLIN_PLACE_GROUP && c + v < channels);
    place_store(index, packed, last);
}

ALWAYS_INLINE void max_pixel(const dunlin_pool_call *call, bool is_view, const pool_source *from,
                             float *y, uint8_t *index)
{
    const int64_t channels = call->shape->channels;
    for (int64_t c = 0; c < channels; c += VEC) {
        const int32_t n = (int32_t)min_i64(VEC, channels - c);
        const vbytes place = n == VEC ? max_vector(&call->x, is_view, from, c, VEC, y)
                                      : max_vector(&call->x, is_view, from, c, n, y);
        if (index != NULL) {
            vbytes_store(index + c, place, n);
        }
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

/* Whether each element of a sample lies inside the bounds, by rows of channels. */
static void keep_signs(const dunlin_pool_call *call, int64_t sample)
{
    const place_form form = place_form_of(DUNLIN_SIGN_BITS, call->shape->channels);
    const int64_t n_pixels = (int64_t)call->shape->in_h * call->shape->in_w;
    const float *x = call->x.x + sample * n_pixels * call->x.pitch;
    uint8_t *signs = call->signs + sample * n_pixels * form.pixel_bytes;
    const vfloat low = vset1(call->x.low);
    const vfloat high = vset1(call->x.high);
    for (int64_t i = 0; i < n_pixels; i++, x += call->x.pitch, signs += form.pixel_bytes) {
        for (int64_t c = 0; c < form.channels; c += DUNLIN_PLACE_GROUP) {
            const int64_t n = min_i64(DUNLIN_PLACE_GROUP, form.channels - c);
            const int64_t bytes = n == DUNLIN_PLACE_GROUP ? form.group_bytes : form.last_bytes;
            uint64_t packed = 0;
            for (int64_t v = 0; v < n; v += VEC) {
                const vfloat t = vload_n(x + c + v, (int32_t)min_i64(VEC, n - v));
                packed |= place_pack_last(vinside(t, low, high), v, DUNLIN_SIGN_BITS, bytes);
            }
            place_store(signs + c / DUNLIN_PLACE_GROUP * form.group_bytes, packed, bytes);
        }
    }
}

typedef struct pool_job {
    const dunlin_pool_call *call;
    place_form places; /* of a maximum */
    bool is_packed;    /* they have 2 bits */
} pool_job;

/* Works on copies: what is stored cannot be what they say. */
ALWAYS_INLINE void pool_row(const pool_job *job, bool is_max, bool is_view, int64_t row)
{
    const dunlin_pool_shape shape = *job->call->shape;
    const place_form places = job->places;
    const bool is_packed = job->is_packed;
    dunlin_pool_call call = *job->call;
    call.shape = &shape;
    const int64_t sample = row / shape.out_h;
    const int64_t oy = row % shape.out_h;
    const float *x = call.x.x + sample * shape.in_h * shape.in_w * call.x.pitch;
    float *y = call.y + row * shape.out_w * call.y_pitch;
    uint8_t *index =
        call.index == NULL ? NULL : call.index + row * shape.out_w * places.pixel_bytes;
    for (int64_t ox = 0; ox < shape.out_w; ox++, y += call.y_pitch) {
        const pool_window window = pool_window_at(&shape, oy, ox);
        pool_source from = {.x = x + (window.y * shape.in_w + window.x) * call.x.pitch,
                            .row_step = shape.in_w * call.x.pitch * pool_step(shape.dilation_h),
                            .pitch = call.x.pitch * pool_step(shape.dilation_w),
                            .window = &window,
                            .kernel_w = shape.kernel_w};
        if (window.first_h >= window.end_h || window.first_w >= window.end_w) {
            empty_pixel(shape.channels, y, &places, index);
        } else if (is_max && is_packed) {
            max_packed_pixel(&call, is_view, &from, &places, y, index);
        } else if (is_max) {
            max_pixel(&call, is_view, &from, y, index);
        } else {
            from.factor = pool_factor(&shape, &window);
            average_pixel(&call, is_view, &from, y);
        }
        index = index == NULL ? NULL : index + places.pixel_bytes;
    }
    if (!is_max && call.signs != NULL) {
        keep_signs(&call, sample);
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
    const dunlin_pool_shape *shape = call->shape;
    const int32_t bits = dunlin__place_bits(shape);
    pool_job job = {.call = call,
                    .places = place_form_of(bits, shape->channels),
                    .is_packed = bits < 8 && call->index != NULL};
    const bool is_view = call->x.scale != NULL;
    const pthreadpool_task_1d_t max_task = is_view ? max_view_task : max_plain_task;
    const pthreadpool_task_1d_t average_task = is_view ? average_view_task : average_plain_task;
    run_tasks(call->threads, call->is_max ? max_task : average_task, &job,
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
