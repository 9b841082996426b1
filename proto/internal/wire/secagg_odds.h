/*
 * secagg_odds.h - what can go wrong with a number of neighbours and a threshold, and how likely.
 *
 * Every device has n_neighbours of the others, at a distance of at most half of that on a circle of
 * random order (Bell et al. 2020, section 3). Corrupt devices tell the server all they know; they
 * and those that drop out are chosen without a look at the circle. Three things must hold:
 *
 *   hidden     no device has `threshold` corrupt neighbours: they alone would have its secrets;
 *   connected  the honest devices that stay are one part of the circle: else the server learns the
 *              sum of each part;
 *   finished   every device has `threshold` neighbours that stay: else there is no sum.
 *
 * Chances are upper bounds, as powers of 2: the tail of a hypergeometric distribution times the
 * number of devices, and for the second the pairs of stretches of n_neighbours / 2 places each that
 * would have to be empty. The first two add up to at most 2^-security, the third to 2^-failure.
 */
#ifndef DUNLIN_WIRE_SECAGG_ODDS_H
#define DUNLIN_WIRE_SECAGG_ODDS_H

#include <dunlin/base.h>

/** What is assumed, and what is wanted. */
typedef struct dunlin__secagg_wish {
    uint32_t n_devices;   /* 3 to 65,536 */
    double corrupt;       /* part of them that works with the server, 0 to below 1 */
    double dropout;       /* part of them that drops out, 0 to below 1 */
    double security_bits; /* 40: at most 2^-40 */
    double failure_bits;  /* 20: at most 2^-20 */
} dunlin__secagg_wish;

/** Chances, log2; -HUGE_VAL: it cannot happen. */
typedef struct dunlin__secagg_odds {
    double hidden;
    double connected;
    double finished;
} dunlin__secagg_odds;

/** log2 of the chance that of `n_drawn` out of `n_all`, `n_marked` of them marked, at least `least`
 * are marked; -HUGE_VAL where that cannot be. */
double dunlin__secagg_tail(uint32_t n_all, uint32_t n_marked, uint32_t n_drawn, uint32_t least);

/** The chances of one set-up. n_neighbours of n_devices - 1 or more: everybody is a neighbour. */
dunlin__secagg_odds dunlin__secagg_odds_of(const dunlin__secagg_wish *wish, uint32_t n_neighbours,
                                           uint32_t threshold);

/**
 * Whether a set-up keeps to what is wanted.
 *
 * @return OK; ARGUMENT: the wish itself is outside its range; REJECTED names what is too likely,
 * and how likely.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_judge(const dunlin__secagg_wish *wish,
                                                    uint32_t n_neighbours, uint32_t threshold,
                                                    dunlin_error *error);

/** The fewest neighbours that do, and the thresholds that do with them. */
typedef struct dunlin__secagg_setup {
    uint32_t n_neighbours;
    uint32_t least_threshold;
    uint32_t most_threshold;
    uint32_t threshold; /* in the middle */
} dunlin__secagg_setup;

/**
 * The fewest neighbours, at most `most_neighbours`, with a threshold above half of them.
 *
 * @return OK; ARGUMENT as above; REJECTED: no number does.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_choose(const dunlin__secagg_wish *wish,
                                                     uint32_t most_neighbours,
                                                     dunlin__secagg_setup *out_setup,
                                                     dunlin_error *error);

/** @return a part of `n` devices, 0 to 1, rounded up. */
uint32_t dunlin__secagg_part(uint32_t n, double part);

#endif
