/*
 * secagg_noise.h - noise that each device adds to its whole numbers before it masks them, and what
 * a sum of such noises is worth.
 *
 * Kairouz, Liu, Steinke 2021, "The Distributed Discrete Gaussian Mechanism for Federated Learning
 * with Secure Aggregation". A sum of discrete Gaussians is no discrete Gaussian: per element its
 * probabilities differ from those of one with the sum's parameter by factors within e^+-gap
 * (their theorem of two, and induction over the parts), and that is counted.
 */
#ifndef DUNLIN_WIRE_SECAGG_NOISE_H
#define DUNLIN_WIRE_SECAGG_NOISE_H

#include <wire/secagg.h>

#define DUNLIN_SECAGG_SCALE_LEAST 2u        /* of noise_scale */
#define DUNLIN_SECAGG_SCALE_MOST (1u << 24) /* for numbers of 64 bits while drawing */
#define DUNLIN_SECAGG_OVERFLOW_LOG2 (-40.0) /* chance of a round that some sum leaves the ring */

/* ---- what it is worth ---- */

/**
 * For the sum of `n_parts` discrete Gaussians of the parameter `scale` each: an upper bound of
 * |log(p / q)|, p its probability of a whole number and q that of the discrete Gaussian of the
 * parameter scale x sqrt(n_parts): 5 times the sum over k below n_parts of e^(-2 pi^2 scale^2 k /
 * (k + 1)), rounded up.
 *
 * @param scale from 0.5 on.
 */
double dunlin__secagg_noise_gap(double scale, uint64_t n_parts);

/**
 * What the noises of n_cohort devices stay within, for all n_values elements together, but for a
 * chance of 2^-40: a discrete Gaussian is as sub-Gaussian as the other one (Canonne, Kamath,
 * Steinke 2020). In whole numbers, rounded up; 0 without noise.
 */
uint64_t dunlin__secagg_noise_reach(const dunlin__secagg_plan *plan);

/** The deviation of the noise of least_honest devices in units of the clip: noise_scale x
 * sqrt(least_honest) / value_limit. */
double dunlin__secagg_noise_multiplier(const dunlin__secagg_plan *plan);

/**
 * Epsilon for one device in `n_rounds` sums, neighbours being the device with its updates and with
 * zeros: moments of the discrete Gaussian (Canonne, Kamath, Steinke 2020, theorem 14) at the best
 * order, at delta x e^-(n_rounds gap), and 2 n_rounds gap on top of it, since the
 * probabilities of all outcomes are within e^+-(n_rounds gap) of those of exact noise.
 *
 * @param multiplier the deviation in units of the clip, above 0.
 * @param gap of all elements of one sum.
 * @param delta above 0, below 1.
 * @return epsilon; infinity where none can be told.
 */
double dunlin__secagg_noise_epsilon(double multiplier, double gap, uint64_t n_rounds, double delta);

/* ---- draws ---- */

/** Running draws of one device. Not copied; after begin, end. */
typedef struct dunlin__secagg_noise {
    uint64_t scale;
    dunlin__ctr stream; /* AES-256 in counter mode, under a key that is drawn and kept nowhere */
    uint64_t words[64];
    uint32_t n_used; /* of them */
    dunlin_status status;
    dunlin_error error;
} dunlin__secagg_noise;

/**
 * Starts draws for the terms' noise, of version 2.
 *
 * @return OK; MEMORY; INTERNAL: then there is nothing to end.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_noise_begin(const dunlin__secagg_plan *plan,
                                                          dunlin__secagg_noise *out_noise,
                                                          dunlin_error *error);

/**
 * Adds a draw to each of `n` elements, modulo 2^32. Exact: what is decided is decided by whole
 * numbers and random bits (Canonne, Kamath, Steinke 2020, algorithms 1 to 3). How long it takes
 * depends on what is drawn.
 *
 * @return OK; INTERNAL: no random bits, and the elements are of no use.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_noise_add(dunlin__secagg_noise *noise,
                                                        uint32_t *elements, size_t n,
                                                        dunlin_error *error);
/** Forgets key and bits; harmless on a zeroed one. */
void dunlin__secagg_noise_end(dunlin__secagg_noise *noise);

#endif
