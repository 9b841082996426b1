/*
 * import_common.c - what the files of the importer ask each other for: texts and bindings.
 */
#include "import.h"

#include <mem/support.h>

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
