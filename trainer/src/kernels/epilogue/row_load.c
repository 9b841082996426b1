/*
 * row_load.c - rows of views and gradients as they are loaded, eight rows of one vector of channels
 * at a time: a channel's numbers are loaded once for all of them.
 *
 * A row's element passes through the same operations in the same order wherever it is done.
 */
#include "activation.h"
#include "kernels/simd/stored.h"
#include "sink.h"

#define TILE 8
#define COPY_PREFETCH 16 /* rows */

/* Which of the two tensors that are read hold bfloat16: literals where it matters. */
typedef struct stored_kinds {
    bool is_half, is_other_half;
} stored_kinds;

/* Rows [first, first + n) of those to load. */
typedef struct row_part {
    int64_t first, n;
} row_part;

/* These rows of one vector of channels. */
ALWAYS_INLINE void view_vector(const dunlin_view *view, const load_rows *rows, row_part part,
                               dunlin_view_fn fn, stored_kinds kinds, int64_t c, int32_t n)
{
    prefetch_some(rows->prefetch);
    const int64_t channel = rows->channel + c;
    const int64_t step = rows->pixel_step * view->pitch;
    const int64_t out_step = rows->out_pitch;
    const float *x =
        stored_at(view->x, rows->pixel * view->pitch + part.first * step + channel, kinds.is_half);
    float *out = rows->out + part.first * out_step + c;
    const vfloat scale = vload_n(view->scale + channel, n);
    const vfloat shift = vload_n(view->shift + channel, n);
    const vfloat low = vset1(view->low);
    const vfloat high = vset1(view->high);
    for (int64_t i = 0; i < part.n; i++, out += out_step) {
        const vfloat v = vload_stored(x, n, kinds.is_half);
        vstore_n(out, view_value(fn, vfma(v, scale, shift), low, high), n);
        x = stored_at(x, step, kinds.is_half);
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
ALWAYS_INLINE void sum_vector(const dunlin_view *view, const load_rows *rows, row_part part,
                              view_form form, stored_kinds kinds, int64_t c, int32_t n)
{
    const bool is_scaled = form == VIEW_SUM_OF_NORMS || form == VIEW_ROUNDED_SUM_OF_NORMS;
    const bool is_rounded = form == VIEW_ROUNDED_SUM || form == VIEW_ROUNDED_SUM_OF_NORMS;
    prefetch_some(rows->prefetch);
    const int64_t channel = rows->channel + c;
    const int64_t pixel = rows->pixel + part.first * rows->pixel_step;
    const float *x = stored_at(view->x, pixel * view->pitch + channel, kinds.is_half);
    const float *plus =
        stored_at(view->plus, pixel * view->plus_pitch + channel, kinds.is_other_half);
    float *out = rows->out + part.first * rows->out_pitch + c;
    const vfloat scale = vload_n(view->scale + channel, n);
    const vfloat shift = vload_n(view->shift + channel, n);
    const vfloat plus_scale = is_scaled ? vload_n(view->plus_scale + channel, n) : vzero();
    const vfloat plus_shift = is_scaled ? vload_n(view->plus_shift + channel, n) : vzero();
    const vfloat low = vset1(view->low);
    const vfloat high = vset1(view->high);
    for (int64_t i = 0; i < part.n; i++) {
        vfloat other = vload_stored(plus, n, kinds.is_other_half);
        if (is_scaled) {
            other = vfma(other, plus_scale, plus_shift);
        }
        const vfloat v = vload_stored(x, n, kinds.is_half);
        const vfloat sum = vclip(vfma(v, scale, shift) + other, low, high);
        vstore_n(out, is_rounded ? vround_bf16(sum) : sum, n);
        x = stored_at(x, rows->pixel_step * view->pitch, kinds.is_half);
        plus = stored_at(plus, rows->pixel_step * view->plus_pitch, kinds.is_other_half);
        out += rows->out_pitch;
    }
}

ALWAYS_INLINE void view_part(const dunlin_view *view, const load_rows *rows, row_part part,
                             view_form form, stored_kinds kinds, int64_t c, int32_t n)
{
    switch (form) {
    case VIEW_NORM:
        view_vector(view, rows, part, DUNLIN_VIEW_CLIP, kinds, c, n);
        break;
    case VIEW_HARD_SWISH:
        view_vector(view, rows, part, DUNLIN_VIEW_HARD_SWISH, kinds, c, n);
        break;
    case VIEW_SILU:
        view_vector(view, rows, part, DUNLIN_VIEW_SILU, kinds, c, n);
        break;
    case VIEW_SUM:
        sum_vector(view, rows, part, VIEW_SUM, kinds, c, n);
        break;
    case VIEW_SUM_OF_NORMS:
        sum_vector(view, rows, part, VIEW_SUM_OF_NORMS, kinds, c, n);
        break;
    case VIEW_ROUNDED_SUM:
        sum_vector(view, rows, part, VIEW_ROUNDED_SUM, kinds, c, n);
        break;
    case VIEW_ROUNDED_SUM_OF_NORMS:
        sum_vector(view, rows, part, VIEW_ROUNDED_SUM_OF_NORMS, kinds, c, n);
        break;
    }
}

ALWAYS_INLINE void view_run(const dunlin_view *view, const load_rows *rows, row_part part,
                            view_form form, stored_kinds kinds)
{
    int64_t c = 0;
    for (; c + VEC <= rows->n_channels; c += VEC) {
        view_part(view, rows, part, form, kinds, c, VEC);
    }
    if (c < rows->n_channels) {
        view_part(view, rows, part, form, kinds, c, (int32_t)(rows->n_channels - c));
    }
}

ALWAYS_INLINE void view_kinds(const dunlin_view *view, const load_rows *rows, view_form form,
                              stored_kinds kinds)
{
    for (int64_t i = 0; i < rows->n_rows; i += TILE) {
        view_run(view, rows, (row_part){i, min_i64(TILE, rows->n_rows - i)}, form, kinds);
    }
}

ALWAYS_INLINE void view_tiles(const dunlin_view *view, const load_rows *rows, view_form form)
{
    if (view->is_half || view->is_plus_half) {
        view_kinds(view, rows, form, (stored_kinds){view->is_half, view->is_plus_half});
    } else {
        view_kinds(view, rows, form, (stored_kinds){false, false});
    }
}

/* What lies there in bfloat16, as it is. */
static void widen_rows(const dunlin_view *view, const load_rows *rows)
{
    const int64_t step = rows->pixel_step * view->pitch;
    const float *from = stored_at(view->x, rows->pixel * view->pitch + rows->channel, true);
    float *out = rows->out;
    for (int64_t i = 0; i < rows->n_rows; i++, out += rows->out_pitch) {
        for (int64_t c = 0; c < rows->n_channels; c += VEC) {
            const int32_t n = vec_left(rows->n_channels, c);
            vstore_n(out + c, vload_stored(stored_at(from, c, true), n, true), n);
        }
        from = stored_at(from, step, true);
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
    if (view->scale == NULL && view->is_half) {
        widen_rows(view, rows);
    } else if (view->scale == NULL) {
        copy_rows(view, rows);
    } else if (view->fn == DUNLIN_VIEW_HARD_SWISH) {
        view_tiles(view, rows, VIEW_HARD_SWISH);
    } else if (view->fn == DUNLIN_VIEW_SILU) {
        view_tiles(view, rows, VIEW_SILU);
    } else if (view->plus == NULL && view->is_half) {
        view_kinds(view, rows, VIEW_NORM, (stored_kinds){true, false});
    } else if (view->plus == NULL) {
        view_kinds(view, rows, VIEW_NORM, (stored_kinds){false, false});
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

ALWAYS_INLINE void grad_vector(const dunlin_grad *grad, const load_rows *rows, row_part part,
                               bool has_raw, stored_kinds kinds, int64_t c, int32_t n)
{
    prefetch_some(rows->prefetch);
    const int64_t channel = rows->channel + c;
    const int64_t pixel = rows->pixel + part.first * rows->pixel_step;
    const int64_t g_step = rows->pixel_step * grad->pitch;
    const int64_t raw_step = rows->pixel_step * grad->raw_pitch;
    const float *g = stored_at(grad->g, pixel * grad->pitch + channel, kinds.is_half);
    const float *raw =
        has_raw ? stored_at(grad->raw, pixel * grad->raw_pitch + channel, kinds.is_other_half)
                : NULL;
    const int64_t out_step = rows->out_pitch;
    float *out = rows->out + part.first * out_step + c;
    const vfloat factor = grad->factor == NULL ? vset1(1.0f) : vload_n(grad->factor + channel, n);
    const vfloat slope = has_raw ? vload_n(grad->slope + channel, n) : vzero();
    const vfloat offset = has_raw ? vload_n(grad->offset + channel, n) : vzero();
    for (int64_t i = 0; i < part.n; i++, out += out_step) {
        vfloat v = vload_stored(g, n, kinds.is_half);
        g = stored_at(g, g_step, kinds.is_half);
        if (has_raw) {
            const vfloat rest = vfma(vload_stored(raw, n, kinds.is_other_half), slope, offset);
            v = vfma(v, factor, rest);
            raw = stored_at(raw, raw_step, kinds.is_other_half);
        } else {
            v = v * factor;
        }
        vstore_n(out, v, n);
    }
}

ALWAYS_INLINE void grad_run(const dunlin_grad *grad, const load_rows *rows, row_part part,
                            bool has_raw, stored_kinds kinds)
{
    int64_t c = 0;
    for (; c + VEC <= rows->n_channels; c += VEC) {
        grad_vector(grad, rows, part, has_raw, kinds, c, VEC);
    }
    if (c < rows->n_channels) {
        grad_vector(grad, rows, part, has_raw, kinds, c, (int32_t)(rows->n_channels - c));
    }
}

ALWAYS_INLINE void grad_tiles(const dunlin_grad *grad, const load_rows *rows, bool has_raw,
                              stored_kinds kinds)
{
    for (int64_t i = 0; i < rows->n_rows; i += TILE) {
        grad_run(grad, rows, (row_part){i, min_i64(TILE, rows->n_rows - i)}, has_raw, kinds);
    }
}

void K(grad_rows)(const dunlin_grad *grad, const load_rows *rows)
{
    const bool has_raw = grad->raw != NULL;
    if (grad->factor == NULL && !has_raw) {
        const dunlin_view plain = {.x = grad->g, .pitch = grad->pitch, .is_half = grad->is_half};
        K(view_rows)(&plain, rows);
    } else if (!grad->is_half && !grad->is_raw_half) {
        grad_tiles(grad, rows, has_raw, (stored_kinds){false, false});
    } else if (has_raw && grad->is_half && grad->is_raw_half) {
        grad_tiles(grad, rows, true, (stored_kinds){true, true});
    } else {
        grad_tiles(grad, rows, has_raw, (stored_kinds){grad->is_half, grad->is_raw_half});
    }
}
