/*
 * output.c - writes files whole or not at all: a temporary file beside the target, flushed to the
 * storage, then renamed.
 */
#include "output.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(output *out, const char *what)
{
    (void)snprintf(out->error, sizeof out->error, "%.*s: %s: %s", 128, out->path, what,
                   strerror(errno));
    return false;
}

bool output_begin(output *out, const char *path)
{
    memset(out, 0, sizeof *out);
    int length = snprintf(out->path, sizeof out->path, "%s", path);
    if (length < 0 || length >= (int)sizeof out->path) {
        errno = ENAMETOOLONG;
        return fail(out, "cannot be written");
    }
    if (strcmp(path, "-") == 0) {
        out->is_direct = true;
        out->file = stdout;
        return true;
    }
    struct stat info;
    out->is_direct = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    if (out->is_direct) {
        out->file = fopen(path, "we");
        return out->file != NULL || fail(out, "cannot be written");
    }
    (void)snprintf(out->part, sizeof out->part, "%s.part-%ld", out->path, (long)getpid());
    out->file = fopen(out->part, "we");
    return out->file != NULL || fail(out, "cannot be written");
}

void output_abandon(output *out)
{
    if (out->file != NULL && out->file != stdout) {
        (void)fclose(out->file);
    }
    if (out->file != NULL && !out->is_direct) {
        (void)unlink(out->part);
    }
    out->file = NULL;
}

bool output_end(output *out)
{
    bool is_written = fflush(out->file) == 0 && ferror(out->file) == 0;
    is_written = is_written && (out->is_direct || fsync(fileno(out->file)) == 0);
    int code = errno;
    if (out->file != stdout && fclose(out->file) != 0 && is_written) {
        is_written = false;
        code = errno;
    }
    out->file = NULL;
    if (is_written && (out->is_direct || rename(out->part, out->path) == 0)) {
        return true;
    }
    code = is_written ? errno : code;
    if (!out->is_direct) {
        (void)unlink(out->part);
    }
    errno = code;
    return fail(out, "writing failed");
}

static int write_piece(const char *buffer, size_t size, void *data)
{
    return fwrite(buffer, 1, size, data) == size ? 0 : -1;
}

bool output_json(const char *path, const json_t *value, char out_error[OUTPUT_ERROR_BYTES])
{
    output out;
    bool is_written = output_begin(&out, path);
    if (is_written) {
        /* A failed write shows in ferror(), which output_end() looks at. */
        (void)json_dump_callback(value, write_piece, out.file, JSON_INDENT(2));
        (void)fputc('\n', out.file);
        is_written = output_end(&out);
    }
    if (!is_written) {
        memcpy(out_error, out.error, OUTPUT_ERROR_BYTES);
    }
    return is_written;
}
