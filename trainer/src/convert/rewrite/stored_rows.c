/*
 * stored_rows.c - a stored tensor that is repeated for each sample, as a class token is.
 */
#include "fold.h"

#include <string.h>

/* The tensor as a whole, behind the batch. */
static bool is_whole_for_each(const dunlin_onnx_node *node, const dunlin_shape *stored)
{
    dunlin_onnx_vector wanted;
    const bool is_number = stored->n_dims == 0;
    if (strcmp(dunlin__onnx_op_type(node), "Tile") == 0 ||
        !dunlin__onnx_vector_input(node, 1, &wanted) || !dunlin_onnx_is_samples(&wanted, 0) ||
        wanted.n != (is_number ? 2 : stored->n_dims + 1) ||
        (stored->n_dims > 1 && stored->dims[0] == 1)) {
        return false;
    }
    for (int32_t i = 1; i < wanted.n; i++) {
        if (wanted.is_batch[i] || wanted.items[i] != (is_number ? 1 : stored->dims[i - 1])) {
            return false;
        }
    }
    return true;
}

/* The tensor's first dimension, of one, becomes the batch; the others stay. */
static bool is_for_each_sample(const dunlin_onnx_node *node, const dunlin_shape *stored)
{
    dunlin_onnx_vector wanted;
    if (!dunlin__onnx_vector_input(node, 1, &wanted) || wanted.n != stored->n_dims ||
        stored->n_dims < 2 || stored->dims[0] != 1 || !dunlin_onnx_is_samples(&wanted, 0)) {
        return false;
    }
    const bool is_tile = strcmp(dunlin__onnx_op_type(node), "Tile") == 0;
    for (int32_t i = 1; i < wanted.n; i++) {
        const int64_t size = wanted.items[i];
        if (wanted.is_batch[i] || (size != 1 && (is_tile || size != stored->dims[i]))) {
            return false;
        }
    }
    return true;
}

bool dunlin__onnx_fold_stored_rows(dunlin_onnx_node *node)
{
    const char *op = dunlin__onnx_op_type(node);
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    dunlin_onnx_import *import = node->import;
    if ((strcmp(op, "Expand") != 0 && strcmp(op, "Tile") != 0) || input == NULL ||
        input->meaning != DUNLIN_ONNX_TENSOR || input->is_transposed ||
        import->file->tensors[input->index].type != DUNLIN_ONNX_FLOAT ||
        import->net->input == DUNLIN_NET_NONE ||
        !(is_for_each_sample(node, &import->file->tensors[input->index].shape) ||
          is_whole_for_each(node, &import->file->tensors[input->index].shape))) {
        return false;
    }
    dunlin_net_node made = {
        .kind = DUNLIN_OP_EXPAND, .inputs = {import->net->input}, .n_inputs = 1, .n_params = 1};
    made.params[0] = dunlin__onnx_param_input(node, 0);
    if (made.params[0] != DUNLIN_NET_NONE) {
        dunlin__onnx_finish(node, &made);
    }
    return true;
}
