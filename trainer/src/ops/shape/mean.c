/*
 * mean.c - the mean over some dimensions of a sample.
 */
#include "reduced.h"

#include <mem/support.h>

static void emit_mean(dunlin_emit *emit, const dunlin_net_node *node, const char *suffix,
                      uint32_t from, uint32_t to)
{
    const dunlin_shape *x = &dunlin__emit_net(emit)->values[node->inputs[0]].shape;
    int64_t n = 0;
    const dunlin_shape y = dunlin__reduced_shape(x, node->u.mean.axes, &n);
    const bool is_backward = suffix[0] != '\0';
    dunlin_walk walk = dunlin__walk_over(x, DUNLIN_WALK_COPY);
    walk.factor = 1.0F / (float)n;
    const dunlin_op_place whole =
        dunlin__op_place_of(emit, node->inputs[0], is_backward ? to : from);
    const dunlin_op_place means = dunlin__reduced_place(emit, node, &y, is_backward ? from : to);
    dunlin__op_emit_walk(emit, suffix, &walk, is_backward ? &means : &whole, 1,
                         is_backward ? &whole : &means);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    emit_mean(emit, node, "", x, dunlin__emit_output(emit, node->output));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_needs_grad(emit, node->inputs[0])) {
        const uint32_t dy = dunlin__emit_grad(emit, node->output);
        emit_mean(emit, node, "/input_grad", dy, dunlin__emit_grad_target(emit, node->inputs[0]));
    }
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    return dunlin__reduced_infer(net, node, node->u.mean.axes, node->u.mean.keeps_dims, error);
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_MEAN;
    return dunlin__reduced_read(onnx, net, node, &node->u.mean.axes, &node->u.mean.keeps_dims);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    dunlin__reduced_write(writer, node, "ReduceMean", node->u.mean.axes, node->u.mean.keeps_dims);
}

static const char *const onnx_names[] = {"ReduceMean", NULL};

const dunlin_op_row dunlin__op_mean = {
    .kind = DUNLIN_OP_MEAN,
    .name = "mean",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
