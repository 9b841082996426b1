/*
 * zip.c - ZIP's central directory.
 *
 * Invariant: no offset or size out of a header is used before it was held against the file's size.
 * Source: PKWARE, "APPNOTE.TXT - .ZIP file format specification", 4.3 and 4.5.3.
 */
#include "zip.h"

#include <mem/checked.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 96
#define END_BYTES 22
#define END_MOST (END_BYTES + 65535)
#define LOCATOR_BYTES 20
#define END64_BYTES 56
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
#define MAGIC_END 0x06054b50U
#define MAGIC_LOCATOR 0x07064b50U
#define MAGIC_END64 0x06064b50U
#define MAGIC_ENTRY 0x02014b50U
#define MAGIC_LOCAL 0x04034b50U
#define DEFLATE_RATIO 1032
#define WINDOW 4096

static uint32_t le16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t le32(const uint8_t *at)
{
    return le16(at) | le16(at + 2) << 16;
}

static uint64_t le64(const uint8_t *at)
{
    return le32(at) | (uint64_t)le32(at + 4) << 32;
}

static dunlin_status fail(const dunlin_zip *zip, const char *what, dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: damaged: %s", zip->name, what);
}

/* Exactly n bytes from `first` on. */
static dunlin_status read_at(const dunlin_zip *zip, uint64_t first, void *out, size_t n,
                             dunlin_error *error)
{
    if (first > zip->n_bytes || n > zip->n_bytes - first) {
        (void)dunlin__fail(error, DUNLIN_DATA, "data", 0,
                           "%s: cut off: its archive points to byte %" PRIu64
                           ", and it has %" PRIu64,
                           zip->name, first, zip->n_bytes);
        return DUNLIN_DATA;
    }
    if (zip->file < 0) {
        memcpy(out, zip->memory + first, n);
        return DUNLIN_OK;
    }
    for (size_t done = 0; done < n;) {
        const ssize_t got =
            pread(zip->file, (uint8_t *)out + done, n - done, (off_t)(first + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            (void)dunlin__fail(error, DUNLIN_IO, "data", errno, "%s: reading failed: %s", zip->name,
                               got < 0 ? strerror(errno) : "it became shorter");
            return DUNLIN_IO;
        }
        done += (size_t)got;
    }
    return DUNLIN_OK;
}

/* The last record that ends where the file ends: it holds a comment of up to 65535 bytes. */
static dunlin_status find_end(const dunlin_zip *zip, uint64_t *out_at, uint8_t out[END_BYTES],
                              dunlin_error *error)
{
    uint8_t window[WINDOW + END_BYTES];
    const uint64_t least = zip->n_bytes > END_MOST ? zip->n_bytes - END_MOST : 0;
    uint64_t last = zip->n_bytes < END_BYTES ? 0 : zip->n_bytes - END_BYTES; /* may begin here */
    while (zip->n_bytes >= END_BYTES) {
        const uint64_t first = last - least > WINDOW ? last - WINDOW : least;
        const size_t n = (size_t)(last - first);
        DUNLIN_TRY(read_at(zip, first, window, n + END_BYTES, error));
        for (size_t i = n + 1; i > 0; i--) {
            const uint8_t *at = window + i - 1;
            if (le32(at) == MAGIC_END &&
                first + i - 1 + END_BYTES + le16(at + 20) == zip->n_bytes) {
                *out_at = first + i - 1;
                memcpy(out, at, END_BYTES);
                return DUNLIN_OK;
            }
        }
        if (first == least) {
            break;
        }
        last = first - 1;
    }
    (void)dunlin__fail(error, DUNLIN_DATA, "data", 0,
                       "%s: not an archive: there is no end record of ZIP", zip->name);
    return DUNLIN_DATA;
}

static dunlin_status find_directory(dunlin_zip *zip, dunlin_error *error)
{
    uint8_t end[END_BYTES];
    uint8_t locator[LOCATOR_BYTES];
    uint64_t at = 0;
    DUNLIN_TRY(find_end(zip, &at, end, error));
    zip->n_members = le16(end + 10);
    uint64_t bytes = le32(end + 12);
    zip->first = le32(end + 16);
    if (at >= LOCATOR_BYTES) {
        DUNLIN_TRY(read_at(zip, at - LOCATOR_BYTES, locator, sizeof locator, error));
        if (le32(locator) == MAGIC_LOCATOR) {
            uint8_t end64[END64_BYTES];
            DUNLIN_TRY(read_at(zip, le64(locator + 8), end64, sizeof end64, error));
            if (le32(end64) != MAGIC_END64) {
                return fail(zip, "no end record of 64 bits where the archive says", error);
            }
            zip->n_members = le64(end64 + 32);
            bytes = le64(end64 + 40);
            zip->first = le64(end64 + 48);
        }
    }
    if (!dunlin__add_u64(zip->first, bytes, &zip->end) || zip->end > zip->n_bytes) {
        return fail(zip, "the list of its members does not lie within it", error);
    }
    zip->at = zip->first;
    return DUNLIN_OK;
}

dunlin_status dunlin__zip_open(dunlin_zip *zip, const char *path, const void *memory,
                               size_t n_bytes, dunlin_error *error)
{
    *zip = (dunlin_zip){.name = "memory", .file = -1, .memory = memory, .n_bytes = n_bytes};
    if (path != NULL) {
        const size_t length = strlen(path);
        struct stat info;
        memset(&info, 0, sizeof info);
        zip->name = length > NAME_BYTES ? path + length - NAME_BYTES : path;
        zip->file = dunlin__sys_open(path, O_RDONLY, 0);
        if (zip->file < 0 || fstat(zip->file, &info) != 0 || !S_ISREG(info.st_mode)) {
            const int code = errno;
            const bool is_opened = zip->file >= 0;
            dunlin__zip_close(zip);
            return dunlin__fail(error, DUNLIN_IO, "data", code, "%s: %s", zip->name,
                                is_opened ? "not a regular file" : strerror(code));
        }
        zip->n_bytes = (uint64_t)info.st_size;
    }
    const dunlin_status status = find_directory(zip, error);
    if (status != DUNLIN_OK) {
        dunlin__zip_close(zip);
    }
    return status;
}

void dunlin__zip_close(dunlin_zip *zip)
{
    if (zip->file >= 0) {
        (void)close(zip->file);
        zip->file = -1;
    }
}

/* Sizes and place that did not fit 32 bits stand in the extra field 1, those alone, in this order.
 */
static dunlin_status read_wide(const dunlin_zip *zip, uint64_t first, uint32_t n_extra,
                               uint64_t *const values[3], dunlin_error *error)
{
    for (uint32_t at = 0; at + 4 <= n_extra;) {
        uint8_t header[4];
        DUNLIN_TRY(read_at(zip, first + at, header, sizeof header, error));
        const uint32_t n = le16(header + 2);
        if (n > n_extra - at - 4) {
            return fail(zip, "an extra field is longer than all of them", error);
        }
        uint32_t inside = 0;
        for (int i = 0; i < 3 && le16(header) == 1; i++) {
            uint8_t wide[8];
            if (*values[i] != UINT32_MAX) {
                continue;
            }
            if (inside + sizeof wide > n) {
                return fail(zip, "a size of 64 bits is missing", error);
            }
            DUNLIN_TRY(read_at(zip, first + at + 4 + inside, wide, sizeof wide, error));
            *values[i] = le64(wide);
            inside += (uint32_t)sizeof wide;
        }
        at += 4 + n;
    }
    return DUNLIN_OK;
}

/* Where the member's bytes begin: after its own header. */
static dunlin_status find_bytes(const dunlin_zip *zip, uint64_t local, dunlin_zip_member *member,
                                dunlin_error *error)
{
    uint8_t header[LOCAL_BYTES];
    uint64_t most = 0;
    DUNLIN_TRY(read_at(zip, local, header, sizeof header, error));
    if (le32(header) != MAGIC_LOCAL) {
        return fail(zip, "no member where the list of its members says", error);
    }
    dunlin_bytes_part *part = &member->part;
    part->first = local + LOCAL_BYTES + le16(header + 26) + le16(header + 28);
    if (part->first > zip->n_bytes || part->n_raw > zip->n_bytes - part->first) {
        return fail(zip, "a member does not lie within it", error);
    }
    if (!dunlin__mul_u64(part->n_raw, part->is_deflated ? DEFLATE_RATIO : 1, &most) ||
        part->n_bytes > most || (!part->is_deflated && part->n_bytes != part->n_raw)) {
        return fail(zip, "a member cannot hold what it says", error);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__zip_next(dunlin_zip *zip, dunlin_zip_member *out_member, bool *out_has,
                               dunlin_error *error)
{
    uint8_t entry[ENTRY_BYTES];
    *out_has = false;
    if (zip->at == zip->end) {
        return DUNLIN_OK;
    }
    if (zip->end - zip->at < ENTRY_BYTES) {
        return fail(zip, "the list of its members is cut off", error);
    }
    DUNLIN_TRY(read_at(zip, zip->at, entry, sizeof entry, error));
    const uint32_t n_name = le16(entry + 28);
    const uint32_t n_extra = le16(entry + 30);
    const uint64_t n_all = (uint64_t)ENTRY_BYTES + n_name + n_extra + le16(entry + 32);
    if (le32(entry) != MAGIC_ENTRY || n_all > zip->end - zip->at) {
        return fail(zip, "the list of its members is wrong", error);
    }
    if (n_name >= DUNLIN_ZIP_NAME_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%s: a member's name of %" PRIu32 " bytes: the limit is %d", zip->name,
                            n_name, DUNLIN_ZIP_NAME_BYTES - 1);
    }
    memset(out_member, 0, sizeof *out_member);
    DUNLIN_TRY(read_at(zip, zip->at + ENTRY_BYTES, out_member->name, n_name, error));
    for (uint32_t i = 0; i < n_name; i++) {
        const char c = out_member->name[i];
        out_member->name[i] = c < ' ' || c > '~' ? '?' : c;
    }
    const uint32_t method = le16(entry + 10);
    if ((le16(entry + 8) & 1) != 0 || (method != 0 && method != 8)) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "%s: member %s is %s; stored and deflated ones are read", zip->name,
                            out_member->name,
                            method == 0 || method == 8 ? "encrypted" : "packed in another way");
    }
    uint64_t local = le32(entry + 42);
    dunlin_bytes_part *part = &out_member->part;
    *part = (dunlin_bytes_part){.n_raw = le32(entry + 20),
                                .n_bytes = le32(entry + 24),
                                .is_deflated = method == 8,
                                .crc = le32(entry + 16)};
    uint64_t *const wide[3] = {&part->n_bytes, &part->n_raw, &local};
    DUNLIN_TRY(read_wide(zip, zip->at + ENTRY_BYTES + n_name, n_extra, wide, error));
    DUNLIN_TRY(find_bytes(zip, local, out_member, error));
    zip->at += n_all;
    *out_has = true;
    return DUNLIN_OK;
}
