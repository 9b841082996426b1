/*
 * several.c - one ONNX node that is several of ours: Split, Gemm with factors, sums and
 * extremes of several values, and means over the pixels of an image.
 *
 * Invariant: each output has its value when the node has been read, or the node is rejected.
 */
#include "fold.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static dunlin_net_node of_value(dunlin_op_kind kind, uint32_t value)
{
    return (dunlin_net_node){.kind = kind, .inputs = {value}, .n_inputs = 1};
}

/* --- Split --- */

/* The sizes of the parts: given, or as equal as they can be, the last one smaller. */
static bool part_sizes(dunlin_onnx_node *node, int64_t size, int64_t sizes[DUNLIN_MAX_DIMS])
{
    const uint32_t n = node->op->outputs.n;
    const int64_t n_asked = dunlin__onnx_int(node, "num_outputs", n);
    if (n < 1 || n > DUNLIN_MAX_DIMS || n_asked != n) {
        (void)dunlin__onnx_reject(node, "num_outputs",
                                  "has %" PRIu32 " outputs, not 1 to %d as num_outputs says", n,
                                  DUNLIN_MAX_DIMS);
        return false;
    }
    const int64_t each = size / n + (size % n != 0 ? 1 : 0);
    int64_t left = size;
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = i + 1 < n ? each : size - each * (n - 1);
    }
    if (dunlin__onnx_has_input(node, 1) &&
        dunlin__onnx_ints_input(node, 1, sizes, DUNLIN_MAX_DIMS) != (int32_t)n) {
        (void)dunlin__onnx_reject(node, "split", "is not a constant with a size for each output");
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] < 1 || sizes[i] > left) {
            (void)dunlin__onnx_reject(node, "split",
                                      "part %" PRIu32 " of %" PRId64 " does not fit into %" PRId64,
                                      i, sizes[i], size);
            return false;
        }
        left -= sizes[i];
    }
    if (left != 0) {
        (void)dunlin__onnx_reject(node, "split", "leaves %" PRId64 " of %" PRId64 " over", left,
                                  size);
    }
    return left == 0;
}

static bool fold_split(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    int64_t sizes[DUNLIN_MAX_DIMS] = {0};
    if (input == NULL) {
        return false;
    }
    const int64_t rank = input->shape.n_dims + 1;
    const int64_t axis = dunlin__onnx_int(node, "axis", 0);
    const int64_t at = (axis < 0 ? axis + rank : axis) - 1;
    if (at < 0 || at >= input->shape.n_dims) {
        (void)dunlin__onnx_reject(node, "axis", "is %" PRId64 ", the batch's or not there", axis);
        return true;
    }
    if (!part_sizes(node, input->shape.dims[at], sizes)) {
        return true;
    }
    dunlin__onnx_check_attributes(node);
    dunlin_net_node made = of_value(DUNLIN_OP_SLICE, dunlin__onnx_value_input(node, 0));
    made.u.slice.axis = (int32_t)at;
    for (uint32_t i = 0; i < node->op->outputs.n; i++) {
        const dunlin_onnx_binding *output = dunlin__onnx_output(node, i);
        made.u.slice.start = made.u.slice.end;
        made.u.slice.end += sizes[i];
        if (output != NULL && output->is_needed && !dunlin__onnx_make_output(node, &made, i)) {
            return true;
        }
    }
    return true;
}

/* --- ReduceMean --- */

/* Over all pixels it is the global pooling. */
static bool fold_mean(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    uint32_t axes = 0;
    if (input == NULL || input->layout != DUNLIN_LAYOUT_IMAGE) {
        return false;
    }
    if (dunlin__op_read_axes(node, input->shape.n_dims, &axes) != DUNLIN_OK) {
        return true;
    }
    const uint32_t pixels = input->shape.n_dims == 2 ? 1U << 1 : 1U << 1 | 1U << 2;
    if (axes != pixels) {
        return false; /* the row's own */
    }
    const bool keeps_dims = dunlin__onnx_int(node, "keepdims", 1) != 0;
    dunlin_net_node made =
        of_value(DUNLIN_OP_GLOBAL_AVERAGE_POOL, dunlin__onnx_value_input(node, 0));
    if (!keeps_dims) {
        const uint32_t pooled = dunlin__onnx_make(node, &made, "/pooled");
        if (pooled == DUNLIN_NET_NONE) {
            return true;
        }
        made = of_value(DUNLIN_OP_FLATTEN, pooled);
    }
    dunlin__onnx_finish(node, &made);
    return true;
}

/* --- Expand --- */

/* Repeated to a shape that is known; to its own it is another name for the value. */
static bool fold_expand(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    dunlin_onnx_vector wanted;
    if (input == NULL || !dunlin__onnx_vector_input(node, 1, &wanted) || wanted.n < 1 ||
        wanted.n > input->shape.n_dims + 1) {
        return false;
    }
    dunlin_net_node made = of_value(DUNLIN_OP_EXPAND, dunlin__onnx_value_input(node, 0));
    dunlin_shape *shape = &made.u.expand.shape;
    bool is_same = true;
    *shape = input->shape;
    for (int32_t i = 1; i <= wanted.n; i++) {
        const int32_t at = wanted.n - i;
        const int32_t dim = shape->n_dims - i;
        if (dim < 0 && (dunlin_onnx_is_samples(&wanted, at) ||
                        (!wanted.is_batch[at] && wanted.items[at] == 1))) {
            continue;
        }
        if (dim < 0 || wanted.is_batch[at]) {
            return false;
        }
        if (wanted.items[at] != 1 && wanted.items[at] != shape->dims[dim]) {
            is_same = false;
            shape->dims[dim] = shape->dims[dim] == 1 ? wanted.items[at] : -1;
        }
    }
    if (is_same) {
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
    } else {
        dunlin__onnx_finish(node, &made);
    }
    return true;
}

/* Rows after one another: (n) becomes (1, n), that (times, n), and that (times * n). */
static bool tile_rows(dunlin_onnx_node *node, const dunlin_onnx_vector *times)
{
    uint32_t value = dunlin__onnx_value_input(node, 0);
    for (int32_t d = 0; d + 1 < times->n && value != DUNLIN_NET_NONE; d++) {
        const dunlin_shape x = node->import->net->values[value].shape;
        dunlin_net_node steps[3];
        if (times->items[d + 1] == 1) {
            continue;
        }
        dunlin_shape wide = {.n_dims = x.n_dims + 1};
        dunlin_shape long_one = x;
        if (wide.n_dims > DUNLIN_MAX_DIMS ||
            __builtin_mul_overflow(x.dims[d], times->items[d + 1], &long_one.dims[d])) {
            return false;
        }
        for (int32_t i = 0; i < wide.n_dims; i++) {
            wide.dims[i] = i == d ? 1 : x.dims[i > d ? i - 1 : i];
        }
        steps[0] = of_value(DUNLIN_OP_RESHAPE, value);
        steps[0].u.reshape.shape = wide;
        steps[1] = of_value(DUNLIN_OP_EXPAND, value);
        steps[1].u.expand.shape = wide;
        steps[1].u.expand.shape.dims[d] = times->items[d + 1];
        steps[2] = of_value(DUNLIN_OP_RESHAPE, value);
        steps[2].u.reshape.shape = long_one;
        for (int i = 0; i < 3 && value != DUNLIN_NET_NONE; i++) {
            char suffix[32];
            (void)snprintf(suffix, sizeof suffix, "/tile%" PRId32 "/%d", d, i);
            steps[i].inputs[0] = value;
            value = dunlin__onnx_make(node, &steps[i], suffix);
        }
    }
    if (value != DUNLIN_NET_NONE) {
        dunlin__onnx_check_attributes(node);
        dunlin__onnx_bind_value(node, value);
    }
    return true;
}

/* Tile: dimensions that have one element are expanded. */
static bool fold_tile(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    dunlin_onnx_vector times;
    if (input == NULL || !dunlin__onnx_vector_input(node, 1, &times) ||
        times.n != input->shape.n_dims + 1 || times.is_batch[0] || times.items[0] != 1) {
        return false;
    }
    dunlin_net_node made = of_value(DUNLIN_OP_EXPAND, dunlin__onnx_value_input(node, 0));
    bool is_same = true;
    made.u.expand.shape = input->shape;
    for (int32_t i = 1; i < times.n; i++) {
        int64_t *size = &made.u.expand.shape.dims[i - 1];
        if (times.is_batch[i] || times.items[i] < 1) {
            return false;
        }
        if (times.items[i] > 1 && *size != 1) {
            return tile_rows(node, &times);
        }
        is_same = is_same && times.items[i] == 1;
        *size = times.items[i] > 1 ? times.items[i] : *size;
    }
    if (is_same) {
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
    } else {
        dunlin__onnx_finish(node, &made);
    }
    return true;
}

/* --- Gemm with factors, or with a third operand that is no row of biases --- */

static dunlin_net_node affine(float factor)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_UNARY, .n_inputs = 1};
    made.u.unary.fn = DUNLIN_UNARY_AFFINE;
    made.u.unary.a = factor;
    return made;
}

/* Steps that read what the one before makes; the last one makes the node's output. */
static void make_steps(dunlin_onnx_node *node, dunlin_net_node *steps, size_t n)
{
    static const char *const endings[] = {"/product", "/scaled", "/sum"};
    for (size_t i = 0; i + 1 < n; i++) {
        const uint32_t value = dunlin__onnx_make(node, &steps[i], endings[i]);
        if (value == DUNLIN_NET_NONE) {
            return;
        }
        steps[i + 1].inputs[0] = value;
    }
    dunlin__onnx_finish(node, &steps[n - 1]);
}

/* What is added to the product: false if it is neither a value nor stored. */
static bool take_addend(dunlin_onnx_node *node, dunlin_net_node *out)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 2);
    *out = (dunlin_net_node){.kind = DUNLIN_OP_BINARY, .n_inputs = 1};
    if (dunlin__onnx_known_value(node, 2) != NULL) {
        out->n_inputs = 2;
        out->inputs[1] = input->index;
        return true;
    }
    out->params[0] = dunlin__onnx_param_input(node, 2);
    out->n_params = 1;
    return out->params[0] != DUNLIN_NET_NONE;
}

/* The product of the activation and a stored matrix, which a node before may have transposed; false
 * after a rejection. */
static bool take_product(dunlin_onnx_node *node, dunlin_onnx_binding *weight, dunlin_net_node *out)
{
    const bool is_transposed = weight->is_transposed;
    const bool is_as_stored = dunlin__onnx_int(node, "transB", 0) != 0;
    *out = of_value(DUNLIN_OP_DENSE, dunlin__onnx_value_input(node, 0));
    weight->is_transposed = false;
    out->params[0] = dunlin__onnx_param_input(node, 1);
    weight->is_transposed = is_transposed;
    out->n_params = 1;
    if (out->params[0] == DUNLIN_NET_NONE) {
        return false;
    }
    node->import->net->params[out->params[0]].layout = DUNLIN_PARAM_DENSE;
    out->kind = dunlin__onnx_dense_kind(node, 1, is_as_stored == is_transposed);
    return true;
}

static bool is_one(float factor)
{
    return !(factor < 1.0F) && !(factor > 1.0F);
}

/* A row of biases, as the dense layer takes it. */
static bool is_bias(const dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    const dunlin_onnx_file *file = node->import->file;
    return input->meaning == DUNLIN_ONNX_TENSOR && file->tensors[input->index].shape.n_dims == 1 &&
           file->tensors[input->index].n_elements > 1;
}

/* alpha x W + beta c = beta (alpha / beta x W + c). */
static bool fold_gemm(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    dunlin_onnx_binding *weight = dunlin__onnx_input(node, 1);
    const dunlin_onnx_binding *addend = dunlin__onnx_input(node, 2);
    const float alpha = dunlin__onnx_float(node, "alpha", 1.0F);
    const float beta = addend != NULL ? dunlin__onnx_float(node, "beta", 1.0F) : 0.0F;
    const bool is_layer =
        is_one(alpha) && (addend == NULL || (is_bias(node, addend) && is_one(beta)));
    if (input == NULL || input->shape.n_dims != 1 || weight == NULL ||
        weight->meaning != DUNLIN_ONNX_TENSOR || (is_layer && !weight->is_transposed) ||
        node->import->file->tensors[weight->index].shape.n_dims != 2 || !isfinite(alpha) ||
        !isfinite(beta) || dunlin__onnx_int(node, "transA", 0) != 0) {
        return false; /* the row's own, or refused by it */
    }
    dunlin_net_node steps[4];
    size_t n = 1;
    const bool is_sum = beta < 0.0F || beta > 0.0F;
    const float factor = is_sum ? alpha / beta : alpha;
    if (!take_product(node, weight, &steps[0])) {
        return true;
    }
    if (!is_one(factor)) {
        steps[n++] = affine(factor);
    }
    if (is_sum && !take_addend(node, &steps[n++])) {
        (void)dunlin__onnx_reject(node, "", "input 2 is neither an activation nor stored");
        return true;
    }
    if (is_sum && !is_one(beta)) {
        steps[n++] = affine(beta);
    }
    make_steps(node, steps, n);
    return true;
}

/* --- Sum and Mean of several values --- */

static bool fold_sum(dunlin_onnx_node *node)
{
    const uint32_t n = dunlin__onnx_n_inputs(node);
    const bool is_mean = strcmp(dunlin__onnx_op_type(node), "Mean") == 0;
    for (uint32_t i = 0; i < n; i++) {
        if (dunlin__onnx_known_value(node, i) == NULL) {
            return false;
        }
    }
    if (n == 0 || n > DUNLIN_NET_MAX_INPUTS) {
        return false;
    }
    if (n == 1) {
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
        return true;
    }
    uint32_t sum = dunlin__onnx_value_input(node, 0);
    for (uint32_t i = 1; i < n; i++) {
        const bool is_last = i + 1 == n && !is_mean;
        char suffix[24];
        (void)snprintf(suffix, sizeof suffix, "/sum%" PRIu32, i);
        dunlin_net_node made = of_value(DUNLIN_OP_BINARY, sum);
        made.inputs[made.n_inputs++] = dunlin__onnx_value_input(node, i);
        if (is_last) {
            dunlin__onnx_finish(node, &made);
            return true;
        }
        sum = dunlin__onnx_make(node, &made, suffix);
        if (sum == DUNLIN_NET_NONE) {
            return true;
        }
    }
    dunlin_net_node made = affine(1.0F / (float)n);
    made.inputs[0] = sum;
    dunlin__onnx_finish(node, &made);
    return true;
}

/* --- Max and Min of several values --- */

/* The next operand: a value, one number, or stored; false if it is none of these. */
static bool take_extreme(dunlin_onnx_node *node, uint32_t index, bool is_max, dunlin_net_node *out)
{
    double number = 0.0;
    if (dunlin__onnx_known_value(node, index) != NULL) {
        out->inputs[out->n_inputs++] = dunlin__onnx_value_input(node, index);
        return true;
    }
    if (dunlin__onnx_scalar_input(node, index, &number)) {
        out->kind = DUNLIN_OP_CLIP;
        out->u.clip.low = is_max ? (float)number : -HUGE_VALF;
        out->u.clip.high = is_max ? HUGE_VALF : (float)number;
        return true;
    }
    out->params[0] = dunlin__onnx_param_input(node, index);
    out->n_params = 1;
    return out->params[0] != DUNLIN_NET_NONE;
}

/* Two by two, in their order, beginning with the first value. */
static bool fold_extreme(dunlin_onnx_node *node)
{
    const uint32_t n = dunlin__onnx_n_inputs(node);
    const bool is_max = strcmp(dunlin__onnx_op_type(node), "Max") == 0;
    uint32_t first = 0;
    while (first < n && dunlin__onnx_known_value(node, first) == NULL) {
        first++;
    }
    if (first == n || n > DUNLIN_NET_MAX_INPUTS) {
        return false;
    }
    uint32_t value = dunlin__onnx_value_input(node, first);
    uint32_t left = n - 1;
    if (n == 1) {
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
    }
    for (uint32_t i = 0; i < n; i++) {
        char suffix[24];
        dunlin_net_node made = of_value(DUNLIN_OP_BINARY, value);
        made.u.binary.fn = is_max ? DUNLIN_BINARY_MAX : DUNLIN_BINARY_MIN;
        if (i == first) {
            continue;
        }
        if (!take_extreme(node, i, is_max, &made)) {
            (void)dunlin__onnx_reject(node, "",
                                      "input %" PRIu32 " is neither an activation nor stored", i);
            return true;
        }
        if (--left == 0) {
            dunlin__onnx_finish(node, &made);
            return true;
        }
        (void)snprintf(suffix, sizeof suffix, "/extreme%" PRIu32, i);
        value = dunlin__onnx_make(node, &made, suffix);
        if (value == DUNLIN_NET_NONE) {
            return true;
        }
    }
    return true;
}

bool dunlin__onnx_fold_several(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Split", fold_split},
        {"ReduceMean", fold_mean},
        {"Softmax", dunlin__onnx_fold_old_softmax},
        {"LogSoftmax", dunlin__onnx_fold_old_softmax},
        {"Expand", fold_expand},
        {"Tile", fold_tile},
        {"Gemm", fold_gemm},
        {"Sum", fold_sum},
        {"Mean", fold_sum},
        {"Max", fold_extreme},
        {"Min", fold_extreme},
    };
    return dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]);
}
