/*
 * expand.c - a value repeated along dimensions where it has one element; the gradient is the sum
 * over the copies.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <string.h>

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_op_place in =
        dunlin__op_place_of(emit, node->inputs[0], dunlin__emit_value(emit, node->inputs[0]));
    const dunlin_op_place out =
        dunlin__op_place_of(emit, node->output, dunlin__emit_output(emit, node->output));
    dunlin_walk walk = dunlin__walk_over(out.shape, DUNLIN_WALK_COPY);
    dunlin__op_emit_walk(emit, "", &walk, &in, 1, &out);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const dunlin_op_place in =
        dunlin__op_place_of(emit, node->output, dunlin__emit_grad(emit, node->output));
    const dunlin_op_place out =
        dunlin__op_place_of(emit, node->inputs[0], dunlin__emit_grad_target(emit, node->inputs[0]));
    dunlin_walk walk = dunlin__walk_over(in.shape, DUNLIN_WALK_COPY);
    dunlin__op_emit_walk(emit, "/input_grad", &walk, &in, 1, &out);
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const dunlin_shape *shape = &node->u.expand.shape;
    bool fits = x->shape.n_dims == shape->n_dims;
    for (int32_t i = 0; fits && i < shape->n_dims; i++) {
        fits = x->shape.dims[i] == 1 || x->shape.dims[i] == shape->dims[i];
    }
    if (!fits) {
        char from[DUNLIN_OP_SHAPE_TEXT_BYTES];
        char to[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.60s' repeats %.60s to %.60s: only dimensions of 1 can be",
                            node->name, dunlin__op_shape_text(&x->shape, from),
                            dunlin__op_shape_text(shape, to));
    }
    dunlin__op_keep_shape(net, node);
    net->values[node->output].shape = *shape;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_EXPAND;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    return dunlin__onnx_reject(onnx, "",
                               "only activations are repeated, to a known shape that "
                               "keeps the batch first");
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    const dunlin_shape *shape = &node->u.expand.shape;
    int64_t dims[DUNLIN_MAX_DIMS + 1] = {1}; /* of the batch: as many as there are */
    for (int32_t i = 0; i < shape->n_dims; i++) {
        dims[i + 1] = shape->dims[i];
    }
    dunlin__onnx_begin_node(writer, "Expand", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_ints(writer, "/shape", dims, shape->n_dims + 1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Expand", NULL};

const dunlin_op_row dunlin__op_expand = {
    .kind = DUNLIN_OP_EXPAND,
    .name = "expand",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
