/*
 * noise_cases.h - what is asked of noise of the devices of either kind alike: terms with it, draws
 * beside the table of their distribution and beside moments, a mean that allows for it.
 */
#ifndef DUNLIN_TESTS_NOISE_CASES_H
#define DUNLIN_TESTS_NOISE_CASES_H

#include "secagg/secagg_world.h"

#include <wire/secagg_noise.h>

#include <stddef.h>
#include <stdint.h>

/* A kind of noise: the chance that a sum of devices' draws, of this variance in all, is x. */
typedef struct noise_case {
    dunlin_v1_secagg_noise_t kind;
    double (*chance_fn)(double variance, int64_t x);
} noise_case;

/* Terms of version 2 that are right: n devices, everybody a neighbour, 1,000 values. */
dunlin__secagg_plan noise_terms(dunlin_v1_secagg_noise_t kind, uint32_t n, uint32_t scale);

/* Each of n numbers is the sum of the draws of `n_parts` devices. The caller frees them. */
int32_t *noise_draw(dunlin_v1_secagg_noise_t kind, uint32_t scale, size_t n, int n_parts);

/* Chi-square over single numbers within two deviations, and what is beyond them on either side: at
 * most six of its own deviations above its mean. */
void noise_expect_table(const noise_case *of, uint32_t scale, int n_parts);

/* Mean 0, variance 1, third moment 0, fourth 3 and `more`, in scales: 0 for normal numbers. */
void noise_expect_moments(dunlin_v1_secagg_noise_t kind, uint32_t scale, double more);

/* No two devices draw the same numbers. */
void noise_expect_others(dunlin_v1_secagg_noise_t kind);

/* Terms are refused with a text that has this in it. */
void noise_expect_refused(const dunlin__secagg_plan *plan, const char *text);

/* Terms that are right for neither kind. */
void noise_expect_terms(dunlin_v1_secagg_noise_t kind);

/* Sums with noise are no error, and what no noise reaches is. */
void noise_expect_mean(dunlin_v1_secagg_noise_t kind);

#endif
