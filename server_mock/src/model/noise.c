/*
 * noise.c - the noise of a private round: updates on a grid, and whole numbers drawn for each sum.
 *
 * Invariant: each value's noise has a stream of bits of its own, so neither blocks nor their order
 * change it.
 */
#include "noise.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Of the deviation in steps, which is from 2^29 on and below 2^30. */
#define DEVIATION_BITS 30
_Static_assert(DEVIATION_BITS > 21, "no fewer than DUNLIN_DISCRETE_STEPS, 2^20");

dunlin_status dunlin__noise_make(dunlin__noise *out_noise, double clip, double multiplier,
                                 uint64_t n_values, dunlin_error *error)
{
    int exponent = 0;
    memset(out_noise, 0, sizeof *out_noise);
    (void)frexp(clip * multiplier, &exponent);
    out_noise->grid = ldexp(1.0, exponent - DEVIATION_BITS);
    /* The slack twice: once for what is let in, once for float32 and the norm's own rounding. */
    out_noise->sensitivity =
        clip * (1 + 2 * DUNLIN_NOISE_SLACK) + out_noise->grid * sqrt((double)n_values) / 2;
    const double steps = multiplier * (out_noise->sensitivity / out_noise->grid);
    const double variance = ceil(steps * steps * (1 + 8 * DBL_EPSILON));
    if (!(variance <= (double)DUNLIN_VARIANCE_NUMERATOR)) {
        return dunlin__fail(error, DUNLIN_LIMIT, "privacy", 0,
                            "noise %g on updates of %" PRIu64
                            " values: rounding them would take more than the bound",
                            multiplier, n_values);
    }
    return dunlin__discrete_gaussian_make(&out_noise->gaussian, (uint64_t)variance, 1, error);
}

void dunlin__noise_round(const dunlin__noise *noise, double scale, float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        /* A power of two divides exactly, and a multiple of it stays one in float32. */
        values[i] = (float)(rint(scale * (double)values[i] / noise->grid) * noise->grid);
    }
}

double dunlin__noise_draw(const dunlin__noise *noise, uint64_t place)
{
    int64_t sum = 0;
    for (size_t i = 0; i < noise->n_nodes; i++) {
        dunlin__bits bits;
        dunlin__bits_begin(&bits, noise->nodes[i].seed, place);
        const int64_t drawn = dunlin__discrete_gaussian_draw(&noise->gaussian, &bits);
        sum += noise->nodes[i].is_taken_away ? -drawn : drawn;
        dunlin__bits_wipe(&bits);
    }
    return (double)sum * noise->grid;
}

void dunlin__noise_wipe(dunlin__noise *noise)
{
    dunlin__wipe(noise, sizeof *noise);
}
