/*
 * net_double_moves.c - see net_double_moves.h. Written to be read: every element by its indices.
 */
#include "net_double_moves.h"

#include <assert.h>
#include <math.h>

static int64_t size_of(const dunlin_shape *shape)
{
    int64_t n = 1;
    for (int32_t i = 0; i < shape->n_dims; i++) {
        n *= shape->dims[i];
    }
    return n;
}

/* The element of the input that is element i of the output. */
static int64_t source_of(const dunlin_rearrangement *r, int64_t i)
{
    int64_t at[DUNLIN_MAX_DIMS] = {0};
    for (int32_t d = r->split.n_dims - 1; d >= 0; d--) {
        const int32_t from = r->perm[d];
        at[from] = i % r->split.dims[from];
        i /= r->split.dims[from];
    }
    int64_t element = 0;
    for (int32_t d = 0; d < r->split.n_dims; d++) {
        element = element * r->split.dims[d] + at[d];
    }
    return element;
}

/* Element i of sample s of values that lie one after the other along a dimension. */
static double stacked_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                         int64_t i)
{
    const dunlin_shape *y = &reference->net->values[node->output].shape;
    const bool is_image = reference->net->values[node->output].layout == DUNLIN_LAYOUT_IMAGE;
    const int32_t axis = node->kind == DUNLIN_OP_STACK ? node->u.stack.axis
                         : is_image                    ? 0
                                                       : y->n_dims - 1;
    int64_t inner = 1;
    for (int32_t d = axis + 1; d < y->n_dims; d++) {
        inner *= y->dims[d];
    }
    int64_t at = i / inner % y->dims[axis];
    const int64_t outer = i / inner / y->dims[axis];
    uint32_t k = 0;
    const dunlin_shape *part = &reference->net->values[node->inputs[0]].shape;
    while (at >= part->dims[axis]) {
        at -= part->dims[axis];
        part = &reference->net->values[node->inputs[++k]].shape;
    }
    return reference->values[node->inputs[k]][s * size_of(part) +
                                              (outer * part->dims[axis] + at) * inner + i % inner];
}

/* The elements of one element of a reduction, in any order; their number. */
static int64_t gather(const net_double *reference, const dunlin_net_node *node, int64_t s,
                      int64_t element, double *out)
{
    const dunlin_shape *x = &reference->net->values[node->inputs[0]].shape;
    const double *values = reference->values[node->inputs[0]] + s * size_of(x);
    int64_t n = 0;
    for (int64_t i = 0; i < size_of(x); i++) {
        int64_t rest = i;
        int64_t kept = 0;
        int64_t stride = 1;
        for (int32_t d = x->n_dims - 1; d >= 0; d--) {
            if ((node->u.reduce.axes >> d & 1) == 0) {
                kept += rest % x->dims[d] * stride;
                stride *= x->dims[d];
            }
            rest /= x->dims[d];
        }
        if (kept == element) {
            out[n++] = values[i];
        }
    }
    return n;
}

static double reduce(dunlin_reduce_fn fn, const double *x, int64_t n)
{
    double largest = x[0];
    double smallest = x[0];
    double sum = 0.0;
    double absolute = 0.0;
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, x[i]);
        smallest = fmin(smallest, x[i]);
        sum += x[i];
        absolute += fabs(x[i]);
        squares += x[i] * x[i];
    }
    double exps = 0.0;
    for (int64_t i = 0; i < n; i++) {
        exps += exp(x[i] - largest);
    }
    const double results[] = {sum,           largest, smallest,           absolute,
                              sqrt(squares), squares, largest + log(exps)};
    return results[fn];
}

static double reduced_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                         int64_t i)
{
    double x[512] = {0.0};
    assert(size_of(&reference->net->values[node->inputs[0]].shape) <= 512);
    const int64_t n = gather(reference, node, s, i, x);
    return reduce(node->u.reduce.fn, x, n);
}

static double expanded_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                          int64_t i)
{
    const dunlin_shape *x = &reference->net->values[node->inputs[0]].shape;
    const dunlin_shape *y = &reference->net->values[node->output].shape;
    int64_t element = 0;
    int64_t stride = 1;
    for (int32_t d = y->n_dims - 1; d >= 0; d--) {
        element += x->dims[d] == 1 ? 0 : i % y->dims[d] * stride;
        stride *= x->dims[d];
        i /= y->dims[d];
    }
    return reference->values[node->inputs[0]][s * size_of(x) + element];
}

/* Where an element along a dimension of `size` comes from; -1: from nowhere. */
static int64_t padded_from(const dunlin_net_node *node, int64_t at, int64_t size)
{
    const int64_t from = at - node->u.pad.before;
    if (from >= 0 && from < size) {
        return from;
    }
    switch (node->u.pad.mode) {
    case DUNLIN_PAD_REFLECT:
        return from < 0 ? -from : 2 * (size - 1) - from;
    case DUNLIN_PAD_EDGE:
        return from < 0 ? 0 : size - 1;
    case DUNLIN_PAD_CONSTANT:
        break;
    }
    return -1;
}

static double padded_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                        int64_t i)
{
    const dunlin_shape *x = &reference->net->values[node->inputs[0]].shape;
    const dunlin_shape *y = &reference->net->values[node->output].shape;
    int64_t element = 0;
    int64_t stride = 1;
    for (int32_t d = y->n_dims - 1; d >= 0; d--) {
        int64_t at = i % y->dims[d];
        if (d == node->u.pad.axis) {
            at = padded_from(node, at, x->dims[d]);
            if (at < 0) {
                return (double)node->u.pad.value;
            }
        }
        element += at * stride;
        stride *= x->dims[d];
        i /= y->dims[d];
    }
    return reference->values[node->inputs[0]][s * size_of(x) + element];
}

static double moved_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                       int64_t i)
{
    const int64_t n = size_of(&reference->net->values[node->output].shape);
    switch ((int)node->kind) {
    case DUNLIN_OP_CONCAT:
    case DUNLIN_OP_STACK:
        return stacked_at(reference, node, s, i);
    case DUNLIN_OP_REDUCE:
        return reduced_at(reference, node, s, i);
    case DUNLIN_OP_PAD:
        return padded_at(reference, node, s, i);
    case DUNLIN_OP_EXPAND:
        return node->n_params > 0 ? reference->params[node->params[0]][i]
                                  : expanded_at(reference, node, s, i);
    default:
        return reference->values[node->inputs[0]][s * n + source_of(&node->u.rearrange.to, i)];
    }
}

bool net_double_run_moves(net_double *reference, const dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_CONCAT && node->kind != DUNLIN_OP_PAD &&
        (node->kind < DUNLIN_OP_STACK || node->kind > DUNLIN_OP_REARRANGE)) {
        return false;
    }
    const int64_t n = size_of(&reference->net->values[node->output].shape);
    for (int64_t i = 0; i < reference->n * n; i++) {
        reference->values[node->output][i] = moved_at(reference, node, i / n, i % n);
    }
    return true;
}
