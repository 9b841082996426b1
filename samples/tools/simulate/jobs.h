/*
 * jobs.h - threads that train while simulated time goes on: what they compute does not depend on
 * when they do.
 */
#ifndef SAMPLES_SIMULATE_JOBS_H
#define SAMPLES_SIMULATE_JOBS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sim_jobs sim_jobs;

/* A piece of work; zeroed, it is none. The first member of what it works on. */
typedef struct sim_job {
    void (*run_fn)(struct sim_job *job);
    int32_t state; /* of jobs.c */
    struct sim_job *next;
} sim_job;

/* NULL: no memory, or no threads. */
sim_jobs *sim_jobs_start(int64_t n_threads);
/* Ends when what runs has ended; NULL is fine. */
void sim_jobs_stop(sim_jobs *jobs);

/* First in, first out. The job must stay until it has been waited for, or taken back. */
void sim_jobs_add(sim_jobs *jobs, sim_job *job);
/* Until it has run. */
void sim_jobs_wait(sim_jobs *jobs, sim_job *job);
/* It does not run if it has not begun; else until it has. Of none: nothing happens. */
void sim_jobs_take_back(sim_jobs *jobs, sim_job *job);

#endif
