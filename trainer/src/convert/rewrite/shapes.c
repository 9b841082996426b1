/*
 * shapes.c - the arithmetic of shapes that exporters write out ("view(x.size(0), -1)"), and short
 * lists of integers in general.
 *
 * Invariant: integers are folded only while all of them are known, the batch staying a symbol.
 */
#include "fold.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What is computed from something unknown is unknown too; no issue of its own. */
static bool fold_unknown(dunlin_onnx_node *node)
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
    if (fold_unknown(node)) {
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
    if (fold_unknown(node)) {
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
    if (fold_unknown(node)) {
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
    if (fold_unknown(node)) {
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
    if (fold_unknown(node)) {
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
    if (fold_unknown(node)) {
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
    if (fold_unknown(node)) {
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
    if (fold_unknown(node)) {
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

/* Integers all alike: a list if the result is one, else a stored tensor of one sample's part. */
static bool fold_constant_of_shape(dunlin_onnx_node *node)
{
    dunlin_onnx_import *import = node->import;
    const dunlin_onnx_attribute *value = dunlin__onnx_attribute(node, "value");
    dunlin_onnx_vector shape;
    double number = 0.0;
    if (fold_unknown(node)) {
        return true;
    }
    const bool has_number =
        value == NULL ||
        (value->has_tensor && dunlin__onnx_tensor_number(
                                  import->file, &import->file->tensors[value->tensor], 0, &number));
    if (!has_number || !dunlin__onnx_vector_input(node, 0, &shape)) {
        return false;
    }
    if (shape.n == 1 && !shape.is_batch[0] && shape.items[0] >= 0 &&
        shape.items[0] <= DUNLIN_MAX_DIMS && fabs(number) < 1e15 && number == trunc(number)) {
        dunlin_onnx_vector list = {.n = (int32_t)shape.items[0]};
        for (int32_t i = 0; i < list.n; i++) {
            list.items[i] = (int64_t)number;
        }
        dunlin__onnx_bind_vector(node, &list);
        return true;
    }
    int64_t n = 1;
    bool has_batch = false;
    for (int32_t i = 0; i < shape.n; i++) {
        const int64_t size = dunlin_onnx_is_samples(&shape, i) ? 1 : shape.items[i];
        has_batch = has_batch || shape.is_batch[i];
        if (size < 0) {
            (void)dunlin__onnx_reject(node, "", "dimension %d would have size %" PRId64, i, size);
            return true;
        }
        if (size < 1 || size > DUNLIN_ONNX_MAX_INLINE || n * size > DUNLIN_ONNX_MAX_INLINE) {
            return false;
        }
        n *= size;
    }
    if (!has_batch || !(fabs(number) < 1e15) || number != trunc(number)) {
        return false;
    }
    const dunlin_alloc *alloc = &import->file->alloc;
    int64_t *items = dunlin__alloc_array(alloc, (size_t)n, sizeof *items);
    if (items == NULL) {
        import->node_status = dunlin__onnx_fail_memory(import);
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        items[i] = (int64_t)number;
    }
    dunlin__onnx_bind_ints(node, items, n);
    dunlin__free_array(alloc, items, (size_t)n, sizeof *items);
    dunlin__onnx_output(node, 0)->is_flat = true;
    return true;
}

/* Binds elements [start, end) of stored integers; false if one of them is none. */
static bool bind_part(dunlin_onnx_node *node, const dunlin_onnx_tensor *tensor, int64_t start,
                      int64_t end)
{
    dunlin_onnx_file *file = node->import->file;
    const size_t n = (size_t)(end - start);
    int64_t *items = dunlin__alloc_array(&file->alloc, n, sizeof *items);
    if (items == NULL) {
        node->import->node_status = dunlin__onnx_fail_memory(node->import);
        return true;
    }
    bool is_whole = true;
    for (int64_t i = start; i < end && is_whole; i++) {
        is_whole = dunlin__onnx_tensor_integer(file, tensor, i, &items[i - start]);
    }
    if (is_whole) {
        dunlin__onnx_bind_ints(node, items, end - start);
        dunlin__onnx_output(node, 0)->is_flat = true;
    }
    dunlin__free_array(&file->alloc, items, n, sizeof *items);
    return is_whole;
}

/* [start, end) of the last dimension of stored integers, which are one row. */
static bool fold_stored_slice(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    dunlin_onnx_file *file = node->import->file;
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR) {
        return false;
    }
    const dunlin_onnx_tensor *tensor = &file->tensors[input->index];
    const int32_t n_dims = tensor->shape.n_dims;
    int64_t bounds[4] = {0, 0, n_dims - 1, 1};
    for (uint32_t i = 0; i < 4; i++) {
        if (dunlin__onnx_has_input(node, i + 1) &&
            dunlin__onnx_ints_input(node, i + 1, &bounds[i], 1) != 1) {
            return false;
        }
    }
    const int64_t axis = bounds[2] < 0 ? bounds[2] + n_dims : bounds[2];
    const int64_t size = n_dims > 0 ? tensor->shape.dims[n_dims - 1] : 0;
    if (axis != n_dims - 1 || size != tensor->n_elements || bounds[3] != 1) {
        return false;
    }
    const int64_t start = bounds[0] < 0 ? bounds[0] + size : bounds[0];
    const int64_t end = bounds[1] < 0 ? bounds[1] + size : (bounds[1] > size ? size : bounds[1]);
    if (start < 0 || end <= start || end - start > DUNLIN_ONNX_MAX_INLINE) {
        return false;
    }
    return bind_part(node, tensor, start, end);
}

static bool fold_any_slice(dunlin_onnx_node *node)
{
    return fold_slice(node) || dunlin__onnx_fold_constants(node) || fold_stored_slice(node);
}

bool dunlin__onnx_fold_shapes(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Shape", fold_shape},   {"Gather", fold_gather},
        {"Concat", fold_concat}, {"Unsqueeze", fold_unsqueeze},
        {"Mul", fold_mul},       {"Slice", fold_any_slice},
        {"Add", fold_add},       {"Reshape", fold_reshape},
        {"Sub", fold_sub},       {"ConstantOfShape", fold_constant_of_shape},
        {"Div", fold_div},       {"Equal", fold_equal},
        {"Where", fold_where},   {"Squeeze", fold_squeeze},
    };
    return dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]);
}
