/*
 * int_few.h - dense layers of few rows and many weights, forward: weights are used as they lie.
 */
#ifndef DUNLIN_KERNELS_INT_FEW_H
#define DUNLIN_KERNELS_INT_FEW_H

#include "int_conv.h"

/* What a pass has: rows of windows and memory. */
typedef struct int_few {
    const dunlin_int_conv_call *call;
    const conv_view *view; /* plain, one group */
    int64_t n_rows, pitch; /* of packed rows */
    void *rows_room;       /* for all packed rows */
    int64_t rows_bytes;
    void *rooms; /* of each thread */
    int64_t room_bytes;
    int_tally *tally;
} int_few;

/* False: it is not for them, and nothing has been done. */
bool K(int_few_forward)(const int_few *few);

#endif
