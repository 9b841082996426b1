/*
 * import_common.c - what the files of the importer ask each other for: texts, bindings, what is not
 * known of a node.
 */
#include "import.h"

#include <mem/support.h>

#include <string.h>

const char *dunlin__onnx_text_at(const dunlin_onnx_import *import, dunlin_onnx_text text)
{
    return dunlin__onnx_file_text(import->file, text);
}

dunlin_status dunlin__onnx_fail_memory(const dunlin_onnx_import *import)
{
    return dunlin__fail(import->error, DUNLIN_MEMORY, "onnx", 0,
                        "no memory for the %zu nodes of a model", import->file->n_ops);
}

void dunlin__onnx_report_model(dunlin_onnx_import *import, const char *attribute,
                               const char *reason)
{
    dunlin__onnx_report(
        import,
        &(dunlin_model_issue){.node = "", .op = "model", .attribute = attribute, .reason = reason});
}

dunlin_onnx_binding *dunlin__onnx_find_binding(const dunlin_onnx_import *import, const char *name)
{
    const dunlin_name *found = dunlin__names_find(import->names, import->n_bindings, name);
    return found != NULL ? &import->bindings[found->index] : NULL;
}

/* An option that no one looked at would be ignored silently. */
void dunlin__onnx_check_attributes(dunlin_onnx_node *node)
{
    /* What ours override (the mode, the seed of dropout). */
    static const char *const ignored[] = {"training_mode", "seed"};
    const dunlin_onnx_import *import = node->import;
    for (uint32_t i = 0; i < node->op->attributes.n; i++) {
        uint32_t index = node->op->attributes.first + i;
        const char *name = dunlin__onnx_text_at(import, import->file->attributes[index].name);
        bool is_fine = import->asked[index] != 0;
        for (size_t j = 0; j < sizeof ignored / sizeof ignored[0]; j++) {
            is_fine = is_fine || strcmp(name, ignored[j]) == 0;
        }
        if (!is_fine) {
            (void)dunlin__onnx_reject(node, name, "the attribute is not known");
        }
    }
}

const dunlin_net_value *dunlin__onnx_known_value(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    if (input == NULL || input->meaning != DUNLIN_ONNX_VALUE || input->is_unknown) {
        return NULL;
    }
    return &node->import->net->values[input->index];
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

bool dunlin__onnx_is_vector_unknown(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    return input != NULL && input->meaning == DUNLIN_ONNX_VECTOR &&
           node->import->vectors[input->index].n == DUNLIN_ONNX_UNKNOWN;
}
