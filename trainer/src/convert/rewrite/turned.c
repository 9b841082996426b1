/*
 * turned.c - softmax along a dimension that is not the last one: the dimension is moved to the end
 * and back.
 */
#include "fold.h"

#include <string.h>

bool dunlin__onnx_fold_turned(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const char *op = dunlin__onnx_op_type(node);
    const bool is_log = strcmp(op, "LogSoftmax") == 0;
    if (x == NULL || (!is_log && strcmp(op, "Softmax") != 0) ||
        node->import->file->opset < DUNLIN_ONNX_TERMS_OPSET) {
        return false;
    }
    const int32_t n = x->shape.n_dims;
    int64_t axis = dunlin__onnx_int(node, "axis", -1);
    axis = axis < 0 ? axis + n + 1 : axis;
    const bool is_own = axis == (x->layout == DUNLIN_LAYOUT_IMAGE ? 1 : n);
    if (axis < 1 || axis > n || is_own) {
        return false; /* the operator's own, or refused by it */
    }
    dunlin_net_node turn = {.kind = DUNLIN_OP_TRANSPOSE, .n_inputs = 1};
    for (int32_t d = 0; d < n; d++) {
        turn.u.transpose.perm[d] = d;
    }
    turn.u.transpose.perm[axis - 1] = n - 1;
    turn.u.transpose.perm[n - 1] = (int32_t)axis - 1;
    dunlin_net_node made = {.kind = DUNLIN_OP_SOFTMAX, .n_inputs = 1};
    made.u.softmax.is_log = is_log;
    turn.inputs[0] = dunlin__onnx_value_input(node, 0);
    made.inputs[0] = dunlin__onnx_make(node, &turn, "/last");
    turn.inputs[0] = made.inputs[0] != DUNLIN_NET_NONE ? dunlin__onnx_make(node, &made, "/parts")
                                                       : DUNLIN_NET_NONE;
    if (turn.inputs[0] != DUNLIN_NET_NONE) {
        dunlin__onnx_finish(node, &turn);
    }
    return true;
}
