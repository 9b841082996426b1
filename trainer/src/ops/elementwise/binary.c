/*
 * binary.c - sums, differences, products, quotients and extremes of two operands that are broadcast
 * against each other: two values, or a value and a parameter.
 *
 * Two values have as many dimensions; a parameter may have fewer. Sizes are the same or 1. What has
 * an image on a side is one. The gradient of what was repeated is the sum over its copies.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* An operand of the node: a value, or its parameter. */
typedef struct operand {
    dunlin_shape shape;
    uint32_t index; /* of the value or parameter */
    bool is_param;
    bool is_image;
    bool needs_grad;
} operand;

static bool is_image(const dunlin_net *net, uint32_t value)
{
    return net->values[value].layout == DUNLIN_LAYOUT_IMAGE;
}

static dunlin_op_place place(const operand *one, uint32_t tensor)
{
    return (dunlin_op_place){tensor, &one->shape, one->is_param, one->is_image};
}

/* The parameter's, as the node takes it. */
static dunlin_shape param_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    dunlin_shape shape = net->params[node->params[0]].shape;
    for (int32_t i = 0; i < node->u.binary.n_ones && shape.n_dims < DUNLIN_MAX_DIMS; i++) {
        shape.dims[shape.n_dims++] = 1;
    }
    return shape;
}

static operand operand_of(dunlin_emit *emit, const dunlin_net_node *node, int side)
{
    const dunlin_net *net = dunlin__emit_net(emit);
    const bool is_param = node->n_inputs == 1 && (side == 0) == node->u.binary.is_param_left;
    operand one = {.is_param = is_param};
    if (is_param) {
        one.index = node->params[0];
        one.shape = param_shape(net, node);
        one.needs_grad = dunlin__emit_is_trained(emit, one.index);
    } else {
        one.index = node->inputs[node->n_inputs == 1 ? 0 : side];
        one.shape = net->values[one.index].shape;
        one.is_image = is_image(net, one.index);
        one.needs_grad = dunlin__emit_needs_grad(emit, one.index);
    }
    return one;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    static const dunlin_walk_fn fns[] = {
        [DUNLIN_BINARY_ADD] = DUNLIN_WALK_ADD, [DUNLIN_BINARY_SUB] = DUNLIN_WALK_SUB,
        [DUNLIN_BINARY_MUL] = DUNLIN_WALK_MUL, [DUNLIN_BINARY_DIV] = DUNLIN_WALK_DIV,
        [DUNLIN_BINARY_MAX] = DUNLIN_WALK_MAX, [DUNLIN_BINARY_MIN] = DUNLIN_WALK_MIN,
    };
    const dunlin_shape *shape = &dunlin__emit_net(emit)->values[node->output].shape;
    operand sides[2];
    dunlin_op_place in[2];
    for (int side = 0; side < 2; side++) {
        const operand *one = &sides[side];
        sides[side] = operand_of(emit, node, side);
        const uint32_t tensor = one->is_param ? dunlin__emit_param(emit, one->index)
                                              : dunlin__emit_value(emit, one->index);
        in[side] = place(one, tensor);
        dunlin__emit_save(emit, (uint32_t)side, tensor);
    }
    dunlin_walk walk = dunlin__walk_over(shape, fns[node->u.binary.fn]);
    const dunlin_op_place out =
        dunlin__op_place_of(emit, node->output, dunlin__emit_output(emit, node->output));
    dunlin__op_emit_walk(emit, "", &walk, in, 2, &out);
}

/* What one side gets: dy times its share of the derivative, summed over its copies. */
static void emit_side(dunlin_emit *emit, const dunlin_net_node *node, uint32_t dy, int side)
{
    const dunlin_shape *shape = &dunlin__emit_net(emit)->values[node->output].shape;
    const operand own = operand_of(emit, node, side);
    const operand other = operand_of(emit, node, 1 - side);
    const dunlin_binary_fn fn = node->u.binary.fn;
    const bool is_same =
        !own.is_param && own.shape.n_dims == shape->n_dims &&
        own.is_image == is_image(dunlin__emit_net(emit), node->output) &&
        memcmp(own.shape.dims, shape->dims, (size_t)shape->n_dims * sizeof shape->dims[0]) == 0;
    if (is_same && (fn == DUNLIN_BINARY_ADD || (fn == DUNLIN_BINARY_SUB && side == 0))) {
        dunlin__emit_grad_alias(emit, own.index, dy);
        return;
    }
    const dunlin_op_place out =
        place(&own, own.is_param ? dunlin__emit_param_grad(emit, own.index)
                                 : dunlin__emit_grad_target(emit, own.index));
    dunlin_op_place in[3] = {dunlin__op_place_of(emit, node->output, dy)};
    const dunlin_op_place of_own = place(&own, dunlin__emit_saved(emit, (uint32_t)side));
    const dunlin_op_place of_other = place(&other, dunlin__emit_saved(emit, (uint32_t)(1 - side)));
    dunlin_walk walk = dunlin__walk_over(shape, DUNLIN_WALK_COPY);
    uint32_t n_in = 1;
    switch (fn) {
    case DUNLIN_BINARY_ADD:
        break;
    case DUNLIN_BINARY_SUB:
        walk.factor = side == 0 ? 1.0F : -1.0F;
        break;
    case DUNLIN_BINARY_MUL:
        walk.fn = DUNLIN_WALK_MUL;
        in[n_in++] = of_other;
        break;
    case DUNLIN_BINARY_DIV:
        walk.fn = side == 0 ? DUNLIN_WALK_DIV : DUNLIN_WALK_DIV_GRAD;
        in[n_in++] = of_other;
        if (side == 1) {
            in[n_in++] = of_own;
        }
        break;
    case DUNLIN_BINARY_MAX:
    case DUNLIN_BINARY_MIN:
        walk.fn = DUNLIN_WALK_MAX_GRAD;
        in[n_in++] = fn == DUNLIN_BINARY_MAX ? of_own : of_other;
        in[n_in++] = fn == DUNLIN_BINARY_MAX ? of_other : of_own;
        break;
    }
    dunlin__op_emit_walk(emit, side == 0 ? "/left_grad" : "/right_grad", &walk, in, n_in, &out);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t dy = dunlin__emit_grad(emit, node->output);
    for (int side = 0; side < 2; side++) {
        if (operand_of(emit, node, side).needs_grad) {
            emit_side(emit, node, dy, side);
        }
    }
}

static dunlin_status fail_shapes(const dunlin_net_node *node, const dunlin_shape *a,
                                 const dunlin_shape *b, dunlin_error *error)
{
    char left[DUNLIN_OP_SHAPE_TEXT_BYTES];
    char right[DUNLIN_OP_SHAPE_TEXT_BYTES];
    return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                        "node '%.80s' joins %.60s and %.60s: sizes must be the same or 1",
                        node->name, dunlin__op_shape_text(a, left),
                        dunlin__op_shape_text(b, right));
}

/* The common shape of a value's and another operand's, right-aligned. */
static dunlin_status join_shapes(const dunlin_net_node *node, const dunlin_shape *value,
                                 const dunlin_shape *other, dunlin_shape *out, dunlin_error *error)
{
    *out = *value;
    for (int32_t i = 1; i <= other->n_dims; i++) {
        const int64_t size = other->dims[other->n_dims - i];
        if (i > value->n_dims) {
            if (size != 1) {
                return fail_shapes(node, value, other, error);
            }
            continue;
        }
        int64_t *dim = &out->dims[value->n_dims - i];
        if (*dim != size && *dim != 1 && size != 1) {
            return fail_shapes(node, value, other, error);
        }
        *dim = size > *dim ? size : *dim;
    }
    return DUNLIN_OK;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    const bool has_param = node->n_inputs == 1;
    DUNLIN_TRY(dunlin__op_want_inputs(node, has_param ? 1 : 2, error));
    const dunlin_net_value *a = &net->values[node->inputs[0]];
    const dunlin_net_value *b = has_param ? NULL : &net->values[node->inputs[1]];
    dunlin_shape other = has_param ? (dunlin_shape){0} : b->shape;
    if (has_param) {
        if (!dunlin__op_has_param(node, 0)) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "node '%.120s' lacks its second operand", node->name);
        }
        net->params[node->params[0]].layout = DUNLIN_PARAM_PLAIN;
        other = param_shape(net, node);
    }
    dunlin_net_value *y = &net->values[node->output];
    dunlin_shape shape;
    if (!has_param && a->shape.n_dims != b->shape.n_dims) {
        return fail_shapes(node, &a->shape, &b->shape, error);
    }
    DUNLIN_TRY(join_shapes(node, &a->shape, &other, &shape, error));
    y->shape = shape;
    y->layout = b != NULL && b->layout == DUNLIN_LAYOUT_IMAGE ? b->layout : a->layout;
    return DUNLIN_OK;
}

/* Of ONNX, by function. */
static const char *const fn_names[] = {"Add", "Sub", "Mul", "Div", "Max", "Min"};

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_BINARY;
    for (size_t i = 0; i < sizeof fn_names / sizeof fn_names[0]; i++) {
        if (strcmp(dunlin__onnx_op_type(onnx), fn_names[i]) == 0) {
            node->u.binary.fn = (dunlin_binary_fn)i;
        }
    }
    /* A stored tensor on either side is a parameter. */
    const bool is_left_value = dunlin__onnx_value_input(onnx, 0) != DUNLIN_NET_NONE;
    const bool is_right_value = dunlin__onnx_value_input(onnx, 1) != DUNLIN_NET_NONE;
    if (is_left_value && is_right_value) {
        DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
        return dunlin__op_take_value(onnx, 1, node);
    }
    node->u.binary.is_param_left = !is_left_value;
    DUNLIN_TRY(dunlin__op_take_value(onnx, is_left_value ? 0 : 1, node));
    return dunlin__op_take_param(onnx, is_left_value ? 1 : 0, "the other operand", node);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const int32_t n_ones = node->n_inputs == 1 ? node->u.binary.n_ones : 0;
    if (n_ones > 0) {
        int64_t axes[DUNLIN_MAX_DIMS];
        for (int32_t i = 0; i < n_ones; i++) {
            axes[i] = net->params[node->params[0]].shape.n_dims + i;
        }
        dunlin__onnx_begin_node(writer, "Unsqueeze", node);
        dunlin__onnx_add_param(writer, node->params[0]);
        dunlin__onnx_add_ints(writer, "/axes", axes, n_ones);
        dunlin__onnx_end_part(writer, "/spread");
    }
    dunlin__onnx_begin_node(writer, fn_names[node->u.binary.fn], node);
    for (int side = 0; side < 2; side++) {
        if (node->n_inputs == 2) {
            dunlin__onnx_add_value(writer, node->inputs[side]);
        } else if ((side == 0) == node->u.binary.is_param_left && n_ones > 0) {
            dunlin__onnx_add_part(writer, "/spread");
        } else if ((side == 0) == node->u.binary.is_param_left) {
            dunlin__onnx_add_param(writer, node->params[0]);
        } else {
            dunlin__onnx_add_value(writer, node->inputs[0]);
        }
    }
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Sub", "Mul", "Div", "Max", "Min", NULL};

const dunlin_op_row dunlin__op_binary = {
    .kind = DUNLIN_OP_BINARY,
    .name = "binary",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_ALIKE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
