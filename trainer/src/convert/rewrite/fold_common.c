/*
 * fold_common.c - what the files that fold nodes share: an output bound to a constant, to a list,
 * or to what an input stands for.
 */
#include "fold.h"

#include <mem/support.h>

#include <string.h>

void dunlin__onnx_bind_vector(dunlin_onnx_node *node, const dunlin_onnx_vector *vector)
{
    dunlin_onnx_import *import = node->import;
    void *vectors = import->vectors;
    if (!dunlin__grow_array(&import->file->alloc, &vectors, &import->vectors_capacity,
                            import->n_vectors + 1, sizeof *import->vectors)) {
        import->node_status =
            dunlin__fail(import->error, DUNLIN_MEMORY, "onnx", 0, "no memory for folded shapes");
        return;
    }
    import->vectors = vectors;
    import->vectors[import->n_vectors] = *vector;
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = DUNLIN_ONNX_VECTOR;
    output->is_unknown = vector->n == DUNLIN_ONNX_UNKNOWN;
    output->index = (uint32_t)import->n_vectors++;
}

/* The output is another name for what the input stands for. */
void dunlin__onnx_alias(dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = input->meaning;
    output->index = input->index;
    output->root = input->root;
    output->is_transposed = input->is_transposed;
    output->is_unknown = input->is_unknown;
    output->is_flat = input->is_flat;
    output->place = input->place;
    output->is_mask = input->is_mask;
    output->part_of = input->part_of;
    output->part_first = input->part_first;
    output->part_rows = input->part_rows;
}

static void fail_memory(dunlin_onnx_node *node)
{
    node->import->node_status = dunlin__fail(node->import->error, DUNLIN_MEMORY, "onnx", 0,
                                             "no memory for folded constants");
}

static void bind_tensor(dunlin_onnx_node *node, uint32_t tensor)
{
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = DUNLIN_ONNX_TENSOR;
    output->index = tensor;
}

void dunlin__onnx_bind_number(dunlin_onnx_node *node, double number)
{
    uint32_t tensor = 0;
    if (dunlin__onnx_file_add_number(node->import->file, (float)number, &tensor)) {
        bind_tensor(node, tensor);
    } else {
        fail_memory(node);
    }
}

void dunlin__onnx_bind_ints(dunlin_onnx_node *node, const int64_t *items, int64_t n)
{
    uint32_t tensor = 0;
    if (dunlin__onnx_file_add_ints(node->import->file, items, n, &tensor)) {
        bind_tensor(node, tensor);
    } else {
        fail_memory(node);
    }
}

/*
 * A constant: one number, or integers all alike, which stand for a mask of ones. A stored number
 * with a name such as PyTorch gives to parameters is not a constant but a weight.
 */
bool dunlin__onnx_number_input(const dunlin_onnx_node *node, uint32_t index, double *out_number)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    dunlin_onnx_vector vector;
    if (input == NULL) {
        return false;
    }
    if (input->meaning == DUNLIN_ONNX_VECTOR) {
        const bool has_one = dunlin__onnx_vector_input(node, index, &vector) && vector.n == 1;
        *out_number = has_one ? (double)vector.items[0] : 0.0;
        return has_one && !vector.is_batch[0];
    }
    if (input->meaning != DUNLIN_ONNX_TENSOR) {
        return false;
    }
    dunlin_onnx_file *file = node->import->file;
    const dunlin_onnx_tensor *tensor = &file->tensors[input->index];
    const bool is_weight =
        tensor->is_part || (tensor->is_initializer && tensor->type == DUNLIN_ONNX_FLOAT &&
                            (tensor->shape.n_dims > 0 ||
                             strchr(dunlin__onnx_file_text(file, tensor->name), '/') == NULL));
    const bool is_float = tensor->type == DUNLIN_ONNX_FLOAT || tensor->type == DUNLIN_ONNX_DOUBLE;
    if (is_weight || (is_float && tensor->n_elements != 1 && !tensor->is_computed) ||
        tensor->n_elements > DUNLIN_ONNX_MAX_INLINE ||
        !dunlin__onnx_tensor_number(file, tensor, 0, out_number)) {
        return false;
    }
    for (int64_t i = 1; i < tensor->n_elements; i++) {
        double other = 0.0;
        if (!dunlin__onnx_tensor_number(file, tensor, i, &other) || other != *out_number) {
            return false;
        }
    }
    return true;
}

bool dunlin__onnx_fold_by(dunlin_onnx_node *node, const dunlin_onnx_fold *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(entries[i].op_type, dunlin__onnx_op_type(node)) == 0) {
            return entries[i].fold_fn(node);
        }
    }
    return false;
}
