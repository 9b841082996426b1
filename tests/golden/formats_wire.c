/*
 * formats_wire.c - the manifests and streams of the golden files.
 */
#include "formats.h"
#include "server/must.h"

#include <stdio.h>
#include <string.h>

#define MODEL_BYTES 5
#define MAX_ELEMENTS 8

dunlin__tensor_entry formats_tensor(uint32_t index)
{
    static const struct {
        const char *name;
        dunlin_shape shape;
        dunlin_v1_rule_t rule;
    } rows[FORMATS_N_TENSORS] = {
        {"conv.weight", {.n_dims = 3, .dims = {2, 1, 3}}, DUNLIN_V1_RULE_AVERAGE},
        {"conv.bias", {.n_dims = 1, .dims = {2}}, DUNLIN_V1_RULE_AVERAGE},
        {"bn.running_mean", {.n_dims = 1, .dims = {2}}, DUNLIN_V1_RULE_STATISTIC},
        {"head.temp\xc3\xa9rature", {.n_dims = 0}, DUNLIN_V1_RULE_LOCAL},
    };
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__tensor_entry entry = {.dims_count = 0};
    MUST(dunlin__tensor_entry_make(rows[index].name, &rows[index].shape, rows[index].rule, &entry,
                                   &error));
    return entry;
}

float formats_value(uint32_t tensor, uint64_t element)
{
    return (float)tensor + (float)element * 0.125F - 0.5F;
}

typedef struct place {
    dunlin__manifest_writer manifest;
    uint8_t *bytes;
    size_t n_bytes;
} place;

static dunlin_status put_bytes(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    place *to = ctx;
    (void)error;
    memcpy(to->bytes + to->n_bytes, data, n_bytes);
    to->n_bytes += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status put_hash(void *ctx, uint32_t chunk_index, uint32_t chunk_bytes,
                              const uint8_t sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    place *to = ctx;
    (void)chunk_index;
    (void)chunk_bytes;
    return dunlin__manifest_writer_chunk(&to->manifest, sha256, error);
}

static void put_file(place *to)
{
    dunlin_error error = {.status = DUNLIN_OK};
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    const dunlin__stream stream = {.name = DUNLIN_STREAM_MODEL,
                                   .encoding = DUNLIN_V1_ENCODING_BYTES,
                                   .total_bytes = MODEL_BYTES,
                                   .chunk_bytes = DUNLIN_WIRE_CHUNK_DEFAULT_BYTES};
    MUST(dunlin__manifest_writer_stream(&to->manifest, &stream, &error));
    MUST(put_bytes(to, "model", MODEL_BYTES, &error));
    MUST(dunlin__sha256_of("model", MODEL_BYTES, sha256, &error));
    MUST(dunlin__manifest_writer_chunk(&to->manifest, sha256, &error));
}

/* The first `n` tensors with values that are `offset` above those of formats_value(). */
static void put_tensors(place *to, const char *name, uint32_t n, float offset)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__tensor_writer writer;
    const dunlin__stream_sink sink = {.ctx = to, .write_fn = put_bytes, .chunk_fn = put_hash};
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_F32,
                             .chunk_bytes = DUNLIN_WIRE_CHUNK_DEFAULT_BYTES,
                             .n_tensors = n};
    (void)snprintf(stream.name, sizeof stream.name, "%s", name);
    for (uint32_t i = 0; i < n; i++) {
        stream.total_bytes += formats_tensor(i).stored_bytes;
    }
    MUST(dunlin__manifest_writer_stream(&to->manifest, &stream, &error));
    for (uint32_t i = 0; i < n; i++) {
        const dunlin__tensor_entry entry = formats_tensor(i);
        MUST(dunlin__manifest_writer_tensor(&to->manifest, &entry, &error));
    }
    MUST(dunlin__tensor_writer_begin(&writer, &stream, true, &sink, &error));
    for (uint32_t i = 0; i < n; i++) {
        const dunlin__tensor_entry entry = formats_tensor(i);
        const uint64_t n_elements = entry.stored_bytes / sizeof(float);
        float values[MAX_ELEMENTS];
        for (uint64_t k = 0; k < n_elements; k++) {
            values[k] = formats_value(i, k) + offset;
        }
        MUST(dunlin__tensor_writer_values(&writer, entry.name, values, (size_t)n_elements, &error));
    }
    MUST(dunlin__tensor_writer_end(&writer, &error));
}

void formats_streams(dunlin__manifest_kind kind, uint8_t manifest[FORMATS_STREAM_BYTES],
                     size_t *out_manifest_bytes, uint8_t streams[FORMATS_STREAM_BYTES],
                     size_t *out_stream_bytes)
{
    dunlin_error error = {.status = DUNLIN_OK};
    place to = {.bytes = streams};
    MUST(dunlin__manifest_writer_begin(&to.manifest, kind, manifest, FORMATS_STREAM_BYTES, &error));
    if (kind == DUNLIN_MANIFEST_BASE) {
        put_file(&to);
        put_tensors(&to, DUNLIN_STREAM_WEIGHTS, FORMATS_N_TENSORS, 0.0F);
    } else {
        put_tensors(&to, DUNLIN_STREAM_UPDATE, FORMATS_N_TENSORS - 1, 0.0F);
        put_tensors(&to, DUNLIN_STREAM_CONTROL_DELTA, 2, 100.0F);
    }
    MUST(dunlin__manifest_writer_end(&to.manifest, out_manifest_bytes, &error));
    *out_stream_bytes = to.n_bytes;
}
