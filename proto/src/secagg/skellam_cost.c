/*
 * skellam_cost.c - what Skellam noise of many devices together is worth.
 *
 * Invariant: what is rounded or cut makes epsilon larger.
 */
#include <wire/secagg_noise.h>

#include <math.h>

#define ORDER_MOST 262144
#define ROUND_UP (1 + 1e-9)

double dunlin__secagg_skellam_moment(const dunlin__secagg_skellam *sum, double order)
{
    const double square = sum->multiplier * sum->multiplier; /* v / D2^2 */
    const double limit = sum->value_limit;
    /* D1 / D2^2: no whole number is above its square. */
    const double length = fmin(1, sqrt(sum->n_values) / limit);
    const double by_orders = ((2 * order - 1) + 6 * length) / (4 * square * square * limit * limit);
    const double more = fmin(by_orders, 3 * length / (2 * square));
    return (order / (2 * square) + more) * ROUND_UP;
}

double dunlin__secagg_skellam_epsilon(const dunlin__secagg_skellam *sum, uint64_t n_rounds,
                                      double delta)
{
    double best = HUGE_VAL;
    if (n_rounds == 0) {
        return 0;
    }
    /* Each order gives a bound, so not all of the large ones need to be tried. */
    for (int32_t n = 2; n <= ORDER_MOST; n = (int32_t)fmax((double)n + 1, (double)n * 1.01)) {
        const double order = (double)n;
        const double moment = (double)n_rounds * dunlin__secagg_skellam_moment(sum, order);
        const double more = order - 1;
        best = fmin(best, moment + log(more) - log(order) - (log(delta) + log(order)) / more);
    }
    best = best > 0 ? best * ROUND_UP : 0;
    return isfinite(best) ? best : HUGE_VAL;
}

double dunlin__secagg_plan_epsilon(const dunlin__secagg_plan *plan, uint64_t n_rounds, double delta)
{
    const double multiplier = dunlin__secagg_noise_multiplier(plan);
    const double n_values = (double)plan->n_values;
    if (plan->noise_kind == DUNLIN_V1_SECAGG_NOISE_SKELLAM) {
        const dunlin__secagg_skellam sum = {multiplier, (double)plan->value_limit, n_values};
        return dunlin__secagg_skellam_epsilon(&sum, n_rounds, delta);
    }
    const double gap =
        n_values * dunlin__secagg_noise_gap((double)plan->noise_scale, plan->least_honest);
    return dunlin__secagg_noise_epsilon(multiplier, gap, n_rounds, delta);
}
