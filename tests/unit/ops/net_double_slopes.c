/*
 * net_double_slopes.c - central differences of the reference's loss, see net_double.h.
 */
#include "net_double.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t count_value(const net_double *reference, uint32_t value)
{
    return reference->n * dunlin__value_elements(&reference->net->values[value]);
}

void net_double_end_slopes(net_double *reference)
{
    for (uint32_t i = 0; reference->kept != NULL && i < reference->net->n_values; i++) {
        free(reference->kept[i]);
        free(reference->value_sides[i]);
    }
    for (uint32_t i = 0; reference->kept != NULL && i < reference->net->n_params; i++) {
        free(reference->param_sides[i]);
    }
    free(reference->kept);
    free(reference->value_sides);
    free(reference->param_sides);
    free(reference->is_moved);
    reference->kept = NULL;
    reference->value_sides = NULL;
    reference->param_sides = NULL;
    reference->is_moved = NULL;
}

/* Two numbers for each of n elements, none of them known. */
static double *unknown(int64_t n)
{
    double *sides = malloc((size_t)(2 * n + 1) * sizeof *sides);
    assert(sides != NULL);
    for (int64_t i = 0; i < 2 * n; i++) {
        sides[i] = (double)NAN;
    }
    return sides;
}

void net_double_begin_slopes(net_double *reference, double here)
{
    const dunlin_net *net = reference->net;
    if (reference->kept != NULL && reference->here == here) {
        return;
    }
    net_double_end_slopes(reference);
    reference->here = here;
    reference->kept = calloc(net->n_values + 1, sizeof *reference->kept);
    reference->value_sides = calloc(net->n_values + 1, sizeof *reference->value_sides);
    reference->param_sides = calloc(net->n_params + 1, sizeof *reference->param_sides);
    reference->is_moved = calloc(net->n_values + 1, sizeof *reference->is_moved);
    assert(reference->kept != NULL && reference->value_sides != NULL);
    assert(reference->param_sides != NULL && reference->is_moved != NULL);
    for (uint32_t i = 0; i < net->n_values; i++) {
        const int64_t n = count_value(reference, i);
        reference->value_sides[i] = unknown(n);
        reference->kept[i] = malloc((size_t)(n + 1) * sizeof **reference->kept);
        assert(reference->kept[i] != NULL);
        memcpy(reference->kept[i], reference->values[i], (size_t)n * sizeof **reference->kept);
    }
    for (uint32_t i = 0; i < net->n_params; i++) {
        reference->param_sides[i] = unknown(net->params[i].n_elements);
    }
}

/* Whether a node reads something that has moved. */
static bool reads_moved(const net_double *reference, const dunlin_net_node *node, uint32_t param)
{
    bool reads = false;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        reads = reads || reference->is_moved[node->inputs[i]];
    }
    for (uint32_t i = 0; i < node->n_params && param != DUNLIN_NET_NONE; i++) {
        reads = reads || node->params[i] == param;
    }
    return reads;
}

/* The loss with `*place`, a number of a value or of a parameter (the other is NONE), moved. */
static double moved_loss(net_double *reference, uint32_t value, uint32_t param, double *place,
                         double by)
{
    const dunlin_net *net = reference->net;
    const double before = *place;
    memset(reference->is_moved, 0, net->n_values * sizeof *reference->is_moved);
    if (value != DUNLIN_NET_NONE) {
        reference->is_moved[value] = true;
    }
    *place = before + by;
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        if (reads_moved(reference, &net->nodes[i], param)) {
            net_double_run_node(reference, i);
            reference->is_moved[net->nodes[i].output] = true;
        }
    }
    const double loss = net_double_mean_loss(reference);
    *place = before;
    for (uint32_t i = 0; i < net->n_values; i++) {
        if (reference->is_moved[i] && i != value) {
            memcpy(reference->values[i], reference->kept[i],
                   (size_t)count_value(reference, i) * sizeof **reference->kept);
        }
    }
    return loss;
}

/* From the losses below and above, which are computed if they are not known. */
static bool take_slope(net_double *reference, uint32_t value, uint32_t param, int64_t element,
                       double step, double tolerance, double *out_slope)
{
    const bool is_value = value != DUNLIN_NET_NONE;
    double *place = &(is_value ? reference->values[value] : reference->params[param])[element];
    double *sides =
        &(is_value ? reference->value_sides[value] : reference->param_sides[param])[2 * element];
    assert(reference->kept != NULL);
    if (isnan(sides[0])) {
        sides[1] = moved_loss(reference, value, param, place, step);
        sides[0] = moved_loss(reference, value, param, place, -step);
    }
    *out_slope = (sides[1] - sides[0]) / (2.0 * step);
    return fabs(sides[1] - 2.0 * reference->here + sides[0]) / step <= tolerance;
}

bool net_double_value_slope(net_double *reference, uint32_t value, int64_t element, double step,
                            double tolerance, double *out_slope)
{
    return take_slope(reference, value, DUNLIN_NET_NONE, element, step, tolerance, out_slope);
}

bool net_double_param_slope(net_double *reference, uint32_t param, int64_t element, double step,
                            double tolerance, double *out_slope)
{
    return take_slope(reference, DUNLIN_NET_NONE, param, element, step, tolerance, out_slope);
}
