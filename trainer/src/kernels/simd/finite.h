/*
 * finite.h - whether floats are finite, without a branch for each: the bits of many are gathered
 * into one word, which is looked at once.
 */
#ifndef DUNLIN_KERNELS_FINITE_H
#define DUNLIN_KERNELS_FINITE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define FINITE_BLOCK 64

/* Takes x in: the top bit is set for good once a value was infinite or no number, for only then are
 * all bits of its exponent ones, so that one more carries. */
static inline uint32_t finite_gather(uint32_t seen, float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return seen | ((bits & UINT32_C(0x7fffffff)) + UINT32_C(0x00800000));
}

static inline bool finite_is_all(uint32_t seen)
{
    return (seen & UINT32_C(0x80000000)) == 0;
}

/* The bits of the largest of n floats by size; finite if finite_is_size() of them. */
static inline uint32_t finite_largest(const float *x, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, x + i, sizeof bits);
        bits &= UINT32_C(0x7fffffff);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static inline bool finite_is_size(uint32_t bits)
{
    return bits < UINT32_C(0x7f800000);
}

/* Index of the first of n floats that is not finite; n if all are. */
static inline int64_t finite_count(const float *x, int64_t n)
{
    int64_t first = 0;
    for (; n - first >= FINITE_BLOCK; first += FINITE_BLOCK) {
        uint32_t seen = 0;
        for (int i = 0; i < FINITE_BLOCK; i++) {
            seen = finite_gather(seen, x[first + i]);
        }
        if (!finite_is_all(seen)) {
            break;
        }
    }
    while (first < n && finite_is_all(finite_gather(0, x[first]))) {
        first++;
    }
    return first;
}

/* None of n upper halves of floats has an exponent of ones. */
static inline bool finite_is_all_bf16(const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if ((x[i] & 0x7f80U) == 0x7f80U) {
            return false;
        }
    }
    return true;
}

#endif
