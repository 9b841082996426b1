/*
 * manifest_write.c - writes a manifest, one record at a time, into the caller's buffer.
 *
 * A record is checked, then encoded, then counted: a failure leaves the writer as it was.
 */
#include "manifest_rules.h"

#include <mem/support.h>
#include <wire/manifest.h>

#include <pb_encode.h>
#include <string.h>

_Static_assert(DUNLIN_V1_MANIFEST_RECORD_SIZE + 8 <= DUNLIN_MANIFEST_RECORD_BYTES,
               "a record fits an empty buffer");

dunlin_status dunlin__manifest_writer_begin(dunlin__manifest_writer *writer,
                                            dunlin__manifest_kind kind, uint8_t *buffer,
                                            size_t capacity, dunlin_error *error)
{
    size_t limit = (capacity < DUNLIN_WIRE_MANIFEST_BYTES) ? capacity : DUNLIN_WIRE_MANIFEST_BYTES;
    *writer = (dunlin__manifest_writer){.bytes = buffer, .capacity = limit};
    writer->check.kind = kind;
    pb_ostream_t stream = pb_ostream_from_buffer(buffer, limit);
    if (!pb_encode_tag(&stream, PB_WT_VARINT, MANIFEST_VERSION_TAG) ||
        !pb_encode_varint(&stream, MANIFEST_VERSION)) {
        return dunlin__fail(error, DUNLIN_LIMIT, "manifest", 0,
                            "a manifest does not fit a buffer of %zu bytes", capacity);
    }
    writer->n_bytes = stream.bytes_written;
    return DUNLIN_OK;
}

static dunlin_status put_record(dunlin__manifest_writer *writer,
                                const dunlin_v1_manifest_record_t *record, dunlin_error *error)
{
    const size_t room = writer->capacity - writer->n_bytes;
    const size_t n_left = DUNLIN_WIRE_MANIFEST_BYTES - writer->n_drained - writer->n_bytes;
    pb_ostream_t stream =
        pb_ostream_from_buffer(writer->bytes + writer->n_bytes, room < n_left ? room : n_left);
    if (!pb_encode_tag(&stream, PB_WT_STRING, MANIFEST_RECORDS_TAG) ||
        !pb_encode_submessage(&stream, DUNLIN_V1_MANIFEST_RECORD_FIELDS, record)) {
        return dunlin__fail(error, DUNLIN_LIMIT, "manifest", 0,
                            "the manifest does not fit %zu bytes (%s)",
                            room < n_left ? writer->capacity : (size_t)DUNLIN_WIRE_MANIFEST_BYTES,
                            PB_GET_ERROR(&stream));
    }
    writer->n_bytes += stream.bytes_written;
    return DUNLIN_OK;
}

dunlin_status dunlin__manifest_writer_stream(dunlin__manifest_writer *writer,
                                             const dunlin__stream *stream, dunlin_error *error)
{
    dunlin_v1_manifest_record_t record = {.which_record = DUNLIN_V1_MANIFEST_RECORD_STREAM_TAG};
    dunlin__stream *complete = &record.record.stream;
    *complete = *stream;
    if (complete->n_chunks == 0) {
        uint64_t n_chunks = dunlin__chunk_count(stream->total_bytes, stream->chunk_bytes);
        complete->n_chunks = (n_chunks < UINT32_MAX) ? (uint32_t)n_chunks : UINT32_MAX;
    }
    DUNLIN_TRY(dunlin__manifest_judge_stream(&writer->check, complete, error));
    DUNLIN_TRY(put_record(writer, &record, error));
    dunlin__manifest_note_stream(&writer->check, complete);
    return DUNLIN_OK;
}

dunlin_status dunlin__manifest_writer_tensor(dunlin__manifest_writer *writer,
                                             const dunlin__tensor_entry *tensor,
                                             dunlin_error *error)
{
    dunlin_v1_manifest_record_t record = {.which_record = DUNLIN_V1_MANIFEST_RECORD_TENSOR_TAG};
    record.record.tensor = *tensor;
    DUNLIN_TRY(dunlin__manifest_judge_tensor(&writer->check, tensor, error));
    DUNLIN_TRY(put_record(writer, &record, error));
    dunlin__manifest_note_tensor(&writer->check, tensor);
    return DUNLIN_OK;
}

dunlin_status dunlin__manifest_writer_chunk(dunlin__manifest_writer *writer,
                                            const uint8_t sha256[DUNLIN_SHA256_BYTES],
                                            dunlin_error *error)
{
    dunlin_v1_manifest_record_t record = {.which_record = DUNLIN_V1_MANIFEST_RECORD_CHUNK_TAG};
    memcpy(record.record.chunk.sha256, sha256, DUNLIN_SHA256_BYTES);
    DUNLIN_TRY(dunlin__manifest_judge_chunk(&writer->check, sha256, error));
    DUNLIN_TRY(put_record(writer, &record, error));
    dunlin__manifest_note_chunk(&writer->check);
    return DUNLIN_OK;
}

size_t dunlin__manifest_writer_drain(dunlin__manifest_writer *writer)
{
    const size_t n_bytes = writer->n_bytes;
    writer->n_drained += n_bytes;
    writer->n_bytes = 0;
    return n_bytes;
}

dunlin_status dunlin__manifest_writer_end(dunlin__manifest_writer *writer, size_t *out_n_bytes,
                                          dunlin_error *error)
{
    *out_n_bytes = 0;
    DUNLIN_TRY(dunlin__manifest_judge_end(&writer->check, error));
    *out_n_bytes = writer->n_drained + writer->n_bytes;
    return DUNLIN_OK;
}
