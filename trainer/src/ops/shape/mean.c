/*
 * mean.c - the mean over some dimensions of a sample.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>

/* The input's shape with the dimensions that are averaged over as 1. */
static dunlin_shape kept_shape(const dunlin_shape *x, uint32_t axes, int64_t *out_n)
{
    dunlin_shape shape = *x;
    *out_n = 1;
    for (int32_t i = 0; i < x->n_dims; i++) {
        if ((axes >> i & 1) != 0) {
            *out_n *= x->dims[i];
            shape.dims[i] = 1;
        }
    }
    return shape;
}

static void emit_mean(dunlin_emit *emit, const dunlin_net_node *node, const char *suffix,
                      uint32_t from, uint32_t to)
{
    const dunlin_shape *x = &dunlin__emit_net(emit)->values[node->inputs[0]].shape;
    int64_t n = 0;
    const dunlin_shape y = kept_shape(x, node->u.mean.axes, &n);
    const bool is_backward = suffix[0] != '\0';
    dunlin_walk walk = dunlin__walk_over(x, DUNLIN_WALK_COPY);
    walk.factor = 1.0F / (float)n;
    const dunlin_op_place in = {.tensor = from, .shape = is_backward ? &y : x};
    const dunlin_op_place out = {.tensor = to, .shape = is_backward ? x : &y};
    dunlin__op_emit_walk(emit, suffix, &walk, &in, 1, &out);
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
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    DUNLIN_TRY(dunlin__op_want_plain(net, node, 0, 1, error));
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    const uint32_t axes = node->u.mean.axes;
    if (axes == 0 || axes >> x->n_dims != 0) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s' averages over dimensions (bits %" PRIx32
                            ") that its input, of %" PRId32 ", does not have",
                            node->name, axes, x->n_dims);
    }
    dunlin_net_value *y = &net->values[node->output];
    y->layout = DUNLIN_LAYOUT_PLAIN;
    y->shape = (dunlin_shape){0};
    for (int32_t i = 0; i < x->n_dims; i++) {
        const bool is_gone = (axes >> i & 1) != 0;
        if (!is_gone || node->u.mean.keeps_dims) {
            y->shape.dims[y->shape.n_dims++] = is_gone ? 1 : x->dims[i];
        }
    }
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_MEAN;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    node->u.mean.keeps_dims = dunlin__onnx_int(onnx, "keepdims", 1) != 0;
    return dunlin__op_read_axes(onnx, net->values[node->inputs[0]].shape.n_dims,
                                &node->u.mean.axes);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    int64_t axes[DUNLIN_MAX_DIMS];
    int32_t n = 0;
    for (int32_t i = 0; i < DUNLIN_MAX_DIMS; i++) {
        if ((node->u.mean.axes >> i & 1) != 0) {
            axes[n++] = i + 1;
        }
    }
    dunlin__onnx_begin_node(writer, "ReduceMean", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_attr_ints(writer, "axes", axes, n);
    dunlin__onnx_attr_int(writer, "keepdims", node->u.mean.keeps_dims ? 1 : 0);
    dunlin__onnx_end_node(writer);
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
