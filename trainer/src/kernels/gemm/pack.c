/*
 * pack.c - packs B into panels of whole vectors, as it lies or transposed.
 *
 * Every panel element is written, padding as zero, so no panel remembers an earlier one.
 */
#include "gemm.h"

#define PACK_ROWS 8 /* of B: whole rows, so that memory is read in its order */

/* Some rows of B, the columns of one panel. */
ALWAYS_INLINE void pack_panel(const float *from, int64_t pitch, int64_t rows, int32_t n_last,
                              float *out, int vectors)
{
    for (int64_t i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors - 1; j++) {
            __builtin_prefetch(from + PACK_ROWS * pitch + j * VEC);
            vstore(out + j * VEC, vload(from + j * VEC));
        }
        __builtin_prefetch(from + PACK_ROWS * pitch + (vectors - 1) * VEC);
        vstore(out + (vectors - 1) * VEC, vload_n(from + (vectors - 1) * VEC, n_last));
        out += vectors * VEC;
        from += pitch;
    }
}

void K(pack_b)(const float *b, int64_t pitch, int64_t k, int64_t n, float *out)
{
    for (int64_t i = 0; i < k; i += PACK_ROWS) {
        const int64_t rows = min_i64(PACK_ROWS, k - i);
        int64_t column = 0;
        while (column < n) {
            const int32_t vectors = panel_vectors(ceil_div(n - column, VEC));
            const int32_t n_last = vec_left(n, column + (int64_t)(vectors - 1) * VEC);
            const float *from = b + i * pitch + column;
            float *to = out + column * k + i * vectors * VEC;
            if (vectors == TILE_VECTORS) {
                pack_panel(from, pitch, rows, n_last, to, TILE_VECTORS);
            } else {
                pack_panel(from, pitch, rows, n_last, to, vectors);
            }
            column += (int64_t)vectors * VEC;
        }
    }
}

typedef float quad __attribute__((vector_size(16)));
typedef float quad_unaligned __attribute__((vector_size(16), aligned(4), may_alias));

/* to[j * to_pitch + i] = from[i * from_pitch + j], 4 x 4. */
ALWAYS_INLINE void turn_quad(const float *from, int64_t from_pitch, float *to, int64_t to_pitch)
{
    quad a = *(const quad_unaligned *)from;
    quad b = *(const quad_unaligned *)(from + from_pitch);
    quad c = *(const quad_unaligned *)(from + 2 * from_pitch);
    quad d = *(const quad_unaligned *)(from + 3 * from_pitch);
    quad ac_low = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    quad ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    quad bd_low = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    quad bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    *(quad_unaligned *)to = __builtin_shufflevector(ac_low, bd_low, 0, 4, 1, 5);
    *(quad_unaligned *)(to + to_pitch) = __builtin_shufflevector(ac_low, bd_low, 2, 6, 3, 7);
    *(quad_unaligned *)(to + 2 * to_pitch) = __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5);
    *(quad_unaligned *)(to + 3 * to_pitch) = __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7);
}

#if VEC == 16
#define TURN_LOW(a, b)                                                                             \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define TURN_HIGH(a, b)                                                                            \
    __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)

typedef float octet __attribute__((vector_size(32)));

ALWAYS_INLINE vfloat four_quads(const float *from, int64_t step)
{
    const octet low =
        __builtin_shufflevector(*(const quad_unaligned *)from,
                                *(const quad_unaligned *)(from + step), 0, 1, 2, 3, 4, 5, 6, 7);
    const octet high =
        __builtin_shufflevector(*(const quad_unaligned *)(from + 2 * step),
                                *(const quad_unaligned *)(from + 3 * step), 0, 1, 2, 3, 4, 5, 6, 7);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* A vector of rows by 4 columns: the same moves in each quarter, which holds 4 of the rows. */
ALWAYS_INLINE void turn_vector(const float *from, int64_t from_pitch, float *to, int64_t to_pitch)
{
    const vfloat a = four_quads(from, 4 * from_pitch);
    const vfloat b = four_quads(from + from_pitch, 4 * from_pitch);
    const vfloat c = four_quads(from + 2 * from_pitch, 4 * from_pitch);
    const vfloat d = four_quads(from + 3 * from_pitch, 4 * from_pitch);
    const vfloat ac_low = TURN_LOW(a, c);
    const vfloat ac_high = TURN_HIGH(a, c);
    const vfloat bd_low = TURN_LOW(b, d);
    const vfloat bd_high = TURN_HIGH(b, d);
    vstore(to, TURN_LOW(ac_low, bd_low));
    vstore(to + to_pitch, TURN_HIGH(ac_low, bd_low));
    vstore(to + 2 * to_pitch, TURN_LOW(ac_high, bd_high));
    vstore(to + 3 * to_pitch, TURN_HIGH(ac_high, bd_high));
}
#endif

void K(transpose_block)(const float *from, int64_t from_pitch, int64_t rows, int64_t columns,
                        float *to, int64_t to_pitch)
{
    if (rows < 4 || columns < 4) {
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < columns; j++) {
                to[j * to_pitch + i] = from[i * from_pitch + j];
            }
        }
        return;
    }
    int64_t done = 0;
#if VEC == 16
    for (; done + VEC <= rows; done += VEC) {
        for (int64_t j = 0; j < columns; j += 4) {
            const int64_t column = min_i64(j, columns - 4);
            /* a line of the next rows, one row after the other */
            __builtin_prefetch(from + (done + VEC + j / 4 % 4) * from_pitch + j);
            __builtin_prefetch(from + (done + VEC + 4 + j / 4 % 4) * from_pitch + j);
            __builtin_prefetch(from + (done + VEC + 8 + j / 4 % 4) * from_pitch + j);
            __builtin_prefetch(from + (done + VEC + 12 + j / 4 % 4) * from_pitch + j);
            turn_vector(from + done * from_pitch + column, from_pitch,
                        to + column * to_pitch + done, to_pitch);
        }
    }
#endif
    /* The last four go over some that are done. */
    for (int64_t i = done; i < rows; i += 4) {
        const int64_t row = min_i64(i, rows - 4);
        for (int64_t j = 0; j < columns; j += 4) {
            const int64_t column = min_i64(j, columns - 4);
            /* a line of the next four rows, one row after the other */
            __builtin_prefetch(from + (row + 4 + j / 4 % 4) * from_pitch + j);
            turn_quad(from + row * from_pitch + column, from_pitch, to + column * to_pitch + row,
                      to_pitch);
        }
    }
}

void K(pack_b_transposed)(const float *b, int64_t pitch, int64_t n, int64_t k, int64_t first_k,
                          int64_t panel_k, float *out)
{
    int64_t column = 0;
    while (column < n) {
        const int64_t width = (int64_t)panel_vectors(ceil_div(n - column, VEC)) * VEC;
        const int64_t used = min_i64(width, n - column);
        float *to = out + first_k * width;
        K(transpose_block)(b + column * pitch, pitch, used, k, to, width);
        for (int64_t i = 0; used < width && i < k; i++) {
            for (int64_t j = used; j < width; j++) {
                to[i * width + j] = 0.0f;
            }
        }
        column += width;
        out += panel_k * width;
    }
}
