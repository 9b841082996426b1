/*
 * gemm.c - C from A and packed panels of B, by tiles held in registers; A is
 * read where it lies, in runs of consecutive depth.
 *
 * Design after Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication" (2008).
 */
#include "gemm_tile.h"

typedef void (*tile_fn)(const tile_call *call);

#if TALL_ROWS > TILE_ROWS
/* Rows that lie equally far apart. */
static bool is_even(const float *const *a_rows)
{
    const ptrdiff_t distance = a_rows[1] - a_rows[0];
    for (int i = 2; i < TALL_ROWS; i++) {
        if (a_rows[i] - a_rows[i - 1] != distance) {
            return false;
        }
    }
    return true;
}

static bool is_tall(const tile_call *call)
{
    return is_even(call->a_rows) && (call->tail_rows == NULL || is_even(call->tail_rows));
}

static void tile_tall_1(const tile_call *call)
{
    tile_tall(call, 1);
}

static void tile_tall_2(const tile_call *call)
{
    tile_tall(call, 2);
}
#endif

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

/* The next tile's rows of C: those from `row` on, or the first ones from column `next` on. */
static void ask_next(tile_call *call, const gemm_block *block, int64_t row, int64_t next)
{
    const bool is_below = row < block->m;
    const int64_t left = is_below ? block->m - row : next < block->n ? block->m : 0;
    call->ask = is_below ? call->column : next;
    call->ask_rows = block->c_rows + (is_below ? row : 0);
    call->n_ask = min_i64(TILE_ROWS, left);
}

void K(gemm)(const gemm_block *block)
{
    const int form = block->a_rows == NULL ? FORM_COLUMNS
                     : block->b_pitch != 0 ? FORM_THIN
                                           : FORM_ROWS;
    int64_t column = 0;
    const float *b = block->b;
    const int64_t prefetch_step = block->prefetch == NULL ? 0 : block->prefetch->step;
    const bool is_near = prefetch_is_near();
    const bool is_parted = block->is_parted && (block->k > PART_DEPTH || block->start == GEMM_ADD);
    _Alignas(LINE_BYTES) float parts[TILE_PARTS];
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
                          .tail_run = block->tail_rows == NULL ? INT64_MAX : block->tail_run,
                          .start = block->start,
                          .is_parted = is_parted,
                          .parts = parts,
                          .is_clipped = block->is_clipped,
                          .is_streamed = block->is_streamed,
                          .is_near = is_near,
                          .about = block->about == NULL ? NULL : block->about + column,
                          .low = block->low,
                          .high = block->high};
        if (block->about != NULL) {
            call.sums = block->sums + column;
            call.squares = call.sums + block->n;
        }
        int64_t rows = 0;
        for (int64_t i = 0; i < block->m; i += rows) {
            int height = tile_height(block->m - i, &rows);
            if (form == FORM_COLUMNS) {
                call.a = block->a + i / LANES * block->lane_pitch + i % LANES;
            } else {
                call.a_rows = block->a_rows + i;
                call.tail_rows = block->tail_rows == NULL ? NULL : block->tail_rows + i;
            }
            call.c_rows = block->c_rows + i;
            tile_fn run = tiles[vectors - 1][height][form];
#if TALL_ROWS > TILE_ROWS
            if (form == FORM_ROWS && vectors < TILE_VECTORS && block->m - i >= TALL_ROWS &&
                !block->is_far && is_tall(&call)) {
                run = vectors == 1 ? tile_tall_1 : tile_tall_2;
                rows = TALL_ROWS;
            }
#endif
            if (form == FORM_COLUMNS && block->start == GEMM_ADD) {
                /* weights' gradients: more than the first cache holds, and wanted in the end */
                call.ask = column;
                call.ask_rows = call.c_rows;
                call.n_ask = rows;
            } else if (block->is_far) {
                ask_next(&call, block, i + rows, column + (int64_t)vectors * VEC);
            }
            const char *prefetch =
                prefetch_take(block->prefetch, block->k, prefetch_step, &call.prefetch_step);
            call.prefetch = prefetch == NULL ? (const char *)b : prefetch;
            run(&call);
        }
        column += (int64_t)vectors * VEC;
        b += form == FORM_THIN ? (int64_t)vectors * VEC : block->k * vectors * VEC;
    }
}
