/*
 * manifest_read.c - reads a manifest, one record at a time, from memory or a file.
 *
 * A reader holds an offset and the counts so far; it reads the bytes of one record at a time.
 * Nothing of a record is used before the rules have checked it.
 */
#include "manifest_rules.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/manifest.h>

#include <pb_decode.h>
#include <string.h>

/* A record with its tag and length; the largest we write is about 370 bytes. */
#define WINDOW_BYTES 512u
#define HASH_BLOCK_BYTES 4096u

static dunlin_status read_memory(void *ctx, uint64_t offset, void *buffer, size_t n_bytes)
{
    memcpy(buffer, (const uint8_t *)ctx + offset, n_bytes);
    return DUNLIN_OK;
}

dunlin__manifest_source dunlin__manifest_source_memory(const uint8_t *bytes, size_t n_bytes)
{
    union {
        const uint8_t *in;
        void *out;
    } both = {.in = bytes}; /* read_memory does not write through it */
    return (dunlin__manifest_source){
        .ctx = both.out, .read_fn = read_memory, .total_bytes = n_bytes};
}

/* The bytes at the reader's place, as many as a record may need. */
static dunlin_status read_window(const dunlin__manifest_reader *reader,
                                 uint8_t window[WINDOW_BYTES], size_t *out_n_bytes,
                                 dunlin_error *error)
{
    uint64_t n_left = reader->source.total_bytes - reader->offset;
    size_t n_bytes = (n_left < WINDOW_BYTES) ? (size_t)n_left : WINDOW_BYTES;
    dunlin_status status = DUNLIN_OK;
    if (n_bytes > 0) {
        status = reader->source.read_fn(reader->source.ctx, reader->offset, window, n_bytes);
    }
    if (status != DUNLIN_OK) {
        return dunlin__fail(error, status, "manifest", 0,
                            "%zu bytes at %llu of the manifest cannot be read", n_bytes,
                            (unsigned long long)reader->offset);
    }
    *out_n_bytes = n_bytes;
    return DUNLIN_OK;
}

dunlin_status dunlin__manifest_reader_begin(dunlin__manifest_reader *reader,
                                            const dunlin__manifest_source *source,
                                            dunlin__manifest_kind kind, dunlin_error *error)
{
    *reader = (dunlin__manifest_reader){.source = *source};
    reader->check.kind = kind;
    reader->check.is_reader = true;
    if (source->total_bytes > DUNLIN_WIRE_MANIFEST_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "manifest", 0,
                            "a manifest of %llu bytes, at most %u are allowed",
                            (unsigned long long)source->total_bytes, DUNLIN_WIRE_MANIFEST_BYTES);
    }
    uint8_t window[WINDOW_BYTES];
    size_t n_bytes = 0;
    DUNLIN_TRY(read_window(reader, window, &n_bytes, error));
    pb_istream_t stream = pb_istream_from_buffer(window, n_bytes);
    pb_wire_type_t wire_type = PB_WT_VARINT;
    uint32_t tag = 0;
    uint32_t version = 0;
    bool is_end = false;
    if (!pb_decode_tag(&stream, &wire_type, &tag, &is_end) || tag != MANIFEST_VERSION_TAG ||
        wire_type != PB_WT_VARINT || !pb_decode_varint32(&stream, &version)) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "%llu bytes do not begin with a manifest's version",
                            (unsigned long long)source->total_bytes);
    }
    if (version != MANIFEST_VERSION) {
        return dunlin__fail(error, DUNLIN_VERSION, "manifest", 0,
                            "the manifest has version %u, version %u is understood", version,
                            MANIFEST_VERSION);
    }
    reader->offset = n_bytes - stream.bytes_left;
    return DUNLIN_OK;
}

/* Decodes the record at the reader's place and the bytes it takes; judges nothing. */
static dunlin_status read_record(const dunlin__manifest_reader *reader,
                                 dunlin_v1_manifest_record_t *out_record, size_t *out_n_bytes,
                                 dunlin_error *error)
{
    uint8_t window[WINDOW_BYTES];
    size_t n_bytes = 0;
    DUNLIN_TRY(read_window(reader, window, &n_bytes, error));
    pb_istream_t stream = pb_istream_from_buffer(window, n_bytes);
    unsigned long long place = reader->offset;
    pb_wire_type_t wire_type = PB_WT_VARINT;
    uint32_t tag = 0;
    uint32_t length = 0;
    bool is_end = false;
    if (!pb_decode_tag(&stream, &wire_type, &tag, &is_end) || tag != MANIFEST_RECORDS_TAG ||
        wire_type != PB_WT_STRING || !pb_decode_varint32(&stream, &length)) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "no record of a manifest begins at byte %llu", place);
    }
    if (length > stream.bytes_left) {
        bool is_cut = n_bytes < WINDOW_BYTES;
        return dunlin__fail(error, is_cut ? DUNLIN_PROTOCOL : DUNLIN_LIMIT, "manifest", 0,
                            "the record at byte %llu has %u bytes, %s %zu", place, length,
                            is_cut ? "the manifest ends after" : "the limit is", stream.bytes_left);
    }
    size_t head_bytes = n_bytes - stream.bytes_left;
    pb_istream_t body = pb_istream_from_buffer(window + head_bytes, length);
    if (!pb_decode(&body, DUNLIN_V1_MANIFEST_RECORD_FIELDS, out_record)) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "the record at byte %llu cannot be read (%s)", place,
                            PB_GET_ERROR(&body));
    }
    *out_n_bytes = head_bytes + length;
    return DUNLIN_OK;
}

static dunlin_status take_stream(dunlin__manifest_check *check, const dunlin__stream *stream,
                                 dunlin__manifest_record *out_record, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__manifest_judge_stream(check, stream, error));
    out_record->item = DUNLIN_MANIFEST_STREAM;
    out_record->index = check->n_streams;
    out_record->n_bytes = stream->total_bytes;
    dunlin__manifest_note_stream(check, stream);
    return DUNLIN_OK;
}

static dunlin_status take_tensor(dunlin__manifest_check *check, const dunlin__tensor_entry *tensor,
                                 dunlin__manifest_record *out_record, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__manifest_judge_tensor(check, tensor, error));
    out_record->item = DUNLIN_MANIFEST_TENSOR;
    out_record->index = check->stream_tensors;
    out_record->offset = check->stream_bytes;
    out_record->n_bytes = tensor->stored_bytes;
    out_record->tensor = *tensor;
    dunlin__manifest_note_tensor(check, tensor);
    return DUNLIN_OK;
}

static dunlin_status take_chunk(dunlin__manifest_check *check, const dunlin_v1_chunk_t *chunk,
                                dunlin__manifest_record *out_record, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__manifest_judge_chunk(check, chunk->sha256, error));
    uint64_t chunk_bytes = check->stream.chunk_bytes;
    uint64_t offset = check->stream_chunks * chunk_bytes;
    uint64_t n_left = check->stream.total_bytes - offset;
    out_record->item = DUNLIN_MANIFEST_CHUNK;
    out_record->index = check->stream_chunks;
    out_record->chunk_index = check->n_chunks;
    out_record->offset = offset;
    out_record->n_bytes = (n_left < chunk_bytes) ? n_left : chunk_bytes;
    memcpy(out_record->sha256, chunk->sha256, DUNLIN_SHA256_BYTES);
    dunlin__manifest_note_chunk(check);
    return DUNLIN_OK;
}

dunlin_status dunlin__manifest_reader_next(dunlin__manifest_reader *reader,
                                           dunlin__manifest_record *out_record, dunlin_error *error)
{
    memset(out_record, 0, sizeof(*out_record));
    if (reader->offset == reader->source.total_bytes) {
        return dunlin__manifest_judge_end(&reader->check, error);
    }
    dunlin_v1_manifest_record_t record = {0};
    size_t n_bytes = 0;
    DUNLIN_TRY(read_record(reader, &record, &n_bytes, error));
    dunlin_status status = DUNLIN_OK;
    if (record.which_record == DUNLIN_V1_MANIFEST_RECORD_STREAM_TAG) {
        status = take_stream(&reader->check, &record.record.stream, out_record, error);
    } else if (record.which_record == DUNLIN_V1_MANIFEST_RECORD_TENSOR_TAG) {
        status = take_tensor(&reader->check, &record.record.tensor, out_record, error);
    } else if (record.which_record == DUNLIN_V1_MANIFEST_RECORD_CHUNK_TAG) {
        status = take_chunk(&reader->check, &record.record.chunk, out_record, error);
    } else {
        status = dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                              "the record at byte %llu is no stream, tensor or chunk",
                              (unsigned long long)reader->offset);
    }
    if (status == DUNLIN_OK) {
        out_record->stream = reader->check.stream;
        reader->offset += n_bytes;
    }
    return status;
}

dunlin_status dunlin__manifest_reader_find(dunlin__manifest_reader *reader, const char *stream_name,
                                           dunlin__stream *out_stream, dunlin_error *error)
{
    dunlin__manifest_record record;
    *out_stream = (dunlin__stream){0};
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_STREAM && strcmp(record.stream.name, stream_name) == 0) {
            *out_stream = record.stream;
            return DUNLIN_OK;
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    return dunlin__fail(error, DUNLIN_MISMATCH, "manifest", 0,
                        "the manifest has no stream \"%.64s\"", stream_name);
}

static dunlin_status hash_source(const dunlin__manifest_source *source, uint8_t *out_sha256,
                                 dunlin_error *error)
{
    uint8_t block[HASH_BLOCK_BYTES];
    dunlin__sha256 hash;
    DUNLIN_TRY(dunlin__sha256_begin(&hash, error));
    for (uint64_t offset = 0; offset < source->total_bytes;) {
        uint64_t n_left = source->total_bytes - offset;
        size_t n_bytes = (n_left < sizeof(block)) ? (size_t)n_left : sizeof(block);
        dunlin_status status = source->read_fn(source->ctx, offset, block, n_bytes);
        if (status != DUNLIN_OK) {
            dunlin__sha256_abort(&hash);
            return dunlin__fail(error, status, "manifest", 0,
                                "%zu bytes at %llu of the manifest cannot be read", n_bytes,
                                (unsigned long long)offset);
        }
        DUNLIN_TRY(dunlin__sha256_update(&hash, block, n_bytes, error));
        offset += n_bytes;
    }
    return dunlin__sha256_end(&hash, out_sha256, error);
}

dunlin_status dunlin__manifest_check_all(const dunlin__manifest_source *source,
                                         dunlin__manifest_kind kind,
                                         dunlin__manifest_summary *out_summary, dunlin_error *error)
{
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    memset(out_summary, 0, sizeof(*out_summary));
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, source, kind, error));
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
    } while (record.item != DUNLIN_MANIFEST_END);
    DUNLIN_TRY(hash_source(source, out_summary->sha256, error));
    out_summary->n_streams = reader.check.n_streams;
    out_summary->n_tensors = reader.check.n_tensors;
    out_summary->n_chunks = reader.check.n_chunks;
    out_summary->total_bytes = reader.check.total_bytes;
    return DUNLIN_OK;
}
