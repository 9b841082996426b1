/*
 * bytes.c - plain or gzip bytes, from a file or memory, in reads of exact length.
 *
 * Invariant: `position` counts what was handed out and never passes `limit_bytes`. The limit of a
 * gzip file follows from its size: deflate cannot expand more than 1032 to 1 (RFC 1951, a match of
 * 258 bytes costs at least two bits), so a header that claims more is known to be false before a
 * byte is allocated for it.
 */
#include "bytes.h"

#include <mem/checked.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GZIP_RATIO 1032
#define NAME_BYTES 96
#define ZLIB_HEADER 64 /* keeps the block's size, and its alignment */

/* zlib frees without a size: it is kept in front of the block. */
static void *zlib_alloc(void *ctx, unsigned n, unsigned bytes)
{
    const dunlin_alloc *alloc = ctx;
    size_t total = 0;
    if (!dunlin__mul_size(n, bytes, &total) || !dunlin__add_size(total, ZLIB_HEADER, &total)) {
        return NULL;
    }
    uint8_t *block = dunlin__alloc_zeroed(alloc, total, 1);
    if (block == NULL) {
        return NULL;
    }
    memcpy(block, &total, sizeof total);
    return block + ZLIB_HEADER;
}

static void zlib_free(void *ctx, void *memory)
{
    if (memory == NULL) {
        return;
    }
    uint8_t *block = (uint8_t *)memory - ZLIB_HEADER;
    size_t total = 0;
    memcpy(&total, block, sizeof total);
    dunlin__free_array(ctx, block, total, 1);
}

/* Reads raw bytes of the file or memory into `buffer`; 0 at the end. */
static dunlin_status fill(dunlin_bytes *bytes, size_t *out_n, dunlin_error *error)
{
    bytes->next = bytes->buffer;
    const size_t most = bytes->left_bytes < DUNLIN_BYTES_BUFFER ? (size_t)bytes->left_bytes
                                                                : (size_t)DUNLIN_BYTES_BUFFER;
    if (bytes->file < 0) {
        const size_t n = bytes->memory_bytes < most ? bytes->memory_bytes : most;
        if (n > 0) {
            memcpy(bytes->buffer, bytes->memory, n);
        }
        bytes->memory += n;
        bytes->memory_bytes -= n;
        bytes->left_bytes -= n;
        *out_n = n;
        return DUNLIN_OK;
    }
    ssize_t n = 0;
    do {
        n = read(bytes->file, bytes->buffer, most);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return dunlin__fail(error, DUNLIN_IO, "data", errno, "%s: reading failed: %s", bytes->name,
                            strerror(errno));
    }
    bytes->left_bytes -= (uint64_t)n;
    *out_n = (size_t)n;
    return DUNLIN_OK;
}

static dunlin_status begin_inflate(dunlin_bytes *bytes, int window_bits, dunlin_error *error)
{
    bytes->stream.zalloc = zlib_alloc;
    bytes->stream.zfree = zlib_free;
    bytes->stream.opaque = &bytes->alloc;
    bytes->is_gzip = inflateInit2(&bytes->stream, window_bits) == Z_OK;
    return bytes->is_gzip ? DUNLIN_OK
                          : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                                         "%s: no memory to unpack it", bytes->name);
}

/* Looks at the first bytes and sets the limit. */
static dunlin_status begin(dunlin_bytes *bytes, uint64_t raw_bytes, dunlin_error *error)
{
    size_t n = 0;
    DUNLIN_TRY(fill(bytes, &n, error));
    bytes->n_buffered = n;
    bytes->limit_bytes = raw_bytes;
    if (n < 2 || bytes->buffer[0] != 0x1f || bytes->buffer[1] != 0x8b) {
        return DUNLIN_OK;
    }
    if (!dunlin__mul_u64(raw_bytes, GZIP_RATIO, &bytes->limit_bytes)) {
        bytes->limit_bytes = UINT64_MAX;
    }
    bytes->stream.next_in = bytes->buffer;
    bytes->stream.avail_in = (unsigned)n;
    return begin_inflate(bytes, 16 + MAX_WBITS, error);
}

/* Opens the file alone. */
static dunlin_status open_file(dunlin_bytes *bytes, const char *path, const dunlin_alloc *alloc,
                               uint64_t *out_file_bytes, dunlin_error *error)
{
    memset(bytes, 0, sizeof *bytes);
    bytes->alloc = *alloc;
    bytes->left_bytes = UINT64_MAX;
    size_t length = strlen(path);
    bytes->name = length > NAME_BYTES ? path + length - NAME_BYTES : path;
    bytes->file = dunlin__sys_open(path, O_RDONLY, 0);
    struct stat info;
    memset(&info, 0, sizeof info);
    if (bytes->file < 0 || fstat(bytes->file, &info) != 0) {
        int code = errno;
        dunlin_status status =
            dunlin__fail(error, DUNLIN_IO, "data", code, "%s: %s", bytes->name, strerror(code));
        dunlin__bytes_close(bytes);
        return status;
    }
    if (!S_ISREG(info.st_mode) || info.st_size < 0) {
        dunlin__bytes_close(bytes);
        return dunlin__fail(error, DUNLIN_IO, "data", 0, "%s: not a regular file", bytes->name);
    }
    *out_file_bytes = (uint64_t)info.st_size;
    return DUNLIN_OK;
}

dunlin_status dunlin__bytes_open(dunlin_bytes *bytes, const char *path, const dunlin_alloc *alloc,
                                 dunlin_error *error)
{
    uint64_t file_bytes = 0;
    DUNLIN_TRY(open_file(bytes, path, alloc, &file_bytes, error));
    const dunlin_status status = begin(bytes, file_bytes, error);
    if (status != DUNLIN_OK) {
        dunlin__bytes_close(bytes);
    }
    return status;
}

/* Of a part: its place, and how it is unpacked. */
static dunlin_status begin_part(dunlin_bytes *bytes, const dunlin_bytes_part *part,
                                dunlin_error *error)
{
    bytes->left_bytes = part->n_raw;
    bytes->limit_bytes = part->n_bytes;
    bytes->has_crc = true;
    bytes->crc_expected = part->crc;
    if (bytes->file >= 0 &&
        (part->first > INT64_MAX || lseek(bytes->file, (off_t)part->first, SEEK_SET) < 0)) {
        return dunlin__fail(error, DUNLIN_IO, "data", errno, "%s: byte %" PRIu64 ": %s",
                            bytes->name, part->first, strerror(errno));
    }
    return part->is_deflated ? begin_inflate(bytes, -MAX_WBITS, error) : DUNLIN_OK;
}

dunlin_status dunlin__bytes_open_part(dunlin_bytes *bytes, const char *path, const void *memory,
                                      const dunlin_bytes_part *part, const dunlin_alloc *alloc,
                                      dunlin_error *error)
{
    uint64_t file_bytes = 0;
    if (path != NULL) {
        DUNLIN_TRY(open_file(bytes, path, alloc, &file_bytes, error));
    } else {
        memset(bytes, 0, sizeof *bytes);
        bytes->alloc = *alloc;
        bytes->name = "memory";
        bytes->file = -1;
        bytes->memory = (const uint8_t *)memory + part->first;
        bytes->memory_bytes = (size_t)part->n_raw;
    }
    const dunlin_status status = begin_part(bytes, part, error);
    if (status != DUNLIN_OK) {
        dunlin__bytes_close(bytes);
    }
    return status;
}

dunlin_status dunlin__bytes_open_memory(dunlin_bytes *bytes, const char *name, const void *memory,
                                        size_t memory_bytes, const dunlin_alloc *alloc,
                                        dunlin_error *error)
{
    memset(bytes, 0, sizeof *bytes);
    bytes->alloc = *alloc;
    bytes->name = name;
    bytes->file = -1;
    bytes->memory = memory;
    bytes->memory_bytes = memory_bytes;
    bytes->left_bytes = UINT64_MAX;
    return begin(bytes, memory_bytes, error);
}

void dunlin__bytes_close(dunlin_bytes *bytes)
{
    if (bytes->is_gzip) {
        (void)inflateEnd(&bytes->stream);
        bytes->is_gzip = false;
    }
    if (bytes->file >= 0) {
        (void)close(bytes->file);
        bytes->file = -1;
    }
}

/* One round of inflating into [out, out + n); *out_n bytes came. */
static dunlin_status inflate_some(dunlin_bytes *bytes, uint8_t *out, size_t n, size_t *out_n,
                                  dunlin_error *error)
{
    z_stream *stream = &bytes->stream;
    if (stream->avail_in == 0) {
        size_t n_raw = 0;
        DUNLIN_TRY(fill(bytes, &n_raw, error));
        stream->next_in = bytes->buffer;
        stream->avail_in = (unsigned)n_raw;
    }
    unsigned room = n > (1U << 30) ? 1U << 30 : (unsigned)n;
    stream->next_out = out;
    stream->avail_out = room;
    int result = inflate(stream, Z_NO_FLUSH);
    *out_n = room - stream->avail_out;
    if (result == Z_STREAM_END) {
        bytes->is_done = true;
    } else if (result == Z_BUF_ERROR && *out_n == 0 && stream->avail_in == 0) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: cut off: the packed stream ends early, after %" PRIu64
                            " unpacked bytes",
                            bytes->name, bytes->position);
    } else if (result == Z_MEM_ERROR) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", result, "%s: no memory to unpack it",
                            bytes->name);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return dunlin__fail(
            error, DUNLIN_DATA, "data", result,
            "%s: damaged: not valid gzip or deflate after %" PRIu64 " unpacked bytes (%s)",
            bytes->name, bytes->position, stream->msg == NULL ? "no detail" : stream->msg);
    }
    return DUNLIN_OK;
}

static dunlin_status copy_some(dunlin_bytes *bytes, uint8_t *out, size_t n, size_t *out_n,
                               dunlin_error *error)
{
    if (bytes->n_buffered == 0) {
        DUNLIN_TRY(fill(bytes, &bytes->n_buffered, error));
    }
    size_t part = n < bytes->n_buffered ? n : bytes->n_buffered;
    if (part == 0) {
        bytes->is_done = true;
    } else {
        memcpy(out, bytes->next, part);
    }
    bytes->next += part;
    bytes->n_buffered -= part;
    *out_n = part;
    return DUNLIN_OK;
}

dunlin_status dunlin__bytes_read_some(dunlin_bytes *bytes, void *out, size_t n, size_t *out_n,
                                      dunlin_error *error)
{
    uint8_t *to = out;
    size_t done = 0;
    while (done < n && !bytes->is_done) {
        size_t part = 0;
        DUNLIN_TRY(bytes->is_gzip ? inflate_some(bytes, to + done, n - done, &part, error)
                                  : copy_some(bytes, to + done, n - done, &part, error));
        if (bytes->has_crc && part > 0) {
            bytes->crc = (uint32_t)crc32_z(bytes->crc, to + done, part);
        }
        done += part;
        bytes->position += part;
        assert(done <= n);
    }
    if (bytes->has_crc && bytes->is_done && bytes->crc != bytes->crc_expected) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: damaged: the checksum of a part is %08" PRIx32 ", not %08" PRIx32,
                            bytes->name, bytes->crc, bytes->crc_expected);
    }
    *out_n = done;
    return DUNLIN_OK;
}

dunlin_status dunlin__bytes_read(dunlin_bytes *bytes, void *out, size_t n, dunlin_error *error)
{
    size_t done = 0;
    DUNLIN_TRY(dunlin__bytes_read_some(bytes, out, n, &done, error));
    if (done < n) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: cut off: it ends at byte %" PRIu64 ", %zu bytes are missing",
                            bytes->name, bytes->position, n - done);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__bytes_expect_end(dunlin_bytes *bytes, dunlin_error *error)
{
    uint8_t byte = 0;
    size_t n = 0;
    uint64_t expected = bytes->position;
    DUNLIN_TRY(dunlin__bytes_read_some(bytes, &byte, 1, &n, error));
    if (n != 0) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: too long: more than the %" PRIu64 " bytes its header announces",
                            bytes->name, expected);
    }
    return DUNLIN_OK;
}
