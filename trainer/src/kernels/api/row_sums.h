/*
 * row_sums.h - sums of the rows of a table that a batch has named, in one block of memory: how many
 * there are, the slot of each row of the table, and the sums, slot after slot.
 *
 * Slots are given in the order in which rows are first named, so they depend neither on slices nor
 * on threads.
 */
#ifndef DUNLIN_KERNELS_ROW_SUMS_H
#define DUNLIN_KERNELS_ROW_SUMS_H

#include <stddef.h>
#include <stdint.h>

#define DUNLIN_ROW_SUMS_LINE 16 /* numbers; slots and sums begin at multiples of it */

typedef struct dunlin_row_sums {
    int32_t *n;     /* slots in use */
    int32_t *slots; /* of each row of the table; -1: none, its sum is zero */
    float *values;  /* a row each */
} dunlin_row_sums;

static inline int64_t dunlin__row_sums_head(int64_t n_rows)
{
    return DUNLIN_ROW_SUMS_LINE +
           (n_rows + DUNLIN_ROW_SUMS_LINE - 1) / DUNLIN_ROW_SUMS_LINE * DUNLIN_ROW_SUMS_LINE;
}

/* Numbers of four bytes that the block takes. */
static inline int64_t dunlin__row_sums_elements(int64_t n_rows, int64_t width, int64_t n_slots)
{
    return dunlin__row_sums_head(n_rows) + n_slots * width;
}

static inline dunlin_row_sums dunlin__row_sums_at(void *block, int64_t n_rows)
{
    int32_t *numbers = block;
    return (dunlin_row_sums){.n = numbers,
                             .slots = numbers + DUNLIN_ROW_SUMS_LINE,
                             .values = (float *)block + dunlin__row_sums_head(n_rows)};
}

#endif
