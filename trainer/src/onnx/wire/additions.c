/*
 * additions.c - what is added to the tables after the file was read: constants that were folded,
 * and inputs that older operators have as attributes.
 */
#include "file.h"

#include <mem/support.h>

#include <string.h>

/* Room for one more tensor and n more integers. */
static bool grow_tables(dunlin_onnx_file *file, int64_t n)
{
    void *tensors = file->tensors;
    if (n < 1 || file->n_ints + (size_t)n > 4 * (size_t)DUNLIN_ONNX_MAX_ITEMS ||
        !dunlin__grow_array(&file->alloc, &tensors, &file->tensors_capacity, file->n_tensors + 1,
                            sizeof *file->tensors)) {
        return false;
    }
    file->tensors = tensors;
    void *ints = file->ints;
    if (!dunlin__grow_array(&file->alloc, &ints, &file->ints_capacity, file->n_ints + (size_t)n,
                            sizeof *file->ints)) {
        return false;
    }
    file->ints = ints;
    return true;
}

bool dunlin__onnx_file_add_number(dunlin_onnx_file *file, float number, uint32_t *out_tensor)
{
    if (!grow_tables(file, 1)) {
        return false;
    }
    uint32_t bits = 0;
    memcpy(&bits, &number, sizeof bits);
    file->tensors[file->n_tensors] = (dunlin_onnx_tensor){
        .type = DUNLIN_ONNX_FLOAT,
        .n_elements = 1,
        .store = DUNLIN_ONNX_STORE_FLOATS,
        .n_bytes = sizeof number,
        .inline_ints = {.first = (uint32_t)file->n_ints, .n = 1},
    };
    file->ints[file->n_ints++] = (int64_t)bits;
    *out_tensor = (uint32_t)file->n_tensors++;
    return true;
}

bool dunlin__onnx_file_add_ints(dunlin_onnx_file *file, const int64_t *items, int64_t n,
                                uint32_t *out_tensor)
{
    if (!grow_tables(file, n)) {
        return false;
    }
    file->tensors[file->n_tensors] = (dunlin_onnx_tensor){
        .type = DUNLIN_ONNX_INT64,
        .shape = {1, {n}},
        .n_elements = n,
        .store = DUNLIN_ONNX_STORE_INTS,
        .n_bytes = (uint64_t)n * sizeof *items,
        .inline_ints = {.first = (uint32_t)file->n_ints, .n = (uint32_t)n},
    };
    memcpy(file->ints + file->n_ints, items, (size_t)n * sizeof *items);
    file->n_ints += (size_t)n;
    *out_tensor = (uint32_t)file->n_tensors++;
    return true;
}

bool dunlin__onnx_file_add_text(dunlin_onnx_file *file, const char *text,
                                dunlin_onnx_text *out_text)
{
    const size_t n = strlen(text) + 1;
    void *pool = file->text;
    if (file->n_text + n > 2 * (size_t)DUNLIN_ONNX_MAX_TEXT_BYTES ||
        !dunlin__grow_array(&file->alloc, &pool, &file->text_capacity, file->n_text + n, 1)) {
        return false;
    }
    file->text = pool;
    memcpy(file->text + file->n_text, text, n);
    *out_text = (dunlin_onnx_text)file->n_text;
    file->n_text += n;
    return true;
}

bool dunlin__onnx_file_add_input(dunlin_onnx_file *file, dunlin_onnx_op *op, uint32_t index,
                                 dunlin_onnx_text name)
{
    const dunlin_onnx_span old = op->inputs;
    const uint32_t n = old.n > index ? old.n : index + 1;
    void *names = file->names;
    if (file->n_names + n > 2 * (size_t)DUNLIN_ONNX_MAX_NAMES ||
        !dunlin__grow_array(&file->alloc, &names, &file->names_capacity, file->n_names + n,
                            sizeof *file->names)) {
        return false;
    }
    file->names = names;
    op->inputs = (dunlin_onnx_span){.first = (uint32_t)file->n_names, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        file->names[op->inputs.first + i] = i < old.n ? file->names[old.first + i] : 0;
    }
    file->names[op->inputs.first + index] = name;
    file->n_names += n;
    return true;
}
