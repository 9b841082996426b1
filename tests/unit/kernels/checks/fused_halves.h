/*
 * fused_halves.h - a drawn call whose tensors hold bfloat16: what it reads, or also its input
 * gradient.
 */
#ifndef DUNLIN_TESTS_FUSED_HALVES_H
#define DUNLIN_TESTS_FUSED_HALVES_H

#include "fused_data.h"

#define FUSED_MOST_HALVES 8

/* A call's tensors, as long as its samples need. */
typedef struct fused_halves {
    const float *floats[FUSED_MOST_HALVES];
    uint16_t *halves[FUSED_MOST_HALVES];
    int n;
    float *out; /* of the call; NULL: it was left as it is */
    int64_t n_out;
    uint16_t *out_halves;
} fused_halves;

/* The nearest bfloat16 of a finite number, ties to even. */
float fused_rounded(float x);
/* Rounds what the call's data hold, so that nothing is lost when they become bfloat16. */
void fused_data_round(fused_data *d);
/* The input gradient can be stored as bfloat16: what is stored is what sums are taken of. */
bool fused_may_store_halves(const fused_choice *choice);

/* Puts bfloat16 in the place of what the call reads and, if the data say so, of dx.out. */
void fused_halves_open(const fused_data *d, dunlin_fused_call *call, fused_halves *halves);
/* Widens dx to where the call had it, and frees. */
void fused_halves_close(const dunlin_fused_call *call, fused_halves *halves);

#endif
