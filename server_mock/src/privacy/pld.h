/*
 * pld.h - epsilon of rounds composed, by the distribution of the privacy loss.
 *
 * The losses of the rounds (loss.h) are added by a Fourier transform over masses that were tilted:
 * mass times e^(t loss), scaled to 1, with t where the moments bound delta best. So the outcomes
 * that delta consists of are the likely ones, what the transform rounds is relative to delta and
 * not to 1, and the window that the sum needs is some standard deviations wide, whatever the number
 * of rounds. What the window cuts off (bounded by moments, Chernoff) and what the transform rounds
 * (fourier.h) is added to the upper delta and taken from the lower one.
 */
#ifndef DUNLIN_SERVER_PRIVACY_PLD_H
#define DUNLIN_SERVER_PRIVACY_PLD_H

#include <dunlin/alloc.h>

/* So many rounds of one kind. */
typedef struct dunlin__pld_rounds {
    double noise; /* standard deviation in units of the sensitivity, from 0.05 on */
    double rate;  /* the chance of a device to be in a round, above 0, at most 1 */
    uint64_t n_rounds;
} dunlin__pld_rounds;

/* The true epsilon lies between the two. */
typedef struct dunlin__pld_bracket {
    double upper;
    double lower; /* 0 where it was not asked for */
} dunlin__pld_bracket;

#define DUNLIN_PLD_KINDS 16u
#define DUNLIN_PLD_WIDTH 2e-4 /* of a bracket; the grid is refined until it is so narrow */

/**
 * Epsilon at `delta`, of the worse of both directions (a device more, a device less).
 *
 * @param kinds of rounds, n of them, at most DUNLIN_PLD_KINDS.
 * @param delta from 1e-30 on, below 1.
 * @param wants_lower false: the upper one alone, on a grid that was refined until another one
 * changes it by less than half of DUNLIN_PLD_WIDTH, in a third of the time.
 * @return OK; LIMIT: too many kinds, or losses that no grid of 2^22 points holds; MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__pld_epsilon(const dunlin__pld_rounds *kinds, size_t n,
                                                   double delta, bool wants_lower,
                                                   const dunlin_alloc *alloc,
                                                   dunlin__pld_bracket *out_epsilon,
                                                   dunlin_error *error);

#endif
