/*
 * depthwise_tile.h - a 3 x 3 depthwise convolution forward without a ring: one vector of channels
 * of a few neighbouring columns goes down a band of rows, and its sums stay in registers.
 *
 * A source row is loaded and viewed once for all output rows that it meets: it ends one, goes on
 * with another and begins a third. What lies outside the image is left out.
 */
#ifndef DUNLIN_KERNELS_DEPTHWISE_TILE_H
#define DUNLIN_KERNELS_DEPTHWISE_TILE_H

#include "depthwise.h"
#include "kernels/epilogue/activation.h"
#include "kernels/simd/prefetch.h"
#include "kernels/simd/stored.h"

#define TILE_TAPS 3
#if VEC == 16 || USES_ARM
#define TILE_PIXELS 4 /* three rows of sums, all weights, and a row of the source in registers */
#else
#define TILE_PIXELS 2
#endif

/* Lines that a tile's row asks for while one vector goes down, for each pixel step of the source.
 */
#define TILE_LINES (TILE_PIXELS * VEC > LINE_FLOATS ? TILE_PIXELS * VEC / LINE_FLOATS : 1)

/* Steps are in elements. */
typedef struct band_tile {
    const float *x; /* what the first tap of the first pixel meets; may lie outside */
    float *y;
    int64_t x_row, x_pixel, y_row, y_pixel;
    int64_t x_prefetch, y_prefetch;                       /* to the tile that is asked for */
    int64_t x_lines[2 * TILE_LINES], y_lines[TILE_LINES]; /* what a vector asks for of it */
    int64_t n_rows;
    int64_t first_row, end_row;     /* source rows inside the image, counted from x on */
    int64_t first_pixel, end_pixel; /* source columns */
    int64_t n_known;                /* columns that the tile before has summed */
    const float *w, *bias, *scale, *shift, *about;
    int64_t w_tap;
    float *sums, *squares;
    dunlin_view_fn fn;
    float low, high, y_low, y_high;
    bool is_half; /* the source holds bfloat16 */
    bool is_streamed;
    bool is_near; /* the source is asked for into the first cache */
} band_tile;

/* What goes on from row to row. */
typedef struct tile_state {
    vfloat w[TILE_TAPS * TILE_TAPS];
    vfloat scale, shift;
    vfloat sum, square;
} tile_state;

/* Pixels of the source that a tile's row meets. */
ALWAYS_INLINE int tile_columns(int stride)
{
    return (TILE_PIXELS - 1) * stride + TILE_TAPS;
}

/* One source row through the view, and the same of a later tile asked for. */
ALWAYS_INLINE void tile_load(const band_tile *tile, const tile_state *state, int64_t k, int stride,
                             bool is_inside, bool is_half, vfloat *x)
{
    const float *from = stored_at(tile->x, k * tile->x_row, is_half);
    const vfloat low = vset1(tile->low);
    const vfloat high = vset1(tile->high);
    UNROLL
    for (int i = 0; i < TILE_LINES * stride; i++) {
        prefetch_line((const char *)stored_at(from, tile->x_lines[i], is_half), tile->is_near);
    }
    UNROLL
    for (int q = 0; q < tile_columns(stride); q++) {
        x[q] = vzero();
        if (is_inside || (q >= tile->first_pixel && q < tile->end_pixel)) {
            const vfloat v = vload_stored(from, VEC, is_half);
            x[q] = vclip(vfma(v, state->scale, state->shift), low, high);
        }
        from = stored_at(from, tile->x_pixel, is_half);
    }
}

/* The products of a source row and one row of the kernel. */
ALWAYS_INLINE void tile_taps(const vfloat *x, const vfloat *w, int stride, vfloat *sum)
{
    UNROLL
    for (int j = 0; j < TILE_TAPS; j++) {
        UNROLL
        for (int p = 0; p < TILE_PIXELS; p++) {
            sum[p] = vfma(x[p * stride + j], w[j], sum[p]);
        }
    }
}

ALWAYS_INLINE void tile_begin(const band_tile *tile, vfloat *sum)
{
    const vfloat bias = vload(tile->bias);
    UNROLL
    for (int p = 0; p < TILE_PIXELS; p++) {
        sum[p] = bias;
    }
}

/* Row t is done: stored and summed. */
ALWAYS_INLINE void tile_end(const band_tile *tile, int64_t t, bool is_inside, vfloat *sum,
                            tile_state *state)
{
    float *y = tile->y + t * tile->y_row;
    const vfloat about = vload(tile->about);
    UNROLL
    for (int p = 0; p < TILE_PIXELS; p++) {
        sum[p] = vclip(sum[p], vset1(tile->y_low), vset1(tile->y_high));
    }
    if (tile->is_streamed) {
        UNROLL
        for (int p = 0; p < TILE_PIXELS; p++) {
            vstream(y + p * tile->y_pixel, sum[p]);
        }
    } else {
        UNROLL
        for (int i = 0; i < TILE_LINES; i++) {
            __builtin_prefetch(y + tile->y_lines[i], 1);
        }
        UNROLL
        for (int p = 0; p < TILE_PIXELS; p++) {
            vstore(y + p * tile->y_pixel, sum[p]);
        }
    }
    UNROLL
    for (int p = 0; p < TILE_PIXELS; p++) {
        if (is_inside || p >= tile->n_known) {
            const vfloat d = sum[p] - about;
            state->sum += d;
            state->square = vfma(d, d, state->square);
        }
    }
}

ALWAYS_INLINE bool tile_has_row(const band_tile *tile, int64_t k)
{
    return k >= tile->first_row && k < tile->end_row;
}

/* What a tile's code is made for: literals. */
typedef struct tile_kinds {
    bool is_inside; /* every column of it is */
    bool is_half;   /* its source holds bfloat16 */
} tile_kinds;

/* Stride 1, source row k; false after the last one. */
ALWAYS_INLINE bool tile_row(const band_tile *tile, int64_t k, tile_kinds kinds, tile_state *state,
                            vfloat *begun, vfloat *middle, vfloat *ended)
{
    if (k < tile->n_rows) {
        tile_begin(tile, begun);
    }
    if (tile_has_row(tile, k)) {
        vfloat x[TILE_PIXELS + TILE_TAPS - 1];
        tile_load(tile, state, k, 1, kinds.is_inside, kinds.is_half, x);
        if (k < tile->n_rows) {
            tile_taps(x, state->w, 1, begun);
        }
        if (k > 0 && k <= tile->n_rows) {
            tile_taps(x, state->w + TILE_TAPS, 1, middle);
        }
        if (k > 1) {
            tile_taps(x, state->w + 2 * TILE_TAPS, 1, ended);
        }
    }
    if (k > 1) {
        tile_end(tile, k - 2, kinds.is_inside, ended, state);
    }
    return k <= tile->n_rows;
}

/* Stride 2, source rows 2 t and 2 t + 1; false after the last. */
ALWAYS_INLINE bool tile_two_rows(const band_tile *tile, int64_t t, tile_kinds kinds,
                                 tile_state *state, vfloat *begun, vfloat *ended)
{
    vfloat x[(TILE_PIXELS - 1) * 2 + TILE_TAPS];
    const bool is_row = t < tile->n_rows;
    if (is_row) {
        tile_begin(tile, begun);
    }
    if (tile_has_row(tile, 2 * t)) {
        tile_load(tile, state, 2 * t, 2, kinds.is_inside, kinds.is_half, x);
        if (is_row) {
            tile_taps(x, state->w, 2, begun);
        }
        if (t > 0) {
            tile_taps(x, state->w + 2 * TILE_TAPS, 2, ended);
        }
    }
    if (t > 0) {
        tile_end(tile, t - 1, kinds.is_inside, ended, state);
    }
    if (is_row && tile_has_row(tile, 2 * t + 1)) {
        tile_load(tile, state, 2 * t + 1, 2, kinds.is_inside, kinds.is_half, x);
        tile_taps(x, state->w + TILE_TAPS, 2, begun);
    }
    return is_row;
}

/* The tile is a copy: what is stored might be part of another, for all the compiler knows. */
ALWAYS_INLINE void tile_run(const band_tile tile, int stride, tile_kinds kinds)
{
    tile_state state = {.scale = vload(tile.scale),
                        .shift = vload(tile.shift),
                        .sum = vload(tile.sums),
                        .square = vload(tile.squares)};
    UNROLL
    for (int i = 0; i < TILE_TAPS * TILE_TAPS; i++) {
        state.w[i] = vload(tile.w + i * tile.w_tap);
    }
    vfloat a[TILE_PIXELS];
    vfloat b[TILE_PIXELS];
    vfloat c[TILE_PIXELS];
    tile_begin(&tile, a);
    tile_begin(&tile, b);
    tile_begin(&tile, c);
    bool is_more = true;
    for (int64_t k = 0; is_more && stride == 1; k += 3) {
        is_more = tile_row(&tile, k, kinds, &state, a, b, c) &&
                  tile_row(&tile, k + 1, kinds, &state, c, a, b) &&
                  tile_row(&tile, k + 2, kinds, &state, b, c, a);
    }
    for (int64_t t = 0; is_more && stride == 2; t += 2) {
        is_more = tile_two_rows(&tile, t, kinds, &state, a, b) &&
                  tile_two_rows(&tile, t + 1, kinds, &state, b, a);
    }
    vstore(tile.sums, state.sum);
    vstore(tile.squares, state.square);
}

/*
 * Where vector c's share of a tile's lines lies: pixel by pixel, all of a pixel's lines one after
 * the other. Memory gives them half as fast again as lines that are pixels apart.
 */
ALWAYS_INLINE void tile_lines(int64_t c, int64_t n_channels, int64_t pixel, int64_t prefetch, int n,
                              int64_t *out_lines)
{
    const int64_t of_pixel = ceil_div(n_channels, LINE_FLOATS);
    const int64_t first = c / VEC * n;
    int64_t line = first % of_pixel;
    int64_t at = prefetch + first / of_pixel * pixel;
    for (int i = 0; i < n; i++) {
        out_lines[i] = at + line * LINE_FLOATS - c;
        if (++line == of_pixel) {
            line = 0;
            at += pixel;
        }
    }
}

#define TILE_MOST_ROWS 18 /* of the source */
#define TILE_MOST_COLUMNS 9

/* The source of a tile whose view is no clip, made into `room`. Apart, so that the tile stays in
 * registers. */
static __attribute__((noinline)) void tile_activate(const band_tile *whole, const float *x,
                                                    const int64_t *lines, int64_t c, int stride,
                                                    float *room)
{
    const int64_t columns = tile_columns(stride);
    const int64_t n_rows = (whole->n_rows - 1) * stride + TILE_TAPS;
    const activation_block block = {.fn = whole->fn,
                                    .x = x,
                                    .row = whole->x_row,
                                    .pixel = whole->x_pixel,
                                    .first_row = whole->first_row,
                                    .end_row = min_i64(whole->end_row, n_rows),
                                    .first_pixel = whole->first_pixel,
                                    .end_pixel = min_i64(whole->end_pixel, columns),
                                    .n_pixels = columns,
                                    .scale = whole->scale + c,
                                    .shift = whole->shift + c,
                                    .values = room,
                                    .is_half = whole->is_half,
                                    .lines = lines,
                                    .n_lines = TILE_LINES * stride,
                                    .is_near = whole->is_near};
    K(activation_block)(&block);
}

/* The tile's columns, all vectors of channels. `is_half`: what the tile reads holds bfloat16, and
 * not floats that have been made of it. */
ALWAYS_INLINE void tile_span(const band_tile *first, int64_t n_channels, int stride, bool is_inside,
                             bool is_half)
{
    float plain[2 * VEC]; /* a scale of 1, a shift of 0 */
    float room[TILE_MOST_ROWS * TILE_MOST_COLUMNS * VEC];
    vstore(plain, vset1(1.0F));
    vstore(plain + VEC, vzero());
    for (int64_t c = 0; c < n_channels; c += VEC) {
        band_tile tile = *first;
        tile_lines(c, n_channels, tile.x_pixel, tile.x_prefetch, TILE_LINES * stride, tile.x_lines);
        tile_lines(c, n_channels, tile.y_pixel, tile.y_prefetch, TILE_LINES, tile.y_lines);
        tile.x = stored_at(tile.x, c, first->is_half);
        tile.y += c;
        tile.w += c;
        tile.bias += c;
        tile.scale += c;
        tile.shift += c;
        tile.about += c;
        tile.sums += c;
        tile.squares += c;
        if (tile.fn != DUNLIN_VIEW_CLIP) {
            int64_t lines[2 * TILE_LINES];
            UNROLL
            for (int i = 0; i < TILE_LINES * stride; i++) {
                lines[i] = tile.x_lines[i];
                tile.x_lines[i] = 0;
            }
            tile_activate(first, tile.x, lines, c, stride, room);
            tile.x = room;
            tile.x_row = (int64_t)tile_columns(stride) * VEC;
            tile.x_pixel = VEC;
            tile.scale = plain;
            tile.shift = plain + VEC;
        }
        tile_run(tile, stride, (tile_kinds){is_inside, is_half});
    }
}

static __attribute__((noinline)) void tile_halves(const band_tile *tile, int64_t n_channels,
                                                  int64_t stride, bool is_inside)
{
    if (stride == 1 && is_inside) {
        tile_span(tile, n_channels, 1, true, true);
    } else if (stride == 1) {
        tile_span(tile, n_channels, 1, false, true);
    } else if (is_inside) {
        tile_span(tile, n_channels, 2, true, true);
    } else {
        tile_span(tile, n_channels, 2, false, true);
    }
}

static inline void tile_all(const band_tile *tile, int64_t n_channels, int64_t stride)
{
    const bool is_inside = tile->n_known == 0 && tile->first_pixel == 0 &&
                           tile->end_pixel >= tile_columns((int)stride);
    if (tile->is_half && tile->fn == DUNLIN_VIEW_CLIP) {
        tile_halves(tile, n_channels, stride, is_inside);
    } else if (stride == 1 && is_inside) {
        tile_span(tile, n_channels, 1, true, false);
    } else if (stride == 1) {
        tile_span(tile, n_channels, 1, false, false);
    } else if (is_inside) {
        tile_span(tile, n_channels, 2, true, false);
    } else {
        tile_span(tile, n_channels, 2, false, false);
    }
}

#endif
