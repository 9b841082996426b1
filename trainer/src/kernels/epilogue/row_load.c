/*
 * row_load.c - rows of views and gradients as they are loaded, eight rows of one vector of channels
 * at a time: a channel's numbers are loaded once for all of them.
 *
 * A row's element passes through the same operations in the same order wherever it is done.
 */
#include "activation.h"
#include "kernels/simd/bf16.h"
#include "sink.h"

#define TILE 8
#define COPY_PREFETCH 16 /* rows */

/* Rows [first, first + n_rows) of one vector of channels. */
ALWAYS_INLINE void view_vector(const dunlin_view *view, const load_rows *rows, int64_t first,
                               dunlin_view_fn fn, int64_t c, int32_t n, int64_t n_rows)
{
    prefetch_some(rows->prefetch);
    const int64_t channel = rows->channel + c;
    const int64_t step = rows->pixel_step * view->pitch;
    const int64_t out_step = rows->out_pitch;
    const float *x = view->x + rows->pixel * view->pitch + first * step + channel;
    float *out = rows->out + first * out_step + c;
    const vfloat scale = vload_n(view->scale + channel, n);
    const vfloat shift = vload_n(view->shift + channel, n);
    const vfloat low = vset1(view->low);
    const vfloat high = vset1(view->high);
    for (int64_t i = 0; i < n_rows; i++, x += step, out += out_step) {
        vstore_n(out, view_value(fn, vfma(vload_n(x, n), scale, shift), low, high), n);
    }
}

/* What is read through: a batch norm and its activation, or the norm and what is added to it. */
typedef enum view_form {
    VIEW_NORM = 0,
    VIEW_HARD_SWISH,
    VIEW_SILU,
    VIEW_SUM,
    VIEW_SUM_OF_NORMS,
    VIEW_ROUNDED_SUM,
    VIEW_ROUNDED_SUM_OF_NORMS
} view_form;

/* The same of a residual sum. */
ALWAYS_INLINE void sum_vector(const dunlin_view *view, const load_rows *rows, int64_t first,
                              view_form form, int64_t c, int32_t n, int64_t n_rows)
{
    const bool is_scaled = form == VIEW_SUM_OF_NORMS || form == VIEW_ROUNDED_SUM_OF_NORMS;
    const bool is_rounded = form == VIEW_ROUNDED_SUM || form == VIEW_ROUNDED_SUM_OF_NORMS;
    prefetch_some(rows->prefetch);
    const int64_t channel = rows->channel + c;
    const int64_t pixel = rows->pixel + first * rows->pixel_step;
    const float *x = view->x + pixel * view->pitch + channel;
    const float *plus = view->plus + pixel * view->plus_pitch + channel;
    float *out = rows->out + first * rows->out_pitch + c;
    const vfloat scale = vload_n(view->scale + channel, n);
    const vfloat shift = vload_n(view->shift + channel, n);
    const vfloat plus_scale = is_scaled ? vload_n(view->plus_scale + channel, n) : vzero();
    const vfloat plus_shift = is_scaled ? vload_n(view->plus_shift + channel, n) : vzero();
    const vfloat low = vset1(view->low);
    const vfloat high = vset1(view->high);
    for (int64_t i = 0; i < n_rows; i++) {
        vfloat other = vload_n(plus, n);
        if (is_scaled) {
            other = vfma(other, plus_scale, plus_shift);
        }
        const vfloat sum = vclip(vfma(vload_n(x, n), scale, shift) + other, low, high);
        vstore_n(out, is_rounded ? vround_bf16(sum) : sum, n);
        x += rows->pixel_step * view->pitch;
        plus += rows->pixel_step * view->plus_pitch;
        out += rows->out_pitch;
    }
}

ALWAYS_INLINE void view_part(const dunlin_view *view, const load_rows *rows, int64_t first,
                             view_form form, int64_t c, int32_t n, int64_t n_rows)
{
    switch (form) {
    case VIEW_NORM:
        view_vector(view, rows, first, DUNLIN_VIEW_CLIP, c, n, n_rows);
        break;
    case VIEW_HARD_SWISH:
        view_vector(view, rows, first, DUNLIN_VIEW_HARD_SWISH, c, n, n_rows);
        break;
    case VIEW_SILU:
        view_vector(view, rows, first, DUNLIN_VIEW_SILU, c, n, n_rows);
        break;
    case VIEW_SUM:
        sum_vector(view, rows, first, VIEW_SUM, c, n, n_rows);
        break;
    case VIEW_SUM_OF_NORMS:
        sum_vector(view, rows, first, VIEW_SUM_OF_NORMS, c, n, n_rows);
        break;
    case VIEW_ROUNDED_SUM:
        sum_vector(view, rows, first, VIEW_ROUNDED_SUM, c, n, n_rows);
        break;
    case VIEW_ROUNDED_SUM_OF_NORMS:
        sum_vector(view, rows, first, VIEW_ROUNDED_SUM_OF_NORMS, c, n, n_rows);
        break;
    }
}

ALWAYS_INLINE void view_run(const dunlin_view *view, const load_rows *rows, int64_t first,
                            view_form form, int64_t n_rows)
{
    int64_t c = 0;
    for (; c + VEC <= rows->n_channels; c += VEC) {
        view_part(view, rows, first, form, c, VEC, n_rows);
    }
    if (c < rows->n_channels) {
        view_part(view, rows, first, form, c, (int32_t)(rows->n_channels - c), n_rows);
    }
}

ALWAYS_INLINE void view_tiles(const dunlin_view *view, const load_rows *rows, view_form form)
{
    for (int64_t i = 0; i < rows->n_rows; i += TILE) {
        view_run(view, rows, i, form, min_i64(TILE, rows->n_rows - i));
    }
}

/* Rows of so many whole vectors, far ones asked for: often they come from memory. */
ALWAYS_INLINE void copy_vectors(const float *from, int64_t from_step, int64_t n_rows, int vectors,
                                float *out, int64_t out_pitch)
{
    for (int64_t i = 0; i < n_rows; i++, from += from_step, out += out_pitch) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            __builtin_prefetch(from + COPY_PREFETCH * from_step + (int64_t)v * VEC);
            vstore(out + (int64_t)v * VEC, vload(from + (int64_t)v * VEC));
        }
    }
}

static void copy_rows(const dunlin_view *view, const load_rows *rows)
{
    const float *from = view->x + rows->pixel * view->pitch + rows->channel;
    const int64_t step = rows->pixel_step * view->pitch;
    const int64_t n = rows->n_rows;
    if (rows->n_channels == VEC) {
        copy_vectors(from, step, n, 1, rows->out, rows->out_pitch);
    } else if (rows->n_channels == (int64_t)2 * VEC) {
        copy_vectors(from, step, n, 2, rows->out, rows->out_pitch);
    } else if (rows->n_channels == (int64_t)3 * VEC) {
        copy_vectors(from, step, n, 3, rows->out, rows->out_pitch);
    } else {
        for (int64_t i = 0; i < n; i++) {
            vcopy(rows->out + i * rows->out_pitch, from + i * step, rows->n_channels);
        }
    }
}

void K(view_rows)(const dunlin_view *view, const load_rows *rows)
{
    if (view->scale == NULL) {
        copy_rows(view, rows);
    } else if (view->fn == DUNLIN_VIEW_HARD_SWISH) {
        view_tiles(view, rows, VIEW_HARD_SWISH);
    } else if (view->fn == DUNLIN_VIEW_SILU) {
        view_tiles(view, rows, VIEW_SILU);
    } else if (view->plus == NULL) {
        view_tiles(view, rows, VIEW_NORM);
    } else if (view->is_rounded && view->plus_scale == NULL) {
        view_tiles(view, rows, VIEW_ROUNDED_SUM);
    } else if (view->is_rounded) {
        view_tiles(view, rows, VIEW_ROUNDED_SUM_OF_NORMS);
    } else if (view->plus_scale == NULL) {
        view_tiles(view, rows, VIEW_SUM);
    } else {
        view_tiles(view, rows, VIEW_SUM_OF_NORMS);
    }
}

ALWAYS_INLINE void grad_vector(const dunlin_grad *grad, const load_rows *rows, int64_t first,
                               bool has_raw, int64_t c, int32_t n, int64_t n_rows)
{
    prefetch_some(rows->prefetch);
    const int64_t channel = rows->channel + c;
    const int64_t pixel = rows->pixel + first * rows->pixel_step;
    const int64_t g_step = rows->pixel_step * grad->pitch;
    const int64_t raw_step = rows->pixel_step * grad->raw_pitch;
    const float *g = grad->g + pixel * grad->pitch + channel;
    const float *raw = has_raw ? grad->raw + pixel * grad->raw_pitch + channel : NULL;
    const int64_t out_step = rows->out_pitch;
    float *out = rows->out + first * out_step + c;
    const vfloat factor = grad->factor == NULL ? vset1(1.0f) : vload_n(grad->factor + channel, n);
    const vfloat slope = has_raw ? vload_n(grad->slope + channel, n) : vzero();
    const vfloat offset = has_raw ? vload_n(grad->offset + channel, n) : vzero();
    for (int64_t i = 0; i < n_rows; i++, g += g_step, out += out_step) {
        vfloat v = vload_n(g, n);
        if (has_raw) {
            v = vfma(v, factor, vfma(vload_n(raw, n), slope, offset));
            raw += raw_step;
        } else {
            v = v * factor;
        }
        vstore_n(out, v, n);
    }
}

ALWAYS_INLINE void grad_run(const dunlin_grad *grad, const load_rows *rows, int64_t first,
                            bool has_raw, int64_t n_rows)
{
    int64_t c = 0;
    for (; c + VEC <= rows->n_channels; c += VEC) {
        grad_vector(grad, rows, first, has_raw, c, VEC, n_rows);
    }
    if (c < rows->n_channels) {
        grad_vector(grad, rows, first, has_raw, c, (int32_t)(rows->n_channels - c), n_rows);
    }
}

void K(grad_rows)(const dunlin_grad *grad, const load_rows *rows)
{
    if (grad_is_plain(grad)) {
        const dunlin_view plain = {.x = grad->g, .pitch = grad->pitch};
        K(view_rows)(&plain, rows);
        return;
    }
    const bool has_raw = grad->raw != NULL;
    for (int64_t i = 0; i < rows->n_rows; i += TILE) {
        grad_run(grad, rows, i, has_raw, min_i64(TILE, rows->n_rows - i));
    }
}
