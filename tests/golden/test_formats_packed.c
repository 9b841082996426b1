/*
 * test_formats_packed.c - packed streams of the first version are read to the same bits, and
 * written to the same bytes.
 */
#include "formats.h"

#include <wire/compress.h>
#include <wire/delta.h>

#include <criterion/criterion.h>

#include <string.h>

typedef struct packed_bytes {
    uint8_t bytes[FORMATS_FILE_BYTES];
    size_t n_bytes;
    size_t at;
} packed_bytes;

static dunlin_status take_packed(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    packed_bytes *from = ctx;
    (void)error;
    if (n_bytes > from->n_bytes - from->at) {
        return DUNLIN_IO;
    }
    memcpy(buffer, from->bytes + from->at, n_bytes);
    from->at += n_bytes;
    return DUNLIN_OK;
}

/* Float32, little-endian. */
static float decoded_at(const uint8_t *bytes, size_t index)
{
    uint32_t bits = 0;
    float value = 0.0F;
    for (size_t i = 0; i < 4; i++) {
        bits |= (uint32_t)bytes[4 * index + i] << (8 * i);
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The next tensor's values, each as the file of decoded ones has it. */
static void expect_packed(dunlin__tensor_unpacker *unpacker, const dunlin__manifest_record *record,
                          const uint8_t *decoded, size_t *at)
{
    dunlin_error error = {.status = DUNLIN_OK};
    const float *values = NULL;
    size_t n = 1;
    size_t n_all = 0;
    cr_assert_eq(dunlin__tensor_unpacker_tensor(unpacker, record->index, record->tensor.rule,
                                                record->tensor.dims[0], record->n_bytes, &error),
                 DUNLIN_OK, "%s", error.text);
    while (n > 0) {
        cr_assert_eq(dunlin__tensor_unpacker_next(unpacker, &values, &n, &error), DUNLIN_OK, "%s",
                     error.text);
        for (size_t i = 0; i < n; i++, n_all++, (*at)++) {
            cr_assert(values[i] == decoded_at(decoded, *at), "%s, tensor %u, element %zu",
                      record->stream.name, record->index, n_all);
        }
    }
    cr_assert_eq(n_all, formats_packed_count(record->index));
}

Test(formats_packed, packed_streams_load_for_ever)
{
    static packed_bytes streams;
    static uint8_t manifest[FORMATS_FILE_BYTES];
    static uint8_t decoded[FORMATS_FILE_BYTES];
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    dunlin__tensor_unpacker *unpacker = NULL;
    const dunlin__unpack_source from = {.ctx = &streams, .read_fn = take_packed};
    const size_t n_manifest =
        formats_read(DUNLIN_FORMATS, "packed_1.manifest", manifest, sizeof manifest);
    size_t at = 0;
    streams.n_bytes =
        formats_read(DUNLIN_FORMATS, "packed_1.bin", streams.bytes, sizeof streams.bytes);
    cr_assert_eq(formats_read(DUNLIN_FORMATS, "packed_1.f32", decoded, sizeof decoded),
                 4 * FORMATS_PACKED_DECODED);
    const dunlin__manifest_source source = dunlin__manifest_source_memory(manifest, n_manifest);
    cr_assert_eq(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, &error),
                 DUNLIN_OK);
    for (;;) {
        cr_assert_eq(dunlin__manifest_reader_next(&reader, &record, &error), DUNLIN_OK, "%s",
                     error.text);
        if (record.item == DUNLIN_MANIFEST_END) {
            break;
        }
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            const dunlin__packing expected = formats_packing(record.index);
            dunlin__tensor_unpacker_close(unpacker);
            cr_assert_eq(dunlin__packing_compare(&expected, &record.stream.packing, true, &error),
                         DUNLIN_OK, "%s", error.text);
            cr_assert_eq(dunlin__tensor_unpacker_open(&record.stream.packing, &from, NULL,
                                                      &unpacker, &error),
                         DUNLIN_OK, "%s", error.text);
        } else if (record.item == DUNLIN_MANIFEST_TENSOR) {
            expect_packed(unpacker, &record, decoded, &at);
        }
    }
    dunlin__tensor_unpacker_close(unpacker);
    cr_assert_eq(at, FORMATS_PACKED_DECODED);
    cr_assert_eq(streams.at, streams.n_bytes);
}

/* What is rounded follows from the seeds, so the writer's bytes are those of the file too. */
Test(formats_packed, packed_streams_are_written_alike)
{
    static uint8_t manifest[FORMATS_STREAM_BYTES];
    static uint8_t streams[FORMATS_FILE_BYTES];
    static uint8_t file[FORMATS_FILE_BYTES];
    static float decoded[FORMATS_PACKED_DECODED];
    size_t n_manifest = 0;
    size_t n_streams = 0;
    formats_packed(manifest, &n_manifest, streams, &n_streams, decoded);
    cr_assert_eq(formats_read(DUNLIN_FORMATS, "packed_1.bin", file, sizeof file), n_streams);
    cr_assert_eq(memcmp(file, streams, n_streams), 0);
    cr_assert_eq(formats_read(DUNLIN_FORMATS, "packed_1.manifest", file, sizeof file), n_manifest);
    cr_assert_eq(memcmp(file, manifest, n_manifest), 0);
}

static dunlin_status put_packed(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    packed_bytes *to = ctx;
    (void)error;
    cr_assert_leq(to->n_bytes + n_bytes, sizeof to->bytes);
    memcpy(to->bytes + to->n_bytes, data, n_bytes);
    to->n_bytes += n_bytes;
    return DUNLIN_OK;
}

Test(formats_packed, deltas_load_for_ever)
{
    static packed_bytes older;
    static packed_bytes delta;
    static packed_bytes result;
    static uint8_t wanted[FORMATS_FILE_BYTES];
    dunlin_error error = {.status = DUNLIN_OK};
    const dunlin__unpack_source from = {.ctx = &older, .read_fn = take_packed};
    const dunlin__unpack_source bytes = {.ctx = &delta, .read_fn = take_packed};
    const dunlin__pack_sink sink = {.ctx = &result, .write_fn = put_packed};
    older.n_bytes = FORMATS_DELTA_BYTES;
    for (size_t i = 0; i < FORMATS_DELTA_BYTES; i++) {
        older.bytes[i] = formats_delta_from(i);
    }
    delta.n_bytes =
        formats_read(DUNLIN_FORMATS, "packed_delta_1.bin", delta.bytes, sizeof delta.bytes);
    cr_assert_eq(formats_read(DUNLIN_FORMATS, "packed_delta_1.to", wanted, sizeof wanted),
                 FORMATS_DELTA_BYTES);
    cr_assert_eq(
        dunlin__delta_read(FORMATS_DELTA_BYTES, &from, &bytes, delta.n_bytes, &sink, NULL, &error),
        DUNLIN_OK, "%s", error.text);
    cr_assert_eq(result.n_bytes, FORMATS_DELTA_BYTES);
    cr_assert_eq(memcmp(result.bytes, wanted, FORMATS_DELTA_BYTES), 0);
}

Test(formats_packed, deltas_are_written_alike)
{
    static uint8_t delta[FORMATS_FILE_BYTES];
    static uint8_t to[FORMATS_DELTA_BYTES];
    static uint8_t file[FORMATS_FILE_BYTES];
    size_t n_delta = 0;
    formats_delta(delta, &n_delta, to);
    cr_assert_eq(formats_read(DUNLIN_FORMATS, "packed_delta_1.bin", file, sizeof file), n_delta);
    cr_assert_eq(memcmp(file, delta, n_delta), 0);
}
