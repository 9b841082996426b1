/*
 * joining_model.h - random networks full of concatenations, of widths below and above a block of
 * scales.
 */
#ifndef DUNLIN_TESTS_JOINING_MODEL_H
#define DUNLIN_TESTS_JOINING_MODEL_H

#include <dunlin/model.h>

/*
 * Images: chains in which each convolution reads all before it, fire modules, an input beside
 * its maximum, concatenations of concatenations, sums with one, features side by side, now and then
 * as the output. `has_batch_norm`: what reads a concatenation normalises it first.
 */
dunlin_model *joining_model(uint64_t *rng, bool has_batch_norm);

/* One layer of 96 channels, whole or as a concatenation of 32 and 64; in the same order the same
 * number of weights. */
dunlin_model *joining_pair_model(bool is_whole);

#endif
