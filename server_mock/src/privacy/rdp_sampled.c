/*
 * rdp_sampled.c - moments of the sampled Gaussian: an integral, and the sum that the discrete one
 * has.
 *
 * With r = Q1 / Q0 the ratio of the two noises and u = rate (r - 1), the mean of u under Q0 is 0.
 * So E[(1 + u)^a] - 1 = E[(1 + u)^a - 1 - a u], whose integrand is nowhere negative: what is summed
 * loses no digits, however near to 1 the moment is.
 *
 * Invariant: the step is so small that the rule's relative error, at most exp(-2 pi y / h + y^2 /
 * (2 s^2)) for each y up to which the integrand is analytic around the real line (Trefethen,
 * Weideman 2014), is below 1e-15: with y = 8 s where the order is whole, else y = min(8 s, pi s^2),
 * where the logarithm branches.
 */
#include "rdp.h"

#include <math.h>

#define REACH 13.0 /* standard deviations beyond the outermost modes */
#define PI 3.14159265358979323846

/* A sum of terms given by their logarithms, in units of e^largest. */
typedef struct log_sum {
    double largest;
    double sum;
} log_sum;

static void log_sum_add(log_sum *all, double term)
{
    if (!(term > -HUGE_VAL)) {
        return;
    }
    if (term > all->largest) {
        all->sum = all->sum * exp(all->largest - term) + 1;
        all->largest = term;
    } else {
        all->sum += exp(term - all->largest);
    }
}

/* log(1 + the sum) */
static double log_sum_moment(const log_sum *all)
{
    const double value = all->largest + log(all->sum);
    return value > 0 ? value + log1p(exp(-value)) : log1p(exp(value));
}

/* log((1 + u)^power - 1 - power u) with u = rate (e^x - 1), for powers outside [0, 1]. */
static double log_excess(double x, double rate, double power)
{
    const double u = x < 600 ? rate * expm1(x) : HUGE_VAL;
    if (fabs(power * u) < 0.03 && fabs(u) < 0.03) {
        double term = power * (power - 1) / 2 * u * u;
        double sum = 0;
        for (int k = 2; k < 40 && fabs(term) > sum * 1e-18; k++) {
            sum += term;
            term *= (power - k) / (k + 1) * u;
        }
        return log(sum);
    }
    const double l = x < 30 ? log1p(u) : log(rate) + x + log1p((1 - rate) / rate * exp(-x));
    const double t = power * l;
    if (t > 40) {
        return t + log1p(-(power * exp(l - t) + (1 - power) * exp(-t)));
    }
    return log(expm1(t) - power * u);
}

double dunlin__rdp_sampled(double noise, double rate, double order)
{
    if (rate >= 1) {
        return dunlin__rdp_gaussian(noise, order);
    }
    const double variance = noise * noise;
    double h = noise / 8;
    if (order > floor(order) && variance / 4 < h) {
        h = variance / 4;
    }
    const double first = -REACH * noise;
    const double n = ceil((order + 2 * REACH * noise) / h);
    const double log_weight = log(h) - log(noise) - log(2 * PI) / 2;
    log_sum all = {.largest = -HUGE_VAL};
    for (int64_t k = 0; (double)k <= n; k++) {
        const double z = first + (double)k * h;
        log_sum_add(&all, log_excess((2 * z - 1) / (2 * variance), rate, order) -
                              z * z / (2 * variance) + log_weight);
    }
    return log_sum_moment(&all) / (order - 1);
}

/* The sum of exp(-(x - at)^2 / (2 variance)) over the whole numbers. */
static double theta(double variance, double at)
{
    const double reach = ceil(sqrt(variance) * 40) + 1;
    const double middle = floor(at);
    double sum = 0;
    for (int64_t k = (int64_t)reach; k >= -(int64_t)reach; k--) {
        const double away = middle + (double)k - at;
        sum += exp(-away * away / (2 * variance));
    }
    return sum;
}

double dunlin__rdp_discrete(double variance, uint64_t shift, double order)
{
    const double moved = (double)shift;
    const double plain = order * moved * moved / (2 * variance);
    const double at = order * moved - floor(order * moved);
    /* Above that the two sums differ by less than e^-1200 of themselves (Poisson summation). */
    if (variance > 64 || !(at > 0)) {
        return plain;
    }
    return plain + log(theta(variance, at) / theta(variance, 0)) / (order - 1);
}

double dunlin__rdp_discrete_sampled(double variance, uint64_t shift, double rate, double order)
{
    const double moved = (double)shift;
    const double sigma = sqrt(variance);
    const double log_total = log(theta(variance, 0));
    const double first = -ceil(REACH * sigma);
    const double last = ceil(order * moved + REACH * sigma);
    log_sum more = {.largest = -HUGE_VAL}; /* the neighbour's device is drawn by the numerator */
    log_sum less = {.largest = -HUGE_VAL};
    for (int64_t i = 0; first + (double)i <= last; i++) {
        const double x = first + (double)i;
        const double log_ratio = (2 * x * moved - moved * moved) / (2 * variance);
        const double log_mass = -x * x / (2 * variance) - log_total;
        log_sum_add(&more, log_excess(log_ratio, rate, order) + log_mass);
        log_sum_add(&less, log_excess(log_ratio, rate, 1 - order) + log_mass);
    }
    return fmax(log_sum_moment(&more), log_sum_moment(&less)) / (order - 1);
}
