/*
 * server_step.h - one step of the server's optimiser, and the robust middles of a value's updates.
 *
 * Plain arithmetic on doubles in a fixed order: the same arguments give the same bits.
 */
#ifndef DUNLIN_SERVER_SERVER_STEP_H
#define DUNLIN_SERVER_SERVER_STEP_H

#include "task/strategy.h"

#include <stddef.h>

/* What a strategy keeps of an averaged value. */
typedef struct dunlin__moments {
    double m; /* the mean of the changes, or their sum with momentum */
    double v; /* of their squares; with fedavgm 0 */
} dunlin__moments;

/* What is there before the first step: m = 0, and v = tau^2. */
dunlin__moments dunlin__server_step_first(const dunlin__strategy *strategy);

/*
 * One step for n values. `changes` are the round's averages of u_i, `values` the base's, which
 * become the next model's. Reddi et al. 2021, "Adaptive Federated Optimization", algorithm 2, lines
 * 11 to 15: m = beta1 m + (1 - beta1) change; v = v + change^2 (fedadagrad), beta2 v + (1 - beta2)
 * change^2 (fedadam), v - (1 - beta2) change^2 sign(v - change^2) (fedyogi); value += lr m /
 * (sqrt(v) + tau), without a correction of bias. fedavgm, Hsu, Qi and Brown 2019: m = momentum m +
 * change; value += lr m.
 */
void dunlin__server_step(const dunlin__strategy *strategy, size_t n, const double *changes,
                         dunlin__moments *moments, float *values);

/* The median (of an even number the mean of the two in the middle) or the trimmed mean (without the
 * floor(trim n) lowest and as many highest) of n samples, which are sorted. Whatever their order
 * was, the bits are the same. n is at least 1, and no sample is NaN. */
double dunlin__server_middle(const dunlin__strategy *strategy, double *samples, size_t n);

#endif
