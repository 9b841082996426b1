/*
 * rows.h - what a study is while it runs: its jobs, their rows, its journal.
 */
#ifndef SAMPLES_STUDY_ROWS_H
#define SAMPLES_STUDY_ROWS_H

#include "pool.h"
#include "study.h"

#define STUDY_MOST_TABLES 8

/* A table beside the rows. */
typedef struct study_side {
    const char *name;
    const char *const *columns;
    json_t *rows;
} study_side;

struct study {
    const study_flags *flags;
    const study_kind *kind;
    json_t *kept; /* rows by inputs, of earlier runs */
    json_t *rows; /* of this run, in its order */
    json_t *inputs, *job_rows;
    int journal;
    bool is_counting, has_failed;
    bool is_gathering;  /* after a limited run: rows in their order, and what is left out */
    study_limit *limit; /* NULL: none */
    int64_t stage;      /* of the seeds, counted from the first; with a limit alone */
    json_int_t least_seed, most_seed;
    json_t *left_out; /* notes */
    double begin_ms;  /* of the part, by processor_ms() */
    int64_t n_jobs, n_kept, n_done;
    int64_t units_all, units_done, units;
    progress line;
    study_pool *pool; /* NULL: this process does all jobs */
    char filter[256]; /* why jobs were left out; "": none were */
    study_side sides[STUDY_MOST_TABLES];
    int32_t n_sides;
};

/* FNV-1a. */
uint64_t study_checksum_text(const char *text);

/* Reads what is there, and cuts off what is not whole. */
int study_read_journal(study *at, const char *path);

#endif
