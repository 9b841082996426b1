/*
 * spsw.c - the phone and watch recordings of sp-sw-har: CSV files of accelerometer and gyroscope,
 * cut into windows of one second, 37 numbers each.
 *
 * Invariant: a window lies within one recording and one activity, and no pause of the sensor is in
 * it. Source: Matey-Sanz, Casteleyn, Granell, "Dataset of inertial measurements of smartphones and
 * smartwatches for human activity recognition", 2023 (files, units m/s2 and rad/s, about 100 Hz).
 */
#include "feature_rows.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define AXES 6
#define WINDOW 100       /* samples of a window */
#define ADVANCE 50       /* from one window to the next */
#define PAUSE_MS 500     /* a longer one begins a new window */
#define MOST_NUMBER 99   /* of subjects and of their recordings: two digits */
#define COLUMN_TIME AXES /* the columns after the axes */
#define COLUMN_LABEL (AXES + 1)
#define N_COLUMNS (AXES + 2)

static const char *const column_names[N_COLUMNS] = {"x_acc",  "y_acc",  "z_acc",     "x_gyro",
                                                    "y_gyro", "z_gyro", "timestamp", "label"};
static const char *const class_names[DUNLIN_SPSW_CLASSES] = {"SEATED", "STANDING_UP", "WALKING",
                                                             "TURNING", "SITTING_DOWN"};

typedef struct spsw_reader {
    const dunlin_feature_visitor *visitor;
    int64_t person;
    bool is_watch;
    dunlin_lines lines;
    int32_t n; /* samples of the window so far */
    int32_t label;
    int64_t time_ms; /* of the last sample; -1: there was none */
    double samples[WINDOW][AXES];
} spsw_reader;

static dunlin_status fail_line(const spsw_reader *reader, const char *what, const char *field,
                               const char *expected, dunlin_error *error)
{
    char quoted[DUNLIN_FIELD_QUOTED];
    return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s:%" PRId64 ": %s \"%s\"%s",
                        reader->lines.bytes->name, reader->lines.number, what,
                        dunlin__field_quote(field, quoted), expected);
}

/* Of one axis: mean, deviation, least, most, mean step from sample to sample, and how much higher
 * the second half is than the first. */
static void describe(const spsw_reader *reader, int32_t axis, float out[AXES])
{
    double sum = 0.0;
    double halves[2] = {0.0, 0.0};
    double steps = 0.0;
    double least = reader->samples[0][axis];
    double most = least;
    for (int32_t i = 0; i < WINDOW; i++) {
        const double value = reader->samples[i][axis];
        sum += value;
        halves[i < WINDOW / 2 ? 0 : 1] += value;
        steps += i > 0 ? fabs(value - reader->samples[i - 1][axis]) : 0.0;
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    const double mean = sum / WINDOW;
    double squares = 0.0;
    for (int32_t i = 0; i < WINDOW; i++) {
        const double distance = reader->samples[i][axis] - mean;
        squares += distance * distance;
    }
    out[0] = (float)mean;
    out[1] = (float)sqrt(squares / WINDOW);
    out[2] = (float)least;
    out[3] = (float)most;
    out[4] = (float)(steps / (WINDOW - 1));
    out[5] = (float)((halves[1] - halves[0]) / (WINDOW / 2.0));
}

static dunlin_status hand_on(spsw_reader *reader, dunlin_error *error)
{
    float values[DUNLIN_SPSW_FEATURES];
    for (int32_t axis = 0; axis < AXES; axis++) {
        describe(reader, axis, values + (size_t)axis * AXES);
    }
    values[DUNLIN_SPSW_FEATURES - 1] = reader->is_watch ? 1.0F : 0.0F;
    DUNLIN_TRY(reader->visitor->row_fn(reader->visitor->ctx, reader->person, reader->label, values,
                                       error));
    memmove(reader->samples, reader->samples + ADVANCE,
            (WINDOW - ADVANCE) * sizeof reader->samples[0]);
    reader->n = WINDOW - ADVANCE;
    return DUNLIN_OK;
}

static dunlin_status read_axis(const spsw_reader *reader, int32_t axis, const char *field,
                               double *out_value, dunlin_error *error)
{
    if (dunlin__field_number(field, out_value)) {
        return DUNLIN_OK;
    }
    char what[32];
    (void)snprintf(what, sizeof what, "value of %s", column_names[axis]);
    return fail_line(reader, what, field, ": not a number from -1e9 to 1e9", error);
}

static dunlin_status read_label(const spsw_reader *reader, const char *field, int32_t *out_label,
                                dunlin_error *error)
{
    for (int32_t c = 0; c < DUNLIN_SPSW_CLASSES; c++) {
        if (strcmp(field, class_names[c]) == 0) {
            *out_label = c;
            return DUNLIN_OK;
        }
    }
    return fail_line(reader, "activity", field,
                     "; known: SEATED, STANDING_UP, WALKING, TURNING, SITTING_DOWN", error);
}

/* The fields of a line; the number of columns is checked first. */
static dunlin_status split_line(spsw_reader *reader, char *fields[N_COLUMNS], dunlin_error *error)
{
    char *at = reader->lines.text;
    char *field = NULL;
    int32_t n = 0;
    for (; dunlin__field_next(&at, &field); n++) {
        if (n < N_COLUMNS) {
            fields[n] = field;
        }
    }
    if (n != N_COLUMNS) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s:%" PRId64 ": %" PRId32 " values for %d columns",
                            reader->lines.bytes->name, reader->lines.number, n, N_COLUMNS);
    }
    return DUNLIN_OK;
}

static dunlin_status read_sample(spsw_reader *reader, dunlin_error *error)
{
    char *fields[N_COLUMNS] = {0};
    double axes[AXES];
    int32_t label = 0;
    int64_t time_ms = 0;
    DUNLIN_TRY(split_line(reader, fields, error));
    for (int32_t axis = 0; axis < AXES; axis++) {
        DUNLIN_TRY(read_axis(reader, axis, fields[axis], &axes[axis], error));
    }
    if (!dunlin__field_whole(fields[COLUMN_TIME], 0, INT64_MAX / 16, &time_ms)) {
        return fail_line(reader, "timestamp", fields[COLUMN_TIME], ": not whole milliseconds",
                         error);
    }
    DUNLIN_TRY(read_label(reader, fields[COLUMN_LABEL], &label, error));
    if (time_ms < reader->time_ms) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s:%" PRId64 ": time goes back, from %" PRId64 " to %" PRId64 " ms",
                            reader->lines.bytes->name, reader->lines.number, reader->time_ms,
                            time_ms);
    }
    if (label != reader->label || time_ms - reader->time_ms > PAUSE_MS) {
        reader->n = 0;
    }
    reader->label = label;
    reader->time_ms = time_ms;
    memcpy(reader->samples[reader->n], axes, sizeof axes);
    reader->n++;
    return reader->n == WINDOW ? hand_on(reader, error) : DUNLIN_OK;
}

static dunlin_status read_names(spsw_reader *reader, dunlin_error *error)
{
    char *fields[N_COLUMNS] = {0};
    DUNLIN_TRY(split_line(reader, fields, error));
    for (int32_t i = 0; i < N_COLUMNS; i++) {
        if (strcmp(fields[i], column_names[i]) != 0) {
            char expected[32];
            (void)snprintf(expected, sizeof expected, "; expected %s", column_names[i]);
            return fail_line(reader, "column", fields[i], expected, error);
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__spsw_read(dunlin_bytes *bytes, int64_t person, bool is_watch,
                                const dunlin_feature_visitor *visitor, dunlin_error *error)
{
    spsw_reader reader;
    reader.visitor = visitor;
    reader.person = person;
    reader.is_watch = is_watch;
    reader.n = 0;
    reader.label = -1;
    reader.time_ms = -1;
    dunlin__lines_begin(&reader.lines, bytes);
    bool has_names = false;
    for (;;) {
        bool has_line = false;
        DUNLIN_TRY(dunlin__lines_next(&reader.lines, &has_line, error));
        if (!has_line && !has_names) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: empty: it has no header",
                                bytes->name);
        }
        if (!has_line) {
            return DUNLIN_OK;
        }
        if (dunlin__line_is_blank(reader.lines.text)) {
            continue;
        }
        DUNLIN_TRY(has_names ? read_sample(&reader, error) : read_names(&reader, error));
        has_names = true;
    }
}

/* One recording, if it is there. */
static dunlin_status read_file(dunlin_dataset *set, const dunlin_data_request *request,
                               const char *file, int64_t person, bool is_watch,
                               const dunlin_feature_visitor *visitor, dunlin_error *error)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    dunlin_bytes bytes;
    DUNLIN_TRY(dunlin__data_open_file(set, request, file, path, &bytes, error));
    dunlin_status status = dunlin__spsw_read(&bytes, person, is_watch, visitor, error);
    dunlin__bytes_close(&bytes);
    return status;
}

static dunlin_status read_subject(dunlin_dataset *set, const dunlin_data_request *request,
                                  int32_t subject, const dunlin_feature_visitor *visitor,
                                  dunlin_error *error)
{
    static const char *const devices[] = {"sp", "sw"};
    for (int32_t i = 1; i <= MOST_NUMBER; i++) {
        for (int32_t device = 0; device < 2; device++) {
            char file[64];
            (void)snprintf(file, sizeof file,
                           "spsw-har/DATA/s%02" PRId32 "/s%02" PRId32 "_%02" PRId32 "_%s.csv.gz",
                           subject, subject, i, devices[device]);
            if (dunlin__data_has_file(request, file)) {
                DUNLIN_TRY(read_file(set, request, file, subject, device == 1, visitor, error));
            }
        }
    }
    return DUNLIN_OK;
}

/* Subjects and recordings in the order of their numbers, the phone before the watch. */
static dunlin_status read_folder(dunlin_dataset *set, const dunlin_data_request *request,
                                 const dunlin_feature_visitor *visitor, dunlin_error *error)
{
    if (!dunlin__data_has_file(request, "spsw-har/DATA")) {
        return dunlin__fail(error, DUNLIN_IO, "data", 0,
                            "there is no spsw-har/DATA in the data folder: unpack "
                            "spsw-har-DATA.tar.xz into spsw-har (tar xJf)");
    }
    for (int32_t subject = 1; subject <= MOST_NUMBER; subject++) {
        char folder[32];
        (void)snprintf(folder, sizeof folder, "spsw-har/DATA/s%02" PRId32, subject);
        if (dunlin__data_has_file(request, folder)) {
            DUNLIN_TRY(read_subject(set, request, subject, visitor, error));
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__data_load_spsw(dunlin_dataset *set, const dunlin_data_request *request,
                                     dunlin_error *error)
{
    set->title = "phone and watch activity windows (sp-sw-har)";
    set->n_classes = DUNLIN_SPSW_CLASSES;
    set->n_features = DUNLIN_SPSW_FEATURES;
    return dunlin__features_load(set, request, read_folder, error);
}
