/*
 * output.c - files a program writes: gathered in memory, then put in their place by the library.
 */
#include "output.h"

#include <dunlin/tools.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool fail(output *out, const char *what, int code)
{
    (void)snprintf(out->error, sizeof out->error, "%.*s: %s: %s", 128, out->path, what,
                   strerror(code));
    return false;
}

bool output_begin(output *out, const char *path)
{
    memset(out, 0, sizeof *out);
    int length = snprintf(out->path, sizeof out->path, "%s", path);
    if (length < 0 || length >= (int)sizeof out->path) {
        return fail(out, "cannot be written", ENAMETOOLONG);
    }
    struct stat info;
    const bool is_standard = strcmp(path, "-") == 0;
    out->is_direct = is_standard || (stat(path, &info) == 0 && !S_ISREG(info.st_mode));
    if (is_standard) {
        out->file = stdout;
    } else if (out->is_direct) {
        out->file = fopen(path, "we");
    } else {
        out->file = open_memstream(&out->text, &out->n_text);
    }
    return out->file != NULL || fail(out, "cannot be written", errno);
}

void output_abandon(output *out)
{
    if (out->file != NULL && out->file != stdout) {
        (void)fclose(out->file);
    }
    free(out->text);
    out->file = NULL;
    out->text = NULL;
}

bool output_end(output *out)
{
    bool is_written = fflush(out->file) == 0 && ferror(out->file) == 0;
    int code = errno;
    if (out->file != stdout && fclose(out->file) != 0 && is_written) {
        is_written = false;
        code = errno;
    }
    out->file = NULL;
    if (is_written && !out->is_direct) {
        dunlin_error error = {0};
        is_written =
            dunlin_tools_file_write(out->path, out->text, out->n_text, &error) == DUNLIN_OK;
        code = error.code != 0 ? error.code : ENAMETOOLONG;
    }
    output_abandon(out);
    return is_written || fail(out, out->is_direct ? "writing failed" : "cannot be written", code);
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
