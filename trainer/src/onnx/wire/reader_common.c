/*
 * reader_common.c - what the files of the ONNX reader share: refusals, room in the tables, texts,
 * and the stream.
 */
#include "reader.h"

#include <mem/support.h>

#include <inttypes.h>
#include <pb_decode.h>
#include <string.h>

/* Why the last callback said no; protobuf's own errors leave it alone. */
static bool refuse(dunlin_onnx_reader *reader, dunlin_status status, const char *what,
                   uint64_t limit)
{
    if (reader->status == DUNLIN_OK) {
        reader->status =
            dunlin__fail(reader->error, status, "onnx", 0,
                         "%s (limit %" PRIu64 ") near byte %" PRIu64 " of the model file", what,
                         limit, reader->file->source.offset);
    }
    return false;
}

static bool damaged(dunlin_onnx_reader *reader, const char *what)
{
    if (reader->status == DUNLIN_OK) {
        reader->status = dunlin__fail(reader->error, DUNLIN_MODEL, "onnx", 0,
                                      "the model file is damaged near byte %" PRIu64 ": %s",
                                      reader->file->source.offset, what);
    }
    return false;
}

/* Makes room for one more element of a table. */
static bool reserve(dunlin_onnx_reader *reader, void **array, size_t *capacity, size_t n,
                    size_t bytes, size_t limit, const char *what)
{
    if (n >= limit) {
        return refuse(reader, DUNLIN_LIMIT, what, limit);
    }
    if (!dunlin__grow_array(&reader->file->alloc, array, capacity, n + 1, bytes)) {
        return refuse(reader, DUNLIN_MEMORY, "no memory for the model's tables", 0);
    }
    return true;
}

bool dunlin__onnx_reserve(dunlin_onnx_reader *reader, void *array, size_t *capacity, size_t n,
                          size_t bytes, size_t limit, const char *what)
{
    void *memory = NULL;
    memcpy(&memory, array, sizeof memory);
    bool is_there = reserve(reader, &memory, capacity, n, bytes, limit, what);
    memcpy(array, &memory, sizeof memory);
    return is_there;
}

bool dunlin__onnx_reader_refuse(dunlin_onnx_reader *reader, const char *what, uint64_t limit)
{
    return refuse(reader, DUNLIN_LIMIT, what, limit);
}

bool dunlin__onnx_reader_no_memory(dunlin_onnx_reader *reader)
{
    return refuse(reader, DUNLIN_MEMORY, "no memory for the model's tables", 0);
}

bool dunlin__onnx_reader_damaged(dunlin_onnx_reader *reader, const char *what)
{
    return damaged(reader, what);
}

bool dunlin__onnx_read_text(dunlin_onnx_reader *reader, pb_istream_t *stream, size_t max_bytes,
                            dunlin_onnx_text *out)
{
    dunlin_onnx_file *file = reader->file;
    size_t n = stream->bytes_left;
    if (n > max_bytes) {
        return refuse(reader, DUNLIN_LIMIT, "a name is too long", max_bytes);
    }
    if (file->n_text + n + 1 > DUNLIN_ONNX_MAX_TEXT_BYTES) {
        return refuse(reader, DUNLIN_LIMIT, "all names together are too long",
                      DUNLIN_ONNX_MAX_TEXT_BYTES);
    }
    void *text = file->text;
    if (!dunlin__grow_array(&file->alloc, &text, &file->text_capacity, file->n_text + n + 1, 1)) {
        return refuse(reader, DUNLIN_MEMORY, "no memory for the model's names", 0);
    }
    file->text = text;
    char *place = file->text + file->n_text;
    if (!pb_read(stream, (pb_byte_t *)place, n)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)place[i] < 0x20 || place[i] == 0x7F) {
            return damaged(reader, "a name holds a control character");
        }
    }
    place[n] = '\0';
    *out = (dunlin_onnx_text)file->n_text;
    file->n_text += n + 1;
    return true;
}

bool dunlin__onnx_skip(pb_istream_t *stream)
{
    /* nanopb skips a stream of our own in steps of 16 bytes; the offset can simply move. A scalar
     * outside a packed list comes in a buffer of nanopb's, with nothing of ours to move. */
    if (stream->callback == dunlin__onnx_pb_read) {
        dunlin_onnx_source *source = stream->state;
        source->offset += stream->bytes_left;
        stream->bytes_left = 0;
        return true;
    }
    return pb_read(stream, NULL, stream->bytes_left);
}

bool dunlin__onnx_pb_read(pb_istream_t *stream, pb_byte_t *buffer, size_t n)
{
    return dunlin__onnx_source_read(stream->state, buffer, n);
}

bool dunlin__onnx_add_int(dunlin_onnx_reader *reader, int64_t value)
{
    if (!DUNLIN_ONNX_RESERVE(reader, ints, DUNLIN_ONNX_MAX_ITEMS, "too many integers in lists")) {
        return false;
    }
    reader->file->ints[reader->file->n_ints++] = value;
    return true;
}

bool dunlin__onnx_add_tensor(dunlin_onnx_reader *reader, uint32_t *out_index)
{
    if (!DUNLIN_ONNX_RESERVE(reader, tensors, DUNLIN_ONNX_MAX_TENSORS, "too many tensors")) {
        return false;
    }
    dunlin_onnx_file *file = reader->file;
    memset(&file->tensors[file->n_tensors], 0, sizeof *file->tensors);
    *out_index = (uint32_t)file->n_tensors++;
    return true;
}

const char *dunlin__onnx_file_text(const dunlin_onnx_file *file, dunlin_onnx_text text)
{
    return text < file->n_text ? file->text + text : "";
}
