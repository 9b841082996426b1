/*
 * transpose.c - the dimensions of a sample in another order; the batch stays first.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>

/* A walk over `shape`, the output's, that reads a tensor of the shape before the permutation. */
static dunlin_walk walk_of(const dunlin_shape *shape, const int32_t *perm)
{
    dunlin_walk walk = dunlin__walk_over(shape, DUNLIN_WALK_COPY);
    int64_t before[DUNLIN_MAX_DIMS] = {0};
    for (int32_t i = 0; i < shape->n_dims; i++) {
        before[perm[i]] = shape->dims[i];
    }
    dunlin__walk_operand(&walk, shape, false, &walk.out);
    int64_t stride = 1;
    for (int32_t d = shape->n_dims - 1; d >= 0; d--) {
        for (int32_t i = 0; i < shape->n_dims; i++) {
            /* Of a dimension of 1 there is no step. */
            if (perm[i] == d && before[d] > 1) {
                walk.in[0].strides[i] = stride;
            }
        }
        stride *= before[d];
    }
    walk.in[0].sample_stride = stride;
    walk.n_out = stride;
    return walk;
}

static void emit_permuted(dunlin_emit *emit, const char *suffix, const dunlin_shape *shape,
                          const int32_t *perm, uint32_t from, uint32_t to)
{
    dunlin_walk walk = walk_of(shape, perm);
    const uint32_t tensors[] = {from, to};
    dunlin__op_emit_strided(emit, suffix, &walk, tensors, 1);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_shape *shape = &dunlin__emit_net(emit)->values[node->output].shape;
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    emit_permuted(emit, "", shape, node->u.transpose.perm, x,
                  dunlin__emit_output(emit, node->output));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const dunlin_shape *shape = &dunlin__emit_net(emit)->values[node->inputs[0]].shape;
    int32_t back[DUNLIN_MAX_DIMS];
    for (int32_t i = 0; i < shape->n_dims; i++) {
        back[node->u.transpose.perm[i]] = i;
    }
    const uint32_t dy = dunlin__emit_grad(emit, node->output);
    emit_permuted(emit, "/input_grad", shape, back, dy,
                  dunlin__emit_grad_target(emit, node->inputs[0]));
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    DUNLIN_TRY(dunlin__op_want_plain(net, node, 0, 1, error));
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    dunlin_net_value *y = &net->values[node->output];
    uint32_t seen = 0;
    y->shape.n_dims = x->n_dims;
    y->layout = DUNLIN_LAYOUT_PLAIN;
    for (int32_t i = 0; i < x->n_dims; i++) {
        const int32_t from = node->u.transpose.perm[i];
        if (from < 0 || from >= x->n_dims || (seen >> from & 1) != 0) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "node '%.100s': dimension %" PRId32
                                " of its output is said to be %" PRId32 " of %" PRId32
                                ", each once",
                                node->name, i, from, x->n_dims);
        }
        seen |= 1U << from;
        y->shape.dims[i] = x->dims[from];
    }
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_TRANSPOSE;
    int64_t perm[DUNLIN_MAX_DIMS] = {0};
    const int32_t n = dunlin__onnx_ints(onnx, "perm", perm, DUNLIN_MAX_DIMS);
    if (n < 2 || n > DUNLIN_MAX_DIMS || perm[0] != 0) {
        return dunlin__onnx_reject(onnx, "perm",
                                   "must be given, with the batch staying first of 2 to %d",
                                   DUNLIN_MAX_DIMS);
    }
    for (int32_t i = 1; i < n; i++) {
        if (perm[i] < 1 || perm[i] >= n) {
            return dunlin__onnx_reject(onnx, "perm", "has %" PRId64 " among %" PRId32, perm[i], n);
        }
        node->u.transpose.perm[i - 1] = (int32_t)perm[i] - 1;
    }
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const int32_t *to = node->u.transpose.perm;
    if (n == 4 && to[0] == 2 && to[1] == 0 && x->layout == DUNLIN_LAYOUT_PLAIN &&
        x->shape.n_dims == 3) {
        /* (H, W, C) to (C, H, W): as an image it is there already */
        const dunlin_shape shape = {3, {x->shape.dims[2], x->shape.dims[0], x->shape.dims[1]}};
        node->kind = DUNLIN_OP_REARRANGE;
        node->u.rearrange.to = (dunlin_rearrangement){x->shape, {2, 0, 1}, shape};
        node->u.rearrange.is_image = true;
    }
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const int32_t n = net->values[node->output].shape.n_dims;
    int64_t perm[DUNLIN_MAX_DIMS + 1] = {0};
    for (int32_t i = 0; i < n; i++) {
        perm[i + 1] = node->u.transpose.perm[i] + 1;
    }
    dunlin__onnx_begin_node(writer, "Transpose", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_attr_ints(writer, "perm", perm, n + 1);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Transpose", NULL};

const dunlin_op_row dunlin__op_transpose = {
    .kind = DUNLIN_OP_TRANSPOSE,
    .name = "transpose",
    .onnx_names = onnx_names,
    .bounds = DUNLIN_BOUNDS_KEPT,
    .wish = DUNLIN_WISH_PLAIN,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
