/*
 * constants.c - what is computed from constants alone is one: masks of positions that lie ahead,
 * ranges, tables of positions.
 *
 * Invariant: a result has the shape and the numbers that ONNX says, of at most
 * DUNLIN_ONNX_MAX_COMPUTED elements. Weights are not constants: of an initialiser of floats a part
 * is taken for comparisons alone, unless the file says that it is not trained.
 */
#include "constants.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The output is the constant; short rows of whole numbers are lists, as shapes are. */
static void bind(dunlin_onnx_node *node, const dunlin_constant *constant)
{
    dunlin_onnx_import *import = node->import;
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    uint32_t tensor = 0;
    if (!dunlin__onnx_file_add_tensor(import->file, constant->type, &constant->shape,
                                      constant->items, &tensor)) {
        (void)dunlin__onnx_reject(node, "",
                                  "more constants than %d elements together would be computed",
                                  4 * DUNLIN_ONNX_MAX_ITEMS);
        return;
    }
    import->file->tensors[tensor].is_part = constant->is_part;
    output->meaning = DUNLIN_ONNX_TENSOR;
    output->index = tensor;
}

/* A part that is all of a weight is another name for it. */
static bool is_whole_part(dunlin_onnx_node *node, const dunlin_constant *out)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (!out->is_part || input->meaning != DUNLIN_ONNX_TENSOR ||
        node->import->file->tensors[input->index].n_elements != out->n) {
        return false;
    }
    dunlin__onnx_check_attributes(node);
    dunlin__onnx_alias(node, input);
    return true;
}

bool dunlin__onnx_fold_constants(dunlin_onnx_node *node)
{
    dunlin_constant out = {0};
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        if (dunlin__onnx_input(node, i) != NULL && !dunlin__constant_is(node, i)) {
            return false;
        }
    }
    bool is_done = dunlin__onnx_n_inputs(node) > 0 && dunlin__constant_items(node, &out);
    if (!is_done) {
        dunlin__constant_free(node, &out);
        is_done = dunlin__onnx_n_inputs(node) > 0 && dunlin__constant_moves(node, &out);
    }
    if (!is_done) {
        dunlin__constant_free(node, &out);
        is_done = dunlin__onnx_n_inputs(node) > 0 && dunlin__constant_scatter(node, &out);
    }
    if (!is_done || is_whole_part(node, &out)) {
        dunlin__constant_free(node, &out);
        return is_done;
    }
    if (!node->import->is_rejected && node->import->node_status == DUNLIN_OK) {
        dunlin__onnx_check_attributes(node);
        bind(node, &out);
    }
    dunlin__constant_free(node, &out);
    return true;
}
