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
    if (n < 0 || file->n_ints + (size_t)n > 4 * (size_t)DUNLIN_ONNX_MAX_ITEMS ||
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

bool dunlin__onnx_file_add_tensor(dunlin_onnx_file *file, int32_t type, const dunlin_shape *shape,
                                  const double *items, uint32_t *out_tensor)
{
    int64_t n = 0;
    if (dunlin_shape_count(shape, &n) != DUNLIN_OK || n > DUNLIN_ONNX_MAX_COMPUTED ||
        !grow_tables(file, n)) {
        return false;
    }
    const bool is_float = type == DUNLIN_ONNX_FLOAT;
    file->tensors[file->n_tensors] = (dunlin_onnx_tensor){
        .type = type,
        .shape = *shape,
        .n_elements = n,
        .store = is_float ? DUNLIN_ONNX_STORE_FLOATS : DUNLIN_ONNX_STORE_INTS,
        .n_bytes = (uint64_t)n * dunlin__onnx_type_bytes(type),
        .inline_ints = {.first = (uint32_t)file->n_ints, .n = (uint32_t)n},
        .is_computed = true,
    };
    for (int64_t i = 0; i < n; i++) {
        const float number = (float)items[i];
        uint32_t bits = 0;
        memcpy(&bits, &number, sizeof bits);
        file->ints[file->n_ints++] = is_float ? (int64_t)bits : (int64_t)items[i];
    }
    *out_tensor = (uint32_t)file->n_tensors++;
    return true;
}

/* Elements of the file's bytes, a block at a time. */
static bool read_blocks(dunlin_onnx_file *file, const dunlin_onnx_tensor *tensor, double *out)
{
    uint8_t block[4096];
    const size_t width = dunlin__onnx_type_bytes(tensor->type);
    const int64_t most = (int64_t)(sizeof block / (width > 0 ? width : 1));
    for (int64_t first = 0; first < tensor->n_elements; first += most) {
        const int64_t left = tensor->n_elements - first;
        const int64_t n = left < most ? left : most;
        if (!dunlin__onnx_source_read_at(&file->source, tensor->offset + (uint64_t)first * width,
                                         block, (size_t)n * width)) {
            return false;
        }
        for (int64_t i = 0; i < n; i++) {
            if (!dunlin__onnx_number_of_bytes(tensor->type, block + (size_t)i * width,
                                              &out[first + i])) {
                return false;
            }
        }
    }
    return true;
}

bool dunlin__onnx_tensor_numbers(dunlin_onnx_file *file, const dunlin_onnx_tensor *tensor,
                                 double *out_numbers)
{
    if (tensor->store == DUNLIN_ONNX_STORE_BYTES) {
        return read_blocks(file, tensor, out_numbers);
    }
    for (int64_t i = 0; i < tensor->n_elements; i++) {
        if (!dunlin__onnx_tensor_number(file, tensor, i, &out_numbers[i])) {
            return false;
        }
    }
    return true;
}

bool dunlin__onnx_file_add_rows(dunlin_onnx_file *file, uint32_t tensor, int64_t first, int64_t n,
                                uint32_t *out_tensor)
{
    if (!grow_tables(file, 0)) {
        return false;
    }
    dunlin_onnx_tensor part = file->tensors[tensor];
    const uint64_t row = part.n_bytes / (uint64_t)part.shape.dims[0];
    part.n_elements = part.n_elements / part.shape.dims[0] * n;
    part.shape.dims[0] = n;
    part.offset += (uint64_t)first * row;
    part.n_bytes = (uint64_t)n * row;
    part.is_initializer = false;
    part.is_part = true;
    file->tensors[file->n_tensors] = part;
    *out_tensor = (uint32_t)file->n_tensors++;
    return true;
}
