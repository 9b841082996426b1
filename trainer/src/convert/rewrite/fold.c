/*
 * fold.c - nodes that compute nothing in training: constants, copies, and what is computed from
 * constants alone.
 *
 * Invariant: an input that is an activation stays the same value.
 */
#include "fold.h"

#include "places.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool fold_constant(dunlin_onnx_node *node)
{
    const dunlin_onnx_attribute *value = dunlin__onnx_attribute(node, "value");
    const dunlin_onnx_attribute *ints = dunlin__onnx_attribute(node, "value_ints");
    const dunlin_onnx_attribute *number = dunlin__onnx_attribute(node, "value_int");
    const dunlin_onnx_attribute *real = dunlin__onnx_attribute(node, "value_float");
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    dunlin_onnx_vector vector = {0};
    if (value != NULL && value->has_tensor) {
        output->meaning = DUNLIN_ONNX_TENSOR;
        output->index = value->tensor;
    } else if (number != NULL && number->has_i) {
        vector.n = 1;
        vector.items[0] = number->i;
        dunlin__onnx_bind_vector(node, &vector);
    } else if (ints != NULL && ints->has_ints && ints->ints.n <= DUNLIN_MAX_DIMS) {
        vector.n = dunlin__onnx_ints(node, "value_ints", vector.items, DUNLIN_MAX_DIMS);
        dunlin__onnx_bind_vector(node, &vector);
    } else if (real != NULL && real->has_f) {
        dunlin__onnx_bind_number(node, (double)real->f);
    } else {
        (void)dunlin__onnx_reject(node, "value",
                                  "only tensors, integers and single floats are read");
    }
    return true;
}

/*
 * An Identity of a stored tensor is an exporter's way of storing equal contents once: two zero
 * biases are not one weight, so the copy is a parameter of its own.
 */
static bool fold_identity(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (input == NULL) {
        (void)dunlin__onnx_reject(node, "", "it has no input");
        return true;
    }
    dunlin__onnx_alias(node, input);
    if (input->meaning == DUNLIN_ONNX_TENSOR && !input->is_transposed) {
        dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
        output->root = (uint32_t)(output - node->import->bindings);
    }
    return true;
}

/* What computes with constants alone is one: scores' masks of ones, roots of widths. */
static bool fold_numbers(dunlin_onnx_node *node)
{
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div"};
    double a = 0.0;
    double b = 0.0;
    if (!dunlin__onnx_number_input(node, 0, &a) || !dunlin__onnx_number_input(node, 1, &b)) {
        return false;
    }
    const double results[] = {a + b, a - b, a * b, a / b};
    for (int i = 0; i < 4; i++) {
        if (strcmp(dunlin__onnx_op_type(node), ops[i]) == 0) {
            dunlin__onnx_bind_number(node, results[i]);
        }
    }
    return true;
}

static bool fold_function(dunlin_onnx_node *node)
{
    static const char *const ops[] = {"Sqrt", "Neg", "Reciprocal", "Exp", "Log"};
    double a = 0.0;
    if (!dunlin__onnx_number_input(node, 0, &a)) {
        return false;
    }
    const double results[] = {sqrt(a), -a, 1.0 / a, exp(a), log(a)};
    for (int i = 0; i < 5; i++) {
        if (strcmp(dunlin__onnx_op_type(node), ops[i]) == 0) {
            dunlin__onnx_bind_number(node, results[i]);
        }
    }
    return true;
}

static bool is_ints(const dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR) {
        return false;
    }
    const int32_t type = node->import->file->tensors[input->index].type;
    return type == DUNLIN_ONNX_INT64 || type == DUNLIN_ONNX_INT32;
}

/*
 * Integers of an activation are the tokens of the network's input, which come as floats here.
 */
static bool fold_cast(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    int64_t type = dunlin__onnx_int(node, "to", 0);
    bool is_integer = type == DUNLIN_ONNX_INT64 || type == DUNLIN_ONNX_INT32;
    bool is_float = type == DUNLIN_ONNX_FLOAT || type == DUNLIN_ONNX_DOUBLE;
    bool is_value = input != NULL && input->meaning == DUNLIN_ONNX_VALUE;
    double number = 0.0;
    dunlin_onnx_vector vector;
    if (is_value && (is_integer || type == DUNLIN_ONNX_FLOAT)) {
        dunlin__onnx_alias(node, input);
    } else if (is_value && type == DUNLIN_ONNX_BOOL && !input->is_unknown) {
        return dunlin__onnx_make_mask(node);
    } else if (is_float && dunlin__onnx_number_input(node, 0, &number)) {
        dunlin__onnx_bind_number(node, number);
    } else if (is_integer && is_ints(node, input)) {
        dunlin__onnx_alias(node, input);
    } else if (is_integer && dunlin__onnx_vector_input(node, 0, &vector)) {
        dunlin__onnx_bind_vector(node, &vector);
    } else if (dunlin__onnx_is_vector_unknown(node, 0)) {
        dunlin__onnx_bind_vector(node, &(dunlin_onnx_vector){.n = -1});
    } else if (!dunlin__onnx_fold_constants(node)) {
        (void)dunlin__onnx_reject(node, "to",
                                  "a cast to type %" PRId64
                                  "; only activations to float32 or int64, numbers "
                                  "and shapes are read",
                                  type);
    }
    return true;
}

/* To the type of what comes out of layers, which is float32. */
static bool fold_cast_like(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *like = dunlin__onnx_input(node, 1);
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    double number = 0.0;
    if (like == NULL || like->meaning != DUNLIN_ONNX_VALUE || input == NULL || like->is_unknown ||
        input->is_unknown) {
        return false;
    }
    if (dunlin__onnx_number_input(node, 0, &number)) {
        dunlin__onnx_bind_number(node, number);
        return true;
    }
    if (input->meaning != DUNLIN_ONNX_VALUE) {
        return false;
    }
    dunlin__onnx_alias(node, input);
    return true;
}

/* The batch of stored integers: repeated for each sample, which they are anyway. */
static bool fold_expand(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    dunlin_onnx_vector shape;
    if (dunlin__onnx_fold_constants(node)) {
        return true;
    }
    if (!is_ints(node, input) || !dunlin__onnx_vector_input(node, 1, &shape)) {
        return false;
    }
    int64_t n = 1;
    const dunlin_shape *own = &node->import->file->tensors[input->index].shape;
    for (int32_t i = 0; i < shape.n; i++) {
        const int32_t dim = i - (shape.n - own->n_dims);
        int64_t size = dunlin_onnx_is_samples(&shape, i) ? 1 : shape.items[i];
        size = size == 1 && dim >= 0 && !input->is_flat ? own->dims[dim] : size;
        n = size >= 1 && size <= DUNLIN_ONNX_MAX_INLINE && n <= DUNLIN_ONNX_MAX_INLINE ? n * size
                                                                                       : 0;
    }
    if (n != node->import->file->tensors[input->index].n_elements) {
        return false;
    }
    dunlin__onnx_alias(node, input);
    dunlin__onnx_output(node, 0)->is_flat = true;
    return true;
}

/* Dimensions of one more or less: stored integers are taken by their number alone. */
static bool fold_dims(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (dunlin__onnx_fold_constants(node)) {
        return true;
    }
    if (!is_ints(node, input)) {
        return false;
    }
    dunlin__onnx_alias(node, input);
    dunlin__onnx_output(node, 0)->is_flat = true;
    return true;
}

static bool fold_dropout(dunlin_onnx_node *node)
{
    double ratio = 0.5;
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (input == NULL || input->meaning != DUNLIN_ONNX_VALUE ||
        !dunlin__onnx_scalar_input(node, 1, &ratio) || !(ratio == 0.0)) {
        return false; /* the operator's own */
    }
    dunlin__onnx_alias(node, input);
    return true;
}

static bool fold_transpose(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (input != NULL && input->meaning == DUNLIN_ONNX_VALUE) {
        return false; /* the operator's own */
    }
    if (is_ints(node, input) && dunlin__onnx_fold_constants(node)) {
        return true; /* of the arithmetic of shapes, not a weight's */
    }
    int64_t perm[2] = {1, 0};
    int32_t n = dunlin__onnx_ints(node, "perm", perm, 2);
    bool is_swap = (n == 0 || n == 2) && perm[0] == 1 && perm[1] == 0;
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR || !is_swap ||
        node->import->file->tensors[input->index].shape.n_dims != 2) {
        if (dunlin__onnx_fold_constants(node) || dunlin__onnx_fold_stored_values(node)) {
            return true;
        }
        (void)dunlin__onnx_reject(node, "perm", "only a stored matrix can be transposed");
        return true;
    }
    dunlin__onnx_alias(node, input);
    dunlin__onnx_output(node, 0)->is_transposed = !input->is_transposed;
    return true;
}

bool dunlin__onnx_fold(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Constant", fold_constant},   {"Identity", fold_identity},
        {"Cast", fold_cast},           {"Pad", dunlin__onnx_fold_pad},
        {"Dropout", fold_dropout},     {"Transpose", fold_transpose},
        {"Add", fold_numbers},         {"Sub", fold_numbers},
        {"Mul", fold_numbers},         {"Div", fold_numbers},
        {"Sqrt", fold_function},       {"Expand", fold_expand},
        {"Unsqueeze", fold_dims},      {"Squeeze", fold_dims},
        {"CastLike", fold_cast_like},  {"Neg", fold_function},
        {"Reciprocal", fold_function}, {"Exp", fold_function},
        {"Log", fold_function},        {"If", dunlin__onnx_fold_if},
    };
    const char *domain = dunlin__onnx_file_text(node->import->file, node->op->domain);
    if (domain[0] != '\0' && strcmp(domain, "ai.onnx") != 0) {
        return false;
    }
    return dunlin__onnx_fold_place(node) || dunlin__onnx_fold_weight_parts(node) ||
           dunlin__onnx_fold_chances(node) || dunlin__onnx_fold_norms(node) ||
           dunlin__onnx_fold_shapes(node) ||
           dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]) ||
           dunlin__onnx_fold_constants(node) || dunlin__onnx_fold_comparison(node) ||
           dunlin__onnx_fold_mask(node) || dunlin__onnx_fold_stored_rows(node) ||
           dunlin__onnx_fold_stored_values(node) || dunlin__onnx_fold_words(node) ||
           dunlin__onnx_fold_several(node) || dunlin__onnx_fold_turned(node) ||
           dunlin__onnx_fold_pools(node) || dunlin__onnx_fold_slice(node) ||
           dunlin__onnx_fold_resize(node) || dunlin__onnx_fold_einsum(node);
}
