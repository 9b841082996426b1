/*
 * own_files.c - makes NumPy files and archives.
 */
#include "own_files.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static void put_le(test_bytes *to, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        test_put_u8(to, (uint8_t)(value >> (8 * i)));
    }
}

test_bytes test_npy_header(int version, const char *header, const void *elements, size_t n_bytes)
{
    test_bytes made = {0};
    const size_t n_length = version > 1 ? 4 : 2;
    size_t n = strlen(header) + 1;
    n += (64 - (8 + n_length + n) % 64) % 64;
    test_put(&made, "\x93NUMPY", 6);
    test_put_u8(&made, (uint8_t)version);
    test_put_u8(&made, 0);
    put_le(&made, n, n_length);
    test_put(&made, header, strlen(header));
    for (size_t i = strlen(header); i + 1 < n; i++) {
        test_put_u8(&made, ' ');
    }
    test_put_u8(&made, '\n');
    test_put(&made, elements, n_bytes);
    return made;
}

test_bytes test_npy(const char *type, const char *shape, const void *elements, size_t n_bytes)
{
    char header[256];
    (void)snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                   type, shape);
    return test_npy_header(1, header, elements, n_bytes);
}

/* Raw deflate. */
static test_bytes deflated(const test_bytes *bytes)
{
    test_bytes made = {0};
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    cr_assert_eq(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    made.capacity = deflateBound(&stream, bytes->n) + 64;
    made.bytes = malloc(made.capacity);
    stream.next_in = bytes->bytes;
    stream.avail_in = (unsigned)bytes->n;
    stream.next_out = made.bytes;
    stream.avail_out = (unsigned)made.capacity;
    cr_assert_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    made.n = made.capacity - stream.avail_out;
    (void)deflateEnd(&stream);
    return made;
}

/* What a member's own header and its entry have in common; the extra field with is_wide. */
static void put_header(test_bytes *to, const test_member *member, size_t n_raw, bool is_entry)
{
    const uint32_t crc = (uint32_t)crc32(0, member->bytes->bytes, (unsigned)member->bytes->n);
    put_le(to, 45, 2); /* needed to read it */
    put_le(to, 0, 2);
    put_le(to, member->is_deflated ? 8 : 0, 2);
    put_le(to, 0, 4); /* time */
    put_le(to, crc, 4);
    put_le(to, member->is_wide ? UINT32_MAX : n_raw, 4);
    put_le(to, member->is_wide ? UINT32_MAX : member->bytes->n, 4);
    put_le(to, strlen(member->name), 2);
    put_le(to, member->is_wide ? 20 : 0, 2);
    if (is_entry) {
        put_le(to, 0, 8); /* comment, disk, attributes */
        put_le(to, 0, 2);
    }
}

static void put_wide(test_bytes *to, const test_member *member, size_t n_raw)
{
    if (member->is_wide) {
        put_le(to, 1, 2);
        put_le(to, 16, 2);
        put_le(to, member->bytes->n, 8);
        put_le(to, n_raw, 8);
    }
}

test_bytes test_zip(const test_member *members, size_t n)
{
    test_bytes made = {0};
    test_bytes entries = {0};
    for (size_t i = 0; i < n; i++) {
        const test_member *member = &members[i];
        test_bytes packed = {0};
        if (member->is_deflated) {
            packed = deflated(member->bytes);
        }
        const test_bytes *raw = member->is_deflated ? &packed : member->bytes;
        const size_t local = made.n;
        put_le(&made, 0x04034b50, 4);
        put_header(&made, member, raw->n, false);
        test_put(&made, member->name, strlen(member->name));
        put_wide(&made, member, raw->n);
        test_put(&made, raw->bytes, raw->n);
        put_le(&entries, 0x02014b50, 4);
        put_le(&entries, 45, 2);
        put_header(&entries, member, raw->n, true);
        put_le(&entries, local, 4);
        test_put(&entries, member->name, strlen(member->name));
        put_wide(&entries, member, raw->n);
        test_bytes_free(&packed);
    }
    const size_t first = made.n;
    test_put(&made, entries.bytes, entries.n);
    put_le(&made, 0x06054b50, 4);
    put_le(&made, 0, 4);
    put_le(&made, n, 2);
    put_le(&made, n, 2);
    put_le(&made, entries.n, 4);
    put_le(&made, first, 4);
    put_le(&made, 0, 2);
    test_bytes_free(&entries);
    return made;
}
