/*
 * cover.h - a covering draw: few rows of settings in which every pair of values of any two factors
 * stands at least once (strength two; the greedy draw of Cohen, Dalal, Fredman, Patton, "The AETG
 * system", IEEE Transactions on Software Engineering 23(7), 1997, section 4).
 */
#ifndef DUNLIN_TESTS_COVER_H
#define DUNLIN_TESTS_COVER_H

#include <stdbool.h>
#include <stdint.h>

#define COVER_MAX_FACTORS 8
#define COVER_MAX_VALUES 16

typedef struct cover_factors {
    int n;
    int n_values[COVER_MAX_FACTORS]; /* of each, at most COVER_MAX_VALUES */
} cover_factors;

typedef struct cover_row {
    int values[COVER_MAX_FACTORS]; /* of each factor, from 0 on */
} cover_row;

/* Fills `n_rows` rows, the same for the same seed; returns how many pairs stand in none of them. */
int cover_draw(const cover_factors *factors, uint64_t seed, int n_rows, cover_row *out_rows);

/* Rows of the full product, and the one of that index. */
int cover_product(const cover_factors *factors);
cover_row cover_product_row(const cover_factors *factors, int index);

#endif
