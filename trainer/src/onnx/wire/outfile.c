/*
 * outfile.c - a file that appears whole or not at all: written beside its place, synchronised,
 * renamed.
 *
 * Invariant: whatever fails, the old file at `path` is untouched and no part is left behind.
 */
#include "outfile.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static dunlin_status fail_write(const dunlin_outfile *file, const char *what, int reason,
                                dunlin_error *error)
{
    dunlin_status status = reason == ENOSPC || reason == EDQUOT ? DUNLIN_SPACE : DUNLIN_IO;
    return dunlin__fail(error, status, "onnx", reason, "cannot %s '%.180s' (system error %d)", what,
                        file->path, reason);
}

dunlin_status dunlin__outfile_open(dunlin_outfile *file, const char *path, dunlin_error *error)
{
    file->path = path;
    file->fd = -1;
    int length = snprintf(file->part, sizeof file->part, "%s.part", path);
    if (length < 0 || (size_t)length >= sizeof file->part) {
        return dunlin__fail(error, DUNLIN_LIMIT, "onnx", 0, "the path is longer than %d bytes",
                            DUNLIN_OUTFILE_MAX_PATH - 6);
    }
    (void)unlink(file->part);
    file->fd = dunlin__sys_open(file->part, O_WRONLY | O_CREAT | O_EXCL, 0666);
    return file->fd >= 0 ? DUNLIN_OK : fail_write(file, "create", errno, error);
}

dunlin_status dunlin__outfile_write(dunlin_outfile *file, const void *bytes, size_t n,
                                    dunlin_error *error)
{
    const char *next = bytes;
    while (n > 0) {
        ssize_t done = write(file->fd, next, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return fail_write(file, "write", done < 0 ? errno : ENOSPC, error);
        }
        next += done;
        n -= (size_t)done;
    }
    return DUNLIN_OK;
}

/* The rename itself must survive a power cut. */
static void sync_folder(const char *path)
{
    char folder[DUNLIN_OUTFILE_MAX_PATH];
    const char *slash = strrchr(path, '/');
    int length = slash == NULL ? 1 : (int)(slash - path) + 1;
    (void)snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : path);
    (void)dunlin__sys_sync_folder(folder);
}

dunlin_status dunlin__outfile_close(dunlin_outfile *file, dunlin_status status, dunlin_error *error)
{
    const int code = status == DUNLIN_OK ? dunlin__sys_sync(file->fd) : 0;
    if (code != 0) {
        status = fail_write(file, "synchronise", code, error);
    }
    if (close(file->fd) != 0 && status == DUNLIN_OK) {
        status = fail_write(file, "close", errno, error);
    }
    if (status == DUNLIN_OK && rename(file->part, file->path) != 0) {
        status = fail_write(file, "rename into place", errno, error);
    }
    if (status == DUNLIN_OK) {
        sync_folder(file->path);
    } else {
        (void)unlink(file->part);
    }
    return status;
}
