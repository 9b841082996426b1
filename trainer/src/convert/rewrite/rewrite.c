/*
 * rewrite.c - operators that ONNX writes in other words than our rows: with constants among their
 * operands, in several steps, or in more generality than is trained.
 *
 * Invariant: a node made here stands for the whole ONNX node, or for it together with nodes made
 * for it before; what cannot be said in our rows is rejected by name.
 */
#include "fold.h"
#include "ops/common/op.h"
#include "ops/common/support.h"
#include "ops/table/infer.h"
#include "places.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

static dunlin_net_node of_value(dunlin_op_kind kind, uint32_t value)
{
    return (dunlin_net_node){.kind = kind, .inputs = {value}, .n_inputs = 1};
}

/* --- shapes of activations --- */

/* It is an image, or what was one before it was moved. */
static bool was_image(const dunlin_net *net, uint32_t value)
{
    const dunlin_net_value *at = &net->values[value];
    while (at->layout != DUNLIN_LAYOUT_IMAGE && at->producer != DUNLIN_NET_NONE) {
        const dunlin_net_node *node = &net->nodes[at->producer];
        if (node->kind != DUNLIN_OP_RESHAPE && node->kind != DUNLIN_OP_TRANSPOSE &&
            node->kind != DUNLIN_OP_REARRANGE && node->kind != DUNLIN_OP_SLICE) {
            return false;
        }
        at = &net->values[node->inputs[0]];
    }
    return at->layout == DUNLIN_LAYOUT_IMAGE;
}

static void make_reshape(dunlin_onnx_node *node, uint32_t value, const dunlin_shape *shape)
{
    const dunlin_net *net = node->import->net;
    const dunlin_net_value *x = &net->values[value];
    dunlin_net_node made = of_value(DUNLIN_OP_RESHAPE, value);
    made.u.reshape.shape = *shape;
    if (shape->n_dims == 1) {
        made = of_value(DUNLIN_OP_FLATTEN, value); /* an image too */
    } else if (shape->n_dims == 3 && x->layout == DUNLIN_LAYOUT_PLAIN && was_image(net, value)) {
        made = of_value(DUNLIN_OP_REARRANGE, value); /* it will be read as an image again */
        made.u.rearrange.to = (dunlin_rearrangement){
            .split = x->shape, .perm = {0, 1, 2, 3, 4, 5, 6, 7}, .shape = *shape};
        made.u.rearrange.is_image = true;
    }
    dunlin__onnx_finish(node, &made);
}

static void refuse_shape(dunlin_onnx_node *node, const dunlin_net_value *input)
{
    char from[DUNLIN_OP_SHAPE_TEXT_BYTES];
    char to[DUNLIN_OP_SHAPE_TEXT_BYTES];
    dunlin_onnx_vector wanted;
    const bool is_known = input != NULL && dunlin__onnx_vector_input(node, 1, &wanted) &&
                          wanted.n >= 0 && wanted.n <= DUNLIN_MAX_DIMS;
    dunlin_shape shape = {.n_dims = is_known ? wanted.n : 0};
    for (int32_t i = 0; i < shape.n_dims; i++) {
        shape.dims[i] = wanted.items[i];
    }
    if (is_known) {
        (void)dunlin__onnx_reject(
            node, "shape",
            "only shapes that keep the batch, such as (N, features), are trained; %.50s is asked "
            "of samples of %.50s",
            dunlin__op_shape_text(&shape, to), dunlin__op_shape_text(&input->shape, from));
    } else {
        (void)dunlin__onnx_reject(
            node, "shape", "only shapes that keep the batch, such as (N, features), are trained");
    }
}

static bool reshape(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    dunlin_shape shape;
    if (dunlin__onnx_value_input(node, 0) == DUNLIN_NET_NONE) {
        (void)dunlin__onnx_reject(node, "", "input 0 is not an activation");
    } else if (input == NULL || !dunlin__onnx_new_shape(node, input, &shape)) {
        refuse_shape(node, input);
    } else {
        make_reshape(node, dunlin__onnx_value_input(node, 0), &shape);
    }
    return true;
}

/* The axes of a Squeeze without any: all of 1, but the batch, which is some number. */
static dunlin_onnx_vector axes_of_one(const dunlin_shape *shape)
{
    dunlin_onnx_vector axes = {0};
    for (int32_t i = 0; i < shape->n_dims; i++) {
        if (shape->dims[i] == 1) {
            axes.items[axes.n++] = i + 1;
        }
    }
    return axes;
}

/* Dimensions of 1 put in or taken out. */
static bool change_dims(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    const bool is_more = strcmp(dunlin__onnx_op_type(node), "Unsqueeze") == 0;
    dunlin_onnx_vector axes;
    if (input == NULL) {
        return false;
    }
    if (!is_more && !dunlin__onnx_has_input(node, 1)) {
        axes = axes_of_one(&input->shape);
    } else if (!dunlin__onnx_vector_input(node, 1, &axes)) {
        return false;
    }
    const int32_t n_old = input->shape.n_dims;
    const int32_t n_new = is_more ? n_old + axes.n : n_old - axes.n;
    uint32_t marked = 0;
    for (int32_t i = 0; i < axes.n; i++) {
        const int32_t rank = 1 + (is_more ? n_new : n_old);
        const int64_t axis = axes.items[i] < 0 ? axes.items[i] + rank : axes.items[i];
        if (axis < 1 || axis >= rank || rank > DUNLIN_MAX_DIMS || axes.is_batch[i]) {
            (void)dunlin__onnx_reject(node, "axes", "has %" PRId64 ", the batch's or not there",
                                      axes.items[i]);
            return true;
        }
        marked |= 1U << (axis - 1);
    }
    dunlin_shape shape = {.n_dims = n_new};
    int32_t from = 0;
    int32_t to = 0;
    for (int32_t i = 0; i < (is_more ? n_new : n_old); i++) {
        const bool is_marked = (marked >> i & 1) != 0;
        if (is_more) {
            shape.dims[to++] = is_marked || from >= n_old ? 1 : input->shape.dims[from++];
        } else if (!is_marked || input->shape.dims[i] != 1) {
            shape.dims[to++] = input->shape.dims[i];
        }
    }
    if (to != n_new || n_new < 0) {
        (void)dunlin__onnx_reject(node, "axes", "takes out what is not 1");
        return true;
    }
    make_reshape(node, dunlin__onnx_value_input(node, 0), &shape);
    return true;
}

/* One element of a dimension: x[:, i]. */
static bool pick(dunlin_onnx_node *node, const dunlin_net_value *input)
{
    const int64_t rank = input->shape.n_dims + 1;
    int64_t axis = dunlin__onnx_int(node, "axis", 0);
    int64_t at = 0;
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 1 || axis >= rank) {
        (void)dunlin__onnx_reject(node, "axis",
                                  "only elements of a dimension other than the batch's are taken");
        return true;
    }
    const dunlin_onnx_binding *ids = dunlin__onnx_input(node, 1);
    const bool is_list = ids != NULL && ids->meaning == DUNLIN_ONNX_TENSOR && !ids->is_flat &&
                         node->import->file->tensors[ids->index].shape.n_dims > 0;
    if (is_list || dunlin__onnx_ints_input(node, 1, &at, 1) != 1) {
        int32_t n_dims = 0;
        dunlin__onnx_pick_many(node, (int32_t)axis - 1, &n_dims);
        return true;
    }
    const int64_t size = input->shape.dims[axis - 1];
    at = at < 0 ? at + size : at;
    dunlin_shape shape = {.n_dims = input->shape.n_dims - 1};
    for (int32_t i = 0, to = 0; i < input->shape.n_dims; i++) {
        if (i != axis - 1) {
            shape.dims[to++] = input->shape.dims[i];
        }
    }
    dunlin_net_node made = of_value(DUNLIN_OP_SLICE, dunlin__onnx_value_input(node, 0));
    made.u.slice.axis = (int32_t)axis - 1;
    made.u.slice.start = at;
    made.u.slice.end = at + 1;
    const uint32_t part = dunlin__onnx_make(node, &made, "/part");
    if (part != DUNLIN_NET_NONE) {
        make_reshape(node, part, &shape);
    }
    return true;
}

/* --- tables --- */

/* Rows of a table that are the same for every sample: positions, a type that is always 0. */
static bool look_up_fixed(dunlin_onnx_node *node)
{
    dunlin_onnx_import *import = node->import;
    dunlin_onnx_file *file = import->file;
    const dunlin_onnx_tensor *ids = &file->tensors[dunlin__onnx_input(node, 1)->index];
    int64_t first = 0;
    int64_t step = 0;
    bool is_good = ids->n_elements <= DUNLIN_ONNX_MAX_INLINE;
    for (int64_t i = 0; is_good && i < ids->n_elements; i++) {
        int64_t id = 0;
        is_good = dunlin__onnx_tensor_integer(file, ids, i, &id) && id >= 0 && id < 1 << 24;
        first = i == 0 ? id : first;
        step = i == 1 ? id - first : step;
        is_good = is_good && id == first + i * step;
    }
    if (import->net->input == DUNLIN_NET_NONE) {
        (void)dunlin__onnx_reject(node, "", "there is no input whose samples the rows are for");
        return true;
    }
    if (!is_good) {
        dunlin__onnx_look_up_stored(node);
        return true;
    }
    dunlin_net_node made = of_value(DUNLIN_OP_RAMP, import->net->input);
    made.u.ramp.n = ids->n_elements;
    made.u.ramp.first = (float)first;
    made.u.ramp.step = (float)step;
    const uint32_t rows = dunlin__onnx_make(node, &made, "/rows");
    const uint32_t table = dunlin__onnx_param_input(node, 0);
    if (rows == DUNLIN_NET_NONE || table == DUNLIN_NET_NONE ||
        !dunlin__onnx_transpose_param(node, dunlin__onnx_input(node, 0), false)) {
        return true;
    }
    made = of_value(DUNLIN_OP_EMBEDDING, rows);
    made.params[0] = table;
    made.n_params = 1;
    dunlin__onnx_finish(node, &made);
    return true;
}

static bool gather(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    const dunlin_onnx_binding *table = dunlin__onnx_input(node, 0);
    const dunlin_onnx_binding *ids = dunlin__onnx_input(node, 1);
    if (input != NULL) {
        return pick(node, input);
    }
    if (table != NULL && table->meaning == DUNLIN_ONNX_TENSOR && ids != NULL &&
        ids->meaning == DUNLIN_ONNX_TENSOR && dunlin__onnx_int(node, "axis", 0) == 0) {
        return look_up_fixed(node);
    }
    return false;
}

bool dunlin__onnx_fold_words(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {{"Reshape", reshape},
                                               {"Unsqueeze", change_dims},
                                               {"Squeeze", change_dims},
                                               {"Gather", gather}};
    if (dunlin__onnx_is_anything_unknown(node)) {
        return false; /* an issue before it: nothing can be said */
    }
    return dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]) ||
           dunlin__onnx_fold_arithmetic(node);
}

/* --- operators whose rows are asked another way --- */

/* A value whose shape depends on an issue is accepted as any value. */
static dunlin_status fill_unknown(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)onnx;
    (void)net;
    node->kind = DUNLIN_OP_FLATTEN;
    return DUNLIN_OK;
}

static dunlin_status fill_gemm(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(onnx, 0);
    const bool is_rows = input != NULL && input->shape.n_dims == 2 &&
                         dunlin__onnx_input(onnx, 0)->place.mix != DUNLIN_ONNX_MIX_NONE;
    if (input != NULL && input->shape.n_dims != 1 && !is_rows) {
        return dunlin__onnx_reject(onnx, "", "Gemm takes one row of features a sample");
    }
    return dunlin__op_row(DUNLIN_OP_DENSE)->from_onnx_fn(onnx, net, node);
}

/* A dense layer without bias, whose weight may be stored in either order. */
static dunlin_status fill_matmul(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    dunlin_onnx_binding *weight = dunlin__onnx_input(onnx, 1);
    uint32_t input = dunlin__onnx_value_input(onnx, 0);
    if (input == DUNLIN_NET_NONE || weight == NULL || weight->meaning != DUNLIN_ONNX_TENSOR) {
        return dunlin__onnx_reject(onnx, "", "only an activation times a stored matrix is trained");
    }
    bool is_transposed = weight->is_transposed;
    weight->is_transposed = false;
    uint32_t param_index = dunlin__onnx_param_input(onnx, 1);
    weight->is_transposed = is_transposed;
    if (param_index == DUNLIN_NET_NONE) {
        return DUNLIN_UNSUPPORTED;
    }
    dunlin_net_param *param = &net->params[param_index];
    if (param->shape.n_dims != 2) {
        return dunlin__onnx_reject(onnx, "", "its weight has %" PRId32 " dimensions, not 2",
                                   param->shape.n_dims);
    }
    param->layout = DUNLIN_PARAM_DENSE;
    node->kind = dunlin__onnx_dense_kind(onnx, 1, !is_transposed);
    node->inputs[node->n_inputs++] = input;
    node->params[node->n_params++] = param_index;
    return DUNLIN_OK;
}

dunlin_onnx_fill_fn dunlin__onnx_rewrite(const dunlin_onnx_node *node)
{
    static const char *const worded[] = {"Add",
                                         "Sub",
                                         "Mul",
                                         "Div",
                                         "Reshape",
                                         "Unsqueeze",
                                         "Squeeze",
                                         "Split",
                                         "ReduceMean",
                                         "CastLike",
                                         "InstanceNormalization",
                                         "PRelu",
                                         "Max",
                                         "Min",
                                         "Pow"};
    const char *op_type = dunlin__onnx_op_type(node);
    const dunlin_onnx_binding *right = dunlin__onnx_input(node, 1);
    for (size_t i = 0; i < sizeof worded / sizeof worded[0]; i++) {
        if (strcmp(op_type, worded[i]) == 0 && dunlin__onnx_is_anything_unknown(node)) {
            return fill_unknown;
        }
    }
    if (strcmp(op_type, "Gemm") == 0) {
        return fill_gemm;
    }
    const bool is_product = strcmp(op_type, "MatMul") == 0;
    return is_product && (right == NULL || right->meaning != DUNLIN_ONNX_VALUE) ? fill_matmul
                                                                                : NULL;
}
