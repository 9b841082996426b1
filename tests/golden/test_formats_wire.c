/*
 * test_formats_wire.c - manifests and streams of the first version are read.
 */
#include "formats.h"

#include <wire/digest.h>

#include <criterion/criterion.h>

#include <string.h>

static size_t read_data(const char *name, uint8_t bytes[FORMATS_STREAM_BYTES])
{
    return formats_read(DUNLIN_FORMATS, name, bytes, FORMATS_STREAM_BYTES);
}

typedef struct stream_bytes {
    uint8_t bytes[FORMATS_STREAM_BYTES];
    size_t n_bytes;
    size_t at;
} stream_bytes;

static dunlin_status take_bytes(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    stream_bytes *from = ctx;
    (void)error;
    if (n_bytes > from->n_bytes - from->at) {
        return DUNLIN_IO;
    }
    memcpy(buffer, from->bytes + from->at, n_bytes);
    from->at += n_bytes;
    return DUNLIN_OK;
}

static void expect_tensor(const dunlin__tensor_entry *found, uint32_t index)
{
    const dunlin__tensor_entry expected = formats_tensor(index);
    cr_expect_str_eq(found->name, expected.name);
    cr_expect_eq(found->dims_count, expected.dims_count);
    for (size_t d = 0; d < expected.dims_count; d++) {
        cr_expect_eq(found->dims[d], expected.dims[d]);
    }
    cr_expect_eq(found->rule, expected.rule);
    cr_expect_eq(found->stored_bytes, expected.stored_bytes);
}

/* The values of one stream, which begin where `streams` is. */
static void expect_stream(const dunlin__manifest_source *source, dunlin__manifest_kind kind,
                          const char *name, stream_bytes *streams, uint32_t n_tensors, float offset)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_reader manifest;
    dunlin__tensor_reader reader;
    dunlin__tensor_piece piece;
    dunlin__stream stream;
    float block[256];
    const dunlin__stream_source from = {.ctx = streams, .read_fn = take_bytes};
    cr_assert_eq(dunlin__manifest_reader_begin(&manifest, source, kind, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin__manifest_reader_find(&manifest, name, &stream, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_eq(stream.n_tensors, n_tensors);
    cr_expect_eq(stream.n_chunks, 1);
    cr_assert_eq(
        dunlin__tensor_reader_begin(&reader, &manifest, &from, true, block, sizeof block, &error),
        DUNLIN_OK, "%s", error.text);
    for (uint32_t i = 0; i < n_tensors; i++) {
        cr_assert_eq(dunlin__tensor_reader_next(&reader, &piece, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_not_null(piece.tensor);
        expect_tensor(piece.tensor, i);
        cr_expect_eq(piece.n_values, piece.n_elements);
        for (size_t k = 0; k < piece.n_values; k++) {
            cr_expect_eq(piece.values[k], formats_value(i, k) + offset,
                         "%s, tensor %u, element %zu", name, i, k);
        }
    }
    cr_assert_eq(dunlin__tensor_reader_next(&reader, &piece, &error), DUNLIN_OK);
    cr_expect_null(piece.tensor);
}

/* Every chunk has its hash. The streams lie one after another, each in one chunk. */
static void expect_hashes(const dunlin__manifest_source *source, dunlin__manifest_kind kind,
                          const stream_bytes *streams)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    size_t at = 0;
    cr_assert_eq(dunlin__manifest_reader_begin(&reader, source, kind, &error), DUNLIN_OK);
    do {
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        cr_assert_eq(dunlin__manifest_reader_next(&reader, &record, &error), DUNLIN_OK, "%s",
                     error.text);
        if (record.item == DUNLIN_MANIFEST_CHUNK) {
            cr_assert_leq(at + record.n_bytes, streams->n_bytes);
            cr_assert_eq(
                dunlin__sha256_of(streams->bytes + at, (size_t)record.n_bytes, sha256, &error),
                DUNLIN_OK);
            cr_expect_arr_eq(sha256, record.sha256, DUNLIN_SHA256_BYTES);
            at += (size_t)record.n_bytes;
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    cr_expect_eq(at, streams->n_bytes);
}

Test(formats_wire, bases_load_for_ever)
{
    uint8_t bytes[FORMATS_STREAM_BYTES];
    stream_bytes streams = {.n_bytes = 0};
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_summary summary;
    const size_t n_bytes = read_data("base_1.manifest", bytes);
    streams.n_bytes = read_data("base_1.bin", streams.bytes);
    const dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    cr_assert_eq(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_BASE, &summary, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_eq(summary.n_streams, 2);
    cr_expect_eq(summary.n_tensors, FORMATS_N_TENSORS);
    cr_expect_eq(summary.n_chunks, 2);
    cr_expect_eq(summary.total_bytes, streams.n_bytes);
    expect_hashes(&source, DUNLIN_MANIFEST_BASE, &streams);
    cr_expect_arr_eq(streams.bytes, "model", 5);
    streams.at = 5;
    expect_stream(&source, DUNLIN_MANIFEST_BASE, DUNLIN_STREAM_WEIGHTS, &streams, FORMATS_N_TENSORS,
                  0.0F);
    cr_expect_eq(streams.at, streams.n_bytes);
}

Test(formats_wire, updates_load_for_ever)
{
    uint8_t bytes[FORMATS_STREAM_BYTES];
    stream_bytes streams = {.n_bytes = 0};
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_summary summary;
    const size_t n_bytes = read_data("update_1.manifest", bytes);
    streams.n_bytes = read_data("update_1.bin", streams.bytes);
    const dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    cr_assert_eq(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_UPDATE, &summary, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_eq(summary.n_streams, 2);
    cr_expect_eq(summary.n_tensors, 5);
    cr_expect_eq(summary.n_chunks, 2);
    cr_expect_eq(summary.total_bytes, streams.n_bytes);
    expect_hashes(&source, DUNLIN_MANIFEST_UPDATE, &streams);
    expect_stream(&source, DUNLIN_MANIFEST_UPDATE, DUNLIN_STREAM_UPDATE, &streams, 3, 0.0F);
    expect_stream(&source, DUNLIN_MANIFEST_UPDATE, DUNLIN_STREAM_CONTROL_DELTA, &streams, 2,
                  100.0F);
    cr_expect_eq(streams.at, streams.n_bytes);
}

/* The first two bytes are the version's tag and its number; the rest is one record after another.
 */
Test(formats_wire, a_manifest_is_a_version_and_records)
{
    uint8_t bytes[FORMATS_STREAM_BYTES];
    const size_t n_bytes = read_data("update_1.manifest", bytes);
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__manifest_summary summary;
    cr_expect_eq(bytes[0], 0x08);
    cr_expect_eq(bytes[1], 1);
    cr_expect_eq(bytes[2], 0x12);
    size_t at = 2;
    uint32_t n_records = 0;
    while (at < n_bytes) {
        cr_assert_eq(bytes[at], 0x12);
        cr_assert_lt(bytes[at + 1], 0x80);
        at += 2 + (size_t)bytes[at + 1];
        n_records++;
    }
    cr_expect_eq(at, n_bytes);
    cr_expect_eq(n_records, 2 + 5 + 2);
    bytes[1] = 2;
    const dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    cr_expect_eq(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_UPDATE, &summary, &error),
                 DUNLIN_VERSION);
}
