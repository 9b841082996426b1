/*
 * formats_packed.c - the packed streams of the golden files: one of each way to write numbers, of
 * three tensors each.
 */
#include "formats.h"
#include "server/must.h"

#include <wire/compress.h>
#include <wire/delta.h>

#include <stdio.h>
#include <string.h>

#define MAX_VALUES 300

static const struct {
    size_t n_values;
    dunlin_v1_rule_t rule;
    float gain;
} rows[FORMATS_PACKED_TENSORS] = {
    {300, DUNLIN_V1_RULE_AVERAGE, 0.75F},
    {4, DUNLIN_V1_RULE_STATISTIC, 1.0F},
    {20, DUNLIN_V1_RULE_AVERAGE, 1.0F},
};

size_t formats_packed_count(uint32_t tensor)
{
    return rows[tensor].n_values;
}

/* Thousandths that look like noise, a few of them large. */
float formats_packed_value(uint32_t tensor, size_t element)
{
    uint32_t mixed = ((uint32_t)element + 1000U * tensor + 1U) * 2654435761U;
    float value = (float)((int32_t)(mixed >> 20) - 2048) / 1024.0F;
    return (element % 37 == 5) ? value * 8.0F : value;
}

dunlin__packing formats_packing(uint32_t index)
{
    static const dunlin__packing packings[FORMATS_N_PACKINGS] = {
        {.values = DUNLIN_V1_VALUES_F16, .block_values = 128},
        {.values = DUNLIN_V1_VALUES_BF16, .block_values = 128},
        {.values = DUNLIN_V1_VALUES_LEVELS,
         .bits = 8,
         .block_values = 8192,
         .is_entropy_coded = true},
        {.values = DUNLIN_V1_VALUES_LEVELS, .bits = 4, .block_values = 64, .is_rotated = true},
        {.values = DUNLIN_V1_VALUES_SIGN, .block_values = 256, .is_rotated = true},
        {.values = DUNLIN_V1_VALUES_F32,
         .selection = DUNLIN_V1_SELECTION_LARGEST,
         .kept_ppm = 50000,
         .block_values = 64},
        {.values = DUNLIN_V1_VALUES_LEVELS,
         .bits = 3,
         .selection = DUNLIN_V1_SELECTION_LARGEST,
         .kept_ppm = 500000,
         .block_values = 64,
         .is_entropy_coded = true},
        {.values = DUNLIN_V1_VALUES_F16,
         .selection = DUNLIN_V1_SELECTION_RANDOM,
         .kept_ppm = 252000,
         .block_values = 64},
    };
    dunlin__packing packing = packings[index];
    packing.version = 1;
    packing.round = 3;
    if (packing.is_rotated || packing.selection == DUNLIN_V1_SELECTION_RANDOM) {
        packing.seed.size = DUNLIN_PACK_SEED_BYTES;
        for (uint32_t i = 0; i < DUNLIN_PACK_SEED_BYTES; i++) {
            packing.seed.bytes[i] = (uint8_t)(16U * index + i);
        }
    }
    return packing;
}

typedef struct packed_place {
    uint8_t *bytes;
    size_t n_bytes;
    float *decoded;
    size_t n_decoded;
} packed_place;

static dunlin_status put_packed(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    packed_place *to = ctx;
    (void)error;
    MUST_HOLD(to->n_bytes + n_bytes <= FORMATS_FILE_BYTES, "%zu", n_bytes);
    memcpy(to->bytes + to->n_bytes, data, n_bytes);
    to->n_bytes += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status put_decoded(void *ctx, const float *values, size_t n, dunlin_error *error)
{
    packed_place *to = ctx;
    (void)error;
    memcpy(to->decoded + to->n_decoded, values, n * sizeof *values);
    to->n_decoded += n;
    return DUNLIN_OK;
}

static size_t fill_values(uint32_t tensor, float values[MAX_VALUES])
{
    for (size_t i = 0; i < rows[tensor].n_values; i++) {
        values[i] = formats_packed_value(tensor, i);
    }
    return rows[tensor].n_values;
}

static dunlin__pack_choice choose_largest(const dunlin__packing *packing)
{
    dunlin__pack_chooser chooser;
    dunlin__pack_choice choice = {.key = 0};
    float values[MAX_VALUES];
    dunlin__pack_chooser_begin(&chooser, dunlin__packing_kept(packing, 320));
    for (uint32_t pass = 0; pass < DUNLIN_PACK_CHOICE_PASSES; pass++) {
        for (uint32_t t = 0; t < FORMATS_PACKED_TENSORS; t += 2) {
            dunlin__pack_chooser_add(&chooser, values, fill_values(t, values));
        }
        dunlin__pack_chooser_end_pass(&chooser, &choice);
    }
    return choice;
}

static void pack_one(uint32_t index, packed_place *to, uint64_t stored[FORMATS_PACKED_TENSORS])
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__tensor_packer *packer = NULL;
    float values[MAX_VALUES];
    dunlin__pack_options options = {.packing = formats_packing(index),
                                    .draws = {1, 2, 3},
                                    .sink = {.ctx = to, .write_fn = put_packed},
                                    .mirror = {.ctx = to, .values_fn = put_decoded}};
    options.choice = choose_largest(&options.packing);
    MUST(dunlin__tensor_packer_open(&options, NULL, &packer, &error));
    for (uint32_t t = 0; t < FORMATS_PACKED_TENSORS; t++) {
        const size_t n = fill_values(t, values);
        MUST(dunlin__tensor_packer_tensor(packer, t, rows[t].rule, n, rows[t].gain, &error));
        MUST(dunlin__tensor_packer_values(packer, values, n, &error));
        MUST(dunlin__tensor_packer_tensor_end(packer, &stored[t], NULL, &error));
        if (rows[t].rule == DUNLIN_V1_RULE_STATISTIC) {
            MUST(put_decoded(to, values, n, &error));
        }
    }
    dunlin__tensor_packer_close(packer);
}

static void describe_one(uint32_t index, const uint64_t stored[FORMATS_PACKED_TENSORS],
                         const uint8_t *bytes, size_t n_bytes, dunlin__manifest_writer *manifest)
{
    dunlin_error error = {.status = DUNLIN_OK};
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_PACKED,
                             .total_bytes = n_bytes,
                             .chunk_bytes = DUNLIN_WIRE_CHUNK_DEFAULT_BYTES,
                             .n_tensors = FORMATS_PACKED_TENSORS,
                             .has_packing = true,
                             .packing = formats_packing(index)};
    (void)snprintf(stream.name, sizeof stream.name, "packed%u", index);
    MUST(dunlin__manifest_writer_stream(manifest, &stream, &error));
    for (uint32_t t = 0; t < FORMATS_PACKED_TENSORS; t++) {
        dunlin__tensor_entry entry = {.rule = rows[t].rule,
                                      .dims_count = 1,
                                      .dims = {rows[t].n_values},
                                      .stored_bytes = stored[t]};
        (void)snprintf(entry.name, sizeof entry.name, "tensor%u", t);
        MUST(dunlin__manifest_writer_tensor(manifest, &entry, &error));
    }
    MUST(dunlin__sha256_of(bytes, n_bytes, sha256, &error));
    MUST(dunlin__manifest_writer_chunk(manifest, sha256, &error));
}

void formats_packed(uint8_t manifest[FORMATS_STREAM_BYTES], size_t *out_manifest_bytes,
                    uint8_t streams[FORMATS_FILE_BYTES], size_t *out_stream_bytes,
                    float decoded[FORMATS_PACKED_DECODED])
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_writer writer;
    packed_place to = {.bytes = streams, .decoded = decoded};
    MUST(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, manifest,
                                       FORMATS_STREAM_BYTES, &error));
    for (uint32_t i = 0; i < FORMATS_N_PACKINGS; i++) {
        uint64_t stored[FORMATS_PACKED_TENSORS] = {0};
        const size_t first = to.n_bytes;
        pack_one(i, &to, stored);
        describe_one(i, stored, streams + first, to.n_bytes - first, &writer);
    }
    MUST(dunlin__manifest_writer_end(&writer, out_manifest_bytes, &error));
    MUST_HOLD(to.n_decoded == FORMATS_PACKED_DECODED, "%zu", to.n_decoded);
    *out_stream_bytes = to.n_bytes;
}

/* --- a delta --- */

typedef struct delta_bytes {
    uint8_t *bytes;
    size_t at;
} delta_bytes;

static dunlin_status read_bytes(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    delta_bytes *from = ctx;
    (void)error;
    memcpy(buffer, from->bytes + from->at, n_bytes);
    from->at += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status write_bytes(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    delta_bytes *to = ctx;
    (void)error;
    MUST_HOLD(to->at + n_bytes <= FORMATS_FILE_BYTES, "%zu", to->at);
    memcpy(to->bytes + to->at, data, n_bytes);
    to->at += n_bytes;
    return DUNLIN_OK;
}

uint8_t formats_delta_from(size_t index)
{
    return (uint8_t)(31 * index + index / 7);
}

/* Moves of up to two either way in the first block, anything in the second. */
void formats_delta(uint8_t delta[FORMATS_FILE_BYTES], size_t *out_delta_bytes,
                   uint8_t to[FORMATS_DELTA_BYTES])
{
    static uint8_t from[FORMATS_DELTA_BYTES];
    dunlin_error error = {.status = DUNLIN_OK};
    delta_bytes older = {.bytes = from};
    delta_bytes newer = {.bytes = to};
    delta_bytes out = {.bytes = delta};
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < FORMATS_DELTA_BYTES; i++) {
        const uint32_t mixed = ((uint32_t)i + 1U) * 2654435761U;
        from[i] = formats_delta_from(i);
        to[i] = (i < 8192) ? (uint8_t)(from[i] + (mixed >> 16) % 5 - 2) : (uint8_t)(mixed >> 16);
    }
    const dunlin__unpack_source before = {.ctx = &older, .read_fn = read_bytes};
    const dunlin__unpack_source now = {.ctx = &newer, .read_fn = read_bytes};
    const dunlin__pack_sink sink = {.ctx = &out, .write_fn = write_bytes};
    MUST(dunlin__delta_write(FORMATS_DELTA_BYTES, &before, &now, &sink, NULL, &n_bytes, &error));
    *out_delta_bytes = (size_t)n_bytes;
}
