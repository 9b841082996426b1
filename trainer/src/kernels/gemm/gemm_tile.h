/*
 * gemm_tile.h - a tile of C, held in registers over the whole depth: the only place where a GEMM
 * multiplies.
 *
 * Each element is a chain of vfma() over k, whatever tile it falls into: small tiles at the edge
 * run the same loop. Of a parted product a chain ends after PART_DEPTH steps; it is added to those
 * before it in memory of the tile's own, so that C is passed once whatever the depth.
 */
#ifndef DUNLIN_KERNELS_GEMM_TILE_H
#define DUNLIN_KERNELS_GEMM_TILE_H

#include "gemm.h"

/* Floats of the largest tile. */
#define TILE_PARTS                                                                                 \
    ((TILE_ROWS * TILE_VECTORS > TALL_ROWS * 2 ? TILE_ROWS * TILE_VECTORS : TALL_ROWS * 2) * VEC)
#define ASK_STEPS 16 /* of depth between rows of C that are asked for */

typedef struct tile_call {
    const float *const *a_rows; /* row form: of the runs up to tail_run, and of the others */
    const float *const *tail_rows;
    int64_t tail_run;
    const float *a; /* column form */
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
    bool is_parted, is_clipped, is_streamed;
    float *parts;       /* parted: TILE_PARTS floats, the sum of the chains that have ended */
    const float *about; /* at the tile's first column */
    float *sums, *squares;
    float low, high;
    const char *prefetch; /* asked for, a line a step */
    int64_t prefetch_step;
    bool is_near;
} tile_call;

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
#define TILE_PART (call->parts + (ptrdiff_t)(i * vectors + j) * VEC)
#define TILE_WIDTH (is_whole || j < vectors - 1 ? VEC : call->n_last)

#define TILE_LOAD(is_whole_tile)                                                                   \
    do {                                                                                           \
        const bool is_whole = (is_whole_tile);                                                     \
        TILE_EACH(sum[i][j] = vload_n(TILE_C, TILE_WIDTH));                                        \
    } while (0)

#define TILE_STORE(is_whole_tile)                                                                  \
    do {                                                                                           \
        const bool is_whole = (is_whole_tile);                                                     \
        if (call->start == GEMM_ADD && !call->is_parted) {                                         \
            TILE_EACH(vstore_n(TILE_C, vload_n(TILE_C, TILE_WIDTH) + sum[i][j], TILE_WIDTH));      \
        } else {                                                                                   \
            TILE_EACH(vstore_n(TILE_C, sum[i][j], TILE_WIDTH));                                    \
        }                                                                                          \
    } while (0)

/* The sum of the chains before: that of none is -0, for what is added to it keeps its bits, those
 * of zero too. */
#define TILE_BEGIN_PARTS()                                                                         \
    do {                                                                                           \
        const bool is_whole = false;                                                               \
        if (call->start == GEMM_ADD) {                                                             \
            TILE_EACH(vstore(TILE_PART, vload_n(TILE_C, TILE_WIDTH)));                             \
        } else {                                                                                   \
            TILE_EACH(vstore(TILE_PART, vset1(-0.0f)));                                            \
        }                                                                                          \
    } while (0)

#define TILE_BEGIN()                                                                               \
    do {                                                                                           \
        if (call->is_parted) {                                                                     \
            TILE_BEGIN_PARTS();                                                                    \
        }                                                                                          \
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

/* A chain ends: it is added to those before it, and the next one begins from zero. */
#define TILE_END_CHAIN()                                                                           \
    TILE_EACH(vstore(TILE_PART, vload(TILE_PART) + sum[i][j]); sum[i][j] = vzero())

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
        if (call->is_parted) {                                                                     \
            TILE_EACH(sum[i][j] = vload(TILE_PART) + sum[i][j]);                                   \
        }                                                                                          \
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

/* Steps of depth to the end of the chain that begins. */
#define TILE_CHAIN (call->is_parted ? PART_DEPTH : INT64_MAX / 2)

/* More depth follows: where a chain is as long as it may be, another one begins. */
#define TILE_NEXT()                                                                                \
    do {                                                                                           \
        if (left == 0) {                                                                           \
            TILE_END_CHAIN();                                                                      \
            left = PART_DEPTH;                                                                     \
        }                                                                                          \
    } while (0)

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

/* Inlined with literal sizes, so that `sum` stays in registers: the chain that has not ended.
 */
// NOLINTNEXTLINE(readability-function-size): loops unrolled by a macro count as nesting
ALWAYS_INLINE void tile_depth(const tile_call *call, vfloat sum[TILE_ROWS][TILE_VECTORS], int rows,
                              int vectors, int form, bool is_near)
{
    const float *b = call->b;
    const char *prefetch = call->prefetch;
    const int64_t prefetch_step = call->prefetch_step;
    int64_t asked = 0;
    int64_t left = TILE_CHAIN;
    for (int64_t r = 0; r < call->n_runs; r++) {
        const int64_t n = call->runs[r].n;
        if (form == FORM_COLUMNS) {
            const float *a = call->a + call->runs[r].offset;
            const int64_t a_pitch = call->a_pitch;
            for (int64_t k = 0; k < n;) {
                TILE_NEXT();
                const int64_t most = min_i64(n, k + left);
                const int64_t end = tile_prefetches(call, &asked, k, most, vectors);
                left -= end - k;
                TILE_STEPS(COLUMN_STEP, is_near);
            }
        } else {
            const float *const *a_rows = r < call->tail_run ? call->a_rows : call->tail_rows;
            const float *a[TILE_ROWS];
            UNROLL
            for (int i = 0; i < rows; i++) {
                a[i] = a_rows[i] + call->runs[r].offset;
            }
            for (int64_t k = 0; k < n;) {
                TILE_NEXT();
                const int64_t most = min_i64(n, k + left);
                const int64_t end = tile_prefetches(call, &asked, k, most, vectors);
                left -= end - k;
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
/* Narrow panels leave registers free for more rows, and rows that lie equally far apart need few
 * addresses: from two of them, by odd multiples of the distance. */

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

#define TALL_STEP(is_near)                                                                         \
    do {                                                                                           \
        TILE_STEP(TALL_LEFT(i), is_near);                                                          \
        first++;                                                                                   \
        second++;                                                                                  \
    } while (0)

// NOLINTNEXTLINE(readability-function-size): as above
ALWAYS_INLINE void tall_depth(const tile_call *call, vfloat sum[TALL_ROWS][2], int vectors,
                              bool is_near)
{
    const int rows = TALL_ROWS;
    const int form = FORM_ROWS;
    const float *b = call->b;
    const char *prefetch = call->prefetch;
    const int64_t prefetch_step = call->prefetch_step;
    int64_t left = TILE_CHAIN;
    for (int64_t r = 0; r < call->n_runs; r++) {
        const float *const *a_rows = r < call->tail_run ? call->a_rows : call->tail_rows;
        const ptrdiff_t d1 = a_rows[1] - a_rows[0];
        const ptrdiff_t d3 = 3 * d1;
        const ptrdiff_t d5 = 5 * d1;
        const ptrdiff_t d7 = 7 * d1;
        const float *first = a_rows[0] + call->runs[r].offset;
        const float *second = first + 8 * d1;
        const int64_t n = call->runs[r].n;
        for (int64_t k = 0; k < n;) {
            TILE_NEXT();
            const int64_t end = min_i64(n, k + left);
            left -= end - k;
            TILE_STEPS(TALL_STEP, is_near);
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

#endif

#endif
