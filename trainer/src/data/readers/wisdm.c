/*
 * wisdm.c - WISDM's transformed features: 43 numbers for ten seconds of a phone's accelerometer.
 *
 * Invariant: a row is handed on only if the header has named every column exactly once; the
 * position of a column does not matter. Sources: Kwapisz, Weiss, Moore, "Activity recognition using
 * cell phone accelerometers", 2010 (the features); Weka's description of ARFF.
 */
#include "feature_rows.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a column holds, beside the features 0 to 42. */
enum {
    COLUMN_USER = DUNLIN_WISDM_FEATURES,
    COLUMN_CLASS,
    N_NEEDED,
    COLUMN_ID = N_NEEDED, /* not needed, not used */
    N_COLUMNS
};

static const char *const column_names[N_COLUMNS] = {
    "X0",        "X1",        "X2",        "X3",        "X4",        "X5",        "X6",
    "X7",        "X8",        "X9",        "Y0",        "Y1",        "Y2",        "Y3",
    "Y4",        "Y5",        "Y6",        "Y7",        "Y8",        "Y9",        "Z0",
    "Z1",        "Z2",        "Z3",        "Z4",        "Z5",        "Z6",        "Z7",
    "Z8",        "Z9",        "XAVG",      "YAVG",      "ZAVG",      "XPEAK",     "YPEAK",
    "ZPEAK",     "XABSOLDEV", "YABSOLDEV", "ZABSOLDEV", "XSTANDDEV", "YSTANDDEV", "ZSTANDDEV",
    "RESULTANT", "user",      "class",     "UNIQUE_ID"};

static const char *const class_names[DUNLIN_WISDM_CLASSES] = {"Walking",    "Jogging", "Upstairs",
                                                              "Downstairs", "Sitting", "Standing"};

typedef struct wisdm_reader {
    const dunlin_feature_visitor *visitor;
    dunlin_lines lines;
    int32_t n_columns;
    int32_t columns[N_COLUMNS]; /* what the columns of the file hold, from the left */
} wisdm_reader;

static dunlin_status fail_line(const wisdm_reader *reader, const char *what, const char *field,
                               const char *expected, dunlin_error *error)
{
    char quoted[DUNLIN_FIELD_QUOTED];
    return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s:%" PRId64 ": %s \"%s\"%s",
                        reader->lines.bytes->name, reader->lines.number, what,
                        dunlin__field_quote(field, quoted), expected);
}

static dunlin_status add_column(wisdm_reader *reader, const char *name, dunlin_error *error)
{
    int32_t column = 0;
    while (column < N_COLUMNS && !dunlin__field_is(name, column_names[column])) {
        column++;
    }
    if (column == N_COLUMNS) {
        return fail_line(reader, "no column of WISDM is called", name, "", error);
    }
    for (int32_t i = 0; i < reader->n_columns; i++) {
        if (reader->columns[i] == column) {
            return fail_line(reader, "a second column", name, "", error);
        }
    }
    reader->columns[reader->n_columns] = column;
    reader->n_columns++;
    return DUNLIN_OK;
}

static dunlin_status check_columns(const wisdm_reader *reader, dunlin_error *error)
{
    for (int32_t column = 0; column < N_NEEDED; column++) {
        bool is_there = false;
        for (int32_t i = 0; i < reader->n_columns; i++) {
            is_there = is_there || reader->columns[i] == column;
        }
        if (!is_there) {
            return fail_line(reader, "the data begin, and there was no column",
                             column_names[column], "", error);
        }
    }
    return DUNLIN_OK;
}

/* The next line with something in it; comments are for ARFF alone. */
static dunlin_status next_line(wisdm_reader *reader, bool has_comments, bool *out_has,
                               dunlin_error *error)
{
    do {
        DUNLIN_TRY(dunlin__lines_next(&reader->lines, out_has, error));
    } while (*out_has &&
             (dunlin__line_is_blank(reader->lines.text) ||
              (has_comments && reader->lines.text[strspn(reader->lines.text, " \t")] == '%')));
    return DUNLIN_OK;
}

/* "@attribute NAME TYPE": the types are WISDM's own and not looked at. */
static dunlin_status read_attribute(wisdm_reader *reader, char *text, dunlin_error *error)
{
    char *name = text + strspn(text, " \t");
    char *end = name;
    if (*name == '"' || *name == '\'') {
        name++;
        end = strchr(name, name[-1]);
    } else {
        end += strcspn(name, " \t{");
    }
    if (end == NULL || *end == '\0') {
        return fail_line(reader, "an attribute without a name or type:", text, "", error);
    }
    *end = '\0';
    return add_column(reader, name, error);
}

/* Reads from the second line of an ARFF file to its data. */
static dunlin_status read_arff_header(wisdm_reader *reader, dunlin_error *error)
{
    for (;;) {
        char *text = reader->lines.text + strspn(reader->lines.text, " \t");
        const size_t n = strcspn(text, " \t");
        const bool is_last = text[n] == '\0';
        text[n] = '\0';
        if (dunlin__field_is(text, "@data")) {
            return check_columns(reader, error);
        }
        if (dunlin__field_is(text, "@attribute") && !is_last) {
            DUNLIN_TRY(read_attribute(reader, text + n + 1, error));
        } else if (!dunlin__field_is(text, "@relation")) {
            return fail_line(reader, "expected @relation, @attribute or @data, not", text, "",
                             error);
        }
        bool has_line = false;
        DUNLIN_TRY(next_line(reader, true, &has_line, error));
        if (!has_line) {
            return fail_line(reader, "cut off: there is no", "@data", "", error);
        }
    }
}

static dunlin_status read_names(wisdm_reader *reader, dunlin_error *error)
{
    char *at = reader->lines.text;
    char *name = NULL;
    while (dunlin__field_next(&at, &name)) {
        DUNLIN_TRY(add_column(reader, name, error));
    }
    return check_columns(reader, error);
}

static dunlin_status read_class(const wisdm_reader *reader, const char *field, int32_t *out_label,
                                dunlin_error *error)
{
    for (int32_t c = 0; c < DUNLIN_WISDM_CLASSES; c++) {
        if (dunlin__field_is(field, class_names[c])) {
            *out_label = c;
            return DUNLIN_OK;
        }
    }
    return fail_line(reader, "activity", field,
                     "; known: Walking, Jogging, Upstairs, Downstairs, Sitting, Standing", error);
}

static dunlin_status read_field(const wisdm_reader *reader, int32_t column, const char *field,
                                float *values, int64_t *out_user, int32_t *out_label,
                                dunlin_error *error)
{
    if (column == COLUMN_ID) {
        return DUNLIN_OK;
    }
    if (column == COLUMN_CLASS) {
        return read_class(reader, field, out_label, error);
    }
    if (column == COLUMN_USER) {
        return dunlin__field_whole(field, 1, DUNLIN_FEATURES_MOST_PERSONS, out_user)
                   ? DUNLIN_OK
                   : fail_line(reader, "user", field, ": the limits are 1 and 65535", error);
    }
    double value = 0.0;
    const bool is_missing = field[0] == '\0' || strcmp(field, "?") == 0;
    if (!is_missing && !dunlin__field_number(field, &value)) {
        char what[32];
        (void)snprintf(what, sizeof what, "value of %s", column_names[column]);
        return fail_line(reader, what, field, ": not a number from -1e9 to 1e9, nor ?", error);
    }
    values[column] = is_missing ? NAN : (float)value;
    return DUNLIN_OK;
}

static dunlin_status read_row(wisdm_reader *reader, dunlin_error *error)
{
    float values[DUNLIN_WISDM_FEATURES] = {0};
    int64_t user = 0;
    int32_t label = 0;
    int32_t n = 0;
    char *at = reader->lines.text;
    char *field = NULL;
    for (; dunlin__field_next(&at, &field); n++) {
        if (n < reader->n_columns) {
            DUNLIN_TRY(read_field(reader, reader->columns[n], field, values, &user, &label, error));
        }
    }
    if (n != reader->n_columns) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s:%" PRId64 ": %" PRId32 " values for %" PRId32 " columns",
                            reader->lines.bytes->name, reader->lines.number, n, reader->n_columns);
    }
    return reader->visitor->row_fn(reader->visitor->ctx, user, label, values, error);
}

dunlin_status dunlin__wisdm_read(dunlin_bytes *bytes, const dunlin_feature_visitor *visitor,
                                 dunlin_error *error)
{
    wisdm_reader reader;
    reader.visitor = visitor;
    reader.n_columns = 0;
    dunlin__lines_begin(&reader.lines, bytes);
    bool has_line = false;
    DUNLIN_TRY(next_line(&reader, true, &has_line, error));
    if (!has_line) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: empty: it has no header",
                            bytes->name);
    }
    const bool is_arff = reader.lines.text[strspn(reader.lines.text, " \t")] == '@';
    DUNLIN_TRY(is_arff ? read_arff_header(&reader, error) : read_names(&reader, error));
    for (;;) {
        DUNLIN_TRY(next_line(&reader, is_arff, &has_line, error));
        if (!has_line) {
            return DUNLIN_OK;
        }
        DUNLIN_TRY(read_row(&reader, error));
    }
}

static dunlin_status read_file(dunlin_dataset *set, const dunlin_data_request *request,
                               const dunlin_feature_visitor *visitor, dunlin_error *error)
{
    const char *arff = "wisdm/WISDM_ar_v1.1_transformed.arff.gz";
    const char *csv = "wisdm/WISDM_ar_v1.1_transformed.csv.gz";
    const bool is_csv =
        !dunlin__data_has_file(request, arff) && dunlin__data_has_file(request, csv);
    char path[DUNLIN_DATA_PATH_BYTES];
    dunlin_bytes bytes;
    DUNLIN_TRY(dunlin__data_open_file(set, request, is_csv ? csv : arff, path, &bytes, error));
    dunlin_status status = dunlin__wisdm_read(&bytes, visitor, error);
    dunlin__bytes_close(&bytes);
    return status;
}

dunlin_status dunlin__data_load_wisdm(dunlin_dataset *set, const dunlin_data_request *request,
                                      dunlin_error *error)
{
    set->title = "WISDM activity features";
    set->n_classes = DUNLIN_WISDM_CLASSES;
    set->n_features = DUNLIN_WISDM_FEATURES;
    return dunlin__features_load(set, request, read_file, error);
}
