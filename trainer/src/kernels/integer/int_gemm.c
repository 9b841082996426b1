/*
 * int_gemm.c - the tiles of integer products: INT_ROWS rows by INT_VECTORS vectors of columns, all
 * of the depth in registers.
 */
#include "int_gemm.h"

typedef struct int_tile_call {
    const dot_a *a;
    int64_t row_step, group_step;
    const dot_b *b;
    const int32_t *start;
    int64_t groups;
    int32_t *out; /* rows INT_WIDTH apart */
} int_tile_call;

/* In row form a group of a row follows the other, in column form the rows of a group do. */
ALWAYS_INLINE void int_tile(const int_tile_call *call, int rows, int vectors, bool is_row_form)
{
    const int64_t row_step = is_row_form ? call->row_step : DOT_GROUP;
    const int64_t group_step = is_row_form ? DOT_GROUP : call->group_step;
    const dot_a *a = call->a;
    const dot_b *b = call->b;
    vint sums[INT_ROWS][INT_VECTORS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            sums[i][j] = vint_load(call->start + j * VEC);
        }
    }
    for (int64_t k = 0; k < call->groups; k++) {
        vdot_operand columns[INT_VECTORS];
        UNROLL
        for (int j = 0; j < vectors; j++) {
            columns[j] = vdot_load(b + (int64_t)j * VEC * DOT_GROUP);
        }
        UNROLL
        for (int i = 0; i < rows; i++) {
            const vdot_operand row = vdot_spread(a + i * row_step);
            UNROLL
            for (int j = 0; j < vectors; j++) {
                sums[i][j] = vdot(sums[i][j], row, columns[j]);
            }
        }
        a += group_step;
        b += (int64_t)vectors * VEC * DOT_GROUP;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            vint_store(call->out + i * INT_WIDTH + j * VEC, sums[i][j]);
        }
    }
}

typedef void (*int_tile_fn)(const int_tile_call *call);

#define TILE(name, rows, vectors, is_row_form)                                                     \
    static void name(const int_tile_call *call)                                                    \
    {                                                                                              \
        int_tile(call, rows, vectors, is_row_form);                                                \
    }

TILE(int_row_1x1, 1, 1, true)
TILE(int_row_1x2, 1, 2, true)
TILE(int_row_few_x1, INT_FEW, 1, true)
TILE(int_row_few_x2, INT_FEW, 2, true)
TILE(int_row_all_x1, INT_ROWS, 1, true)
TILE(int_row_all_x2, INT_ROWS, 2, true)
TILE(int_column_1x1, 1, 1, false)
TILE(int_column_1x2, 1, 2, false)
TILE(int_column_few_x1, INT_FEW, 1, false)
TILE(int_column_few_x2, INT_FEW, 2, false)
TILE(int_column_all_x1, INT_ROWS, 1, false)
TILE(int_column_all_x2, INT_ROWS, 2, false)

/* By form, by height, by vectors - 1. */
static const int_tile_fn int_tiles[2][3][2] = {
    {{int_row_1x1, int_row_1x2},
     {int_row_few_x1, int_row_few_x2},
     {int_row_all_x1, int_row_all_x2}},
    {{int_column_1x1, int_column_1x2},
     {int_column_few_x1, int_column_few_x2},
     {int_column_all_x1, int_column_all_x2}},
};

/* Rows [first, end) of the panel at `column`. */
static void int_strip(const int_block *block, int64_t column, int64_t first, int64_t end,
                      int32_t *out)
{
    const int form = block->group_step == DOT_GROUP ? 0 : 1;
    const int64_t width = int_panel(block->n - column);
    int_tile_call call = {.row_step = block->row_step,
                          .group_step = block->group_step,
                          .b = block->b + column * block->groups * DOT_GROUP,
                          .start = block->start + column,
                          .groups = block->groups,
                          .out = out};
    int64_t rows = 0;
    for (int64_t i = first; i < end; i += rows) {
        const int64_t left = end - i;
        const int height = left >= INT_ROWS ? 2 : left >= INT_FEW ? 1 : 0;
        rows = height == 2 ? INT_ROWS : height == 1 ? INT_FEW : 1;
        call.a = block->a + i * block->row_step;
        int_tiles[form][height][width / VEC - 1](&call);
        block->store(block, i, rows, column, min_i64(width, block->n - column), out);
    }
}

void K(int_gemm)(const int_block *block)
{
    int32_t out[INT_ROWS * INT_WIDTH] __attribute__((aligned(64)));
    const int64_t step = block->is_by_rows ? INT_ROWS : block->m;
    for (int64_t first = 0; first < block->m; first += step) {
        for (int64_t column = 0; column < block->n; column += INT_WIDTH) {
            int_strip(block, column, first, min_i64(block->m, first + step), out);
        }
    }
}
