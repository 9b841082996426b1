/*
 * own_csv.c - a user's CSV file: a column of labels, the other columns numbers.
 *
 * Invariant: every row that is handed on has a number in each column of numbers, and a label.
 */
#include "data/files/csv.h"
#include "data/files/lines.h"
#include "own_rows.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct csv_reader {
    dunlin_csv csv;
    const dunlin_own_spec *spec;
    const dunlin_own_visitor *visitor;
    int64_t n_columns;
    int64_t label, client; /* columns; -1: none */
    double *values;
    size_t n_values;
    char *names; /* of the columns, each ended by a 0; NULL: the file has none */
    size_t names_bytes;
} csv_reader;

static const char *next_field(const char *field)
{
    return field + strlen(field) + 1;
}

/* The name of a column as it may stand in a message; its number without one. */
static const char *column_name(const csv_reader *reader, int64_t column,
                               char out[DUNLIN_FIELD_QUOTED])
{
    if (reader->names == NULL) {
        (void)snprintf(out, DUNLIN_FIELD_QUOTED, "%" PRId64, column + 1);
        return out;
    }
    const char *name = reader->names;
    for (int64_t i = 0; i < column; i++) {
        name = next_field(name);
    }
    return dunlin__field_quote(name, out);
}

static bool is_missing(const char *field)
{
    return field[0] == '\0' || strcmp(field, "?") == 0 || dunlin__field_is(field, "NA") ||
           dunlin__field_is(field, "N/A") || dunlin__field_is(field, "NaN") ||
           dunlin__field_is(field, "null") || dunlin__field_is(field, "none");
}

static dunlin_status fail_field(const csv_reader *reader, int64_t column, const char *field,
                                dunlin_error *error)
{
    char quoted[DUNLIN_FIELD_QUOTED];
    char name[DUNLIN_FIELD_QUOTED];
    if (is_missing(field)) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s:%" PRId64 ": the value of column %s is missing (\"%s\"); rows "
                            "with missing values are not read",
                            reader->csv.bytes->name, reader->csv.line,
                            column_name(reader, column, name), dunlin__field_quote(field, quoted));
    }
    return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                        "%s:%" PRId64 ": \"%s\" in column %s is not a number (of at most 3e38)",
                        reader->csv.bytes->name, reader->csv.line,
                        dunlin__field_quote(field, quoted), column_name(reader, column, name));
}

/* The column of a name in the row that is read now. */
static dunlin_status find_column(const csv_reader *reader, const char *name, int64_t *out_column,
                                 dunlin_error *error)
{
    const char *field = reader->csv.text;
    for (int64_t i = 0; i < reader->csv.n_fields; i++, field = next_field(field)) {
        if (strcmp(field, name) == 0) {
            *out_column = i;
            return DUNLIN_OK;
        }
    }
    return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                        "%s:%" PRId64 ": no column is called \"%.60s\"", reader->csv.bytes->name,
                        reader->csv.line, name);
}

/* A first row has names if a column is asked for by its own, or if a field other than the last,
 * which may be a label, is no number. */
static bool has_names(const csv_reader *reader)
{
    const char *field = reader->csv.text;
    if (reader->spec->label != NULL || reader->spec->client != NULL) {
        return true;
    }
    for (int64_t i = 0; i + 1 < reader->csv.n_fields; i++, field = next_field(field)) {
        double value = 0.0;
        if (!is_missing(field) && !dunlin__field_real(field, &value)) {
            return true;
        }
    }
    return false;
}

/* From the first row: the columns. */
static dunlin_status begin_columns(csv_reader *reader, bool *out_has_names, dunlin_error *error)
{
    const dunlin_csv *csv = &reader->csv;
    *out_has_names = has_names(reader);
    reader->n_columns = csv->n_fields;
    reader->label = csv->n_fields - 1;
    reader->client = -1;
    if (reader->spec->client != NULL) {
        DUNLIN_TRY(find_column(reader, reader->spec->client, &reader->client, error));
    }
    if (reader->spec->label != NULL) {
        DUNLIN_TRY(find_column(reader, reader->spec->label, &reader->label, error));
    } else if (reader->label == reader->client) {
        reader->label--;
    }
    const int64_t n_values = csv->n_fields - 1 - (reader->client >= 0 ? 1 : 0);
    if (n_values < 1 || reader->label == reader->client) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s:%" PRId64 ": %" PRId64
                            " columns: a label and at least one number are needed",
                            csv->bytes->name, csv->line, csv->n_fields);
    }
    reader->n_values = (size_t)n_values;
    reader->values = dunlin__alloc_array(&csv->alloc, reader->n_values, sizeof *reader->values);
    if (*out_has_names) {
        reader->names = dunlin__alloc_array(&csv->alloc, csv->n_text, 1);
        reader->names_bytes = csv->n_text;
    }
    if (reader->values == NULL || (*out_has_names && reader->names == NULL)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "%s: no memory for a row",
                            csv->bytes->name);
    }
    if (*out_has_names) {
        memcpy(reader->names, csv->text, csv->n_text);
    }
    const dunlin_shape shape = {.n_dims = 1, .dims = {n_values}};
    return reader->visitor->begin_fn(reader->visitor->ctx, csv->bytes->name, &shape, error);
}

static dunlin_status read_row(csv_reader *reader, dunlin_error *error)
{
    const dunlin_csv *csv = &reader->csv;
    if (csv->n_fields != reader->n_columns) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s:%" PRId64 ": %" PRId64 " values for %" PRId64 " columns",
                            csv->bytes->name, csv->line, csv->n_fields, reader->n_columns);
    }
    dunlin_own_row row = {.values = reader->values};
    const char *field = csv->text;
    size_t n = 0;
    for (int64_t i = 0; i < csv->n_fields; i++, field = next_field(field)) {
        if (i == reader->label || i == reader->client) {
            if (is_missing(field)) {
                return fail_field(reader, i, field, error);
            }
            *(i == reader->label ? &row.label_name : &row.client_name) = field;
        } else if (!dunlin__field_real(field, &reader->values[n++])) {
            return fail_field(reader, i, field, error);
        }
    }
    char where[160];
    (void)snprintf(where, sizeof where, "%.120s:%" PRId64, csv->bytes->name, csv->line);
    return reader->visitor->row_fn(reader->visitor->ctx, &row, where, error);
}

static dunlin_status read_rows(csv_reader *reader, dunlin_error *error)
{
    bool has_row = false;
    bool is_header = false;
    DUNLIN_TRY(dunlin__csv_next(&reader->csv, &has_row, error));
    if (!has_row) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: empty: it has no row",
                            reader->csv.bytes->name);
    }
    DUNLIN_TRY(begin_columns(reader, &is_header, error));
    if (!is_header) {
        DUNLIN_TRY(read_row(reader, error));
    }
    for (;;) {
        DUNLIN_TRY(dunlin__csv_next(&reader->csv, &has_row, error));
        if (!has_row) {
            return DUNLIN_OK;
        }
        DUNLIN_TRY(read_row(reader, error));
    }
}

dunlin_status dunlin__own_read_csv_rows(const dunlin_alloc *alloc, const dunlin_own_spec *spec,
                                        dunlin_bytes *bytes, const dunlin_own_visitor *visitor,
                                        dunlin_error *error)
{
    csv_reader reader;
    reader.spec = spec;
    reader.visitor = visitor;
    reader.values = NULL;
    reader.n_values = 0;
    reader.names = NULL;
    reader.names_bytes = 0;
    dunlin_status status = dunlin__csv_begin(&reader.csv, bytes, alloc, error);
    status = status == DUNLIN_OK ? read_rows(&reader, error) : status;
    dunlin__csv_end(&reader.csv);
    dunlin__free_array(alloc, reader.values, reader.n_values, sizeof *reader.values);
    dunlin__free_array(alloc, reader.names, reader.names_bytes, 1);
    return status;
}

dunlin_status dunlin__own_read_csv(const dunlin_alloc *alloc, const dunlin_own_spec *spec,
                                   bool is_test, const dunlin_own_visitor *visitor,
                                   dunlin_error *error)
{
    /* Its buffer is too large for the stack of a small thread. */
    dunlin_bytes *bytes = dunlin__alloc_array(alloc, 1, sizeof *bytes);
    if (bytes == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to read a file");
    }
    dunlin_status status =
        dunlin__bytes_open(bytes, is_test ? spec->test : spec->files[0], alloc, error);
    if (status == DUNLIN_OK) {
        status = dunlin__own_read_csv_rows(alloc, spec, bytes, visitor, error);
        dunlin__bytes_close(bytes);
    }
    dunlin__free_array(alloc, bytes, 1, sizeof *bytes);
    return status;
}
