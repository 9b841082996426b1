/*
 * gemm.c - C from A and packed panels of B, by tiles held in registers; A is
 * read where it lies, in runs of consecutive depth.
 *
 * Each element of C is one chain of vfma() over k, whatever tile it falls into:
 * small tiles at the edge run the same loop. Design after Goto and van de
 * Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
 */
#include "gemm.h"

#define ASK_STEPS 16 /* of depth between rows of C that are asked for */

typedef struct tile_call {
    const float *const *a_rows; /* row form */
    const float *a;             /* column form */
    int64_t a_pitch;
    const gemm_run *runs;
    int64_t n_runs;
    float *const *ask_rows; /* of C, asked for while the tile is computed, from `ask` on */
    int64_t ask, n_ask;
    const float *b;
    int64_t b_pitch; /* B as it lies */
    float *const *c_rows;
    int64_t column;
    const float *bias; /* at the tile's first column */
    int32_t n_last;    /* columns of the last vector */
    gemm_start start;
    bool is_clipped, is_streamed;
    const float *about; /* at the tile's first column */
    float *sums, *squares;
    float low, high;
    const char *prefetch; /* asked for, a line a step */
    int64_t prefetch_step;
    bool is_near;
} tile_call;

typedef void (*tile_fn)(const tile_call *call);

/*
 * How a tile begins and ends, each way in loops of its own: a question for each vector would take
 * as long as many steps of depth. is_whole: the last vector is a whole one.
 */
#define TILE_EACH(statement)                                                                       \
    do {                                                                                           \
        UNROLL                                                                                     \
        for (int i = 0; i < rows; i++) {                                                           \
            UNROLL                                                                                 \
            for (int j = 0; j < vectors; j++) {                                                    \
                statement;                                                                         \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#define TILE_C (call->c_rows[i] + call->column + (ptrdiff_t)j * VEC)
#define TILE_WIDTH (is_whole || j < vectors - 1 ? VEC : call->n_last)

#define TILE_LOAD(is_whole_tile)                                                                   \
    do {                                                                                           \
        const bool is_whole = (is_whole_tile);                                                     \
        TILE_EACH(sum[i][j] = vload_n(TILE_C, TILE_WIDTH));                                        \
    } while (0)

#define TILE_STORE(is_whole_tile)                                                                  \
    do {                                                                                           \
        const bool is_whole = (is_whole_tile);                                                     \
        if (call->start == GEMM_ADD) {                                                             \
            TILE_EACH(vstore_n(TILE_C, vload_n(TILE_C, TILE_WIDTH) + sum[i][j], TILE_WIDTH));      \
        } else {                                                                                   \
            TILE_EACH(vstore_n(TILE_C, sum[i][j], TILE_WIDTH));                                    \
        }                                                                                          \
    } while (0)

#define TILE_BEGIN()                                                                               \
    do {                                                                                           \
        if (call->start == GEMM_CHAIN) {                                                           \
            if (call->n_last == VEC) {                                                             \
                TILE_LOAD(true);                                                                   \
            } else {                                                                               \
                TILE_LOAD(false);                                                                  \
            }                                                                                      \
        } else if (call->start == GEMM_BIAS && call->bias != NULL) {                               \
            const bool is_whole = false;                                                           \
            TILE_EACH(sum[i][j] = vload_n(call->bias + (ptrdiff_t)j * VEC, TILE_WIDTH));           \
        } else {                                                                                   \
            TILE_EACH(sum[i][j] = vzero());                                                        \
        }                                                                                          \
    } while (0)

/* C's columns, down the rows: the order in which stat_rows() adds. */
#define TILE_SUMS()                                                                                \
    do {                                                                                           \
        const bool is_whole = false;                                                               \
        UNROLL                                                                                     \
        for (int j = 0; j < vectors; j++) {                                                        \
            const ptrdiff_t at = (ptrdiff_t)j * VEC;                                               \
            const vfloat about = vload_n(call->about + at, TILE_WIDTH);                            \
            vfloat total = vload_n(call->sums + at, TILE_WIDTH);                                   \
            vfloat square = vload_n(call->squares + at, TILE_WIDTH);                               \
            UNROLL                                                                                 \
            for (int i = 0; i < rows; i++) {                                                       \
                const vfloat d = sum[i][j] - about;                                                \
                total += d;                                                                        \
                square = vfma(d, d, square);                                                       \
            }                                                                                      \
            vstore_n(call->sums + at, total, TILE_WIDTH);                                          \
            vstore_n(call->squares + at, square, TILE_WIDTH);                                      \
        }                                                                                          \
    } while (0)

#define TILE_END()                                                                                 \
    do {                                                                                           \
        if (call->is_clipped) {                                                                    \
            TILE_EACH(sum[i][j] = vclip(sum[i][j], vset1(call->low), vset1(call->high)));          \
        }                                                                                          \
        if (call->about != NULL) {                                                                 \
            TILE_SUMS();                                                                           \
        }                                                                                          \
        if (CAN_STREAM && call->is_streamed) {                                                     \
            TILE_EACH(vstream(TILE_C, sum[i][j]));                                                 \
        } else if (call->n_last == VEC) {                                                          \
            TILE_STORE(true);                                                                      \
        } else {                                                                                   \
            TILE_STORE(false);                                                                     \
        }                                                                                          \
    } while (0)

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

/*
 * Whether B, which streams from the second cache, is asked for. Cores that have AVX-512 bring it by
 * themselves: on Intel's what asks takes the loads' turns (up to 3 % of a product), on Zen 5 it is
 * worth nothing (columns_of_b: 0.995, with an interval of 0.988 to 1.002).
 */
#if defined(__AVX512F__)
#define PREFETCHES_FOR_B false
#else
#define PREFETCHES_FOR_B true
#endif

/* One step of depth: left[i] is A's element of row i. */
#define TILE_STEP(left, is_near)                                                                   \
    do {                                                                                           \
        vfloat right[TILE_VECTORS];                                                                \
        UNROLL                                                                                     \
        for (int j = 0; j < vectors; j++) {                                                        \
            right[j] = tile_right(call, b, j, vectors, form);                                      \
        }                                                                                          \
        if (PREFETCHES_FOR_B) {                                                                    \
            __builtin_prefetch(b + PREFETCH_B);                                                    \
            if (vectors * VEC > 16) {                                                              \
                __builtin_prefetch(b + PREFETCH_B + 16);                                           \
            }                                                                                      \
            if (vectors * VEC > 32) {                                                              \
                __builtin_prefetch(b + PREFETCH_B + 32);                                           \
            }                                                                                      \
        }                                                                                          \
        prefetch_line(prefetch, is_near);                                                          \
        prefetch += prefetch_step;                                                                 \
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

/* Asks for a row of C, so that it is near when its tile begins or is stored; returns up to which
 * step of depth no other is asked for. */
ALWAYS_INLINE int64_t tile_prefetches(const tile_call *call, int64_t *asked, int64_t k, int64_t n,
                                      int vectors)
{
    if (*asked == call->n_ask) {
        return n;
    }
    const float *c = call->ask_rows[*asked] + call->ask;
    ++*asked;
    UNROLL
    for (int j = 0; j < vectors; j++) {
        __builtin_prefetch(c + (ptrdiff_t)j * VEC, 1, 3);
    }
    return min_i64(n, k + ASK_STEPS);
}

/* A step of depth by columns and one by rows; the pointers move on. */
#define COLUMN_STEP(is_near)                                                                       \
    do {                                                                                           \
        if (PREFETCHES_FOR_B) {                                                                    \
            __builtin_prefetch(a + 8 * a_pitch);                                                   \
        }                                                                                          \
        TILE_STEP(a[i], is_near);                                                                  \
        a += a_pitch;                                                                              \
    } while (0)
#define ROW_STEP(is_near) TILE_STEP(a[i][k], is_near)

/* The steps of depth k ... end, two at a time: alone, a step of wide vectors is too short for a
 * turn of a loop. */
#define TILE_STEPS(step, is_near)                                                                  \
    do {                                                                                           \
        for (; VEC >= 8 && k + 2 <= end; k++) {                                                    \
            step(is_near);                                                                         \
            k++;                                                                                   \
            step(is_near);                                                                         \
        }                                                                                          \
        for (; k < end; k++) {                                                                     \
            step(is_near);                                                                         \
        }                                                                                          \
    } while (0)

/* Inlined with literal sizes, so that `sum` stays in registers. */
// NOLINTNEXTLINE(readability-function-size): loops unrolled by a macro count as nesting
ALWAYS_INLINE void tile_depth(const tile_call *call, vfloat sum[TILE_ROWS][TILE_VECTORS], int rows,
                              int vectors, int form, bool is_near)
{
    const float *b = call->b;
    const char *prefetch = call->prefetch;
    const int64_t prefetch_step = call->prefetch_step;
    int64_t asked = 0;
    for (int64_t r = 0; r < call->n_runs; r++) {
        const int64_t n = call->runs[r].n;
        if (form == FORM_COLUMNS) {
            const float *a = call->a + call->runs[r].offset;
            const int64_t a_pitch = call->a_pitch;
            for (int64_t k = 0; k < n;) {
                const int64_t end = tile_prefetches(call, &asked, k, n, vectors);
                TILE_STEPS(COLUMN_STEP, is_near);
            }
        } else {
            const float *a[TILE_ROWS];
            UNROLL
            for (int i = 0; i < rows; i++) {
                a[i] = call->a_rows[i] + call->runs[r].offset;
            }
            for (int64_t k = 0; k < n;) {
                const int64_t end = tile_prefetches(call, &asked, k, n, vectors);
                TILE_STEPS(ROW_STEP, is_near);
            }
        }
    }
}

// NOLINTNEXTLINE(readability-function-size): as above
ALWAYS_INLINE void tile(const tile_call *call, int rows, int vectors, int form)
{
    vfloat sum[TILE_ROWS][TILE_VECTORS];
    TILE_BEGIN();
    if (call->is_near) {
        tile_depth(call, sum, rows, vectors, form, true);
    } else {
        tile_depth(call, sum, rows, vectors, form, false);
    }
    TILE_END();
}

#if TALL_ROWS > TILE_ROWS
/*
 * Narrow panels leave registers free for more rows, and rows that lie equally far apart need few
 * addresses: from two of them, by odd multiples of the distance.
 */
static bool is_tall(const float *const *a_rows)
{
    const ptrdiff_t distance = a_rows[1] - a_rows[0];
    for (int i = 2; i < TALL_ROWS; i++) {
        if (a_rows[i] - a_rows[i - 1] != distance) {
            return false;
        }
    }
    return true;
}

/* The element of row i, 0 <= i < 16, from rows 0 and 8. */
#define TALL_LEFT(i)                                                                               \
    (((i) < 8 ? first : second)[((i)&7) == 0   ? 0                                                 \
                                : ((i)&7) == 1 ? d1                                                \
                                : ((i)&7) == 2 ? 2 * d1                                            \
                                : ((i)&7) == 4 ? 4 * d1                                            \
                                : ((i)&7) == 3 ? d3                                                \
                                : ((i)&7) == 6 ? 2 * d3                                            \
                                : ((i)&7) == 5 ? d5                                                \
                                               : d7])

// NOLINTNEXTLINE(readability-function-size): as above
ALWAYS_INLINE void tall_depth(const tile_call *call, vfloat sum[TALL_ROWS][2], int vectors,
                              bool is_near)
{
    const int rows = TALL_ROWS;
    const int form = FORM_ROWS;
    const float *b = call->b;
    const char *prefetch = call->prefetch;
    const int64_t prefetch_step = call->prefetch_step;
    const ptrdiff_t d1 = call->a_rows[1] - call->a_rows[0];
    const ptrdiff_t d3 = 3 * d1;
    const ptrdiff_t d5 = 5 * d1;
    const ptrdiff_t d7 = 7 * d1;
    for (int64_t r = 0; r < call->n_runs; r++) {
        const float *first = call->a_rows[0] + call->runs[r].offset;
        const float *second = first + 8 * d1;
        const int64_t n = call->runs[r].n;
        UNROLL_TWICE
        for (int64_t k = 0; k < n; k++) {
            TILE_STEP(TALL_LEFT(i), is_near);
            first++;
            second++;
        }
    }
}

// NOLINTNEXTLINE(readability-function-size): as above
ALWAYS_INLINE void tile_tall(const tile_call *call, int vectors)
{
    const int rows = TALL_ROWS;
    vfloat sum[TALL_ROWS][2];
    TILE_BEGIN();
    if (call->is_near) {
        tall_depth(call, sum, vectors, true);
    } else {
        tall_depth(call, sum, vectors, false);
    }
    TILE_END();
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
            }
            call.c_rows = block->c_rows + i;
            tile_fn run = tiles[vectors - 1][height][form];
#if TALL_ROWS > TILE_ROWS
            if (form == FORM_ROWS && vectors < TILE_VECTORS && block->m - i >= TALL_ROWS &&
                !block->is_far && is_tall(call.a_rows)) {
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
