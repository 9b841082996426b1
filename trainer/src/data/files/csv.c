/*
 * csv.c - rows of a text file with separators.
 *
 * Invariant: `text` holds n_fields texts, each ended by a 0, whatever the file says. Source: RFC
 * 4180.
 */
#include "csv.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

dunlin_status dunlin__csv_begin(dunlin_csv *csv, dunlin_bytes *bytes, const dunlin_alloc *alloc,
                                dunlin_error *error)
{
    static const uint8_t mark[] = {0xEF, 0xBB, 0xBF};
    csv->alloc = *alloc;
    csv->bytes = bytes;
    csv->separator = ',';
    csv->next_line = 1;
    csv->is_after_cr = false;
    csv->at = 0;
    csv->text = NULL;
    csv->capacity = 0;
    csv->n_fields = 0;
    DUNLIN_TRY(dunlin__bytes_read_some(bytes, csv->chunk, sizeof csv->chunk, &csv->n_chunk, error));
    csv->at = csv->n_chunk >= 3 && memcmp(csv->chunk, mark, sizeof mark) == 0 ? sizeof mark : 0;
    static const char separators[] = {',', ';', '\t'};
    int64_t counts[3] = {0};
    bool is_quoted = false;
    for (size_t i = csv->at; i < csv->n_chunk; i++) {
        const char c = (char)csv->chunk[i];
        is_quoted = is_quoted != (c == '"');
        if (!is_quoted && (c == '\n' || c == '\r')) {
            break;
        }
        for (size_t k = 0; k < 3 && !is_quoted; k++) {
            counts[k] += c == separators[k] ? 1 : 0;
        }
    }
    const size_t best = counts[1] > counts[0] ? 1 : 0;
    csv->separator = separators[counts[2] > counts[best] ? 2 : best];
    return DUNLIN_OK;
}

void dunlin__csv_end(dunlin_csv *csv)
{
    dunlin__free_array(&csv->alloc, csv->text, csv->capacity, 1);
    csv->text = NULL;
    csv->capacity = 0;
}

/* The next byte without passing it; -1 at the end. */
static dunlin_status peek(dunlin_csv *csv, int *out_byte, dunlin_error *error)
{
    if (csv->at == csv->n_chunk) {
        csv->at = 0;
        DUNLIN_TRY(dunlin__bytes_read_some(csv->bytes, csv->chunk, sizeof csv->chunk, &csv->n_chunk,
                                           error));
    }
    *out_byte = csv->at < csv->n_chunk ? csv->chunk[csv->at] : -1;
    return DUNLIN_OK;
}

static dunlin_status add(dunlin_csv *csv, int byte, dunlin_error *error)
{
    if (csv->n_text == DUNLIN_CSV_ROW_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%s:%" PRId64 ": a row too long: the limit is %d bytes",
                            csv->bytes->name, csv->line, DUNLIN_CSV_ROW_BYTES);
    }
    if (csv->n_text == csv->capacity) {
        void *text = csv->text;
        const bool is_grown =
            dunlin__grow_array(&csv->alloc, &text, &csv->capacity, csv->n_text + 1, 1);
        csv->text = text;
        if (!is_grown) {
            return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                                "%s: no memory for a row of %zu bytes", csv->bytes->name,
                                csv->n_text);
        }
    }
    csv->text[csv->n_text++] = (char)byte;
    return DUNLIN_OK;
}

/* One byte of a line's end: CR LF is one end. */
static void pass_end(dunlin_csv *csv, int byte)
{
    csv->next_line += byte == '\r' || !csv->is_after_cr ? 1 : 0;
    csv->is_after_cr = byte == '\r';
    csv->at++;
}

static dunlin_status check_text(const dunlin_csv *csv, int byte, dunlin_error *error)
{
    return byte >= ' ' || byte == '\t' || byte == '\n' || byte == '\r'
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_DATA, "data", 0,
                              "%s:%" PRId64 ": not text: byte 0x%02x", csv->bytes->name,
                              csv->next_line, (unsigned)byte);
}

/* The text in quotes, from after the first quote to after the last one. */
static dunlin_status read_quoted(dunlin_csv *csv, dunlin_error *error)
{
    for (;;) {
        int byte = 0;
        DUNLIN_TRY(peek(csv, &byte, error));
        if (byte < 0) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s:%" PRId64 ": cut off: a quote of this row does not end",
                                csv->bytes->name, csv->line);
        }
        DUNLIN_TRY(check_text(csv, byte, error));
        if (byte == '\n' || byte == '\r') {
            pass_end(csv, byte);
        } else {
            csv->is_after_cr = false;
            csv->at++;
        }
        if (byte == '"') {
            int second = 0;
            DUNLIN_TRY(peek(csv, &second, error));
            if (second != '"') {
                return DUNLIN_OK;
            }
            csv->at++;
        }
        DUNLIN_TRY(add(csv, byte, error));
    }
}

/* One field, up to its separator or the row's end, neither of which is passed. */
static dunlin_status read_field(dunlin_csv *csv, int *out_next, dunlin_error *error)
{
    const size_t first = csv->n_text;
    size_t end = first; /* after the text in quotes, or the last byte that is no blank */
    for (;;) {
        DUNLIN_TRY(peek(csv, out_next, error));
        const int byte = *out_next;
        if (byte < 0 || byte == csv->separator || byte == '\n' || byte == '\r') {
            break;
        }
        DUNLIN_TRY(check_text(csv, byte, error));
        const bool is_blank = byte == ' ' || byte == '\t';
        csv->at++;
        if (byte == '"' && csv->n_text == first) {
            DUNLIN_TRY(read_quoted(csv, error));
            end = csv->n_text;
        } else if (!is_blank || csv->n_text > first) {
            DUNLIN_TRY(add(csv, byte, error));
            end = is_blank ? end : csv->n_text;
        }
    }
    csv->n_text = end;
    csv->n_fields++;
    if (csv->n_fields > DUNLIN_CSV_FIELDS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%s:%" PRId64 ": more than %d fields in a row", csv->bytes->name,
                            csv->line, DUNLIN_CSV_FIELDS);
    }
    return add(csv, '\0', error);
}

dunlin_status dunlin__csv_next(dunlin_csv *csv, bool *out_has, dunlin_error *error)
{
    int byte = 0;
    *out_has = false;
    csv->n_fields = 0;
    do {
        csv->n_text = 0;
        csv->n_fields = 0;
        DUNLIN_TRY(peek(csv, &byte, error));
        while (byte == '\n' || byte == '\r') {
            pass_end(csv, byte);
            DUNLIN_TRY(peek(csv, &byte, error));
        }
        if (byte < 0) {
            return DUNLIN_OK;
        }
        csv->is_after_cr = false;
        csv->line = csv->next_line;
        DUNLIN_TRY(read_field(csv, &byte, error));
        while (byte == csv->separator) {
            csv->at++;
            DUNLIN_TRY(read_field(csv, &byte, error));
        }
    } while (csv->n_fields == 1 && csv->text[0] == '\0');
    *out_has = true;
    return DUNLIN_OK;
}
