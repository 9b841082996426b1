/*
 * shared.c - values that are made of what is stored and are the same for each sample: rows of a
 * trained table in a stored order, as the biases of relative positions are (Liu et al. 2021).
 *
 * Invariant: such a value has the file's dimensions, none of them the batch's. In the network each
 * sample has a copy; the gradient of what was stored is the sum over the copies.
 */
#include "constants.h"
#include "places.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

static const dunlin_onnx_batch shared_place = {.mix = DUNLIN_ONNX_MIX_SHARED};

static bool is_shared(const dunlin_onnx_node *node, uint32_t index)
{
    return dunlin__onnx_known_value(node, index) != NULL &&
           dunlin__onnx_input(node, index)->place.mix == DUNLIN_ONNX_MIX_SHARED;
}

static bool is_same_shape(const dunlin_shape *a, const dunlin_shape *b)
{
    return a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof a->dims[0]) == 0;
}

/* --- rows of a table --- */

/* The rows' numbers as a parameter (1, ...): each sample has them. False after a rejection. */
static bool read_ids(dunlin_onnx_node *node, dunlin_constant *ids)
{
    if (!dunlin__constant_read(node, 1, ids)) {
        (void)dunlin__onnx_reject(node, "", "its stored rows cannot be read");
        return false;
    }
    bool is_good = ids->type == DUNLIN_ONNX_INT64 && ids->n > 0 && ids->shape.n_dims > 0 &&
                   ids->shape.n_dims < DUNLIN_MAX_DIMS;
    for (int64_t i = 0; is_good && i < ids->n; i++) {
        is_good = ids->items[i] >= 0.0 && ids->items[i] < (double)(1 << 24);
    }
    if (!is_good) {
        (void)dunlin__onnx_reject(node, "",
                                  "its stored rows are not 1 to %d dimensions of numbers from 0 to "
                                  "16777215",
                                  DUNLIN_MAX_DIMS - 1);
        return false;
    }
    memmove(ids->shape.dims + 1, ids->shape.dims, (size_t)ids->shape.n_dims * sizeof(int64_t));
    ids->shape.dims[0] = 1;
    ids->shape.n_dims++;
    return true;
}

void dunlin__onnx_look_up_stored(dunlin_onnx_node *node)
{
    dunlin_onnx_import *import = node->import;
    dunlin_constant ids = {0};
    dunlin_net_node made = {
        .kind = DUNLIN_OP_EXPAND, .inputs = {import->net->input}, .n_inputs = 1, .n_params = 1};
    const bool is_read = read_ids(node, &ids);
    made.params[0] = is_read ? dunlin__constant_param(node, "/order", &ids) : DUNLIN_NET_NONE;
    dunlin__constant_free(node, &ids);
    const uint32_t rows = made.params[0] != DUNLIN_NET_NONE
                              ? dunlin__onnx_make(node, &made, "/rows")
                              : made.params[0];
    const uint32_t table = rows != DUNLIN_NET_NONE ? dunlin__onnx_param_input(node, 0) : rows;
    if (table == DUNLIN_NET_NONE ||
        !dunlin__onnx_transpose_param(node, dunlin__onnx_input(node, 0), false)) {
        return;
    }
    for (int64_t i = 0; i < import->net->params[made.params[0]].n_elements; i++) {
        const int64_t n_rows = import->net->params[table].shape.dims[0];
        if ((int64_t)import->net->params[made.params[0]].values[i] >= n_rows) {
            (void)dunlin__onnx_reject(
                node, "", "stored row %" PRId64 " is %" PRId64 "; the table has %" PRId64, i,
                (int64_t)import->net->params[made.params[0]].values[i], n_rows);
            return;
        }
    }
    made = (dunlin_net_node){.kind = DUNLIN_OP_EMBEDDING, .inputs = {rows}, .n_inputs = 1};
    made.params[0] = table;
    made.n_params = 1;
    dunlin__onnx_finish(node, &made);
    dunlin__onnx_output(node, 0)->place = shared_place;
}

/* --- other shapes --- */

/* The new shape of all elements; false if it does not come out. */
static bool resolve(const dunlin_onnx_node *node, const dunlin_net_value *x, dunlin_shape *out)
{
    const bool copies_zero = dunlin__onnx_int(node, "allowzero", 0) == 0;
    int64_t known = 1;
    int32_t open = -1;
    *out = (dunlin_shape){.n_dims = dunlin__onnx_ints_input(node, 1, out->dims, DUNLIN_MAX_DIMS)};
    if (out->n_dims < 1 || out->n_dims > DUNLIN_MAX_DIMS) {
        return false;
    }
    (void)dunlin__onnx_ints_input(node, 1, out->dims, DUNLIN_MAX_DIMS);
    for (int32_t d = 0; d < out->n_dims; d++) {
        int64_t *size = &out->dims[d];
        *size = *size == 0 && copies_zero && d < x->shape.n_dims ? x->shape.dims[d] : *size;
        if (*size == -1 && open < 0) {
            open = d;
        } else if (*size < 1 || __builtin_mul_overflow(known, *size, &known)) {
            return false;
        }
    }
    const int64_t n = dunlin__value_elements(x);
    if (open >= 0) {
        out->dims[open] = n / known;
        known *= n / known;
    }
    return known == n;
}

/* The value under this shape; the value itself if it has it. */
static uint32_t reshaped(dunlin_onnx_node *node, uint32_t value, const dunlin_shape *shape,
                         const char *suffix)
{
    dunlin_net_node made = {.kind = shape->n_dims == 1 ? DUNLIN_OP_FLATTEN : DUNLIN_OP_RESHAPE,
                            .inputs = {value},
                            .n_inputs = 1};
    made.u.reshape.shape = *shape;
    return is_same_shape(&node->import->net->values[value].shape, shape)
               ? value
               : dunlin__onnx_make(node, &made, suffix);
}

bool dunlin__onnx_reshape_shared(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    dunlin_shape shape;
    if (!resolve(node, x, &shape)) {
        return false;
    }
    const uint32_t value = reshaped(node, dunlin__onnx_value_input(node, 0), &shape, "");
    if (value != DUNLIN_NET_NONE) {
        dunlin__onnx_check_attributes(node);
        dunlin__onnx_bind_value(node, value);
        dunlin__onnx_output(node, 0)->place = shared_place;
    }
    return true;
}

/* --- arithmetic with an activation --- */

/* The shape of a shared value as dimensions of a sample of the activation at `at`; false if it has
 * more than one element where the batch is, or does not fit. */
static bool as_sample(const dunlin_shape *shared, const dunlin_onnx_batch *at,
                      const dunlin_shape *sample, dunlin_shape *out)
{
    dunlin_file_dim dims[DUNLIN_MAX_DIMS + 1];
    const int32_t n = dunlin__onnx_file_dims(at, sample->n_dims, dims);
    out->n_dims = sample->n_dims;
    for (int32_t i = 1; i <= n || i <= shared->n_dims; i++) {
        const int64_t size = i <= shared->n_dims ? shared->dims[shared->n_dims - i] : 1;
        const dunlin_file_dim dim =
            i <= n ? dims[n - i] : (dunlin_file_dim){.dim = -1, .has_batch = true};
        if (dim.has_batch && size != 1) {
            return false;
        }
        if (dim.dim >= 0) {
            out->dims[dim.dim] = size;
        }
    }
    return true;
}

bool dunlin__onnx_join_shared(dunlin_onnx_node *node)
{
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div", "Max", "Min"};
    const uint32_t side = is_shared(node, 0) ? 0 : 1;
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 1 - side);
    int fn = 0;
    while (fn < 6 && strcmp(ops[fn], dunlin__onnx_op_type(node)) != 0) {
        fn++;
    }
    if (fn == 6 || dunlin__onnx_n_inputs(node) != 2 || x == NULL || !is_shared(node, side) ||
        is_shared(node, 1 - side)) {
        return false;
    }
    const dunlin_onnx_batch at = dunlin__onnx_place_of(node, 1 - side);
    const dunlin_shape own = x->shape;
    dunlin_shape shape;
    if (!as_sample(&dunlin__onnx_known_value(node, side)->shape, &at, &own, &shape)) {
        return false;
    }
    const bool is_sum = fn == DUNLIN_BINARY_ADD && is_same_shape(&own, &shape);
    dunlin_net_node made = {.kind = is_sum ? DUNLIN_OP_ADD : DUNLIN_OP_BINARY, .n_inputs = 2};
    if (!is_sum) {
        made.u.binary.fn = (dunlin_binary_fn)fn;
    }
    made.inputs[side] = reshaped(node, dunlin__onnx_value_input(node, side), &shape, "/shared");
    made.inputs[1 - side] = dunlin__onnx_value_input(node, 1 - side);
    if (made.inputs[side] != DUNLIN_NET_NONE) {
        dunlin__onnx_finish(node, &made);
        dunlin__onnx_output(node, 0)->place = at;
    }
    return true;
}
