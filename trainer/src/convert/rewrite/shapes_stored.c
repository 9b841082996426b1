/*
 * shapes_stored.c - integers that are stored or made all alike, of which a list is wanted.
 */
#include "fold.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

/* Integers all alike: a list if the result is one, else a stored tensor of one sample's part. */
bool dunlin__onnx_fold_fill(dunlin_onnx_node *node)
{
    dunlin_onnx_import *import = node->import;
    const dunlin_onnx_attribute *value = dunlin__onnx_attribute(node, "value");
    dunlin_onnx_vector shape;
    double number = 0.0;
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    const bool has_number =
        value == NULL ||
        (value->has_tensor && dunlin__onnx_tensor_number(
                                  import->file, &import->file->tensors[value->tensor], 0, &number));
    if (!has_number || !dunlin__onnx_vector_input(node, 0, &shape)) {
        return false;
    }
    if (shape.n == 1 && !shape.is_batch[0] && shape.items[0] >= 0 &&
        shape.items[0] <= DUNLIN_MAX_DIMS && fabs(number) < 1e15 && number == trunc(number)) {
        dunlin_onnx_vector list = {.n = (int32_t)shape.items[0]};
        for (int32_t i = 0; i < list.n; i++) {
            list.items[i] = (int64_t)number;
        }
        dunlin__onnx_bind_vector(node, &list);
        return true;
    }
    int64_t n = 1;
    bool has_batch = false;
    for (int32_t i = 0; i < shape.n; i++) {
        const int64_t size = dunlin_onnx_is_samples(&shape, i) ? 1 : shape.items[i];
        has_batch = has_batch || shape.is_batch[i];
        if (size < 0) {
            (void)dunlin__onnx_reject(node, "", "dimension %d would have size %" PRId64, i, size);
            return true;
        }
        if (size < 1 || size > DUNLIN_ONNX_MAX_INLINE || n * size > DUNLIN_ONNX_MAX_INLINE) {
            return false;
        }
        n *= size;
    }
    if (!has_batch || !(fabs(number) < 1e15) || number != trunc(number)) {
        return false;
    }
    const dunlin_alloc *alloc = &import->file->alloc;
    int64_t *items = dunlin__alloc_array(alloc, (size_t)n, sizeof *items);
    if (items == NULL) {
        import->node_status = dunlin__onnx_fail_memory(import);
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        items[i] = (int64_t)number;
    }
    dunlin__onnx_bind_ints(node, items, n);
    dunlin__free_array(alloc, items, (size_t)n, sizeof *items);
    dunlin__onnx_output(node, 0)->is_flat = true;
    return true;
}

/* Binds elements [start, end) of stored integers; false if one of them is none. */
static bool bind_part(dunlin_onnx_node *node, const dunlin_onnx_tensor *tensor, int64_t start,
                      int64_t end)
{
    dunlin_onnx_file *file = node->import->file;
    const size_t n = (size_t)(end - start);
    int64_t *items = dunlin__alloc_array(&file->alloc, n, sizeof *items);
    if (items == NULL) {
        node->import->node_status = dunlin__onnx_fail_memory(node->import);
        return true;
    }
    bool is_whole = true;
    for (int64_t i = start; i < end && is_whole; i++) {
        is_whole = dunlin__onnx_tensor_integer(file, tensor, i, &items[i - start]);
    }
    if (is_whole) {
        dunlin__onnx_bind_ints(node, items, end - start);
        dunlin__onnx_output(node, 0)->is_flat = true;
    }
    dunlin__free_array(&file->alloc, items, n, sizeof *items);
    return is_whole;
}

/* [start, end) of the last dimension of stored integers, which are one row. */
bool dunlin__onnx_fold_stored_slice(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    dunlin_onnx_file *file = node->import->file;
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR) {
        return false;
    }
    const dunlin_onnx_tensor *tensor = &file->tensors[input->index];
    const int32_t n_dims = tensor->shape.n_dims;
    int64_t bounds[4] = {0, 0, n_dims - 1, 1};
    for (uint32_t i = 0; i < 4; i++) {
        if (dunlin__onnx_has_input(node, i + 1) &&
            dunlin__onnx_ints_input(node, i + 1, &bounds[i], 1) != 1) {
            return false;
        }
    }
    const int64_t axis = bounds[2] < 0 ? bounds[2] + n_dims : bounds[2];
    const int64_t size = n_dims > 0 ? tensor->shape.dims[n_dims - 1] : 0;
    if (axis != n_dims - 1 || size != tensor->n_elements || bounds[3] != 1) {
        return false;
    }
    const int64_t start = bounds[0] < 0 ? bounds[0] + size : bounds[0];
    const int64_t end = bounds[1] < 0 ? bounds[1] + size : (bounds[1] > size ? size : bounds[1]);
    if (start < 0 || end <= start || end - start > DUNLIN_ONNX_MAX_INLINE) {
        return false;
    }
    return bind_part(node, tensor, start, end);
}
