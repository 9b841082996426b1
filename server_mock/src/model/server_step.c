/*
 * server_step.c - one step of the server's optimiser, and the robust middles of a value's updates.
 */
#include "server_step.h"

#include <math.h>
#include <stdlib.h>

dunlin__moments dunlin__server_step_first(const dunlin__strategy *strategy)
{
    return (dunlin__moments){.m = 0, .v = strategy->tau * strategy->tau};
}

static double next_v(const dunlin__strategy *strategy, double v, double change)
{
    const double square = change * change;
    switch (strategy->kind) {
    case DUNLIN_STRATEGY_FEDADAGRAD:
        return v + square;
    case DUNLIN_STRATEGY_FEDADAM:
        return strategy->beta2 * v + (1 - strategy->beta2) * square;
    case DUNLIN_STRATEGY_FEDYOGI: {
        const double sign = (v > square) - (v < square);
        return v - (1 - strategy->beta2) * square * sign;
    }
    case DUNLIN_STRATEGY_AVERAGE:
    case DUNLIN_STRATEGY_FEDAVGM:
    case DUNLIN_STRATEGY_MEDIAN:
    case DUNLIN_STRATEGY_TRIMMED_MEAN:
    case DUNLIN_N_STRATEGIES:
        break;
    }
    return v;
}

void dunlin__server_step(const dunlin__strategy *strategy, size_t n, const double *changes,
                         dunlin__moments *moments, float *values)
{
    const bool has_momentum = strategy->kind == DUNLIN_STRATEGY_FEDAVGM;
    const double keep = has_momentum ? strategy->momentum : strategy->beta1;
    const double take = has_momentum ? 1 : 1 - strategy->beta1;
    for (size_t i = 0; i < n; i++) {
        dunlin__moments *own = &moments[i];
        own->m = keep * own->m + take * changes[i];
        own->v = next_v(strategy, own->v, changes[i]);
        const double divisor = has_momentum ? 1 : sqrt(own->v) + strategy->tau;
        values[i] = (float)((double)values[i] + strategy->lr * own->m / divisor);
    }
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

double dunlin__server_middle(const dunlin__strategy *strategy, double *samples, size_t n)
{
    size_t n_cut = (n - 1) / 2;
    if (strategy->kind == DUNLIN_STRATEGY_TRIMMED_MEAN) {
        n_cut = (size_t)floor(strategy->trim * (double)n + 1e-9);
    }
    qsort(samples, n, sizeof *samples, compare);
    double sum = 0; /* +0, so it does not matter which of the zeros were cut off */
    for (size_t i = n_cut; i < n - n_cut; i++) {
        sum += samples[i];
    }
    return sum / (double)(n - 2 * n_cut);
}
