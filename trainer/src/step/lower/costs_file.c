/*
 * costs_file.c - measured costs as a text file that people can read and compare.
 *
 *     dunlin costs 1
 *     graph 0f3c55d2a1b80e47
 *     isa avx2
 *     threads 1
 *     batches 2 8
 *     scale 0.81
 *     ops 2                        then one line each: kernel, ns a slice, ns a sample, name
 *     conv 1200 53000 features.0
 *     update 900 0 features.0/update
 *     crc 89abcdef
 *
 * Bytes of names that would break a line are written as %XX. The last line is the CRC-32 of all
 * lines before it.
 * Invariant: what is handed out was read to its end and is whole; every number is in its range.
 */
#include "costs.h"

#include <mem/outfile.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define FORMAT_VERSION 1
#define MAX_FILE_BYTES (64 << 20)
#define MAX_LINE_BYTES 1024
#define CRC_LINE_BYTES 13 /* "crc 89abcdef\n" */

/* --- writing --- */

typedef struct costs_writer {
    dunlin_outfile file;
    uLong crc;
    dunlin_status status;
    dunlin_error *error;
} costs_writer;

static void put_line(costs_writer *writer, const char *line, int length)
{
    if (writer->status == DUNLIN_OK) {
        writer->crc = crc32(writer->crc, (const unsigned char *)line, (uInt)length);
        writer->status = dunlin__outfile_write(&writer->file, line, (size_t)length, writer->error);
    }
}

static bool is_plain(unsigned char byte)
{
    return byte > ' ' && byte != '%' && byte != 0x7F;
}

static void put_row(costs_writer *writer, const dunlin_costs *costs, const dunlin_cost_row *row)
{
    char line[MAX_LINE_BYTES];
    int length = snprintf(line, sizeof line, "%s %" PRIu64 " %" PRIu64 " ",
                          costs->texts + row->kernel, row->fixed_ns, row->sample_ns);
    for (const char *c = costs->texts + row->name; *c != '\0' && length < MAX_LINE_BYTES - 5; c++) {
        const unsigned char byte = (unsigned char)*c;
        length += snprintf(line + length, sizeof line - (size_t)length,
                           is_plain(byte) ? "%c" : "%%%02X", byte);
    }
    line[length++] = '\n';
    put_line(writer, line, length);
}

static void put_all(costs_writer *writer, const dunlin_costs *costs)
{
    char line[MAX_LINE_BYTES];
    int length = snprintf(line, sizeof line,
                          "dunlin costs %d\ngraph %016" PRIx64 "\nisa %s\nthreads %" PRId32
                          "\nbatches %" PRId64 " %" PRId64 "\nscale %.6g\nops %zu\n",
                          FORMAT_VERSION, costs->graph, costs->isa, costs->n_threads,
                          costs->batches[0], costs->batches[1], costs->scale, costs->n_rows);
    put_line(writer, line, length);
    for (size_t i = 0; i < costs->n_rows; i++) {
        put_row(writer, costs, &costs->rows[i]);
    }
    length = snprintf(line, sizeof line, "crc %08lx\n", (unsigned long)writer->crc);
    put_line(writer, line, length);
}

dunlin_status dunlin_costs_save(const dunlin_costs *costs, const char *path,
                                dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    if (costs == NULL || path == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "costs", 0, "%s is NULL",
                            costs == NULL ? "costs" : "path");
    }
    costs_writer writer = {.crc = crc32(0, Z_NULL, 0), .status = DUNLIN_OK, .error = error};
    DUNLIN_TRY(dunlin__outfile_open(&writer.file, path, 0666, error));
    put_all(&writer, costs);
    return dunlin__outfile_close(&writer.file, writer.status, error);
}

/* --- reading --- */

typedef struct costs_reader {
    const char *path;
    char *bytes; /* the file and a zero */
    size_t n_bytes;
    size_t at;
    size_t end;  /* of the lines before the checksum */
    size_t line; /* number of the one that was read last */
    dunlin_error *error;
} costs_reader;

static dunlin_status fail_line(const costs_reader *reader, const char *what)
{
    return dunlin__fail(reader->error, DUNLIN_DATA, "costs", 0, "%.160s:%zu: %s", reader->path,
                        reader->line, what);
}

static dunlin_status fail_io(const costs_reader *reader, const char *what, int reason)
{
    return dunlin__fail(reader->error, DUNLIN_IO, "costs", reason,
                        "%.160s: %s fails (system error %d)", reader->path, what, reason);
}

static dunlin_status read_exactly(const costs_reader *reader, int fd)
{
    for (size_t at = 0; at < reader->n_bytes;) {
        const ssize_t got = read(fd, reader->bytes + at, reader->n_bytes - at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fail_io(reader, "reading", got < 0 ? errno : 0);
        }
        at += (size_t)got;
    }
    return DUNLIN_OK;
}

static dunlin_status read_open_file(costs_reader *reader, const dunlin_alloc *alloc, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return fail_io(reader, "reading", errno);
    }
    if (!S_ISREG(info.st_mode) || info.st_size > MAX_FILE_BYTES) {
        return dunlin__fail(reader->error, DUNLIN_LIMIT, "costs", 0,
                            "%.160s: not a file of at most %d bytes", reader->path, MAX_FILE_BYTES);
    }
    reader->n_bytes = (size_t)info.st_size;
    reader->bytes = dunlin__alloc_zeroed(alloc, reader->n_bytes + 1, 1);
    if (reader->bytes == NULL) {
        return dunlin__fail(reader->error, DUNLIN_MEMORY, "costs", 0,
                            "no memory for the %zu bytes of %.160s", reader->n_bytes, reader->path);
    }
    return read_exactly(reader, fd);
}

static dunlin_status read_file(costs_reader *reader, const dunlin_alloc *alloc)
{
    const int fd = dunlin__sys_open(reader->path, O_RDONLY, 0);
    if (fd < 0) {
        return fail_io(reader, "opening", errno);
    }
    const dunlin_status status = read_open_file(reader, alloc, fd);
    (void)close(fd);
    return status;
}

/* The next line, ended by a zero where its break was. */
static dunlin_status next_line(costs_reader *reader, char **out_line)
{
    reader->line++;
    char *line = reader->bytes + reader->at;
    char *end = memchr(line, '\n', reader->end - reader->at);
    *out_line = line;
    if (end == NULL) {
        return fail_line(reader, "a line is missing");
    }
    *end = '\0';
    reader->at = (size_t)(end - reader->bytes) + 1;
    return strlen(line) == (size_t)(end - line) ? DUNLIN_OK : fail_line(reader, "a byte is zero");
}

/* Cuts the next word off a line; NULL: there is none. */
static char *next_word(char **line)
{
    char *word = *line;
    char *end = strchr(word, ' ');
    if (end != NULL) {
        *end = '\0';
        *line = end + 1;
    } else {
        *line = word + strlen(word);
    }
    return *word == '\0' ? NULL : word;
}

/* A whole number, digits alone, up to `most`. */
static bool read_number(char **line, uint64_t most, uint64_t *out)
{
    const char *word = next_word(line);
    if (word == NULL || *word < '0' || *word > '9' || strlen(word) > 18) {
        return false;
    }
    char *end = NULL;
    *out = strtoull(word, &end, 10);
    return *end == '\0' && *out <= most;
}

/* A line "KEY rest". */
static dunlin_status read_key(costs_reader *reader, const char *key, char **out_rest)
{
    DUNLIN_TRY(next_line(reader, out_rest));
    const char *word = next_word(out_rest);
    if (word == NULL || strcmp(word, key) != 0) {
        char text[64];
        (void)snprintf(text, sizeof text, "expected \"%s\"", key);
        return fail_line(reader, text);
    }
    return DUNLIN_OK;
}

/* The checksum in the last line is that of the lines before it. */
static dunlin_status check_sum(costs_reader *reader)
{
    if (reader->n_bytes < CRC_LINE_BYTES) {
        return dunlin__fail(reader->error, DUNLIN_DIGEST, "costs", 0,
                            "%.160s: too short for a file of costs", reader->path);
    }
    reader->end = reader->n_bytes - CRC_LINE_BYTES;
    const uLong crc =
        crc32(crc32(0, Z_NULL, 0), (const unsigned char *)reader->bytes, (uInt)reader->end);
    char expected[CRC_LINE_BYTES + 1];
    (void)snprintf(expected, sizeof expected, "crc %08lx\n", (unsigned long)crc);
    if (memcmp(expected, reader->bytes + reader->end, CRC_LINE_BYTES) != 0) {
        return dunlin__fail(reader->error, DUNLIN_DIGEST, "costs", 0,
                            "%.160s: the last line is not the checksum of those before it (%.12s)",
                            reader->path, expected);
    }
    return DUNLIN_OK;
}

static dunlin_status read_version(costs_reader *reader)
{
    char *line = NULL;
    uint64_t version = 0;
    DUNLIN_TRY(next_line(reader, &line));
    if (strncmp(line, "dunlin costs ", 13) != 0) {
        return fail_line(reader, "not a file of costs");
    }
    line += 13;
    if (!read_number(&line, UINT32_MAX, &version) || version != FORMAT_VERSION) {
        return dunlin__fail(reader->error, DUNLIN_VERSION, "costs", 0,
                            "%.160s:1: this library reads version %d", reader->path,
                            FORMAT_VERSION);
    }
    return DUNLIN_OK;
}

static dunlin_status read_head(costs_reader *reader, dunlin_costs *out_head)
{
    char *rest = NULL;
    char *end = NULL;
    uint64_t numbers[2] = {0, 0};
    DUNLIN_TRY(read_version(reader));
    DUNLIN_TRY(read_key(reader, "graph", &rest));
    out_head->graph = strtoull(rest, &end, 16);
    if (strlen(rest) != 16 || *end != '\0') {
        return fail_line(reader, "expected 16 hexadecimal digits");
    }
    DUNLIN_TRY(read_key(reader, "isa", &rest));
    if (*rest == '\0' || strlen(rest) >= sizeof out_head->isa) {
        return fail_line(reader, "expected the name of an instruction set");
    }
    memcpy(out_head->isa, rest, strlen(rest) + 1);
    DUNLIN_TRY(read_key(reader, "threads", &rest));
    if (!read_number(&rest, 256, &numbers[0]) || numbers[0] < 1) {
        return fail_line(reader, "expected a number of threads, 1 to 256");
    }
    out_head->n_threads = (int32_t)numbers[0];
    DUNLIN_TRY(read_key(reader, "batches", &rest));
    if (!read_number(&rest, 1U << 30, &numbers[0]) || !read_number(&rest, 1U << 30, &numbers[1]) ||
        numbers[0] < 1 || numbers[1] < numbers[0]) {
        return fail_line(reader, "expected two batches, the smaller one first");
    }
    out_head->batches[0] = (int64_t)numbers[0];
    out_head->batches[1] = (int64_t)numbers[1];
    DUNLIN_TRY(read_key(reader, "scale", &rest));
    out_head->scale = strtod(rest, &end);
    if (end == rest || *end != '\0' || !(out_head->scale > 1e-6 && out_head->scale < 1e6)) {
        return fail_line(reader, "expected a factor between 1e-6 and 1e6");
    }
    DUNLIN_TRY(read_key(reader, "ops", &rest));
    /* A row takes seven bytes at least. */
    if (!read_number(&rest, DUNLIN_COSTS_MAX_ROWS, &numbers[0]) || numbers[0] < 1 ||
        numbers[0] > (reader->end - reader->at) / 7) {
        return fail_line(reader, "expected the number of lines that follow");
    }
    out_head->n_rows = (size_t)numbers[0];
    return DUNLIN_OK;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Copies a name and undoes its %XX; false if one is wrong. */
static bool copy_name(char *to, const char *from)
{
    for (; *from != '\0'; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        const int high = digit_of(from[1]);
        const int low = high < 0 ? -1 : digit_of(from[2]);
        if (low < 0 || high + low == 0) {
            return false;
        }
        *to++ = (char)(16 * high + low);
        from += 2;
    }
    *to = '\0';
    return true;
}

static dunlin_status read_row(costs_reader *reader, dunlin_costs *costs, size_t *texts_at,
                              dunlin_cost_row *out_row)
{
    char *rest = NULL;
    DUNLIN_TRY(next_line(reader, &rest));
    /* Kernel, name and their zeros take less than the line did. */
    const char *kernel = next_word(&rest);
    if (kernel == NULL) {
        return fail_line(reader, "expected the name of a kernel");
    }
    if (!read_number(&rest, DUNLIN_COSTS_MAX_NS, &out_row->fixed_ns) ||
        !read_number(&rest, DUNLIN_COSTS_MAX_NS, &out_row->sample_ns)) {
        return fail_line(reader, "expected two times in nanoseconds, at most 10^15");
    }
    out_row->kernel = *texts_at;
    memcpy(costs->texts + out_row->kernel, kernel, strlen(kernel) + 1);
    out_row->name = out_row->kernel + strlen(kernel) + 1;
    if (!copy_name(costs->texts + out_row->name, rest)) {
        return fail_line(reader, "a name has a % without two digits");
    }
    *texts_at = out_row->name + strlen(costs->texts + out_row->name) + 1;
    return DUNLIN_OK;
}

static dunlin_status read_table(costs_reader *reader, const dunlin_alloc *alloc,
                                dunlin_costs **out_costs)
{
    dunlin_costs head = {.n_rows = 0};
    DUNLIN_TRY(check_sum(reader));
    DUNLIN_TRY(read_head(reader, &head));
    dunlin_costs *costs = dunlin__costs_new(alloc, head.n_rows, reader->n_bytes);
    if (costs == NULL) {
        return dunlin__fail(reader->error, DUNLIN_MEMORY, "costs", 0,
                            "no memory for the costs of %zu ops", head.n_rows);
    }
    costs->graph = head.graph;
    memcpy(costs->isa, head.isa, sizeof costs->isa);
    costs->n_threads = head.n_threads;
    memcpy(costs->batches, head.batches, sizeof costs->batches);
    costs->scale = head.scale;
    size_t texts_at = 0;
    dunlin_status status = DUNLIN_OK;
    for (size_t i = 0; i < costs->n_rows && status == DUNLIN_OK; i++) {
        status = read_row(reader, costs, &texts_at, &costs->rows[i]);
    }
    if (status == DUNLIN_OK && reader->at != reader->end) {
        reader->line++;
        status = fail_line(reader, "more lines than the file names");
    }
    if (status != DUNLIN_OK) {
        dunlin_costs_free(costs);
        return status;
    }
    *out_costs = costs;
    return DUNLIN_OK;
}

dunlin_status dunlin_costs_load(const char *path, const dunlin_alloc *hooks,
                                dunlin_costs **out_costs, dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    if (path == NULL || out_costs == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "costs", 0, "%s is NULL",
                            path == NULL ? "path" : "out_costs");
    }
    *out_costs = NULL;
    const dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    costs_reader reader = {.path = path, .error = error};
    dunlin_status status = read_file(&reader, &alloc);
    if (status == DUNLIN_OK && reader.bytes != NULL) {
        status = read_table(&reader, &alloc, out_costs);
    }
    if (reader.bytes != NULL) {
        dunlin__free_array(&alloc, reader.bytes, reader.n_bytes + 1, 1);
    }
    return status;
}
