/*
 * picks.c - elements of a dimension in an order that the file stores (Gather by a constant):
 * a part where they follow each other, else a product with a stored matrix of ones and zeros, which
 * is exact.
 */
#include "constants.h"
#include "places.h"

#include <inttypes.h>
#include <string.h>

#define MOST_ONES (INT64_C(1) << 20) /* elements of such a matrix */

/* The numbers with those from the end made whole; false after a rejection. */
static bool read_ids(dunlin_onnx_node *node, int64_t size, dunlin_constant *ids)
{
    if (!dunlin__constant_read(node, 1, ids)) {
        (void)dunlin__onnx_reject(node, "", "its indices are no constant");
        return false;
    }
    for (int64_t i = 0; i < ids->n; i++) {
        const double id = ids->items[i] < 0.0 ? ids->items[i] + (double)size : ids->items[i];
        if (!(id >= 0.0 && id < (double)size)) {
            (void)dunlin__onnx_reject(node, "",
                                      "index %" PRId64 " is %g; the dimension has %" PRId64, i,
                                      ids->items[i], size);
            return false;
        }
        ids->items[i] = id;
    }
    if (ids->n < 1 || ids->n * size > MOST_ONES) {
        (void)dunlin__onnx_reject(node, "",
                                  "%" PRId64 " elements are taken of %" PRId64
                                  "; their product may be 1 to %" PRId64,
                                  ids->n, size, MOST_ONES);
        return false;
    }
    return true;
}

static bool is_run(const dunlin_constant *ids)
{
    bool is_one = ids->shape.n_dims <= 1;
    for (int64_t i = 1; i < ids->n; i++) {
        is_one = is_one && ids->items[i] - ids->items[i - 1] == 1.0;
    }
    return is_one;
}

/* Row i has a one at place ids[i]. NONE after a failure. */
static uint32_t make_matrix(dunlin_onnx_node *node, const dunlin_constant *ids, int64_t size)
{
    const dunlin_shape shape = {2, {ids->n, size}};
    dunlin_constant ones = {0};
    uint32_t param = DUNLIN_NET_NONE;
    if (dunlin__constant_make(node, DUNLIN_ONNX_FLOAT, &shape, &ones)) {
        for (int64_t i = 0; i < ids->n; i++) {
            ones.items[i * size + (int64_t)ids->items[i]] = 1.0;
        }
        param = dunlin__constant_param(node, "/order", &ones);
    }
    dunlin__constant_free(node, &ones);
    if (param != DUNLIN_NET_NONE) {
        node->import->net->params[param].layout = DUNLIN_PARAM_DENSE;
    }
    return param;
}

/* Dimension `from` of n moved to place `to`; the value itself if it is there. NONE after a failure.
 */
static uint32_t moved(dunlin_onnx_node *node, uint32_t value, int32_t n, int32_t from, int32_t to,
                      const char *suffix)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_TRANSPOSE, .inputs = {value}, .n_inputs = 1};
    for (int32_t d = 0, at = 0; d < n; d++) {
        at += at == from ? 1 : 0;
        made.u.transpose.perm[d] = d == to ? from : at++;
    }
    return from == to || value == DUNLIN_NET_NONE ? value : dunlin__onnx_make(node, &made, suffix);
}

/* The elements in the last dimension, of which each becomes a row: (..., order). */
static uint32_t product(dunlin_onnx_node *node, uint32_t value, const dunlin_constant *ids,
                        int32_t dim)
{
    const dunlin_shape x = node->import->net->values[value].shape;
    dunlin_net_node made = {.kind = DUNLIN_OP_DENSE, .n_inputs = 1, .n_params = 1};
    made.params[0] = make_matrix(node, ids, x.dims[dim]);
    made.inputs[0] = made.params[0] == DUNLIN_NET_NONE
                         ? DUNLIN_NET_NONE
                         : moved(node, value, x.n_dims, dim, x.n_dims - 1, "/last");
    const uint32_t rows = made.inputs[0] == DUNLIN_NET_NONE
                              ? DUNLIN_NET_NONE
                              : dunlin__onnx_make(node, &made, "/picked");
    return moved(node, rows, x.n_dims, x.n_dims - 1, dim, "/back");
}

static uint32_t part(dunlin_onnx_node *node, uint32_t value, const dunlin_constant *ids,
                     int32_t dim)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_SLICE, .inputs = {value}, .n_inputs = 1};
    made.u.slice.axis = dim;
    made.u.slice.start = (int64_t)ids->items[0];
    made.u.slice.end = made.u.slice.start + ids->n;
    return ids->n == node->import->net->values[value].shape.dims[dim]
               ? value
               : dunlin__onnx_make(node, &made, "/part");
}

/* Elements of dimension `dim` by their numbers, whose shape comes in its place. */
static void take(dunlin_onnx_node *node, int32_t dim, const dunlin_constant *ids)
{
    const uint32_t x = dunlin__onnx_value_input(node, 0);
    const dunlin_shape shape = node->import->net->values[x].shape;
    const int32_t n_ids = ids->shape.n_dims;
    const int32_t rank = shape.n_dims - 1 + n_ids;
    dunlin_net_node made = {.kind = rank == 1 ? DUNLIN_OP_FLATTEN : DUNLIN_OP_RESHAPE,
                            .n_inputs = 1};
    dunlin_shape *out = &made.u.reshape.shape;
    if (rank > DUNLIN_MAX_DIMS || rank < 1) {
        (void)dunlin__onnx_reject(node, "", "its result has %" PRId32 " dimensions", rank);
        return;
    }
    for (int32_t d = 0; d < rank; d++) {
        const bool is_of_ids = d >= dim && d < dim + n_ids;
        out->dims[d] =
            is_of_ids ? ids->shape.dims[d - dim] : shape.dims[d < dim ? d : d - n_ids + 1];
    }
    out->n_dims = rank;
    made.inputs[0] = is_run(ids) ? part(node, x, ids, dim) : product(node, x, ids, dim);
    if (made.inputs[0] != DUNLIN_NET_NONE) {
        dunlin__onnx_finish(node, &made);
    }
}

void dunlin__onnx_pick_many(dunlin_onnx_node *node, int32_t dim, int32_t *out_rank)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    dunlin_constant ids = {0};
    *out_rank = 0;
    if (read_ids(node, x->shape.dims[dim], &ids)) {
        *out_rank = ids.shape.n_dims;
        take(node, dim, &ids);
    }
    dunlin__constant_free(node, &ids);
}

bool dunlin__onnx_pick_backwards(dunlin_onnx_node *node, int32_t dim, int64_t start, int64_t n,
                                 int64_t step)
{
    const int64_t size = dunlin__onnx_known_value(node, 0)->shape.dims[dim];
    const dunlin_shape shape = {1, {n}};
    dunlin_constant ids = {0};
    if (n < 1 || n * size > MOST_ONES ||
        !dunlin__constant_make(node, DUNLIN_ONNX_INT64, &shape, &ids)) {
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        ids.items[i] = (double)(start + i * step);
    }
    take(node, dim, &ids);
    dunlin__constant_free(node, &ids);
    return true;
}
