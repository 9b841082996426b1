/*
 * formats_int8.c - the INT8_SCALE stream of the golden files: a matrix, a tensor of zeros, an empty
 * one and a single number.
 */
#include "formats.h"
#include "server/must.h"

#include <wire/digest.h>
#include <wire/int8.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    size_t n_values;
    int exponent;
} rows[FORMATS_INT8_TENSORS] = {{40, -9}, {5, 0}, {0, 0}, {1, 3}};

size_t formats_int8_count(uint32_t tensor)
{
    return rows[tensor].n_values;
}

float formats_int8_value(uint32_t tensor, size_t element)
{
    const int number = tensor == 1 ? 0 : (int)(element * 67 % 255) - 127;
    return ldexpf((float)number, rows[tensor].exponent);
}

static void write_manifest(uint8_t manifest[FORMATS_STREAM_BYTES], size_t *out_manifest_bytes,
                           const uint8_t *bytes, size_t n_bytes)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_writer writer;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    const dunlin__stream stream = {.name = DUNLIN_STREAM_UPDATE,
                                   .encoding = DUNLIN_V1_ENCODING_INT8_SCALE,
                                   .total_bytes = n_bytes,
                                   .chunk_bytes = DUNLIN_WIRE_CHUNK_DEFAULT_BYTES,
                                   .n_tensors = FORMATS_INT8_TENSORS};
    MUST(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, manifest,
                                       FORMATS_STREAM_BYTES, &error));
    MUST(dunlin__manifest_writer_stream(&writer, &stream, &error));
    for (uint32_t t = 0; t < FORMATS_INT8_TENSORS; t++) {
        dunlin__tensor_entry entry = {.rule = DUNLIN_V1_RULE_AVERAGE,
                                      .dims_count = 1,
                                      .dims = {rows[t].n_values},
                                      .stored_bytes = rows[t].n_values + DUNLIN_INT8_SCALE_BYTES};
        (void)snprintf(entry.name, sizeof entry.name, "tensor%u", t);
        MUST(dunlin__manifest_writer_tensor(&writer, &entry, &error));
    }
    MUST(dunlin__sha256_of(bytes, n_bytes, sha256, &error));
    MUST(dunlin__manifest_writer_chunk(&writer, sha256, &error));
    MUST(dunlin__manifest_writer_end(&writer, out_manifest_bytes, &error));
}

void formats_int8(uint8_t manifest[FORMATS_STREAM_BYTES], size_t *out_manifest_bytes,
                  uint8_t stream[FORMATS_STREAM_BYTES], size_t *out_stream_bytes)
{
    dunlin_error error = {.status = DUNLIN_OK};
    size_t n = 0;
    for (uint32_t t = 0; t < FORMATS_INT8_TENSORS; t++) {
        dunlin__int8_range range = {.has_values = false};
        float values[64];
        float scale = 0.0F;
        for (size_t i = 0; i < rows[t].n_values; i++) {
            values[i] = formats_int8_value(t, i);
        }
        MUST(dunlin__int8_range_add(&range, "tensor", values, rows[t].n_values, &error));
        MUST(dunlin__int8_scale_of(&range, "tensor", &scale, &error));
        dunlin__int8_scale_write(scale, stream + n);
        n += DUNLIN_INT8_SCALE_BYTES;
        dunlin__int8_encode(scale, values, rows[t].n_values, (int8_t *)(stream + n));
        n += rows[t].n_values;
    }
    *out_stream_bytes = n;
    write_manifest(manifest, out_manifest_bytes, stream, n);
}
