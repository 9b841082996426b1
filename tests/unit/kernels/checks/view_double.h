/*
 * view_double.h - what a view's function and its derivative are, in double.
 */
#ifndef DUNLIN_TESTS_VIEW_DOUBLE_H
#define DUNLIN_TESTS_VIEW_DOUBLE_H

#include "kernels/api/functions.h"
#include "random.h"

#include <math.h>

static inline dunlin_view_fn view_fn_random(uint64_t *state)
{
    static const dunlin_view_fn functions[] = {DUNLIN_VIEW_CLIP, DUNLIN_VIEW_HARD_SWISH,
                                               DUNLIN_VIEW_SILU};
    return functions[test_random_below(state, 3)];
}

/* Of the normalised value. */
static inline double view_double(dunlin_view_fn fn, double v, double low, double high)
{
    switch (fn) {
    case DUNLIN_VIEW_HARD_SWISH:
        return v * fmin(fmax(v + 3.0, 0.0), 6.0) / 6.0;
    case DUNLIN_VIEW_SILU:
        return v / (1.0 + exp(-v));
    case DUNLIN_VIEW_CLIP:
        break;
    }
    return fmin(fmax(v, low), high);
}

/* At v, which is a float so that no element is on another side of a bound than in the kernel. */
static inline double view_double_slope(dunlin_view_fn fn, float v, float low, float high)
{
    const double s = 1.0 / (1.0 + exp(-(double)v));
    switch (fn) {
    case DUNLIN_VIEW_HARD_SWISH:
        return v < -3.0f ? 0.0 : v < 3.0f ? (double)v / 3.0 + 0.5 : 1.0;
    case DUNLIN_VIEW_SILU:
        return s * (1.0 + (double)v * (1.0 - s));
    case DUNLIN_VIEW_CLIP:
        break;
    }
    return low < v && v < high ? 1.0 : 0.0;
}

#endif
