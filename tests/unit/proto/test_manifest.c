/*
 * test_manifest.c - manifests: round trip, sums and limits, broken bytes, and bytes made by protoc.
 */
#include "make_manifest.h"
#include "random.h"

#include <wire/compress.h>
#include <wire/digest.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t buffer[DUNLIN_WIRE_MANIFEST_BYTES];

Test(proto_manifest, what_is_written_is_read)
{
    size_t n_bytes = test_write_sample(buffer, sizeof(buffer), 10);
    dunlin__manifest_source source = dunlin__manifest_source_memory(buffer, n_bytes);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    dunlin_error error = {0};
    uint32_t n_items[4] = {0};
    uint64_t chunk_sum = 0;
    uint64_t tensor_sum = 0;
    cr_assert_eq(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, &error),
                 DUNLIN_OK);
    do {
        cr_assert_eq(dunlin__manifest_reader_next(&reader, &record, &error), DUNLIN_OK, "%s",
                     error.text);
        if (record.item == DUNLIN_MANIFEST_CHUNK) {
            uint8_t wanted[32];
            test_hash_for(record.index, wanted);
            cr_assert_arr_eq(record.sha256, wanted, 32);
            cr_assert_eq(record.chunk_index, n_items[DUNLIN_MANIFEST_CHUNK]);
            cr_assert_eq(record.offset, (uint64_t)record.index * CHUNK);
            chunk_sum += record.n_bytes;
        } else if (record.item == DUNLIN_MANIFEST_TENSOR) {
            cr_assert_eq(record.offset, tensor_sum);
            cr_assert_eq(record.index, n_items[DUNLIN_MANIFEST_TENSOR]);
            cr_assert_str_eq(record.stream.name, "weights");
            tensor_sum += record.n_bytes;
        }
        n_items[record.item]++;
    } while (record.item != DUNLIN_MANIFEST_END);
    cr_assert_eq(n_items[DUNLIN_MANIFEST_STREAM], 2);
    cr_assert_eq(n_items[DUNLIN_MANIFEST_TENSOR], 10);
    cr_assert_eq(n_items[DUNLIN_MANIFEST_CHUNK], 1 + 11);
    cr_assert_eq(chunk_sum, 12345 + 2800000);
    cr_assert_eq(tensor_sum, 2800000);
}

Test(proto_manifest, a_summary_and_a_place)
{
    size_t n_bytes = test_write_sample(buffer, sizeof(buffer), 10);
    dunlin__manifest_source source = dunlin__manifest_source_memory(buffer, n_bytes);
    dunlin__manifest_summary summary;
    dunlin_error error = {0};
    uint8_t sha256[32];
    cr_assert_eq(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_BASE, &summary, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(summary.n_streams, 2);
    cr_assert_eq(summary.n_tensors, 10);
    cr_assert_eq(summary.n_chunks, 12);
    cr_assert_eq(summary.total_bytes, 2812345);
    cr_assert_eq(dunlin__sha256_of(buffer, n_bytes, sha256, NULL), DUNLIN_OK);
    cr_assert_arr_eq(summary.sha256, sha256, 32);

    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    dunlin__stream stream;
    cr_assert_eq(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, &error),
                 DUNLIN_OK);
    dunlin__manifest_reader start = reader; /* a copy comes back to its place */
    cr_assert_eq(dunlin__manifest_reader_find(&reader, "weights", &stream, &error), DUNLIN_OK);
    cr_assert_eq(stream.n_chunks, 11);
    cr_assert_eq(dunlin__manifest_reader_next(&reader, &record, &error), DUNLIN_OK);
    cr_assert_str_eq(record.tensor.name, "layer0.weight");
    cr_assert_eq(dunlin__manifest_reader_find(&start, "update", &stream, &error), DUNLIN_MISMATCH);
    cr_assert_not_null(strstr(error.text, "no stream \"update\""));
}

Test(proto_manifest, local_tensors_do_not_go_up)
{
    size_t n_bytes = test_write_sample(buffer, sizeof(buffer), 2);
    dunlin__manifest_source source = dunlin__manifest_source_memory(buffer, n_bytes);
    dunlin__manifest_summary summary;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_UPDATE, &summary, &error),
                 DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "\"layer0.weight\" is LOCAL"), "%s", error.text);
}

/* Made by `protoc --encode` from the same contents. */
static const uint8_t golden[] = {
    0x08, 0x01, 0x12, 0x17, 0x0a, 0x15, 0x0a, 0x07, 'w',  'e',  'i',  'g',  'h',  't',  's',
    0x10, 0x01, 0x18, 0x28, 0x20, 0x80, 0x80, 0x10, 0x28, 0x02, 0x30, 0x01, 0x12, 0x15, 0x12,
    0x13, 0x0a, 0x09, 'f',  'c',  '.',  'w',  'e',  'i',  'g',  'h',  't',  0x12, 0x02, 0x03,
    0x03, 0x18, 0x01, 0x20, 0x24, 0x12, 0x0f, 0x12, 0x0d, 0x0a, 0x07, 'f',  'c',  '.',  'b',
    'i',  'a',  's',  0x18, 0x02, 0x20, 0x04, 0x12, 0x24, 0x1a, 0x22, 0x0a, 0x20, 0x01, 0x02,
    0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11,
    0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x20};

Test(proto_manifest, bytes_are_as_protoc_writes_them)
{
    dunlin__manifest_writer writer;
    dunlin__tensor_entry tensor;
    dunlin_error error = {0};
    size_t n_bytes = 0;
    uint8_t sha256[32];
    dunlin__stream stream = test_make_stream("weights", DUNLIN_V1_ENCODING_F32, 40, 2);
    dunlin_shape matrix = {.n_dims = 2, .dims = {3, 3}};
    dunlin_shape scalar = {.n_dims = 0};
    for (uint8_t i = 0; i < 32; i++) {
        sha256[i] = (uint8_t)(i + 1);
    }
    cr_assert_eq(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_BASE, buffer,
                                               sizeof(buffer), &error),
                 DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), DUNLIN_OK);
    cr_assert_eq(
        dunlin__tensor_entry_make("fc.weight", &matrix, DUNLIN_V1_RULE_AVERAGE, &tensor, &error),
        DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &tensor, &error), DUNLIN_OK);
    cr_assert_eq(
        dunlin__tensor_entry_make("fc.bias", &scalar, DUNLIN_V1_RULE_STATISTIC, &tensor, &error),
        DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &tensor, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_chunk(&writer, sha256, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_end(&writer, &n_bytes, &error), DUNLIN_OK);
    cr_assert_eq(n_bytes, sizeof(golden));
    cr_assert_arr_eq(buffer, golden, sizeof(golden));
}

static dunlin__manifest_writer begin_writer(dunlin__manifest_kind kind)
{
    dunlin__manifest_writer writer;
    cr_assert_eq(dunlin__manifest_writer_begin(&writer, kind, buffer, sizeof(buffer), NULL),
                 DUNLIN_OK);
    return writer;
}

static void refuse_stream(dunlin__stream stream, dunlin_status wanted, const char *text)
{
    dunlin__manifest_writer writer = begin_writer(DUNLIN_MANIFEST_BASE);
    dunlin_error error = {0};
    size_t n_before = writer.n_bytes;
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), wanted, "%s", text);
    cr_assert_not_null(strstr(error.text, text), "\"%s\" is not in \"%s\"", text, error.text);
    cr_assert_eq(writer.n_bytes, n_before);
    cr_assert_eq(writer.check.n_streams, 0);
}

Test(proto_manifest, streams_keep_their_limits)
{
    dunlin__stream good = test_make_stream("weights", DUNLIN_V1_ENCODING_F32, 1000, 1);
    dunlin__stream bad = good;
    bad.name[0] = '\0';
    refuse_stream(bad, DUNLIN_PROTOCOL, "stream[0].name is missing");
    bad = good;
    bad.encoding = 8;
    refuse_stream(bad, DUNLIN_PROTOCOL, "encoding is 8");
    bad.encoding = DUNLIN_V1_ENCODING_PACKED;
    refuse_stream(bad, DUNLIN_PROTOCOL, "packing is absent of a packed stream");
    bad.has_packing = true;
    refuse_stream(bad, DUNLIN_VERSION, "a packing of version 0");
    bad.packing = (dunlin__packing){
        .version = 1, .values = DUNLIN_V1_VALUES_LEVELS, .bits = 9, .block_values = 256};
    refuse_stream(bad, DUNLIN_PROTOCOL, "Packing: bits is 9");
    bad.packing.bits = 4;
    bad.encoding = DUNLIN_V1_ENCODING_F32;
    refuse_stream(bad, DUNLIN_PROTOCOL, "packing is absent");
    bad = good;
    bad.chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES - 1;
    refuse_stream(bad, DUNLIN_PROTOCOL, "chunk_bytes is 262143, allowed are 262144 to 1048576");
    bad.chunk_bytes = DUNLIN_WIRE_CHUNK_MAX_BYTES + 1;
    refuse_stream(bad, DUNLIN_PROTOCOL, "chunk_bytes is 1048577");
    bad = good;
    bad.ring_bits = 16;
    refuse_stream(bad, DUNLIN_PROTOCOL, "ring_bits");
    bad.encoding = DUNLIN_V1_ENCODING_MASKED_RING;
    bad.ring_bits = 20;
    refuse_stream(bad, DUNLIN_PROTOCOL, "ring_bits");
    bad = good;
    bad.n_tensors = 0;
    refuse_stream(bad, DUNLIN_PROTOCOL, "n_tensors");
    bad.encoding = DUNLIN_V1_ENCODING_BYTES;
    bad.n_tensors = 1;
    refuse_stream(bad, DUNLIN_PROTOCOL, "n_tensors");
    bad = good;
    bad.n_tensors = 4097;
    refuse_stream(bad, DUNLIN_LIMIT, "4097 tensors");
    bad = good;
    bad.total_bytes = 4096ull * CHUNK + 1;
    refuse_stream(bad, DUNLIN_LIMIT, "4097 chunks");
    bad.total_bytes = UINT64_MAX;
    refuse_stream(bad, DUNLIN_LIMIT, "18446744073709551615 bytes");
    bad = good;
    bad.n_chunks = 2;
    refuse_stream(bad, DUNLIN_MISMATCH, "are 1 chunks, not 2");
}

static void refuse_tensor(dunlin__stream stream, dunlin__tensor_entry tensor, dunlin_status wanted,
                          const char *text)
{
    dunlin__manifest_writer writer = begin_writer(DUNLIN_MANIFEST_UPDATE);
    dunlin_error error = {0};
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), DUNLIN_OK, "%s",
                 error.text);
    size_t n_before = writer.n_bytes;
    cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &tensor, &error), wanted, "%s: %s", text,
                 error.text);
    cr_assert_not_null(strstr(error.text, text), "\"%s\" is not in \"%s\"", text, error.text);
    cr_assert_eq(writer.n_bytes, n_before);
    cr_assert_eq(writer.check.stream_tensors, 0);
}

Test(proto_manifest, tensors_agree_with_shape_encoding_and_sum)
{
    dunlin__stream f32 = test_make_stream("update", DUNLIN_V1_ENCODING_F32, 400, 2);
    dunlin__tensor_entry bad = test_make_tensor("w", 50, 200);
    bad.name[0] = '\0';
    refuse_tensor(f32, bad, DUNLIN_PROTOCOL, "tensor[0].name is missing");
    bad = test_make_tensor("w\n", 50, 200);
    refuse_tensor(f32, bad, DUNLIN_PROTOCOL, "tensor[0].name is not UTF-8");
    bad = test_make_tensor("w", 50, 200);
    bad.rule = 4;
    refuse_tensor(f32, bad, DUNLIN_PROTOCOL, "rule is 4");
    bad.rule = DUNLIN_V1_RULE_LOCAL;
    refuse_tensor(f32, bad, DUNLIN_PROTOCOL, "LOCAL");
    bad = test_make_tensor("w", 50, 200);
    bad.dims_count = 9;
    refuse_tensor(f32, bad, DUNLIN_PROTOCOL, "dims has 9");
    refuse_tensor(f32, test_make_tensor("w", 50, 199), DUNLIN_MISMATCH, "199 stored bytes");
    refuse_tensor(f32, test_make_tensor("w", 101, 404), DUNLIN_MISMATCH, "do not sum to its 400");
    bad = test_make_tensor("w", 1ull << 62, 0);
    bad.dims_count = 2;
    bad.dims[1] = 4;
    refuse_tensor(f32, bad, DUNLIN_OVERFLOW, "more elements");
    bad.dims[1] = 1;
    refuse_tensor(f32, bad, DUNLIN_OVERFLOW, "do not fit 64 bits");
    bad.dims[0] = UINT64_MAX;
    refuse_tensor(f32, bad, DUNLIN_OVERFLOW, "more elements");

    dunlin__stream one = f32;
    one.n_tensors = 1;
    refuse_tensor(one, test_make_tensor("w", 99, 396), DUNLIN_MISMATCH, "do not sum to its 400");
    one.encoding = DUNLIN_V1_ENCODING_F16;
    refuse_tensor(one, test_make_tensor("w", 100, 400), DUNLIN_MISMATCH, "in F16");
    one.encoding = DUNLIN_V1_ENCODING_INT8_SCALE;
    refuse_tensor(one, test_make_tensor("w", 400, 400), DUNLIN_MISMATCH, "in INT8_SCALE");
    one.encoding = DUNLIN_V1_ENCODING_SPARSE;
    refuse_tensor(one, test_make_tensor("w", 49, 400), DUNLIN_MISMATCH, "in SPARSE");
    refuse_tensor(one, test_make_tensor("w", 100, 396), DUNLIN_MISMATCH, "in SPARSE");
    /* 100 elements: a gain, a scale, 4 bits each; a statistic is float32. */
    one.encoding = DUNLIN_V1_ENCODING_PACKED;
    one.has_packing = true;
    one.packing = (dunlin__packing){
        .version = 1, .values = DUNLIN_V1_VALUES_LEVELS, .bits = 4, .block_values = 256};
    refuse_tensor(one, test_make_tensor("w", 100, 400), DUNLIN_MISMATCH, "100 elements in PACKED");
    refuse_tensor(one, test_make_tensor("w", 1ull << 31, 400), DUNLIN_LIMIT,
                  "2147483648 elements in a packed tensor");
    one.has_packing = false;
    one.encoding = DUNLIN_V1_ENCODING_MASKED_RING;
    one.ring_bits = 24;
    refuse_tensor(one, test_make_tensor("w", 133, 400), DUNLIN_MISMATCH, "in MASKED_RING");
}

Test(proto_manifest, every_encoding_has_its_size)
{
    static const struct {
        dunlin_v1_encoding_t encoding;
        uint32_t ring_bits;
        uint64_t n_bytes;
    } cases[] = {
        {DUNLIN_V1_ENCODING_F32, 0, 400},          {DUNLIN_V1_ENCODING_F16, 0, 200},
        {DUNLIN_V1_ENCODING_INT8_SCALE, 0, 104},   {DUNLIN_V1_ENCODING_SPARSE, 0, 80},
        {DUNLIN_V1_ENCODING_MASKED_RING, 16, 200}, {DUNLIN_V1_ENCODING_MASKED_RING, 24, 300},
        {DUNLIN_V1_ENCODING_MASKED_RING, 32, 400}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dunlin__manifest_writer writer = begin_writer(DUNLIN_MANIFEST_UPDATE);
        dunlin_error error = {0};
        size_t n_bytes = 0;
        dunlin__stream stream = test_make_stream("update", cases[i].encoding, cases[i].n_bytes, 1);
        stream.ring_bits = cases[i].ring_bits;
        dunlin__tensor_entry tensor = test_make_tensor("w", 100, cases[i].n_bytes);
        cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), DUNLIN_OK);
        cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &tensor, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(test_put_chunks(&writer, 1, &error), DUNLIN_OK);
        cr_assert_eq(dunlin__manifest_writer_end(&writer, &n_bytes, &error), DUNLIN_OK);
    }
    uint64_t n_bytes = 0;
    cr_assert_eq(dunlin__encoding_bytes(DUNLIN_V1_ENCODING_BYTES, 0, 1, &n_bytes, NULL),
                 DUNLIN_UNSUPPORTED);
    cr_assert_str_eq(dunlin__encoding_name(99), "UNKNOWN");
}

Test(proto_manifest, records_come_in_their_order)
{
    dunlin__manifest_writer writer = begin_writer(DUNLIN_MANIFEST_BASE);
    dunlin_error error = {0};
    size_t n_bytes = 0;
    uint8_t sha256[32];
    test_hash_for(1, sha256);
    dunlin__stream stream = test_make_stream("weights", DUNLIN_V1_ENCODING_F32, 400, 2);
    dunlin__tensor_entry half = test_make_tensor("w", 50, 200);
    cr_assert_eq(dunlin__manifest_writer_end(&writer, &n_bytes, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "0 streams"));
    cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &half, &error), DUNLIN_PROTOCOL);
    cr_assert_eq(dunlin__manifest_writer_chunk(&writer, sha256, &error), DUNLIN_PROTOCOL);
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_chunk(&writer, sha256, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "0 of 2"), "%s", error.text);
    cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &half, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_end(&writer, &n_bytes, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "after 1 of 2 tensors and 0 of 1 chunks"), "%s",
                       error.text);
    cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &half, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &half, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "a tensor too many"));
    uint8_t zero[32] = {0};
    cr_assert_eq(dunlin__manifest_writer_chunk(&writer, zero, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "chunk 0 has no hash"));
    cr_assert_eq(dunlin__manifest_writer_chunk(&writer, sha256, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_chunk(&writer, sha256, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "a chunk too many"));
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "two streams are named \"weights\""));
    cr_assert_eq(dunlin__manifest_writer_end(&writer, &n_bytes, &error), DUNLIN_OK);
}

Test(proto_manifest, a_manifest_has_at_most_its_streams_and_bytes)
{
    dunlin__manifest_writer writer = begin_writer(DUNLIN_MANIFEST_BASE);
    dunlin_error error = {0};
    for (int i = 0; i < 9; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "file%d", i);
        dunlin__stream stream = test_make_stream(name, DUNLIN_V1_ENCODING_BYTES, 0, 0);
        cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error),
                     (i < 8) ? DUNLIN_OK : DUNLIN_LIMIT);
    }
    cr_assert_not_null(strstr(error.text, "more than 8 streams"));

    writer = begin_writer(DUNLIN_MANIFEST_BASE);
    dunlin__stream stream = test_make_stream("weights", DUNLIN_V1_ENCODING_F32, 4096 * 4, 4096);
    dunlin__tensor_entry tensor = test_make_tensor("", 1, 4);
    memset(tensor.name, 'n', 255);
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), DUNLIN_OK);
    uint32_t n_tensors = 0;
    while (dunlin__manifest_writer_tensor(&writer, &tensor, &error) == DUNLIN_OK) {
        n_tensors++;
    }
    cr_assert_eq(error.status, DUNLIN_LIMIT);
    cr_assert_not_null(strstr(error.text, "does not fit 262144 bytes"), "%s", error.text);
    cr_assert_eq(writer.check.stream_tensors, n_tensors);
    cr_assert_gt(n_tensors, 900);
}

Test(proto_manifest, the_largest_counts_work)
{
    dunlin__manifest_writer writer = begin_writer(DUNLIN_MANIFEST_UPDATE);
    dunlin_error error = {0};
    size_t n_bytes = 0;
    uint64_t total = 4096ull * DUNLIN_WIRE_CHUNK_MAX_BYTES;
    dunlin__stream stream = test_make_stream("update", DUNLIN_V1_ENCODING_F32, total, 4096);
    stream.chunk_bytes = DUNLIN_WIRE_CHUNK_MAX_BYTES;
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin__tensor_entry tensor = test_make_tensor("w", 262144, 1048576);
    for (int i = 0; i < 4096; i++) {
        cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &tensor, &error), DUNLIN_OK);
    }
    cr_assert_eq(test_put_chunks(&writer, 4096, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin__manifest_writer_end(&writer, &n_bytes, &error), DUNLIN_OK);
    dunlin__manifest_source source = dunlin__manifest_source_memory(buffer, n_bytes);
    dunlin__manifest_summary summary;
    cr_assert_eq(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_UPDATE, &summary, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(summary.n_chunks, 4096);
    cr_assert_eq(summary.n_tensors, 4096);
    cr_assert_eq(summary.total_bytes, total);
}

static dunlin_status check_bytes(const uint8_t *bytes, size_t n_bytes, dunlin_error *error)
{
    uint8_t *copy = calloc(1, n_bytes + 1);
    memcpy(copy, bytes, n_bytes);
    dunlin__manifest_source source = dunlin__manifest_source_memory(copy, n_bytes);
    dunlin__manifest_summary summary;
    dunlin_status status =
        dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_BASE, &summary, error);
    free(copy);
    return status;
}

Test(proto_manifest, every_truncation_is_refused)
{
    size_t n_bytes = test_write_sample(buffer, sizeof(buffer), 3);
    dunlin_error error = {0};
    cr_assert_eq(check_bytes(buffer, n_bytes, &error), DUNLIN_OK);
    size_t n_accepted = 0;
    for (size_t n = 0; n < n_bytes; n++) {
        /* The model file's stream alone is a manifest too: one cut may give one. */
        n_accepted += check_bytes(buffer, n, &error) == DUNLIN_OK;
    }
    cr_assert_leq(n_accepted, 1);
}

Test(proto_manifest, flipped_bits_never_crash)
{
    uint64_t state = test_seed(61);
    static uint8_t good[8192];
    static uint8_t bad[8192];
    size_t n_bytes = test_write_sample(good, sizeof(good), 6);
    for (int i = 0; i < test_cases(3000); i++) {
        dunlin_error error = {0};
        memcpy(bad, good, n_bytes);
        for (int flips = 1 + i % 3; flips > 0; flips--) {
            bad[test_random_below(&state, n_bytes)] ^=
                (uint8_t)(1u << test_random_below(&state, 8));
        }
        dunlin_status status = check_bytes(bad, n_bytes, &error);
        if (status != DUNLIN_OK) {
            cr_assert_eq(error.status, status);
            cr_assert_neq(error.text[0], '\0');
        }
    }
}

Test(proto_manifest, foreign_bytes_are_named)
{
    dunlin_error error = {0};
    static const uint8_t version_two[] = {0x08, 0x02};
    static const uint8_t other_field[] = {0x08, 0x01, 0x18, 0x01};
    static const uint8_t empty_record[] = {0x08, 0x01, 0x12, 0x00};
    static const uint8_t cut_record[] = {0x08, 0x01, 0x12, 0x7f, 0x0a};
    cr_assert_eq(check_bytes(version_two, 0, &error), DUNLIN_PROTOCOL);
    cr_assert_eq(check_bytes(version_two, 2, &error), DUNLIN_VERSION);
    cr_assert_not_null(strstr(error.text, "version 2"));
    cr_assert_eq(check_bytes(other_field, 4, &error), DUNLIN_PROTOCOL);
    cr_assert_eq(check_bytes(empty_record, 4, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "no stream, tensor or chunk"));
    cr_assert_eq(check_bytes(cut_record, 5, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "ends after 1"), "%s", error.text);
    static uint8_t long_record[700] = {0x08, 0x01, 0x12, 0xb4, 0x05};
    cr_assert_eq(check_bytes(long_record, sizeof(long_record), &error), DUNLIN_LIMIT);
    static uint8_t large[DUNLIN_WIRE_MANIFEST_BYTES + 1];
    cr_assert_eq(check_bytes(large, sizeof(large), &error), DUNLIN_LIMIT);
    cr_assert_not_null(strstr(error.text, "262145"));
}

static dunlin_status fail_to_read(void *ctx, uint64_t offset, void *out_bytes, size_t n_bytes)
{
    size_t *n_left = ctx;
    if (*n_left == 0) {
        return DUNLIN_IO;
    }
    (*n_left)--;
    memcpy(out_bytes, buffer + offset, n_bytes);
    return DUNLIN_OK;
}

Test(proto_manifest, every_failed_read_is_passed_on)
{
    size_t n_bytes = test_write_sample(buffer, sizeof(buffer), 3);
    for (size_t n_reads = 0;; n_reads++) {
        size_t n_left = n_reads;
        dunlin__manifest_source source = {
            .ctx = &n_left, .read_fn = fail_to_read, .total_bytes = n_bytes};
        dunlin__manifest_summary summary;
        dunlin_error error = {0};
        dunlin_status status =
            dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_BASE, &summary, &error);
        if (status == DUNLIN_OK) {
            cr_assert_gt(n_reads, 8);
            break;
        }
        cr_assert_eq(status, DUNLIN_IO);
        cr_assert_not_null(strstr(error.text, "cannot be read"));
    }
}
