/*
 * manifest_rules.c - the rules of a manifest, record by record.
 *
 * Every count and sum is checked before it is added, so none can wrap: chunks and tensors are
 * limited in all, a stream is at most 4,096 chunks of 1 MiB, and tensors never pass their stream's
 * total.
 */
#include "manifest_rules.h"

#include "codec/rules.h"

#include <mem/checked.h>
#include <mem/support.h>
#include <wire/compress.h>
#include <wire/manifest.h>

#include <stdio.h>
#include <string.h>

#define SPARSE_PAIR_BYTES 8u
#define SCALE_BYTES 4u

const char *dunlin__encoding_name(dunlin_v1_encoding_t encoding)
{
    static const char *const names[] = {"UNSPECIFIED", "F32",         "F16",   "INT8_SCALE",
                                        "SPARSE",      "MASKED_RING", "BYTES", "PACKED"};
    size_t index = (size_t)encoding;
    return (index < sizeof(names) / sizeof(names[0])) ? names[index] : "UNKNOWN";
}

uint64_t dunlin__chunk_count(uint64_t total_bytes, uint32_t chunk_bytes)
{
    if (chunk_bytes == 0) {
        return 0;
    }
    return total_bytes / chunk_bytes + ((total_bytes % chunk_bytes != 0) ? 1 : 0);
}

dunlin_status dunlin__tensor_entry_count(const dunlin__tensor_entry *tensor,
                                         uint64_t *out_n_elements, dunlin_error *error)
{
    uint64_t n_elements = 1;
    *out_n_elements = 0;
    for (size_t i = 0; i < tensor->dims_count && i < DUNLIN_WIRE_DIMS; i++) {
        if (tensor->dims[i] > INT64_MAX ||
            !dunlin__mul_u64(n_elements, tensor->dims[i], &n_elements) || n_elements > INT64_MAX) {
            return dunlin__fail(error, DUNLIN_OVERFLOW, "manifest", 0,
                                "tensor \"%.100s\": its shape has more elements than 63 bits count",
                                tensor->name);
        }
    }
    *out_n_elements = n_elements;
    return DUNLIN_OK;
}

dunlin_status dunlin__encoding_bytes(dunlin_v1_encoding_t encoding, uint32_t ring_bits,
                                     uint64_t n_elements, uint64_t *out_bytes, dunlin_error *error)
{
    uint64_t per_element = 0;
    uint64_t head_bytes = 0;
    *out_bytes = 0;
    if (encoding == DUNLIN_V1_ENCODING_F32) {
        per_element = 4;
    } else if (encoding == DUNLIN_V1_ENCODING_F16) {
        per_element = 2;
    } else if (encoding == DUNLIN_V1_ENCODING_INT8_SCALE) {
        per_element = 1;
        head_bytes = SCALE_BYTES;
    } else if (encoding == DUNLIN_V1_ENCODING_MASKED_RING) {
        per_element = ring_bits / 8;
    } else {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "manifest", 0,
                            "the encoding %s has no fixed size for an element",
                            dunlin__encoding_name(encoding));
    }
    uint64_t n_bytes = 0;
    if (!dunlin__mul_u64(n_elements, per_element, &n_bytes) ||
        !dunlin__add_u64(n_bytes, head_bytes, out_bytes)) {
        return dunlin__fail(error, DUNLIN_OVERFLOW, "manifest", 0,
                            "%llu elements in %s do not fit 64 bits of bytes",
                            (unsigned long long)n_elements, dunlin__encoding_name(encoding));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__tensor_entry_make(const char *name, const dunlin_shape *shape,
                                        dunlin_v1_rule_t rule, dunlin__tensor_entry *out_tensor,
                                        dunlin_error *error)
{
    *out_tensor = (dunlin__tensor_entry){.rule = rule};
    if (name == NULL || !dunlin__text_is_valid(name, DUNLIN_WIRE_NAME_CHARS)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "manifest", 0,
                            "a tensor's name is not 1 to %u bytes of UTF-8 without control "
                            "characters",
                            DUNLIN_WIRE_NAME_CHARS);
    }
    if (shape->n_dims < 0 || shape->n_dims > (int32_t)DUNLIN_WIRE_DIMS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "manifest", 0,
                            "tensor \"%.100s\" has %d dimensions, 0 to %u are allowed", name,
                            (int)shape->n_dims, DUNLIN_WIRE_DIMS);
    }
    (void)snprintf(out_tensor->name, sizeof(out_tensor->name), "%s", name);
    for (int32_t i = 0; i < shape->n_dims; i++) {
        if (shape->dims[i] < 0) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "manifest", 0,
                                "tensor \"%.100s\": dimension %d is %lld", name, (int)i,
                                (long long)shape->dims[i]);
        }
        out_tensor->dims[i] = (uint64_t)shape->dims[i];
    }
    out_tensor->dims_count = (pb_size_t)shape->n_dims;
    uint64_t n_elements = 0;
    DUNLIN_TRY(dunlin__tensor_entry_count(out_tensor, &n_elements, error));
    return dunlin__encoding_bytes(DUNLIN_V1_ENCODING_F32, 0, n_elements, &out_tensor->stored_bytes,
                                  error);
}

/* Whether the current stream has all its tensors and chunks. */
static dunlin_status judge_complete(const dunlin__manifest_check *check, dunlin_error *error)
{
    if (check->n_streams == 0) {
        return DUNLIN_OK;
    }
    const dunlin__stream *stream = &check->stream;
    if (check->stream_tensors < stream->n_tensors || check->stream_chunks < stream->n_chunks) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "stream \"%s\" ends after %u of %u tensors and %u of %u chunks",
                            stream->name, check->stream_tensors, stream->n_tensors,
                            check->stream_chunks, stream->n_chunks);
    }
    return DUNLIN_OK;
}

static void check_stream_fields(dunlin__rules *rules, const dunlin__stream *stream)
{
    bool is_ring = stream->encoding == DUNLIN_V1_ENCODING_MASKED_RING;
    bool has_ring_bits =
        stream->ring_bits == 16 || stream->ring_bits == 24 || stream->ring_bits == 32;
    dunlin__rule_id(rules, "name", stream->name, sizeof(stream->name), 1);
    dunlin__rule_number(rules, "encoding", (uint64_t)stream->encoding, DUNLIN_V1_ENCODING_F32,
                        DUNLIN_V1_ENCODING_PACKED);
    dunlin__rule_true(rules, "packing",
                      stream->has_packing == (stream->encoding == DUNLIN_V1_ENCODING_PACKED),
                      "is absent of a packed stream, or given of another");
    dunlin__rule_number(rules, "chunk_bytes", stream->chunk_bytes, DUNLIN_WIRE_CHUNK_MIN_BYTES,
                        DUNLIN_WIRE_CHUNK_MAX_BYTES);
    dunlin__rule_true(rules, "ring_bits", is_ring ? has_ring_bits : stream->ring_bits == 0,
                      "is not 16, 24 or 32 of a masked ring, or 0");
    dunlin__rule_true(rules, "n_tensors",
                      (stream->encoding == DUNLIN_V1_ENCODING_BYTES) == (stream->n_tensors == 0),
                      "is 0 in a stream of tensors, or given in a file");
}

dunlin_status dunlin__manifest_judge_stream(const dunlin__manifest_check *check,
                                            const dunlin__stream *stream, dunlin_error *error)
{
    DUNLIN_TRY(judge_complete(check, error));
    if (check->n_streams == DUNLIN_WIRE_STREAMS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "manifest", 0, "more than %u streams",
                            DUNLIN_WIRE_STREAMS);
    }
    dunlin__rules rules = {.message = "Manifest", .is_decoded = check->is_reader, .error = error};
    dunlin__rules_enter_item(&rules, "stream", check->n_streams);
    check_stream_fields(&rules, stream);
    DUNLIN_TRY(rules.status);
    if (stream->has_packing) {
        DUNLIN_TRY(dunlin__packing_check(&stream->packing, error));
    }
    for (uint32_t i = 0; i < check->n_streams; i++) {
        if (strcmp(check->names[i], stream->name) == 0) {
            return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                                "two streams are named \"%s\"", stream->name);
        }
    }
    uint64_t n_chunks = dunlin__chunk_count(stream->total_bytes, stream->chunk_bytes);
    if (n_chunks > DUNLIN_WIRE_CHUNKS - check->n_chunks) {
        return dunlin__fail(error, DUNLIN_LIMIT, "manifest", 0,
                            "stream \"%s\": %llu bytes make %llu chunks, which is more than %u "
                            "with the %u before",
                            stream->name, (unsigned long long)stream->total_bytes,
                            (unsigned long long)n_chunks, DUNLIN_WIRE_CHUNKS, check->n_chunks);
    }
    if (stream->n_tensors > DUNLIN_WIRE_TENSORS - check->n_tensors) {
        return dunlin__fail(error, DUNLIN_LIMIT, "manifest", 0,
                            "stream \"%s\": %u tensors, which is more than %u with the %u before",
                            stream->name, stream->n_tensors, DUNLIN_WIRE_TENSORS, check->n_tensors);
    }
    if (stream->n_chunks != n_chunks) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "manifest", 0,
                            "stream \"%s\": %llu bytes in chunks of %u are %llu chunks, not %u",
                            stream->name, (unsigned long long)stream->total_bytes,
                            stream->chunk_bytes, (unsigned long long)n_chunks, stream->n_chunks);
    }
    return DUNLIN_OK;
}

void dunlin__manifest_note_stream(dunlin__manifest_check *check, const dunlin__stream *stream)
{
    memcpy(check->names[check->n_streams], stream->name, sizeof(stream->name));
    check->stream = *stream;
    check->stream_tensors = 0;
    check->stream_chunks = 0;
    check->stream_bytes = 0;
    check->n_streams++;
    check->total_bytes += stream->total_bytes; /* at most 4,096 chunks of 1 MiB in all */
}

/* Whether the stored bytes are those of the shape. */
static dunlin_status judge_size(const dunlin__stream *stream, const dunlin__tensor_entry *tensor,
                                dunlin_error *error)
{
    uint64_t n_elements = 0;
    uint64_t n_bytes = 0;
    DUNLIN_TRY(dunlin__tensor_entry_count(tensor, &n_elements, error));
    bool is_right = false;
    if (stream->encoding == DUNLIN_V1_ENCODING_SPARSE) {
        is_right = tensor->stored_bytes % SPARSE_PAIR_BYTES == 0 &&
                   tensor->stored_bytes / SPARSE_PAIR_BYTES <= n_elements;
    } else if (stream->encoding == DUNLIN_V1_ENCODING_PACKED) {
        uint64_t most = 0;
        DUNLIN_TRY(dunlin__packing_bytes(&stream->packing, tensor->rule, n_elements, &n_bytes,
                                         &most, error));
        is_right = tensor->stored_bytes >= n_bytes && tensor->stored_bytes <= most;
    } else {
        DUNLIN_TRY(dunlin__encoding_bytes(stream->encoding, stream->ring_bits, n_elements, &n_bytes,
                                          error));
        is_right = tensor->stored_bytes == n_bytes;
    }
    if (!is_right) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "manifest", 0,
                            "tensor \"%.100s\": %llu stored bytes do not agree with %llu elements "
                            "in %s",
                            tensor->name, (unsigned long long)tensor->stored_bytes,
                            (unsigned long long)n_elements,
                            dunlin__encoding_name(stream->encoding));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__manifest_judge_tensor(const dunlin__manifest_check *check,
                                            const dunlin__tensor_entry *tensor, dunlin_error *error)
{
    const dunlin__stream *stream = &check->stream;
    if (check->n_streams == 0 || check->stream_tensors == stream->n_tensors) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "a tensor too many: stream \"%s\" has %u", stream->name,
                            stream->n_tensors);
    }
    dunlin__rules rules = {.message = "Manifest", .is_decoded = check->is_reader, .error = error};
    dunlin__rules_enter_item(&rules, "tensor", check->stream_tensors);
    dunlin__rule_true(&rules, "name", tensor->name[0] != '\0', "is missing");
    dunlin__rule_text(&rules, "name", tensor->name, sizeof(tensor->name));
    dunlin__rule_count(&rules, "dims", tensor->dims_count, 0, DUNLIN_WIRE_DIMS);
    dunlin__rule_number(&rules, "rule", (uint64_t)tensor->rule, DUNLIN_V1_RULE_AVERAGE,
                        DUNLIN_V1_RULE_LOCAL);
    DUNLIN_TRY(rules.status);
    if (check->kind == DUNLIN_MANIFEST_UPDATE && tensor->rule == DUNLIN_V1_RULE_LOCAL) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "tensor \"%.100s\" is LOCAL, which never leaves the device",
                            tensor->name);
    }
    DUNLIN_TRY(judge_size(stream, tensor, error));
    uint64_t n_left = stream->total_bytes - check->stream_bytes;
    bool is_last = check->stream_tensors + 1 == stream->n_tensors;
    if (tensor->stored_bytes > n_left || (is_last && tensor->stored_bytes != n_left)) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "manifest", 0,
                            "stream \"%s\": its tensors up to \"%.100s\" do not sum to its %llu "
                            "bytes",
                            stream->name, tensor->name, (unsigned long long)stream->total_bytes);
    }
    return DUNLIN_OK;
}

void dunlin__manifest_note_tensor(dunlin__manifest_check *check, const dunlin__tensor_entry *tensor)
{
    check->stream_tensors++;
    check->n_tensors++;
    check->stream_bytes += tensor->stored_bytes;
}

dunlin_status dunlin__manifest_judge_chunk(const dunlin__manifest_check *check,
                                           const uint8_t sha256[DUNLIN_SHA256_BYTES],
                                           dunlin_error *error)
{
    const dunlin__stream *stream = &check->stream;
    if (check->n_streams == 0 || check->stream_tensors < stream->n_tensors) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "a chunk before all tensors of stream \"%s\": %u of %u", stream->name,
                            check->stream_tensors, stream->n_tensors);
    }
    if (check->stream_chunks == stream->n_chunks) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "a chunk too many: stream \"%s\" has %u", stream->name,
                            stream->n_chunks);
    }
    if (dunlin__bytes_are_zero(sha256, DUNLIN_SHA256_BYTES)) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "stream \"%s\": chunk %u has no hash", stream->name,
                            check->stream_chunks);
    }
    return DUNLIN_OK;
}

void dunlin__manifest_note_chunk(dunlin__manifest_check *check)
{
    check->stream_chunks++;
    check->n_chunks++;
}

dunlin_status dunlin__manifest_judge_end(const dunlin__manifest_check *check, dunlin_error *error)
{
    if (check->n_streams == 0) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "manifest", 0,
                            "the manifest has 0 streams; it needs at least 1");
    }
    return judge_complete(check, error);
}
