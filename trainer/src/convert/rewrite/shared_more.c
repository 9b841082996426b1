/*
 * shared_more.c - values that are the same for each sample (shared.c) meet the batch: repeated for
 * each sample, and as a factor of a product of matrices.
 */
#include "places.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

static bool is_shared(const dunlin_onnx_node *node, uint32_t index)
{
    return dunlin__onnx_known_value(node, index) != NULL &&
           dunlin__onnx_input(node, index)->place.mix == DUNLIN_ONNX_MIX_SHARED;
}

/* The value under a shape of as many elements; NONE after a failure. */
static uint32_t reshaped(dunlin_onnx_node *node, uint32_t value, const dunlin_shape *shape,
                         const char *suffix)
{
    const dunlin_shape *own = &node->import->net->values[value].shape;
    dunlin_net_node made = {.kind = shape->n_dims == 1 ? DUNLIN_OP_FLATTEN : DUNLIN_OP_RESHAPE,
                            .inputs = {value},
                            .n_inputs = 1};
    made.u.reshape.shape = *shape;
    const bool is_same =
        own->n_dims == shape->n_dims &&
        memcmp(own->dims, shape->dims, (size_t)own->n_dims * sizeof own->dims[0]) == 0;
    return is_same ? value : dunlin__onnx_make(node, &made, suffix);
}

/* With its dimensions of one repeated. */
static uint32_t repeated(dunlin_onnx_node *node, uint32_t value, const dunlin_shape *shape,
                         const char *suffix)
{
    const dunlin_shape *own = &node->import->net->values[value].shape;
    dunlin_net_node made = {.kind = DUNLIN_OP_EXPAND, .inputs = {value}, .n_inputs = 1};
    made.u.expand.shape = *shape;
    return memcmp(own->dims, shape->dims, (size_t)own->n_dims * sizeof own->dims[0]) == 0
               ? value
               : dunlin__onnx_make(node, &made, suffix);
}

/* --- Expand, Tile --- */

/* The sizes that the node asks for, those of Tile as multiples; false if it does not fit. */
static bool read_sizes(const dunlin_onnx_node *node, const dunlin_shape *x, dunlin_onnx_vector *out)
{
    const bool is_tile = strcmp(dunlin__onnx_op_type(node), "Tile") == 0;
    if (!dunlin__onnx_vector_input(node, 1, out) || (is_tile && out->n != x->n_dims)) {
        return false;
    }
    while (out->n < x->n_dims) {
        memmove(out->items + 1, out->items, (size_t)out->n * sizeof out->items[0]);
        memmove(out->is_batch + 1, out->is_batch, (size_t)out->n * sizeof out->is_batch[0]);
        out->items[0] = 1;
        out->is_batch[0] = false;
        out->n++;
    }
    for (int32_t i = 0; i < out->n; i++) {
        const int32_t dim = i - (out->n - x->n_dims);
        const int64_t size = dim < 0 ? 1 : x->dims[dim];
        int64_t *wanted = &out->items[i];
        if (out->is_batch[i] ? !dunlin_onnx_is_samples(out, i) || size != 1 : *wanted < 1) {
            return false;
        }
        if (!out->is_batch[i] && *wanted != 1 && size != 1 && (is_tile || *wanted != size)) {
            return false;
        }
        *wanted = out->is_batch[i] || size != 1 ? size : *wanted;
    }
    return true;
}

bool dunlin__onnx_expand_shared(dunlin_onnx_node *node)
{
    dunlin_onnx_vector wanted;
    if (!is_shared(node, 0)) {
        return false;
    }
    const dunlin_shape x = dunlin__onnx_known_value(node, 0)->shape;
    dunlin_onnx_batch at = {.mix = DUNLIN_ONNX_MIX_SHARED};
    dunlin_shape from = {0};
    dunlin_shape to = {0};
    if (!read_sizes(node, &x, &wanted)) {
        return false;
    }
    for (int32_t i = 0; i < wanted.n; i++) {
        const int32_t dim = i - (wanted.n - x.n_dims);
        if (wanted.is_batch[i] && at.mix == DUNLIN_ONNX_MIX_NONE) {
            return false; /* the batch twice */
        }
        if (wanted.is_batch[i]) {
            at = (dunlin_onnx_batch){.n_before = from.n_dims};
            continue;
        }
        from.dims[from.n_dims++] = dim < 0 ? 1 : x.dims[dim];
        to.dims[to.n_dims++] = wanted.items[i];
    }
    if (to.n_dims < 1) {
        from = to = (dunlin_shape){1, {1}};
    }
    uint32_t value = reshaped(node, dunlin__onnx_value_input(node, 0), &from, "/row");
    value = value == DUNLIN_NET_NONE ? value : repeated(node, value, &to, "");
    if (value != DUNLIN_NET_NONE) {
        dunlin__onnx_check_attributes(node);
        dunlin__onnx_bind_value(node, value);
        dunlin__onnx_output(node, 0)->place = at;
    }
    return true;
}

/* --- products --- */

/* The shared operand with as many dimensions as the other one has, whose first ones it takes; NONE:
 * it does not fit, or after a failure. */
static uint32_t widened(dunlin_onnx_node *node, uint32_t side, const dunlin_shape *other)
{
    const uint32_t value = dunlin__onnx_value_input(node, side);
    const dunlin_shape own = node->import->net->values[value].shape;
    dunlin_shape wide = *other;
    dunlin_shape whole = *other;
    for (int32_t i = 1; i <= other->n_dims; i++) {
        const int64_t size = i <= own.n_dims ? own.dims[own.n_dims - i] : 1;
        const int32_t dim = other->n_dims - i;
        wide.dims[dim] = size;
        whole.dims[dim] = i > 2 ? other->dims[dim] : size;
        if (i > 2 && size != 1 && size != other->dims[dim]) {
            return DUNLIN_NET_NONE;
        }
    }
    if (own.n_dims < 2 || own.n_dims > other->n_dims) {
        return DUNLIN_NET_NONE;
    }
    const uint32_t made = reshaped(node, value, &wide, "/wide");
    return made == DUNLIN_NET_NONE ? made : repeated(node, made, &whole, "/each");
}

/* Rows of features times a shared matrix: all of a sample's rows at once. */
static bool multiply_rows(dunlin_onnx_node *node, const dunlin_onnx_batch *at)
{
    const uint32_t left = dunlin__onnx_value_input(node, 0);
    const uint32_t right = dunlin__onnx_value_input(node, 1);
    const dunlin_shape x = node->import->net->values[left].shape;
    const dunlin_shape matrix = node->import->net->values[right].shape;
    const int64_t width = x.dims[x.n_dims - 1];
    const dunlin_shape rows = {
        2, {dunlin__value_elements(&node->import->net->values[left]) / width, width}};
    dunlin_net_node made = {.kind = DUNLIN_OP_MATMUL, .n_inputs = 2};
    made.inputs[0] = reshaped(node, left, &rows, "/rows");
    made.inputs[1] = right;
    const uint32_t product = made.inputs[0] == DUNLIN_NET_NONE
                                 ? made.inputs[0]
                                 : dunlin__onnx_make(node, &made, "/products");
    dunlin_shape shape = x;
    shape.dims[x.n_dims - 1] = matrix.dims[1];
    const uint32_t value =
        product == DUNLIN_NET_NONE ? product : reshaped(node, product, &shape, "");
    if (value != DUNLIN_NET_NONE) {
        dunlin__onnx_check_attributes(node);
        dunlin__onnx_bind_value(node, value);
        dunlin__onnx_output(node, 0)->place = *at;
    }
    return true;
}

bool dunlin__onnx_multiply_shared(dunlin_onnx_node *node)
{
    const uint32_t side = is_shared(node, 0) ? 0 : 1;
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 1 - side);
    /* One number for all: whatever the dimensions of the other. */
    if (strcmp(dunlin__onnx_op_type(node), "Pow") == 0 && side == 1 && x != NULL &&
        is_shared(node, 1) && dunlin__value_elements(dunlin__onnx_known_value(node, 1)) == 1 &&
        dunlin__onnx_place_of(node, 0).n_before == 0 &&
        dunlin__onnx_place_of(node, 0).mix == DUNLIN_ONNX_MIX_NONE) {
        return dunlin__onnx_fold_arithmetic(node);
    }
    if (strcmp(dunlin__onnx_op_type(node), "Einsum") == 0 && x != NULL && is_shared(node, side)) {
        const dunlin_onnx_batch first = dunlin__onnx_place_of(node, 1 - side);
        return first.n_before == 0 && first.mix == DUNLIN_ONNX_MIX_NONE &&
               dunlin__onnx_fold_einsum(node);
    }
    if (strcmp(dunlin__onnx_op_type(node), "MatMul") != 0 || x == NULL || !is_shared(node, side) ||
        is_shared(node, 1 - side) || x->shape.n_dims < 1) {
        return false;
    }
    const dunlin_onnx_batch at = dunlin__onnx_place_of(node, 1 - side);
    const dunlin_shape other = x->shape;
    if (dunlin__onnx_sample_axis(&at, other.n_dims, -1) != other.n_dims - 1) {
        return false;
    }
    if (side == 1 && dunlin__onnx_known_value(node, 1)->shape.n_dims == 2) {
        return multiply_rows(node, &at);
    }
    if (other.n_dims < 2 || dunlin__onnx_sample_axis(&at, other.n_dims, -2) != other.n_dims - 2) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_MATMUL, .n_inputs = 2};
    made.inputs[1 - side] = dunlin__onnx_value_input(node, 1 - side);
    made.inputs[side] = widened(node, side, &other);
    if (made.inputs[side] == DUNLIN_NET_NONE) {
        return node->import->is_rejected;
    }
    dunlin__onnx_finish(node, &made);
    dunlin__onnx_output(node, 0)->place = at;
    return true;
}

/* --- parameters --- */

bool dunlin__onnx_refuse_shared(dunlin_onnx_node *node)
{
    static const char *const ops[] = {
        "Conv", "ConvTranspose", "Gemm", "BatchNormalization", "LayerNormalization", "PRelu"};
    bool is_layer = false;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        is_layer = is_layer || strcmp(ops[i], dunlin__onnx_op_type(node)) == 0;
    }
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const bool is_image = strncmp("Conv", dunlin__onnx_op_type(node), 4) == 0;
    if (is_image && x != NULL && x->shape.n_dims > 2 &&
        dunlin__onnx_place_of(node, 0).mix == DUNLIN_ONNX_MIX_OUTER) {
        (void)dunlin__onnx_reject(node, "",
                                  "each sample has %" PRId64
                                  " images in the dimension of the batch; of those only one is "
                                  "trained",
                                  x->shape.dims[0]);
        return true;
    }
    for (uint32_t i = 1; is_layer && i < dunlin__onnx_n_inputs(node); i++) {
        if (is_shared(node, i)) {
            (void)dunlin__onnx_reject(node, "",
                                      "input %" PRIu32
                                      " is computed from stored weights; only a stored one is "
                                      "trained there (remove weight norm before the export)",
                                      i);
            return true;
        }
    }
    return false;
}
