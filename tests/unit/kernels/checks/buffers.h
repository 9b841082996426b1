/*
 * buffers.h - arrays for the kernels' tests: exactly as long as asked, with guards where a
 * sanitizer does not watch, filled at random, and compared.
 */
#ifndef DUNLIN_TESTS_BUFFERS_H
#define DUNLIN_TESTS_BUFFERS_H

#include "kernels/api/kernels.h"

/* n floats between guards; the address is 64-byte aligned. Filled with a pattern of NaN. */
float *buffer_new(int64_t n);
void buffer_free(float *buffer);
/* Nothing was written outside. */
bool buffer_is_intact(const float *buffer);

float *buffer_random(int64_t n, uint64_t *state);       /* uniform in [-1, 1) */
double *buffer_doubles(const float *values, int64_t n); /* free() it; NULL: n zeros */

/* The first element whose error exceeds factor * eps * size (NULL: factor * eps), -1 if none. */
int64_t buffer_first_wrong(const float *values, const double *expected, const double *size,
                           double factor, int64_t n);
bool buffer_same_bits(const float *a, const float *b, int64_t n);

/* Calls fn for every usable instruction set. */
typedef void (*each_isa_fn)(const dunlin_kernels *kernels);
void each_isa(each_isa_fn fn);

#endif
