/*
 * upgrade.c - nodes of older opsets in the terms of opset 13: attributes that have become inputs
 * since, and a softmax over everything from its axis on.
 *
 * Invariant: after it no operator has to know that an opset below 13 exists. What differs in
 * neither of these ways (rounding up in pools, axes from the end, a bias that may be missing) was
 * added by later opsets and changes nothing for files that do not use it.
 */
#include "fold.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

/* What reader and names never hold: a made-up name is no name of the file. */
#define MADE_UP '\x1f'

/* An attribute of an operator that is input `input` from opset `since` on. */
typedef struct moved {
    const char *op, *attribute;
    int64_t since;
    uint32_t input;
    bool is_float;
} moved;

static const moved all_moved[] = {
    {"Slice", "starts", 10, 1, false},   {"Slice", "ends", 10, 2, false},
    {"Slice", "axes", 10, 3, false},     {"Clip", "min", 11, 1, true},
    {"Clip", "max", 11, 2, true},        {"Pad", "pads", 11, 1, false},
    {"Pad", "value", 11, 2, true},       {"Dropout", "ratio", 12, 1, true},
    {"Squeeze", "axes", 13, 1, false},   {"Unsqueeze", "axes", 13, 1, false},
    {"ReduceSum", "axes", 13, 1, false}, {"Split", "split", 13, 1, false},
};

/* The attribute becomes a tensor, if it is of the kind that it should be. */
static bool add_tensor(dunlin_onnx_file *file, const dunlin_onnx_attribute *attribute,
                       bool is_float, uint32_t *out_tensor)
{
    if (is_float) {
        return dunlin__onnx_file_add_number(file, attribute->f, out_tensor);
    }
    /* The table of integers may move while it grows. */
    int64_t items[2 * DUNLIN_MAX_DIMS];
    memcpy(items, file->ints + attribute->ints.first, attribute->ints.n * sizeof items[0]);
    return dunlin__onnx_file_add_ints(file, items, attribute->ints.n, out_tensor);
}

static bool is_movable(const dunlin_onnx_attribute *attribute, bool is_float)
{
    return is_float ? attribute->has_f
                    : attribute->has_ints && attribute->ints.n >= 1 &&
                          attribute->ints.n <= 2 * DUNLIN_MAX_DIMS;
}

/* False when out of memory. Attribute `at` leaves the node. */
static bool move_attribute(dunlin_onnx_file *file, dunlin_onnx_op *op, uint32_t at,
                           const moved *rule)
{
    const dunlin_onnx_attribute attribute = file->attributes[op->attributes.first + at];
    char text[16];
    uint32_t tensor = 0;
    dunlin_onnx_text name = 0;
    if (!add_tensor(file, &attribute, rule->is_float, &tensor)) {
        return false;
    }
    (void)snprintf(text, sizeof text, "%c%lu", MADE_UP, (unsigned long)tensor);
    if (!dunlin__onnx_file_add_text(file, text, &name) ||
        !dunlin__onnx_file_add_input(file, op, rule->input, name)) {
        return false;
    }
    file->tensors[tensor].name = name;
    file->tensors[tensor].is_option = true;
    op->attributes.n--;
    file->attributes[op->attributes.first + at] =
        file->attributes[op->attributes.first + op->attributes.n];
    return true;
}

static bool upgrade_op(dunlin_onnx_file *file, dunlin_onnx_op *op, const moved *rule)
{
    for (uint32_t i = 0; i < op->attributes.n; i++) {
        const dunlin_onnx_attribute *attribute = &file->attributes[op->attributes.first + i];
        const bool is_it =
            strcmp(dunlin__onnx_file_text(file, attribute->name), rule->attribute) == 0;
        /* A node that has both, or an attribute of another kind, is refused where it is read. */
        if (is_it && is_movable(attribute, rule->is_float) && op->inputs.n <= rule->input) {
            return move_attribute(file, op, i, rule);
        }
    }
    return true;
}

bool dunlin__onnx_upgrade(dunlin_onnx_file *file)
{
    for (size_t i = 0; i < file->n_ops && file->opset < DUNLIN_ONNX_TERMS_OPSET; i++) {
        for (size_t k = 0; k < sizeof all_moved / sizeof all_moved[0]; k++) {
            const moved *rule = &all_moved[k];
            const char *op_type = dunlin__onnx_file_text(file, file->ops[i].op_type);
            if (file->opset < rule->since && strcmp(op_type, rule->op) == 0 &&
                !upgrade_op(file, &file->ops[i], rule)) {
                return false;
            }
        }
    }
    return true;
}

/* The value under another shape, or NONE after a rejection. */
static uint32_t reshape(dunlin_onnx_node *node, uint32_t value, const dunlin_shape *shape,
                        const char *suffix)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_RESHAPE, .inputs = {value}, .n_inputs = 1};
    made.u.reshape.shape = *shape;
    if (shape->n_dims == 1) {
        made.kind = DUNLIN_OP_FLATTEN; /* an image too */
    }
    return dunlin__onnx_make(node, &made, suffix);
}

/* Everything from dimension `at` on in one. */
static dunlin_shape rows_of(const dunlin_shape *whole, int32_t at)
{
    dunlin_shape rows = *whole;
    rows.n_dims = at + 1;
    for (int32_t i = at + 1; i < whole->n_dims; i++) {
        rows.dims[at] *= whole->dims[i];
    }
    return rows;
}

bool dunlin__onnx_fold_old_softmax(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    if (node->import->file->opset >= DUNLIN_ONNX_TERMS_OPSET || input == NULL) {
        return false;
    }
    const dunlin_shape whole = input->shape;
    const int64_t rank = whole.n_dims + 1;
    int64_t axis = dunlin__onnx_int(node, "axis", 1);
    axis = axis < 0 ? axis + rank : axis;
    if (axis == rank - 1) {
        return false; /* the operator's own */
    }
    if (axis < 1 || axis >= rank) {
        (void)dunlin__onnx_reject(node, "axis", "takes in the batch, or is not there");
        return true;
    }
    const bool is_pixel = input->layout == DUNLIN_LAYOUT_IMAGE && axis == 1 && whole.dims[1] == 1 &&
                          whole.dims[whole.n_dims - 1] == 1;
    dunlin_net_node made = {.kind = DUNLIN_OP_SOFTMAX, .n_inputs = 1};
    made.u.softmax.is_log = strcmp(dunlin__onnx_op_type(node), "LogSoftmax") == 0;
    made.inputs[0] = dunlin__onnx_value_input(node, 0);
    if (is_pixel) {
        dunlin__onnx_finish(node, &made);
        return true;
    }
    const dunlin_shape rows = rows_of(&whole, (int32_t)axis - 1);
    made.inputs[0] = reshape(node, made.inputs[0], &rows, "/rows");
    const uint32_t parts = made.inputs[0] != DUNLIN_NET_NONE
                               ? dunlin__onnx_make(node, &made, "/parts")
                               : DUNLIN_NET_NONE;
    if (parts == DUNLIN_NET_NONE) {
        return true;
    }
    made = (dunlin_net_node){.kind = DUNLIN_OP_RESHAPE, .inputs = {parts}, .n_inputs = 1};
    made.u.reshape.shape = whole;
    dunlin__onnx_finish(node, &made);
    return true;
}
