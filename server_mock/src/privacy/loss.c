/*
 * loss.c - the privacy loss of one round of the sampled Gaussian, on a grid.
 *
 * An outcome y is the noisy sum in units of the sensitivity; for ADD it is its negative, so that
 * the loss rises with y in both directions.
 *
 * Invariant: masses are sums of integrands that are nowhere negative. The quadrature's panels are
 * at most a quarter of s and of s^2 wide, where four nodes of Gauss and Legendre err by less than
 * 1e-13 of the integral (the integrand is analytic up to pi s^2 from the real line).
 */
#include "loss.h"

#include <mem/support.h>

#include <math.h>

#define SQRT_2PI 2.50662827463100050242
#define N_NODES 4

static const double nodes[N_NODES] = {-0.86113631159405257522, -0.33998104358485626480,
                                      0.33998104358485626480, 0.86113631159405257522};
static const double weights[N_NODES] = {0.34785484513745385737, 0.65214515486254614263,
                                        0.65214515486254614263, 0.34785484513745385737};

/* log(1 + rate (e^x - 1)) */
static double mixed_log(double x, double rate)
{
    if (rate >= 1) {
        return x;
    }
    return x < 30 ? log1p(rate * expm1(x)) : log(rate) + x + log1p((1 - rate) / rate * exp(-x));
}

static double loss_at(const dunlin__loss_round *round, double y)
{
    const double variance = round->noise * round->noise;
    return round->direction == DUNLIN_LOSS_REMOVE
               ? mixed_log((2 * y - 1) / (2 * variance), round->rate)
               : -mixed_log((-2 * y - 1) / (2 * variance), round->rate);
}

/* Where the loss is `loss`: minus or plus infinity where it is never so small or so large. */
static double outcome_of(const dunlin__loss_round *round, double loss)
{
    const double sign = round->direction == DUNLIN_LOSS_REMOVE ? 1 : -1;
    double x = sign * loss;
    if (round->rate < 1) {
        const double u = expm1(x) / round->rate;
        if (!(u > -1)) {
            return sign > 0 ? -HUGE_VAL : HUGE_VAL;
        }
        x = log1p(u);
    }
    return sign * (round->noise * round->noise * x + 0.5);
}

static double density(const dunlin__loss_round *round, double y)
{
    const double s = round->noise;
    const double near = exp(-y * y / (2 * s * s));
    if (round->direction == DUNLIN_LOSS_ADD) {
        return near / (s * SQRT_2PI);
    }
    const double away = exp(-(y - 1) * (y - 1) / (2 * s * s));
    return ((1 - round->rate) * near + round->rate * away) / (s * SQRT_2PI);
}

static double widest(const dunlin__loss_round *round)
{
    return fmin(round->noise, round->noise * round->noise) / 4;
}

static double lowest(const dunlin__loss_round *round)
{
    return -round->reach * round->noise;
}

static double highest(const dunlin__loss_round *round)
{
    return (round->direction == DUNLIN_LOSS_REMOVE ? 1 : 0) + round->reach * round->noise;
}

void dunlin__loss_range(const dunlin__loss_round *round, double *out_least, double *out_most)
{
    *out_least = loss_at(round, lowest(round));
    *out_most = loss_at(round, highest(round));
}

size_t dunlin__loss_points(const dunlin__loss_round *round, double interval)
{
    double least = 0;
    double most = 0;
    dunlin__loss_range(round, &least, &most);
    const double n = ceil(most / interval) - floor(least / interval) + 2;
    return n < (double)(SIZE_MAX / 2) ? (size_t)n : SIZE_MAX;
}

static dunlin_status loss_make(dunlin__loss *out_loss, const dunlin__loss_round *round,
                               double interval, const dunlin_alloc *alloc, dunlin_error *error)
{
    double least = 0;
    double most = 0;
    dunlin__loss_range(round, &least, &most);
    *out_loss = (dunlin__loss){.interval = interval, .n = dunlin__loss_points(round, interval)};
    if (out_loss->n > DUNLIN_LOSS_POINTS) {
        const size_t n = out_loss->n;
        *out_loss = (dunlin__loss){0};
        return dunlin__fail(error, DUNLIN_LIMIT, "privacy", 0,
                            "a grid of %zu privacy losses is above the limit of %u", n,
                            DUNLIN_LOSS_POINTS);
    }
    out_loss->first = (int64_t)floor(least / interval);
    out_loss->mass = dunlin__alloc_zeroed(alloc, out_loss->n, sizeof(double));
    if (out_loss->mass == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "privacy", 0, "no memory for %zu privacy losses",
                            out_loss->n);
    }
    return DUNLIN_OK;
}

void dunlin__loss_free(dunlin__loss *loss, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, loss->mass, loss->n, sizeof(double));
    *loss = (dunlin__loss){0};
}

/* The mass from y to `end`, split over the grid's points i and i + 1. */
static void split(const dunlin__loss_round *round, double y, double end, size_t i,
                  dunlin__loss *loss)
{
    const double point = (double)(loss->first + (int64_t)i) * loss->interval;
    const double n_panels = ceil((end - y) / widest(round));
    const double half = (end - y) / n_panels / 2;
    for (int64_t panel = 0; (double)panel < n_panels; panel++) {
        const double middle = y + (2 * (double)panel + 1) * half;
        for (int k = 0; k < N_NODES; k++) {
            const double at = middle + nodes[k] * half;
            const double mass = density(round, at) * weights[k] * half;
            const double up = expm1(point - loss_at(round, at)) / expm1(-loss->interval);
            const double part = fmin(fmax(up, 0), 1);
            loss->mass[i] += mass * (1 - part);
            loss->mass[i + 1] += mass * part;
        }
    }
}

dunlin_status dunlin__loss_upper(dunlin__loss *out_loss, const dunlin__loss_round *round,
                                 double interval, const dunlin_alloc *alloc, dunlin_error *error)
{
    DUNLIN_TRY(loss_make(out_loss, round, interval, alloc, error));
    /* What is cut, at most: below it goes up to the grid, above it is lost for good. */
    const double cut = erfc(round->reach / sqrt(2)) / 2;
    out_loss->mass[1] += cut;
    out_loss->infinite = cut;
    double y = lowest(round);
    const double most = highest(round);
    for (size_t i = 0; i + 1 < out_loss->n && y < most; i++) {
        const double next = (double)(out_loss->first + (int64_t)i + 1) * interval;
        const double end = i + 2 < out_loss->n ? fmin(outcome_of(round, next), most) : most;
        if (end > y) {
            split(round, y, end, i, out_loss);
            y = end;
        }
    }
    return DUNLIN_OK;
}

/* The mass from y to `end`, and its part that is above the loss `point` less what is below: the
 * integral of 1 - e^(point - loss). */
static double excess(const dunlin__loss_round *round, double y, double end, double point,
                     double *out_mass)
{
    const double n_panels = fmax(ceil((end - y) / widest(round)), 1);
    const double half = (end - y) / n_panels / 2;
    double sum = 0;
    *out_mass = 0;
    for (int64_t panel = 0; (double)panel < n_panels; panel++) {
        const double middle = y + (2 * (double)panel + 1) * half;
        for (int k = 0; k < N_NODES; k++) {
            const double at = middle + nodes[k] * half;
            const double mass = density(round, at) * weights[k] * half;
            *out_mass += mass;
            sum -= mass * expm1(point - loss_at(round, at));
        }
    }
    return sum;
}

/* The first outcome, or one that is a little beyond, up to which the mass from y on has, as one, at
 * least the loss `point`. False where there is none: `*out_mass` is then all that is left. */
static bool touching(const dunlin__loss_round *round, double y, double point, double *out_end,
                     double *out_mass)
{
    const double most = highest(round);
    double low = fmax(outcome_of(round, point), y);
    double at = fmin(outcome_of(round, 2 * point - loss_at(round, y)), most);
    at = at > low ? at : fmin(low + (low - y), most);
    double value = excess(round, y, at, point, out_mass);
    while (value < 0 && at < most) {
        low = at;
        at = fmin(at + (at - y), most);
        value = excess(round, y, at, point, out_mass);
    }
    *out_end = at;
    for (int i = 0; i < 60 && value > 0; i++) {
        /* From above, where the excess is convex, this ends above; by less than its last step. */
        const double slope = -density(round, at) * expm1(point - loss_at(round, at));
        double next = at - value / slope * (1 - 1e-9);
        if (!(next > low && next < at)) {
            next = low + (at - low) / 2;
        }
        double mass = 0;
        const double found = excess(round, y, next, point, &mass);
        if (found < 0) {
            low = next;
            continue;
        }
        const bool is_near = at - next <= 1e-7 * (next - y);
        at = next;
        value = found;
        *out_end = at;
        *out_mass = mass;
        if (is_near) {
            break;
        }
    }
    return value >= 0;
}

dunlin_status dunlin__loss_lower(dunlin__loss *out_loss, const dunlin__loss_round *round,
                                 double interval, const dunlin_alloc *alloc, dunlin_error *error)
{
    DUNLIN_TRY(loss_make(out_loss, round, interval, alloc, error));
    double y = lowest(round);
    const double most = highest(round);
    for (size_t i = 0; i < out_loss->n && y < most; i++) {
        const double point = (double)(out_loss->first + (int64_t)i) * interval;
        if (point > loss_at(round, y)) {
            double mass = 0;
            const bool is_found = touching(round, y, point, &y, &mass);
            /* What is left at the end is above the last point: it is rounded down to that. */
            out_loss->mass[is_found || i == 0 ? i : i - 1] += is_found || i > 0 ? mass : 0;
        }
    }
    return DUNLIN_OK;
}
