/*
 * depthwise_row.c - one phase of a row of the depthwise backward pass: an input pixel meets its
 * window of gradients both as the sum that is dx and as the factor of dw.
 *
 * Both forms of a row, through buffers and direct, give dx and dw the same bits.
 */
#include "depthwise_backward.h"
#include "kernels/epilogue/activation.h"

#define DIRECT_LINES 24 /* asked for with a tile */

/* Neighbours of a phase from u on, one vector of channels. */
typedef struct row_tile {
    const backward_phase *phase;
    int64_t u, c;
    int pixels; /* literal, as is taps_w; 0: as many taps as there are */
    int taps_w;
    int64_t used; /* pixels that the row has */
} row_tile;

/* dx from zero and dw go on by the products with the window. */
ALWAYS_INLINE void tile_taps(const row_tile *tile, const vfloat *x, vfloat *dx)
{
    backward_worker *worker = tile->phase->worker;
    const dunlin_conv_shape *shape = worker->job->call->shape;
    const conv_axis *h = &tile->phase->view.h;
    const conv_axis *along = &tile->phase->view.w;
    const int64_t width = worker->ring.width;
    const int64_t c = tile->c;
    const int64_t left = (worker->ring.left + tile->u + along->offset) * width + c;
    const int pixels = tile->pixels;
    const int taps_w = tile->taps_w;
    UNROLL
    for (int p = 0; p < pixels; p++) {
        dx[p] = vzero();
    }
    for (int32_t i = 0; i < h->n_taps; i++) {
        const float *row = worker->taps[i] + left;
        const int64_t tap = (h->first_tap + i * h->tap_step) * shape->kernel_w + along->first_tap;
        const float *w = worker->w + tap * width + c;
        float *dw = worker->dw + tap * width + c;
        const int64_t tap_step = along->tap_step * width;
        const int64_t pitch = along->pitch * width;
        if (taps_w > 0) {
            vfloat sum[3];
            vfloat weight[3];
            UNROLL
            for (int j = 0; j < taps_w; j++) {
                weight[j] = vload(w + j * tap_step);
                sum[j] = vload(dw + j * tap_step);
            }
            UNROLL
            for (int p = 0; p < pixels; p++) {
                UNROLL
                for (int j = 0; j < taps_w; j++) {
                    const vfloat dy = vload(row + p * width + j * pitch);
                    dx[p] = vfma(dy, weight[j], dx[p]);
                    sum[j] = vfma(x[p], dy, sum[j]);
                }
            }
            UNROLL
            for (int j = 0; j < taps_w; j++) {
                vstore(dw + j * tap_step, sum[j]);
            }
            continue;
        }
        for (int32_t j = 0; j < along->n_taps; j++) {
            const vfloat weight = vload(w + j * tap_step);
            vfloat sum = vload(dw + j * tap_step);
            UNROLL
            for (int p = 0; p < pixels; p++) {
                const vfloat dy = vload(row + p * width + j * pitch);
                dx[p] = vfma(dy, weight, dx[p]);
                sum = vfma(x[p], dy, sum);
            }
            vstore(dw + j * tap_step, sum);
        }
    }
}

ALWAYS_INLINE void tile_buffered(const row_tile *tile)
{
    backward_worker *worker = tile->phase->worker;
    const int64_t width = worker->ring.width;
    const int64_t step = worker->job->call->shape->stride_w * width;
    const int64_t at = tile->phase->pixel * width + tile->u * step + tile->c;
    vfloat x[BACKWARD_PIXELS];
    vfloat dx[BACKWARD_PIXELS];
    prefetch_some(&worker->prefetch);
    UNROLL
    for (int p = 0; p < tile->pixels; p++) {
        x[p] = vload(worker->x + at + p * step);
    }
    tile_taps(tile, x, dx);
    UNROLL
    for (int p = 0; p < tile->pixels; p++) {
        vstore(worker->dx + at + p * step, dx[p]);
    }
}

/* A view's activations at the tile, their derivatives, or (no NULL) both. */
static __attribute__((noinline)) void activate(const row_tile *tile, const dunlin_view *view,
                                               float *values, float *slopes)
{
    const backward_worker *worker = tile->phase->worker;
    const int64_t stride = worker->job->call->shape->stride_w;
    const int64_t pixel = tile->phase->pixel + tile->u * stride;
    const activation_block block = {.fn = view->fn,
                                    .x = view->x + pixel * view->pitch + tile->c,
                                    .pixel = stride * view->pitch,
                                    .end_row = 1,
                                    .end_pixel = tile->used,
                                    .n_pixels = tile->pixels,
                                    .scale = view->scale + tile->c,
                                    .shift = view->shift + tile->c,
                                    .values = values,
                                    .slopes = slopes};
    K(activation_block)(&block);
}

/* The same of a copy: literals of a tile whose address goes to no call let loops unroll. */
ALWAYS_INLINE void row_activate(const row_tile *tile, const dunlin_view *view, float *values,
                                float *slopes)
{
    const row_tile copy = *tile;
    activate(&copy, view, values, slopes);
}

ALWAYS_INLINE void tile_direct(const row_tile *tile)
{
    backward_worker *worker = tile->phase->worker;
    const backward_direct *direct = &worker->direct;
    const int64_t stride = worker->job->call->shape->stride_w;
    const int64_t pixel = tile->phase->pixel + tile->u * stride;
    const int64_t c = tile->c;
    vfloat x[BACKWARD_PIXELS];
    vfloat dx[BACKWARD_PIXELS];
    UNROLL
    for (int i = 0; i < DIRECT_LINES / PREFETCH_LINES; i++) {
        prefetch_some(&worker->prefetch);
    }
    const float *from = direct->x.x + pixel * direct->x.pitch + c;
    const vfloat scale = vload(direct->x.scale + c);
    const vfloat shift = vload(direct->x.shift + c);
    float values[BACKWARD_PIXELS * VEC];
    float slopes[BACKWARD_PIXELS * VEC];
    const bool has_values = direct->x.fn != DUNLIN_VIEW_CLIP;
    const bool has_slopes = direct->mask_fn != DUNLIN_VIEW_CLIP;
    if (has_values) {
        row_activate(tile, &direct->x, values, has_slopes && direct->is_one ? slopes : NULL);
    }
    if (has_slopes && !direct->is_one) {
        const dunlin_view view = {.x = direct->mask,
                                  .pitch = direct->mask_pitch,
                                  .scale = direct->mask_scale,
                                  .shift = direct->mask_shift,
                                  .fn = direct->mask_fn};
        row_activate(tile, &view, NULL, slopes);
    }
    UNROLL
    for (int p = 0; p < tile->pixels; p++) {
        x[p] = vzero();
        if (p < tile->used && has_values) {
            x[p] = vload(values + (int64_t)p * VEC);
        } else if (p < tile->used) {
            x[p] = vfma(vload(from + p * stride * direct->x.pitch), scale, shift);
            x[p] = vclip(x[p], vset1(direct->x.low), vset1(direct->x.high));
        }
    }
    tile_taps(tile, x, dx);
    const float *mask = direct->mask + pixel * direct->mask_pitch + c;
    float *out = direct->out + pixel * direct->out_pitch + c;
    const vfloat mask_scale = vload(direct->mask_scale + c);
    const vfloat mask_shift = vload(direct->mask_shift + c);
    const vfloat about = vload(direct->about + c);
    float *sums = worker->sums + c;
    vfloat sum = vload(sums);
    vfloat product = vload(sums + worker->n_channels);
    UNROLL
    for (int p = 0; p < tile->pixels; p++) {
        if (p < tile->used) {
            const vfloat raw = vload(mask + p * stride * direct->mask_pitch);
            const vfloat t = has_slopes ? dx[p] * vload(slopes + (int64_t)p * VEC)
                                        : vmasked(dx[p], vfma(raw, mask_scale, mask_shift),
                                                  vset1(direct->low), vset1(direct->high));
            sum += t;
            product = vfma(t, raw - about, product);
            vstore(out + p * stride * direct->out_pitch, t);
        }
    }
    vstore(sums, sum);
    vstore(sums + worker->n_channels, product);
}

ALWAYS_INLINE void backward_span(const backward_phase *phase, int pixels, int taps_w,
                                 bool is_direct)
{
    const int64_t n = phase->view.w.n_grid;
    for (int64_t u = 0; u < n; u += pixels) {
        for (int64_t c = 0; c < phase->worker->n_channels; c += VEC) {
            row_tile tile = {phase, u, c, pixels, taps_w, pixels};
            if (!is_direct) {
                tile_buffered(&tile);
            } else if (n - u >= pixels) {
                tile_direct(&tile);
            } else {
                tile.used = n - u;
                tile_direct(&tile);
            }
        }
    }
}

ALWAYS_INLINE void backward_pixels(const backward_phase *phase, int taps_w)
{
    const bool is_direct = phase->worker->job->is_direct;
    const bool is_wide = tile_pixels(phase->view.w.n_grid) == BACKWARD_PIXELS;
    if (is_direct && is_wide) {
        backward_span(phase, BACKWARD_PIXELS, taps_w, true);
    } else if (is_direct) {
        backward_span(phase, 1, taps_w, true);
    } else if (is_wide) {
        backward_span(phase, BACKWARD_PIXELS, taps_w, false);
    } else {
        backward_span(phase, 1, taps_w, false);
    }
}

void K(backward_row)(const backward_phase *phase)
{
    switch (phase->view.w.n_taps) {
    case 3:
        backward_pixels(phase, 3);
        return;
    case 2:
        backward_pixels(phase, 2);
        return;
    case 1:
        backward_pixels(phase, 1);
        return;
    default:
        backward_pixels(phase, 0);
        return;
    }
}
