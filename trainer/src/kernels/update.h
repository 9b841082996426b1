/*
 * update.h - an optimiser's pass over a parameter, as its walks see it: over all of it, or over the
 * rows of a table that have a gradient or move without one.
 */
#ifndef DUNLIN_KERNELS_UPDATE_H
#define DUNLIN_KERNELS_UPDATE_H

#include "isa.h"

/* Elements [first, first + n); `gradient` begins with that of the first. */
typedef void (*update_fn)(const void *call, int64_t first, int64_t n, const float *gradient);

typedef struct update_pass {
    update_fn fn;
    const void *call;
    int64_t n;
    const float *gradient;          /* of all elements, or of each slot */
    const dunlin_update_rows *rows; /* NULL: of all elements */
    const float *state[2];          /* of the optimiser; NULL: it has none, or one */
    dunlin_threads *threads;
} update_pass;

/* Row by row; the other walk is optim.c's. */
void K(update_rows)(const update_pass *pass);

#endif
