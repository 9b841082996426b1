/*
 * import_common.c - functions that the files of the importer share: texts and bindings.
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

bool dunlin__onnx_is_read_by(const dunlin_onnx_import *import, const dunlin_onnx_binding *binding,
                             const char *op_type)
{
    const uint32_t index = (uint32_t)(binding - import->bindings);
    size_t n_readers = 0;
    for (uint32_t i = 0; i < import->file->n_ops; i++) {
        const dunlin_onnx_op *op = &import->file->ops[i];
        for (uint32_t k = 0; k < op->inputs.n; k++) {
            if (import->refs[op->inputs.first + k] != index) {
                continue;
            }
            if (strcmp(dunlin__onnx_text_at(import, op->op_type), op_type) != 0) {
                return false;
            }
            n_readers++;
        }
    }
    return n_readers > 0;
}

const dunlin_onnx_op *dunlin__onnx_sole_reader(const dunlin_onnx_import *import,
                                               const dunlin_onnx_binding *binding)
{
    const uint32_t index = (uint32_t)(binding - import->bindings);
    const dunlin_onnx_op *found = NULL;
    for (uint32_t i = 0; i < import->file->n_ops; i++) {
        const dunlin_onnx_op *op = &import->file->ops[i];
        for (uint32_t k = 0; k < op->inputs.n; k++) {
            if (import->refs[op->inputs.first + k] != index) {
                continue;
            }
            if (found != NULL && found != op) {
                return NULL;
            }
            found = op->outputs.n > 0 ? op : NULL;
        }
    }
    return found;
}
