/*
 * noise_draws.h - random bits of a device's noise as its distributions want them, and draws of
 * Poisson and Skellam numbers.
 */
#ifndef DUNLIN_WIRE_SECAGG_NOISE_DRAWS_H
#define DUNLIN_WIRE_SECAGG_NOISE_DRAWS_H

#include <wire/secagg_noise.h>

/** A whole number below n, each as likely as the others; n above 0. */
uint64_t dunlin__noise_below(dunlin__secagg_noise *noise, uint64_t n);

/** Random bytes that nobody has used, at least one: who uses some adds them to n_bytes_used. */
const uint8_t *dunlin__noise_bytes(dunlin__secagg_noise *noise, size_t *out_n);

/** For the mean square / 2; `square` from 1 to 2^40. */
void dunlin__poisson_make(uint64_t square, dunlin__secagg_poisson *out_poisson);

/** A number with the chance mean^x / x! e^-mean; anything once there are no random bits. */
uint64_t dunlin__poisson_draw(dunlin__secagg_noise *noise);

/** The difference of two of them, modulo 2^32: a Skellam number of the variance `square`. */
uint32_t dunlin__skellam_draw(dunlin__secagg_noise *noise);

#endif
