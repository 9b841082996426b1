/*
 * norm.c - sums of squares with the same bits on both sides, and the gain that keeps a bound.
 */
#include "bits.h"

#include <mem/support.h>
#include <wire/compress.h>

#include <math.h>

#define LANES 8u
#define LEAST_BOUND 1e-15f
#define LEAST_GAIN 1e-20f

void dunlin__norm_add(dunlin__norm *norm, const float *values, size_t n_values)
{
    size_t i = 0;
    for (; i < n_values && norm->n_values % LANES != 0; i++, norm->n_values++) {
        norm->lanes[norm->n_values % LANES] += (double)values[i] * (double)values[i];
    }
    for (; i + LANES <= n_values; i += LANES, norm->n_values += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            norm->lanes[lane] += (double)values[i + lane] * (double)values[i + lane];
        }
    }
    for (; i < n_values; i++, norm->n_values++) {
        norm->lanes[norm->n_values % LANES] += (double)values[i] * (double)values[i];
    }
}

void dunlin__norm_skip(dunlin__norm *norm, uint64_t n_zeros)
{
    norm->n_values += n_zeros;
}

double dunlin__norm_square(const dunlin__norm *norm)
{
    const double *lanes = norm->lanes;
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

bool dunlin__norm_is_within(double square, float bound)
{
    return square <= (double)bound * (double)bound; /* exact: 48 bits */
}

/*
 * The products v * gain are rounded by at most 2^-24 of each (or 2^-150, far below the least
 * bound), the gain itself by 2^-24; the two sums of at most 2^31 squares by at most 2^-25 of the
 * square each. 2^-20 is more than all of them.
 */
dunlin_status dunlin__packing_gain(double square, float bound, float *out_gain, dunlin_error *error)
{
    *out_gain = 1.0f;
    if (!(bound >= LEAST_BOUND) || !dunlin__float_is_finite(bound)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "compress", 0,
                            "a bound of %g for the norm, at least %g and finite is needed",
                            (double)bound, (double)LEAST_BOUND);
    }
    if (!(square >= 0.0)) {
        return dunlin__fail(error, DUNLIN_NUMERIC, "compress", 0,
                            "the square of the norm is %g, which is no number of 0 or more",
                            square);
    }
    if (dunlin__norm_is_within(square, bound)) {
        return DUNLIN_OK;
    }
    const double gain = (double)bound / sqrt(square) * (1.0 - 1.0 / 1048576.0);
    if (!(gain >= (double)LEAST_GAIN)) {
        return dunlin__fail(
            error, DUNLIN_NUMERIC, "compress", 0,
            "a norm of %g is too far above its bound of %g: the gain would be below "
            "%g",
            sqrt(square), (double)bound, (double)LEAST_GAIN);
    }
    *out_gain = (float)gain;
    return DUNLIN_OK;
}
