/*
 * make_manifest.c - streams, tensors and hashes of manifests, and a whole one.
 */
#include "make_manifest.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

dunlin__stream test_make_stream(const char *name, dunlin_v1_encoding_t encoding,
                                uint64_t total_bytes, uint32_t n_tensors)
{
    dunlin__stream stream = {.encoding = encoding,
                             .total_bytes = total_bytes,
                             .chunk_bytes = CHUNK,
                             .n_tensors = n_tensors};
    (void)snprintf(stream.name, sizeof(stream.name), "%s", name);
    return stream;
}

dunlin__tensor_entry test_make_tensor(const char *name, uint64_t n_elements, uint64_t bytes)
{
    dunlin__tensor_entry tensor = {.dims_count = 1,
                                   .dims = {n_elements},
                                   .rule = DUNLIN_V1_RULE_AVERAGE,
                                   .stored_bytes = bytes};
    (void)snprintf(tensor.name, sizeof(tensor.name), "%s", name);
    return tensor;
}

void test_hash_for(uint32_t number, uint8_t *sha256)
{
    memset(sha256, 0xee, 32);
    memcpy(sha256, &number, sizeof(number));
}

dunlin_status test_put_chunks(dunlin__manifest_writer *writer, uint32_t n_chunks,
                              dunlin_error *error)
{
    for (uint32_t i = 0; i < n_chunks; i++) {
        uint8_t sha256[32];
        test_hash_for(i, sha256);
        dunlin_status status = dunlin__manifest_writer_chunk(writer, sha256, error);
        if (status != DUNLIN_OK) {
            return status;
        }
    }
    return DUNLIN_OK;
}

size_t test_write_sample(uint8_t *bytes, size_t capacity, uint32_t n_tensors)
{
    dunlin__manifest_writer writer;
    dunlin_error error = {0};
    size_t n_bytes = 0;
    uint64_t total = (uint64_t)n_tensors * 280000;
    dunlin__stream model =
        test_make_stream(DUNLIN_STREAM_MODEL, DUNLIN_V1_ENCODING_BYTES, 12345, 0);
    dunlin__stream weights =
        test_make_stream(DUNLIN_STREAM_WEIGHTS, DUNLIN_V1_ENCODING_F32, total, n_tensors);
    cr_assert_eq(
        dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_BASE, bytes, capacity, &error),
        DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(test_put_chunks(&writer, 1, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, &weights, &error), DUNLIN_OK, "%s",
                 error.text);
    for (uint32_t i = 0; i < n_tensors; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "layer%u.weight", i);
        dunlin__tensor_entry tensor = test_make_tensor(name, 70000, 280000);
        tensor.rule = (i % 3 == 0) ? DUNLIN_V1_RULE_LOCAL : DUNLIN_V1_RULE_AVERAGE;
        cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &tensor, &error), DUNLIN_OK, "%s",
                     error.text);
    }
    cr_assert_eq(test_put_chunks(&writer, (uint32_t)((total + CHUNK - 1) / CHUNK), &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin__manifest_writer_end(&writer, &n_bytes, &error), DUNLIN_OK, "%s",
                 error.text);
    return n_bytes;
}
