/*
 * reshape.c - a sample's elements under another shape, in the order they lie; the batch stays.
 *
 * Nothing is computed: the output is the input's tensor.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin__emit_alias(emit, node->output, dunlin__emit_value(emit, node->inputs[0]));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_needs_grad(emit, node->inputs[0])) {
        dunlin__emit_grad_alias(emit, node->inputs[0], dunlin__emit_grad(emit, node->output));
    }
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    DUNLIN_TRY(dunlin__op_want_plain(net, node, 0, 0, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    dunlin_net_value *y = &net->values[node->output];
    int64_t n = 0;
    y->shape = node->u.reshape.shape;
    y->layout = DUNLIN_LAYOUT_PLAIN;
    const bool is_shape = dunlin_shape_count(&y->shape, &n) == DUNLIN_OK;
    if (!is_shape || n != dunlin__value_elements(x)) {
        char from[DUNLIN_OP_SHAPE_TEXT_BYTES];
        char to[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.60s' turns %.60s into %.60s: they differ in size", node->name,
                            dunlin__op_shape_text(&x->shape, from),
                            dunlin__op_shape_text(&y->shape, to));
    }
    return DUNLIN_OK;
}

/* The reader folds shapes away and makes these nodes itself. */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_RESHAPE;
    int64_t shape[DUNLIN_MAX_DIMS + 1];
    const int32_t n = dunlin__onnx_ints_input(onnx, 1, shape, DUNLIN_MAX_DIMS + 1);
    if (n < 2 || n > DUNLIN_MAX_DIMS + 1 || (shape[0] != 0 && shape[0] != -1)) {
        return dunlin__onnx_reject(onnx, "", "its shape is not a constant that keeps the batch");
    }
    node->u.reshape.shape.n_dims = n - 1;
    for (int32_t i = 1; i < n; i++) {
        node->u.reshape.shape.dims[i - 1] = shape[i];
    }
    return dunlin__op_take_value(onnx, 0, node);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_shape *shape = &net->values[node->output].shape;
    int64_t dims[DUNLIN_MAX_DIMS + 1] = {-1};
    for (int32_t i = 0; i < shape->n_dims; i++) {
        dims[i + 1] = shape->dims[i];
    }
    dunlin__onnx_begin_node(writer, "Reshape", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_ints(writer, "/shape", dims, shape->n_dims + 1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Reshape", NULL};

const dunlin_op_row dunlin__op_reshape = {
    .kind = DUNLIN_OP_RESHAPE,
    .name = "reshape",
    .onnx_names = onnx_names,
    .bounds = DUNLIN_BOUNDS_KEPT,
    .wish = DUNLIN_WISH_PLAIN,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
