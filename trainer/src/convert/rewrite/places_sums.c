/*
 * places_sums.c - means, sums and extremes over dimensions of a sample, wherever the batch is.
 */
#include "places.h"

#include <string.h>

/* Over which dimensions of a sample; 0: over the batch's, or it is not known. */
static uint32_t read_axes(const dunlin_onnx_node *node, const dunlin_onnx_batch *at, int32_t n_dims)
{
    int64_t axes[DUNLIN_MAX_DIMS];
    const bool is_input = dunlin__onnx_has_input(node, 1);
    const int32_t n = is_input ? dunlin__onnx_ints_input(node, 1, axes, DUNLIN_MAX_DIMS)
                               : dunlin__onnx_ints(node, "axes", axes, DUNLIN_MAX_DIMS);
    uint32_t marked = 0;
    if (n < 1 || n > DUNLIN_MAX_DIMS) {
        return 0;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t dim = dunlin__onnx_sample_axis(at, n_dims, axes[i]);
        if (dim < 0) {
            return 0;
        }
        marked |= 1U << dim;
    }
    return marked;
}

/* The node's kind by its operator's name; N_KINDS: it is none of these. */
static dunlin_net_node node_for(const char *op)
{
    static const struct {
        const char *op_type;
        dunlin_reduce_fn fn;
    } sums[] = {
        {"ReduceSum", DUNLIN_REDUCE_SUM},      {"ReduceMax", DUNLIN_REDUCE_LARGEST},
        {"ReduceMin", DUNLIN_REDUCE_SMALLEST}, {"ReduceL1", DUNLIN_REDUCE_L1},
        {"ReduceL2", DUNLIN_REDUCE_L2},        {"ReduceSumSquare", DUNLIN_REDUCE_SUM_SQUARE}};
    dunlin_net_node made = {.kind = DUNLIN_OP_N_KINDS, .n_inputs = 1};
    if (strcmp(op, "ReduceMean") == 0) {
        made.kind = DUNLIN_OP_MEAN;
    }
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        if (strcmp(op, sums[i].op_type) == 0) {
            made.kind = DUNLIN_OP_REDUCE;
            made.u.reduce.fn = sums[i].fn;
        }
    }
    return made;
}

bool dunlin__onnx_reduce_place(dunlin_onnx_node *node)
{
    dunlin_net_node made = node_for(dunlin__onnx_op_type(node));
    if (made.kind == DUNLIN_OP_N_KINDS) {
        return false;
    }
    const dunlin_shape x = dunlin__onnx_known_value(node, 0)->shape;
    dunlin_onnx_batch at = dunlin__onnx_place_of(node, 0);
    const uint32_t axes = read_axes(node, &at, x.n_dims);
    const bool keeps_dims = dunlin__onnx_int(node, "keepdims", 1) != 0;
    if (axes == 0) {
        return false;
    }
    made.inputs[0] = dunlin__onnx_value_input(node, 0);
    if (made.kind == DUNLIN_OP_MEAN) {
        made.u.mean.axes = axes;
        made.u.mean.keeps_dims = keeps_dims;
    } else {
        made.u.reduce.axes = axes;
        made.u.reduce.keeps_dims = keeps_dims;
    }
    for (int32_t d = x.n_dims - 1; d >= 0 && !keeps_dims; d--) {
        at.n_before -= (axes >> d & 1) != 0 && d < at.n_before ? 1 : 0;
    }
    (void)dunlin__onnx_int(node, "noop_with_empty_axes", 0);
    dunlin__onnx_finish(node, &made);
    dunlin__onnx_output(node, 0)->place = at;
    return true;
}
