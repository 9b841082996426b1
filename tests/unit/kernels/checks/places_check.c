/*
 * places_check.c - see places_check.h.
 */
#include "places_check.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define NO_PIXEL 255
#define GUARD 0xA5
#define GUARD_BYTES 16 /* behind one byte an element */

uint8_t *places_new(int64_t n)
{
    const size_t n_bytes = (size_t)n + GUARD_BYTES;
    uint8_t *places = malloc(n_bytes);
    cr_assert_not_null(places);
    memset(places, GUARD, n_bytes);
    return places;
}

int64_t places_of_pixel(const dunlin_pool_shape *shape)
{
    return dunlin__place_bytes(dunlin__place_bits(shape), shape->channels);
}

int32_t place_number(const dunlin_pool_shape *shape, const uint8_t *index, int64_t element)
{
    const int32_t bits = dunlin__place_bits(shape);
    const int32_t c = (int32_t)(element % shape->channels);
    const int32_t first = c / 16 * 16; /* of the group */
    const int32_t n = shape->channels - first < 16 ? shape->channels - first : 16;
    const uint8_t *pixel = index + element / shape->channels * places_of_pixel(shape);
    int32_t bytes = 1;
    while (bytes * 8 < n * bits) {
        bytes *= 2;
    }
    if (bits == 8) {
        return pixel[c];
    }
    const int32_t byte = pixel[first / 8 * bits + (c - first) % bytes];
    return byte >> ((c - first) / bytes * bits) & ((1 << bits) - 1);
}

void expect_places(const char *isa, const dunlin_pool_shape *shape, int64_t n, const uint8_t *index,
                   const uint8_t *expected, uint64_t seed)
{
    const int64_t n_bytes = n / shape->channels * places_of_pixel(shape);
    for (int64_t i = 0; i < n; i++) {
        cr_assert(expected[i] == NO_PIXEL || place_number(shape, index, i) == expected[i],
                  "%s: place of element %lld, seed %llu", isa, (long long)i,
                  (unsigned long long)seed);
    }
    for (int64_t i = n_bytes; i < n + GUARD_BYTES; i++) {
        cr_assert_eq(index[i], GUARD, "%s: written behind the places, seed %llu", isa,
                     (unsigned long long)seed);
    }
}

void take_places(const dunlin_pool_shape *shape, int64_t n, const uint8_t *index, uint8_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = out[i] == NO_PIXEL ? NO_PIXEL : (uint8_t)place_number(shape, index, i);
    }
}
