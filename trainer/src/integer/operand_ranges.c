/*
 * operand_ranges.c - see operand_ranges.h.
 *
 * Invariant: a range that is not 0 stays so, and is never below LEAST_RANGE: units and their
 * inverses are finite.
 */
#include "operand_ranges.h"

#include <math.h>
#include <string.h>

#define LEAST_RANGE 1e-30F
#define LARGEST_RANGE 1e30F
#define UNIT_FIXED 0x1p-7F
#define ROOT_HALF 0.70710678118654752440
#define SLOWNESS 8.0F   /* of the way down, one part of so many a batch */
#define FINE_UNITS 64.0 /* of dunlin_int_spread.squares */
/* Zhao et al.: values are spread as a normal distribution where more than so many of them are
 * beyond the deviation (of a normal one 0.317 are); else the range goes a share of the way. */
#define NORMAL_SHARE 0.3
#define DISTRIBUTION_STEP 0.8F
/* Zhang et al., "Fixed-Point Back-Propagation Training" (CVPR 2020): more bits where the mean
 * magnitude changes by more than 2^0.03 - 1 of it. */
#define WIDEN_LOG2 0.03

static float power_above(double x)
{
    int bits = 0; /* x = fraction * 2^bits, fraction in [0.5, 1) */
    const double fraction = frexp(x, &bits);
    return (float)ldexp(1.0, fraction > 0.5 ? bits : bits - 1);
}

/* log2(sqrt(1/2)) = -1/2: a fraction above that rounds up. */
float dunlin__range_nearest_power(float x)
{
    int bits = 0;
    const double fraction = frexp((double)x, &bits);
    return (float)ldexp(1.0, fraction >= ROOT_HALF ? bits : bits - 1);
}

float dunlin__range_unit(const dunlin_operand *operand, float range)
{
    const float whole = range > 0.0F ? range : DUNLIN_RANGE_NONE;
    const float limited = whole < LEAST_RANGE ? LEAST_RANGE : whole;
    const float unit = limited * operand->kept / (float)DUNLIN_INT_MOST;
    switch (operand->unit) {
    case DUNLIN_UNIT_POWER:
        return power_above((double)unit);
    case DUNLIN_UNIT_GROUP: {
        const float above = power_above((double)unit);
        return unit <= 0.75F * above ? 0.75F * above : above;
    }
    case DUNLIN_UNIT_NEAREST:
        return dunlin__range_nearest_power(limited) * UNIT_FIXED;
    case DUNLIN_UNIT_FIXED:
        return UNIT_FIXED;
    case DUNLIN_UNIT_REAL:
        break;
    }
    return unit;
}

float dunlin__range_unit_of(const dunlin_operand *operand, const dunlin_range *range)
{
    const float unit = dunlin__range_unit(operand, range->range);
    return range->bits == DUNLIN_RANGE_WIDE ? unit / (float)DUNLIN_RANGE_PAIR_PARTS : unit;
}

float dunlin__range_largest(const dunlin_int_spread *spread)
{
    float largest = 0.0F;
    memcpy(&largest, &spread->largest, sizeof largest);
    return largest;
}

bool dunlin__range_is_sound(const dunlin_range *range)
{
    return range->range >= 0.0F && range->range <= LARGEST_RANGE && range->spread >= 0.0F &&
           range->spread <= LARGEST_RANGE &&
           (range->bits == 0 || range->bits == DUNLIN_RANGE_WIDE) && range->n_raised >= 0 &&
           range->n_lowered >= 0 && range->n_clipped >= 0;
}

static float followed(float range, float largest)
{
    return largest > range ? largest : range - (range - largest) / SLOWNESS;
}

/* Few values are large; with a deviation that is not known yet nobody can tell. */
static bool is_long_tailed(const dunlin_range *range, const dunlin_int_spread *spread)
{
    return range->spread > 0.0F && (double)spread->n_beyond <= NORMAL_SHARE * (double)spread->n;
}

static float next_range(const dunlin_operand *operand, const dunlin_int_spread *spread,
                        const dunlin_range *range, float largest)
{
    if (operand->rule == DUNLIN_RANGE_DISTRIBUTION && is_long_tailed(range, spread)) {
        return (1.0F - DISTRIBUTION_STEP) * range->range + DISTRIBUTION_STEP * largest;
    }
    return followed(range->range, largest);
}

/* What rounding did to the sum of the magnitudes. */
static bool is_too_coarse(const dunlin_int_spread *spread)
{
    const double before = (double)spread->fines / FINE_UNITS;
    const double error = fabs(before - (double)spread->wholes);
    return before > 0.0 && log2(error / before + 1.0) > WIDEN_LOG2;
}

void dunlin__range_adapt(const dunlin_operand *operand, const dunlin_int_spread *spread,
                         bool is_calibrating, dunlin_range *range)
{
    const float before = range->range;
    const float largest = dunlin__range_largest(spread);
    if (spread->n == 0 || !(largest <= LARGEST_RANGE)) {
        return;
    }
    if (is_calibrating || before == 0.0F) {
        range->range = largest;
        range->spread = 0.0F;
    } else {
        const double unit = (double)dunlin__range_unit(operand, before);
        range->range = next_range(operand, spread, range, largest);
        range->spread = (float)(sqrt(spread->squares / (double)spread->n) * unit / FINE_UNITS);
    }
    if (range->range > 0.0F && range->range < LEAST_RANGE) {
        range->range = LEAST_RANGE;
    }
    if (!is_calibrating && operand->may_widen && is_too_coarse(spread)) {
        range->bits = DUNLIN_RANGE_WIDE;
    }
    if (!is_calibrating) {
        range->n_clipped += spread->n_clipped;
        range->n_raised += range->range > before ? 1 : 0;
        range->n_lowered += range->range < before ? 1 : 0;
    }
}
