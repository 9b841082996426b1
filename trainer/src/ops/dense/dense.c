/*
 * dense.c - a fully connected layer, y = x W^T + b: a 1x1 convolution over rows of features, with
 * the weight stored [in][out].
 */
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>

dunlin_conv_shape dunlin__op_dense_shape(const dunlin_net *net, const dunlin_net_node *node)
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
    dunlin__value_hwc(&net->values[node->inputs[0]], &shape.in_h, &shape.in_w, &shape.in_c);
    dunlin__value_hwc(&net->values[node->output], &shape.out_h, &shape.out_w, &shape.out_c);
    return shape;
}

/* Over a vocabulary the weight lies [out][in] (dunlin__net_class_layer()): a turned layer's. */
static bool is_turned(const dunlin_emit *emit, const dunlin_net_node *node)
{
    return dunlin__emit_net(emit)->params[node->params[0]].layout == DUNLIN_PARAM_PLAIN;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (is_turned(emit, node)) {
        dunlin__op_dense_transposed.forward_fn(emit, node);
        return;
    }
    dunlin_conv_shape shape = dunlin__op_dense_shape(dunlin__emit_net(emit), node);
    dunlin__op_emit_conv(emit, node, &shape);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (is_turned(emit, node)) {
        dunlin__op_dense_transposed.backward_fn(emit, node);
        return;
    }
    dunlin_conv_shape shape = dunlin__op_dense_shape(dunlin__emit_net(emit), node);
    dunlin__op_emit_conv_grads(emit, node, &shape);
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
    if (x->layout != DUNLIN_LAYOUT_PLAIN || x->shape.n_dims < 1) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s' needs rows of features, its input is %s: flatten it "
                            "first",
                            node->name, dunlin__op_shape_text(&x->shape, text));
    }
    if (!dunlin__op_has_param(node, 0)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0, "node '%.120s' lacks its weight",
                            node->name);
    }
    /* The weight itself says how many outputs there are. */
    const dunlin_shape *weight = &net->params[node->params[0]].shape;
    int64_t n_out = weight->n_dims == 2 ? weight->dims[0] : 0;
    dunlin_shape wanted = {2, {n_out, x->shape.dims[x->shape.n_dims - 1]}};
    DUNLIN_TRY(dunlin__op_want_param(net, node, 0, &wanted, DUNLIN_PARAM_DENSE, error));
    if (dunlin__op_has_param(node, 1)) {
        dunlin_shape bias = {1, {n_out}};
        DUNLIN_TRY(dunlin__op_want_param(net, node, 1, &bias, DUNLIN_PARAM_PLAIN, error));
    }
    dunlin_net_value *y = &net->values[node->output];
    y->layout = DUNLIN_LAYOUT_PLAIN;
    y->shape = x->shape;
    y->shape.dims[y->shape.n_dims - 1] = n_out;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_DENSE;
    /* Both default to 1; anything else is not a layer but a sum of scaled terms. */
    const char *const factors[2] = {"alpha", "beta"};
    for (int i = 0; i < 2; i++) {
        float factor = dunlin__onnx_float(onnx, factors[i], 1.0F);
        if (!(factor == 1.0F)) {
            return dunlin__onnx_reject(onnx, factors[i], "is %g; only 1 is trained",
                                       (double)factor);
        }
    }
    if (dunlin__onnx_int(onnx, "transA", 0) != 0) {
        return dunlin__onnx_reject(onnx, "transA", "is not 0: the batch must come first");
    }
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 1, "the weight", node));
    if (dunlin__onnx_has_input(onnx, 2)) {
        DUNLIN_TRY(dunlin__op_take_param(onnx, 2, "the bias", node));
    }
    dunlin_net_param *weight = &net->params[node->params[0]];
    if (weight->shape.n_dims != 2) {
        return dunlin__onnx_reject(onnx, "", "its weight has %" PRId32 " dimensions, not 2",
                                   weight->shape.n_dims);
    }
    weight->layout = DUNLIN_PARAM_DENSE;
    node->kind = dunlin__onnx_dense_kind(onnx, 1, dunlin__onnx_int(onnx, "transB", 0) == 0);
    return DUNLIN_OK;
}

/* Gemm takes one row a sample: rows of tokens are multiplied by the weight turned. */
static void write_rows(dunlin_onnx_writer *writer, const dunlin_net_node *node)
{
    const int64_t perm[2] = {1, 0};
    const bool has_bias = dunlin__op_has_param(node, 1);
    dunlin__onnx_begin_node(writer, "Transpose", node);
    dunlin__onnx_add_param(writer, node->params[0]);
    dunlin__onnx_attr_ints(writer, "perm", perm, 2);
    dunlin__onnx_end_part(writer, "/weight");
    dunlin__onnx_begin_node(writer, "MatMul", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_part(writer, "/weight");
    if (!has_bias) {
        dunlin__onnx_end_node(writer);
        return;
    }
    dunlin__onnx_end_part(writer, "/product");
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, "/product");
    dunlin__onnx_add_param(writer, node->params[1]);
    dunlin__onnx_end_node(writer);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    if (net->values[node->output].shape.n_dims > 1) {
        write_rows(writer, node);
        return;
    }
    dunlin__onnx_begin_node(writer, "Gemm", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_param(writer, node->params[0]);
    if (dunlin__op_has_param(node, 1)) {
        dunlin__onnx_add_param(writer, node->params[1]);
    }
    dunlin__onnx_attr_int(writer, "transB", 1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Gemm", NULL};

const dunlin_op_row dunlin__op_dense = {
    .kind = DUNLIN_OP_DENSE,
    .name = "dense",
    .onnx_names = onnx_names,
    .stores_parts = true,
    .stores_clipped = true,
    .wish = DUNLIN_WISH_PLAIN,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
