/*
 * depthwise_back_tile.h - both gradients of a 3 x 3 depthwise convolution without a ring: chunk by
 * chunk of the input, and one vector of channels after the other.
 *
 * The gradient that a chunk's windows meet is made once into a few lines of the first cache; then
 * tiles of neighbouring columns go down the chunk with the weights and all of dw in registers. Rows
 * and columns are counted from the padding's corner, where pixel p meets tap j if p - j is a
 * multiple of the stride.
 */
#ifndef DUNLIN_KERNELS_DEPTHWISE_BACK_TILE_H
#define DUNLIN_KERNELS_DEPTHWISE_BACK_TILE_H

#include "depthwise.h"
#include "depthwise_asks.h"
#include "kernels/epilogue/activation.h"

#define BACK_TAPS 3
#define BACK_PIXELS 4 /* of a tile */
#define CHUNK_ROWS 16 /* with a tile's pixels at most a block of the sums */
#define CHUNK_PIXELS 16
#define CHUNK_COLUMNS (CHUNK_PIXELS + BACK_TAPS - 1)
#define CHUNK_FLOATS ((CHUNK_ROWS + BACK_TAPS - 1) * CHUNK_COLUMNS * VEC)

/* What is done, so that the usual form has no questions to ask. */
typedef struct back_form {
    int stride;
    bool has_x, is_stored, is_direct, has_addend, has_mask, is_scaled, has_factor;
    uint32_t n_stats;
    bool is_raw_mask; /* mask and the first statistic's raw are one tensor */
    bool is_x_half, is_mask_half, is_addend_half, is_raw_half[DUNLIN_EPILOGUE_MAX_STATS];
    bool is_out_half;
    bool has_values, has_slopes; /* of a function that is no clip: they are made tile by tile */
} back_form;

typedef struct back_chunk {
    back_plane g, raw; /* of the gradient */
    back_plane x, mask, addend, stat_raw[DUNLIN_EPILOGUE_MAX_STATS], out;
    float *to;                        /* out's */
    int64_t n_rows, n_pixels, parity; /* stride 2: the first row's */
    int64_t n_g_rows, n_g;            /* rows and columns of the gradient */
    int64_t next_pixels, next_g;      /* columns of the next chunk */
    int64_t first_g_row, end_g_row;   /* those inside the image */
    int64_t first_g, end_g;
    int64_t first_pixel, end_pixel; /* columns of the input inside the image */
    const float *w, *factor, *slope, *offset, *scale, *shift;
    const float *mask_scale, *mask_shift, *epilogue_factor, *about[DUNLIN_EPILOGUE_MAX_STATS];
    float *lines;     /* the gradient's */
    float *dw, *kept; /* kept: two sums */
    double *sums[DUNLIN_EPILOGUE_MAX_STATS];
    int64_t tap_step, sums_step;
    int64_t n_channels;
    dunlin_view_fn x_fn, mask_fn;
    float x_low, x_high, low, high;
    bool is_streamed;
} back_chunk;

/* What goes on from tile to tile. */
typedef struct back_state {
    int64_t c; /* of the unit's channels */
    back_prefetches x_prefetches, out_prefetches;
    vfloat w[BACK_TAPS * BACK_TAPS], dw[BACK_TAPS * BACK_TAPS];
    vfloat scale, shift, mask_scale, mask_shift, epilogue_factor, about[DUNLIN_EPILOGUE_MAX_STATS];
    vfloat sums[EPILOGUE_MAX_SUMS];
} back_state;

/* Of a tile whose activation is no clip: [row][BACK_PIXELS][VEC]. */
typedef struct back_active {
    float values[CHUNK_ROWS * BACK_PIXELS * VEC];
    float slopes[CHUNK_ROWS * BACK_PIXELS * VEC];
} back_active;

/* The gradient's lines; zeros outside the image. What is read holds bfloat16, or not. */
ALWAYS_INLINE void back_lines(const back_chunk *chunk, const back_soon *soon, int64_t c,
                              bool is_half, bool is_raw_half)
{
    const vfloat factor = vload(chunk->factor + c);
    const vfloat slope = vload(chunk->slope + c);
    const vfloat offset = vload(chunk->offset + c);
    const int64_t g_pixel = chunk->g.pixel;
    const int64_t raw_pixel = chunk->raw.pixel;
    const int64_t first = chunk->first_g;
    const int64_t end = chunk->end_g;
    const int64_t n = chunk->n_g;
    const int64_t n_steps = max_i64(1, ceil_div(end - first, BACK_PIXELS));
    const int64_t n_soon = soon->is_here ? end - first : chunk->next_g;
    const back_prefetches g_prefetches = back_prefetches_of(
        &chunk->g, stored_at(chunk->g.at, first * g_pixel, is_half), soon, n_steps, n_soon);
    const back_prefetches raw_prefetches =
        back_prefetches_of(&chunk->raw, stored_at(chunk->raw.at, first * raw_pixel, is_raw_half),
                           soon, n_steps, n_soon);
    for (int64_t k = 0; k < chunk->n_g_rows; k++) {
        float *to = chunk->lines + k * CHUNK_COLUMNS * VEC;
        if (k < chunk->first_g_row || k >= chunk->end_g_row) {
            vclear(to, n * VEC);
            continue;
        }
        const float *from = stored_at(chunk->g.at, k * chunk->g.row + c + first * g_pixel, is_half);
        const float *raw =
            stored_at(chunk->raw.at, k * chunk->raw.row + c + first * raw_pixel, is_raw_half);
        vclear(to, first * VEC);
        for (int64_t q = first, t = 0; q < end; t++) {
            back_ask(&g_prefetches, k, t);
            back_ask(&raw_prefetches, k, t);
            for (int64_t i = min_i64(BACK_PIXELS, end - q); i > 0; i--, q++) {
                const vfloat rest = vfma(vload_stored(raw, VEC, is_raw_half), slope, offset);
                vstore(to + q * VEC, vfma(vload_stored(from, VEC, is_half), factor, rest));
                from = stored_at(from, g_pixel, is_half);
                raw = stored_at(raw, raw_pixel, is_raw_half);
            }
        }
        vclear(to + end * VEC, (n - end) * VEC);
    }
}

static __attribute__((noinline)) void back_make(const back_chunk *chunk, const back_soon *soon,
                                                int64_t c)
{
    if (!chunk->g.is_half && !chunk->raw.is_half) {
        back_lines(chunk, soon, c, false, false);
    } else if (chunk->g.is_half && chunk->raw.is_half) {
        back_lines(chunk, soon, c, true, true);
    } else {
        back_lines(chunk, soon, c, chunk->g.is_half, chunk->raw.is_half);
    }
}

/* One vector of a pixel of a plane. */
ALWAYS_INLINE vfloat back_load(const back_plane *plane, bool is_half, int64_t r, int64_t p,
                               int64_t c)
{
    const int64_t at = r * plane->row + p * plane->pixel + c;
    return vload_stored(stored_at(plane->at, at, is_half), VEC, is_half);
}

/* Row i of the kernel, which meets a line of the gradient. */
ALWAYS_INLINE void back_taps(back_state *state, int i, int stride, const float *line,
                             const vfloat *x, vfloat *dx)
{
    const vfloat *w = state->w + i * BACK_TAPS;
    vfloat *dw = state->dw + i * BACK_TAPS;
    const int columns = (BACK_PIXELS + BACK_TAPS - 2) / stride + 1;
    UNROLL
    for (int q = 0; q < columns; q++) {
        const vfloat g = vload(line + (int64_t)q * VEC);
        UNROLL
        for (int j = 0; j < BACK_TAPS; j++) {
            const int p = q * stride - (BACK_TAPS - 1) + j;
            if (p >= 0 && p < BACK_PIXELS) {
                dx[p] = vfma(g, w[j], dx[p]);
                dw[j] = vfma(x[p], g, dw[j]);
            }
        }
    }
}

/* What pixel p of row r becomes; `slope` of the activation if that is no clip. */
ALWAYS_INLINE vfloat back_epilogue(const back_chunk *chunk, back_form form, back_state *state,
                                   int64_t r, int64_t p, vfloat slope, vfloat t)
{
    vfloat mask = vzero();
    vfloat addend = vzero();
    if (form.has_addend) {
        addend = back_load(&chunk->addend, form.is_addend_half, r, p, state->c);
    }
    if (form.is_direct && form.has_addend) {
        t += addend;
    }
    if (form.has_mask) {
        mask = back_load(&chunk->mask, form.is_mask_half, r, p, state->c);
        const vfloat by = form.is_scaled ? vfma(mask, state->mask_scale, state->mask_shift) : mask;
        t = form.has_slopes ? t * slope : vmasked(t, by, vset1(chunk->low), vset1(chunk->high));
    }
    t = form.is_out_half ? vround_bf16(t) : t;
    UNROLL
    for (uint32_t s = 0; s < DUNLIN_EPILOGUE_MAX_STATS; s++) {
        if (s < form.n_stats) {
            const vfloat raw =
                s == 0 && form.is_raw_mask
                    ? mask
                    : back_load(&chunk->stat_raw[s], form.is_raw_half[s], r, p, state->c);
            state->sums[2 * s] += t;
            state->sums[2 * s + 1] = vfma(t, raw - state->about[s], state->sums[2 * s + 1]);
        }
    }
    if (!form.is_direct && form.has_addend) {
        return form.has_factor ? vfma(t, state->epilogue_factor, addend) : t + addend;
    }
    return form.has_factor ? t * state->epilogue_factor : t;
}

/* Row r of the tile at column `at`. */
typedef struct back_place {
    int64_t r, at;
    bool is_inside, is_odd;
} back_place;

ALWAYS_INLINE void back_row(const back_chunk *chunk, back_form form, back_state *state,
                            const back_active *active, back_place place)
{
    const int64_t r = place.r;
    const int64_t at = place.at;
    const bool is_inside = place.is_inside;
    if (form.has_x) {
        back_ask(&state->x_prefetches, r, at / BACK_PIXELS);
    }
    const int stride = form.stride;
    vfloat x[BACK_PIXELS];
    vfloat dx[BACK_PIXELS];
    UNROLL
    for (int p = 0; p < BACK_PIXELS; p++) {
        dx[p] = vzero();
        x[p] = vzero();
        if (form.has_values) {
            x[p] = vload(active->values + (r * BACK_PIXELS + p) * VEC);
        } else if (form.has_x &&
                   (is_inside || (at + p >= chunk->first_pixel && at + p < chunk->end_pixel))) {
            x[p] = vfma(back_load(&chunk->x, form.is_x_half, r, at + p, state->c), state->scale,
                        state->shift);
            x[p] = vclip(x[p], vset1(chunk->x_low), vset1(chunk->x_high));
        }
    }
    const float *line = chunk->lines + at / stride * VEC;
    const int64_t pitch = (int64_t)CHUNK_COLUMNS * VEC;
    if (stride == 1) {
        back_taps(state, 2, 1, line + r * pitch, x, dx);
        back_taps(state, 1, 1, line + (r + 1) * pitch, x, dx);
        back_taps(state, 0, 1, line + (r + 2) * pitch, x, dx);
    } else if (place.is_odd) {
        back_taps(state, 1, 2, line + (r + 2) / 2 * pitch, x, dx);
    } else {
        back_taps(state, 2, 2, line + (r + chunk->parity) / 2 * pitch, x, dx);
        back_taps(state, 0, 2, line + ((r + chunk->parity) / 2 + 1) * pitch, x, dx);
    }
    float *to = stored_to(chunk->to, r * chunk->out.row + at * chunk->out.pixel + state->c,
                          form.is_out_half);
    if (form.is_stored && !chunk->is_streamed) {
        back_ask(&state->out_prefetches, r, at / BACK_PIXELS);
    }
    UNROLL
    for (int p = 0; p < BACK_PIXELS; p++) {
        if (is_inside || (at + p >= chunk->first_pixel && at + p < chunk->end_pixel)) {
            const vfloat slope =
                form.has_slopes ? vload(active->slopes + (r * BACK_PIXELS + p) * VEC) : vzero();
            const vfloat t = back_epilogue(chunk, form, state, r, at + p, slope, dx[p]);
            if (form.is_stored && chunk->is_streamed) {
                vstream(to + p * chunk->out.pixel, t);
            } else if (form.is_stored) {
                vstore_stored(stored_to(to, p * chunk->out.pixel, form.is_out_half), t, VEC,
                              form.is_out_half);
            }
        }
    }
}

/* Apart, as is back_make(): else their registers are taken from the taps'. */
static __attribute__((noinline)) void back_flush(float *kept, double *to, int64_t step)
{
    stat_flush(kept, 2, VEC, to, step);
}

/* The activations of a tile, and their derivatives; both at once where they are of one tensor. */
static __attribute__((noinline)) void back_activate(const back_chunk *chunk, back_form form,
                                                    int64_t c, int64_t at, back_active *out)
{
    const activation_block block = {.end_row = chunk->n_rows,
                                    .first_pixel = max_i64(0, chunk->first_pixel - at),
                                    .end_pixel = min_i64(BACK_PIXELS, chunk->end_pixel - at),
                                    .n_pixels = BACK_PIXELS};
    activation_block x = block;
    if (form.has_values) {
        x.fn = chunk->x_fn;
        x.is_half = form.is_x_half;
        x.x = stored_at(chunk->x.at, at * chunk->x.pixel + c, x.is_half);
        x.row = chunk->x.row;
        x.pixel = chunk->x.pixel;
        x.scale = chunk->scale + c;
        x.shift = chunk->shift + c;
        x.values = out->values;
    }
    activation_block mask = block;
    if (form.has_slopes) {
        mask.fn = chunk->mask_fn;
        mask.is_half = form.is_mask_half;
        mask.x = stored_at(chunk->mask.at, at * chunk->mask.pixel + c, mask.is_half);
        mask.row = chunk->mask.row;
        mask.pixel = chunk->mask.pixel;
        mask.scale = chunk->mask_scale + c;
        mask.shift = chunk->mask_shift + c;
        mask.slopes = out->slopes;
    }
    const bool is_one = x.x == mask.x && x.pixel == mask.pixel && x.scale == mask.scale &&
                        x.shift == mask.shift && x.fn == mask.fn;
    x.slopes = is_one ? mask.slopes : NULL;
    if (form.has_values) {
        K(activation_block)(&x);
    }
    if (form.has_slopes && !is_one) {
        K(activation_block)(&mask);
    }
}

/* A tile's rows, and its sums, which are a block. */
ALWAYS_INLINE void back_column(const back_chunk *chunk, back_form form, back_state *state,
                               int64_t at, bool is_inside)
{
    back_active active;
    UNROLL
    for (uint32_t i = 0; i < EPILOGUE_MAX_SUMS; i++) {
        state->sums[i] = vzero();
    }
    if (form.has_values || form.has_slopes) {
        back_activate(chunk, form, state->c, at, &active);
    }
    for (int64_t r = 0; r < chunk->n_rows; r++) {
        if (form.stride == 2 && (r + chunk->parity) % 2 == 1) {
            back_row(chunk, form, state, &active, (back_place){r, at, is_inside, true});
        } else {
            back_row(chunk, form, state, &active, (back_place){r, at, is_inside, false});
        }
    }
    UNROLL
    for (uint32_t s = 0; s < DUNLIN_EPILOGUE_MAX_STATS; s++) {
        if (s < form.n_stats) {
            vstore(chunk->kept, state->sums[2 * s]);
            vstore(chunk->kept + VEC, state->sums[2 * s + 1]);
            back_flush(chunk->kept, chunk->sums[s] + state->c, chunk->sums_step);
        }
    }
}

/* The chunk is a copy: what is stored might be part of another, for all the compiler knows. */
ALWAYS_INLINE void back_vector(const back_chunk chunk, back_form form, int64_t c)
{
    const back_soon soon = back_look_prefetch(c, chunk.n_channels);
    const int64_t n_steps = ceil_div(chunk.n_pixels, BACK_PIXELS);
    const int64_t n_soon = soon.is_here ? chunk.n_pixels : chunk.next_pixels;
    back_make(&chunk, &soon, c);
    back_state state = {
        .c = c,
        .x_prefetches = back_prefetches_of(&chunk.x, chunk.x.at, &soon, n_steps, n_soon),
        .out_prefetches = back_prefetches_of(&chunk.out, chunk.to, &soon, n_steps, n_soon),
        .scale = vload(chunk.scale + c),
        .shift = vload(chunk.shift + c),
        .mask_scale = vload(chunk.mask_scale + c),
        .mask_shift = vload(chunk.mask_shift + c),
        .epilogue_factor = vload(chunk.epilogue_factor + c)};
    UNROLL
    for (int s = 0; s < DUNLIN_EPILOGUE_MAX_STATS; s++) {
        state.about[s] = vload(chunk.about[s] + c);
    }
    UNROLL
    for (int i = 0; i < BACK_TAPS * BACK_TAPS; i++) {
        state.w[i] = vload(chunk.w + i * chunk.tap_step + c);
        state.dw[i] = vload(chunk.dw + i * chunk.tap_step + c);
    }
    for (int64_t at = 0; at < chunk.n_pixels; at += BACK_PIXELS) {
        if (at >= chunk.first_pixel && at + BACK_PIXELS <= chunk.end_pixel) {
            back_column(&chunk, form, &state, at, true);
        } else {
            back_column(&chunk, form, &state, at, false);
        }
    }
    UNROLL
    for (int i = 0; i < BACK_TAPS * BACK_TAPS; i++) {
        vstore(chunk.dw + i * chunk.tap_step + c, state.dw[i]);
    }
}

ALWAYS_INLINE void back_vectors(const back_chunk *chunk, back_form form, int stride)
{
    form.stride = stride;
    for (int64_t c = 0; c < chunk->n_channels; c += VEC) {
        back_vector(*chunk, form, c);
    }
}

/* Batch norm's view is both what is read and the usual sink, of floats, of bfloat16, or only into
 * that. Forms are functions of
 * their own: together the compiler gives none of them the registers that it needs. */
#define BACK_USUAL(name, its_stride, is_active, is_half, is_rounded)                               \
    static __attribute__((noinline)) void name(const back_chunk *chunk)                            \
    {                                                                                              \
        const back_form usual = {.has_x = true,                                                    \
                                 .is_stored = true,                                                \
                                 .has_mask = true,                                                 \
                                 .is_scaled = true,                                                \
                                 .n_stats = 1,                                                     \
                                 .is_raw_mask = true,                                              \
                                 .is_x_half = (is_half),                                           \
                                 .is_mask_half = (is_half),                                        \
                                 .is_raw_half = {(is_half), false},                                \
                                 .is_out_half = (is_rounded),                                      \
                                 .has_values = (is_active),                                        \
                                 .has_slopes = (is_active)};                                       \
        back_vectors(chunk, usual, its_stride);                                                    \
    }

BACK_USUAL(back_clip_1, 1, false, false, false)
BACK_USUAL(back_clip_2, 2, false, false, false)
BACK_USUAL(back_active_1, 1, true, false, false)
BACK_USUAL(back_active_2, 2, true, false, false)
BACK_USUAL(back_halves_1, 1, false, true, true)
BACK_USUAL(back_halves_2, 2, false, true, true)
BACK_USUAL(back_rounds_1, 1, false, false, true)
BACK_USUAL(back_rounds_2, 2, false, false, true)

/* All channels. */
static void back_run(const back_chunk *chunk, const back_form *form)
{
    const bool is_usual = form->has_x && form->is_stored && form->has_mask && form->is_scaled &&
                          form->n_stats == 1 && form->is_raw_mask && !form->has_addend &&
                          !form->has_factor && form->has_values == form->has_slopes &&
                          form->is_x_half == form->is_mask_half;
    const bool is_float = !form->is_x_half && !form->is_out_half;
    if (is_usual && form->is_out_half && !form->has_values) {
        if (form->is_x_half) {
            (form->stride == 1 ? back_halves_1 : back_halves_2)(chunk);
        } else {
            (form->stride == 1 ? back_rounds_1 : back_rounds_2)(chunk);
        }
    } else if (is_usual && is_float && !form->has_values) {
        (form->stride == 1 ? back_clip_1 : back_clip_2)(chunk);
    } else if (is_usual && is_float) {
        (form->stride == 1 ? back_active_1 : back_active_2)(chunk);
    } else if (form->stride == 1) {
        back_vectors(chunk, *form, 1);
    } else {
        back_vectors(chunk, *form, 2);
    }
}

#endif
