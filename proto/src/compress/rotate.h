/*
 * rotate.h - the random rotation of a block: signs, then the Hadamard transform.
 *
 * Spreads what is large in a block over all of it, so that a few levels (or one bit) an entry are
 * enough: Suresh et al., "Distributed mean estimation with limited communication", 2017; Vargaftik
 * et al., "DRIVE", 2021, and "EDEN", 2022.
 */
#ifndef DUNLIN_PROTO_ROTATE_H
#define DUNLIN_PROTO_ROTATE_H

#include "draws.h"

/* In place, `n` a power of two of at most 8,192: H D x / sqrt(n), with the signs D of the place of
 * `draws` and the Hadamard matrix H in its natural (Sylvester's) order. */
void dunlin__rotate(float *values, size_t n, const dunlin__draws *draws);

/* D H y / sqrt(n): the inverse, up to rounding. */
void dunlin__rotate_back(float *values, size_t n, const dunlin__draws *draws);

/* The least power of two that is at least `n`, 1 for 0. */
size_t dunlin__rotate_size(size_t n);

#endif
