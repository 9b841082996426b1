/*
 * fixed_point.h - an update as whole numbers that add up in a ring, and the mean of a sum of them.
 *
 * A value v of a device with weight w becomes v x (w / weight_limit) x (value_limit / clip),
 * rounded at random to one of the two whole numbers around it, so that its expectation is exact;
 * what is beyond the clip is cut to it first. No magnitude is above value_limit, so n_cohort of
 * them stay below 2^(ring_bits - 1) (dunlin__secagg_check()). The last element is w itself.
 *
 * With noise (version 2 of the terms) what counts is the length of the whole numbers themselves:
 * their exact L2 norm is to be at most value_limit, which is the clip. Rounding makes a vector
 * longer, so values come in shorter by that (dunlin__fixed_point_length()), and roundings that are
 * too long all the same are drawn again (Kairouz, Liu, Steinke 2021: conditional randomised
 * rounding).
 */
#ifndef DUNLIN_WIRE_FIXED_POINT_H
#define DUNLIN_WIRE_FIXED_POINT_H

#include <wire/secagg.h>

/** A running quantisation; its roundings follow from a key that is drawn at the start. */
typedef struct dunlin__fixed_point {
    double clip;
    double factor; /* value_limit x w / (clip x weight_limit) */
    uint64_t n_clipped;
    uint64_t n_values;
    uint64_t squares; /* of the whole numbers so far, added; at most UINT64_MAX */
    dunlin__ctr draws;
    uint8_t key[DUNLIN_AES256_BYTES]; /* of them */
} dunlin__fixed_point;

/**
 * The L2 norm of values, in their own unit, up to which roundings are within value_limit with a
 * chance of at least 1 - 2^-8 (the tail of Kairouz, Liu, Steinke 2021). 0: there is none.
 */
double dunlin__fixed_point_length(const dunlin__secagg_plan *plan);

/**
 * Starts for a device with a weight from 1 to weight_limit; after it, end.
 *
 * @return OK; ARGUMENT names the weight; MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__fixed_point_begin(const dunlin__secagg_plan *plan,
                                                         uint32_t weight,
                                                         dunlin__fixed_point *out_fixed,
                                                         dunlin_error *error);

/**
 * The next `n` values as elements of the ring: negative ones modulo 2^32.
 *
 * @return OK; NUMERIC names the first value that is not finite, counted from 0; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__fixed_point_next(dunlin__fixed_point *fixed,
                                                        const float *values, size_t n,
                                                        uint32_t *out_elements,
                                                        dunlin_error *error);

/** Whether the whole numbers so far are no longer than the terms' value_limit. */
bool dunlin__fixed_point_is_within(const dunlin__fixed_point *fixed,
                                   const dunlin__secagg_plan *plan);

/** From the first value on again, with the same roundings. @return OK; MEMORY; INTERNAL. */
DUNLIN_NODISCARD dunlin_status dunlin__fixed_point_again(dunlin__fixed_point *fixed,
                                                         dunlin_error *error);
/** Forgets the draws; harmless on a zeroed one. */
void dunlin__fixed_point_end(dunlin__fixed_point *fixed);

/**
 * Of `n` elements of a sum over `n_devices` the weighted mean: sum x clip / value_limit x
 * weight_limit / `weights`, the sum's last element. With noise the elements may be larger by what
 * it reaches.
 *
 * @return OK; DATA: an element or the weights are no sum of so many devices.
 */
DUNLIN_NODISCARD dunlin_status dunlin__fixed_point_mean(const dunlin__secagg_plan *plan,
                                                        const uint32_t *elements, size_t n,
                                                        uint32_t weights, uint32_t n_devices,
                                                        double *out_mean, dunlin_error *error);

#endif
