/*
 * metrics.h - what a call that trains or evaluates says of the examples that it saw.
 */
#ifndef DUNLIN_METRICS_H
#define DUNLIN_METRICS_H

#include <stdint.h>

/** Loss and shares of right answers over some examples. */
typedef struct dunlin_metrics {
    int64_t n_examples;
    double loss; /* mean, as options.loss says, label smoothing included */
    /* Of the examples that count (weight above 0, label not ignored), 0 if none does:
     * CROSS_ENTROPY: share of examples whose label has the highest output; BCE: share of outputs on
     * their target's side (y > 0 where t > 0.5); MSE: 0 */
    double accuracy;
    /* CROSS_ENTROPY with 6 classes or more: share whose label is among the five highest outputs (of
     * equal ones the lower class comes first); else 0 */
    double top5_accuracy;
    /* Of them those that count, and the sum of their weights: what accuracy and loss are means
     * over. To join the metrics of two calls, weigh them by these. */
    int64_t n_counted;
    double weight;
} dunlin_metrics;

#endif
