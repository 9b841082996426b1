/*
 * tensor_stream.c - writes tensors to chunks and reads them back, in blocks.
 *
 * Of the model only the caller's piece (writing) or one block (reading) is in memory. Elements are
 * little-endian on the wire; hosts of the other order convert a small block at a time.
 */
#include <mem/checked.h>
#include <mem/support.h>
#include <wire/tensor_stream.h>

#include <string.h>

#define ELEMENT_BYTES 4u
#define BLOCK_VALUES (DUNLIN_WIRE_BLOCK_BYTES / ELEMENT_BYTES)

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define IS_BIG_ENDIAN 1
#else
#define IS_BIG_ENDIAN 0
#endif

#define SWAP_VALUES 1024u

/* Turns 4-byte elements around. */
static void swap_elements(void *bytes, size_t n_values)
{
    uint8_t *at = bytes;
    for (size_t i = 0; i < n_values; i++, at += ELEMENT_BYTES) {
        uint32_t value = 0;
        memcpy(&value, at, sizeof(value));
        value = __builtin_bswap32(value);
        memcpy(at, &value, sizeof(value));
    }
}

/* Index of the first value that is not finite (all exponent bits set), or `n_values`. */
static size_t find_not_finite(const uint8_t *values, size_t n_values)
{
    for (size_t i = 0; i < n_values; i++) {
        uint32_t bits = 0;
        memcpy(&bits, values + i * ELEMENT_BYTES, sizeof(bits));
        if ((bits & 0x7f800000u) == 0x7f800000u) {
            return i;
        }
    }
    return n_values;
}

static dunlin_status fail_not_finite(dunlin_error *error, const char *name, uint64_t element)
{
    return dunlin__fail(error, DUNLIN_NUMERIC, "stream", 0,
                        "tensor \"%.100s\": element %llu is not a finite number", name,
                        (unsigned long long)element);
}

static dunlin_status check_encoding(const dunlin__stream *stream, dunlin_error *error)
{
    if (stream->encoding != DUNLIN_V1_ENCODING_F32) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "stream", 0,
                            "stream \"%.64s\": the encoding %s is not supported, only F32",
                            stream->name, dunlin__encoding_name(stream->encoding));
    }
    return DUNLIN_OK;
}

/* ---- writing ---- */

dunlin_status dunlin__tensor_writer_begin(dunlin__tensor_writer *writer,
                                          const dunlin__stream *stream, bool check_finite,
                                          const dunlin__stream_sink *sink, dunlin_error *error)
{
    *writer = (dunlin__tensor_writer){.failed = DUNLIN_STATE};
    DUNLIN_TRY(check_encoding(stream, error));
    if (stream->chunk_bytes < DUNLIN_WIRE_CHUNK_MIN_BYTES ||
        stream->chunk_bytes > DUNLIN_WIRE_CHUNK_MAX_BYTES) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "stream", 0,
                            "chunks of %u bytes, %u to %u are allowed", stream->chunk_bytes,
                            DUNLIN_WIRE_CHUNK_MIN_BYTES, DUNLIN_WIRE_CHUNK_MAX_BYTES);
    }
    if (stream->total_bytes % ELEMENT_BYTES != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "stream", 0,
                            "an F32 stream of %llu bytes, which is no multiple of %u",
                            (unsigned long long)stream->total_bytes, ELEMENT_BYTES);
    }
    writer->sink = *sink;
    writer->check_finite = check_finite;
    writer->total_bytes = stream->total_bytes;
    writer->chunk_bytes = stream->chunk_bytes;
    writer->failed = DUNLIN_OK;
    return DUNLIN_OK;
}

static dunlin_status finish_chunk(dunlin__tensor_writer *writer, dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    uint32_t chunk_bytes = writer->chunk_fill;
    writer->chunk_fill = 0;
    DUNLIN_TRY(dunlin__sha256_end(&writer->hash, sha256, error));
    uint32_t chunk_index = writer->n_chunks++;
    if (writer->sink.chunk_fn == NULL) {
        return DUNLIN_OK;
    }
    return writer->sink.chunk_fn(writer->sink.ctx, chunk_index, chunk_bytes, sha256, error);
}

/* Bytes in wire order, cut at the ends of chunks. */
static dunlin_status emit(dunlin__tensor_writer *writer, const uint8_t *bytes, size_t n_bytes,
                          dunlin_error *error)
{
    while (n_bytes > 0) {
        if (writer->chunk_fill == 0) {
            DUNLIN_TRY(dunlin__sha256_begin(&writer->hash, error));
        }
        size_t room = writer->chunk_bytes - writer->chunk_fill;
        size_t part = (n_bytes < room) ? n_bytes : room;
        /* Counted first: from here on the chunk has a hash to end or to abort. */
        writer->chunk_fill += (uint32_t)part;
        writer->n_bytes += part;
        DUNLIN_TRY(dunlin__sha256_update(&writer->hash, bytes, part, error));
        DUNLIN_TRY(writer->sink.write_fn(writer->sink.ctx, bytes, part, error));
        if (writer->chunk_fill == writer->chunk_bytes) {
            DUNLIN_TRY(finish_chunk(writer, error));
        }
        bytes += part;
        n_bytes -= part;
    }
    return DUNLIN_OK;
}

static dunlin_status emit_values(dunlin__tensor_writer *writer, const uint8_t *values,
                                 size_t n_values, dunlin_error *error)
{
    if (!IS_BIG_ENDIAN) {
        return emit(writer, values, n_values * ELEMENT_BYTES, error);
    }
    uint8_t swapped[SWAP_VALUES * ELEMENT_BYTES];
    while (n_values > 0) {
        size_t part = (n_values < SWAP_VALUES) ? n_values : SWAP_VALUES;
        memcpy(swapped, values, part * ELEMENT_BYTES);
        swap_elements(swapped, part);
        DUNLIN_TRY(emit(writer, swapped, part * ELEMENT_BYTES, error));
        values += part * ELEMENT_BYTES;
        n_values -= part;
    }
    return DUNLIN_OK;
}

static dunlin_status write_values(dunlin__tensor_writer *writer, const char *name,
                                  const uint8_t *values, size_t n_values, dunlin_error *error)
{
    uint64_t n_left = (writer->total_bytes - writer->n_bytes) / ELEMENT_BYTES;
    if (n_values > n_left) {
        return dunlin__fail(error, DUNLIN_LIMIT, "stream", 0,
                            "tensor \"%.100s\": %zu values, but the stream of %llu bytes has room "
                            "for %llu",
                            name, n_values, (unsigned long long)writer->total_bytes,
                            (unsigned long long)n_left);
    }
    for (size_t first = 0; first < n_values; first += BLOCK_VALUES) {
        size_t n_block = (n_values - first < BLOCK_VALUES) ? n_values - first : BLOCK_VALUES;
        const uint8_t *block = values + first * ELEMENT_BYTES;
        if (writer->check_finite) {
            size_t bad = find_not_finite(block, n_block);
            if (bad < n_block) {
                return fail_not_finite(error, name, first + bad);
            }
        }
        DUNLIN_TRY(emit_values(writer, block, n_block, error));
    }
    return DUNLIN_OK;
}

/* Remembers that the stream is over, so that later calls fail instead of leaving a hole in it. */
static dunlin_status end_on_failure(dunlin__tensor_writer *writer, dunlin_status status)
{
    if (status != DUNLIN_OK) {
        dunlin__tensor_writer_abort(writer);
        writer->failed = status;
    }
    return status;
}

static dunlin_status check_open(const dunlin__tensor_writer *writer, dunlin_error *error)
{
    if (writer->failed != DUNLIN_OK) {
        return dunlin__fail(error, DUNLIN_STATE, "stream", 0,
                            "the stream has ended (%s) and takes no more",
                            dunlin_status_name(writer->failed));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__tensor_writer_values(dunlin__tensor_writer *writer, const char *name,
                                           const float *values, size_t n_values,
                                           dunlin_error *error)
{
    DUNLIN_TRY(check_open(writer, error));
    return end_on_failure(writer,
                          write_values(writer, name, (const uint8_t *)values, n_values, error));
}

static dunlin_status check_piece(const dunlin_tensor_view *piece, size_t *out_n_values,
                                 dunlin_error *error)
{
    const char *name = (piece->name != NULL) ? piece->name : "";
    int64_t n_elements = 0;
    uint64_t n_bytes = 0;
    if (piece->dtype != DUNLIN_F32) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "stream", 0,
                            "tensor \"%.100s\" has type %d, only F32 can be sent", name,
                            (int)piece->dtype);
    }
    if (dunlin_shape_count(&piece->shape, &n_elements) != DUNLIN_OK || n_elements < 0 ||
        !dunlin__mul_u64((uint64_t)n_elements, ELEMENT_BYTES, &n_bytes) ||
        n_bytes != piece->data_bytes || (n_bytes > 0 && piece->data == NULL)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "stream", 0,
                            "tensor \"%.100s\": %zu bytes do not agree with its shape", name,
                            piece->data_bytes);
    }
    *out_n_values = piece->data_bytes / ELEMENT_BYTES;
    return DUNLIN_OK;
}

dunlin_status dunlin__tensor_writer_add(dunlin__tensor_writer *writer,
                                        const dunlin_tensor_view *piece, dunlin_error *error)
{
    size_t n_values = 0;
    DUNLIN_TRY(check_open(writer, error));
    DUNLIN_TRY(check_piece(piece, &n_values, error));
    const char *name = (piece->name != NULL) ? piece->name : "";
    return end_on_failure(writer, write_values(writer, name, piece->data, n_values, error));
}

dunlin_status dunlin__tensor_writer_end(dunlin__tensor_writer *writer, dunlin_error *error)
{
    DUNLIN_TRY(check_open(writer, error));
    dunlin_status status = DUNLIN_OK;
    if (writer->n_bytes != writer->total_bytes) {
        status = dunlin__fail(
            error, DUNLIN_MISMATCH, "stream", 0, "the stream ends after %llu of its %llu bytes",
            (unsigned long long)writer->n_bytes, (unsigned long long)writer->total_bytes);
    } else if (writer->chunk_fill > 0) {
        status = finish_chunk(writer, error);
    }
    (void)end_on_failure(writer, status);
    if (status == DUNLIN_OK) {
        writer->failed = DUNLIN_STATE;
    }
    return status;
}

void dunlin__tensor_writer_abort(dunlin__tensor_writer *writer)
{
    if (writer->chunk_fill > 0) {
        dunlin__sha256_abort(&writer->hash);
        writer->chunk_fill = 0;
    }
    writer->failed = DUNLIN_STATE;
}

/* ---- reading ---- */

dunlin_status dunlin__tensor_reader_begin(dunlin__tensor_reader *reader,
                                          const dunlin__manifest_reader *manifest,
                                          const dunlin__stream_source *source, bool check_finite,
                                          float *block, size_t block_bytes, dunlin_error *error)
{
    memset(reader, 0, sizeof(*reader));
    if (manifest->check.n_streams == 0 || manifest->check.stream_tensors != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "stream", 0,
                            "the manifest has %u streams and %u tensors of the last one were read; "
                            "reading begins at the first tensor of a stream",
                            (unsigned)manifest->check.n_streams,
                            (unsigned)manifest->check.stream_tensors);
    }
    if (block == NULL || block_bytes < ELEMENT_BYTES) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "stream", 0,
                            "a block of %zu bytes, at least %u are needed", block_bytes,
                            ELEMENT_BYTES);
    }
    DUNLIN_TRY(check_encoding(&manifest->check.stream, error));
    reader->source = *source;
    reader->manifest = *manifest;
    reader->stream = manifest->check.stream;
    reader->check_finite = check_finite;
    reader->block = block;
    reader->block_values = block_bytes / ELEMENT_BYTES;
    if (reader->block_values > BLOCK_VALUES) {
        reader->block_values = BLOCK_VALUES;
    }
    return DUNLIN_OK;
}

static dunlin_status next_tensor(dunlin__tensor_reader *reader, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__manifest_reader_next(&reader->manifest, &reader->record, error));
    if (reader->record.item != DUNLIN_MANIFEST_TENSOR) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "stream", 0,
                            "stream \"%s\": a tensor is missing in the manifest",
                            reader->stream.name);
    }
    DUNLIN_TRY(dunlin__tensor_entry_count(&reader->record.tensor, &reader->n_elements, error));
    reader->next_element = 0;
    reader->has_tensor = true;
    return DUNLIN_OK;
}

static dunlin_status read_values(dunlin__tensor_reader *reader, size_t n_values,
                                 dunlin_error *error)
{
    DUNLIN_TRY(
        reader->source.read_fn(reader->source.ctx, reader->block, n_values * ELEMENT_BYTES, error));
    if (IS_BIG_ENDIAN) {
        swap_elements(reader->block, n_values);
    }
    if (reader->check_finite) {
        size_t bad = find_not_finite((const uint8_t *)reader->block, n_values);
        if (bad < n_values) {
            return fail_not_finite(error, reader->record.tensor.name, reader->next_element + bad);
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__tensor_reader_next(dunlin__tensor_reader *reader,
                                         dunlin__tensor_piece *out_piece, dunlin_error *error)
{
    *out_piece = (dunlin__tensor_piece){0};
    if (!reader->has_tensor || reader->next_element == reader->n_elements) {
        if (reader->manifest.check.stream_tensors == reader->stream.n_tensors) {
            return DUNLIN_OK;
        }
        DUNLIN_TRY(next_tensor(reader, error));
    }
    uint64_t n_left = reader->n_elements - reader->next_element;
    size_t n_values = (n_left < reader->block_values) ? (size_t)n_left : reader->block_values;
    if (n_values > 0) {
        DUNLIN_TRY(read_values(reader, n_values, error));
    }
    out_piece->tensor = &reader->record.tensor;
    out_piece->tensor_index = reader->record.index;
    out_piece->n_elements = reader->n_elements;
    out_piece->first_element = reader->next_element;
    out_piece->n_values = n_values;
    out_piece->values = reader->block;
    reader->next_element += n_values;
    return DUNLIN_OK;
}
