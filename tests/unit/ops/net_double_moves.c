/*
 * net_double_moves.c - see net_double_moves.h. Written to be read: every element by its indices.
 */
#include "net_double_moves.h"

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

bool net_double_run_moves(net_double *reference, const dunlin_net_node *node)
{
    const bool is_stack = node->kind == DUNLIN_OP_STACK || node->kind == DUNLIN_OP_CONCAT;
    if (!is_stack && node->kind != DUNLIN_OP_REARRANGE) {
        return false;
    }
    const int64_t n = size_of(&reference->net->values[node->output].shape);
    for (int64_t i = 0; i < reference->n * n; i++) {
        reference->values[node->output][i] =
            is_stack ? stacked_at(reference, node, i / n, i % n)
                     : reference->values[node->inputs[0]]
                                        [i / n * n + source_of(&node->u.rearrange.to, i % n)];
    }
    return true;
}
