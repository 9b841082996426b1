/*
 * place.c - where the batch stands among the dimensions that a value has in its file: places.c has
 * the invariant.
 */
#include "places.h"

typedef dunlin_onnx_batch place;

typedef dunlin_file_dim file_dim;

int32_t dunlin__onnx_file_dims(const place *at, int32_t n_dims, file_dim out[DUNLIN_MAX_DIMS + 1])
{
    int32_t n = 0;
    for (int32_t d = 0; d <= n_dims; d++) {
        if (d == at->n_before && at->mix == DUNLIN_ONNX_MIX_NONE) {
            out[n++] = (file_dim){.dim = -1, .has_batch = true};
        }
        if (d < n_dims) {
            const bool is_mixed = (at->mix == DUNLIN_ONNX_MIX_OUTER && d == at->n_before) ||
                                  (at->mix == DUNLIN_ONNX_MIX_INNER && d == at->n_before - 1);
            out[n++] = (file_dim){.dim = d, .has_batch = is_mixed};
        }
    }
    return n;
}

int32_t dunlin__onnx_sample_axis(const place *at, int32_t n_dims, int64_t axis)
{
    file_dim dims[DUNLIN_MAX_DIMS + 1];
    const int32_t n = dunlin__onnx_file_dims(at, n_dims, dims);
    axis = axis < 0 ? axis + n : axis;
    return axis >= 0 && axis < n && !dims[axis].has_batch ? dims[axis].dim : -1;
}

place dunlin__onnx_place_of(const dunlin_onnx_node *node, uint32_t index)
{
    return dunlin__onnx_input(node, index)->place;
}
