/*
 * branches.c - the branches of a choice (If) become nodes of the graph itself, before it, so that
 * the one which is taken can be read like any other.
 *
 * Invariant: nodes of a branch stand right before their choice and know its condition and their
 * side; a choice reads its condition, then what its branches put out. Choices within branches stay
 * as they are, so a file is gone through at most twice.
 */
#include "reader.h"

#include <mem/support.h>

#include <string.h>

static bool is_named(const dunlin_onnx_file *file, dunlin_onnx_text text, const char *name)
{
    return strcmp(dunlin__onnx_file_text(file, text), name) == 0;
}

static const dunlin_onnx_attribute *find_branch(const dunlin_onnx_file *file,
                                                const dunlin_onnx_op *op, const char *name)
{
    for (uint32_t i = 0; i < op->attributes.n; i++) {
        const dunlin_onnx_attribute *attribute = &file->attributes[op->attributes.first + i];
        if (is_named(file, attribute->name, name) && attribute->graph_bytes > 0) {
            return attribute;
        }
    }
    return NULL;
}

static bool is_choice(const dunlin_onnx_file *file, const dunlin_onnx_op *op)
{
    return is_named(file, op->op_type, "If") && op->inputs.n == 1 && op->outputs.n == 1 &&
           find_branch(file, op, "then_branch") != NULL &&
           find_branch(file, op, "else_branch") != NULL;
}

/* Appends a branch's nodes; false with the reader's status set, or where it has not one output. */
static bool append_branch(dunlin_onnx_reader *reader, const dunlin_onnx_op *choice, uint8_t side,
                          dunlin_onnx_text *out_name)
{
    dunlin_onnx_file *file = reader->file;
    const dunlin_onnx_attribute branch =
        *find_branch(file, choice, side == DUNLIN_ONNX_THEN ? "then_branch" : "else_branch");
    const size_t first = file->n_ops;
    if (!dunlin__onnx_read_branch(reader, &branch, out_name)) {
        return false;
    }
    for (size_t i = first; i < file->n_ops; i++) {
        file->ops[i].branch = side;
        file->ops[i].condition = file->names[choice->inputs.first];
    }
    return *out_name != 0;
}

/* The choice, after the nodes of both branches; as it was, if they cannot be read so. */
static bool append_choice(dunlin_onnx_reader *reader, dunlin_onnx_op op)
{
    dunlin_onnx_file *file = reader->file;
    const size_t first = file->n_ops;
    dunlin_onnx_text names[2] = {0};
    const bool is_read = append_branch(reader, &op, DUNLIN_ONNX_THEN, &names[0]) &&
                         append_branch(reader, &op, DUNLIN_ONNX_ELSE, &names[1]);
    if (reader->status != DUNLIN_OK) {
        return false;
    }
    if (!is_read) {
        file->n_ops = first;
    } else if (!dunlin__onnx_file_add_input(file, &op, 1, names[0]) ||
               !dunlin__onnx_file_add_input(file, &op, 2, names[1])) {
        return dunlin__onnx_reader_no_memory(reader);
    }
    return dunlin__onnx_reader_add_op(reader, &op);
}

dunlin_status dunlin__onnx_file_open_branches(dunlin_onnx_file *file, dunlin_error *error)
{
    dunlin_onnx_reader reader = {.file = file, .error = error};
    const size_t n = file->n_ops;
    bool has_choice = false;
    for (size_t i = 0; i < n; i++) {
        has_choice = has_choice || is_choice(file, &file->ops[i]);
    }
    if (!has_choice) {
        return DUNLIN_OK;
    }
    dunlin_onnx_op *ops = dunlin__alloc_array(&file->alloc, n, sizeof *ops);
    if (ops == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0,
                            "no memory for the %zu nodes of a model", n);
    }
    memcpy(ops, file->ops, n * sizeof *ops);
    file->n_ops = 0;
    bool is_good = true;
    for (size_t i = 0; is_good && i < n; i++) {
        is_good = is_choice(file, &ops[i]) ? append_choice(&reader, ops[i])
                                           : dunlin__onnx_reader_add_op(&reader, &ops[i]);
    }
    dunlin__free_array(&file->alloc, ops, n, sizeof *ops);
    return reader.status;
}
