/*
 * random.c - SplitMix64 (Steele, Lea, Flood 2014) and the scale of property tests.
 */
#include "random.h"

#include <stdlib.h>

uint64_t test_random_u64(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15ULL;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

uint64_t test_random_below(uint64_t *state, uint64_t n)
{
    return test_random_u64(state) % n;
}

double test_random_range(double low, double high, uint64_t *state)
{
    return low + (high - low) * (double)(test_random_u64(state) >> 11) * 0x1p-53;
}

void test_random_fill(float *values, int64_t n, double low, double high, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float)test_random_range(low, high, state);
    }
}

int test_cases(int n)
{
    const char *text = getenv("DUNLIN_CASES");
    double factor = text == NULL ? 1.0 : strtod(text, NULL);
    int scaled = (int)(n * factor);
    return scaled < 1 ? 1 : scaled;
}

uint64_t test_seed(uint64_t seed)
{
    const char *text = getenv("DUNLIN_SEED");
    return text == NULL ? seed : strtoull(text, NULL, 0);
}
