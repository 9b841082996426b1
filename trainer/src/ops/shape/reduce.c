/*
 * reduce.c - sums, extremes and norms over some dimensions of a sample.
 *
 * Each is one to three walks: what meets in one element of the output is taken in the order of the
 * walk. The gradient of an extreme is shared evenly among all that are it, as that of PyTorch's
 * amax and amin is, which exporters write as ReduceMax and ReduceMin; its max(dim), which they
 * write alike, would give it to one of them.
 */
#include "reduced.h"

#include <mem/support.h>

#include <string.h>

enum { SAVED_X = 0, SAVED_Y };

typedef struct reduction {
    dunlin_emit *emit;
    const dunlin_net_node *node;
    const dunlin_shape *x; /* of the input: what all walks go over, but those of the output alone */
    dunlin_shape y;        /* of the output, with dimensions of 1 */
} reduction;

static reduction reduction_of(dunlin_emit *emit, const dunlin_net_node *node)
{
    int64_t n = 0;
    reduction r = {
        .emit = emit, .node = node, .x = &dunlin__emit_net(emit)->values[node->inputs[0]].shape};
    r.y = dunlin__reduced_shape(r.x, node->u.reduce.axes, &n);
    return r;
}

static dunlin_op_place whole(const reduction *r, uint32_t tensor)
{
    return dunlin__op_place_of(r->emit, r->node->inputs[0], tensor);
}

static dunlin_op_place reduced(const reduction *r, uint32_t tensor)
{
    return dunlin__reduced_place(r->emit, r->node, &r->y, tensor);
}

/* Numbers that lie as the output does. */
static uint32_t more(const reduction *r, const char *suffix)
{
    return dunlin__emit_tensor(r->emit, suffix, DUNLIN_F32, true,
                               dunlin__op_elements(r->emit, r->node->output),
                               DUNLIN_MEM_ACTIVATION);
}

static void emit(const reduction *r, const char *suffix, const dunlin_walk *how,
                 const dunlin_op_place *in, uint32_t n_in, const dunlin_op_place *out)
{
    const bool is_small = in[0].shape == &r->y && out->shape == &r->y;
    dunlin_walk walk = dunlin__walk_over(is_small ? &r->y : r->x, how->fn);
    walk.meeting = how->meeting;
    walk.factor = how->factor;
    dunlin__op_emit_walk(r->emit, suffix, &walk, in, n_in, out);
}

static dunlin_walk walk_by(dunlin_walk_fn fn)
{
    return (dunlin_walk){.fn = fn, .factor = 1.0F};
}

static void emit_log_sum_exp(const reduction *r, uint32_t x, uint32_t y)
{
    dunlin_walk how = walk_by(DUNLIN_WALK_COPY);
    how.meeting = DUNLIN_WALK_LARGEST;
    const dunlin_op_place largest = reduced(r, more(r, "/largest"));
    const dunlin_op_place sum = reduced(r, more(r, "/sum"));
    const dunlin_op_place out = reduced(r, y);
    dunlin_op_place in[2] = {whole(r, x), largest};
    emit(r, "/largest", &how, in, 1, &largest);
    how = walk_by(DUNLIN_WALK_EXP_SUB);
    emit(r, "/sum", &how, in, 2, &sum);
    in[0] = largest;
    in[1] = sum;
    how = walk_by(DUNLIN_WALK_LOG_ADD);
    emit(r, "", &how, in, 2, &out);
}

static void forward(dunlin_emit *emitter, const dunlin_net_node *node)
{
    const reduction r = reduction_of(emitter, node);
    const uint32_t x = dunlin__emit_value(emitter, node->inputs[0]);
    const uint32_t y = dunlin__emit_output(emitter, node->output);
    const dunlin_op_place in[2] = {whole(&r, x), whole(&r, x)};
    const dunlin_op_place out = reduced(&r, y);
    dunlin_walk how = walk_by(DUNLIN_WALK_COPY);
    dunlin__emit_save(emitter, SAVED_X, x);
    dunlin__emit_save(emitter, SAVED_Y, y);
    switch (node->u.reduce.fn) {
    case DUNLIN_REDUCE_SUM:
        break;
    case DUNLIN_REDUCE_LARGEST:
        how.meeting = DUNLIN_WALK_LARGEST;
        break;
    case DUNLIN_REDUCE_SMALLEST:
        how.meeting = DUNLIN_WALK_SMALLEST;
        break;
    case DUNLIN_REDUCE_L1:
        how = walk_by(DUNLIN_WALK_ABS);
        break;
    case DUNLIN_REDUCE_SUM_SQUARE:
        how = walk_by(DUNLIN_WALK_MUL);
        emit(&r, "", &how, in, 2, &out);
        return;
    case DUNLIN_REDUCE_L2: {
        const dunlin_op_place squares = reduced(&r, more(&r, "/squares"));
        how = walk_by(DUNLIN_WALK_MUL);
        emit(&r, "/squares", &how, in, 2, &squares);
        how = walk_by(DUNLIN_WALK_ROOT);
        emit(&r, "", &how, &squares, 1, &out);
        return;
    }
    case DUNLIN_REDUCE_LOG_SUM_EXP:
        emit_log_sum_exp(&r, x, y);
        return;
    }
    emit(&r, "", &how, in, 1, &out);
}

/* dy / n to each of the n that are the extreme. */
static void emit_extreme_grad(const reduction *r, const dunlin_op_place *dy,
                              const dunlin_op_place *out)
{
    const dunlin_op_place x = whole(r, dunlin__emit_saved(r->emit, SAVED_X));
    const dunlin_op_place y = reduced(r, dunlin__emit_saved(r->emit, SAVED_Y));
    const dunlin_op_place ties = reduced(r, more(r, "/ties"));
    const dunlin_op_place share = reduced(r, more(r, "/share"));
    dunlin_walk how = walk_by(DUNLIN_WALK_EQUAL);
    emit(r, "/ties", &how, (const dunlin_op_place[]){x, y}, 2, &ties);
    how = walk_by(DUNLIN_WALK_DIV);
    emit(r, "/share", &how, (const dunlin_op_place[]){*dy, ties}, 2, &share);
    how = walk_by(DUNLIN_WALK_PICK);
    emit(r, "/input_grad", &how, (const dunlin_op_place[]){share, x, y}, 3, out);
}

static void backward(dunlin_emit *emitter, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emitter, node->inputs[0])) {
        return;
    }
    const reduction r = reduction_of(emitter, node);
    const dunlin_op_place in[3] = {reduced(&r, dunlin__emit_grad(emitter, node->output)),
                                   whole(&r, dunlin__emit_saved(emitter, SAVED_X)),
                                   reduced(&r, dunlin__emit_saved(emitter, SAVED_Y))};
    const dunlin_op_place out = whole(&r, dunlin__emit_grad_target(emitter, node->inputs[0]));
    dunlin_walk how = walk_by(DUNLIN_WALK_COPY);
    uint32_t n_in = 3;
    switch (node->u.reduce.fn) {
    case DUNLIN_REDUCE_SUM:
        n_in = 1;
        break;
    case DUNLIN_REDUCE_LARGEST:
    case DUNLIN_REDUCE_SMALLEST:
        emit_extreme_grad(&r, &in[0], &out);
        return;
    case DUNLIN_REDUCE_L1:
        how = walk_by(DUNLIN_WALK_SIGN);
        n_in = 2;
        break;
    case DUNLIN_REDUCE_SUM_SQUARE:
        how = walk_by(DUNLIN_WALK_MUL);
        how.factor = 2.0F;
        n_in = 2;
        break;
    case DUNLIN_REDUCE_L2:
        how = walk_by(DUNLIN_WALK_UNIT);
        break;
    case DUNLIN_REDUCE_LOG_SUM_EXP:
        how = walk_by(DUNLIN_WALK_EXP_GRAD);
        break;
    }
    emit(&r, "/input_grad", &how, in, n_in, &out);
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    return dunlin__reduced_infer(net, node, node->u.reduce.axes, node->u.reduce.keeps_dims, error);
}

/* By dunlin_reduce_fn. */
static const char *const onnx_names[] = {"ReduceSum",       "ReduceMax", "ReduceMin",
                                         "ReduceL1",        "ReduceL2",  "ReduceSumSquare",
                                         "ReduceLogSumExp", NULL};

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_REDUCE;
    for (int i = 0; onnx_names[i] != NULL; i++) {
        if (strcmp(dunlin__onnx_op_type(onnx), onnx_names[i]) == 0) {
            node->u.reduce.fn = (dunlin_reduce_fn)i;
        }
    }
    return dunlin__reduced_read(onnx, net, node, &node->u.reduce.axes, &node->u.reduce.keeps_dims);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    dunlin__reduced_write(writer, node, onnx_names[node->u.reduce.fn], node->u.reduce.axes,
                          node->u.reduce.keeps_dims);
}

const dunlin_op_row dunlin__op_reduce = {
    .kind = DUNLIN_OP_REDUCE,
    .name = "reduce",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
