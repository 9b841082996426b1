/*
 * constant_scatter.c - elements of a constant that are put into another one by their coordinates,
 * as a mask is filled region by region (ScatterND), and running sums.
 *
 * Invariant: a coordinate outside the constant is no constant that is known.
 */
#include "constants.h"

#include <mem/support.h>

#include <string.h>

/* Of the slices that `n_index` coordinates choose: the number of their elements. */
static int64_t slice_size(const dunlin_shape *shape, int64_t n_index)
{
    int64_t n = 1;
    for (int32_t d = (int32_t)n_index; d < shape->n_dims; d++) {
        n *= shape->dims[d];
    }
    return n;
}

/* The number of the slice at these coordinates; -1: outside. */
static int64_t slice_at(const dunlin_shape *shape, const double *index, int64_t n_index)
{
    int64_t at = 0;
    for (int64_t k = 0; k < n_index; k++) {
        const double size = (double)shape->dims[k];
        const double i = index[k] < 0.0 ? index[k] + size : index[k];
        if (!(i >= 0.0) || !(i < size)) {
            return -1;
        }
        at = at * shape->dims[k] + (int64_t)i;
    }
    return at;
}

/* The shape of the updates: the indices' without the last dimension, then that of a slice. */
static bool fits(const dunlin_constant *data, const dunlin_constant *indices,
                 const dunlin_constant *updates)
{
    const dunlin_shape *at = &indices->shape;
    const int64_t n_index = at->n_dims > 0 ? at->dims[at->n_dims - 1] : 0;
    const int64_t rank = at->n_dims - 1 + data->shape.n_dims - n_index;
    if (n_index < 1 || n_index > data->shape.n_dims || rank != updates->shape.n_dims) {
        return false;
    }
    bool is_same = true;
    for (int32_t d = 0; d < updates->shape.n_dims; d++) {
        const int64_t size =
            d < at->n_dims - 1 ? at->dims[d] : data->shape.dims[n_index + d - (at->n_dims - 1)];
        is_same = is_same && updates->shape.dims[d] == size;
    }
    return is_same;
}

/* parts: data, indices, updates. */
static bool put(dunlin_onnx_node *node, const dunlin_constant parts[3], dunlin_constant *out)
{
    const dunlin_constant *indices = &parts[1];
    const int64_t n_index = indices->shape.dims[indices->shape.n_dims - 1];
    const int64_t n_slice = slice_size(&parts[0].shape, n_index);
    if (!dunlin__constant_make(node, parts[0].type, &parts[0].shape, out)) {
        return false;
    }
    memcpy(out->items, parts[0].items, (size_t)out->n * sizeof *out->items);
    for (int64_t i = 0; i < indices->n / n_index; i++) {
        const int64_t at = slice_at(&out->shape, indices->items + i * n_index, n_index);
        if (at < 0) {
            return false;
        }
        for (int64_t k = 0; k < n_slice; k++) {
            out->items[at * n_slice + k] = parts[2].items[i * n_slice + k];
        }
    }
    return true;
}

static bool scatter(dunlin_onnx_node *node, dunlin_constant *out)
{
    dunlin_constant parts[3] = {{0}};
    bool is_good = dunlin__onnx_n_inputs(node) == 3 &&
                   strcmp(dunlin__onnx_text(node, "reduction", "none"), "none") == 0;
    for (uint32_t i = 0; is_good && i < 3; i++) {
        is_good = dunlin__constant_read(node, i, &parts[i]) && !parts[i].is_part;
    }
    if (is_good && (parts[1].type != DUNLIN_ONNX_INT64 || parts[2].type != parts[0].type ||
                    !fits(&parts[0], &parts[1], &parts[2]) || !put(node, parts, out))) {
        (void)dunlin__onnx_reject(
            node, "", "its indices and updates do not fit the constant that they change");
    }
    for (int i = 0; i < 3; i++) {
        dunlin__constant_free(node, &parts[i]);
    }
    return is_good || node->import->is_rejected;
}

/* Running sums along an axis, as of a mask that becomes positions. */
static bool sum_up(dunlin_onnx_node *node, dunlin_constant *out)
{
    dunlin_constant from = {0};
    int64_t axis = 0;
    const bool is_plain =
        dunlin__onnx_int(node, "exclusive", 0) == 0 && dunlin__onnx_int(node, "reverse", 0) == 0;
    bool is_good = is_plain && dunlin__onnx_ints_input(node, 1, &axis, 1) == 1 &&
                   dunlin__constant_read(node, 0, &from) && !from.is_part;
    axis = is_good && axis < 0 ? axis + from.shape.n_dims : axis;
    is_good = is_good && axis >= 0 && axis < from.shape.n_dims &&
              dunlin__constant_make(node, from.type, &from.shape, out);
    if (is_good) {
        const int64_t stride = slice_size(&from.shape, axis + 1);
        const int64_t size = from.shape.dims[axis];
        for (int64_t i = 0; i < out->n; i++) {
            const bool is_first = i / stride % size == 0;
            const double sum = from.items[i] + (is_first ? 0.0 : out->items[i - stride]);
            out->items[i] = from.type == DUNLIN_ONNX_FLOAT ? (double)(float)sum : sum;
        }
    }
    dunlin__constant_free(node, &from);
    return is_good || node->import->is_rejected;
}

bool dunlin__constant_scatter(dunlin_onnx_node *node, dunlin_constant *out)
{
    const char *op = dunlin__onnx_op_type(node);
    return strcmp(op, "ScatterND") == 0 ? scatter(node, out)
                                        : strcmp(op, "CumSum") == 0 && sum_up(node, out);
}
