/*
 * test_manifest_drained.c - manifests that are written through a buffer of two records.
 */
#include "make_manifest.h"

#include <criterion/criterion.h>

#include <string.h>

static uint8_t buffer[DUNLIN_WIRE_MANIFEST_BYTES];

/* The same manifest out of a buffer that never holds more than two records. */
Test(proto_manifest, drained_bytes_are_those_of_the_whole)
{
    uint8_t small[2 * DUNLIN_MANIFEST_RECORD_BYTES];
    dunlin__manifest_writer drained;
    dunlin__manifest_writer whole;
    dunlin__tensor_entry tensor;
    dunlin_error error = {0};
    static uint8_t gathered[DUNLIN_WIRE_MANIFEST_BYTES];
    size_t n_gathered = 0;
    size_t n_bytes = 0;
    size_t n_whole = 0;
    dunlin_shape shape = {.n_dims = 1, .dims = {1}};
    dunlin__stream stream = test_make_stream("weights", DUNLIN_V1_ENCODING_F32, 4 * 300, 300);
    cr_assert_eq(
        dunlin__manifest_writer_begin(&drained, DUNLIN_MANIFEST_BASE, small, sizeof small, &error),
        DUNLIN_OK);
    cr_assert_eq(
        dunlin__manifest_writer_begin(&whole, DUNLIN_MANIFEST_BASE, buffer, sizeof buffer, &error),
        DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_stream(&drained, &stream, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_stream(&whole, &stream, &error), DUNLIN_OK);
    for (int i = 0; i < 300; i++) {
        char name[DUNLIN_WIRE_NAME_BYTES];
        memset(name, 'a' + i % 26, sizeof name);
        name[1 + (size_t)i % (sizeof name - 1)] = '\0';
        cr_assert_eq(
            dunlin__tensor_entry_make(name, &shape, DUNLIN_V1_RULE_AVERAGE, &tensor, &error),
            DUNLIN_OK);
        if (sizeof small - drained.n_bytes < DUNLIN_MANIFEST_RECORD_BYTES) {
            const size_t n = dunlin__manifest_writer_drain(&drained);
            memcpy(gathered + n_gathered, small, n);
            n_gathered += n;
        }
        cr_assert_eq(dunlin__manifest_writer_tensor(&drained, &tensor, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(dunlin__manifest_writer_tensor(&whole, &tensor, &error), DUNLIN_OK);
    }
    const size_t n_last = dunlin__manifest_writer_drain(&drained);
    memcpy(gathered + n_gathered, small, n_last);
    n_gathered += n_last;
    const uint8_t sha256[DUNLIN_SHA256_BYTES] = {7};
    cr_assert_eq(dunlin__manifest_writer_chunk(&drained, sha256, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_chunk(&whole, sha256, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_end(&drained, &n_bytes, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_end(&whole, &n_whole, &error), DUNLIN_OK);
    memcpy(gathered + n_gathered, small, drained.n_bytes);
    n_gathered += drained.n_bytes;
    cr_assert_eq(n_bytes, n_whole);
    cr_assert_eq(n_gathered, n_whole);
    cr_assert_arr_eq(gathered, buffer, n_whole);
}

/* Draining lifts no limit: the record that would pass it is refused, and nothing is added. */
Test(proto_manifest, drained_bytes_count_for_the_limit)
{
    uint8_t small[2 * DUNLIN_MANIFEST_RECORD_BYTES];
    dunlin__manifest_writer writer;
    dunlin__tensor_entry tensor;
    dunlin_error error = {0};
    dunlin_status status = DUNLIN_OK;
    dunlin_shape shape = {.n_dims = 1, .dims = {1}};
    char name[DUNLIN_WIRE_NAME_BYTES];
    dunlin__stream stream = test_make_stream("weights", DUNLIN_V1_ENCODING_F32, 4 * 4096, 4096);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    cr_assert_eq(
        dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_BASE, small, sizeof small, &error),
        DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &stream, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_entry_make(name, &shape, DUNLIN_V1_RULE_AVERAGE, &tensor, &error),
                 DUNLIN_OK);
    for (int i = 0; i < 4096 && status == DUNLIN_OK; i++) {
        (void)dunlin__manifest_writer_drain(&writer);
        status = dunlin__manifest_writer_tensor(&writer, &tensor, &error);
    }
    cr_assert_eq(status, DUNLIN_LIMIT);
    cr_expect_not_null(strstr(error.text, "does not fit 262144 bytes"), "%s", error.text);
    cr_expect_eq(writer.n_bytes, 0);
    cr_expect_gt(writer.n_drained, DUNLIN_WIRE_MANIFEST_BYTES - sizeof small);
}
