/*
 * operand_ranges.h - the ranges of operands that are rounded to int8 with real units: where they
 * are kept, and what a batch does to those of the next.
 *
 * As with sites (site.h) they are fixed before a batch begins, so every operator is a map; what
 * does not fit is clipped and counted. Source of the idea: Fournarakis, Nagel, "In-Hindsight
 * Quantization Range Estimation for Quantized Training" (arXiv 2105.04246).
 */
#ifndef DUNLIN_INTEGER_OPERAND_RANGES_H
#define DUNLIN_INTEGER_OPERAND_RANGES_H

#include "graph/step.h"
#include "precision.h"

/* Persistent, and in checkpoints (proto/FORMATS.md). */
typedef struct dunlin_range {
    float range;                 /* magnitude; 0: nothing but zeros was seen */
    float spread;                /* root of the mean square in the batch before; 0: not known */
    int32_t bits;                /* 16: rounded to pairs of int8; else 0 */
    int32_t n_raised, n_lowered; /* batches that moved it */
    int32_t unused;              /* 0 */
    int64_t n_clipped;           /* values, over all batches */
} dunlin_range;
#define DUNLIN_RANGE_INTS ((int64_t)(sizeof(dunlin_range) / sizeof(int32_t)))
#define DUNLIN_SPREAD_INTS ((int64_t)(sizeof(dunlin_int_spread) / sizeof(int32_t)))

/* Of a range that is 0: any, but the same everywhere. */
#define DUNLIN_RANGE_NONE 1.0F

#define DUNLIN_RANGE_WIDE 16

#define DUNLIN_RANGE_PAIR_PARTS 128 /* of a unit of the high half is one of the low half */

/* The unit of an operand whose range is this, in int8. */
float dunlin__range_unit(const dunlin_operand *operand, float range);
/* The same; of pairs the unit of their low halves. */
float dunlin__range_unit_of(const dunlin_operand *operand, const dunlin_range *range);
/* 2^round(log2(x)), x above 0. */
float dunlin__range_nearest_power(float x);
/* The largest magnitude that was counted. */
float dunlin__range_largest(const dunlin_int_spread *spread);
/* What a step may leave: false for what a damaged file holds. */
bool dunlin__range_is_sound(const dunlin_range *range);
/*
 * After a batch: the range of the next one. `is_calibrating`: the batch was rounded example by
 * example, so only its largest value is known, and is the range.
 */
void dunlin__range_adapt(const dunlin_operand *operand, const dunlin_int_spread *spread,
                         bool is_calibrating, dunlin_range *range);

#endif
