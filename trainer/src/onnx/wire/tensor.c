/*
 * tensor.c - tensors of an ONNX file: where their elements lie, and the values of small constants.
 *
 * Invariant: a tensor that was read without an error has exactly as many elements as its shape
 * says, inside the file or in the tables. Elements themselves are not looked at until asked for.
 */
#include "reader.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <onnx.pb.h>
#include <pb_decode.h>
#include <string.h>

#define LOCATION_EXTERNAL 1

size_t dunlin__onnx_type_bytes(int32_t type)
{
    /* By TensorProto.DataType: FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL,
     * FLOAT16, DOUBLE, UINT32, UINT64, COMPLEX64, COMPLEX128, BFLOAT16. */
    static const uint8_t bytes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
    return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

static bool read_dims(dunlin_onnx_reader *reader, pb_istream_t *stream, dunlin_shape *shape)
{
    while (stream->bytes_left > 0) {
        uint64_t dim = 0;
        if (!pb_decode_varint(stream, &dim)) {
            return false;
        }
        if (shape->n_dims >= DUNLIN_MAX_DIMS) {
            return dunlin__onnx_reader_refuse(reader, "a tensor has too many dimensions",
                                              DUNLIN_MAX_DIMS);
        }
        if (dim > (uint64_t)INT64_MAX) {
            return dunlin__onnx_reader_damaged(reader, "a tensor has a negative dimension");
        }
        shape->dims[shape->n_dims++] = (int64_t)dim;
    }
    return true;
}

/* Bytes that stay in the file: raw_data, or a packed list of floats. */
static bool note_bytes(dunlin_onnx_reader *reader, pb_istream_t *stream, bool is_raw)
{
    dunlin_onnx_tensor *tensor = &reader->file->tensors[reader->tensor];
    if (stream->bytes_left == 0) {
        return true;
    }
    if (tensor->store != DUNLIN_ONNX_STORE_NONE) {
        tensor->store = DUNLIN_ONNX_STORE_SCATTERED;
        return dunlin__onnx_skip(stream);
    }
    tensor->store = DUNLIN_ONNX_STORE_BYTES;
    tensor->is_raw = is_raw;
    tensor->offset = reader->file->source.offset;
    tensor->n_bytes = stream->bytes_left;
    return dunlin__onnx_skip(stream);
}

/* Elements that are kept in the table of integers. */
static bool keep_inline(dunlin_onnx_reader *reader, dunlin_onnx_store store, int64_t value)
{
    dunlin_onnx_tensor *tensor = &reader->file->tensors[reader->tensor];
    dunlin_onnx_span *span = &tensor->inline_ints;
    if (tensor->store == DUNLIN_ONNX_STORE_NONE) {
        tensor->store = store;
        span->first = (uint32_t)reader->file->n_ints;
    }
    if (tensor->store != store || span->n >= DUNLIN_ONNX_MAX_INLINE ||
        span->first + span->n != reader->file->n_ints) {
        tensor->store = DUNLIN_ONNX_STORE_SCATTERED;
        return true;
    }
    span->n++;
    return dunlin__onnx_add_int(reader, value);
}

static bool read_numbers(dunlin_onnx_reader *reader, pb_istream_t *stream, pb_size_t tag)
{
    bool is_float = tag == dunlin_onnx_TensorProto_float_data_tag;
    if (is_float && stream->callback == dunlin__onnx_pb_read) {
        return note_bytes(reader, stream, false);
    }
    while (stream->bytes_left > 0) {
        uint64_t number = 0;
        uint32_t bits = 0;
        if (is_float ? !pb_decode_fixed32(stream, &bits) : !pb_decode_varint(stream, &number)) {
            return false;
        }
        int64_t value = is_float ? (int64_t)bits : (int64_t)number;
        dunlin_onnx_store store = is_float ? DUNLIN_ONNX_STORE_FLOATS : DUNLIN_ONNX_STORE_INTS;
        if (!keep_inline(reader, store, value)) {
            return false;
        }
    }
    return true;
}

static bool parse_decimal(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || !dunlin__mul_u64(value, 10, &value) ||
            !dunlin__add_u64(value, (uint64_t)(*c - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return text[0] != '\0';
}

typedef struct external_entry {
    dunlin_onnx_reader *reader;
    dunlin_onnx_text key, value;
} external_entry;

static bool external_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    external_entry *entry = *arg;
    bool is_key = field->tag == dunlin_onnx_StringStringEntryProto_key_tag;
    return dunlin__onnx_read_text(entry->reader, stream, DUNLIN_ONNX_MAX_LOCATION,
                                  is_key ? &entry->key : &entry->value);
}

static bool read_external(dunlin_onnx_reader *reader, pb_istream_t *stream)
{
    external_entry entry = {.reader = reader};
    pb_callback_t callback = {.funcs.decode = external_field, .arg = &entry};
    dunlin_onnx_StringStringEntryProto message = {.key = callback, .value = callback};
    if (!pb_decode(stream, dunlin_onnx_StringStringEntryProto_fields, &message)) {
        return false;
    }
    const char *key = dunlin__onnx_file_text(reader->file, entry.key);
    const char *value = dunlin__onnx_file_text(reader->file, entry.value);
    uint64_t *number = NULL;
    if (strcmp(key, "location") == 0) {
        reader->file->tensors[reader->tensor].location = entry.value;
    } else if (strcmp(key, "offset") == 0) {
        number = &reader->external_offset;
    } else if (strcmp(key, "length") == 0) {
        number = &reader->external_bytes;
        reader->has_external_bytes = true;
    }
    if (number != NULL && !parse_decimal(value, number)) {
        return dunlin__onnx_reader_damaged(reader, "an offset or length of external data is not a "
                                                   "number");
    }
    return true;
}

static bool tensor_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    dunlin_onnx_reader *reader = *arg;
    dunlin_onnx_tensor *tensor = &reader->file->tensors[reader->tensor];
    switch (field->tag) {
    case dunlin_onnx_TensorProto_dims_tag:
        return read_dims(reader, stream, &tensor->shape);
    case dunlin_onnx_TensorProto_name_tag:
        return dunlin__onnx_read_text(reader, stream, DUNLIN_ONNX_MAX_NAME, &tensor->name);
    case dunlin_onnx_TensorProto_raw_data_tag:
        return note_bytes(reader, stream, true);
    case dunlin_onnx_TensorProto_external_data_tag:
        return read_external(reader, stream);
    case dunlin_onnx_TensorProto_metadata_props_tag:
        return dunlin__onnx_read_kind(reader, stream, &tensor->is_buffer);
    default:
        return read_numbers(reader, stream, field->tag);
    }
}

static bool fail_size(dunlin_onnx_reader *reader, const dunlin_onnx_tensor *tensor)
{
    if (reader->status == DUNLIN_OK) {
        reader->status = dunlin__fail(reader->error, DUNLIN_MODEL, "onnx", 0,
                                      "tensor '%.100s' of %" PRId64 " elements of type %" PRId32
                                      " has %" PRIu64 " bytes of "
                                      "data",
                                      dunlin__onnx_file_text(reader->file, tensor->name),
                                      tensor->n_elements, tensor->type, tensor->n_bytes);
    }
    return false;
}

static bool finish_external(dunlin_onnx_reader *reader, dunlin_onnx_tensor *tensor, uint64_t needed)
{
    if (tensor->store != DUNLIN_ONNX_STORE_NONE || tensor->location == 0) {
        return dunlin__onnx_reader_damaged(reader, "a tensor's external data has no location, or "
                                                   "the tensor has data inside too");
    }
    tensor->store = DUNLIN_ONNX_STORE_EXTERNAL;
    tensor->is_raw = true;
    tensor->offset = reader->external_offset;
    tensor->n_bytes = reader->has_external_bytes ? reader->external_bytes : needed;
    return tensor->n_bytes == needed || fail_size(reader, tensor);
}

/* The one place where shape and data are compared. */
static bool finish_tensor(dunlin_onnx_reader *reader, dunlin_onnx_tensor *tensor, bool is_external)
{
    uint64_t element_bytes = dunlin__onnx_type_bytes(tensor->type);
    uint64_t needed = 0;
    if (dunlin_shape_count(&tensor->shape, &tensor->n_elements) != DUNLIN_OK ||
        !dunlin__mul_u64((uint64_t)tensor->n_elements, element_bytes, &needed)) {
        return dunlin__onnx_reader_damaged(reader, "a tensor's shape is larger than any memory");
    }
    if (element_bytes == 0) {
        /* Strings and types of later versions: of no use here, refused where a node reads one. */
        tensor->store = DUNLIN_ONNX_STORE_NONE;
        return true;
    }
    if (is_external) {
        return finish_external(reader, tensor, needed);
    }
    switch (tensor->store) {
    case DUNLIN_ONNX_STORE_BYTES:
        if (!tensor->is_raw && tensor->type != DUNLIN_ONNX_FLOAT) {
            tensor->store = DUNLIN_ONNX_STORE_SCATTERED;
            return true;
        }
        return tensor->n_bytes == needed || fail_size(reader, tensor);
    case DUNLIN_ONNX_STORE_INTS:
    case DUNLIN_ONNX_STORE_FLOATS:
        tensor->n_bytes = (uint64_t)tensor->inline_ints.n * element_bytes;
        return tensor->n_bytes == needed || fail_size(reader, tensor);
    case DUNLIN_ONNX_STORE_NONE:
        /* Values of double_data and uint64_data are not kept. */
        if (tensor->type == DUNLIN_ONNX_DOUBLE || tensor->type > DUNLIN_ONNX_DOUBLE) {
            return true;
        }
        return needed == 0 || fail_size(reader, tensor);
    case DUNLIN_ONNX_STORE_EXTERNAL:
    case DUNLIN_ONNX_STORE_SCATTERED:
        break;
    }
    return true;
}

bool dunlin__onnx_read_tensor(dunlin_onnx_reader *reader, pb_istream_t *stream, uint32_t index)
{
    reader->tensor = index;
    reader->external_offset = 0;
    reader->external_bytes = 0;
    reader->has_external_bytes = false;
    pb_callback_t callback = {.funcs.decode = tensor_field, .arg = reader};
    dunlin_onnx_TensorProto message = {
        .dims = callback,
        .float_data = callback,
        .int32_data = callback,
        .int64_data = callback,
        .name = callback,
        .raw_data = callback,
        .external_data = callback,
        .metadata_props = callback,
    };
    if (!pb_decode(stream, dunlin_onnx_TensorProto_fields, &message)) {
        return false;
    }
    dunlin_onnx_tensor *tensor = &reader->file->tensors[index];
    tensor->type = message.data_type;
    bool is_external = message.has_data_location && message.data_location == LOCATION_EXTERNAL;
    return finish_tensor(reader, tensor, is_external);
}

/* The bytes of one element, lowest first. */
static bool read_element(dunlin_onnx_file *file, const dunlin_onnx_tensor *tensor, int64_t index,
                         uint64_t *out_bits)
{
    uint8_t bytes[8];
    size_t n = dunlin__onnx_type_bytes(tensor->type);
    if (tensor->store != DUNLIN_ONNX_STORE_BYTES || n > sizeof bytes || n == 0 ||
        !dunlin__onnx_source_read_at(&file->source, tensor->offset + (uint64_t)index * n, bytes,
                                     n)) {
        return false;
    }
    *out_bits = 0;
    for (size_t i = 0; i < n; i++) {
        *out_bits |= (uint64_t)bytes[i] << (8 * i);
    }
    return true;
}

bool dunlin__onnx_tensor_integer(dunlin_onnx_file *file, const dunlin_onnx_tensor *tensor,
                                 int64_t index, int64_t *out_integer)
{
    if (index < 0 || index >= tensor->n_elements ||
        (tensor->type != DUNLIN_ONNX_INT32 && tensor->type != DUNLIN_ONNX_INT64 &&
         tensor->type != DUNLIN_ONNX_BOOL && tensor->type != DUNLIN_ONNX_UINT8)) {
        return false;
    }
    if (tensor->store == DUNLIN_ONNX_STORE_INTS) {
        *out_integer = file->ints[tensor->inline_ints.first + (uint32_t)index];
        return true;
    }
    uint64_t bits = 0;
    if (!read_element(file, tensor, index, &bits)) {
        return false;
    }
    *out_integer =
        tensor->type == DUNLIN_ONNX_INT32 ? (int64_t)(int32_t)(uint32_t)bits : (int64_t)bits;
    return true;
}

bool dunlin__onnx_tensor_number(dunlin_onnx_file *file, const dunlin_onnx_tensor *tensor,
                                int64_t index, double *out_number)
{
    int64_t integer = 0;
    if (dunlin__onnx_tensor_integer(file, tensor, index, &integer)) {
        *out_number = (double)integer;
        return true;
    }
    if (index < 0 || index >= tensor->n_elements) {
        return false;
    }
    uint64_t bits = 0;
    if (tensor->store == DUNLIN_ONNX_STORE_FLOATS) {
        bits = (uint64_t)file->ints[tensor->inline_ints.first + (uint32_t)index];
    } else if (!read_element(file, tensor, index, &bits)) {
        return false;
    }
    if (tensor->type == DUNLIN_ONNX_FLOAT) {
        uint32_t low = (uint32_t)bits;
        float number = 0.0f;
        memcpy(&number, &low, sizeof number);
        *out_number = (double)number;
        return true;
    }
    if (tensor->type == DUNLIN_ONNX_DOUBLE) {
        memcpy(out_number, &bits, sizeof *out_number);
        return true;
    }
    return false;
}

bool dunlin__onnx_number_of_bytes(int32_t type, const uint8_t *bytes, double *out_number)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < dunlin__onnx_type_bytes(type) && i < sizeof bits; i++) {
        bits |= (uint64_t)bytes[i] << (8 * i);
    }
    const uint32_t low = (uint32_t)bits;
    float real = 0.0f;
    switch (type) {
    case DUNLIN_ONNX_FLOAT:
        memcpy(&real, &low, sizeof real);
        *out_number = (double)real;
        return true;
    case DUNLIN_ONNX_DOUBLE:
        memcpy(out_number, &bits, sizeof *out_number);
        return true;
    case DUNLIN_ONNX_INT32:
        *out_number = (double)(int32_t)low;
        return true;
    case DUNLIN_ONNX_INT64:
        *out_number = (double)(int64_t)bits;
        return true;
    case DUNLIN_ONNX_BOOL:
    case DUNLIN_ONNX_UINT8:
        *out_number = (double)bits;
        return true;
    default:
        return false;
    }
}
