/*
 * outfile.c - a file that appears whole or not at all: written beside its place, synchronised,
 * renamed.
 *
 * Invariant: whatever fails, no partial file is left, and until the rename the old file at `path`
 * is untouched.
 */
#include <mem/outfile.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

dunlin_status dunlin__file_fail(dunlin_error *error, const char *doing, const char *path, int code)
{
    const bool is_full = code == ENOSPC || code == EDQUOT || code == EFBIG;
    char reason[96];
    dunlin__sys_reason(code, reason, sizeof reason);
    return dunlin__fail(error, is_full ? DUNLIN_SPACE : DUNLIN_IO, "files", code,
                        "%s '%.120s' fails: %s (system error %d)", doing, path, reason, code);
}

dunlin_status dunlin__outfile_open(dunlin_outfile *file, const char *path, unsigned mode,
                                   dunlin_error *error)
{
    *file = (dunlin_outfile){.path = path, .fd = -1};
    int length = snprintf(file->part, sizeof file->part, "%s.part", path);
    if (length < 0 || (size_t)length >= sizeof file->part) {
        return dunlin__fail(error, DUNLIN_LIMIT, "files", 0,
                            "the path '%.80s...' is longer than %d bytes", path,
                            DUNLIN_OUTFILE_MAX_PATH - 6);
    }
    (void)unlink(file->part);
    file->fd = dunlin__sys_open(file->part, O_WRONLY | O_CREAT | O_EXCL, mode);
    return file->fd >= 0 ? DUNLIN_OK : dunlin__file_fail(error, "creating", path, errno);
}

void dunlin__outfile_to(dunlin_outfile *file, const char *name, dunlin_outfile_write_fn write_fn,
                        void *ctx)
{
    *file = (dunlin_outfile){.path = name, .fd = -1, .write_fn = write_fn, .ctx = ctx};
}

dunlin_status dunlin__outfile_write(dunlin_outfile *file, const void *bytes, size_t n,
                                    dunlin_error *error)
{
    if (file->write_fn != NULL) {
        const dunlin_status status = file->write_fn(file->ctx, bytes, n);
        return status == DUNLIN_OK ? DUNLIN_OK
                                   : dunlin__fail(error, DUNLIN_CALLBACK, "files", (int)status,
                                                  "the function that takes %s answers %s",
                                                  file->path, dunlin_status_name(status));
    }
    const char *next = bytes;
    while (n > 0) {
        ssize_t done = write(file->fd, next, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return dunlin__file_fail(error, "writing", file->path, done < 0 ? errno : ENOSPC);
        }
        next += done;
        n -= (size_t)done;
    }
    return DUNLIN_OK;
}

int dunlin__file_sync_folder(const char *path)
{
    char folder[DUNLIN_OUTFILE_MAX_PATH];
    const char *slash = strrchr(path, '/');
    const int length = slash == NULL ? 1 : (int)(slash - path) + 1;
    const int n = snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : path);
    if (n < 0 || (size_t)n >= sizeof folder) {
        return ENAMETOOLONG;
    }
    const int code = dunlin__sys_sync_folder(folder);
    return code == EINVAL ? 0 : code;
}

int dunlin__file_settle(int fd, const char *from, const char *to, const char **out_doing)
{
    *out_doing = "synchronising";
    int code = fd >= 0 ? dunlin__sys_sync(fd) : 0;
    if (code == 0) {
        *out_doing = "renaming a part to";
        code = rename(from, to) == 0 ? 0 : errno;
    }
    if (code == 0) {
        *out_doing = "synchronising the folder of";
        code = dunlin__file_sync_folder(to);
    }
    return code;
}

dunlin_status dunlin__outfile_close(dunlin_outfile *file, dunlin_status status, dunlin_error *error)
{
    if (file->write_fn != NULL) {
        return status;
    }
    int code = status == DUNLIN_OK ? dunlin__sys_sync(file->fd) : 0;
    if (code != 0) {
        status = dunlin__file_fail(error, "synchronising", file->path, code);
    }
    if (close(file->fd) != 0 && status == DUNLIN_OK) {
        status = dunlin__file_fail(error, "closing", file->path, errno);
    }
    file->fd = -1;
    if (status == DUNLIN_OK) {
        const char *doing = NULL;
        code = dunlin__file_settle(-1, file->part, file->path, &doing);
        status = code == 0 ? DUNLIN_OK : dunlin__file_fail(error, doing, file->path, code);
    }
    if (status != DUNLIN_OK) {
        (void)unlink(file->part); /* not there once it has its name */
    }
    return status;
}

dunlin_status dunlin__outfile_put(const char *path, unsigned mode, const void *bytes, size_t n,
                                  dunlin_error *error)
{
    dunlin_outfile file;
    DUNLIN_TRY(dunlin__outfile_open(&file, path, mode, error));
    const dunlin_status status = dunlin__outfile_write(&file, bytes, n, error);
    return dunlin__outfile_close(&file, status, error);
}
