/*
 * gemm.c - C from A and packed panels of B, by tiles held in registers.
 *
 * Each element of C is one chain of vfma() over k, whatever tile it falls into: small tiles at the
 * edge run the same loop. Design after Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication" (2008), with A read in place.
 */
#include "isa.h"

typedef struct tile_call {
    const float *a;
    int64_t a_pitch;
    const float *b;
    int64_t k;
    float *const *c_rows;
    int64_t column;
    const float *bias; /* at the tile's first column */
    int32_t n_last;    /* columns of the last vector */
    gemm_start start;
} tile_call;

typedef void (*tile_fn)(const tile_call *call);

ALWAYS_INLINE vfloat tile_first(const tile_call *call, int row, int j, int vectors)
{
    int32_t n = j == vectors - 1 ? call->n_last : VEC;
    switch (call->start) {
    case GEMM_BIAS:
        return vload_n(call->bias + j * VEC, n);
    case GEMM_CHAIN:
        return vload_n(call->c_rows[row] + call->column + j * VEC, n);
    case GEMM_ZERO:
    case GEMM_ADD:
        break;
    }
    return vzero();
}

ALWAYS_INLINE void tile_last(const tile_call *call, int row, int j, int vectors, vfloat value)
{
    int32_t n = j == vectors - 1 ? call->n_last : VEC;
    float *c = call->c_rows[row] + call->column + j * VEC;
    vstore_n(c, call->start == GEMM_ADD ? vload_n(c, n) + value : value, n);
}

/* Inlined with literal sizes, so that `sum` lives in registers. */
ALWAYS_INLINE void tile(const tile_call *call, int rows, int vectors, bool is_column_form)
{
    vfloat sum[TILE_ROWS][TILE_VECTORS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = tile_first(call, i, j, vectors);
        }
    }
    const float *a = call->a;
    const float *b = call->b;
    const int64_t pitch = call->a_pitch;
    for (int64_t k = 0; k < call->k; k++) {
        vfloat right[TILE_VECTORS];
        UNROLL
        for (int j = 0; j < vectors; j++) {
            right[j] = vload(b + j * VEC);
        }
        UNROLL
        for (int i = 0; i < rows; i++) {
            vfloat left = vset1(is_column_form ? a[i] : a[i * pitch]);
            UNROLL
            for (int j = 0; j < vectors; j++) {
                sum[i][j] = vfma(left, right[j], sum[i][j]);
            }
        }
        a += is_column_form ? pitch : 1;
        b += vectors * VEC;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            tile_last(call, i, j, vectors, sum[i][j]);
        }
    }
}

#define TILE(rows, vectors)                                                                        \
    static void tile_row_##rows##x##vectors(const tile_call *call)                                 \
    {                                                                                              \
        tile(call, rows, vectors, false);                                                          \
    }                                                                                              \
    static void tile_column_##rows##x##vectors(const tile_call *call)                              \
    {                                                                                              \
        tile(call, rows, vectors, true);                                                           \
    }
#define TILE_PAIR(rows, vectors)                                                                   \
    {                                                                                              \
        tile_row_##rows##x##vectors, tile_column_##rows##x##vectors                                \
    }

TILE(1, 1)
TILE(2, 1)
TILE(4, 1)
TILE(1, 2)
TILE(2, 2)
TILE(4, 2)
#if TILE_ROWS == 8
TILE(8, 1)
TILE(8, 2)
#else
TILE(6, 1)
TILE(6, 2)
#endif
#if TILE_VECTORS == 3
TILE(1, 3)
TILE(2, 3)
TILE(4, 3)
TILE(8, 3)
#endif

/* By vectors - 1, by height (1, 2, 4, TILE_ROWS), by form. */
static const tile_fn tiles[TILE_VECTORS][4][2] = {
#if TILE_ROWS == 8
    {TILE_PAIR(1, 1), TILE_PAIR(2, 1), TILE_PAIR(4, 1), TILE_PAIR(8, 1)},
    {TILE_PAIR(1, 2), TILE_PAIR(2, 2), TILE_PAIR(4, 2), TILE_PAIR(8, 2)},
#else
    {TILE_PAIR(1, 1), TILE_PAIR(2, 1), TILE_PAIR(4, 1), TILE_PAIR(6, 1)},
    {TILE_PAIR(1, 2), TILE_PAIR(2, 2), TILE_PAIR(4, 2), TILE_PAIR(6, 2)},
#endif
#if TILE_VECTORS == 3
    {TILE_PAIR(1, 3), TILE_PAIR(2, 3), TILE_PAIR(4, 3), TILE_PAIR(8, 3)},
#endif
};

/* The highest tile that `left` rows fill. */
static int tile_height(int64_t left, int64_t *out_rows)
{
    if (left >= TILE_ROWS) {
        *out_rows = TILE_ROWS;
        return 3;
    }
    int height = left >= 4 ? 2 : left >= 2 ? 1 : 0;
    *out_rows = (int64_t)1 << height;
    return height;
}

void K(gemm)(const gemm_block *block)
{
    const int form = block->is_column_form ? 1 : 0;
    const int64_t row_step = block->is_column_form ? 1 : block->a_pitch;
    int64_t column = 0;
    const float *b = block->b;
    while (column < block->n) {
        int32_t vectors = panel_vectors(ceil_div(block->n - column, VEC));
        tile_call call = {.a_pitch = block->a_pitch,
                          .b = b,
                          .k = block->k,
                          .column = column,
                          .bias = block->bias == NULL ? NULL : block->bias + column,
                          .n_last = vec_left(block->n, column + (int64_t)(vectors - 1) * VEC),
                          .start = block->start};
        int64_t rows = 0;
        for (int64_t i = 0; i < block->m; i += rows) {
            int height = tile_height(block->m - i, &rows);
            call.a = block->a + i * row_step;
            call.c_rows = block->c_rows + i;
            tiles[vectors - 1][height][form](&call);
        }
        column += (int64_t)vectors * VEC;
        b += block->k * vectors * VEC;
    }
}
