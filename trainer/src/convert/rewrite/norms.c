/*
 * norms.c - a group norm as exporters write it out: the image as (N, groups, rest), normalised with
 * ones and zeros as scale and shift, as an image again, times the scale, plus the shift.
 *
 * Invariant: what stands between the first of these nodes and the last is no value of the network;
 * only the next node of the pattern can read it, every other reader is rejected. The last one makes
 * the operator. A parameter in the shape of an image may be PReLU's slopes, too.
 */
#include "fold.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* --- the names in between --- */

static dunlin_onnx_norm *norm_input(const dunlin_onnx_node *node, uint32_t index,
                                    dunlin_onnx_norm_stage stage)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (input == NULL || input->meaning != DUNLIN_ONNX_NORM) {
        return NULL;
    }
    dunlin_onnx_norm *norm = &node->import->norms[input->index];
    return norm->stage == stage ? norm : NULL;
}

/* Binds the node's output to a copy of `norm`; `norm` may lie in the table that grows. */
static bool bind_norm(dunlin_onnx_node *node, const dunlin_onnx_norm *norm)
{
    dunlin_onnx_import *import = node->import;
    const dunlin_onnx_norm made = *norm;
    void *norms = import->norms;
    if (!dunlin__grow_array(&import->file->alloc, &norms, &import->norms_capacity,
                            import->n_norms + 1, sizeof *import->norms)) {
        import->node_status =
            dunlin__fail(import->error, DUNLIN_MEMORY, "onnx", 0, "no memory for a group norm");
        return true;
    }
    import->norms = norms;
    import->norms[import->n_norms] = made;
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = DUNLIN_ONNX_NORM;
    output->index = (uint32_t)import->n_norms++;
    return true;
}

/* --- scale and shift: the constants, and the parameters in the shape of an image --- */

static bool fold_fill(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    dunlin_onnx_norm norm = {.stage = DUNLIN_ONNX_NORM_FILL};
    dunlin_onnx_vector shape;
    const bool is_row = !dunlin__onnx_vector_input(node, 1, &shape) || shape.n == 1;
    return input != NULL && is_row && input->meaning == DUNLIN_ONNX_TENSOR &&
           node->import->file->tensors[input->index].type == DUNLIN_ONNX_FLOAT &&
           dunlin__onnx_number_input(node, 0, &norm.number) && bind_norm(node, &norm);
}

/* Every element is this number; a stored list too, since weights of groups do not exist. */
static bool is_filled(const dunlin_onnx_node *node, uint32_t index, double wanted)
{
    const dunlin_onnx_norm *fill = norm_input(node, index, DUNLIN_ONNX_NORM_FILL);
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (fill != NULL) {
        return !(fill->number < wanted) && !(fill->number > wanted);
    }
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR) {
        return false;
    }
    dunlin_onnx_file *file = node->import->file;
    const dunlin_onnx_tensor *tensor = &file->tensors[input->index];
    bool is_same = tensor->n_elements <= DUNLIN_ONNX_MAX_INLINE;
    for (int64_t i = 0; is_same && i < tensor->n_elements; i++) {
        double number = 0.0;
        is_same = dunlin__onnx_tensor_number(file, tensor, i, &number) && !(number < wanted) &&
                  !(number > wanted);
    }
    return is_same;
}

/* One dimension more, behind those that a row has got already. */
static bool fold_spread_again(dunlin_onnx_node *node)
{
    const dunlin_onnx_norm *spread = norm_input(node, 0, DUNLIN_ONNX_NORM_SPREAD);
    int64_t axis = 0;
    if (spread == NULL || dunlin__onnx_ints_input(node, 1, &axis, 1) != 1) {
        return false;
    }
    dunlin_onnx_norm norm = *spread;
    const int64_t at = axis < 0 ? axis + norm.groups + 2 : axis;
    norm.groups++;
    return at == norm.groups && norm.groups < DUNLIN_MAX_DIMS && bind_norm(node, &norm);
}

/* A stored row (C) as (1, C, 1, 1) or with fewer of 1, by Reshape. */
static bool fold_spread_shape(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    dunlin_onnx_vector shape;
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR || input->is_transposed ||
        !dunlin__onnx_vector_input(node, 1, &shape)) {
        return false;
    }
    const dunlin_onnx_tensor *tensor = &node->import->file->tensors[input->index];
    int32_t row = -1;
    for (int32_t i = 0; i < shape.n; i++) {
        const bool is_row = shape.items[i] == -1 || shape.items[i] == tensor->n_elements;
        if (shape.is_batch[i] || (!is_row && shape.items[i] != 1)) {
            return false;
        }
        row = is_row && row < 0 ? i : row;
    }
    dunlin_onnx_norm norm = {.stage = DUNLIN_ONNX_NORM_SPREAD, .groups = shape.n - 1 - row};
    norm.row = (uint32_t)(input - node->import->bindings);
    return row >= 0 && tensor->type == DUNLIN_ONNX_FLOAT && tensor->shape.n_dims == 1 &&
           bind_norm(node, &norm);
}

/* A stored row (C) as (C, 1), (C, 1, 1), and so on. */
static bool fold_spread(dunlin_onnx_node *node)
{
    if (fold_spread_again(node)) {
        return true;
    }
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    int64_t axes[DUNLIN_MAX_DIMS] = {0};
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR || input->is_transposed) {
        return false;
    }
    const dunlin_onnx_tensor *tensor = &node->import->file->tensors[input->index];
    const int32_t n = dunlin__onnx_ints_input(node, 1, axes, DUNLIN_MAX_DIMS);
    bool is_spread = tensor->type == DUNLIN_ONNX_FLOAT && tensor->shape.n_dims == 1 && n >= 1 &&
                     n <= DUNLIN_MAX_DIMS;
    for (int32_t i = 0; is_spread && i < n; i++) {
        is_spread = axes[i] == i + 1;
    }
    if (!is_spread) {
        return false;
    }
    dunlin_onnx_norm norm = {.stage = DUNLIN_ONNX_NORM_SPREAD, .groups = n};
    norm.row = (uint32_t)(input - node->import->bindings);
    return bind_norm(node, &norm);
}

/* --- the pattern, first to last --- */

static bool is_image(const dunlin_net_value *value)
{
    return value->layout == DUNLIN_LAYOUT_IMAGE && value->shape.n_dims >= 2;
}

static bool fold_groups(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    dunlin_shape shape;
    if (input == NULL || input->meaning != DUNLIN_ONNX_VALUE || input->is_unknown) {
        return false;
    }
    const dunlin_net_value *image = &node->import->net->values[input->index];
    if (!is_image(image) || !dunlin__onnx_new_shape(node, image, &shape) || shape.n_dims != 2 ||
        shape.dims[0] > INT32_MAX || image->shape.dims[0] % shape.dims[0] != 0 ||
        !dunlin__onnx_is_read_by(node->import, dunlin__onnx_output(node, 0),
                                 "InstanceNormalization")) {
        return false;
    }
    dunlin_onnx_norm norm = {.stage = DUNLIN_ONNX_NORM_GROUPS};
    norm.value = input->index;
    norm.groups = (int32_t)shape.dims[0];
    return bind_norm(node, &norm);
}

static bool fold_normalised(dunlin_onnx_node *node)
{
    const dunlin_onnx_norm *groups = norm_input(node, 0, DUNLIN_ONNX_NORM_GROUPS);
    if (groups == NULL || !is_filled(node, 1, 1.0) || !is_filled(node, 2, 0.0)) {
        return false;
    }
    dunlin_onnx_norm norm = *groups;
    norm.stage = DUNLIN_ONNX_NORM_NORMED;
    norm.eps = dunlin__onnx_float(node, "epsilon", 1e-5F);
    return bind_norm(node, &norm);
}

static bool fold_image(dunlin_onnx_node *node)
{
    const dunlin_onnx_norm *normed = norm_input(node, 0, DUNLIN_ONNX_NORM_NORMED);
    dunlin_shape shape;
    if (normed == NULL) {
        return false;
    }
    const dunlin_net_value *image = &node->import->net->values[normed->value];
    const dunlin_shape *wanted = &image->shape;
    if (!dunlin__onnx_new_shape(node, image, &shape) || shape.n_dims != wanted->n_dims ||
        memcmp(shape.dims, wanted->dims, (size_t)shape.n_dims * sizeof shape.dims[0]) != 0) {
        return false;
    }
    dunlin_onnx_norm norm = *normed;
    norm.stage = DUNLIN_ONNX_NORM_IMAGE;
    return bind_norm(node, &norm);
}

static bool fold_reshape(dunlin_onnx_node *node)
{
    return fold_groups(node) || fold_image(node) || fold_spread_shape(node);
}

/* The norm at one operand and the row at the other, in either order. */
static const dunlin_onnx_norm *pair_inputs(const dunlin_onnx_node *node,
                                           dunlin_onnx_norm_stage stage, uint32_t *out_row)
{
    for (uint32_t side = 0; side < 2; side++) {
        const dunlin_onnx_norm *norm = norm_input(node, side, stage);
        const dunlin_onnx_norm *row = norm_input(node, 1 - side, DUNLIN_ONNX_NORM_SPREAD);
        if (norm != NULL && row != NULL &&
            row->groups == node->import->net->values[norm->value].shape.n_dims - 1) {
            *out_row = row->row;
            return norm;
        }
    }
    return NULL;
}

static bool fold_scale(dunlin_onnx_node *node)
{
    uint32_t row = 0;
    const dunlin_onnx_norm *image = pair_inputs(node, DUNLIN_ONNX_NORM_IMAGE, &row);
    if (image == NULL) {
        return false;
    }
    dunlin_onnx_norm norm = *image;
    norm.stage = DUNLIN_ONNX_NORM_SCALED;
    norm.row = dunlin__onnx_param_of(node, &node->import->bindings[row]);
    return norm.row == DUNLIN_NET_NONE || bind_norm(node, &norm); /* NONE: rejected */
}

static bool fold_shift(dunlin_onnx_node *node)
{
    uint32_t row = 0;
    const dunlin_onnx_norm *scaled = pair_inputs(node, DUNLIN_ONNX_NORM_SCALED, &row);
    if (scaled == NULL) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_GROUP_NORM,
                            .inputs = {scaled->value},
                            .n_inputs = 1,
                            .params = {scaled->row},
                            .n_params = 2};
    made.u.group_norm.groups = scaled->groups;
    made.u.group_norm.eps = scaled->eps;
    made.params[1] = dunlin__onnx_param_of(node, &node->import->bindings[row]);
    if (made.params[1] != DUNLIN_NET_NONE) {
        dunlin__onnx_finish(node, &made);
    }
    return true;
}

/* An activation and a stored row with dimensions of 1 behind it. */
static bool fold_joined(dunlin_onnx_node *node)
{
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div"};
    for (uint32_t side = 0; side < 2; side++) {
        const dunlin_onnx_norm *spread = norm_input(node, side, DUNLIN_ONNX_NORM_SPREAD);
        if (spread == NULL || dunlin__onnx_known_value(node, 1 - side) == NULL) {
            continue;
        }
        dunlin_net_node made = {.kind = DUNLIN_OP_BINARY,
                                .inputs = {dunlin__onnx_value_input(node, 1 - side)},
                                .n_inputs = 1,
                                .n_params = 1};
        for (int i = 0; i < 4; i++) {
            if (strcmp(dunlin__onnx_op_type(node), ops[i]) == 0) {
                made.u.binary.fn = (dunlin_binary_fn)i;
            }
        }
        made.u.binary.is_param_left = side == 0;
        made.u.binary.n_ones = spread->groups;
        made.params[0] = dunlin__onnx_param_of(node, &node->import->bindings[spread->row]);
        if (made.params[0] != DUNLIN_NET_NONE) {
            dunlin__onnx_finish(node, &made);
        }
        return true;
    }
    return false;
}

static bool fold_product(dunlin_onnx_node *node)
{
    return fold_scale(node) || fold_joined(node);
}

static bool fold_total(dunlin_onnx_node *node)
{
    return fold_shift(node) || fold_joined(node);
}

/* Slopes in the shape of an image. */
static bool fold_prelu(dunlin_onnx_node *node)
{
    const dunlin_onnx_norm *slopes = norm_input(node, 1, DUNLIN_ONNX_NORM_SPREAD);
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    if (slopes == NULL || x == NULL) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_PRELU,
                            .inputs = {dunlin__onnx_value_input(node, 0)},
                            .n_inputs = 1,
                            .n_params = 1};
    made.u.prelu.axis = x->shape.n_dims - 1 - slopes->groups;
    made.params[0] = dunlin__onnx_param_of(node, &node->import->bindings[slopes->row]);
    if (made.params[0] != DUNLIN_NET_NONE) {
        dunlin__onnx_finish(node, &made);
    }
    return true;
}

/* Copies, and casts to the type that all of this has anyway. */
static bool fold_copy(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    const bool is_norm = input != NULL && input->meaning == DUNLIN_ONNX_NORM;
    return is_norm && bind_norm(node, &node->import->norms[input->index]);
}

static bool has_norm_input(const dunlin_onnx_node *node)
{
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        const dunlin_onnx_binding *input = dunlin__onnx_input(node, i);
        if (input != NULL && input->meaning == DUNLIN_ONNX_NORM) {
            return true;
        }
    }
    return false;
}

bool dunlin__onnx_fold_norms(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Reshape", fold_reshape}, {"InstanceNormalization", fold_normalised},
        {"Mul", fold_product},     {"Add", fold_total},
        {"Sub", fold_joined},      {"Div", fold_joined},
        {"Expand", fold_fill},     {"Unsqueeze", fold_spread},
        {"Identity", fold_copy},   {"CastLike", fold_copy},
        {"PRelu", fold_prelu},
    };
    if (dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0])) {
        return true;
    }
    if (!has_norm_input(node) || dunlin__onnx_is_anything_unknown(node)) {
        return false;
    }
    (void)dunlin__onnx_reject(node, "",
                              "it reads a part of what can only be a group norm written out: "
                              "Reshape, InstanceNormalization with ones and zeros, Reshape, Mul by "
                              "a stored scale, Add of a stored shift");
    return true;
}
