/*
 * int_runs.c - runs of channels: columns of an image packed as such, and their sums stored.
 */
#include "int_columns.h"

/* By the way of K(int_store), a run of channels of one pixel. */
void K(int_store_run)(int_target *target, const int_run *sums, int64_t n, int64_t at)
{
    int32_t ints[RUN_CHANNELS];
    const int64_t rows[1] = {at};
    int_target here = *target;
    const int_block block = {.target = &here};
    here.at = rows;
    run_ints(sums, ints);
    for (int64_t i = 0; i < n; i += INT_WIDTH) {
        K(int_store)(&block, 0, 1, i, min_i64(INT_WIDTH, n - i), ints + i);
    }
    target->count = here.count;
    target->largest = here.largest;
}

#if DOT_OFFSET != 0

void K(int_columns_pack)(const int_columns *columns, int64_t x, int64_t step, int64_t n,
                         int_run *to)
{
    static const int8_t zeros[RUN_CHANNELS];
    const int8_t *lines[RUN_GROUP];
    int64_t pitch[RUN_GROUP];
    const int64_t one = columns->n / columns->at_once;
    const int8_t flip = columns->flip;
    for (int64_t g = 0; g < RUN_GROUP; g++) {
        lines[g] = columns->lines[g] == NULL ? zeros : columns->lines[g];
        pitch[g] = columns->lines[g] == NULL ? 0 : columns->channels;
    }
    for (int64_t i = 0; i < n; i++, x += step) {
        if (x >= 0 && x + columns->at_once <= columns->width) {
            const int8_t *rows[RUN_GROUP];
            UNROLL
            for (int64_t g = 0; g < RUN_GROUP; g++) {
                rows[g] = lines[g] + x * pitch[g];
            }
            to[i] = run_rows(rows, 0, columns->n, flip);
            continue;
        }
        int8_t bytes[RUN_GROUP][RUN_CHANNELS] = {{0}};
        const int8_t *rows[RUN_GROUP];
        for (int64_t g = 0; g < RUN_GROUP; g++) {
            rows[g] = bytes[g];
            for (int64_t p = 0; p < columns->at_once; p++) {
                if (x + p >= 0 && x + p < columns->width) {
                    memcpy(bytes[g] + p * one, lines[g] + (x + p) * pitch[g], (size_t)one);
                }
            }
        }
        to[i] = run_rows(rows, 0, RUN_CHANNELS, flip);
    }
}

#endif
