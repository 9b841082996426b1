/*
 * source.c - the bytes of a model file: a window that slides over the file, and files beside it.
 *
 * Invariant: nothing outside [0, n_bytes) is ever read, and weights never pass through the window:
 * the reader moves the offset past them.
 */
#include "file.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PATH_BYTES 4096

static dunlin_status open_file(dunlin_onnx_source *source, const char *path, dunlin_error *error)
{
    struct stat info;
    /* A pipe would block an ordinary open. */
    int fd = dunlin__sys_open(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0 || fstat(fd, &info) != 0) {
        int reason = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return dunlin__fail(error, DUNLIN_IO, "onnx", reason,
                            "cannot open the model file '%.180s' (system error %d)", path, reason);
    }
    source->fd = fd;
    source->n_bytes = info.st_size > 0 ? (uint64_t)info.st_size : 0;
    if (!S_ISREG(info.st_mode)) {
        return dunlin__fail(error, DUNLIN_IO, "onnx", 0, "'%.180s' is not a file", path);
    }
    return DUNLIN_OK;
}

/* A part of a file that somebody has opened: an asset within an app's package. */
static dunlin_status open_descriptor(dunlin_onnx_source *source, const dunlin_onnx_place *place,
                                     dunlin_error *error)
{
    struct stat info;
    if (fstat(place->fd, &info) != 0) {
        int reason = errno;
        return dunlin__fail(error, DUNLIN_IO, "onnx", reason,
                            "descriptor %d cannot be read (system error %d)", place->fd, reason);
    }
    if (!S_ISREG(info.st_mode)) {
        return dunlin__fail(error, DUNLIN_IO, "onnx", 0, "descriptor %d is no file", place->fd);
    }
    const uint64_t size = info.st_size > 0 ? (uint64_t)info.st_size : 0;
    if (place->first > size || place->n_bytes > size - place->first) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "onnx", 0,
                            "bytes %" PRIu64 " + %" PRIu64
                            " pass the end of descriptor %d's %" PRIu64 " bytes",
                            place->first, place->n_bytes, place->fd, size);
    }
    source->first = place->first;
    source->n_bytes = place->n_bytes > 0 ? place->n_bytes : size - place->first;
    source->fd = dunlin__sys_duplicate(place->fd);
    if (source->fd < 0) {
        int reason = errno;
        return dunlin__fail(error, DUNLIN_IO, "onnx", reason,
                            "descriptor %d cannot be duplicated (system error %d)", place->fd,
                            reason);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__onnx_source_open(dunlin_onnx_source *source, const dunlin_onnx_place *place,
                                       dunlin_error *error)
{
    source->fd = -1;
    source->bytes = place->bytes;
    source->n_bytes = place->n_bytes;
    if (place->path != NULL) {
        DUNLIN_TRY(open_file(source, place->path, error));
    } else if (place->has_fd) {
        DUNLIN_TRY(open_descriptor(source, place, error));
    }
    if (source->n_bytes > DUNLIN_ONNX_MAX_FILE_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "onnx", 0,
                            "the model file has %" PRIu64 " bytes; the limit is %" PRIu64,
                            source->n_bytes, DUNLIN_ONNX_MAX_FILE_BYTES);
    }
    return DUNLIN_OK;
}

void dunlin__onnx_source_close(dunlin_onnx_source *source)
{
    if (source->fd >= 0) {
        (void)close(source->fd);
        source->fd = -1;
    }
}

bool dunlin__onnx_source_read_at(dunlin_onnx_source *source, uint64_t offset, uint8_t *out,
                                 size_t n)
{
    if (offset > source->n_bytes || n > source->n_bytes - offset) {
        return false;
    }
    if (source->fd < 0) {
        if (n > 0) {
            memcpy(out, source->bytes + offset, n);
        }
        return true;
    }
    for (size_t done = 0; done < n;) {
        ssize_t got =
            pread(source->fd, out + done, n - done, (off_t)(source->first + offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            source->os_error = got < 0 ? errno : 0;
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

bool dunlin__onnx_source_read(dunlin_onnx_source *source, uint8_t *out, size_t n)
{
    while (n > 0) {
        uint64_t into = source->offset - source->window_first;
        if (source->offset < source->window_first || into >= source->window_bytes) {
            uint64_t left = source->offset < source->n_bytes ? source->n_bytes - source->offset : 0;
            size_t wanted = left < sizeof source->window ? (size_t)left : sizeof source->window;
            if (wanted == 0 ||
                !dunlin__onnx_source_read_at(source, source->offset, source->window, wanted)) {
                source->window_bytes = 0;
                return false;
            }
            source->window_first = source->offset;
            source->window_bytes = wanted;
            into = 0;
        }
        size_t there = source->window_bytes - (size_t)into;
        size_t part = n < there ? n : there;
        memcpy(out, source->window + into, part);
        out += part;
        n -= part;
        source->offset += part;
    }
    return true;
}

/* Relative, and without a step upwards. */
static bool is_location_safe(const char *location)
{
    if (location[0] == '\0' || location[0] == '/' || strchr(location, '\\') != NULL) {
        return false;
    }
    for (const char *part = location; part != NULL;) {
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return false;
        }
        part = strchr(part, '/');
        part = part == NULL ? NULL : part + 1;
    }
    return true;
}

dunlin_status dunlin__onnx_external_path(const char *model_path, const char *location,
                                         uint64_t offset, uint64_t n_bytes, char *out,
                                         dunlin_error *error)
{
    if (!is_location_safe(location)) {
        return dunlin__fail(error, DUNLIN_MODEL, "onnx", 0,
                            "external data in '%.120s': the location must stay inside the model's "
                            "folder",
                            location);
    }
    if (model_path == NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "onnx", 0,
                            "external data in '%.120s' needs a model that is opened by its path",
                            location);
    }
    const char *slash = strrchr(model_path, '/');
    int folder_bytes = slash == NULL ? 0 : (int)(slash - model_path) + 1;
    int length = snprintf(out, MAX_PATH_BYTES, "%.*s%s", folder_bytes, model_path, location);
    if (length < 0 || length >= MAX_PATH_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "onnx", 0,
                            "external data in '%.100s': the path is longer than %d bytes", location,
                            MAX_PATH_BYTES);
    }
    struct stat info;
    if (stat(out, &info) != 0 || !S_ISREG(info.st_mode)) {
        return dunlin__fail(error, DUNLIN_IO, "onnx", errno,
                            "external data: '%.180s' is not a file beside the model", location);
    }
    uint64_t size = (uint64_t)info.st_size;
    if (offset > size || n_bytes > size - offset || size > (uint64_t)INT64_MAX) {
        return dunlin__fail(error, DUNLIN_MODEL, "onnx", 0,
                            "external data: bytes %" PRIu64 " + %" PRIu64
                            " pass the end of '%.100s' (%" PRIu64 " bytes)",
                            offset, n_bytes, location, size);
    }
    return DUNLIN_OK;
}
