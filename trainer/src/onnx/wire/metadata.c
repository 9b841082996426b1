/*
 * metadata.c - what a file's metadata says about its tensors: which ones are not weights.
 *
 * Two sources: PyTorch's exporter by torch.export notes for each value what it was in the module
 * (PARAMETER, BUFFER, CONSTANT_TENSOR), in the graph's value_info; and lists of our own in the
 * model's metadata, DUNLIN_ONNX_TRAINED_KEY and DUNLIN_ONNX_EXAMPLE_KEY. All other metadata is
 * skipped.
 */
#include "reader.h"

#include <mem/support.h>

#include <onnx.pb.h>
#include <pb_decode.h>
#include <stdio.h>
#include <string.h>

#define MAX_WORD 127

/* A key or value, if it is short enough to be one of ours; else "". */
typedef struct word {
    dunlin_onnx_reader *reader;
    char text[MAX_WORD + 1];
} word;

static bool word_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    (void)field;
    word *into = *arg;
    const size_t n = stream->bytes_left;
    into->text[0] = '\0';
    if (n > MAX_WORD) {
        return dunlin__onnx_skip(stream);
    }
    if (!pb_read(stream, (pb_byte_t *)into->text, n)) {
        return false;
    }
    into->text[n] = '\0';
    return true;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text);
    const size_t n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

bool dunlin__onnx_read_kind(dunlin_onnx_reader *reader, pb_istream_t *stream, bool *is_buffer)
{
    word key = {.reader = reader};
    word value = {.reader = reader};
    dunlin_onnx_StringStringEntryProto message = {
        .key = {.funcs.decode = word_field, .arg = &key},
        .value = {.funcs.decode = word_field, .arg = &value}};
    if (!pb_decode(stream, dunlin_onnx_StringStringEntryProto_fields, &message)) {
        return false;
    }
    /* pkg.torch.export.graph_signature.InputSpec.kind */
    if (ends_with(key.text, "InputSpec.kind") &&
        (strcmp(value.text, "BUFFER") == 0 || strcmp(value.text, "CONSTANT_TENSOR") == 0)) {
        *is_buffer = true;
    }
    return true;
}

static bool add_name(dunlin_onnx_reader *reader, dunlin_onnx_text **names, size_t *n,
                     size_t *capacity, dunlin_onnx_text name)
{
    void *memory = *names;
    if (*n >= DUNLIN_ONNX_MAX_ITEMS) {
        return dunlin__onnx_reader_refuse(reader, "too many names in the metadata",
                                          DUNLIN_ONNX_MAX_ITEMS);
    }
    if (!dunlin__grow_array(&reader->file->alloc, &memory, capacity, *n + 1, sizeof **names)) {
        return dunlin__onnx_reader_no_memory(reader);
    }
    *names = memory;
    (*names)[(*n)++] = name;
    return true;
}

/* --- values of the graph --- */

typedef struct value_state {
    dunlin_onnx_reader *reader;
    dunlin_onnx_text name;
    bool is_buffer;
} value_state;

static bool value_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    value_state *state = *arg;
    if (field->tag == dunlin_onnx_ValueInfoProto_name_tag) {
        return dunlin__onnx_read_text(state->reader, stream, DUNLIN_ONNX_MAX_NAME, &state->name);
    }
    if (field->tag == dunlin_onnx_ValueInfoProto_metadata_props_tag) {
        return dunlin__onnx_read_kind(state->reader, stream, &state->is_buffer);
    }
    return dunlin__onnx_skip(stream);
}

bool dunlin__onnx_read_value_info(dunlin_onnx_reader *reader, pb_istream_t *stream)
{
    dunlin_onnx_file *file = reader->file;
    const size_t n_text = file->n_text;
    value_state state = {.reader = reader};
    pb_callback_t callback = {.funcs.decode = value_field, .arg = &state};
    dunlin_onnx_ValueInfoProto info = {
        .name = callback, .type = callback, .metadata_props = callback};
    if (!pb_decode(stream, dunlin_onnx_ValueInfoProto_fields, &info)) {
        return false;
    }
    if (!state.is_buffer) {
        file->n_text = n_text; /* the name is of no use */
        return true;
    }
    return add_name(reader, &file->buffers, &file->n_buffers, &file->buffers_capacity, state.name);
}

/* --- our lists --- */

/* One line of a list, without its end; false: damaged, or longer than a name. */
static bool read_line(dunlin_onnx_reader *reader, const char *key, pb_istream_t *stream,
                      char line[DUNLIN_ONNX_MAX_NAME + 1], size_t *out_n)
{
    pb_byte_t byte = 0;
    *out_n = 0;
    while (stream->bytes_left > 0 && byte != '\n') {
        if (!pb_read(stream, &byte, 1)) {
            return false;
        }
        if (*out_n >= DUNLIN_ONNX_MAX_NAME && byte != '\n') {
            char what[MAX_WORD + 64];
            (void)snprintf(what, sizeof what, "a name in the list of %s is too long", key);
            return dunlin__onnx_reader_refuse(reader, what, DUNLIN_ONNX_MAX_NAME);
        }
        if (byte != '\n' && byte != '\r') {
            line[(*out_n)++] = (char)byte;
        }
    }
    return true;
}

/* Lines of a value; the key comes before it, as all writers of protobuf have it. */
static bool list_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    word *key = *arg;
    if (field->tag == dunlin_onnx_StringStringEntryProto_key_tag) {
        return word_field(stream, field, arg);
    }
    dunlin_onnx_file *file = key->reader->file;
    const bool is_trained = strcmp(key->text, DUNLIN_ONNX_TRAINED_KEY) == 0;
    if (!is_trained && strcmp(key->text, DUNLIN_ONNX_EXAMPLE_KEY) != 0) {
        return dunlin__onnx_skip(stream);
    }
    dunlin_onnx_text **names = is_trained ? &file->trained : &file->example;
    size_t *n_names = is_trained ? &file->n_trained : &file->n_example;
    size_t *capacity = is_trained ? &file->trained_capacity : &file->example_capacity;
    file->has_trained = file->has_trained || is_trained;
    while (stream->bytes_left > 0) {
        char line[DUNLIN_ONNX_MAX_NAME + 1];
        size_t n = 0;
        dunlin_onnx_text name = 0;
        if (!read_line(key->reader, key->text, stream, line, &n)) {
            return false;
        }
        pb_istream_t from = pb_istream_from_buffer((const pb_byte_t *)line, n);
        if (n > 0 && (!dunlin__onnx_read_text(key->reader, &from, DUNLIN_ONNX_MAX_NAME, &name) ||
                      !add_name(key->reader, names, n_names, capacity, name))) {
            return false;
        }
    }
    return true;
}

bool dunlin__onnx_read_model_entry(dunlin_onnx_reader *reader, pb_istream_t *stream)
{
    word key = {.reader = reader};
    pb_callback_t callback = {.funcs.decode = list_field, .arg = &key};
    dunlin_onnx_StringStringEntryProto message = {.key = callback, .value = callback};
    return pb_decode(stream, dunlin_onnx_StringStringEntryProto_fields, &message);
}
