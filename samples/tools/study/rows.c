/*
 * rows.c - jobs and their rows: what is finished is appended to DIR/NAME.rows and found again.
 *
 * Invariant: a line of the journal is one finished job, "CHECKSUM {inputs, rows}", written by one
 * call and flushed. A line that is cut off or damaged is not taken, nor is anything after it; rows
 * are taken only for exactly the same inputs.
 */
#include "rows.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define CHECKSUM_DIGITS 16
#define ROWS_FORM 3 /* of the columns: kept rows of another form are not taken */

static volatile sig_atomic_t is_interrupted;

void study_interrupt(void)
{
    is_interrupted = 1;
}

bool study_is_interrupted(void)
{
    return is_interrupted != 0;
}

const study_flags *study_flags_of(const study *at)
{
    return at->flags;
}

const json_t *study_rows(const study *at)
{
    return at->rows;
}

const study_kind *study_kind_of(const study *at)
{
    return at->kind;
}

int64_t study_n_left_out(const study *at)
{
    return (int64_t)json_array_size(at->left_out);
}

const json_t *study_left_out(const study *at)
{
    return at->left_out;
}

int64_t study_n_parts(const study *at)
{
    return at->n_jobs;
}

const char *study_filter(const study *at)
{
    return at->filter;
}

bool study_is_counting(const study *at)
{
    return at->is_counting;
}

void study_tell_filter(study *at, const char *format, ...)
{
    if (at->filter[0] == '\0') {
        va_list values;
        va_start(values, format);
        (void)vsnprintf(at->filter, sizeof at->filter, format, values);
        va_end(values);
    }
}

bool study_has_failed(const study *at)
{
    return at->has_failed;
}

void study_fail(study *at, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(text, sizeof text, format, values);
    va_end(values);
    progress_end(&at->line);
    if (!at->has_failed) {
        (void)program_fail(&study_program, "%s: %s", at->kind->name, text);
    }
    at->has_failed = true;
    json_decref(at->job_rows);
    at->job_rows = NULL;
}

void study_fail_with(study *at, const char *what, const dunlin_error *error)
{
    study_fail(at, "%s: %s", what,
               error->text[0] != '\0' ? error->text : dunlin_status_text(error->status));
}

/* --- the journal --- */

uint64_t study_checksum_text(const char *text)
{
    uint64_t hash = STUDY_CHECKSUM_BEGIN;
    for (; *text != '\0'; text++) {
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3ULL;
    }
    return hash;
}

/* Takes one line; false if it is not whole. */
static bool take_line(study *at, const char *line)
{
    char digits[CHECKSUM_DIGITS + 1] = "";
    if (strlen(line) < CHECKSUM_DIGITS + 2) {
        return false;
    }
    (void)snprintf(digits, sizeof digits, "%016" PRIx64,
                   study_checksum_text(line + CHECKSUM_DIGITS + 1));
    if (memcmp(digits, line, CHECKSUM_DIGITS) != 0) {
        return false;
    }
    json_t *job = json_loads(line + CHECKSUM_DIGITS + 1, 0, NULL);
    json_t *rows = json_object_get(job, "rows");
    char *key = json_dumps(json_object_get(job, "inputs"), JSON_COMPACT | JSON_SORT_KEYS);
    const bool is_whole = key != NULL && json_is_array(rows);
    if (is_whole) {
        (void)json_object_set(at->kept, key, rows);
    }
    free(key);
    json_decref(job);
    return is_whole;
}

int study_read_journal(study *at, const char *path)
{
    FILE *file = fdopen(dup(at->journal), "r");
    char *line = NULL;
    size_t capacity = 0;
    off_t good = 0;
    ssize_t length = 0;
    while (file != NULL && (length = getline(&line, &capacity, file)) > 0) {
        const bool has_end = line[length - 1] == '\n';
        line[length - 1] = '\0';
        if (!has_end || !take_line(at, line)) {
            break;
        }
        good += length;
    }
    free(line);
    if (file == NULL || ftruncate(at->journal, good) != 0) {
        (void)program_fail(&study_program, "%s cannot be read: %s", path, strerror(errno));
        at->has_failed = true;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return at->has_failed ? EXIT_FAILED : EXIT_OK;
}

static void append(study *at)
{
    json_t *job = json_pack("{s:O, s:O}", "inputs", at->inputs, "rows", at->job_rows);
    char *text = json_dumps(job, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(job);
    const size_t bytes = text == NULL ? 0 : strlen(text) + CHECKSUM_DIGITS + 3;
    char *line = text == NULL ? NULL : malloc(bytes);
    if (line == NULL) {
        free(text);
        study_fail(at, "no memory for a row");
        return;
    }
    const int length =
        snprintf(line, bytes, "%016" PRIx64 " %s\n", study_checksum_text(text), text);
    (void)flock(at->journal, LOCK_EX); /* other processes of the study */
    const off_t before = lseek(at->journal, 0, SEEK_END);
    if (write(at->journal, line, (size_t)length) != length || fdatasync(at->journal) != 0) {
        const int code = errno;
        (void)ftruncate(at->journal, before);
        study_fail(at, "a row cannot be kept: %s", strerror(code));
    }
    (void)flock(at->journal, LOCK_UN);
    free(line);
    free(text);
}

/* --- jobs --- */

static void take_rows(study *at, const json_t *rows)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        (void)json_array_append(at->rows, json_array_get(rows, i));
    }
}

/* What every job depends on. */
static void add_common(const study *at, json_t *inputs)
{
    const study_flags *flags = at->flags;
    char costs[24];
    (void)snprintf(costs, sizeof costs, "%016" PRIx64, flags->costs_bytes);
    (void)json_object_set_new(inputs, "version", json_string(dunlin_version_string()));
    (void)json_object_set_new(inputs, "form", json_integer(ROWS_FORM));
    (void)json_object_set_new(inputs, "seed", json_integer((json_int_t)flags->seed));
    (void)json_object_set_new(inputs, "threads", json_integer(flags->n_threads));
    (void)json_object_set_new(inputs, "steps", json_integer(flags->steps));
    (void)json_object_set_new(inputs, "costs", json_string(flags->costs == NULL ? "" : costs));
    (void)json_object_set_new(inputs, "swap_write", json_real(flags->swap_write_mb_per_s));
    (void)json_object_set_new(inputs, "swap_read", json_real(flags->swap_read_mb_per_s));
    if (flags->dataset != NULL) {
        (void)json_object_set_new(inputs, "data", json_string(flags->choice.name));
        (void)json_object_set_new(inputs, "examples", json_integer(flags->own.n_examples));
        if (at->kind != &study_federated) { /* whose networks have had them always */
            (void)json_object_set_new(inputs, "outputs", json_integer(flags->own.n_classes));
        }
    }
    if (flags->classes != 0) {
        (void)json_object_set_new(inputs, "classes", json_integer(flags->classes));
    }
    if (flags->image != 0) {
        (void)json_object_set_new(inputs, "side", json_integer(flags->image));
    }
    if (flags->models_bytes != 0) {
        char files[24];
        (void)snprintf(files, sizeof files, "%016" PRIx64, flags->models_bytes);
        (void)json_object_set_new(inputs, "files", json_string(files));
    }
}

/* The seed of a job; studies without seeds have all their jobs in the first stage. */
static bool seed_of(const json_t *inputs, json_int_t *out_seed)
{
    const json_t *seed = json_object_get(inputs, "run");
    *out_seed = json_integer_value(seed);
    return json_is_integer(seed);
}

static void count_job(study *at, const json_t *inputs, int64_t units)
{
    json_int_t seed = 0;
    if (seed_of(inputs, &seed)) {
        at->least_seed = seed < at->least_seed ? seed : at->least_seed;
        at->most_seed = seed > at->most_seed ? seed : at->most_seed;
    }
    at->n_jobs++;
    at->units_all += units;
}

static bool is_of_stage(const study *at, const json_t *inputs)
{
    json_int_t seed = 0;
    return at->limit == NULL || at->is_gathering || at->pool != NULL ||
           (seed_of(inputs, &seed) ? seed - at->least_seed == at->stage : at->stage == 0);
}

/* A job whose rows are kept, that is only looked for, that may not begin, or that another process
 * has: true if nothing is to be done for it. */
static bool is_settled(study *at, const json_t *inputs, int64_t units, const char *note)
{
    char *key = json_dumps(inputs, JSON_COMPACT | JSON_SORT_KEYS);
    const json_t *kept = key == NULL ? NULL : json_object_get(at->kept, key);
    bool is_done = kept != NULL || at->is_gathering ||
                   (at->limit != NULL && !limit_allows(at->limit, at->n_done == 0));
    is_done = is_done || (at->pool != NULL && key != NULL && !study_pool_claim(at->pool, key));
    free(key);
    if (kept != NULL) {
        take_rows(at, kept);
    }
    if (kept != NULL && !at->is_gathering) {
        at->n_kept++;
        at->units_all -= units;
    }
    if (kept == NULL && at->is_gathering) {
        (void)json_array_append_new(at->left_out, json_string(note));
    }
    return is_done;
}

bool study_begin_job(study *at, json_t *inputs, int64_t units, const char *note)
{
    if (at->is_counting || at->has_failed) {
        count_job(at, inputs, units);
        json_decref(inputs);
        return false;
    }
    add_common(at, inputs);
    if (!is_of_stage(at, inputs) || is_settled(at, inputs, units, note)) {
        json_decref(inputs);
        return false;
    }
    if (study_is_interrupted()) {
        json_decref(inputs);
        study_fail(at, "interrupted after %" PRId64 " of %" PRId64 " parts; --resume goes on",
                   at->n_done + at->n_kept, at->n_jobs);
        return false;
    }
    progress_update(&at->line, at->units_done, at->units_all, note);
    at->inputs = inputs;
    at->job_rows = json_array();
    at->units = units;
    at->begin_ms = processor_ms();
    return true;
}

void study_add_row(study *at, json_t *row)
{
    const study_flags *flags = at->flags;
    if (at->job_rows == NULL) {
        json_decref(row);
    } else {
        if (flags->dataset != NULL && json_object_get(row, "dataset") == NULL) {
            row_set_text(row, "dataset", flags->own.title);
            row_set_int(row, "is_synthetic", flags->own.is_synthetic ? 1 : 0);
        }
        (void)json_array_append_new(at->job_rows, row);
    }
}

void study_end_job(study *at)
{
    if (!at->has_failed) {
        append(at);
    }
    if (!at->has_failed && at->limit != NULL) {
        char *key = json_dumps(at->inputs, JSON_COMPACT | JSON_SORT_KEYS);
        (void)json_object_set(at->kept, key == NULL ? "" : key, at->job_rows);
        free(key);
        limit_end_part(at->limit, at->begin_ms);
    }
    if (!at->has_failed) {
        take_rows(at, at->job_rows);
        at->n_done++;
        at->units_done += at->units;
    }
    if (at->pool != NULL) {
        study_pool_add_units(at->pool, at->units);
    }
    json_decref(at->job_rows);
    json_decref(at->inputs);
    at->job_rows = NULL;
    at->inputs = NULL;
}

/* --- cells --- */

void row_set_text(json_t *row, const char *column, const char *text)
{
    (void)json_object_set_new(row, column, text == NULL ? json_null() : json_string(text));
}

void row_set_int(json_t *row, const char *column, int64_t number)
{
    (void)json_object_set_new(row, column, json_integer(number));
}

void row_set_real(json_t *row, const char *column, double number)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%.6g", number);
    (void)json_object_set_new(row, column,
                              isfinite(number) ? json_real(strtod(text, NULL)) : json_null());
}
