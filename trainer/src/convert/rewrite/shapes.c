/*
 * shapes.c - the arithmetic of shapes that exporters write out ("view(x.size(0), -1)"), and short
 * lists of integers in general.
 *
 * Invariant: integers are folded only while all of them are known, the batch staying a symbol.
 */
#include "fold.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* What is computed from something unknown is unknown too; no issue of its own. */
bool dunlin__onnx_fold_unknown(dunlin_onnx_node *node)
{
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        if (dunlin__onnx_is_vector_unknown(node, i)) {
            dunlin__onnx_bind_vector(node, &(dunlin_onnx_vector){.n = DUNLIN_ONNX_UNKNOWN});
            return true;
        }
    }
    return false;
}

/* A list that was computed, or one stored integer: stored lists stay tensors. */
static bool is_list(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    return input != NULL && (input->meaning == DUNLIN_ONNX_VECTOR ||
                             (input->meaning == DUNLIN_ONNX_TENSOR &&
                              node->import->file->tensors[input->index].n_elements == 1));
}

/* A border of a part of `rank` dimensions: from the end if negative, and never outside. */
static int64_t bound_of(int64_t at, int64_t rank)
{
    at = at < 0 ? (at < -rank ? 0 : at + rank) : at;
    return at > rank ? rank : at;
}

/* Of a constant or a weight. */
static bool fold_stored_shape(dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    const dunlin_shape *shape = &node->import->file->tensors[input->index].shape;
    const int64_t rank = shape->n_dims;
    dunlin_onnx_vector vector = {0};
    const int64_t end = bound_of(dunlin__onnx_int(node, "end", rank), rank);
    for (int64_t i = bound_of(dunlin__onnx_int(node, "start", 0), rank); i < end; i++) {
        vector.items[vector.n++] = shape->dims[input->is_transposed ? rank - 1 - i : i];
    }
    dunlin__onnx_bind_vector(node, &vector);
    return true;
}

static bool fold_shape(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (input != NULL && input->meaning == DUNLIN_ONNX_VECTOR) {
        const int32_t n = node->import->vectors[input->index].n;
        const dunlin_onnx_vector length = {.n = n == DUNLIN_ONNX_UNKNOWN ? DUNLIN_ONNX_UNKNOWN : 1,
                                           .items = {n}};
        dunlin__onnx_bind_vector(node, &length);
        return true;
    }
    if (input != NULL && input->meaning == DUNLIN_ONNX_TENSOR && !input->is_flat) {
        return fold_stored_shape(node, input);
    }
    if (input == NULL || input->meaning != DUNLIN_ONNX_VALUE) {
        return false;
    }
    if (input->is_unknown) {
        dunlin__onnx_bind_vector(node, &(dunlin_onnx_vector){.n = DUNLIN_ONNX_UNKNOWN});
        return true;
    }
    const dunlin_shape *shape = &node->import->net->values[input->index].shape;
    const int64_t rank = shape->n_dims + 1;
    dunlin_onnx_vector vector = {0};
    if (rank > DUNLIN_MAX_DIMS) {
        return false;
    }
    const int64_t end = bound_of(dunlin__onnx_int(node, "end", rank), rank);
    for (int64_t i = bound_of(dunlin__onnx_int(node, "start", 0), rank); i < end; i++) {
        vector.is_batch[vector.n] = i == 0;
        vector.items[vector.n++] = i == 0 ? 0 : shape->dims[i - 1];
    }
    dunlin__onnx_bind_vector(node, &vector);
    return true;
}

static bool fold_gather(dunlin_onnx_node *node)
{
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    dunlin_onnx_vector from;
    dunlin_onnx_vector at;
    if (!dunlin__onnx_vector_input(node, 0, &from) || !dunlin__onnx_vector_input(node, 1, &at) ||
        dunlin__onnx_int(node, "axis", 0) != 0) {
        return false;
    }
    dunlin_onnx_vector out = {.n = at.n};
    for (int32_t i = 0; i < at.n; i++) {
        int64_t index = at.items[i] < 0 ? at.items[i] + from.n : at.items[i];
        if (index < 0 || index >= from.n || at.is_batch[i]) {
            return false;
        }
        out.items[i] = from.items[index];
        out.is_batch[i] = from.is_batch[index];
    }
    dunlin__onnx_bind_vector(node, &out);
    return true;
}

/* Scalars and lists of one are the same here. */
static bool fold_unsqueeze(dunlin_onnx_node *node)
{
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    dunlin_onnx_vector vector = {0};
    int64_t axis = -1;
    if (!is_list(node, 0) || !dunlin__onnx_vector_input(node, 0, &vector) || vector.n != 1 ||
        dunlin__onnx_ints_input(node, 1, &axis, 1) != 1 || axis != 0) {
        return false;
    }
    dunlin__onnx_bind_vector(node, &vector);
    return true;
}

static bool fold_squeeze(dunlin_onnx_node *node)
{
    dunlin_onnx_vector vector = {0};
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (input == NULL || input->meaning != DUNLIN_ONNX_VECTOR) {
        return false;
    }
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    if (!dunlin__onnx_vector_input(node, 0, &vector) || vector.n != 1) {
        return false;
    }
    dunlin__onnx_bind_vector(node, &vector);
    return true;
}

static bool fold_concat(dunlin_onnx_node *node)
{
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    dunlin_onnx_vector out = {0};
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        dunlin_onnx_vector part;
        if (!dunlin__onnx_vector_input(node, i, &part) || out.n + part.n > DUNLIN_MAX_DIMS) {
            return false;
        }
        for (int32_t j = 0; j < part.n; j++) {
            out.items[out.n] = part.items[j];
            out.is_batch[out.n++] = part.is_batch[j];
        }
    }
    dunlin__onnx_bind_vector(node, &out);
    return true;
}

static bool fold_slice(dunlin_onnx_node *node)
{
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    dunlin_onnx_vector from;
    int64_t start = 0;
    int64_t end = 0;
    int64_t axis = 0;
    int64_t step = 1;
    bool has_axis = dunlin__onnx_has_input(node, 3);
    bool has_step = dunlin__onnx_has_input(node, 4);
    if (!is_list(node, 0) || !dunlin__onnx_vector_input(node, 0, &from) ||
        dunlin__onnx_ints_input(node, 1, &start, 1) != 1 ||
        dunlin__onnx_ints_input(node, 2, &end, 1) != 1 ||
        (has_axis && dunlin__onnx_ints_input(node, 3, &axis, 1) != 1) ||
        (has_step && dunlin__onnx_ints_input(node, 4, &step, 1) != 1) || axis != 0 || step != 1) {
        return false;
    }
    start = start < 0 ? start + from.n : start;
    end = end < 0 ? end + from.n : (end > from.n ? from.n : end);
    dunlin_onnx_vector out = {0};
    for (int64_t i = start < 0 ? 0 : start; i < end; i++) {
        out.items[out.n] = from.items[i];
        out.is_batch[out.n++] = from.is_batch[i];
    }
    dunlin__onnx_bind_vector(node, &out);
    return true;
}

/* A list as a list: (-1), or its own length. */
static bool fold_reshape(dunlin_onnx_node *node)
{
    dunlin_onnx_vector vector;
    dunlin_onnx_vector shape;
    if (dunlin__onnx_input(node, 0) == NULL ||
        dunlin__onnx_input(node, 0)->meaning != DUNLIN_ONNX_VECTOR) {
        return false;
    }
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    if (!dunlin__onnx_vector_input(node, 0, &vector) ||
        !dunlin__onnx_vector_input(node, 1, &shape) || shape.n != 1 || shape.is_batch[0] ||
        (shape.items[0] != -1 && shape.items[0] != vector.n)) {
        return false;
    }
    dunlin__onnx_bind_vector(node, &vector);
    return true;
}

/* An element: a number, or so many times the number of samples. */
typedef struct item {
    int64_t n;
    bool is_batch;
} item;

static item item_at(const dunlin_onnx_vector *vector, int32_t index)
{
    const bool is_batch = vector->is_batch[index];
    const int64_t n = vector->items[index];
    return (item){is_batch && n == 0 ? 1 : n, is_batch};
}

/* One element of the result; false if it cannot be known. */
typedef bool (*item_fn)(item a, item b, item *out);

static bool multiply(item a, item b, item *out)
{
    const bool is_sample = (a.is_batch || b.is_batch) && (a.n < 1 || b.n < 1);
    out->is_batch = a.is_batch || b.is_batch;
    return !(a.is_batch && b.is_batch) && !is_sample && !__builtin_mul_overflow(a.n, b.n, &out->n);
}

static bool add(item a, item b, item *out)
{
    return !a.is_batch && !b.is_batch && !__builtin_add_overflow(a.n, b.n, &out->n);
}

static bool subtract(item a, item b, item *out)
{
    return !a.is_batch && !b.is_batch && !__builtin_sub_overflow(a.n, b.n, &out->n);
}

static bool divide(item a, item b, item *out)
{
    const bool is_whole = b.n > 0 && a.n % b.n == 0;
    if (a.n < 0 || b.n <= 0 || (b.is_batch && !a.is_batch) || (a.is_batch && !is_whole)) {
        return false;
    }
    out->n = a.n / b.n;
    out->is_batch = a.is_batch && !b.is_batch;
    return true;
}

/* A batch is some positive number: it is no negative one. */
static bool equal(item a, item b, item *out)
{
    const bool is_certain = (a.is_batch && b.n < 0) || (b.is_batch && a.n < 0);
    out->n = a.is_batch == b.is_batch && a.n == b.n;
    return a.is_batch == b.is_batch || is_certain;
}

static bool fold_items(dunlin_onnx_node *node, item_fn fn)
{
    dunlin_onnx_vector a;
    dunlin_onnx_vector b;
    if (dunlin__onnx_value_input(node, 0) != DUNLIN_NET_NONE ||
        dunlin__onnx_value_input(node, 1) != DUNLIN_NET_NONE) {
        return false;
    }
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    if (!dunlin__onnx_vector_input(node, 0, &a) || !dunlin__onnx_vector_input(node, 1, &b) ||
        (a.n != b.n && a.n != 1 && b.n != 1)) {
        return false;
    }
    dunlin_onnx_vector out = {.n = a.n > b.n ? a.n : b.n};
    for (int32_t i = 0; i < out.n; i++) {
        item made = {0};
        if (!fn(item_at(&a, a.n == 1 ? 0 : i), item_at(&b, b.n == 1 ? 0 : i), &made)) {
            return false;
        }
        out.is_batch[i] = made.is_batch;
        out.items[i] = made.is_batch && made.n == 1 ? 0 : made.n;
    }
    dunlin__onnx_bind_vector(node, &out);
    return true;
}

static bool fold_where(dunlin_onnx_node *node)
{
    dunlin_onnx_vector parts[3];
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    int32_t n = 1;
    for (uint32_t i = 0; i < 3; i++) {
        if (!dunlin__onnx_vector_input(node, i, &parts[i])) {
            return false;
        }
        n = parts[i].n > n ? parts[i].n : n;
    }
    dunlin_onnx_vector out = {.n = n};
    for (int32_t i = 0; i < n; i++) {
        for (int j = 0; j < 3; j++) {
            if (parts[j].n != n && parts[j].n != 1) {
                return false;
            }
        }
        const dunlin_onnx_vector *from =
            parts[0].items[parts[0].n == 1 ? 0 : i] != 0 ? &parts[1] : &parts[2];
        out.items[i] = from->items[from->n == 1 ? 0 : i];
        out.is_batch[i] = from->is_batch[from->n == 1 ? 0 : i];
    }
    dunlin__onnx_bind_vector(node, &out);
    return true;
}

static bool fold_mul(dunlin_onnx_node *node)
{
    return fold_items(node, multiply);
}

static bool fold_add(dunlin_onnx_node *node)
{
    return fold_items(node, add);
}

static bool fold_sub(dunlin_onnx_node *node)
{
    return fold_items(node, subtract);
}

static bool fold_div(dunlin_onnx_node *node)
{
    return fold_items(node, divide);
}

static bool fold_equal(dunlin_onnx_node *node)
{
    return fold_items(node, equal);
}

static bool fold_negative(dunlin_onnx_node *node)
{
    dunlin_onnx_vector vector;
    if (dunlin__onnx_input(node, 0) == NULL ||
        dunlin__onnx_input(node, 0)->meaning != DUNLIN_ONNX_VECTOR) {
        return false;
    }
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    if (!dunlin__onnx_vector_input(node, 0, &vector)) {
        return false;
    }
    for (int32_t i = 0; i < vector.n; i++) {
        if (vector.is_batch[i] || vector.items[i] == INT64_MIN) {
            return false;
        }
        vector.items[i] = -vector.items[i];
    }
    dunlin__onnx_bind_vector(node, &vector);
    return true;
}

/* All elements of a list as one: a product, as of the sizes that a deviation is over. */
static bool fold_product(dunlin_onnx_node *node)
{
    dunlin_onnx_vector vector;
    if (dunlin__onnx_input(node, 0) == NULL ||
        dunlin__onnx_input(node, 0)->meaning != DUNLIN_ONNX_VECTOR) {
        return false;
    }
    (void)dunlin__onnx_int(node, "keepdims", 1); /* a number and a list of one are the same */
    (void)dunlin__onnx_int(node, "noop_with_empty_axes", 0);
    int64_t axes[1] = {0};
    const int32_t n_axes = dunlin__onnx_ints(node, "axes", axes, 1);
    if (dunlin__onnx_fold_unknown(node)) {
        return true;
    }
    if (!dunlin__onnx_vector_input(node, 0, &vector) || dunlin__onnx_has_input(node, 1) ||
        n_axes > 1) {
        return false;
    }
    item product = {1, false};
    for (int32_t i = 0; i < vector.n; i++) {
        if (!multiply(product, item_at(&vector, i), &product)) {
            return false;
        }
    }
    dunlin_onnx_vector out = {.n = 1, .items = {product.n}, .is_batch = {product.is_batch}};
    out.items[0] = product.is_batch && product.n == 1 ? 0 : product.n;
    dunlin__onnx_bind_vector(node, &out);
    return true;
}

static bool fold_any_slice(dunlin_onnx_node *node)
{
    return fold_slice(node) || dunlin__onnx_fold_constants(node) ||
           dunlin__onnx_fold_stored_slice(node);
}

bool dunlin__onnx_fold_shapes(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Shape", fold_shape},   {"Gather", fold_gather},
        {"Concat", fold_concat}, {"Unsqueeze", fold_unsqueeze},
        {"Mul", fold_mul},       {"Slice", fold_any_slice},
        {"Add", fold_add},       {"Reshape", fold_reshape},
        {"Sub", fold_sub},       {"ConstantOfShape", dunlin__onnx_fold_fill},
        {"Div", fold_div},       {"Equal", fold_equal},
        {"Where", fold_where},   {"Squeeze", fold_squeeze},
        {"Neg", fold_negative},  {"ReduceProd", fold_product},
    };
    return dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]);
}
