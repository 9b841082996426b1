/*
 * int_gemm.h - products of packed int8, a tile of int32 at a time, and what packs their operands.
 */
#ifndef DUNLIN_KERNELS_INT_GEMM_H
#define DUNLIN_KERNELS_INT_GEMM_H

#include "dot.h"
#include "kernels/gemm/geometry.h"
#include "rounding.h"

typedef struct int_block int_block;

/* What becomes of a tile: rows [row, row + n_rows), columns [column, column + n) of the block; its
 * rows are INT_WIDTH apart. */
typedef void (*int_store_fn)(const int_block *block, int64_t row, int64_t n_rows, int64_t column,
                             int64_t n, const int32_t *tile);

/*
 * C[m][n] = start[column] + sum over `groups` groups of A and packed B. Row i's group k of A is at
 * a + i * row_step + k * group_step; one of the steps is DOT_GROUP. Or it is at a + row_at[i] +
 * group_at[k]: a row may then be any window of an image, and is no copy of it. B: [panel][group]
 * [width][DOT_GROUP], panels of INT_WIDTH columns, the last of VEC if no more are left. With
 * b_pitch the groups of all columns are that far apart, whatever the panel, and what follows the
 * last is read, for whole vectors.
 */
struct int_block {
    const dot_a *a;
    int64_t row_step, group_step;
    const int32_t *row_at;   /* NULL: steps; m, and INT_FEW more that may be read */
    const int32_t *group_at; /* groups */
    const dot_b *b;
    int64_t b_pitch;      /* 0: panels */
    const int32_t *start; /* columns, whole vectors */
    int64_t groups;
    int64_t m, n;
    bool is_by_rows;    /* all columns of a tile's rows before the next rows: B is small, or what is
                           stored lies far apart */
    int32_t *sums;      /* tiles of whole rows and vectors are written there, and not stored; NULL:
                           all are */
    int64_t sums_pitch; /* from a row of them to the next */
    int_store_fn store;
    void *target; /* of store */
};

void K(int_gemm)(const int_block *block);

/* Columns of the next panel when so many are left. */
static inline int64_t int_panel(int64_t columns_left)
{
    return columns_left > VEC ? INT_WIDTH : VEC;
}

/* Columns of all panels together. */
static inline int64_t int_panels_width(int64_t columns)
{
    return round_up(columns, VEC);
}

static inline int64_t int_groups(int64_t depth)
{
    return ceil_div(depth, DOT_GROUP);
}

/* Rows of A: from the first element of one to that of the next; not a power of two, so that rows
 * of a tile do not share their places in the cache. Short rows that are whole groups lie close. */
static inline int64_t int_pitch(int64_t depth)
{
    const int64_t pitch = depth < 64 && depth % 4 == 0 ? depth : round_up(depth, 16);
    return pitch % 512 == 0 ? pitch + 64 : pitch;
}

/*
 * Rows from[i * pitch + column] side by side in groups of DOT_GROUP rows: to[group][width]
 * [DOT_GROUP], columns n to width and rows k to the whole group as zero. `flip` is applied to every
 * byte before it is widened.
 */
typedef struct int_rows {
    const int8_t *from;
    int64_t pitch;
    int64_t k, n, width;
    uint8_t flip;
} int_rows;

void K(int_interleave)(const int_rows *rows, dot_b *to);
/* The same of columns that lie as rows: from[column * pitch + i]. */
void K(int_interleave_turned)(const int_rows *rows, dot_b *to);
/* start[i] = bias[i] (NULL: 0) less what DOT_OFFSET adds, for a panel of `width` columns, n of them
 * with a bias. */
void K(int_start)(const dot_b *b, int64_t groups, int64_t width, const int32_t *bias, int64_t n,
                  int32_t *start);

/* A window of the view as one row of A: pixel (t, u) of the grid, its source a sample at the
 * group's first channel. */
typedef struct int_window {
    const conv_view *view;
    const int8_t *source;
    int64_t t, u;
    const int8_t *end; /* of the tensor that the source is in: nothing is read from there on */
} int_window;

/* Elements behind a packed row that may be written before the next one is. */
#define INT_SLACK 16

/* n elements as a row of A; n zeros. */
void K(int_pack_row)(const int8_t *from, int64_t n, dot_a *to);
void K(int_clear_row)(int64_t n, dot_a *to);
/* Without the short way. */
void K(int_pack_long)(const int_window *window, dot_a *to);
void K(int_copy_long)(const int_window *window, int8_t *to);
/* Up to INT_SLACK elements behind it may be written. */
void K(int_pack_window)(const int_window *window, dot_a *to);
void K(int_copy_window)(const int_window *window, int8_t *to);

/* The target of K(int_store): int8 rows, or rows of floats. */
typedef struct int_target {
    int8_t *out;
    float *real; /* or instead of it */
    float unit;
    bool is_added;
    const int64_t *at; /* element of the output where each row of the block begins */
    int64_t column;    /* and the block's first column in it */
    int32_t shift, low, high;
    const int8_t *addend; /* as in dunlin_int_conv_call */
    int32_t addend_shift;
    const int8_t *mask;
    int32_t mask_low, mask_high;
    int_count count;
    vint largest; /* magnitudes so far, by lane: int_target_take() brings them to the rest */
} int_target;

/* Target of a pass; its places are the caller's. */
static inline int_target int_target_of(const dunlin_int_conv_call *call, bool is_input_grad)
{
    int_target target = {.out = call->out,
                         .real = call->out_real,
                         .unit = call->unit,
                         .is_added = call->is_added,
                         .shift = call->rounding.shift,
                         .low = is_input_grad ? -DUNLIN_INT_MOST : call->low,
                         .high = is_input_grad ? DUNLIN_INT_MOST : call->high};
    if (is_input_grad) {
        target.addend = call->addend;
        target.addend_shift = call->addend_shift;
        target.mask = call->mask;
        target.mask_low = call->mask_low;
        target.mask_high = call->mask_high;
    }
    return target;
}

/* What a task has counted. */
static inline void int_target_take(const int_target *target, int_tally *tally)
{
    int_count count = target->count;
    for (int i = 0; i < VEC; i++) {
        count.largest = max_i64(count.largest, target->largest[i]);
    }
    int_tally_take(tally, &count);
}

/* Magnitudes above it are clipped once they are rounded. */
static inline int32_t int_most_unclipped(int32_t shift)
{
    const int64_t first = (INT64_C(128) << shift) - (int64_t)int_half(shift);
    return (int32_t)min_i64(INT32_MAX, first - 1);
}

void K(int_store)(const int_block *block, int64_t row, int64_t n_rows, int64_t column, int64_t n,
                  const int32_t *tile);

#endif
