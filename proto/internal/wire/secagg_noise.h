/*
 * secagg_noise.h - noise that each device adds to its whole numbers before it masks them, and what
 * a sum of such noises is worth.
 *
 * Kairouz, Liu, Steinke 2021, "The Distributed Discrete Gaussian Mechanism for Federated Learning
 * with Secure Aggregation". A sum of discrete Gaussians is no discrete Gaussian: per element its
 * probabilities differ from those of one with the sum's parameter by factors within e^+-gap
 * (their theorem of two, and induction over the parts), and that is counted.
 *
 * Agarwal, Kairouz, Liu 2021, "The Skellam Mechanism for Differentially Private Federated
 * Learning": a sum of Skellam numbers is one, so nothing is counted on top; the bound of one is its
 * own.
 */
#ifndef DUNLIN_WIRE_SECAGG_NOISE_H
#define DUNLIN_WIRE_SECAGG_NOISE_H

#include <wire/secagg.h>

#define DUNLIN_SECAGG_SCALE_LEAST 2u        /* of noise_scale */
#define DUNLIN_SECAGG_SCALE_MOST (1u << 24) /* for numbers of 64 bits while drawing */
/* Of Skellam numbers: a draw takes as many trials as the scale, give or take, and steps finer than
 * a thousandth of a device's noise change nothing. */
#define DUNLIN_SECAGG_SKELLAM_MOST (1u << 10)
#define DUNLIN_SECAGG_OVERFLOW_LOG2 (-40.0) /* chance of a round that some sum leaves the ring */

/** The largest noise_scale of a kind. */
static inline uint32_t dunlin__secagg_scale_most(dunlin_v1_secagg_noise_t kind)
{
    return kind == DUNLIN_V1_SECAGG_NOISE_SKELLAM ? DUNLIN_SECAGG_SKELLAM_MOST
                                                  : DUNLIN_SECAGG_SCALE_MOST;
}

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
 * Steinke 2020), a Skellam number of the variance v has the moments e^(v (cosh(t) - 1)) of e^(t x).
 * In whole numbers, rounded up; 0 without noise.
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

/** A sum of Skellam noise, and what is hidden in it: whole numbers of an L2 norm of up to
 * value_limit, in n_values elements. */
typedef struct dunlin__secagg_skellam {
    double multiplier; /* the sum's deviation in units of value_limit, above 0 */
    double value_limit;
    double n_values;
} dunlin__secagg_skellam;

/**
 * Moments of one sum at a whole order from 2 on, with D2 = value_limit, v = (multiplier x D2)^2
 * and D1 the largest L1 norm, D2 x min(D2, sqrt(n_values)): order D2^2 / (2 v) + min(((2 order - 1)
 * D2^2 + 6 D1) / (4 v^2), 3 D1 / (2 v)) (Agarwal, Kairouz, Liu 2021, corollary 3.6), rounded up.
 */
double dunlin__secagg_skellam_moment(const dunlin__secagg_skellam *sum, double order);

/**
 * Epsilon for one device in `n_rounds` sums, neighbours as above: at the best whole order, and
 * nothing else, since a sum of Skellam numbers is one.
 *
 * @param delta above 0, below 1.
 * @return epsilon; infinity where none can be told.
 */
double dunlin__secagg_skellam_epsilon(const dunlin__secagg_skellam *sum, uint64_t n_rounds,
                                      double delta);

/** Epsilon of the terms' noise, of either kind, for one device in `n_rounds` sums: version 2. */
double dunlin__secagg_plan_epsilon(const dunlin__secagg_plan *plan, uint64_t n_rounds,
                                   double delta);

/* ---- draws ---- */

/** What draws of one Poisson distribution share (skellam.c). */
typedef struct dunlin__secagg_poisson {
    uint64_t square;        /* twice the mean */
    uint64_t mode;          /* the mean, rounded down */
    uint64_t low, high;     /* ends of the middle, where each number is proposed alike */
    uint64_t n_low, n_high; /* proposals below the middle and above it */
    uint64_t tail_low[2];   /* what those below are worth, as a fraction */
    uint64_t tail_high[2];  /* ...and those above */
} dunlin__secagg_poisson;

/** Running draws of one device. Not copied; after begin, end. */
typedef struct dunlin__secagg_noise {
    dunlin_v1_secagg_noise_t kind;
    uint64_t scale;
    dunlin__secagg_poisson poisson; /* of Skellam numbers */
    dunlin__ctr stream; /* AES-256 in counter mode, under a key that is drawn and kept nowhere */
    uint64_t words[64];
    uint32_t n_used; /* of them */
    uint8_t bytes[1024];
    uint32_t n_bytes_used; /* of them */
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
 * numbers and random bits (Canonne, Kamath, Steinke 2020, algorithms 1 to 3; skellam.c). How long
 * it takes depends on what is drawn.
 *
 * @return OK; INTERNAL: no random bits, and the elements are of no use.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_noise_add(dunlin__secagg_noise *noise,
                                                        uint32_t *elements, size_t n,
                                                        dunlin_error *error);
/** Forgets key and bits; harmless on a zeroed one. */
void dunlin__secagg_noise_end(dunlin__secagg_noise *noise);

#endif
