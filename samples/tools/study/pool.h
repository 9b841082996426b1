/*
 * pool.h - a study's jobs in several processes, which share a journal.
 */
#ifndef SAMPLES_STUDY_POOL_H
#define SAMPLES_STUDY_POOL_H

#include "study.h"

/* What the processes of a study share: which jobs are taken, and how far they are. */
typedef struct study_pool study_pool;

/* NULL: no memory for it. */
study_pool *study_pool_open(void);
void study_pool_close(study_pool *pool);

/* Whether the job is this process's: the first that asks for its inputs has it. */
bool study_pool_claim(study_pool *pool, const char *inputs);
void study_pool_add_units(study_pool *pool, int64_t units);

/*
 * Does all jobs of the study in flags->n_jobs processes, in as many turns as some jobs wait for
 * others; the rows are in the journal then. EXIT_OK, or the line has been printed.
 */
int study_pool_run(study *at);

#endif
