/*
 * files.c - paths, whole files and folders of the server's state.
 *
 * Invariant: a name that others look for is only ever made by <mem/outfile.h>.
 */
#include "files.h"

#include <mem/outfile.h>
#include <mem/support.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

dunlin_status dunlin__server_path_make(dunlin__server_path *out_path, dunlin_error *error,
                                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n_chars = vsnprintf(out_path->text, sizeof out_path->text, format, args);
    va_end(args);
    if (n_chars < 0 || (size_t)n_chars >= sizeof out_path->text) {
        return dunlin__fail(error, DUNLIN_LIMIT, "files", 0,
                            "the path %.80s... is longer than %u bytes", out_path->text,
                            DUNLIN_SERVER_PATH_BYTES - 1);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__server_folder_make(const char *path, dunlin_error *error)
{
    if (mkdir(path, 0700) == 0) {
        return DUNLIN_OK;
    }
    struct stat info;
    if (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        return DUNLIN_OK;
    }
    return dunlin__file_fail(error, "making the folder", path, errno);
}

dunlin_status dunlin__server_file_settle(int fd, const char *from, const char *to,
                                         dunlin_error *error)
{
    const char *doing = NULL;
    const int code = dunlin__file_settle(fd, from, to, &doing);
    return code == 0 ? DUNLIN_OK : dunlin__file_fail(error, doing, to, code);
}

void dunlin__server_folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return;
    }
    /* readdir is safe here: the stream is ours alone. */
    struct dirent *entry = readdir(folder); /* NOLINT(concurrency-mt-unsafe) */
    while (entry != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        }
        entry = readdir(folder); /* NOLINT(concurrency-mt-unsafe) */
    }
    (void)closedir(folder);
    (void)rmdir(path);
}

dunlin_status dunlin__server_file_read(const dunlin_alloc *alloc, const char *path,
                                       size_t max_bytes, uint8_t **out_bytes, size_t *out_n_bytes,
                                       dunlin_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return dunlin__file_fail(error, "opening", path, errno);
    }
    struct stat info;
    dunlin_status status = DUNLIN_OK;
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = dunlin__fail(error, DUNLIN_IO, "files", 0, "%.160s is not a plain file", path);
        goto done;
    }
    if (info.st_size < 0 || (uint64_t)info.st_size > max_bytes) {
        status = dunlin__fail(error, DUNLIN_LIMIT, "files", 0, "%.140s has %lld bytes; at most %zu",
                              path, (long long)info.st_size, max_bytes);
        goto done;
    }
    n_bytes = (size_t)info.st_size;
    bytes = dunlin__alloc_array(alloc, n_bytes + 1, 1);
    if (bytes == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "files", 0, "%zu bytes for %.140s", n_bytes + 1,
                              path);
        goto done;
    }
    bytes[n_bytes] = 0;
    status = dunlin__server_read_at(fd, path, 0, bytes, n_bytes, error);
done:
    (void)close(fd);
    if (status != DUNLIN_OK) {
        dunlin__free_array(alloc, bytes, n_bytes + 1, 1);
        return status;
    }
    *out_bytes = bytes;
    *out_n_bytes = n_bytes;
    return DUNLIN_OK;
}

int64_t dunlin__server_file_size(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return -1;
    }
    return (int64_t)info.st_size;
}

dunlin_status dunlin__server_read_at(int fd, const char *path, uint64_t offset, void *buffer,
                                     size_t n_bytes, dunlin_error *error)
{
    uint8_t *out = buffer;
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t got = pread(fd, out + done, n_bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return dunlin__file_fail(error, "reading", path, errno);
        }
        if (got == 0) {
            return dunlin__fail(error, DUNLIN_IO, "files", 0, "%.140s ends before byte %llu", path,
                                (unsigned long long)offset + n_bytes);
        }
        done += (size_t)got;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__server_write_at(int fd, const char *path, uint64_t offset, const void *bytes,
                                      size_t n_bytes, dunlin_error *error)
{
    const uint8_t *from = bytes;
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t put = pwrite(fd, from + done, n_bytes - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return dunlin__file_fail(error, "writing", path, errno);
        }
        done += (size_t)put;
    }
    return DUNLIN_OK;
}
