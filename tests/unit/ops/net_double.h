/*
 * net_double.h - a network's loss in double precision, by plain loops over (sample, channel, row,
 * column): the reference that gradients are measured against.
 *
 * Shares no code and no memory order with the library. Slopes are differences of it, with one
 * number of one value or parameter moved to both sides; only what reads that number is computed
 * again.
 */
#ifndef DUNLIN_TESTS_NET_DOUBLE_H
#define DUNLIN_TESTS_NET_DOUBLE_H

#include "net/net.h"

typedef struct net_double {
    const dunlin_net *net;
    int64_t n;             /* samples */
    double **params;       /* by parameter, ONNX's order */
    double **values;       /* by value: n x elements, in the order of its shape */
    double **masks;        /* by node: dropout's factors, n x elements; NULL: passes all */
    const int32_t *labels; /* n */
    bool has_running_norm; /* batch norm takes the running statistics */
    double here;           /* the loss that the slopes are of: net_double_begin_slopes() */
    double **kept;         /* by value: what net_double_loss() made of it; NULL before */
    double *
        *value_sides; /* by value: the loss below and above each of n x elements; NAN: unknown */
    double **param_sides; /* by parameter: the same of each of its elements */
    bool *is_moved;       /* by value: depends on the number that is moved */
} net_double;

/* Allocates params (zero) and values; asserts on out of memory. */
void net_double_open(net_double *reference, const dunlin_net *net, int64_t n,
                     const int32_t *labels);
void net_double_close(net_double *reference);

/* Mean softmax cross-entropy; fills every value but the input, which the caller has set. */
double net_double_loss(net_double *reference);
/* Fills the output of node `index` from its inputs. */
void net_double_run_node(net_double *reference, uint32_t index);
/* The loss of the output as it is. */
double net_double_mean_loss(const net_double *reference);

/*
 * Slopes from here on are those at what net_double_loss() has left, where the loss is `here`. What
 * was computed for the same loss before stays known: the slopes of one problem are those of every
 * instruction set.
 */
void net_double_begin_slopes(net_double *reference, double here);
/* Frees what slopes have kept; net_double_close() calls it. */
void net_double_end_slopes(net_double *reference);

/*
 * Central difference of the loss by an element of a value / of a parameter. False at a kink (a tie
 * of a maximum, an edge of a clip), where the slopes of the two sides differ by more than
 * `tolerance`. `step` is the same in all calls.
 */
bool net_double_value_slope(net_double *reference, uint32_t value, int64_t element, double step,
                            double tolerance, double *out_slope);
bool net_double_param_slope(net_double *reference, uint32_t param, int64_t element, double step,
                            double tolerance, double *out_slope);

#endif
