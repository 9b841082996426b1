/*
 * dense_turned.c - y = x W + b with the matrix of a dense layer before it, which reads it as W^T:
 * the other half of a tied autoencoder. W, of ONNX's shape (out, in) of that layer, is stored as
 * its weight, [in][out].
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>

/* The layer that W belongs to: from this one's outputs to its inputs. */
static dunlin_conv_shape owner_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    dunlin_conv_shape shape = {
        .kernel_h = 1,
        .kernel_w = 1,
        .stride_h = 1,
        .stride_w = 1,
        .dilation_h = 1,
        .dilation_w = 1,
        .groups = 1,
    };
    dunlin__value_hwc(&net->values[node->output], &shape.in_h, &shape.in_w, &shape.in_c);
    dunlin__value_hwc(&net->values[node->inputs[0]], &shape.out_h, &shape.out_w, &shape.out_c);
    return shape;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_conv_shape shape = owner_shape(dunlin__emit_net(emit), node);
    dunlin__op_emit_turned(emit, node, &shape);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_conv_shape shape = owner_shape(dunlin__emit_net(emit), node);
    dunlin__op_emit_turned_grads(emit, node, &shape);
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    DUNLIN_TRY(dunlin__op_want_plain(net, node, 0, 1, error));
    if (!dunlin__op_has_param(node, 0)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0, "node '%.120s' lacks its weight",
                            node->name);
    }
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    /* The weight itself says how many outputs there are. */
    const dunlin_shape *weight = &net->params[node->params[0]].shape;
    const int64_t n_out = weight->n_dims == 2 ? weight->dims[1] : 0;
    const dunlin_shape wanted = {2, {x->shape.dims[x->shape.n_dims - 1], n_out}};
    DUNLIN_TRY(dunlin__op_want_param(net, node, 0, &wanted, DUNLIN_PARAM_DENSE, error));
    if (dunlin__op_has_param(node, 1)) {
        const dunlin_shape bias = {1, {n_out}};
        DUNLIN_TRY(dunlin__op_want_param(net, node, 1, &bias, DUNLIN_PARAM_PLAIN, error));
    }
    dunlin__op_keep_shape(net, node);
    dunlin_shape *y = &net->values[node->output].shape;
    y->dims[y->n_dims - 1] = n_out;
    return DUNLIN_OK;
}

/* As a dense layer is read, which finds that its matrix is turned. */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    return dunlin__op_dense.from_onnx_fn(onnx, net, node);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    dunlin__onnx_begin_node(writer, "MatMul", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_param(writer, node->params[0]);
    if (!dunlin__op_has_param(node, 1)) {
        dunlin__onnx_end_node(writer);
        return;
    }
    dunlin__onnx_end_part(writer, "/product");
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, "/product");
    dunlin__onnx_add_param(writer, node->params[1]);
    dunlin__onnx_end_node(writer);
}

/* No operator is this row's alone. */
static const char *const onnx_names[] = {NULL};

const dunlin_op_row dunlin__op_dense_transposed = {
    .kind = DUNLIN_OP_DENSE_TRANSPOSED,
    .name = "dense_turned",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_PLAIN,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
