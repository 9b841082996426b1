/*
 * constant_common.c - constants in memory: made, read, broadcast.
 */
#include "constants.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MOST_WHOLE 9007199254740992.0 /* 2^53: whole numbers up to here are doubles */

bool dunlin__constant_make(dunlin_onnx_node *node, int32_t type, const dunlin_shape *shape,
                           dunlin_constant *out)
{
    dunlin_onnx_import *import = node->import;
    int64_t n = 0;
    *out = (dunlin_constant){.type = type, .shape = *shape};
    if (dunlin_shape_count(shape, &n) != DUNLIN_OK || n > DUNLIN_ONNX_MAX_COMPUTED) {
        (void)dunlin__onnx_reject(node, "", "a constant of more than %d elements would be computed",
                                  DUNLIN_ONNX_MAX_COMPUTED);
        return false;
    }
    /* One more, so that nothing is allocated with a size of 0. */
    out->items = dunlin__alloc_zeroed(&import->file->alloc, (size_t)n + 1, sizeof *out->items);
    if (out->items == NULL) {
        import->node_status = dunlin__onnx_fail_memory(import);
        return false;
    }
    out->n = n;
    return true;
}

void dunlin__constant_free(const dunlin_onnx_node *node, dunlin_constant *constant)
{
    dunlin__free_array(&node->import->file->alloc, constant->items, (size_t)constant->n + 1,
                       sizeof *constant->items);
    constant->items = NULL;
}

/* Initialisers of floats may be weights, if the file does not say that they are not; one number
 * with a name that no parameter of PyTorch's has is none. */
bool dunlin__constant_may_be_weight(const dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    const dunlin_onnx_file *file = node->import->file;
    const dunlin_onnx_tensor *tensor = &file->tensors[input->index];
    const dunlin_onnx_binding *root = &node->import->bindings[input->root];
    const bool is_float = tensor->type == DUNLIN_ONNX_FLOAT;
    const bool is_fixed = root->is_fixed || (file->has_trained && !root->is_listed);
    const bool is_number = tensor->shape.n_dims == 0 &&
                           strchr(dunlin__onnx_file_text(file, tensor->name), '/') != NULL;
    return tensor->is_part || (tensor->is_initializer && is_float && !is_fixed && !is_number);
}

bool dunlin__constant_is(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (input == NULL) {
        return false;
    }
    if (input->meaning == DUNLIN_ONNX_VECTOR) {
        const dunlin_onnx_vector *vector = &node->import->vectors[input->index];
        bool is_known = vector->n >= 0;
        for (int32_t i = 0; i < vector->n; i++) {
            is_known = is_known && !vector->is_batch[i];
        }
        return is_known;
    }
    return input->meaning == DUNLIN_ONNX_TENSOR && !input->is_transposed && !input->is_flat;
}

static int32_t type_of(int32_t type)
{
    switch (type) {
    case DUNLIN_ONNX_FLOAT:
    case DUNLIN_ONNX_DOUBLE:
        return DUNLIN_ONNX_FLOAT;
    case DUNLIN_ONNX_INT32:
    case DUNLIN_ONNX_INT64:
    case DUNLIN_ONNX_UINT8:
        return DUNLIN_ONNX_INT64;
    case DUNLIN_ONNX_BOOL:
        return DUNLIN_ONNX_BOOL;
    default:
        return 0;
    }
}

static bool read_vector(dunlin_onnx_node *node, const dunlin_onnx_vector *vector,
                        dunlin_constant *out)
{
    /* Scalars and lists of one are the same. */
    const dunlin_shape shape = {.n_dims = vector->n == 1 ? 0 : 1, .dims = {vector->n}};
    if (!dunlin__constant_make(node, DUNLIN_ONNX_INT64, &shape, out)) {
        return false;
    }
    for (int32_t i = 0; i < vector->n; i++) {
        out->items[i] = (double)vector->items[i];
    }
    return true;
}

static bool is_whole(const dunlin_constant *constant)
{
    for (int64_t i = 0; constant->type != DUNLIN_ONNX_FLOAT && i < constant->n; i++) {
        if (!(fabs(constant->items[i]) <= MOST_WHOLE)) {
            return false;
        }
    }
    return true;
}

bool dunlin__constant_read(dunlin_onnx_node *node, uint32_t index, dunlin_constant *out)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    *out = (dunlin_constant){0};
    if (!dunlin__constant_is(node, index)) {
        return false;
    }
    if (input->meaning == DUNLIN_ONNX_VECTOR) {
        return read_vector(node, &node->import->vectors[input->index], out);
    }
    dunlin_onnx_file *file = node->import->file;
    const dunlin_onnx_tensor *tensor = &file->tensors[input->index];
    const int32_t type = type_of(tensor->type);
    if (type == 0 || tensor->n_elements > DUNLIN_ONNX_MAX_READ) {
        return false;
    }
    *out = (dunlin_constant){.type = type, .shape = tensor->shape, .n = tensor->n_elements};
    out->is_part = dunlin__constant_may_be_weight(node, input);
    out->items = dunlin__alloc_zeroed(&file->alloc, (size_t)out->n + 1, sizeof *out->items);
    if (out->items == NULL) {
        node->import->node_status = dunlin__onnx_fail_memory(node->import);
        return false;
    }
    if (!dunlin__onnx_tensor_numbers(file, tensor, out->items) || !is_whole(out)) {
        dunlin__constant_free(node, out);
        return false;
    }
    return true;
}

bool dunlin__constant_join(const dunlin_shape *a, const dunlin_shape *b, dunlin_shape *out)
{
    const dunlin_shape *longer = a->n_dims >= b->n_dims ? a : b;
    const dunlin_shape *shorter = longer == a ? b : a;
    *out = *longer;
    for (int32_t i = 1; i <= shorter->n_dims; i++) {
        int64_t *dim = &out->dims[longer->n_dims - i];
        const int64_t size = shorter->dims[shorter->n_dims - i];
        if (*dim != size && *dim != 1 && size != 1) {
            return false;
        }
        *dim = *dim == 1 ? size : *dim;
    }
    return true;
}

bool dunlin__constant_spread(dunlin_onnx_node *node, const dunlin_constant *from,
                             const dunlin_shape *shape, dunlin_constant *out)
{
    if (!dunlin__constant_make(node, from->type, shape, out)) {
        return false;
    }
    out->is_part = from->is_part;
    for (int64_t i = 0; i < out->n; i++) {
        int64_t rest = i;
        int64_t at = 0;
        int64_t stride = 1;
        for (int32_t d = 1; d <= from->shape.n_dims; d++) {
            const int64_t size = from->shape.dims[from->shape.n_dims - d];
            const int64_t whole = shape->dims[shape->n_dims - d];
            at += (size == 1 ? 0 : rest % whole) * stride;
            rest /= whole;
            stride *= size;
        }
        out->items[i] = from->items[at];
    }
    return true;
}
