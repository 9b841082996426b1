/*
 * tilt.h - moments of composed privacy losses, and the tilt and window that follow from them.
 */
#ifndef DUNLIN_SERVER_PRIVACY_TILT_H
#define DUNLIN_SERVER_PRIVACY_TILT_H

#include "loss.h"

/* Losses on one grid, each taken so often. */
typedef struct dunlin__loss_sum {
    const dunlin__loss *losses;
    const uint64_t *times;
    size_t n;
} dunlin__loss_sum;

/* How the sum is looked at. */
typedef struct dunlin__tilt {
    double power;      /* t */
    double log_moment; /* log E[e^(t loss)] of the sum */
    double low;        /* the window: losses from here to `high`, outside of which there is */
    double high;
    double outside; /* at most so much of the tilted mass */
} dunlin__tilt;

/** @return log of the sum of mass times e^(power loss) of one grid; out_mean and out_variance, of
 * the tilted mass, may be NULL. */
double dunlin__loss_moment(const dunlin__loss *loss, double power, double *out_mean,
                           double *out_variance);

/** @return log of the largest (1 - e^-v) e^(-power v) over v above 0. */
double dunlin__tilt_weight(double power);

/* The power that bounds delta best, and its window, for an epsilon at `delta`. */
dunlin__tilt dunlin__tilt_find(const dunlin__loss_sum *sum, double delta);

#endif
