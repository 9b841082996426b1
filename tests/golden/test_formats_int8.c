/*
 * test_formats_int8.c - an INT8_SCALE stream is read for ever, by its table and by the library.
 */
#include "formats.h"

#include <wire/int8.h>
#include <wire/manifest.h>

#include <criterion/criterion.h>

#include <string.h>

/* A float32 of four bytes, as FORMATS.md has it. */
static float float_at(const uint8_t *bytes)
{
    const uint32_t bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                          (uint32_t)bytes[3] << 24;
    float value = 0.0F;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static size_t expect_tensor(const dunlin__manifest_record *record, const uint8_t *bytes)
{
    const size_t n = formats_int8_count(record->index);
    dunlin_error error = {.status = DUNLIN_OK};
    float values[64];
    float scale = 0.0F;
    cr_assert_eq(record->tensor.stored_bytes, n + 4);
    cr_assert_eq(dunlin__int8_scale_read("tensor", bytes, &scale, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin__int8_decode("tensor", scale, (const int8_t *)bytes + 4, n, values, &error),
                 DUNLIN_OK, "%s", error.text);
    for (size_t i = 0; i < n; i++) {
        const float by_table = (float)(int8_t)bytes[4 + i] * float_at(bytes);
        cr_assert(values[i] == formats_int8_value(record->index, i) && values[i] == by_table,
                  "tensor %u, element %zu: %a", record->index, i, (double)values[i]);
    }
    return n + 4;
}

Test(formats_int8, an_int8_stream_loads_for_ever)
{
    uint8_t manifest[FORMATS_STREAM_BYTES];
    uint8_t stream[FORMATS_STREAM_BYTES];
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_reader reader;
    dunlin__manifest_record record = {.item = DUNLIN_MANIFEST_STREAM};
    const size_t n_manifest =
        formats_read(DUNLIN_FORMATS, "int8_1.manifest", manifest, sizeof manifest);
    const size_t n_stream = formats_read(DUNLIN_FORMATS, "int8_1.bin", stream, sizeof stream);
    const dunlin__manifest_source source = dunlin__manifest_source_memory(manifest, n_manifest);
    size_t at = 0;
    cr_assert_eq(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, &error),
                 DUNLIN_OK);
    while (record.item != DUNLIN_MANIFEST_END) {
        cr_assert_eq(dunlin__manifest_reader_next(&reader, &record, &error), DUNLIN_OK, "%s",
                     error.text);
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            cr_assert_eq(record.stream.encoding, DUNLIN_V1_ENCODING_INT8_SCALE);
        } else if (record.item == DUNLIN_MANIFEST_TENSOR) {
            at += expect_tensor(&record, stream + at);
        }
    }
    cr_expect_eq(at, n_stream);
}
