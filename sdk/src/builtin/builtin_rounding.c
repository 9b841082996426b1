/*
 * builtin_rounding.c - draws by place, and the rounding that they decide.
 */
#include "builtin_rounding.h"

#include <math.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define UNIFORM 0x1p-53 /* the upper 53 bits of a draw, as a number below 1 */
#define UNIFORM_SHIFT 11

/* A bijection of 64 bits. Source: Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number
 * Generators" (SplitMix64's finaliser, variant 13 of Stafford). */
static uint64_t stirred(uint64_t word)
{
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

uint64_t dunlin__rounding_key(uint64_t seed, uint64_t round, uint64_t tensor)
{
    uint64_t key = stirred(seed + GOLDEN);
    key = stirred(key ^ (round + GOLDEN));
    return stirred(key ^ (tensor + GOLDEN));
}

void dunlin__rounding_apply(uint64_t key, float unit, int64_t first, int64_t n, float *values)
{
    for (int64_t i = 0; i < n; i++) {
        const double scaled = (double)values[i] / (double)unit;
        const double below = floor(scaled);
        const uint64_t draw = stirred(key + (uint64_t)(first + i + 1) * GOLDEN);
        const double level = (double)(draw >> UNIFORM_SHIFT) * UNIFORM;
        const double whole = below + (level < scaled - below ? 1.0 : 0.0);
        values[i] = (float)(whole * (double)unit);
    }
}
