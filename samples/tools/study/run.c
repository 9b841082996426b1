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
    json_decref(at->left_out);
    free(at);
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
    at->is_counting = true;
    int status = at->kind->run_fn(at);
    at->is_counting = false;
    const int64_t n_jobs = at->n_jobs;
    progress_clear(&at->line);
    (void)printf("%-12s %" PRId64 " parts\n", at->kind->name, n_jobs);
    (void)fflush(stdout);
    if (status == EXIT_OK && !at->has_failed) {
        status = at->limit == NULL ? at->kind->run_fn(at) : run_limited(at);
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
        if (study_n_left_out(at) > 0) {
            (void)printf("%-12s %" PRId64 " of %" PRId64 " parts not begun so far: no time\n",
                         at->kind->name, study_n_left_out(at), n_jobs);
        }
        (void)fflush(stdout);
    }
    return status;
}
