/*
 * test_bytes.c - byte runs and IDX headers: exact reads, cut-off and hostile input.
 */
#include "data_files.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <data/files/bytes.h>
#include <data/files/idx.h>
#include <stdlib.h>
#include <string.h>

static test_bytes gzip(const uint8_t *bytes, size_t n)
{
    test_bytes packed = {0};
    uint8_t room[4096];
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    cr_assert_eq(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    uint8_t *copy = malloc(n + 1);
    memcpy(copy, bytes, n);
    stream.next_in = copy;
    stream.avail_in = (unsigned)n;
    int result = Z_OK;
    while (result == Z_OK) {
        stream.next_out = room;
        stream.avail_out = sizeof room;
        result = deflate(&stream, Z_FINISH);
        test_put(&packed, room, sizeof room - stream.avail_out);
    }
    cr_assert_eq(result, Z_STREAM_END);
    deflateEnd(&stream);
    free(copy);
    return packed;
}

/* Reads n bytes in odd parts and expects the end. */
static dunlin_status read_back(const void *memory, size_t memory_bytes, uint8_t *out, size_t n,
                               const dunlin_alloc *alloc, dunlin_error *error)
{
    dunlin_bytes bytes;
    DUNLIN_TRY(dunlin__bytes_open_memory(&bytes, "test", memory, memory_bytes, alloc, error));
    dunlin_status status = DUNLIN_OK;
    size_t part = 1;
    for (size_t at = 0; at < n && status == DUNLIN_OK; at += part) {
        part = at % 977 + 1 < n - at ? at % 977 + 1 : n - at;
        status = dunlin__bytes_read(&bytes, out + at, part, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__bytes_expect_end(&bytes, error);
    }
    dunlin__bytes_close(&bytes);
    return status;
}

Test(bytes, plain_and_gzip_give_the_same)
{
    size_t n = 50001;
    uint8_t *given = malloc(n);
    uint8_t *got = malloc(n);
    for (size_t i = 0; i < n; i++) {
        given[i] = (uint8_t)(i * i >> 3);
    }
    test_bytes packed = gzip(given, n);
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_error error = {0};
    cr_assert_eq(read_back(given, n, got, n, &counter.hooks, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(memcmp(given, got, n), 0);
    memset(got, 0, n);
    cr_assert_eq(read_back(packed.bytes, packed.n, got, n, &counter.hooks, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(memcmp(given, got, n), 0);
    cr_assert_gt(counter.n_allocs, 0U, "unpacking takes its memory through the hooks");
    cr_assert_eq(counter.now_bytes, 0U);
    /* One byte more than asked for is noticed, in both. */
    cr_assert_eq(read_back(given, n, got, n - 1, &counter.hooks, &error), DUNLIN_DATA);
    cr_assert_eq(read_back(packed.bytes, packed.n, got, n - 1, &counter.hooks, &error),
                 DUNLIN_DATA);
    test_bytes_free(&packed);
    free(given);
    free(got);
}

Test(bytes, cut_or_damaged_gzip_is_refused)
{
    uint8_t given[700];
    uint8_t got[700];
    for (size_t i = 0; i < sizeof given; i++) {
        given[i] = (uint8_t)(i * 31 % 127);
    }
    test_bytes packed = gzip(given, sizeof given);
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    for (size_t n = 0; n < packed.n; n++) {
        dunlin_error error = {0};
        dunlin_status status = read_back(packed.bytes, n, got, sizeof got, &counter.hooks, &error);
        cr_assert_eq(status, DUNLIN_DATA, "%zu of %zu bytes: %s", n, packed.n, error.text);
        cr_assert_not_null(strstr(error.text, "test: "), "names the file: %s", error.text);
    }
    /* Any changed byte of the data or the checksum is noticed (bytes 3 to 9: time, flags, system).
     */
    for (size_t at = 10; at < packed.n; at++) {
        packed.bytes[at] ^= 0x10;
        dunlin_error error = {0};
        dunlin_status status =
            read_back(packed.bytes, packed.n, got, sizeof got, &counter.hooks, &error);
        cr_assert(status != DUNLIN_OK || at + 9 == packed.n, "byte %zu of %zu", at, packed.n);
        cr_assert(status != DUNLIN_OK || memcmp(given, got, sizeof got) == 0);
        packed.bytes[at] ^= 0x10;
    }
    cr_assert_eq(counter.now_bytes, 0U);
    test_bytes_free(&packed);
}

Test(bytes, memory_failures_are_clean)
{
    uint8_t given[100] = {0};
    uint8_t got[100];
    test_bytes packed = gzip(given, sizeof given);
    int n_failed = 0;
    for (uint64_t limit = 1;; limit += 997) {
        dunlin_alloc_counter counter;
        dunlin_alloc_counter_init(&counter, NULL);
        counter.limit_bytes = limit;
        dunlin_error error = {0};
        dunlin_status status =
            read_back(packed.bytes, packed.n, got, sizeof got, &counter.hooks, &error);
        cr_assert_eq(counter.now_bytes, 0U);
        if (status == DUNLIN_OK) {
            break;
        }
        cr_assert_eq(status, DUNLIN_MEMORY, "%s", error.text);
        n_failed++;
    }
    cr_assert_gt(n_failed, 1);
    test_bytes_free(&packed);
}

static dunlin_status read_header(const test_bytes *file, dunlin_idx_type type, int32_t n_dims,
                                 dunlin_idx_header *out_header, dunlin_error *error)
{
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_bytes bytes;
    DUNLIN_TRY(dunlin__bytes_open_memory(&bytes, "file.idx", file->bytes, file->n, &alloc, error));
    dunlin_status status = dunlin__idx_read_header(&bytes, type, n_dims, out_header, error);
    dunlin__bytes_close(&bytes);
    return status;
}

Test(idx, header_is_read)
{
    test_bytes file = test_idx_images(3);
    dunlin_idx_header header = {0};
    dunlin_error error = {0};
    cr_assert_eq(read_header(&file, DUNLIN_IDX_U8, 3, &header, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(header.dims[0], 3);
    cr_assert_eq(header.dims[1], 28);
    cr_assert_eq(header.dims[2], 28);
    cr_assert_eq(header.n_elements, 3U * 28 * 28);
    test_bytes_free(&file);
}

/* Changes one byte of a good header and expects DATA with the file's name. */
static void expect_bad(size_t at, uint8_t value, const char *what)
{
    test_bytes file = test_idx_images(3);
    file.bytes[at] = value;
    dunlin_idx_header header = {0};
    dunlin_error error = {0};
    cr_assert_eq(read_header(&file, DUNLIN_IDX_U8, 3, &header, &error), DUNLIN_DATA, "%s", what);
    cr_assert_not_null(strstr(error.text, "file.idx: "), "%s: %s", what, error.text);
    test_bytes_free(&file);
}

Test(idx, hostile_headers_are_refused)
{
    expect_bad(0, 1, "first byte not zero");
    expect_bad(1, 0xFF, "second byte not zero");
    expect_bad(2, 0x0D, "floats instead of bytes");
    expect_bad(3, 2, "two dimensions");
    expect_bad(3, 0, "no dimension");
    expect_bad(3, 255, "many dimensions");
    expect_bad(4, 0x80, "a negative count");
    expect_bad(4, 0x7F, "two thousand million images");
    expect_bad(7, 0, "no images");
    expect_bad(7, 4, "one image more than there is");
    expect_bad(8, 0x7F, "very high images");
    expect_bad(15, 0, "no columns");
}

Test(idx, sizes_that_overflow_are_refused)
{
    test_bytes file = {0};
    test_put_be32(&file, 0x00000803);
    for (int i = 0; i < 3; i++) {
        test_put_be32(&file, 0x7FFFFFFF); /* the product passes 2^64 */
    }
    dunlin_idx_header header = {0};
    dunlin_error error = {0};
    cr_assert_eq(read_header(&file, DUNLIN_IDX_U8, 3, &header, &error), DUNLIN_DATA);
    file.n = 0;
    test_put_be32(&file, 0x00000C02);
    test_put_be32(&file, 0x7FFFFFFF); /* 2^62 elements fit, four bytes each do not */
    test_put_be32(&file, 0x7FFFFFFF);
    cr_assert_eq(read_header(&file, DUNLIN_IDX_I32, 2, &header, &error), DUNLIN_DATA);
    test_bytes_free(&file);
}

Test(idx, a_small_gzip_cannot_claim_much)
{
    /* Twenty bytes of gzip that claim 2^30 images: refused before memory is asked for. */
    test_bytes file = {0};
    test_put_be32(&file, 0x00000803);
    test_put_be32(&file, 0x40000000);
    test_put_be32(&file, 28);
    test_put_be32(&file, 28);
    test_bytes packed = gzip(file.bytes, file.n);
    dunlin_idx_header header = {0};
    dunlin_error error = {0};
    cr_assert_eq(read_header(&packed, DUNLIN_IDX_U8, 3, &header, &error), DUNLIN_DATA);
    cr_assert_not_null(strstr(error.text, "at most"), "%s", error.text);
    test_bytes_free(&file);
    test_bytes_free(&packed);
}
