/*
 * noise_cost.c - what the noise of many devices together is worth, and how far it reaches.
 *
 * Invariant: what is rounded or cut makes epsilon, gap and reach larger.
 */
#include <wire/secagg_noise.h>

#include <math.h>

#define PI 3.14159265358979323846
#define LOG_2 0.69314718055994530942
#define ROUND_UP (1 + 1e-9)

double dunlin__secagg_noise_gap(double scale, uint64_t n_parts)
{
    const double unit = 2 * PI * PI * scale * scale;
    double sum = 0;
    uint64_t k = 1;
    for (; k < n_parts; k++) {
        const double term = exp(-unit * (double)k / (double)(k + 1));
        sum += term;
        if (exp(-unit) * 1e-3 > term - exp(-unit)) { /* what follows is all but e^-unit */
            break;
        }
    }
    if (k < n_parts) {
        sum += (double)(n_parts - 1 - k) * exp(-unit) * (1 + 1e-3);
    }
    return 5 * sum * ROUND_UP;
}

uint64_t dunlin__secagg_noise_reach(const dunlin__secagg_plan *plan)
{
    const double scale = (double)plan->noise_scale;
    const double n_cohort = (double)plan->n_cohort;
    if (plan->noise_kind == DUNLIN_V1_SECAGG_NOISE_NONE || plan->noise_scale == 0) {
        return 0;
    }
    const double log_odds = log(2.0 * (double)plan->n_values) - DUNLIN_SECAGG_OVERFLOW_LOG2 * LOG_2;
    if (plan->noise_kind == DUNLIN_V1_SECAGG_NOISE_SKELLAM) {
        /* Each of the elements leaves r with a chance of at most 2 e^(v (cosh(t) - 1) - t r), v the
         * variance, for any t: for this one the bound is that of the normal one and a bit. */
        const double variance = n_cohort * scale * scale;
        const double t = sqrt(2 * log_odds / variance);
        const double half = sinh(t / 2); /* cosh(t) - 1 is twice its square */
        return (uint64_t)ceil((2 * variance * half * half + log_odds) / t * ROUND_UP);
    }
    /* Each of the elements leaves t with a chance of at most 2 e^(-t^2 / (2 n scale^2)). */
    return (uint64_t)ceil(scale * sqrt(2 * n_cohort * log_odds) * ROUND_UP);
}

double dunlin__secagg_noise_multiplier(const dunlin__secagg_plan *plan)
{
    return (double)plan->noise_scale * sqrt((double)plan->least_honest) / (double)plan->value_limit;
}

/* Epsilon by the cost `unit` x order of one order (the conversion of Canonne, Kamath, Steinke 2020,
 * proposition 12); the order is 1 + 2^exponent. */
static double epsilon_at(double unit, double log_delta, double exponent)
{
    const double more = exp2(exponent);
    const double order = 1 + more;
    return unit * order + log(more) - log(order) - (log_delta + log(order)) / more;
}

double dunlin__secagg_noise_epsilon(double multiplier, double gap, uint64_t n_rounds, double delta)
{
    const double n = (double)n_rounds;
    const double all_gap = n * gap * ROUND_UP;
    const double log_delta = log(delta) - all_gap;
    const double unit = n / (2 * multiplier * multiplier);
    double best = HUGE_VAL;
    double low = -8;
    double high = 12;
    if (n_rounds == 0) {
        return 0;
    }
    /* Each order gives a bound, so the search for the best one may end anywhere. */
    for (int i = 0; i < 100; i++) {
        const double first = low + (high - low) / 3;
        const double second = high - (high - low) / 3;
        const double at_first = epsilon_at(unit, log_delta, first);
        const double at_second = epsilon_at(unit, log_delta, second);
        best = fmin(best, fmin(at_first, at_second));
        low = at_first > at_second ? first : low;
        high = at_first > at_second ? high : second;
    }
    best = (best > 0 ? best * ROUND_UP : 0) + 2 * all_gap;
    return isfinite(best) ? best : HUGE_VAL;
}
