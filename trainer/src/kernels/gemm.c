/*
 * gemm.c - C from A and packed panels of B, by tiles held in registers; A is
 * read where it lies, in runs of consecutive depth.
 *
 * Each element of C is one chain of vfma() over k, whatever tile it falls into:
 * small tiles at the edge run the same loop. Design after Goto and van de
 * Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
 */
#include "isa.h"

typedef struct tile_call {
    const float *const *a_rows; /* row form */
    const float *a;             /* column form */
    int64_t a_pitch;
    const gemm_run *runs;
    int64_t n_runs;
    const float *b;
    int64_t b_pitch; /* B as it lies */
    float *const *c_rows;
    int64_t column;
    const float *bias; /* at the tile's first column */
    int32_t n_last;    /* columns of the last vector */
    gemm_start start;
    bool is_clipped;
    float low, high;
    const char *ahead; /* asked for, a line a step */
    int64_t ahead_step;
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
    if (call->is_clipped) {
        value = vclip(value, vset1(call->low), vset1(call->high));
    }
    vstore_n(c, call->start == GEMM_ADD ? vload_n(c, n) + value : value, n);
}

/* A by rows and B packed; A by columns and B packed; A by rows and B as it
 * lies. */
enum { FORM_ROWS = 0, FORM_COLUMNS, FORM_THIN };

ALWAYS_INLINE vfloat tile_right(const tile_call *call, const float *b, int j, int vectors, int form)
{
    if (form == FORM_THIN && j == vectors - 1) {
        return vload_n(b + j * VEC, call->n_last);
    }
    return vload(b + j * VEC);
}

/* One step of depth: left[i] is A's element of row i. */
#define TILE_STEP(left)                                                                            \
    do {                                                                                           \
        vfloat right[TILE_VECTORS];                                                                \
        UNROLL                                                                                     \
        for (int j = 0; j < vectors; j++) {                                                        \
            right[j] = tile_right(call, b, j, vectors, form);                                      \
        }                                                                                          \
        __builtin_prefetch(b + PREFETCH_B);                                                        \
        if (vectors * VEC > 16) {                                                                  \
            __builtin_prefetch(b + PREFETCH_B + 16);                                               \
        }                                                                                          \
        if (vectors * VEC > 32) {                                                                  \
            __builtin_prefetch(b + PREFETCH_B + 32);                                               \
        }                                                                                          \
        __builtin_prefetch(ahead, 0, 2);                                                           \
        ahead += ahead_step;                                                                       \
        UNROLL                                                                                     \
        for (int i = 0; i < rows; i++) {                                                           \
            const vfloat spread = vset1(left);                                                     \
            UNROLL                                                                                 \
            for (int j = 0; j < vectors; j++) {                                                    \
                sum[i][j] = vfma(spread, right[j], sum[i][j]);                                     \
            }                                                                                      \
        }                                                                                          \
        b += form == FORM_THIN ? call->b_pitch : vectors * VEC;                                    \
    } while (0)

/* Inlined with literal sizes, so that `sum` lives in registers. */
// NOLINTNEXTLINE(readability-function-size): loops unrolled by a macro count as nesting
ALWAYS_INLINE void tile(const tile_call *call, int rows, int vectors, int form)
{
    vfloat sum[TILE_ROWS][TILE_VECTORS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = tile_first(call, i, j, vectors);
        }
    }
    const float *b = call->b;
    const char *ahead = call->ahead;
    const int64_t ahead_step = call->ahead_step;
    for (int64_t r = 0; r < call->n_runs; r++) {
        const int64_t n = call->runs[r].n;
        if (form == FORM_COLUMNS) {
            const float *a = call->a + call->runs[r].offset;
            const int64_t a_pitch = call->a_pitch;
            for (int64_t k = 0; k < n; k++) {
                __builtin_prefetch(a + 8 * a_pitch);
                TILE_STEP(a[i]);
                a += a_pitch;
            }
        } else {
            const float *a[TILE_ROWS];
            UNROLL
            for (int i = 0; i < rows; i++) {
                a[i] = call->a_rows[i] + call->runs[r].offset;
            }
            for (int64_t k = 0; k < n; k++) {
                TILE_STEP(a[i][k]);
            }
        }
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
        tile(call, rows, vectors, FORM_ROWS);                                                      \
    }                                                                                              \
    static void tile_column_##rows##x##vectors(const tile_call *call)                              \
    {                                                                                              \
        tile(call, rows, vectors, FORM_COLUMNS);                                                   \
    }                                                                                              \
    static void tile_thin_##rows##x##vectors(const tile_call *call)                                \
    {                                                                                              \
        tile(call, rows, vectors, FORM_THIN);                                                      \
    }
#define TILE_FORMS(rows, vectors)                                                                  \
    {                                                                                              \
        tile_row_##rows##x##vectors, tile_column_##rows##x##vectors, tile_thin_##rows##x##vectors  \
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
static const tile_fn tiles[TILE_VECTORS][4][3] = {
#if TILE_ROWS == 8
    {TILE_FORMS(1, 1), TILE_FORMS(2, 1), TILE_FORMS(4, 1), TILE_FORMS(8, 1)},
    {TILE_FORMS(1, 2), TILE_FORMS(2, 2), TILE_FORMS(4, 2), TILE_FORMS(8, 2)},
#else
    {TILE_FORMS(1, 1), TILE_FORMS(2, 1), TILE_FORMS(4, 1), TILE_FORMS(6, 1)},
    {TILE_FORMS(1, 2), TILE_FORMS(2, 2), TILE_FORMS(4, 2), TILE_FORMS(6, 2)},
#endif
#if TILE_VECTORS == 3
    {TILE_FORMS(1, 3), TILE_FORMS(2, 3), TILE_FORMS(4, 3), TILE_FORMS(8, 3)},
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
    const int form = block->a_rows == NULL ? FORM_COLUMNS
                     : block->b_pitch != 0 ? FORM_THIN
                                           : FORM_ROWS;
    int64_t column = 0;
    const float *b = block->b;
    while (column < block->n) {
        int32_t vectors = panel_vectors(ceil_div(block->n - column, VEC));
        tile_call call = {.a_pitch = block->a_pitch,
                          .runs = block->runs,
                          .n_runs = block->n_runs,
                          .b = b,
                          .b_pitch = block->b_pitch,
                          .column = column,
                          .bias = block->bias == NULL ? NULL : block->bias + column,
                          .n_last = vec_left(block->n, column + (int64_t)(vectors - 1) * VEC),
                          .start = block->start,
                          .is_clipped = block->is_clipped,
                          .low = block->low,
                          .high = block->high};
        int64_t rows = 0;
        for (int64_t i = 0; i < block->m; i += rows) {
            int height = tile_height(block->m - i, &rows);
            if (form == FORM_COLUMNS) {
                call.a = block->a + i / LANES * block->lane_pitch + i % LANES;
            } else {
                call.a_rows = block->a_rows + i;
            }
            call.c_rows = block->c_rows + i;
            const char *ahead = ahead_take(block->ahead, block->k);
            call.ahead = ahead == NULL ? (const char *)b : ahead;
            call.ahead_step = ahead == NULL ? 0 : LINE_BYTES;
            tiles[vectors - 1][height][form](&call);
        }
        column += (int64_t)vectors * VEC;
        b += form == FORM_THIN ? (int64_t)vectors * VEC : block->k * vectors * VEC;
    }
}
