/*
 * sparse_rows.c - an update of a table of which a batch has named a few rows: those with their
 * sums, the others with a gradient of zero; rows that would not change are skipped.
 *
 * Invariant: a skippable row has a gradient of zero and state of nothing but +0.0, so that
 * computing it would change no bit of it. That is known of a row from the one time its state is
 * looked at until it gets a gradient.
 */
#include "update.h"

#define ZEROS 512

static const float zeros[ZEROS];

static bool is_zero(const float *x, int64_t n)
{
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t one = 0;
        memcpy(&one, x + i, sizeof one);
        bits |= one;
    }
    return bits == 0;
}

/* A row without a gradient, if such rows may rest at all. */
static bool is_skippable(const update_pass *pass, int64_t row)
{
    const dunlin_update_rows *rows = pass->rows;
    if (rows->states == NULL) {
        return true;
    }
    if (rows->states[row] == DUNLIN_ROW_UNKNOWN) {
        bool is_still = true;
        for (int i = 0; i < 2 && is_still; i++) {
            is_still =
                pass->state[i] == NULL || is_zero(pass->state[i] + row * rows->width, rows->width);
        }
        rows->states[row] = is_still ? DUNLIN_ROW_SKIPPABLE : DUNLIN_ROW_MOVES;
    }
    return rows->states[row] == DUNLIN_ROW_SKIPPABLE;
}

static bool update_row(const update_walk *walk, int64_t row)
{
    const update_pass *pass = walk->pass;
    const dunlin_update_rows *rows = pass->rows;
    const int64_t first = row * rows->width;
    const int32_t slot = rows->slots[row];
    if (slot < 0 && rows->may_skip && is_skippable(pass, row)) {
        return true;
    }
    if (walk->writes && rows->states != NULL) {
        rows->states[row] = DUNLIN_ROW_MOVES;
    }
    if (slot >= 0) {
        return pass->fn(pass->call, first, rows->width, pass->gradient + slot * rows->width,
                        walk->writes);
    }
    bool is_finite = true;
    for (int64_t c = 0; c < rows->width; c += ZEROS) {
        is_finite =
            pass->fn(pass->call, first + c, min_i64(ZEROS, rows->width - c), zeros, walk->writes) &&
            is_finite;
    }
    return is_finite;
}

static int64_t rows_of_task(const update_pass *pass)
{
    return max_i64(1, TASK_BLOCK / pass->rows->width);
}

static void rows_task(void *ctx, size_t task)
{
    update_walk *walk = ctx;
    const update_pass *pass = walk->pass;
    const int64_t first = (int64_t)task * rows_of_task(pass);
    const int64_t end = min_i64(pass->n / pass->rows->width, first + rows_of_task(pass));
    for (int64_t row = first; row < end; row++) {
        if (!update_row(walk, row)) {
            atomic_store_explicit(&walk->has_failed, true, memory_order_relaxed);
        }
    }
}

void K(update_rows)(update_walk *walk)
{
    const update_pass *pass = walk->pass;
    const int64_t n_rows = pass->n / pass->rows->width;
    run_tasks(pass->threads, rows_task, walk, ceil_div(n_rows, rows_of_task(pass)), pass->n);
}
