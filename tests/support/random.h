/*
 * random.h - repeatable random numbers for property tests, and how many cases to run.
 */
#ifndef DUNLIN_TESTS_RANDOM_H
#define DUNLIN_TESTS_RANDOM_H

#include <stdint.h>

/* SplitMix64: a state of one word; start it with any seed. */
uint64_t test_random_u64(uint64_t *state);

/* Uniform in [0, n), n > 0. */
uint64_t test_random_below(uint64_t *state, uint64_t n);

/* Uniform in [low, high). */
double test_random_range(double low, double high, uint64_t *state);

/* Fills with uniform values in [low, high). */
void test_random_fill(float *values, int64_t n, double low, double high, uint64_t *state);

/* `n`, scaled by the environment's DUNLIN_CASES (a factor, "10" or "0.1"); at least 1. */
int test_cases(int n);

/* From one case of a long list to the next: an emulator, under which each takes a minute, runs
 * every third, and so do sanitizers and a 32-bit build, whose kernels have half the registers. */
#if defined(DUNLIN_EMULATED) || defined(__SANITIZE_ADDRESS__) || UINTPTR_MAX == UINT32_MAX
#define TEST_STRIDE 3
#else
#define TEST_STRIDE 1
#endif

/* The environment's DUNLIN_SEED, else `seed`. */
uint64_t test_seed(uint64_t seed);

#endif
