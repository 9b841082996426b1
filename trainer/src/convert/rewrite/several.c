/*
 * several.c - one ONNX node that is several of ours: Split, and means over the pixels of an image.
 *
 * Invariant: each output has its value when the node has been read, or the node is rejected.
 */
#include "fold.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

static dunlin_net_node of_value(dunlin_op_kind kind, uint32_t value)
{
    return (dunlin_net_node){.kind = kind, .inputs = {value}, .n_inputs = 1};
}

/* --- Split --- */

/* The sizes of the parts: given, or as equal as they can be, the last one smaller. */
static bool part_sizes(dunlin_onnx_node *node, int64_t size, int64_t sizes[DUNLIN_MAX_DIMS])
{
    const uint32_t n = node->op->outputs.n;
    const int64_t n_asked = dunlin__onnx_int(node, "num_outputs", n);
    if (n < 1 || n > DUNLIN_MAX_DIMS || n_asked != n) {
        (void)dunlin__onnx_reject(node, "num_outputs",
                                  "has %" PRIu32 " outputs, not 1 to %d as num_outputs says", n,
                                  DUNLIN_MAX_DIMS);
        return false;
    }
    const int64_t each = size / n + (size % n != 0 ? 1 : 0);
    int64_t left = size;
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = i + 1 < n ? each : size - each * (n - 1);
    }
    if (dunlin__onnx_has_input(node, 1) &&
        dunlin__onnx_ints_input(node, 1, sizes, DUNLIN_MAX_DIMS) != (int32_t)n) {
        (void)dunlin__onnx_reject(node, "split", "is not a constant with a size for each output");
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] < 1 || sizes[i] > left) {
            (void)dunlin__onnx_reject(node, "split",
                                      "part %" PRIu32 " of %" PRId64 " does not fit into %" PRId64,
                                      i, sizes[i], size);
            return false;
        }
        left -= sizes[i];
    }
    if (left != 0) {
        (void)dunlin__onnx_reject(node, "split", "leaves %" PRId64 " of %" PRId64 " over", left,
                                  size);
    }
    return left == 0;
}

static bool fold_split(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    int64_t sizes[DUNLIN_MAX_DIMS] = {0};
    if (input == NULL) {
        return false;
    }
    const int64_t rank = input->shape.n_dims + 1;
    const int64_t axis = dunlin__onnx_int(node, "axis", 0);
    const int64_t at = (axis < 0 ? axis + rank : axis) - 1;
    if (at < 0 || at >= input->shape.n_dims) {
        (void)dunlin__onnx_reject(node, "axis", "is %" PRId64 ", the batch's or not there", axis);
        return true;
    }
    if (!part_sizes(node, input->shape.dims[at], sizes)) {
        return true;
    }
    dunlin__onnx_check_attributes(node);
    dunlin_net_node made = of_value(DUNLIN_OP_SLICE, dunlin__onnx_value_input(node, 0));
    made.u.slice.axis = (int32_t)at;
    for (uint32_t i = 0; i < node->op->outputs.n; i++) {
        const dunlin_onnx_binding *output = dunlin__onnx_output(node, i);
        made.u.slice.start = made.u.slice.end;
        made.u.slice.end += sizes[i];
        if (output != NULL && output->is_needed && !dunlin__onnx_make_output(node, &made, i)) {
            return true;
        }
    }
    return true;
}

/* --- ReduceMean --- */

/* Over all pixels it is the global pooling. */
static bool fold_mean(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    uint32_t axes = 0;
    if (input == NULL || input->layout != DUNLIN_LAYOUT_IMAGE) {
        return false;
    }
    if (dunlin__op_read_axes(node, input->shape.n_dims, &axes) != DUNLIN_OK) {
        return true;
    }
    const uint32_t pixels = input->shape.n_dims == 2 ? 1U << 1 : 1U << 1 | 1U << 2;
    if (axes != pixels) {
        return false; /* the row's own */
    }
    const bool keeps_dims = dunlin__onnx_int(node, "keepdims", 1) != 0;
    dunlin_net_node made =
        of_value(DUNLIN_OP_GLOBAL_AVERAGE_POOL, dunlin__onnx_value_input(node, 0));
    if (!keeps_dims) {
        const uint32_t pooled = dunlin__onnx_make(node, &made, "/pooled");
        if (pooled == DUNLIN_NET_NONE) {
            return true;
        }
        made = of_value(DUNLIN_OP_FLATTEN, pooled);
    }
    dunlin__onnx_finish(node, &made);
    return true;
}

/* --- Expand --- */

/* Repeated to a shape that is known; to its own it is another name for the value. */
static bool fold_expand(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    dunlin_onnx_vector wanted;
    if (input == NULL || !dunlin__onnx_vector_input(node, 1, &wanted) || wanted.n < 1 ||
        wanted.n > input->shape.n_dims + 1) {
        return false;
    }
    dunlin_net_node made = of_value(DUNLIN_OP_EXPAND, dunlin__onnx_value_input(node, 0));
    dunlin_shape *shape = &made.u.expand.shape;
    bool is_same = true;
    *shape = input->shape;
    for (int32_t i = 1; i <= wanted.n; i++) {
        const int32_t at = wanted.n - i;
        const int32_t dim = shape->n_dims - i;
        if (dim < 0 && (wanted.is_batch[at] || wanted.items[at] == 1)) {
            continue;
        }
        if (dim < 0 || wanted.is_batch[at]) {
            return false;
        }
        if (wanted.items[at] != 1 && wanted.items[at] != shape->dims[dim]) {
            is_same = false;
            shape->dims[dim] = shape->dims[dim] == 1 ? wanted.items[at] : -1;
        }
    }
    if (is_same) {
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
    } else {
        dunlin__onnx_finish(node, &made);
    }
    return true;
}

bool dunlin__onnx_fold_several(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Split", fold_split},
        {"ReduceMean", fold_mean},
        {"Softmax", dunlin__onnx_fold_old_softmax},
        {"LogSoftmax", dunlin__onnx_fold_old_softmax},
        {"Expand", fold_expand},
    };
    return dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]);
}
