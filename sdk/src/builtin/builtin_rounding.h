/*
 * builtin_rounding.h - a round's float32 base in int8 or 16 bits: rounding at random, by draws that
 * follow from seed, round, tensor and element.
 *
 * A base is an average, so it lies between the whole numbers of its exponent; rounded to the
 * nearest, what devices change by less than half a unit would be lost in every round. Rounding
 * upward with the probability of the remainder keeps it on average (Gupta et al. 2015, "Deep
 * Learning with Limited Numerical Precision"). A round that is resumed, or loaded again, has the
 * same draws, whatever was drawn before.
 */
#ifndef DUNLIN_SDK_BUILTIN_ROUNDING_H
#define DUNLIN_SDK_BUILTIN_ROUNDING_H

#include <stdint.h>

/* Of one tensor of one round: its index in the base. */
uint64_t dunlin__rounding_key(uint64_t seed, uint64_t round, uint64_t tensor);

/* Elements [first, first + n) of the tensor to whole multiples of `unit`, a power of two; what is
 * more than the trainer's numbers hold it clips. A value that is one already stays. */
void dunlin__rounding_apply(uint64_t key, float unit, int64_t first, int64_t n, float *values);

#endif
