/*
 * winograd.h - 3 x 3 windows with 16 multiplications instead of 36 for each 2 x 2 outputs: the
 * algorithm F(2 x 2, 3 x 3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"
 * (CVPR 2016), section 4.1, as y = A^T [(G g G^T) * (B^T d B)] A.
 *
 * A tile is 4 x 4 source pixels d and 2 x 2 outputs y; the 16 elements between the transforms are
 * its points. These are the transforms of a line of tiles, one vector of channels at a time.
 */
#ifndef DUNLIN_KERNELS_WINOGRAD_H
#define DUNLIN_KERNELS_WINOGRAD_H

#include "kernels/conv/conv_engines.h"

#define WINO_POINTS 16
#define WINO_SIDE 4

/* --- B^T d B --- */

/* A column of d: its four pixels lie `line` floats apart. */
ALWAYS_INLINE void wino_column(const float *from, int64_t line, int32_t n, vfloat *out)
{
    const vfloat d0 = vload_n(from, n);
    const vfloat d1 = vload_n(from + line, n);
    const vfloat d2 = vload_n(from + 2 * line, n);
    const vfloat d3 = vload_n(from + 3 * line, n);
    out[0] = d0 - d2;
    out[1] = d1 + d2;
    out[2] = d2 - d1;
    out[3] = d1 - d3;
}

/* Tiles of a line, as they lie in the strip and as the products read them. */
typedef struct wino_line {
    const float *from;
    int64_t pitch, line; /* floats from pixel to pixel, from line to line */
    float *to;
    int64_t to_pitch, point; /* floats from tile to tile, from point to point */
    int64_t n_tiles;
} wino_line;

ALWAYS_INLINE void wino_source(const wino_line *run, int64_t c, int32_t n)
{
    const int64_t pitch = run->pitch;
    const int64_t line = run->line;
    const int64_t point = run->point;
    const float *from = run->from + c;
    float *to = run->to + c;
    vfloat a[WINO_SIDE];
    vfloat b[WINO_SIDE];
    wino_column(from, line, n, a);
    wino_column(from + pitch, line, n, b);
    for (int64_t t = 0; t < run->n_tiles; t++) {
        vfloat e[WINO_SIDE];
        vfloat f[WINO_SIDE];
        from += 2 * pitch;
        wino_column(from, line, n, e);
        wino_column(from + pitch, line, n, f);
        UNROLL
        for (int i = 0; i < WINO_SIDE; i++) {
            float *row = to + (ptrdiff_t)i * WINO_SIDE * point;
            vstore(row, a[i] - e[i]);
            vstore(row + point, b[i] + e[i]);
            vstore(row + 2 * point, e[i] - b[i]);
            vstore(row + 3 * point, b[i] - f[i]);
            a[i] = e[i];
            b[i] = f[i];
        }
        to += run->to_pitch;
    }
}

/* Lines of tiles, one below the other, all their channels. */
static inline void wino_lines(wino_line run, int64_t n_lines, int64_t channels)
{
    for (int64_t t = 0; t < n_lines; t++) {
        int64_t c = 0;
        for (; c + VEC <= channels; c += VEC) {
            wino_source(&run, c, VEC);
        }
        if (c < channels) {
            wino_source(&run, c, (int32_t)(channels - c));
        }
        run.from += 2 * run.line;
        run.to += run.n_tiles * run.to_pitch;
    }
}

/* --- A^T m A --- */

typedef struct wino_out {
    const float *from; /* of a tile's first point */
    int64_t point;
    float *rows[4];    /* of the tile's pixels; NULL: outside the grid */
    const float *bias; /* NULL: none */
    bool is_clipped;
    float low, high;
} wino_out;

ALWAYS_INLINE void wino_store(const wino_out *tile, int pixel, int64_t c, int32_t n, vfloat v)
{
    if (tile->rows[pixel] == NULL) {
        return;
    }
    if (tile->bias != NULL) {
        v += vload_n(tile->bias + c, n);
    }
    if (tile->is_clipped) {
        v = vclip(v, vset1(tile->low), vset1(tile->high));
    }
    vstore_n(tile->rows[pixel] + c, v, n);
}

ALWAYS_INLINE void wino_output(const wino_out *tile, int64_t c, int32_t n)
{
    const int64_t point = tile->point;
    const float *from = tile->from + c;
    vfloat top[WINO_SIDE];
    vfloat bottom[WINO_SIDE];
    UNROLL
    for (int j = 0; j < WINO_SIDE; j++) {
        const vfloat m0 = vload(from + j * point);
        const vfloat m1 = vload(from + (j + WINO_SIDE) * point);
        const vfloat m2 = vload(from + (j + 2 * WINO_SIDE) * point);
        const vfloat m3 = vload(from + (j + 3 * WINO_SIDE) * point);
        top[j] = m0 + m1 + m2;
        bottom[j] = m1 - m2 - m3;
    }
    wino_store(tile, 0, c, n, top[0] + top[1] + top[2]);
    wino_store(tile, 1, c, n, top[1] - top[2] - top[3]);
    wino_store(tile, 2, c, n, bottom[0] + bottom[1] + bottom[2]);
    wino_store(tile, 3, c, n, bottom[1] - bottom[2] - bottom[3]);
}

/* --- G g G^T --- */

/* g's nine elements into 16; `step` floats from one point to the next. */
ALWAYS_INLINE void wino_weights(const float *const *taps, int64_t c, int32_t n, float *to,
                                int64_t step)
{
    const vfloat half = vset1(0.5f);
    vfloat rows[WINO_SIDE][3];
    UNROLL
    for (int j = 0; j < 3; j++) {
        const vfloat g0 = vload_n(taps[j] + c, n);
        const vfloat g1 = vload_n(taps[3 + j] + c, n);
        const vfloat g2 = vload_n(taps[6 + j] + c, n);
        rows[0][j] = g0;
        rows[1][j] = half * (g0 + g1 + g2);
        rows[2][j] = half * (g0 - g1 + g2);
        rows[3][j] = g2;
    }
    UNROLL
    for (int i = 0; i < WINO_SIDE; i++) {
        float *row = to + (ptrdiff_t)i * WINO_SIDE * step;
        vstore(row, rows[i][0]);
        vstore(row + step, half * (rows[i][0] + rows[i][1] + rows[i][2]));
        vstore(row + 2 * step, half * (rows[i][0] - rows[i][1] + rows[i][2]));
        vstore(row + 3 * step, rows[i][2]);
    }
}

/* --- A e A^T --- */

/* A line of the gradient's tiles, 2 x 2 pixels each, to points that are rows of packed B. */
ALWAYS_INLINE void wino_gradient(const wino_line *run, int64_t c, int32_t n, float *to)
{
    const float *from = run->from + c;
    const int64_t point = run->point;
    for (int64_t t = 0; t < run->n_tiles; t++) {
        vfloat left[WINO_SIDE];
        vfloat right[WINO_SIDE];
        left[0] = vload_n(from, n);
        left[3] = vload_n(from + run->line, n);
        right[0] = vload_n(from + run->pitch, n);
        right[3] = vload_n(from + run->line + run->pitch, n);
        left[1] = left[0] + left[3];
        left[2] = left[0] - left[3];
        left[3] = -left[3];
        right[1] = right[0] + right[3];
        right[2] = right[0] - right[3];
        right[3] = -right[3];
        UNROLL
        for (int i = 0; i < WINO_SIDE; i++) {
            float *row = to + (ptrdiff_t)i * WINO_SIDE * point;
            vstore(row, left[i]);
            vstore(row + point, left[i] + right[i]);
            vstore(row + 2 * point, left[i] - right[i]);
            vstore(row + 3 * point, -right[i]);
        }
        from += 2 * run->pitch;
        to += run->to_pitch;
    }
}

/* --- G^T u G --- */

/* 16 points into the nine elements of dw, `tap` floats apart. */
ALWAYS_INLINE void wino_add_weights(const float *from, int64_t point, float *dw, int64_t tap,
                                    int32_t n, bool is_first)
{
    const vfloat half = vset1(0.5f);
    vfloat rows[3][WINO_SIDE];
    UNROLL
    for (int j = 0; j < WINO_SIDE; j++) {
        const vfloat u0 = vload(from + j * point);
        const vfloat u1 = vload(from + (j + WINO_SIDE) * point);
        const vfloat u2 = vload(from + (j + 2 * WINO_SIDE) * point);
        const vfloat u3 = vload(from + (j + 3 * WINO_SIDE) * point);
        const vfloat sum = half * (u1 + u2);
        rows[0][j] = u0 + sum;
        rows[1][j] = half * (u1 - u2);
        rows[2][j] = sum + u3;
    }
    UNROLL
    for (int i = 0; i < 3; i++) {
        const vfloat sum = half * (rows[i][1] + rows[i][2]);
        const vfloat out[3] = {rows[i][0] + sum, half * (rows[i][1] - rows[i][2]),
                               sum + rows[i][3]};
        UNROLL
        for (int j = 0; j < 3; j++) {
            float *to = dw + (ptrdiff_t)(3 * i + j) * tap;
            vstore_n(to, is_first ? out[j] : vload_n(to, n) + out[j], n);
        }
    }
}

/* --- passes --- */

/* A convolution's axis as one of tiles: windows of so many pixels, two apart. */
static inline conv_axis wino_axis(int32_t n_grid, int32_t n_source, int32_t offset, int32_t n_taps)
{
    const int32_t n = (n_grid + 1) / 2;
    return (conv_axis){.n_grid = n,
                       .n_source = n_source,
                       .n_taps = n_taps,
                       .step = 2,
                       .offset = offset,
                       .pitch = 1,
                       .tap_step = 1,
                       .n_out = n,
                       .out_step = 1};
}

/* Where the tiles of a piece begin: in the source or in the strip, which is written then. */
const float *K(winograd_strip)(strip_layout *layout, const grid_piece *piece, float *strip);

/* Shapes whose map is made so. */
bool K(winograd_is_for)(const dunlin_conv_shape *shape, bool is_input_grad);
int64_t K(winograd_units)(const dunlin_conv_shape *shape, bool is_input_grad);
uint64_t K(winograd_bytes)(const dunlin_conv_shape *shape, bool is_input_grad, size_t n_threads);
void K(winograd_run)(const map_pass *pass, bool is_input_grad);

/* The same of the weights' and the bias's gradients. */
bool K(winograd_reduce_is_for)(const dunlin_conv_shape *shape);
uint64_t K(winograd_reduce_bytes)(const dunlin_conv_shape *shape, size_t n_threads);
void K(winograd_reduce_run)(const dunlin_fused_call *call, float *workspace);

#endif
