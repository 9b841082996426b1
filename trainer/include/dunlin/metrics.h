/*
 * metrics.h - what a call that trains or evaluates reports about the examples that it saw.
 *
 * Example: the metrics of two calls together.
 *
 * @code
 * extern dunlin_metrics a, b;
 * const double weight = a.weight + b.weight;
 * const double loss = weight > 0.0 ? (a.loss * a.weight + b.loss * b.weight) / weight : 0.0;
 * printf("loss %.3f over %.0f\n", loss, weight);
 * @endcode
 */
#ifndef DUNLIN_METRICS_H
#define DUNLIN_METRICS_H

#include <stdint.h>

/** Loss and shares of right answers over some examples. This struct is frozen: what more a later
 * version has to say of them comes from calls of its own. */
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
