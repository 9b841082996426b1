/*
 * choices.c - a choice (If) whose condition is known when the file is read: the branch that is
 * taken is part of the graph, the other one is not there.
 *
 * Exporters write such choices where a shape decides, as for a Squeeze of a dimension that might
 * not be 1.
 */
#include "constants.h"

/* What the condition is; false if it is not known. */
static bool condition_of(dunlin_onnx_node *node, const dunlin_onnx_binding *condition, bool *out)
{
    const dunlin_onnx_import *import = node->import;
    if (condition != NULL && condition->meaning == DUNLIN_ONNX_VECTOR) {
        const dunlin_onnx_vector *vector = &import->vectors[condition->index];
        *out = vector->n == 1 && vector->items[0] != 0;
        return vector->n == 1 && !vector->is_batch[0];
    }
    double number = 0.0;
    if (condition == NULL || condition->meaning != DUNLIN_ONNX_TENSOR ||
        import->file->tensors[condition->index].n_elements != 1 ||
        !dunlin__onnx_tensor_number(import->file, &import->file->tensors[condition->index], 0,
                                    &number)) {
        return false;
    }
    *out = number != 0.0;
    return true;
}

bool dunlin__onnx_is_skipped(dunlin_onnx_node *node)
{
    bool is_then = false;
    if (node->op->branch == 0) {
        return false;
    }
    const dunlin_onnx_binding *condition = dunlin__onnx_find_binding(
        node->import, dunlin__onnx_text_at(node->import, node->op->condition));
    return !condition_of(node, condition, &is_then) ||
           is_then != (node->op->branch == DUNLIN_ONNX_THEN);
}

bool dunlin__onnx_fold_if(dunlin_onnx_node *node)
{
    bool is_then = false;
    const dunlin_onnx_binding *condition = dunlin__onnx_input(node, 0);
    if (dunlin__onnx_n_inputs(node) != 3 || !condition_of(node, condition, &is_then)) {
        return false; /* refused as control flow */
    }
    const dunlin_onnx_binding *taken = dunlin__onnx_input(node, is_then ? 1 : 2);
    if (taken == NULL || taken->meaning == DUNLIN_ONNX_UNBOUND) {
        return false;
    }
    dunlin__onnx_alias(node, taken);
    return true;
}
