/*
 * stored_values.c - what is computed from a stored tensor that may be trained before it meets an
 * activation: the exponential of a temperature, a row that gets dimensions of one, a part of a
 * table of positions.
 *
 * Invariant: for the node that computes, the tensor is a value that is the same for each sample
 * (shared.c); for all other nodes its name stays a stored tensor.
 */
#include "constants.h"
#include "places.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_in(const char *op_type, const char *const *list)
{
    while (*list != NULL && strcmp(*list, op_type) != 0) {
        list++;
    }
    return *list != NULL;
}

/* Floats of the file, not turned: a parameter can be made of them. */
static bool is_stored(const dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR || input->is_transposed ||
        input->is_flat) {
        return false;
    }
    const dunlin_onnx_tensor *tensor = &node->import->file->tensors[input->index];
    return tensor->type == DUNLIN_ONNX_FLOAT && tensor->shape.n_dims < DUNLIN_MAX_DIMS;
}

static const dunlin_shape *shape_of(const dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    return &node->import->file->tensors[input->index].shape;
}

/* A copy of the whole tensor for each sample, with the file's dimensions; NONE after a failure. */
static uint32_t copy_whole(dunlin_onnx_node *node, const dunlin_onnx_binding *whole, uint32_t index)
{
    char suffix[32];
    const dunlin_shape shape = *shape_of(node, whole);
    dunlin_net_node made = {.kind = DUNLIN_OP_EXPAND,
                            .inputs = {node->import->net->input},
                            .n_inputs = 1,
                            .n_params = 1};
    made.params[0] = dunlin__onnx_param_of(node, whole);
    (void)snprintf(suffix, sizeof suffix, "/stored%" PRIu32, index);
    const uint32_t value = made.params[0] == DUNLIN_NET_NONE
                               ? DUNLIN_NET_NONE
                               : dunlin__onnx_make(node, &made, suffix);
    if (value == DUNLIN_NET_NONE || shape.n_dims < 2 || shape.dims[0] != 1) {
        return value;
    }
    dunlin_net_node wide = {.kind = DUNLIN_OP_RESHAPE, .inputs = {value}, .n_inputs = 1};
    wide.u.reshape.shape = shape;
    (void)snprintf(suffix, sizeof suffix, "/whole%" PRIu32, index);
    return dunlin__onnx_make(node, &wide, suffix);
}

/* --- parts --- */

/* The node that makes a name of the file; false: none does. */
static bool find_maker(const dunlin_onnx_node *node, const dunlin_onnx_binding *made,
                       dunlin_onnx_node *out)
{
    const dunlin_onnx_file *file = node->import->file;
    for (uint32_t i = node->index; i > 0; i--) {
        *out = (dunlin_onnx_node){node->import, &file->ops[i - 1], i - 1};
        if (out->op->outputs.n > 0 && dunlin__onnx_output(out, 0) == made) {
            return true;
        }
    }
    return false;
}

/* The cuts of a Slice of a tensor; their number, -1 if they are not whole parts. */
static int32_t read_cuts(const dunlin_onnx_node *maker, const dunlin_shape *shape,
                         dunlin_net_node cuts[DUNLIN_MAX_DIMS])
{
    int64_t lists[4][DUNLIN_MAX_DIMS] = {{0}};
    const int32_t n = dunlin__onnx_ints_input(maker, 1, lists[0], DUNLIN_MAX_DIMS);
    for (uint32_t k = 1; k < 4; k++) {
        for (int32_t i = 0; i < DUNLIN_MAX_DIMS; i++) {
            lists[k][i] = k == 2 ? i : 1;
        }
        const bool is_there = k == 1 || dunlin__onnx_has_input(maker, k + 1);
        if (is_there && dunlin__onnx_ints_input(maker, k + 1, lists[k], DUNLIN_MAX_DIMS) != n) {
            return -1;
        }
    }
    for (int32_t i = 0; i < n && n <= DUNLIN_MAX_DIMS; i++) {
        const int64_t axis = lists[2][i] < 0 ? lists[2][i] + shape->n_dims : lists[2][i];
        if (axis < 0 || axis >= shape->n_dims || lists[3][i] != 1) {
            return -1;
        }
        const int64_t size = shape->dims[axis];
        const int64_t start = lists[0][i] < 0 ? lists[0][i] + size : lists[0][i];
        const int64_t end = lists[1][i] < 0 ? lists[1][i] + size : lists[1][i];
        cuts[i] = (dunlin_net_node){.kind = DUNLIN_OP_SLICE, .n_inputs = 1};
        cuts[i].u.slice.axis = (int32_t)axis;
        cuts[i].u.slice.start = start;
        cuts[i].u.slice.end = end > size ? size : end;
        if (start < 0 || cuts[i].u.slice.end <= start) {
            return -1;
        }
    }
    return n > DUNLIN_MAX_DIMS ? -1 : n;
}

/* The tensor that the input is a part of, and the cuts to it; false if it is no such part. */
static bool find_whole(const dunlin_onnx_node *node, const dunlin_onnx_binding *part,
                       const dunlin_onnx_binding **out_whole, dunlin_net_node *cuts, int32_t *n)
{
    dunlin_onnx_node maker;
    if (!find_maker(node, part, &maker) || strcmp(dunlin__onnx_op_type(&maker), "Slice") != 0) {
        return false;
    }
    *out_whole = dunlin__onnx_input(&maker, 0);
    if (!is_stored(node, *out_whole) || node->import->file->tensors[(*out_whole)->index].is_part) {
        return false;
    }
    *n = read_cuts(&maker, shape_of(node, *out_whole), cuts);
    return *n >= 1;
}

/* A copy of what the input is, for each sample; NONE: it cannot be made, or after a failure. */
static uint32_t copy_input(dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    const dunlin_onnx_binding *whole = input;
    dunlin_net_node cuts[DUNLIN_MAX_DIMS];
    int32_t n = 0;
    if ((input->part_rows > 0 || node->import->file->tensors[input->index].is_part) &&
        !find_whole(node, input, &whole, cuts, &n)) {
        return DUNLIN_NET_NONE;
    }
    uint32_t value = copy_whole(node, whole, index);
    for (int32_t i = 0; i < n && value != DUNLIN_NET_NONE; i++) {
        char suffix[40];
        (void)snprintf(suffix, sizeof suffix, "/stored%" PRIu32 "/part%" PRId32, index, i);
        cuts[i].inputs[0] = value;
        value = dunlin__onnx_make(node, &cuts[i], suffix);
    }
    return value;
}

/* --- the node --- */

/* A place behind the bindings; NONE after a failure. Bindings may move: pointers to them end here.
 */
static uint32_t add_copy(dunlin_onnx_import *import)
{
    void *bindings = import->bindings;
    const size_t n = import->n_bindings + import->n_copies;
    const bool has_room =
        n < DUNLIN_NET_NONE &&
        dunlin__grow_array(&import->file->alloc, &bindings, &import->bindings_capacity, n + 1,
                           sizeof *import->bindings);
    import->bindings = bindings;
    if (!has_room) {
        import->node_status = dunlin__onnx_fail_memory(import);
        return DUNLIN_NET_NONE;
    }
    import->n_copies++;
    return (uint32_t)n;
}

/* For this node alone the input is the value. */
static bool bind_copy(dunlin_onnx_node *node, uint32_t index)
{
    dunlin_onnx_import *import = node->import;
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (import->net->input == DUNLIN_NET_NONE) {
        return false;
    }
    const char *name = input->name;
    const uint32_t value = copy_input(node, index);
    const uint32_t binding = value == DUNLIN_NET_NONE ? DUNLIN_NET_NONE : add_copy(import);
    if (binding == DUNLIN_NET_NONE) {
        return false;
    }
    import->bindings[binding] = (dunlin_onnx_binding){.name = name,
                                                      .meaning = DUNLIN_ONNX_VALUE,
                                                      .index = value,
                                                      .root = binding,
                                                      .param = DUNLIN_NET_NONE,
                                                      .owner = DUNLIN_NET_NONE,
                                                      .is_needed = true};
    import->bindings[binding].place.mix = DUNLIN_ONNX_MIX_SHARED;
    import->refs[node->op->inputs.first + index] = binding;
    return true;
}

/* Which of two stored operands becomes a value: that of more dimensions, so that the other one is
 * broadcast to it; -1: not both are stored. */
static int32_t side_of_two(const dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *left = dunlin__onnx_input(node, 0);
    const dunlin_onnx_binding *right = dunlin__onnx_input(node, 1);
    if (dunlin__onnx_n_inputs(node) != 2 || left == NULL || right == NULL ||
        left->meaning != DUNLIN_ONNX_TENSOR || right->meaning != DUNLIN_ONNX_TENSOR) {
        return -1;
    }
    const bool is_right = shape_of(node, right)->n_dims > shape_of(node, left)->n_dims ||
                          !is_stored(node, left) || !dunlin__constant_may_be_weight(node, left);
    return is_right && is_stored(node, right) ? 1 : 0;
}

/* An operand of arithmetic with an activation that is a part of a stored tensor. */
static int32_t side_of_part(const dunlin_onnx_node *node)
{
    for (int32_t side = 0; side < 2 && dunlin__onnx_n_inputs(node) == 2; side++) {
        const dunlin_onnx_binding *input = dunlin__onnx_input(node, (uint32_t)side);
        if (dunlin__onnx_known_value(node, (uint32_t)(1 - side)) != NULL &&
            is_stored(node, input) &&
            (input->part_rows > 0 || node->import->file->tensors[input->index].is_part)) {
            return side;
        }
    }
    return -1;
}

/* A stored tensor that meets what was computed from stored ones, with as many dimensions: a row of
 * weights over its own length reads the same parameter twice, which must be of one kind of layer.
 */
static int32_t side_of_computed(const dunlin_onnx_node *node)
{
    for (int32_t side = 0; side < 2 && dunlin__onnx_n_inputs(node) == 2; side++) {
        const dunlin_onnx_binding *input = dunlin__onnx_input(node, (uint32_t)side);
        const dunlin_net_value *other = dunlin__onnx_known_value(node, (uint32_t)(1 - side));
        if (other != NULL && is_stored(node, input) &&
            dunlin__constant_may_be_weight(node, input) &&
            dunlin__onnx_place_of(node, (uint32_t)(1 - side)).mix == DUNLIN_ONNX_MIX_SHARED &&
            shape_of(node, input)->n_dims == other->shape.n_dims) {
            return side;
        }
    }
    return -1;
}

/* Of a product of an activation and a stored tensor: the latter. */
static int32_t side_of_factor(const dunlin_onnx_node *node)
{
    for (int32_t side = 0; side < 2 && dunlin__onnx_n_inputs(node) == 2; side++) {
        if (dunlin__onnx_known_value(node, (uint32_t)(1 - side)) != NULL &&
            dunlin__onnx_known_value(node, (uint32_t)side) == NULL) {
            return side;
        }
    }
    return -1;
}

/* An activation times stored matrices, one for each of its first dimensions. */
static bool is_many_matrices(const dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *right = dunlin__onnx_input(node, 1);
    return dunlin__onnx_known_value(node, 0) != NULL && is_stored(node, right) &&
           shape_of(node, right)->n_dims > 2;
}

bool dunlin__onnx_fold_stored_values(dunlin_onnx_node *node)
{
    static const char *const of_one[] = {
        "Unsqueeze", "Squeeze", "Reshape",    "Transpose",   "Exp",       "Log",      "Sqrt",
        "Abs",       "Neg",     "Reciprocal", "Sigmoid",     "Tanh",      "Relu",     "Softplus",
        "Softmax",   "Clip",    "Pow",        "HardSigmoid", "LeakyRelu", "Gelu",     "Erf",
        "Elu",       "Dropout", "ReduceMean", "ReduceSum",   "ReduceL1",  "ReduceL2", "ReduceMax",
        "ReduceMin", "Expand",  "Tile",       "Flatten",     NULL};
    static const char *const of_two[] = {"Add", "Sub", "Mul", "Div", "Max", "Min", NULL};
    const char *op = dunlin__onnx_op_type(node);
    int32_t side = -1;
    if (dunlin__onnx_is_anything_unknown(node)) {
        return false;
    }
    if (is_in(op, of_one)) {
        /* A number to the power of an activation is arithmetic.c's. */
        const bool is_base = strcmp(op, "Pow") == 0 && dunlin__onnx_known_value(node, 1) != NULL;
        side = is_base ? -1 : 0;
    } else if (strcmp(op, "MatMul") == 0) {
        side = is_many_matrices(node) ? 1 : 0;
    } else if (strcmp(op, "Gather") == 0) {
        side = dunlin__onnx_int(node, "axis", 0) != 0 ? 0 : -1;
    } else if (strcmp(op, "Einsum") == 0) {
        side = side_of_factor(node);
    } else if (is_in(op, of_two)) {
        side = side_of_two(node);
        side = side < 0 ? side_of_part(node) : side;
        side = side < 0 ? side_of_computed(node) : side;
    }
    return side >= 0 && is_stored(node, dunlin__onnx_input(node, (uint32_t)side)) &&
           bind_copy(node, (uint32_t)side) && dunlin__onnx_fold(node);
}
