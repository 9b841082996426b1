/*
 * fold.c - nodes that compute nothing in training: constants, copies, and the arithmetic of shapes
 * that exporters write out ("view(x.size(0), -1)").
 *
 * Invariant: an input that is an activation stays the same value; integers are folded only while
 * all of them are known, the batch staying a symbol.
 */
#include "import.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define UNKNOWN (-1) /* length of a list that depends on a value behind an issue */

/* The output is another name for what the input stands for. */
static void alias(dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = input->meaning;
    output->index = input->index;
    output->root = input->root;
    output->is_transposed = input->is_transposed;
    output->is_unknown = input->is_unknown;
}

static void bind_vector(dunlin_onnx_node *node, const dunlin_onnx_vector *vector)
{
    dunlin_onnx_import *import = node->import;
    void *vectors = import->vectors;
    if (!dunlin__grow_array(&import->file->alloc, &vectors, &import->vectors_capacity,
                            import->n_vectors + 1, sizeof *import->vectors)) {
        import->node_status =
            dunlin__fail(import->error, DUNLIN_MEMORY, "onnx", 0, "no memory for folded shapes");
        return;
    }
    import->vectors = vectors;
    import->vectors[import->n_vectors] = *vector;
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = DUNLIN_ONNX_VECTOR;
    output->is_unknown = vector->n == UNKNOWN;
    output->index = (uint32_t)import->n_vectors++;
}

static bool is_vector_unknown(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    return input != NULL && input->meaning == DUNLIN_ONNX_VECTOR &&
           node->import->vectors[input->index].n == UNKNOWN;
}

/* What is computed from something unknown is unknown too; no issue of its own. */
static bool fold_unknown(dunlin_onnx_node *node)
{
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        if (is_vector_unknown(node, i)) {
            bind_vector(node, &(dunlin_onnx_vector){.n = UNKNOWN});
            return true;
        }
    }
    return false;
}

static bool fold_constant(dunlin_onnx_node *node)
{
    const dunlin_onnx_attribute *value = dunlin__onnx_attribute(node, "value");
    const dunlin_onnx_attribute *ints = dunlin__onnx_attribute(node, "value_ints");
    const dunlin_onnx_attribute *number = dunlin__onnx_attribute(node, "value_int");
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    dunlin_onnx_vector vector = {0};
    if (value != NULL && value->has_tensor) {
        output->meaning = DUNLIN_ONNX_TENSOR;
        output->index = value->tensor;
    } else if (number != NULL && number->has_i) {
        vector.n = 1;
        vector.items[0] = number->i;
        bind_vector(node, &vector);
    } else if (ints != NULL && ints->has_ints && ints->ints.n <= DUNLIN_MAX_DIMS) {
        vector.n = dunlin__onnx_ints(node, "value_ints", vector.items, DUNLIN_MAX_DIMS);
        bind_vector(node, &vector);
    } else {
        (void)dunlin__onnx_reject(node, "value", "only tensors and integers are read");
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
    alias(node, input);
    if (input->meaning == DUNLIN_ONNX_TENSOR && !input->is_transposed) {
        dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
        output->root = (uint32_t)(output - node->import->bindings);
    }
    return true;
}

/* A number that an exporter wrote as an integer, as the bounds of a clip often are. */
static bool cast_number(dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    dunlin_onnx_file *file = node->import->file;
    double number = 0.0;
    if (file->tensors[input->index].n_elements != 1 ||
        !dunlin__onnx_tensor_number(file, &file->tensors[input->index], 0, &number)) {
        return false;
    }
    uint32_t tensor = 0;
    if (!dunlin__onnx_file_add_number(file, (float)number, &tensor)) {
        node->import->node_status = dunlin__fail(node->import->error, DUNLIN_MEMORY, "onnx", 0,
                                                 "no memory for folded constants");
        return true;
    }
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = DUNLIN_ONNX_TENSOR;
    output->index = tensor;
    return true;
}

static bool fold_cast(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    int64_t type = dunlin__onnx_int(node, "to", 0);
    bool is_integer = type == DUNLIN_ONNX_INT64 || type == DUNLIN_ONNX_INT32;
    bool is_float = input != NULL && type == DUNLIN_ONNX_FLOAT;
    dunlin_onnx_vector vector;
    if (is_float && input->meaning == DUNLIN_ONNX_VALUE) {
        alias(node, input);
    } else if (is_float && input->meaning == DUNLIN_ONNX_TENSOR && cast_number(node, input)) {
        return true;
    } else if (fold_unknown(node)) {
        return true;
    } else if (is_integer && dunlin__onnx_vector_input(node, 0, &vector)) {
        bind_vector(node, &vector);
    } else {
        (void)dunlin__onnx_reject(node, "to",
                                  "a cast to type %" PRId64
                                  "; only activations to float32, numbers "
                                  "and shapes are read",
                                  type);
    }
    return true;
}

static bool fold_pad(dunlin_onnx_node *node)
{
    enum { MAX_PADS = 2 * DUNLIN_MAX_DIMS };
    int64_t pads[MAX_PADS];
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    int32_t n = dunlin__onnx_ints_input(node, 1, pads, MAX_PADS);
    bool is_nothing =
        input != NULL && input->meaning == DUNLIN_ONNX_VALUE && n >= 0 && n <= MAX_PADS;
    for (int32_t i = 0; is_nothing && i < n; i++) {
        is_nothing = pads[i] == 0;
    }
    if (is_nothing) {
        alias(node, input);
    } else {
        (void)dunlin__onnx_reject(node, "pads",
                                  "only padding by nothing is read; give the padding "
                                  "to the convolution or pooling");
    }
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
    alias(node, input);
    return true;
}

static bool fold_transpose(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    int64_t perm[2] = {1, 0};
    int32_t n = dunlin__onnx_ints(node, "perm", perm, 2);
    bool is_swap = (n == 0 || n == 2) && perm[0] == 1 && perm[1] == 0;
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR || !is_swap ||
        node->import->file->tensors[input->index].shape.n_dims != 2) {
        (void)dunlin__onnx_reject(node, "perm", "only a stored matrix can be transposed");
        return true;
    }
    alias(node, input);
    dunlin__onnx_output(node, 0)->is_transposed = !input->is_transposed;
    return true;
}

/* --- arithmetic of shapes: true if it was that --- */

static bool fold_shape(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (input == NULL || input->meaning != DUNLIN_ONNX_VALUE) {
        return false;
    }
    if (dunlin__onnx_attribute(node, "start") != NULL ||
        dunlin__onnx_attribute(node, "end") != NULL) {
        (void)dunlin__onnx_reject(node, "start", "parts of a shape are not supported");
        return true;
    }
    if (input->is_unknown) {
        bind_vector(node, &(dunlin_onnx_vector){.n = UNKNOWN});
        return true;
    }
    const dunlin_shape *shape = &node->import->net->values[input->index].shape;
    dunlin_onnx_vector vector = {.n = shape->n_dims + 1};
    if (vector.n > DUNLIN_MAX_DIMS) {
        return false;
    }
    vector.is_batch[0] = true;
    memcpy(vector.items + 1, shape->dims, (size_t)shape->n_dims * sizeof shape->dims[0]);
    bind_vector(node, &vector);
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
    bind_vector(node, &out);
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
    if (!dunlin__onnx_vector_input(node, 0, &vector) || vector.n != 1 ||
        dunlin__onnx_ints_input(node, 1, &axis, 1) != 1 || axis != 0) {
        return false;
    }
    bind_vector(node, &vector);
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
    bind_vector(node, &out);
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
    if (!dunlin__onnx_vector_input(node, 0, &from) ||
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
    bind_vector(node, &out);
    return true;
}

typedef struct fold_entry {
    const char *op_type;
    bool (*fold_fn)(dunlin_onnx_node *node);
} fold_entry;

bool dunlin__onnx_fold(dunlin_onnx_node *node)
{
    static const fold_entry entries[] = {
        {"Constant", fold_constant}, {"Identity", fold_identity}, {"Cast", fold_cast},
        {"Pad", fold_pad},           {"Dropout", fold_dropout},   {"Transpose", fold_transpose},
        {"Shape", fold_shape},       {"Gather", fold_gather},     {"Unsqueeze", fold_unsqueeze},
        {"Concat", fold_concat},     {"Slice", fold_slice},
    };
    if (dunlin__onnx_file_text(node->import->file, node->op->domain)[0] != '\0') {
        return false;
    }
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].op_type, dunlin__onnx_op_type(node)) == 0) {
            return entries[i].fold_fn(node);
        }
    }
    return false;
}

/* --- operators in other words --- */

static bool is_flattening(const dunlin_onnx_vector *shape, const dunlin_net_value *input,
                          bool is_known)
{
    if (shape->n != 2 || shape->is_batch[1]) {
        return false;
    }
    int64_t features = shape->items[1];
    bool is_all = features == -1 || (is_known && features == dunlin__value_elements(input));
    bool keeps_batch = shape->is_batch[0] || shape->items[0] == 0;
    bool infers_batch = shape->items[0] == -1 && features != -1;
    return is_all && (keeps_batch || infers_batch);
}

static dunlin_status fill_reshape(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_FLATTEN;
    uint32_t input = dunlin__onnx_value_input(onnx, 0);
    dunlin_onnx_vector shape;
    if (input == DUNLIN_NET_NONE) {
        return dunlin__onnx_reject(onnx, "", "input 0 is not an activation");
    }
    if (dunlin__onnx_int(onnx, "allowzero", 0) != 0) {
        return dunlin__onnx_reject(onnx, "allowzero", "is not 0");
    }
    bool is_known = !dunlin__onnx_input(onnx, 0)->is_unknown;
    if (!dunlin__onnx_vector_input(onnx, 1, &shape) ||
        !is_flattening(&shape, &net->values[input], is_known)) {
        if (!is_known || is_vector_unknown(onnx, 1)) {
            return DUNLIN_OK; /* an issue before it: nothing can be said */
        }
        return dunlin__onnx_reject(onnx, "shape", "only flattening to (N, features) is trained");
    }
    node->inputs[node->n_inputs++] = input;
    return DUNLIN_OK;
}

/* A dense layer without bias, whose weight may be stored in either order. */
static dunlin_status fill_matmul(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_DENSE;
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
    if (!is_transposed && !param->is_transposed_in_file) {
        int64_t n_in = param->shape.dims[0];
        param->shape.dims[0] = param->shape.dims[1];
        param->shape.dims[1] = n_in;
        param->is_transposed_in_file = true;
    }
    node->inputs[node->n_inputs++] = input;
    node->params[node->n_params++] = param_index;
    return DUNLIN_OK;
}

dunlin_onnx_fill_fn dunlin__onnx_rewrite(const dunlin_onnx_node *node)
{
    const char *op_type = dunlin__onnx_op_type(node);
    if (strcmp(op_type, "Reshape") == 0) {
        return fill_reshape;
    }
    return strcmp(op_type, "MatMul") == 0 ? fill_matmul : NULL;
}
