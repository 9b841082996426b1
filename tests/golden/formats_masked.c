/*
 * formats_masked.c - the MASKED_RING updates of the golden files, one of each width, and the terms
 * whose digests they have.
 */
#include "formats.h"
#include "server/must.h"

#include <wire/digest.h>
#include <wire/secagg.h>

#include <stdio.h>
#include <string.h>

_Static_assert(FORMATS_MASKED_KEY_BYTES == DUNLIN_AES256_BYTES, "a mask's key");

uint32_t formats_masked_element(size_t index)
{
    const uint32_t mixed = ((uint32_t)index + 1U) * 2654435761U;
    return index == FORMATS_MASKED_VALUES ? 7U : (uint32_t)((int32_t)(mixed >> 18) - 8192);
}

void formats_masked_key(uint8_t out_key[FORMATS_MASKED_KEY_BYTES])
{
    for (size_t i = 0; i < FORMATS_MASKED_KEY_BYTES; i++) {
        out_key[i] = (uint8_t)(200U - 3U * i);
    }
}

dunlin__secagg_plan formats_secagg_plan(uint32_t version)
{
    dunlin__secagg_plan plan = {.version = version,
                                .n_cohort = 100,
                                .n_neighbours = 22,
                                .threshold = 12,
                                .least_devices = 50,
                                .ring_bits = 24,
                                .n_values = FORMATS_MASKED_VALUES,
                                .clip = 0.75F,
                                .value_limit = 40000,
                                .weight_limit = 1,
                                .check_consistency = true};
    plan.session.size = 20;
    for (uint8_t i = 0; i < 20; i++) {
        plan.session.bytes[i] = (uint8_t)(i * 11U + 5U);
    }
    if (version == 2) {
        plan.noise_kind = DUNLIN_V1_SECAGG_NOISE_GAUSSIAN;
        plan.noise_scale = 900;
        plan.least_honest = 40;
    }
    return plan;
}

void formats_masked(unsigned ring_bits, uint8_t manifest[FORMATS_STREAM_BYTES],
                    size_t *out_manifest_bytes, uint8_t stream[FORMATS_STREAM_BYTES],
                    size_t *out_stream_bytes)
{
    dunlin_error error = {.status = DUNLIN_OK};
    uint32_t elements[FORMATS_MASKED_VALUES + 1];
    uint8_t key[FORMATS_MASKED_KEY_BYTES];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin__manifest_writer writer;
    const size_t n_bytes = (size_t)dunlin__ring_bytes(FORMATS_MASKED_VALUES + 1, ring_bits);
    for (size_t i = 0; i <= FORMATS_MASKED_VALUES; i++) {
        elements[i] = formats_masked_element(i);
    }
    formats_masked_key(key);
    MUST(dunlin__mask_add(key, 0, ring_bits, false, elements, FORMATS_MASKED_VALUES + 1, &error));
    dunlin__ring_pack(elements, FORMATS_MASKED_VALUES + 1, ring_bits, stream);
    const dunlin__stream of = {.name = DUNLIN_STREAM_UPDATE,
                               .encoding = DUNLIN_V1_ENCODING_MASKED_RING,
                               .ring_bits = ring_bits,
                               .total_bytes = n_bytes,
                               .chunk_bytes = DUNLIN_WIRE_CHUNK_DEFAULT_BYTES,
                               .n_tensors = 1};
    dunlin__tensor_entry entry = {.rule = DUNLIN_V1_RULE_AVERAGE,
                                  .dims_count = 1,
                                  .dims = {FORMATS_MASKED_VALUES + 1},
                                  .stored_bytes = n_bytes};
    (void)snprintf(entry.name, sizeof entry.name, "%s", DUNLIN_SECAGG_TENSOR);
    MUST(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, manifest,
                                       FORMATS_STREAM_BYTES, &error));
    MUST(dunlin__manifest_writer_stream(&writer, &of, &error));
    MUST(dunlin__manifest_writer_tensor(&writer, &entry, &error));
    MUST(dunlin__sha256_of(stream, n_bytes, sha256, &error));
    MUST(dunlin__manifest_writer_chunk(&writer, sha256, &error));
    MUST(dunlin__manifest_writer_end(&writer, out_manifest_bytes, &error));
    *out_stream_bytes = n_bytes;
}
