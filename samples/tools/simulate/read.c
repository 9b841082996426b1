/*
 * read.c - a file of devices, line by line.
 *
 * Invariant: memory is that of the devices that are kept and of one line, however long the file is.
 */
#include "devices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A file under way. */
typedef struct reader {
    FILE *file;
    const char *path;
    char *line;    /* SIM_LINE_BYTES + 2 */
    size_t n_line; /* without its end */
    int64_t number;
    char *error;
} reader;

void sim_error_clean(char *text)
{
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < ' ' || *text == '\x7f' ? '?' : *text;
    }
}

static bool fail(const reader *at, const char *what)
{
    (void)snprintf(at->error, SIM_ERROR_BYTES, "--devices %.160s: line %lld: %.300s", at->path,
                   (long long)at->number, what);
    sim_error_clean(at->error);
    return false;
}

/* What editors of other systems add: a mark before the first line, a carriage return at the end of
 * each. */
static void strip(reader *at)
{
    static const char MARK[] = "\xef\xbb\xbf"; /* the byte order mark, in UTF-8 */
    if (at->n_line > 0 && at->line[at->n_line - 1] == '\r') {
        at->line[--at->n_line] = '\0';
    }
    if (at->number == 1 && strncmp(at->line, MARK, sizeof MARK - 1) == 0) {
        at->n_line -= sizeof MARK - 1;
        memmove(at->line, at->line + sizeof MARK - 1, at->n_line + 1);
    }
}

/* The next line; false at the end of the file, or when it is too long (then `*out_is_wrong`). */
static bool next_line(reader *at, bool *out_is_wrong)
{
    if (fgets(at->line, SIM_LINE_BYTES + 2, at->file) == NULL) {
        *out_is_wrong = ferror(at->file) != 0;
        return *out_is_wrong ? fail(at, "it cannot be read") : false;
    }
    at->number++;
    at->n_line = strlen(at->line);
    if (at->n_line > 0 && at->line[at->n_line - 1] == '\n') {
        at->line[--at->n_line] = '\0';
        strip(at);
        return true;
    }
    *out_is_wrong = feof(at->file) == 0; /* the last line may lack its end */
    strip(at);
    return *out_is_wrong ? fail(at, "it has more than 65536 bytes, or a byte 0") : true;
}

/* Room for one more. */
static bool grow(sim_devices *devices, int64_t *capacity)
{
    if (devices->n < *capacity) {
        return true;
    }
    const int64_t wanted = *capacity > 0 ? 2 * *capacity : 64;
    sim_device *longer = realloc(devices->list, (size_t)wanted * sizeof *longer);
    if (longer == NULL) {
        return false;
    }
    devices->list = longer;
    *capacity = wanted;
    return true;
}

static bool take_line(reader *at, int64_t most, sim_devices *out, int64_t *capacity)
{
    char what[SIM_ERROR_BYTES];
    sim_device device;
    if (out->n_file >= SIM_DEVICES_MOST) {
        return fail(at, "there are more than 1000000 devices");
    }
    if (!sim_device_parse(at->line, at->n_line, out, &device, what)) {
        return fail(at, what);
    }
    out->n_file++;
    if (most > 0 && out->n >= most) {
        free(device.trace);
        return true;
    }
    if (!grow(out, capacity)) {
        free(device.trace);
        return fail(at, "no memory for the devices so far");
    }
    out->list[out->n++] = device;
    return true;
}

static bool read_all(reader *at, int64_t most, sim_devices *out)
{
    char what[SIM_ERROR_BYTES];
    bool is_wrong = false;
    int64_t capacity = 0;
    if (!next_line(at, &is_wrong)) {
        at->number = 1;
        return is_wrong ? false : fail(at, "the file is empty");
    }
    if (!sim_header_parse(at->line, at->n_line, out, what)) {
        return fail(at, what);
    }
    while (next_line(at, &is_wrong)) {
        if (at->n_line > 0 && !take_line(at, most, out, &capacity)) {
            return false;
        }
    }
    return !is_wrong && (out->n > 0 || fail(at, "there is no device in the file"));
}

bool sim_devices_read(const char *path, int64_t most, sim_devices *out_devices,
                      char out_error[SIM_ERROR_BYTES])
{
    memset(out_devices, 0, sizeof *out_devices);
    reader at = {.path = path, .error = out_error};
    at.file = fopen(path, "re");
    if (at.file == NULL) {
        (void)snprintf(out_error, SIM_ERROR_BYTES, "--devices %.160s: %s", path, strerror(errno));
        return false;
    }
    at.line = malloc(SIM_LINE_BYTES + 2);
    const bool is_ok =
        at.line != NULL ? read_all(&at, most, out_devices) : fail(&at, "no memory for a line");
    free(at.line);
    (void)fclose(at.file);
    return is_ok;
}

void sim_devices_free(sim_devices *devices)
{
    for (int64_t i = 0; i < devices->n; i++) {
        free(devices->list[i].trace);
    }
    free(devices->list);
    memset(devices, 0, sizeof *devices);
}
