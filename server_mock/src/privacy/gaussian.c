/*
 * gaussian.c - the exact epsilon and delta of the Gaussian mechanism.
 *
 * Invariant: both terms of delta have the factor exp(-x^2 / 2), so none overflows.
 */
#include "gaussian.h"

#include <float.h>
#include <math.h>

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2PI 2.50662827463100050242

/* The upper tail over the density; y above 0 where it is large. */
static double mills(double y)
{
    if (y < 10) {
        return erfc(y * SQRT_HALF) / 2 * SQRT_2PI * exp(y * y / 2);
    }
    double fraction = y; /* Laplace's continued fraction, from far inside */
    for (int k = 60; k >= 1; k--) {
        fraction = y + k / fraction;
    }
    return 1 / fraction;
}

double dunlin__gaussian_delta(double mu, double epsilon)
{
    const double x = epsilon / mu - mu / 2;
    const double y = epsilon / mu + mu / 2;
    return erfc(x * SQRT_HALF) / 2 - exp(-x * x / 2) / SQRT_2PI * mills(y);
}

double dunlin__gaussian_of_discrete(double noise, double steps)
{
    return noise * sqrt(1 - 16 / (steps * steps)) * (1 - 4 * DBL_EPSILON);
}

double dunlin__gaussian_epsilon(double mu, double delta)
{
    if (dunlin__gaussian_delta(mu, 0) <= delta) {
        return 0;
    }
    double low = 0;
    double high = 1;
    while (dunlin__gaussian_delta(mu, high) > delta) {
        low = high;
        high *= 2;
    }
    for (int i = 0; i < 100; i++) {
        const double middle = low + (high - low) / 2;
        if (dunlin__gaussian_delta(mu, middle) > delta) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return high * (1 + 1e-9);
}
