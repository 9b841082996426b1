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
    *at = (study){.flags = flags, .kind = kind, .kept = json_object(), .rows = json_array()};
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
    free(at);
}

int study_run(study *at)
{
    const double begin_ms = clock_ms();
    progress_begin(&at->line, "study", "units of work");
    at->is_counting = true;
    int status = at->kind->run_fn(at);
    at->is_counting = false;
    const int64_t n_jobs = at->n_jobs;
    progress_clear(&at->line);
    (void)printf("%-12s %" PRId64 " parts\n", at->kind->name, n_jobs);
    (void)fflush(stdout);
    if (status == EXIT_OK && !at->has_failed) {
        status = at->kind->run_fn(at);
    }
    progress_end(&at->line);
    study_close_subjects(at);
    if (status == EXIT_OK && at->has_failed) {
        status = EXIT_FAILED;
    }
    if (status == EXIT_OK) {
        status = study_write_csv(at);
    }
    if (status == EXIT_OK) {
        (void)printf("%-12s %zu rows, %" PRId64 " of %" PRId64 " parts kept, %.1f s\n",
                     at->kind->name, json_array_size(at->rows), at->n_kept, n_jobs,
                     (clock_ms() - begin_ms) / 1e3);
        (void)fflush(stdout);
    }
    return status;
}
