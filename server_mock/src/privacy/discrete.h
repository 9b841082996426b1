/*
 * discrete.h - whole numbers with the discrete Laplace and the discrete Gaussian distribution.
 *
 * Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", algorithms 1 to
 * 3: exact, since whatever is decided is decided by whole numbers of any size (GMP's mpn) and
 * single random bits; nothing is rounded. How long a draw takes depends on what is drawn, so
 * whoever can time single draws learns of the noise.
 */
#ifndef DUNLIN_SERVER_PRIVACY_DISCRETE_H
#define DUNLIN_SERVER_PRIVACY_DISCRETE_H

#include "bits.h"

#include <dunlin/base.h>

#include <gmp.h>

#define DUNLIN_WIDE_BITS 320
#define DUNLIN_WIDE_LIMBS (DUNLIN_WIDE_BITS / GMP_NUMB_BITS)

#define DUNLIN_VARIANCE_NUMERATOR ((uint64_t)1 << 62)   /* at most */
#define DUNLIN_VARIANCE_DENOMINATOR ((uint64_t)1 << 32) /* at most */
#define DUNLIN_LAPLACE_SCALE ((uint64_t)1 << 32)        /* at most */

/* What draws of one variance share. */
typedef struct dunlin__discrete_gaussian {
    uint64_t
        scale; /* of the Laplace distribution that is drawn from: the root, rounded down, + 1 */
    mp_limb_t variance[DUNLIN_WIDE_LIMBS];      /* the numerator */
    mp_limb_t scaled[DUNLIN_WIDE_LIMBS];        /* scale times the denominator */
    mp_limb_t twice_squared[DUNLIN_WIDE_LIMBS]; /* 2 numerator denominator scale^2 */
} dunlin__discrete_gaussian;

/**
 * Whether a chance of a / b comes true.
 *
 * @param b above 0 and below 2^63; a of at least b is certain.
 */
bool dunlin__discrete_chance(dunlin__bits *bits, uint64_t a, uint64_t b);

/**
 * One number x with a probability proportional to e^(-|x| / scale).
 *
 * @param scale from 1 to DUNLIN_LAPLACE_SCALE.
 */
int64_t dunlin__discrete_laplace(dunlin__bits *bits, uint64_t scale);

/**
 * For a probability proportional to e^(-x^2 / (2 variance)), variance = numerator / denominator.
 *
 * @return OK; ARGUMENT: a part is 0 or above its limit, or the variance is below 2^-20.
 */
DUNLIN_NODISCARD dunlin_status dunlin__discrete_gaussian_make(dunlin__discrete_gaussian *out_noise,
                                                              uint64_t numerator,
                                                              uint64_t denominator,
                                                              dunlin_error *error);

/** One number. */
int64_t dunlin__discrete_gaussian_draw(const dunlin__discrete_gaussian *noise, dunlin__bits *bits);

#endif
