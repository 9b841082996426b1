/*
 * places_check.h - the places of maxima as kernels keep them, read by their description in
 * kernels/api/place_bits.h alone.
 */
#ifndef DUNLIN_TESTS_PLACES_CHECK_H
#define DUNLIN_TESTS_PLACES_CHECK_H

#include "kernels/api/place_bits.h"

/* Room for the places of n elements and what shows whether more is written; free() it. */
uint8_t *places_new(int64_t n);

/* Bytes of one output pixel. */
int64_t places_of_pixel(const dunlin_pool_shape *shape);

/* The place that is kept for an element of the output. */
int32_t place_number(const dunlin_pool_shape *shape, const uint8_t *index, int64_t element);

/* Of n elements all are as expected, but for windows without a pixel (255); nothing behind them is
 * written. `index` is from places_new(). */
void expect_places(const char *isa, const dunlin_pool_shape *shape, int64_t n, const uint8_t *index,
                   const uint8_t *expected, uint64_t seed);

/* The kernel's places, a byte each, but for windows without a pixel: a tie in float is none in
 * double. */
void take_places(const dunlin_pool_shape *shape, int64_t n, const uint8_t *index, uint8_t *out);

#endif
