/*
 * update.h - an optimiser's pass over a parameter: over all of it, or over the rows of a table that
 * have a gradient or change without one.
 */
#ifndef DUNLIN_KERNELS_UPDATE_H
#define DUNLIN_KERNELS_UPDATE_H

#include "kernels/gemm/gemm.h"
#include "kernels/simd/finite.h"

#include <stdatomic.h>

/* Elements [first, first + n); `gradient` begins with that of the first. Without `writes` they are
 * only computed. False if the gradient or a new value is not finite (where it writes, that is not
 * looked at). */
typedef bool (*update_fn)(const void *call, int64_t first, int64_t n, const float *gradient,
                          bool writes);

typedef struct update_pass {
    update_fn fn;
    const void *call;
    int64_t n;
    const float *gradient;          /* of all elements, or of each slot */
    const dunlin_update_rows *rows; /* NULL: of all elements */
    const float *state[2];          /* of the optimiser; NULL: it has none, or one */
    dunlin_threads *threads;
} update_pass;

/* One way over a pass: to look, or to write. */
typedef struct update_walk {
    const update_pass *pass;
    bool writes;
    atomic_bool has_failed; /* set by tasks */
} update_walk;

/* Row by row; the other walk is optim.c's. */
void K(update_rows)(update_walk *walk);

#endif
