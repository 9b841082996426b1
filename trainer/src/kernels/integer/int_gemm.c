/*
 * int_gemm.c - the tiles of integer products: INT_ROWS rows by INT_VECTORS vectors of columns, all
 * of the depth in registers.
 */
#include "int_gemm.h"

typedef struct int_tile_call {
    const dot_a *a;
    int64_t row_step, group_step;
    const int32_t *row_at, *group_at;
    const dot_b *b;
    int64_t b_step; /* from a group to the next */
    const int32_t *start;
    int64_t groups;
    int32_t *out;
    int64_t out_pitch; /* from a row to the next */
} int_tile_call;

/* In row form a group of a row follows the other, in column form the rows of a group do; in line
 * form both lie where the tables say. */
typedef enum int_form { INT_ROW_FORM, INT_COLUMN_FORM, INT_LINE_FORM, INT_N_FORMS } int_form;

ALWAYS_INLINE void int_tile(const int_tile_call *call, int rows, int vectors, int_form form)
{
    const int64_t row_step = form == INT_ROW_FORM ? call->row_step : DOT_GROUP;
    const int64_t group_step = form == INT_COLUMN_FORM ? call->group_step : DOT_GROUP;
    const int64_t b_step =
        form == INT_LINE_FORM ? call->b_step : (int64_t)vectors * VEC * DOT_GROUP;
    const int64_t out_pitch = call->out_pitch;
    int32_t *out = call->out; /* copies: nothing stored changes them */
    const dot_a *a = call->a;
    const dot_b *b = call->b;
    const dot_a *at[INT_ROWS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        at[i] = a + (form == INT_LINE_FORM ? call->row_at[i] : 0);
    }
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
            const vdot_operand row = form == INT_LINE_FORM ? vdot_spread(at[i] + call->group_at[k])
                                                           : vdot_spread(a + i * row_step);
            UNROLL
            for (int j = 0; j < vectors; j++) {
                sums[i][j] = vdot(sums[i][j], row, columns[j]);
            }
        }
        a += group_step;
        b += b_step;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            vint_store(out + i * out_pitch + j * VEC, sums[i][j]);
        }
    }
}

typedef void (*int_tile_fn)(const int_tile_call *call);

#define TILE(name, rows, vectors, form)                                                            \
    static void name(const int_tile_call *call)                                                    \
    {                                                                                              \
        int_tile(call, rows, vectors, form);                                                       \
    }

#define TILES(name, form)                                                                          \
    TILE(name##_1x1, 1, 1, form)                                                                   \
    TILE(name##_1x2, 1, 2, form)                                                                   \
    TILE(name##_few_x1, INT_FEW, 1, form)                                                          \
    TILE(name##_few_x2, INT_FEW, 2, form)                                                          \
    TILE(name##_all_x1, INT_ROWS, 1, form)                                                         \
    TILE(name##_all_x2, INT_ROWS, 2, form)

TILES(int_row, INT_ROW_FORM)
TILES(int_column, INT_COLUMN_FORM)
TILES(int_line, INT_LINE_FORM)

/* By form, by height, by vectors - 1. */
static const int_tile_fn int_tiles[INT_N_FORMS][3][2] = {
    {{int_row_1x1, int_row_1x2},
     {int_row_few_x1, int_row_few_x2},
     {int_row_all_x1, int_row_all_x2}},
    {{int_column_1x1, int_column_1x2},
     {int_column_few_x1, int_column_few_x2},
     {int_column_all_x1, int_column_all_x2}},
    {{int_line_1x1, int_line_1x2},
     {int_line_few_x1, int_line_few_x2},
     {int_line_all_x1, int_line_all_x2}},
};

/* Rows [first, end) of the panel at `column`. */
static void int_strip(const int_block *block, int64_t column, int64_t first, int64_t end,
                      int32_t *out)
{
    const int_form form = block->row_at != NULL            ? INT_LINE_FORM
                          : block->group_step == DOT_GROUP ? INT_ROW_FORM
                                                           : INT_COLUMN_FORM;
    const int64_t width = int_panel(block->n - column);
    const bool has_pitch = block->b_pitch != 0;
    int_tile_call call = {.row_step = block->row_step,
                          .group_step = block->group_step,
                          .group_at = block->group_at,
                          .b = block->b + column * (has_pitch ? 1 : block->groups) * DOT_GROUP,
                          .b_step = has_pitch ? block->b_pitch : width * DOT_GROUP,
                          .start = block->start + column,
                          .groups = block->groups};
    const bool is_whole = block->sums != NULL && block->n - column >= width;
    int64_t rows = 0;
    for (int64_t i = first; i < end; i += rows) {
        const int64_t left = end - i;
        const bool is_few = left >= INT_FEW || form == INT_LINE_FORM;
        const int height = left >= INT_ROWS ? 2 : is_few ? 1 : 0;
        rows = height == 2 ? INT_ROWS : height == 1 ? INT_FEW : 1;
        call.a = block->a + i * block->row_step;
        call.row_at = form == INT_LINE_FORM ? block->row_at + i : NULL;
        if (is_whole && rows <= left) {
            call.out = block->sums + i * block->sums_pitch + column;
            call.out_pitch = block->sums_pitch;
            int_tiles[form][height][width / VEC - 1](&call);
            continue;
        }
        call.out = out;
        call.out_pitch = INT_WIDTH;
        int_tiles[form][height][width / VEC - 1](&call);
        block->store(block, i, min_i64(rows, left), column, min_i64(width, block->n - column), out);
    }
}

void K(int_gemm)(const int_block *block)
{
    int32_t out[INT_ROWS * INT_WIDTH] __attribute__((aligned(64)));
    const int64_t step = block->is_by_rows && block->n > INT_WIDTH ? INT_ROWS : block->m;
    for (int64_t first = 0; first < block->m; first += step) {
        for (int64_t column = 0; column < block->n; column += INT_WIDTH) {
            int_strip(block, column, first, min_i64(block->m, first + step), out);
        }
    }
}
