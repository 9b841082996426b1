/*
 * roles.c - which stored tensors are trained: what the file's metadata says, and what follows from
 * how a tensor is stored and used.
 *
 * The rules, the first that applies: what the file calls a buffer or a constant is fixed; a list of
 * our own decides; what a Constant node holds is fixed unless it is the weight of a Conv,
 * ConvTranspose, Gemm or MatMul; all else is trained, with a warning where it may be no weight.
 */
#include "import.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

#define MAX_WARNED 4 /* names in the warning */

static dunlin_onnx_binding *bound(const dunlin_onnx_import *import, dunlin_onnx_text name)
{
    return dunlin__onnx_find_binding(import, dunlin__onnx_text_at(import, name));
}

dunlin_status dunlin__onnx_read_roles(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    for (size_t i = 0; i < import->n_bindings; i++) {
        dunlin_onnx_binding *binding = &import->bindings[i];
        binding->is_fixed =
            binding->meaning == DUNLIN_ONNX_TENSOR && file->tensors[binding->index].is_buffer;
    }
    for (size_t i = 0; i < file->n_buffers; i++) {
        dunlin_onnx_binding *binding = bound(import, file->buffers[i]);
        if (binding != NULL) {
            binding->is_fixed = true;
        }
    }
    for (size_t i = 0; i < file->n_trained; i++) {
        dunlin_onnx_binding *binding = bound(import, file->trained[i]);
        if (binding != NULL) {
            binding->is_listed = true;
            continue;
        }
        char reason[200];
        (void)snprintf(reason, sizeof reason,
                       "names '%.80s', which the file does not hold: export without constant "
                       "folding, which keeps the names",
                       dunlin__onnx_text_at(import, file->trained[i]));
        dunlin__onnx_report_model(import, DUNLIN_ONNX_TRAINED_KEY, reason);
        return DUNLIN_OK; /* one stands for all */
    }
    return DUNLIN_OK;
}

static bool is_weight_of(const dunlin_onnx_node *node, const dunlin_onnx_binding *input)
{
    const char *op = dunlin__onnx_op_type(node);
    const bool has_weight = strcmp(op, "Conv") == 0 || strcmp(op, "ConvTranspose") == 0 ||
                            strcmp(op, "Gemm") == 0 || strcmp(op, "MatMul") == 0;
    return has_weight && input == dunlin__onnx_input(node, 1);
}

void dunlin__onnx_take_role(const dunlin_onnx_node *node, const dunlin_onnx_binding *input,
                            const dunlin_onnx_binding *root, dunlin_net_param *param)
{
    const dunlin_onnx_file *file = node->import->file;
    const dunlin_onnx_tensor *tensor = &file->tensors[root->index];
    const dunlin_onnx_binding *stored =
        tensor->is_initializer ? bound(node->import, tensor->name) : root;
    const bool is_first = root->owner == node->index;
    param->is_trained_by_default = false;
    if (tensor->is_computed || root->is_fixed || (stored != NULL && stored->is_fixed)) {
        param->is_fixed_by_file = true;
    } else if (file->has_trained) {
        param->is_fixed_by_file = !root->is_listed;
    } else if (!tensor->is_initializer) {
        const bool was_fixed = is_first || param->is_fixed_by_file;
        param->is_fixed_by_file = was_fixed && !is_weight_of(node, input);
    } else {
        param->is_trained_by_default = true;
    }
}

/* Its readers only add it to something or multiply by it: it may be a table of positions. */
static bool is_doubtful(const dunlin_net *net, uint32_t param)
{
    if (!net->params[param].is_trained_by_default ||
        net->params[param].role == DUNLIN_PARAMETER_STATISTIC) {
        return false;
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        for (uint32_t k = 0; k < node->n_params; k++) {
            if (node->params[k] == param && node->kind != DUNLIN_OP_BINARY) {
                return false;
            }
        }
    }
    return true;
}

dunlin_status dunlin__onnx_warn_roles(dunlin_onnx_import *import)
{
    dunlin_net *net = import->net;
    char names[400] = "";
    size_t n = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < net->n_params; i++) {
        if (!is_doubtful(net, i)) {
            continue;
        }
        if (n < MAX_WARNED) {
            (void)snprintf(names + used, sizeof names - used, "%s'%.80s'", n == 0 ? "" : ", ",
                           net->params[i].name);
            used = strlen(names);
        }
        n++;
    }
    if (n == 0) {
        return DUNLIN_OK;
    }
    char text[600];
    char more[40] = "";
    if (n > MAX_WARNED) {
        (void)snprintf(more, sizeof more, " and %zu more", n - MAX_WARNED);
    }
    (void)snprintf(text, sizeof text,
                   "%s%s %s trained though only added or multiplied, and may be no weight%s: "
                   "freeze by name, or list what is trained in the file's metadata (%s)",
                   names, more, n == 1 ? "is" : "are", n == 1 ? "" : "s", DUNLIN_ONNX_TRAINED_KEY);
    net->warning = dunlin__net_string(net, text);
    return net->warning != NULL ? DUNLIN_OK : dunlin__onnx_fail_memory(import);
}
