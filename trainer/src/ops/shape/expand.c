/*
 * expand.c - a value repeated along dimensions where it has one element, or a parameter repeated
 * for each sample, as a class token is; the gradient is the sum over the copies.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <string.h>

static bool is_of_param(const dunlin_net_node *node)
{
    return node->n_params > 0;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_op_place in =
        is_of_param(node)
            ? dunlin__op_param_place(emit, node->params[0],
                                     dunlin__emit_param(emit, node->params[0]))
            : dunlin__op_place_of(emit, node->inputs[0], dunlin__emit_value(emit, node->inputs[0]));
    const dunlin_op_place out =
        dunlin__op_place_of(emit, node->output, dunlin__emit_output(emit, node->output));
    dunlin_walk walk = dunlin__walk_over(out.shape, DUNLIN_WALK_COPY);
    dunlin__op_emit_walk(emit, "", &walk, &in, 1, &out);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const bool needs_grad = is_of_param(node) ? dunlin__emit_is_trained(emit, node->params[0])
                                              : dunlin__emit_needs_grad(emit, node->inputs[0]);
    if (!needs_grad) {
        return;
    }
    const dunlin_op_place in =
        dunlin__op_place_of(emit, node->output, dunlin__emit_grad(emit, node->output));
    const dunlin_op_place out =
        is_of_param(node) ? dunlin__op_param_place(emit, node->params[0],
                                                   dunlin__emit_param_grad(emit, node->params[0]))
                          : dunlin__op_place_of(emit, node->inputs[0],
                                                dunlin__emit_grad_target(emit, node->inputs[0]));
    dunlin_walk walk = dunlin__walk_over(in.shape, DUNLIN_WALK_COPY);
    dunlin__op_emit_walk(emit, is_of_param(node) ? "/weight_grad" : "/input_grad", &walk, &in, 1,
                         &out);
}

/* A parameter (1, ...): a sample has all but the first dimension; of any other it has all of it, of
 * one number a row of one. */
static dunlin_status infer_param(dunlin_net *net, const dunlin_net_node *node, dunlin_error *error)
{
    dunlin_net_param *param = &net->params[node->params[0]];
    const dunlin_shape *shape = &param->shape;
    if (node->inputs[0] != net->input) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.80s' repeats '%.80s' for each sample of what is no input of "
                            "the network",
                            node->name, param->name);
    }
    const int32_t first = shape->n_dims > 1 && shape->dims[0] == 1 ? 1 : 0;
    param->layout = DUNLIN_PARAM_PLAIN;
    dunlin_net_value *y = &net->values[node->output];
    y->layout = DUNLIN_LAYOUT_PLAIN;
    y->shape = (dunlin_shape){.n_dims = shape->n_dims - first};
    memcpy(y->shape.dims, shape->dims + first, (size_t)y->shape.n_dims * sizeof shape->dims[0]);
    if (shape->n_dims == 0) {
        y->shape = (dunlin_shape){1, {1}};
    }
    return DUNLIN_OK;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    if (is_of_param(node)) {
        return infer_param(net, node, error);
    }
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

/* To as many samples as the input has. */
static void write_param(dunlin_onnx_writer *writer, const dunlin_net *net,
                        const dunlin_net_node *node)
{
    const dunlin_shape *shape = &net->values[node->output].shape;
    dunlin__onnx_begin_node(writer, "Shape", node);
    dunlin__onnx_add_samples(writer);
    dunlin__onnx_attr_int(writer, "start", 0);
    dunlin__onnx_attr_int(writer, "end", 1);
    dunlin__onnx_end_part(writer, "/samples");
    dunlin__onnx_begin_node(writer, "Concat", node);
    dunlin__onnx_add_part(writer, "/samples");
    dunlin__onnx_add_ints(writer, "/row", shape->dims, shape->n_dims);
    dunlin__onnx_attr_int(writer, "axis", 0);
    dunlin__onnx_end_part(writer, "/rows");
    dunlin__onnx_begin_node(writer, "Expand", node);
    dunlin__onnx_add_param(writer, node->params[0]);
    dunlin__onnx_add_part(writer, "/rows");
    dunlin__onnx_end_node(writer);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    if (is_of_param(node)) {
        write_param(writer, net, node);
        return;
    }
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
