/*
 * mix.h - counter-based random numbers that tests compute on both sides of a comparison with
 * PyTorch; tests/golden/make_nets.py has the same.
 *
 * The function is SplitMix64's output function (Steele, Lea, Flood 2014).
 */
#ifndef DUNLIN_TESTS_MIX_H
#define DUNLIN_TESTS_MIX_H

#include <stdint.h>

#define MIX_SIGNS 100000 /* + index of a parameter: the stream of its signs */
#define MIX_N_SIGNS 8    /* sums a sketch */

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static inline uint64_t mix_key(uint64_t stream)
{
    return mix(stream + 1);
}

/* Number i of the stream with this key. */
static inline uint64_t mix_number(uint64_t key, int64_t i)
{
    return mix(key + ((uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15));
}

/* Adds `value`, element i, to the sketch's sums under random signs. */
static inline void mix_add(double sums[MIX_N_SIGNS], uint64_t key, int64_t i, double value)
{
    const uint64_t bits = mix_number(key, i);
    for (int k = 0; k < MIX_N_SIGNS; k++) {
        sums[k] += (bits >> k & 1) != 0 ? value : -value;
    }
}

/* The squared distance of two sketched vectors: its expectation is exact. */
static inline double mix_distance2(const double a[MIX_N_SIGNS], const double b[MIX_N_SIGNS])
{
    double result = 0.0;
    for (int k = 0; k < MIX_N_SIGNS; k++) {
        result += (a[k] - b[k]) * (a[k] - b[k]) / MIX_N_SIGNS;
    }
    return result;
}

#endif
