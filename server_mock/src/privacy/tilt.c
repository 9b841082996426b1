/*
 * tilt.c - moments of composed privacy losses, and the tilt and window that follow from them.
 *
 * Invariant: any power gives a right answer; the search is for one that gives a near one.
 */
#include "tilt.h"

#include <math.h>

#define LEAST_POWER 1e-3
#define MOST_POWER 1e5
#define LOG_OUTSIDE (-25.0) /* of the mass at each end of the window */

double dunlin__loss_moment(const dunlin__loss *loss, double power, double *out_mean,
                           double *out_variance)
{
    double largest = -HUGE_VAL;
    const double step = power * loss->interval;
    for (size_t i = 0; i < loss->n; i++) {
        if (loss->mass[i] > 0) {
            const double value = log(loss->mass[i]) + (double)(loss->first + (int64_t)i) * step;
            largest = value > largest ? value : largest;
        }
    }
    double sum = 0;
    double first = 0;
    double second = 0;
    /* Around the grid's first point, so that the variance keeps its digits. */
    for (size_t i = 0; i < loss->n; i++) {
        if (loss->mass[i] > 0) {
            const double term =
                loss->mass[i] * exp((double)(loss->first + (int64_t)i) * step - largest);
            sum += term;
            first += term * (double)i;
            second += term * (double)i * (double)i;
        }
    }
    const double mean = first / sum;
    if (out_mean != NULL) {
        *out_mean = (mean + (double)loss->first) * loss->interval;
    }
    if (out_variance != NULL) {
        *out_variance = fmax(second / sum - mean * mean, 0) * loss->interval * loss->interval;
    }
    return largest + log(sum);
}

double dunlin__tilt_weight(double power)
{
    return power * log(power) - (1 + power) * log1p(power);
}

static double log_moment_of(const dunlin__loss_sum *sum, double power)
{
    double total = 0;
    for (size_t k = 0; k < sum->n; k++) {
        total += (double)sum->times[k] * dunlin__loss_moment(&sum->losses[k], power, NULL, NULL);
    }
    return total;
}

/* What the moment of this power, the logarithm of it, bounds epsilon by. */
static double bound(const dunlin__loss_sum *sum, double log_power, double log_delta)
{
    const double power = exp(log_power);
    return (log_moment_of(sum, power) + dunlin__tilt_weight(power) - log_delta) / power;
}

/* By golden section over the logarithm. */
static double best_power(const dunlin__loss_sum *sum, double log_delta)
{
    const double share = 0.61803398874989484820;
    double low = log(LEAST_POWER);
    double high = log(MOST_POWER);
    double a = high - share * (high - low);
    double b = low + share * (high - low);
    double at_a = bound(sum, a, log_delta);
    double at_b = bound(sum, b, log_delta);
    while (high - low > 0.02) {
        if (at_a <= at_b) {
            high = b;
            b = a;
            at_b = at_a;
            a = high - share * (high - low);
            at_a = bound(sum, a, log_delta);
        } else {
            low = a;
            a = b;
            at_a = at_b;
            b = low + share * (high - low);
            at_b = bound(sum, b, log_delta);
        }
    }
    return exp((low + high) / 2);
}

dunlin__tilt dunlin__tilt_find(const dunlin__loss_sum *sum, double delta)
{
    dunlin__tilt tilt = {.power = best_power(sum, log(delta)), .outside = 2 * exp(LOG_OUTSIDE)};
    double variance = 0;
    for (size_t k = 0; k < sum->n; k++) {
        double one_mean = 0;
        double one_variance = 0;
        const double times = (double)sum->times[k];
        tilt.log_moment +=
            times * dunlin__loss_moment(&sum->losses[k], tilt.power, &one_mean, &one_variance);
        variance += times * one_variance;
    }
    /* Chernoff's bound at some distances; the best is kept. */
    const double deviation = fmax(sqrt(variance), sum->losses[0].interval);
    tilt.low = -HUGE_VAL;
    tilt.high = HUGE_VAL;
    for (int i = 0; i < 8; i++) {
        const double t = ldexp(1, i - 3) * 7 / deviation;
        const double up = log_moment_of(sum, tilt.power + t) - tilt.log_moment;
        const double down = log_moment_of(sum, tilt.power - t) - tilt.log_moment;
        tilt.high = fmin(tilt.high, (up - LOG_OUTSIDE) / t);
        tilt.low = fmax(tilt.low, (LOG_OUTSIDE - down) / t);
    }
    return tilt;
}
