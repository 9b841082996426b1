/*
 * test_features.c - data sets of feature vectors: WISDM as ARFF and CSV, phone and watch windows.
 */
#include "data_files.h"

#include <criterion/criterion.h>

#include <data/files/lines.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARFF "wisdm/WISDM_ar_v1.1_transformed.arff"
#define CSV "wisdm/WISDM_ar_v1.1_transformed.csv"
#define N_WISDM 43

static const char *const tail_names[] = {
    "XAVG",      "YAVG",      "ZAVG",      "XPEAK",     "YPEAK",     "ZPEAK",    "XABSOLDEV",
    "YABSOLDEV", "ZABSOLDEV", "XSTANDDEV", "YSTANDDEV", "ZSTANDDEV", "RESULTANT"};

static test_folder files;

static void setup(void)
{
    test_folder_begin(&files);
}

static void teardown(void)
{
    test_folder_end(&files);
}

TestSuite(features, .init = setup, .fini = teardown);

static void put(test_bytes *to, const char *format, ...) DUNLIN_PRINTF(2, 3);
static void put(test_bytes *to, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    test_put(to, text, (size_t)n);
}

static const char *wisdm_name(int i, char out[8])
{
    if (i >= 30) {
        return tail_names[i - 30];
    }
    snprintf(out, 8, "%c%d", "XYZ"[i / 10], i % 10);
    return out;
}

static test_bytes arff_header(const char *end)
{
    test_bytes made = {0};
    char name[8];
    put(&made, "%% made up%s@RELATION r%s%s@attribute \"UNIQUE_ID\" numeric%s", end, end, end, end);
    put(&made, "@attribute user {\"1\" , \"4\"}%s", end);
    for (int i = 0; i < N_WISDM; i++) {
        put(&made, "@attribute '%s' numeric%s", wisdm_name(i, name), end);
    }
    put(&made, "@attribute class{ \"Walking\" }%s@data%s", end, end);
    return made;
}

/* A row whose feature 0 is `first`, and feature k is k. */
static void put_row(test_bytes *to, const char *user, const char *first, const char *activity,
                    const char *end)
{
    put(to, "17,%s,%s", user, first);
    for (int i = 1; i < N_WISDM; i++) {
        put(to, ",%d", i);
    }
    put(to, ",%s%s", activity, end);
}

static dunlin_dataset *open_set(const char *name, dunlin_split split, int64_t max_examples,
                                dunlin_alloc_counter *counter)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.max_examples = max_examples;
    dunlin_alloc_counter_init(counter, NULL);
    cr_assert_eq(
        dunlin_dataset_open(name, files.path, split, &options, &counter->hooks, &set, &error),
        DUNLIN_OK, "%s: %s", name, error.text);
    cr_assert_eq(counter->now_bytes, dunlin_dataset_bytes(set), "bytes held are those told");
    return set;
}

/* Opening must fail with this status and a text that holds `word`; nothing may be kept. */
static void expect_failure(const char *name, dunlin_status expected, const char *word)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    const dunlin_status status = dunlin_dataset_open(name, files.path, DUNLIN_SPLIT_TRAIN, NULL,
                                                     &counter.hooks, &set, &error);
    cr_assert_eq(status, expected, "%s instead of %s: %s", dunlin_status_name(status),
                 dunlin_status_name(expected), error.text);
    cr_assert_not_null(strstr(error.text, word), "\"%s\" is not in: %s", word, error.text);
    cr_assert_null(strchr(error.text, '\n'));
    cr_assert_null(set);
    cr_assert_eq(counter.now_bytes, 0U);
}

/* Users 7, 5 and 7 train, user 4 tests; the second value of feature 0 is missing. */
static void write_arff(const char *end)
{
    test_bytes made = arff_header(end);
    put_row(&made, "7", "1.5", "Walking", end);
    put_row(&made, "\"5\"", "?", "\"Standing\"", end);
    put_row(&made, "4", "1e6", "Upstairs", end);
    put(&made, "  %s%% more%s", end, end);
    put_row(&made, " 7 ", "+4.5E0", "jogging", ""); /* no end at the end */
    test_folder_write(&files, ARFF ".gz", &made);
    test_bytes_free(&made);
}

static void expect_arff(void)
{
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("wisdm", DUNLIN_SPLIT_TRAIN, 0, &counter);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    cr_assert(shape.n_dims == 3 && shape.dims[0] == 43 && shape.dims[1] == 1 && shape.dims[2] == 1);
    cr_assert(dunlin_dataset_n_examples(set) == 3 && dunlin_dataset_n_classes(set) == 6);
    static const int32_t labels[3] = {0, 5, 1};
    static const int64_t clients[3] = {1, 0, 1};
    static const float firsts[3] = {1.5F, 3.0F, 4.5F};
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert(source.dtype == DUNLIN_F32 && source.scale == 1.0F);
    for (int64_t i = 0; i < 3; i++) {
        float x[N_WISDM];
        int32_t y = 0;
        cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
        cr_assert_eq(y, labels[i]);
        cr_assert_eq(dunlin_dataset_client_of(set, i), clients[i]);
        cr_assert_eq(x[0], firsts[i], "what is missing is the mean");
        cr_assert_eq(x[42], 42.0F);
    }
    /* Of the known values of the training split, 1.5 and 4.5; the rest never changes. */
    cr_assert_float_eq(source.mean[0], 3.0F, 1e-6);
    cr_assert_float_eq(source.std[0], 1.5F, 1e-6);
    cr_assert_eq(source.mean[42], 42.0F);
    cr_assert_eq(source.std[42], 1.0F);
    cr_assert_eq(dunlin_dataset_n_natural_clients(set), 2);
    dunlin_dataset_close(set);
    cr_assert_eq(counter.now_bytes, 0U);
    set = open_set("wisdm", DUNLIN_SPLIT_TEST, 0, &counter);
    cr_assert(dunlin_dataset_n_examples(set) == 1 && dunlin_dataset_label(set, 0) == 2);
    dunlin_dataset_source(set, &source);
    cr_assert_float_eq(source.mean[0], 3.0F, 1e-6, "not the test split's own");
    dunlin_dataset_close(set);
}

Test(features, arff_is_read_with_any_line_ends)
{
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    for (size_t i = 0; i < 3; i++) {
        write_arff(ends[i]);
        expect_arff();
    }
}

Test(features, limit_keeps_the_first_and_the_normalisation)
{
    write_arff("\n");
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("wisdm", DUNLIN_SPLIT_TRAIN, 1, &counter);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.n_examples, 1);
    cr_assert_float_eq(source.mean[0], 3.0F, 1e-6);
    cr_assert_eq(dunlin_dataset_n_natural_clients(set), 1);
    dunlin_dataset_close(set);
}

Test(features, csv_may_have_its_columns_in_any_order)
{
    test_bytes made = {0};
    char name[8];
    put(&made,
        "\xEF\xBB\xBF"
        "Class,%s",
        "user");
    for (int i = N_WISDM - 1; i >= 0; i--) {
        put(&made, ",%s", wisdm_name(i, name));
    }
    put(&made, "\n'Sitting',9");
    for (int i = N_WISDM - 1; i >= 0; i--) {
        put(&made, i == 3 ? "," : ",-%d.25", i); /* nothing is missing too */
    }
    put(&made, "\n");
    test_folder_write(&files, CSV, &made);
    test_bytes_free(&made);
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("wisdm", DUNLIN_SPLIT_TRAIN, 0, &counter);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    float x[N_WISDM];
    int32_t y = 0;
    const int64_t first = 0;
    cr_assert_eq(source.read_fn(source.ctx, &first, 1, x, &y), DUNLIN_OK);
    cr_assert(y == 4 && x[0] == -0.25F && x[42] == -42.25F && x[3] == 0.0F);
    dunlin_dataset_close(set);
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.image = 28;
    dunlin_error error = {0};
    cr_assert_eq(
        dunlin_dataset_open("wisdm", files.path, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
        DUNLIN_UNSUPPORTED);
    cr_assert_not_null(strstr(error.text, "43 features"), "%s", error.text);
}

/* One damaged row after two good ones: line 53 of the file. */
static void expect_bad_row(const char *user, const char *first, const char *activity,
                           const char *word)
{
    test_bytes made = arff_header("\n");
    put_row(&made, "7", "1", "Walking", "\n");
    put_row(&made, "8", "1", "Walking", "\n");
    put_row(&made, user, first, activity, "\n");
    test_folder_write(&files, ARFF, &made);
    test_bytes_free(&made);
    char place[64];
    snprintf(place, sizeof place, "transformed.arff:53: %s", word);
    expect_failure("wisdm", DUNLIN_DATA, place);
}

Test(features, damaged_rows_are_refused_with_their_line)
{
    expect_bad_row("0", "1", "Walking", "user \"0\": the limits are 1 and 65535");
    expect_bad_row("65536", "1", "Walking", "user \"65536\"");
    expect_bad_row("99999999999999999999", "1", "Walking", "user");
    expect_bad_row("seven", "1", "Walking", "user \"seven\"");
    expect_bad_row("7", "1e10", "Walking", "value of X0 \"1e10\": not a number");
    expect_bad_row("7", "nan", "Walking", "value of X0 \"nan\"");
    expect_bad_row("7", "1.5.2", "Walking", "value of X0");
    expect_bad_row("7", "0x1p3", "Walking", "value of X0");
    expect_bad_row("7", "-", "Walking", "value of X0");
    expect_bad_row("7", "1e", "Walking", "value of X0");
    expect_bad_row("7", "\"1", "Walking", "value of X0");
    expect_bad_row("7", "1", "Flying", "activity \"Flying\"; known: Walking");
    expect_bad_row("7", "1", "Walk\xC3\xBCng", "activity \"Walk??ng\"");
    expect_bad_row("7", "1", "", "activity \"\"");
    expect_bad_row("7", "1,1", "Walking", "activity");
    expect_bad_row("7", "1", "Walking,1", "47 values for 46 columns");
    expect_bad_row("7", "1", "Walk\x01ing", "not text: byte 0x01");
}

Test(features, damaged_headers_are_refused)
{
    static const struct {
        const char *text, *word;
        dunlin_status status;
    } cases[] = {
        {"", "empty", DUNLIN_DATA},
        {"\n\n% nothing\n", "empty", DUNLIN_DATA},
        {"@relation r\n@attribute user numeric\n", "cut off", DUNLIN_DATA},
        {"@relation r\n@attribute user numeric\n@data\n",
         "arff:3: the data begin, and there was "
         "no column \"X0\"",
         DUNLIN_DATA},
        {"@relation r\n@attribute weight numeric\n",
         "arff:2: no column of WISDM is called "
         "\"weight\"",
         DUNLIN_DATA},
        {"@relation r\n@attribute X1 numeric\n@attribute x1 numeric\n", "arff:3: a second column",
         DUNLIN_DATA},
        {"@relation r\n@attribute\n", "arff:2: expected @relation", DUNLIN_DATA},
        {"@relation r\n@attribute 'X1 numeric\n", "arff:2: an attribute without", DUNLIN_DATA},
        {"@relation r\n{0 1}\n", "arff:2: expected @relation", DUNLIN_DATA},
        {"user,class,X0\n", "arff:1: the data begin", DUNLIN_DATA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_folder_write_raw(&files, ARFF, cases[i].text, strlen(cases[i].text));
        expect_failure("wisdm", cases[i].status, cases[i].word);
    }
    char *line = malloc(DUNLIN_LINE_BYTES + 1);
    memset(line, '%', DUNLIN_LINE_BYTES + 1);
    test_folder_write_raw(&files, ARFF, line, DUNLIN_LINE_BYTES + 1);
    expect_failure("wisdm", DUNLIN_DATA, "arff:1: a line too long: the limit is 8191 bytes");
    free(line);
    test_bytes made = arff_header("\n");
    put_row(&made, "8", "1", "Walking", "\n");
    test_folder_write(&files, ARFF, &made);
    test_bytes_free(&made);
    expect_failure("wisdm", DUNLIN_DATA, "no example of the training split");
}

/* A recording: n samples 10 ms apart; the first axis is i, all others 2; then a line of its own. */
static void write_recording(const char *name, int n, int64_t from_ms, const char *activity,
                            const char *more)
{
    test_bytes made = {0};
    put(&made, "x_acc,y_acc,z_acc,x_gyro,y_gyro,z_gyro,timestamp,label\r\n");
    for (int i = 0; i < n; i++) {
        put(&made, "%d.0,2,2,2,2,2,%lld,%s\r\n", i, (long long)from_ms + 10 * i, activity);
    }
    put(&made, "%s", more);
    test_folder_write(&files, name, &made);
    test_bytes_free(&made);
}

/* Folders in folders: the test's own writing makes one level only. */
static void begin_recordings(void)
{
    static const char *const folders[] = {"spsw-har/x", "spsw-har/DATA/x"};
    for (size_t i = 0; i < 2; i++) {
        test_folder_write_raw(&files, folders[i], "", 0);
    }
}

static void expect_window(const dunlin_source *source, int64_t index, float first, float watch)
{
    float x[37];
    int32_t y = 0;
    cr_assert_eq(source->read_fn(source->ctx, &index, 1, x, &y), DUNLIN_OK);
    /* Of i, i + 1, ... i + 99: mean, deviation, least, most, step, the second half's gain. */
    cr_assert_float_eq(x[0], first + 49.5F, 1e-4);
    cr_assert_float_eq(x[1], sqrtf((100.0F * 100.0F - 1.0F) / 12.0F), 1e-4);
    cr_assert(x[2] == first && x[3] == first + 99.0F && x[4] == 1.0F && x[5] == 50.0F);
    cr_assert(x[6] == 2.0F && x[7] == 0.0F && x[10] == 0.0F && x[11] == 0.0F);
    cr_assert_eq(x[36], watch);
}

Test(features, recordings_are_cut_into_windows)
{
    begin_recordings();
    /* Windows from 0, 50 and 100; a pause that is too long, another activity: too short. */
    write_recording("spsw-har/DATA/s03/s03_02_sw.csv", 249, 5000, "WALKING",
                    "0,0,0,0,0,0,7981,WALKING\n0,0,0,0,0,0,7990,TURNING");
    write_recording("spsw-har/DATA/s03/s03_01_sp.csv.gz", 150, 0, "SEATED", "");
    write_recording("spsw-har/DATA/s04/s04_01_sp.csv", 100, 0, "STANDING_UP", "");
    write_recording("spsw-har/DATA/s23/s23_17_sp.csv", 199, 0, "SITTING_DOWN", "\n \n");
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("spsw_har", DUNLIN_SPLIT_TRAIN, 0, &counter);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    cr_assert(shape.n_dims == 3 && shape.dims[0] == 37 && shape.dims[1] == 1 && shape.dims[2] == 1);
    cr_assert_eq(dunlin_dataset_n_examples(set), 7);
    static const int32_t labels[7] = {0, 0, 2, 2, 2, 4, 4};
    static const float firsts[7] = {0, 50, 0, 50, 100, 0, 50};
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    for (int64_t i = 0; i < 7; i++) {
        cr_assert_eq(dunlin_dataset_label(set, i), labels[i]);
        cr_assert_eq(dunlin_dataset_client_of(set, i), i < 5 ? 0 : 1);
        expect_window(&source, i, firsts[i], i >= 2 && i < 5 ? 1.0F : 0.0F);
    }
    dunlin_dataset_close(set);
    set = open_set("spsw_har", DUNLIN_SPLIT_TEST, 0, &counter);
    cr_assert(dunlin_dataset_n_examples(set) == 1 && dunlin_dataset_label(set, 0) == 1);
    dunlin_dataset_close(set);
    cr_assert_eq(counter.now_bytes, 0U);
}

Test(features, a_pause_ends_a_window)
{
    begin_recordings();
    static const char name[] = "spsw-har/DATA/s01/s01_01_sp.csv";
    write_recording(name, 99, 0, "SEATED", "99,2,2,2,2,2,1481,SEATED\n"); /* 501 ms later */
    expect_failure("spsw_har", DUNLIN_DATA, "no example of the training split");
    write_recording(name, 99, 0, "SEATED", "99,2,2,2,2,2,1480,SEATED\n");
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("spsw_har", DUNLIN_SPLIT_TRAIN, 0, &counter);
    cr_assert_eq(dunlin_dataset_n_examples(set), 1);
    dunlin_dataset_close(set);
}

Test(features, damaged_recordings_are_refused_with_their_line)
{
    static const struct {
        const char *line, *word;
    } cases[] = {
        {"1,1,1,1,1,1,40,SEATED,1\n", "sp.csv:12: 9 values for 8 columns"},
        {"1,1,1,1,1,1,4", "sp.csv:12: 7 values for 8 columns"},
        {"1,1,1,1,1,1,100,SEAT", "sp.csv:12: activity \"SEAT\"; known: SEATED"},
        {"1,1,1,1,,1,100,SEATED", "sp.csv:12: value of y_gyro \"\": not a number"},
        {"1,1,inf,1,1,1,100,SEATED", "sp.csv:12: value of z_acc \"inf\""},
        {"1,1,1,1,1,1,1.5,SEATED", "sp.csv:12: timestamp \"1.5\": not whole"},
        {"1,1,1,1,1,1,89,SEATED", "sp.csv:12: time goes back, from 90 to 89 ms"},
    };
    begin_recordings();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_recording("spsw-har/DATA/s01/s01_01_sp.csv", 10, 0, "SEATED", cases[i].line);
        expect_failure("spsw_har", DUNLIN_DATA, cases[i].word);
    }
    static const char other[] = "x_acc,y_acc,z_acc,x_gyro,y_gyro,z_gyro,time,label\n";
    test_folder_write_raw(&files, "spsw-har/DATA/s01/s01_01_sp.csv", other, sizeof other - 1);
    expect_failure("spsw_har", DUNLIN_DATA, "sp.csv:1: column \"time\"; expected timestamp");
    test_folder_write_raw(&files, "spsw-har/DATA/s01/s01_01_sp.csv", "", 0);
    expect_failure("spsw_har", DUNLIN_DATA, "empty");
    write_recording("spsw-har/DATA/s01/s01_01_sp.csv", 99, 0, "SEATED", "");
    expect_failure("spsw_har", DUNLIN_DATA, "no example of the training split");
}

Test(features, folders_that_are_missing_are_named)
{
    expect_failure("wisdm", DUNLIN_IO, "WISDM_ar_v1.1_transformed.arff.gz");
    expect_failure("spsw_har", DUNLIN_IO, "unpack spsw-har-DATA.tar.xz");
}

/* Fails the n-th allocation until opening works: MEMORY each time, and nothing is kept. */
typedef struct failing {
    int64_t left;
    dunlin_alloc_counter counter;
} failing;

static void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    failing *state = ctx;
    if (state->left == 0) {
        return NULL;
    }
    state->left--;
    return state->counter.hooks.alloc_fn(state->counter.hooks.ctx, bytes, align);
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    failing *state = ctx;
    state->counter.hooks.free_fn(state->counter.hooks.ctx, memory, bytes);
}

Test(features, every_failing_allocation_is_clean)
{
    write_arff("\n");
    for (int64_t n = 0;; n++) {
        failing state = {.left = n};
        dunlin_alloc_counter_init(&state.counter, NULL);
        const dunlin_alloc hooks = {&state, failing_alloc, failing_free};
        dunlin_dataset *set = NULL;
        const dunlin_status status =
            dunlin_dataset_open("wisdm", files.path, DUNLIN_SPLIT_TRAIN, NULL, &hooks, &set, NULL);
        state.left = -1;
        dunlin_dataset_close(set);
        cr_assert_eq(state.counter.now_bytes, 0U, "allocation %d", (int)n);
        if (status == DUNLIN_OK) {
            cr_assert_geq(n, 5);
            break;
        }
        cr_assert_eq(status, DUNLIN_MEMORY, "allocation %d", (int)n);
    }
}

Test(features, numbers_are_read_to_the_last_digit)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = {{"-8.271090507507324", -8.271090507507324},
                 {"0.0007635590736754239", 0.0007635590736754239},
                 {"1e9", 1e9},
                 {"-0", 0.0},
                 {".5", 0.5},
                 {"5.", 5.0},
                 {"000000000000000000000012", 12.0},
                 {"0.000000000000000000000000000000012345e31", 0.12345},
                 {"123456789.12345678901234567890", 123456789.12345679},
                 {"1e-400", 0.0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = 7.0;
        cr_assert(dunlin__field_number(cases[i].text, &value), "%s", cases[i].text);
        cr_assert_leq(fabs(value - cases[i].value), 4e-16 * fabs(cases[i].value), "%s: %.17g",
                      cases[i].text, value);
    }
}
