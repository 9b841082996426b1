/*
 * places_pass.c - operators that do to each sample what they would do if the batch were first in
 * the file: element by element, products, and along an axis that is of a sample alone.
 */
#include "places.h"

#include <string.h>

typedef dunlin_onnx_batch place;

/* --- operators that know an axis by its number --- */

/* The attribute as the operator would have it if the batch were first. */
static bool turn_axis(dunlin_onnx_node *node, int64_t fallback)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const place at = dunlin__onnx_place_of(node, 0);
    const dunlin_onnx_attribute *found = dunlin__onnx_attribute(node, "axis");
    const int64_t axis = found != NULL && found->has_i ? found->i : fallback;
    const int32_t dim = dunlin__onnx_sample_axis(&at, x->shape.n_dims, axis);
    if (dim < 0 || (found == NULL && axis >= 0)) {
        return false; /* without the attribute a negative number alone means the same */
    }
    if (found != NULL) {
        node->import->file->attributes[found - node->import->file->attributes].i = dim + 1;
    }
    return true;
}

static bool softmax(dunlin_onnx_node *node)
{
    return turn_axis(node, -1);
}

static bool split(dunlin_onnx_node *node)
{
    return turn_axis(node, 0);
}

/* --- operators that know no axis --- */

/* A stored operand ends before the batch, seen from its last dimension. */
static bool is_behind_batch(const dunlin_onnx_node *node, const dunlin_onnx_binding *stored,
                            const place *at, int32_t n_dims)
{
    const dunlin_shape *shape = &node->import->file->tensors[stored->index].shape;
    const int32_t n_behind = n_dims - at->n_before - (at->mix == DUNLIN_ONNX_MIX_OUTER ? 1 : 0);
    for (int32_t i = 0; i + n_behind < shape->n_dims; i++) {
        if (shape->dims[i] != 1) {
            return false;
        }
    }
    return true;
}

/* All activations have their batch at the same place, and as many dimensions. */
static bool is_alike(const dunlin_onnx_node *node, place *out)
{
    const dunlin_net_value *first = NULL;
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        const dunlin_net_value *x = dunlin__onnx_known_value(node, i);
        if (x == NULL) {
            continue;
        }
        const place at = dunlin__onnx_place_of(node, i);
        if (first != NULL && (at.n_before != out->n_before || at.mix != out->mix ||
                              at.n_run != out->n_run || x->shape.n_dims != first->shape.n_dims)) {
            return false;
        }
        first = x;
        *out = at;
    }
    for (uint32_t i = 0; first != NULL && i < dunlin__onnx_n_inputs(node); i++) {
        const dunlin_onnx_binding *input = dunlin__onnx_input(node, i);
        if (input != NULL && input->meaning == DUNLIN_ONNX_TENSOR && !input->is_flat &&
            !is_behind_batch(node, input, out, first->shape.n_dims)) {
            return false;
        }
    }
    return first != NULL;
}

/* The last two dimensions, or the last one with a stored matrix, are of a sample alone. */
static bool is_product_of_samples(const dunlin_onnx_node *node, place *out)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const dunlin_net_value *y = dunlin__onnx_known_value(node, 1);
    if (x == NULL) {
        return false;
    }
    *out = dunlin__onnx_place_of(node, 0);
    if (y == NULL) {
        return dunlin__onnx_sample_axis(out, x->shape.n_dims, -1) >= 0;
    }
    const place other = dunlin__onnx_place_of(node, 1);
    return other.n_before == out->n_before && other.mix == out->mix && other.n_run == out->n_run &&
           dunlin__onnx_sample_axis(out, x->shape.n_dims, -1) >= 0 &&
           dunlin__onnx_sample_axis(out, x->shape.n_dims, -2) >= 0;
}

/* Rows of a sample that are rows of the file. */
static bool is_rows(const dunlin_onnx_node *node, place *out)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    *out = x != NULL ? dunlin__onnx_place_of(node, 0) : (place){0};
    return x != NULL && x->shape.n_dims == 2 && dunlin__onnx_sample_axis(out, 2, 1) == 1 &&
           dunlin__onnx_int(node, "transA", 0) == 0;
}

static bool is_in(const char *op_type, const char *const *list)
{
    while (*list != NULL && strcmp(*list, op_type) != 0) {
        list++;
    }
    return *list != NULL;
}

bool dunlin__onnx_passes(dunlin_onnx_node *node, place *out)
{
    static const char *const elementwise[] = {"Relu",        "LeakyRelu",
                                              "Sigmoid",     "Tanh",
                                              "Erf",         "Sqrt",
                                              "Exp",         "Log",
                                              "Neg",         "Abs",
                                              "Clip",        "Gelu",
                                              "Elu",         "Selu",
                                              "Celu",        "Softplus",
                                              "HardSwish",   "HardSigmoid",
                                              "Softsign",    "Mish",
                                              "Reciprocal",  "Cast",
                                              "Identity",    "Dropout",
                                              "Sin",         "Cos",
                                              "Pow",         "Add",
                                              "Sub",         "Mul",
                                              "Div",         "Max",
                                              "Min",         "CastLike",
                                              "Equal",       "Greater",
                                              "Less",        "GreaterOrEqual",
                                              "LessOrEqual", "Not",
                                              "And",         "Or",
                                              "Where",       NULL};
    const char *op = dunlin__onnx_op_type(node);
    const dunlin_onnx_binding *first = dunlin__onnx_input(node, 0);
    if (is_in(op, elementwise)) {
        return is_alike(node, out);
    }
    if (strcmp(op, "MatMul") == 0) {
        return is_product_of_samples(node, out);
    }
    if (strcmp(op, "Gemm") == 0) {
        return is_rows(node, out);
    }
    if (strcmp(op, "Gather") == 0) {
        if (first == NULL || first->meaning != DUNLIN_ONNX_TENSOR) {
            return false;
        }
        *out = dunlin__onnx_place_of(node, 1); /* numbers of rows: each becomes a row */
        return true;
    }
    *out = dunlin__onnx_place_of(node, 0);
    if (strcmp(op, "Softmax") == 0 || strcmp(op, "LogSoftmax") == 0 ||
        strcmp(op, "LayerNormalization") == 0) {
        return softmax(node);
    }
    return strcmp(op, "Split") == 0 && split(node);
}

/* The value with the shape; the node's own output if `suffix` is "". */
static uint32_t reshaped(dunlin_onnx_node *node, uint32_t value, const dunlin_shape *shape,
                         const char *suffix)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_RESHAPE, .inputs = {value}, .n_inputs = 1};
    made.u.reshape.shape = *shape;
    return dunlin__onnx_make(node, &made, suffix);
}

bool dunlin__onnx_join_stored(dunlin_onnx_node *node)
{
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div"};
    const uint32_t side = dunlin__onnx_known_value(node, 0) != NULL ? 0 : 1;
    const dunlin_net_value *x = dunlin__onnx_known_value(node, side);
    const dunlin_onnx_binding *stored = dunlin__onnx_input(node, 1 - side);
    int fn = 0;
    while (fn < 4 && strcmp(ops[fn], dunlin__onnx_op_type(node)) != 0) {
        fn++;
    }
    if (fn == 4 || x == NULL || stored == NULL || stored->meaning != DUNLIN_ONNX_TENSOR ||
        stored->is_transposed || stored->is_flat) {
        return false;
    }
    const place at = dunlin__onnx_place_of(node, side);
    const dunlin_shape own = x->shape;
    const dunlin_shape *shape = &node->import->file->tensors[stored->index].shape;
    if (at.mix != DUNLIN_ONNX_MIX_NONE || shape->n_dims != own.n_dims + 1 ||
        shape->n_dims > DUNLIN_MAX_DIMS || shape->dims[at.n_before] != 1 ||
        is_behind_batch(node, stored, &at, own.n_dims)) {
        return false;
    }
    dunlin_shape wide = {.n_dims = own.n_dims + 1};
    for (int32_t i = 0; i < wide.n_dims; i++) {
        wide.dims[i] = i == at.n_before ? 1 : own.dims[i > at.n_before ? i - 1 : i];
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_BINARY, .n_inputs = 1, .n_params = 1};
    made.u.binary.fn = (dunlin_binary_fn)fn;
    made.u.binary.is_param_left = side == 1;
    made.params[0] = dunlin__onnx_param_input(node, 1 - side);
    made.inputs[0] = made.params[0] == DUNLIN_NET_NONE
                         ? DUNLIN_NET_NONE
                         : reshaped(node, dunlin__onnx_value_input(node, side), &wide, "/wide");
    const uint32_t sum = made.inputs[0] == DUNLIN_NET_NONE
                             ? DUNLIN_NET_NONE
                             : dunlin__onnx_make(node, &made, "/joined");
    const uint32_t value = sum == DUNLIN_NET_NONE ? DUNLIN_NET_NONE : reshaped(node, sum, &own, "");
    if (value == DUNLIN_NET_NONE) {
        return true; /* rejected */
    }
    dunlin__onnx_check_attributes(node);
    dunlin__onnx_bind_value(node, value);
    dunlin__onnx_output(node, 0)->place = at;
    return true;
}
