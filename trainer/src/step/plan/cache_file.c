/*
 * cache_file.c - what all files of a cache_dir have in common: names, numbers, and reading them
 * whole.
 *
 * Invariant: what is handed out was read to its end; no file larger than a sane one is.
 */
#include "cache_file.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE_BYTES (64 << 20)

bool dunlin__cache_path(const dunlin_trainer *trainer, uint64_t key, const char *suffix,
                        char path[DUNLIN_OUTFILE_MAX_PATH])
{
    const int n = snprintf(path, DUNLIN_OUTFILE_MAX_PATH, "%s/%016" PRIx64 ".%s",
                           trainer->options.cache_dir, key, suffix);
    return n > 0 && n < DUNLIN_OUTFILE_MAX_PATH;
}

void dunlin__cache_put(unsigned char *to, uint64_t number, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        to[i] = (unsigned char)(number >> (8 * i));
    }
}

uint64_t dunlin__cache_get(const unsigned char *from, size_t n_bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        number |= (uint64_t)from[i] << (8 * i);
    }
    return number;
}

dunlin_status dunlin__cache_read(const char *path, size_t least_bytes, const dunlin_alloc *alloc,
                                 unsigned char **out_bytes, size_t *out_n, dunlin_error *error)
{
    struct stat info = {.st_size = 0};
    const int fd = dunlin__sys_open(path, O_RDONLY, 0);
    if (fd < 0 && errno == ENOENT) {
        return DUNLIN_IO;
    }
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size < (off_t)least_bytes || info.st_size > MAX_FILE_BYTES) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return dunlin__fail(error, DUNLIN_DIGEST, "trainer", 0, "it is no file of a plan's size");
    }
    const size_t n_bytes = (size_t)info.st_size;
    unsigned char *bytes = dunlin__alloc_array(alloc, n_bytes, 1);
    size_t at = 0;
    while (bytes != NULL && at < n_bytes) {
        const ssize_t got = read(fd, bytes + at, n_bytes - at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        at += (size_t)got;
    }
    (void)close(fd);
    if (bytes == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0, "no memory to read it");
    }
    if (at < n_bytes) {
        dunlin__free_array(alloc, bytes, n_bytes, 1);
        return dunlin__fail(error, DUNLIN_DIGEST, "trainer", 0,
                            "reading it ends after %zu of %zu bytes", at, n_bytes);
    }
    *out_bytes = bytes;
    *out_n = n_bytes;
    return DUNLIN_OK;
}
