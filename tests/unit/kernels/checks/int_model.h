/*
 * int_model.h - integer kernels in plain C: sums in 64 bits, each rounding as its definition says
 * it; and guarded arrays.
 */
#ifndef DUNLIN_TESTS_INT_MODEL_H
#define DUNLIN_TESTS_INT_MODEL_H

#include "kernels/api/integer.h"

#include <stddef.h>

/* n elements of `size` bytes between guards, 64-byte aligned, filled with a pattern. */
void *int_new(int64_t n, size_t size);
void int_free(void *array);
/* Nothing was written outside. */
bool int_is_intact(const void *array);
/* int8 in [-127, 127]; with a small share of zeros and of both ends. */
int8_t *int_random(int64_t n, uint64_t *state);

/* v / 2^shift, half away from zero, within +-127; the statistics take it in. stats may be NULL. */
int32_t int_model_round(int64_t v, int32_t shift, dunlin_int_stats *stats);
/* The same of |numerator| / denominator with the numerator's sign. */
int32_t int_model_fraction(int64_t numerator, int64_t denominator, int64_t *out_clipped);

typedef struct int_sums {
    int64_t *y, *dx, *dw, *db; /* of all samples */
} int_sums;

/* All sums of products of a convolution: free them with int_sums_free(). */
void int_model_conv(const dunlin_conv_shape *shape, int64_t n, const int8_t *x, const int8_t *w,
                    const int8_t *dy, int_sums *out_sums);
void int_sums_free(int_sums *sums);

/* The same n elements, and nothing was written outside; the same statistics. `what` is told. */
void int_same(const dunlin_int_kernels *k, const char *what, const int8_t *is, const int8_t *wanted,
              int64_t n);
void int_same_stats(const dunlin_int_kernels *k, const char *what, const dunlin_int_stats *is,
                    const dunlin_int_stats *wanted);

/* Calls fn for every usable table. */
typedef void (*each_int_fn)(const dunlin_int_kernels *kernels);
void each_int(each_int_fn fn);

#endif
