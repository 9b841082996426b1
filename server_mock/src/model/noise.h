/*
 * noise.h - the noise of a private round: updates on a grid, and whole numbers drawn for each sum.
 *
 * Updates are rounded to multiples of a power of two that is some 2^-30 of the noise's deviation,
 * so their sum is a whole number of steps and the discrete Gaussian (privacy/discrete.h) is added
 * to it exactly. Rounding makes an update longer by at most half a step in each value; the noise is
 * chosen for the bound with that added, so it costs what the accountant says (Kairouz, Liu, Steinke
 * 2021, "The Distributed Discrete Gaussian Mechanism", section 4, rounds at random instead).
 */
#ifndef DUNLIN_SERVER_NOISE_H
#define DUNLIN_SERVER_NOISE_H

#include "privacy/bits.h"
#include "privacy/discrete.h"

#define DUNLIN_NOISE_SLACK 1e-6 /* of the bound: so much longer an update may be as it comes */
#define DUNLIN_NOISE_NODES 24u  /* the most that one round adds or takes away */

/* Noise of one seed. */
typedef struct dunlin__noise_node {
    uint8_t seed[DUNLIN_SEED_BYTES];
    bool is_taken_away; /* it was added in an earlier round (tree aggregation) */
} dunlin__noise_node;

/* What is added to the sum of a round. Ends with dunlin__noise_wipe(). */
typedef struct dunlin__noise {
    double grid;        /* the step */
    double sensitivity; /* of a sum of rounded updates to one of them, in the updates' unit */
    dunlin__discrete_gaussian gaussian; /* in steps */
    dunlin__noise_node nodes[DUNLIN_NOISE_NODES];
    size_t n_nodes;
} dunlin__noise;

/**
 * Grid and deviation, without nodes.
 *
 * @param clip the bound of an update's norm, above 0.
 * @param multiplier the deviation in units of the bound.
 * @param n_values of an update.
 * @return OK; LIMIT: no grid is fine enough for so many values and so much noise.
 */
DUNLIN_NODISCARD dunlin_status dunlin__noise_make(dunlin__noise *out_noise, double clip,
                                                  double multiplier, uint64_t n_values,
                                                  dunlin_error *error);

/** Scales n values of an update and rounds them to the grid, in place. */
void dunlin__noise_round(const dunlin__noise *noise, double scale, float *values, size_t n);

/**
 * The noise of one sum, all nodes together: it follows from seeds and place alone.
 *
 * @param place the number of the value in an update.
 * @return a multiple of the grid.
 */
double dunlin__noise_draw(const dunlin__noise *noise, uint64_t place);

/** Leaves no seed behind. */
void dunlin__noise_wipe(dunlin__noise *noise);

#endif
