/*
 * run.c - a study from its first job to its table.
 */
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int study_open(const study_flags *flags, const study_kind *kind, study **out_study)
{
    char path[OUTPUT_PATH_BYTES];
    *out_study = NULL;
    study *at = calloc(1, sizeof *at);
    if (at == NULL || !study_path(flags, kind->name, ".rows", path)) {
        free(at);
        return program_fail(&study_program, "--out %s: too long, or no memory", flags->out);
    }
    *at = (study){.flags = flags,
                  .kind = kind,
                  .kept = json_object(),
                  .rows = json_array(),
                  .left_out = json_array(),
                  .least_seed = INT64_MAX,
                  .most_seed = INT64_MIN};
    at->journal = open(
        path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (flags->is_resume ? 0 : O_TRUNC), 0644);
    int status = EXIT_OK;
    if (at->journal < 0) {
        status = program_fail(&study_program, "%s: %s", path, strerror(errno));
    } else {
        status = study_read_journal(at, path);
    }
    if (status != EXIT_OK) {
        study_close(at);
        return status;
    }
    *out_study = at;
    return EXIT_OK;
}

void study_close(study *at)
{
    if (at == NULL) {
        return;
    }
    study_close_subjects(at);
    if (at->journal >= 0) {
        (void)close(at->journal);
    }
    json_decref(at->kept);
    json_decref(at->rows);
    json_decref(at->job_rows);
    for (int32_t i = 0; i < at->n_sides; i++) {
        json_decref(at->sides[i].rows);
    }
    json_decref(at->left_out);
    free(at);
}

void study_add_table(study *at, const char *name, const char *const *columns, json_t *rows)
{
    if (at->n_sides == STUDY_MOST_TABLES) {
        json_decref(rows);
        return;
    }
    at->sides[at->n_sides++] = (study_side){.name = name, .columns = columns, .rows = rows};
}

/* Every row of a table beside the study's goes there. */
static void sort_rows(study *at)
{
    for (size_t i = 0; i < json_array_size(at->rows);) {
        json_t *row = json_array_get(at->rows, i);
        const char *table = json_string_value(json_object_get(row, "table"));
        for (int32_t t = 0; table != NULL && t < at->n_sides; t++) {
            if (strcmp(at->sides[t].name, table) == 0) {
                (void)json_array_append(at->sides[t].rows, row);
            }
        }
        if (table == NULL) {
            i++;
        } else {
            (void)json_array_remove(at->rows, i);
        }
    }
}

/* Of a study that was asked for by its name; one of several may be empty. */
static int refuse_empty(const study *at)
{
    return program_misuse(&study_program, "%s: nothing is left to do: %s", at->kind->name,
                          at->filter[0] != '\0' ? at->filter : "its lists are empty");
}

/* Counts the jobs; none is done. */
static int count(study *at)
{
    at->is_counting = true;
    const int status = at->kind->run_fn(at);
    at->is_counting = false;
    if (status == EXIT_OK && !at->has_failed && at->n_jobs == 0 && at->flags->named == NULL &&
        strcmp(at->flags->study, "all") != 0) {
        return refuse_empty(at);
    }
    return status;
}

/* Stage after stage while the limit allows it, then all rows in the order of the jobs. */
static int run_limited(study *at)
{
    const int64_t n_stages =
        at->most_seed < at->least_seed ? 1 : at->most_seed - at->least_seed + 1;
    int status = EXIT_OK;
    for (at->stage = 0; at->stage < n_stages && status == EXIT_OK && !at->has_failed; at->stage++) {
        status = at->kind->run_fn(at);
    }
    if (status == EXIT_OK && !at->has_failed) {
        (void)json_array_clear(at->rows);
        at->is_gathering = true;
        status = at->kind->run_fn(at);
    }
    return status;
}

int study_run(study *at, study_limit *limit)
{
    const double begin_ms = clock_ms();
    at->limit = limit_is_set(limit) ? limit : NULL;
    progress_begin(&at->line, "study", "units of work");
    int status = count(at);
    const int64_t n_jobs = at->n_jobs;
    progress_clear(&at->line);
    if (status == EXIT_OK) {
        (void)printf("%-12s %" PRId64 " parts\n", at->kind->name, n_jobs);
        if (at->filter[0] != '\0') {
            (void)printf("%-12s left out: %s\n", at->kind->name, at->filter);
        }
        (void)fflush(stdout);
    }
    int64_t n_before = (int64_t)json_object_size(at->kept);
    if (status == EXIT_OK && !at->has_failed && at->kind->is_parallel && at->flags->n_jobs > 1) {
        status = study_pool_run(at);
        n_before -= (int64_t)json_object_size(at->kept); /* what the processes did is not kept */
    } else {
        n_before = 0;
    }
    if (status == EXIT_OK && !at->has_failed) {
        status = at->limit == NULL ? at->kind->run_fn(at) : run_limited(at);
    }
    progress_end(&at->line);
    study_close_subjects(at);
    if (status == EXIT_OK && at->has_failed) {
        status = EXIT_FAILED;
    }
    if (status == EXIT_OK && at->kind->finish_fn != NULL) {
        at->kind->finish_fn(at);
        sort_rows(at);
    }
    if (status == EXIT_OK) {
        status = study_write_csv(at);
    }
    if (status == EXIT_OK) {
        status = study_write_tables(at);
    }
    if (status == EXIT_OK) {
        (void)printf("%-12s %zu rows, %" PRId64 " of %" PRId64 " parts kept, %.1f s\n",
                     at->kind->name, json_array_size(at->rows), at->n_kept + n_before, n_jobs,
                     (clock_ms() - begin_ms) / 1e3);
        if (study_n_left_out(at) > 0) {
            (void)printf("%-12s %" PRId64 " of %" PRId64 " parts not begun so far: no time\n",
                         at->kind->name, study_n_left_out(at), n_jobs);
        }
        (void)fflush(stdout);
    }
    return status;
}
