/*
 * net_double.h - a network's loss in double precision, by plain loops over (sample, channel, row,
 * column): the reference that gradients are measured against.
 *
 * Shares no code and no memory order with the library. One number of one value or parameter can be
 * bumped, for differences.
 */
#ifndef DUNLIN_TESTS_NET_DOUBLE_H
#define DUNLIN_TESTS_NET_DOUBLE_H

#include "net/net.h"

typedef struct net_double {
    const dunlin_net *net;
    int64_t n;              /* samples */
    double **params;        /* by parameter, ONNX's order */
    double **values;        /* by value: n x elements, in the order of its shape */
    double **masks;         /* by node: dropout's factors, n x elements; NULL: passes all */
    const int32_t *labels;  /* n */
    bool has_running_norm;  /* batch norm takes the running statistics */
    double here;            /* the loss without a bump: set by the caller, for slopes */
    uint32_t bumped_value;  /* DUNLIN_NET_NONE: none */
    int64_t bumped_element; /* among n x elements */
    double bump;
} net_double;

/* Allocates params (zero) and values; asserts on out of memory. */
void net_double_open(net_double *reference, const dunlin_net *net, int64_t n,
                     const int32_t *labels);
void net_double_close(net_double *reference);

/* Mean softmax cross-entropy; fills every value but the input, which the caller has set. */
double net_double_loss(net_double *reference);

/*
 * Central difference of the loss by an element of a value / of a parameter. False at a kink (a tie
 * of a maximum, an edge of a clip), where the slopes of the two sides differ by more than
 * `tolerance`.
 */
bool net_double_value_slope(net_double *reference, uint32_t value, int64_t element, double step,
                            double tolerance, double *out_slope);
bool net_double_param_slope(net_double *reference, uint32_t param, int64_t element, double step,
                            double tolerance, double *out_slope);

#endif
