/*
 * access.c - a node of the file as the operators see it: attributes, constants, parameters.
 *
 * Invariant: a parameter is made when the first operator asks for it; operators that ask later get
 * the same one, if they read it in the same orientation.
 */
#include "import.h"

#include <mem/support.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *text_of(const dunlin_onnx_node *node, dunlin_onnx_text text)
{
    return dunlin__onnx_file_text(node->import->file, text);
}

static dunlin_onnx_binding *bound(const dunlin_onnx_node *node, dunlin_onnx_span span,
                                  uint32_t index)
{
    dunlin_onnx_import *import = node->import;
    if (index >= span.n || import->refs[span.first + index] == DUNLIN_NET_NONE) {
        return NULL;
    }
    return &import->bindings[import->refs[span.first + index]];
}

dunlin_onnx_binding *dunlin__onnx_input(const dunlin_onnx_node *node, uint32_t index)
{
    return bound(node, node->op->inputs, index);
}

dunlin_onnx_binding *dunlin__onnx_output(const dunlin_onnx_node *node, uint32_t index)
{
    return bound(node, node->op->outputs, index);
}

const char *dunlin__onnx_node_name(const dunlin_onnx_node *node)
{
    const char *name = text_of(node, node->op->name);
    if (name[0] != '\0' || node->op->outputs.n == 0) {
        return name;
    }
    return text_of(node, node->import->file->names[node->op->outputs.first]);
}

int64_t dunlin__onnx_opset(const dunlin_onnx_node *node)
{
    const int64_t opset = node->import->file->opset;
    return opset < DUNLIN_ONNX_TERMS_OPSET ? DUNLIN_ONNX_TERMS_OPSET : opset;
}

const char *dunlin__onnx_op_type(const dunlin_onnx_node *node)
{
    return text_of(node, node->op->op_type);
}

const dunlin_onnx_attribute *dunlin__onnx_attribute(const dunlin_onnx_node *node, const char *name)
{
    dunlin_onnx_import *import = node->import;
    for (uint32_t i = 0; i < node->op->attributes.n; i++) {
        uint32_t index = node->op->attributes.first + i;
        if (strcmp(text_of(node, import->file->attributes[index].name), name) == 0) {
            import->asked[index] = 1;
            return &import->file->attributes[index];
        }
    }
    return NULL;
}

int64_t dunlin__onnx_int(const dunlin_onnx_node *node, const char *name, int64_t fallback)
{
    const dunlin_onnx_attribute *attribute = dunlin__onnx_attribute(node, name);
    return attribute != NULL && attribute->has_i ? attribute->i : fallback;
}

float dunlin__onnx_float(const dunlin_onnx_node *node, const char *name, float fallback)
{
    const dunlin_onnx_attribute *attribute = dunlin__onnx_attribute(node, name);
    return attribute != NULL && attribute->has_f ? attribute->f : fallback;
}

const char *dunlin__onnx_text(const dunlin_onnx_node *node, const char *name, const char *fallback)
{
    const dunlin_onnx_attribute *attribute = dunlin__onnx_attribute(node, name);
    return attribute != NULL && attribute->has_s ? text_of(node, attribute->s) : fallback;
}

int32_t dunlin__onnx_ints(const dunlin_onnx_node *node, const char *name, int64_t *out, int32_t max)
{
    const dunlin_onnx_attribute *attribute = dunlin__onnx_attribute(node, name);
    if (attribute == NULL || !attribute->has_ints) {
        return 0;
    }
    const int64_t *ints = node->import->file->ints + attribute->ints.first;
    for (uint32_t i = 0; i < attribute->ints.n && i < (uint32_t)max; i++) {
        out[i] = ints[i];
    }
    return (int32_t)attribute->ints.n;
}

uint32_t dunlin__onnx_n_inputs(const dunlin_onnx_node *node)
{
    return node->op->inputs.n;
}

uint32_t dunlin__onnx_n_outputs(const dunlin_onnx_node *node)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->op->outputs.n; i++) {
        n += dunlin__onnx_output(node, i) != NULL ? 1 : 0;
    }
    return n;
}

bool dunlin__onnx_has_input(const dunlin_onnx_node *node, uint32_t index)
{
    return dunlin__onnx_input(node, index) != NULL;
}

bool dunlin__onnx_scalar_input(const dunlin_onnx_node *node, uint32_t index, double *out_value)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR) {
        return false;
    }
    dunlin_onnx_file *file = node->import->file;
    const dunlin_onnx_tensor *tensor = &file->tensors[input->index];
    return tensor->n_elements == 1 && dunlin__onnx_tensor_number(file, tensor, 0, out_value);
}

bool dunlin__onnx_vector_input(const dunlin_onnx_node *node, uint32_t index,
                               dunlin_onnx_vector *out_vector)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (input == NULL) {
        return false;
    }
    if (input->meaning == DUNLIN_ONNX_VECTOR) {
        *out_vector = node->import->vectors[input->index];
        return out_vector->n >= 0;
    }
    memset(out_vector, 0, sizeof *out_vector);
    if (input->meaning == DUNLIN_ONNX_TENSOR &&
        node->import->file->tensors[input->index].shape.n_dims > 1) {
        return false;
    }
    int32_t n = dunlin__onnx_ints_input(node, index, out_vector->items, DUNLIN_MAX_DIMS);
    out_vector->n = n;
    return n >= 0 && n <= DUNLIN_MAX_DIMS;
}

int32_t dunlin__onnx_ints_input(const dunlin_onnx_node *node, uint32_t index, int64_t *out,
                                int32_t max)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (input != NULL && input->meaning == DUNLIN_ONNX_VECTOR) {
        const dunlin_onnx_vector *vector = &node->import->vectors[input->index];
        for (int32_t i = 0; i < vector->n; i++) {
            if (vector->is_batch[i]) {
                return -1;
            }
            if (i < max) {
                out[i] = vector->items[i];
            }
        }
        return vector->n;
    }
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR) {
        return -1;
    }
    dunlin_onnx_file *file = node->import->file;
    const dunlin_onnx_tensor *tensor = &file->tensors[input->index];
    if (tensor->n_elements > INT32_MAX ||
        (tensor->type != DUNLIN_ONNX_INT64 && tensor->type != DUNLIN_ONNX_INT32)) {
        return -1;
    }
    for (int64_t i = 0; i < tensor->n_elements && i < max; i++) {
        if (!dunlin__onnx_tensor_integer(file, tensor, i, &out[i])) {
            return -1;
        }
    }
    return (int32_t)tensor->n_elements;
}

uint32_t dunlin__onnx_value_input(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    return input != NULL && input->meaning == DUNLIN_ONNX_VALUE ? input->index : DUNLIN_NET_NONE;
}

bool dunlin__onnx_is_anything_unknown(const dunlin_onnx_node *node)
{
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        const dunlin_onnx_binding *input = dunlin__onnx_input(node, i);
        if (input != NULL && input->is_unknown) {
            return true;
        }
    }
    return false;
}

const dunlin_net_value *dunlin__onnx_known_value(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (input == NULL || input->meaning != DUNLIN_ONNX_VALUE || input->is_unknown) {
        return NULL;
    }
    return &node->import->net->values[input->index];
}

bool dunlin__onnx_is_vector_unknown(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    return input != NULL && input->meaning == DUNLIN_ONNX_VECTOR &&
           node->import->vectors[input->index].n == DUNLIN_ONNX_UNKNOWN;
}

static bool reads_refused(const dunlin_onnx_node *node)
{
    bool is_refused = dunlin__onnx_is_anything_unknown(node);
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        is_refused = is_refused || dunlin__onnx_is_vector_unknown(node, i);
    }
    return is_refused;
}

/*
 * One node, one reason: what follows from the first, or from a failure, is not news. Nor is what is
 * said of a node that reads a refused value, but that its operator is not supported at all.
 */
static void reject(const dunlin_onnx_node *node, const char *attribute, const char *reason)
{
    if (!node->import->is_of_operator && reads_refused(node)) {
        node->import->is_rejected = true;
        return;
    }
    if (!node->import->is_rejected && node->import->node_status == DUNLIN_OK) {
        node->import->is_rejected = true;
        dunlin__onnx_report(node->import, &(dunlin_model_issue){
                                              .struct_size = sizeof(dunlin_model_issue),
                                              .node = dunlin__onnx_node_name(node),
                                              .op = dunlin__onnx_op_type(node),
                                              .attribute = attribute,
                                              .reason = reason,
                                          });
    }
}

static void reject_param(const dunlin_onnx_node *node, const dunlin_onnx_binding *root,
                         const char *what)
{
    char reason[200];
    (void)snprintf(reason, sizeof reason, "'%.100s' %s", root->name, what);
    reject(node, "", reason);
}

/* Where a parameter's floats lie; the path belongs to the net. */
static dunlin_status locate(dunlin_onnx_import *import, const dunlin_onnx_tensor *tensor,
                            dunlin_net_param *param)
{
    param->origin = DUNLIN_PARAM_FILE;
    param->file_offset = tensor->offset;
    param->weights_path = import->weights_path;
    if (tensor->store != DUNLIN_ONNX_STORE_EXTERNAL) {
        param->file_offset += import->file->source.first;
        return DUNLIN_OK;
    }
    char path[4096];
    const char *location = dunlin__onnx_file_text(import->file, tensor->location);
    DUNLIN_TRY(dunlin__onnx_external_path(import->file->path, location, tensor->offset,
                                          tensor->n_bytes, path, import->error));
    /* Neighbours usually lie in the same file and then share the text. */
    const dunlin_net *net = import->net;
    const char *last = net->n_params > 1 ? net->params[net->n_params - 2].weights_path : NULL;
    param->weights_path =
        last != NULL && strcmp(last, path) == 0 ? last : dunlin__net_string(import->net, path);
    if (param->weights_path == NULL) {
        return dunlin__fail(import->error, DUNLIN_MEMORY, "onnx", 0, "no memory for a path");
    }
    return DUNLIN_OK;
}

/* Numbers of the tables. */
static dunlin_status take_values(dunlin_onnx_import *import, const dunlin_onnx_tensor *tensor,
                                 uint32_t param)
{
    const size_t n = (size_t)tensor->n_elements;
    float *values = dunlin__alloc_array(&import->file->alloc, n, sizeof *values);
    bool is_taken = values != NULL;
    for (size_t i = 0; is_taken && i < n; i++) {
        const uint32_t bits = (uint32_t)import->file->ints[tensor->inline_ints.first + i];
        memcpy(&values[i], &bits, sizeof bits);
    }
    is_taken = is_taken && dunlin__net_set_values(import->net, param, values);
    dunlin__free_array(&import->file->alloc, values, n, sizeof *values);
    return is_taken ? DUNLIN_OK
                    : dunlin__fail(import->error, DUNLIN_MEMORY, "onnx", 0,
                                   "no memory for computed constants");
}

static uint32_t make_param(const dunlin_onnx_node *node, const dunlin_onnx_binding *root)
{
    dunlin_onnx_import *import = node->import;
    const dunlin_onnx_tensor *tensor = &import->file->tensors[root->index];
    if (tensor->type != DUNLIN_ONNX_FLOAT) {
        reject_param(node, root, "is not float32");
        return DUNLIN_NET_NONE;
    }
    if (tensor->n_elements == 0) {
        reject_param(node, root, "has no elements");
        return DUNLIN_NET_NONE;
    }
    if (tensor->is_part) {
        reject_param(node, root, "is part of what may be a weight, and would not be trained");
        return DUNLIN_NET_NONE;
    }
    const bool is_computed = tensor->is_computed && tensor->store == DUNLIN_ONNX_STORE_FLOATS;
    if (!is_computed && tensor->store != DUNLIN_ONNX_STORE_BYTES &&
        tensor->store != DUNLIN_ONNX_STORE_EXTERNAL) {
        reject_param(node, root, "is stored as single numbers, not as one block of bytes");
        return DUNLIN_NET_NONE;
    }
    uint32_t param = dunlin__net_add_param(import->net, root->name);
    if (param == DUNLIN_NET_NONE) {
        import->node_status = dunlin__fail(import->error, DUNLIN_MEMORY, "onnx", 0,
                                           "no memory for parameter '%.100s'", root->name);
        return DUNLIN_NET_NONE;
    }
    dunlin_net_param *made = &import->net->params[param];
    made->shape = tensor->shape;
    made->n_elements = tensor->n_elements;
    import->node_status =
        is_computed ? take_values(import, tensor, param) : locate(import, tensor, made);
    return import->node_status == DUNLIN_OK ? param : DUNLIN_NET_NONE;
}

bool dunlin__onnx_transpose_param(dunlin_onnx_node *node, const dunlin_onnx_binding *input,
                                  bool is_stored_transposed)
{
    const dunlin_onnx_binding *root = &node->import->bindings[input->root];
    dunlin_net_param *param = &node->import->net->params[root->param];
    if (root->owner != node->index && param->is_transposed_in_file != is_stored_transposed) {
        reject_param(node, root, "is the weight of another layer too, which reads it transposed");
        return false;
    }
    if (root->owner == node->index && is_stored_transposed && !param->is_transposed_in_file) {
        const int64_t n_in = param->shape.dims[0];
        param->shape.dims[0] = param->shape.dims[1];
        param->shape.dims[1] = n_in;
        param->is_transposed_in_file = true;
    }
    return true;
}

dunlin_status dunlin__onnx_transpose_weight(dunlin_onnx_node *node, uint32_t index,
                                            bool is_stored_transposed)
{
    return dunlin__onnx_transpose_param(node, dunlin__onnx_input(node, index), is_stored_transposed)
               ? DUNLIN_OK
               : DUNLIN_UNSUPPORTED;
}

dunlin_op_kind dunlin__onnx_dense_kind(dunlin_onnx_node *node, uint32_t index,
                                       bool is_stored_transposed)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    const dunlin_onnx_binding *root = &node->import->bindings[input->root];
    const dunlin_net_param *param = &node->import->net->params[root->param];
    if (root->owner != node->index && param->is_transposed_in_file != is_stored_transposed) {
        return DUNLIN_OP_DENSE_TRANSPOSED;
    }
    (void)dunlin__onnx_transpose_param(node, input, is_stored_transposed);
    return DUNLIN_OP_DENSE;
}

uint32_t dunlin__onnx_param_input(const dunlin_onnx_node *node, uint32_t index)
{
    return dunlin__onnx_param_of(node, dunlin__onnx_input(node, index));
}

uint32_t dunlin__onnx_param_of(const dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR || input->is_transposed) {
        return DUNLIN_NET_NONE;
    }
    dunlin_onnx_import *import = node->import;
    dunlin_onnx_binding *root = &import->bindings[input->root];
    if (root->param == DUNLIN_NET_NONE) {
        root->param = make_param(node, root);
        root->owner = node->index;
    }
    if (root->param != DUNLIN_NET_NONE) {
        dunlin__onnx_take_role(node, input, root, &import->net->params[root->param]);
    }
    return root->param;
}

dunlin_status dunlin__onnx_reject(dunlin_onnx_node *node, const char *attribute, const char *format,
                                  ...)
{
    char reason[200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    reject(node, attribute, reason);
    return DUNLIN_UNSUPPORTED;
}
