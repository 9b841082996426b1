/*
 * jobs.c - a queue and its threads.
 *
 * Invariant: a job is in the queue, in the hands of one thread, or nobody's.
 */
#include "jobs.h"

#include <pthread.h>
#include <stdlib.h>

enum { NONE = 0, QUEUED = 1, RUNNING = 2, DONE = 3 };

struct sim_jobs {
    pthread_mutex_t lock;
    pthread_cond_t has_work, has_done;
    sim_job *first, *last;
    pthread_t *threads;
    int64_t n_threads;
    bool is_stopping;
};

static sim_job *pop(sim_jobs *jobs)
{
    sim_job *job = jobs->first;
    jobs->first = job->next;
    jobs->last = jobs->first == NULL ? NULL : jobs->last;
    job->next = NULL;
    return job;
}

static void *run_jobs(void *ctx)
{
    sim_jobs *jobs = ctx;
    (void)pthread_mutex_lock(&jobs->lock);
    while (!jobs->is_stopping) {
        if (jobs->first == NULL) {
            (void)pthread_cond_wait(&jobs->has_work, &jobs->lock);
            continue;
        }
        sim_job *job = pop(jobs);
        job->state = RUNNING;
        (void)pthread_mutex_unlock(&jobs->lock);
        job->run_fn(job);
        (void)pthread_mutex_lock(&jobs->lock);
        job->state = DONE;
        (void)pthread_cond_broadcast(&jobs->has_done);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    return NULL;
}

sim_jobs *sim_jobs_start(int64_t n_threads)
{
    sim_jobs *jobs = calloc(1, sizeof *jobs);
    if (jobs == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&jobs->lock, NULL);
    (void)pthread_cond_init(&jobs->has_work, NULL);
    (void)pthread_cond_init(&jobs->has_done, NULL);
    jobs->threads = calloc((size_t)n_threads, sizeof *jobs->threads);
    while (jobs->threads != NULL && jobs->n_threads < n_threads &&
           pthread_create(&jobs->threads[jobs->n_threads], NULL, run_jobs, jobs) == 0) {
        jobs->n_threads++;
    }
    if (jobs->n_threads < n_threads) {
        sim_jobs_stop(jobs);
        return NULL;
    }
    return jobs;
}

void sim_jobs_stop(sim_jobs *jobs)
{
    if (jobs == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&jobs->lock);
    jobs->is_stopping = true;
    (void)pthread_cond_broadcast(&jobs->has_work);
    (void)pthread_mutex_unlock(&jobs->lock);
    for (int64_t i = 0; i < jobs->n_threads; i++) {
        (void)pthread_join(jobs->threads[i], NULL);
    }
    (void)pthread_cond_destroy(&jobs->has_work);
    (void)pthread_cond_destroy(&jobs->has_done);
    (void)pthread_mutex_destroy(&jobs->lock);
    free(jobs->threads);
    free(jobs);
}

void sim_jobs_add(sim_jobs *jobs, sim_job *job)
{
    (void)pthread_mutex_lock(&jobs->lock);
    job->state = QUEUED;
    job->next = NULL;
    if (jobs->last != NULL) {
        jobs->last->next = job;
    } else {
        jobs->first = job;
    }
    jobs->last = job;
    (void)pthread_cond_signal(&jobs->has_work);
    (void)pthread_mutex_unlock(&jobs->lock);
}

void sim_jobs_wait(sim_jobs *jobs, sim_job *job)
{
    (void)pthread_mutex_lock(&jobs->lock);
    while (job->state == QUEUED || job->state == RUNNING) {
        (void)pthread_cond_wait(&jobs->has_done, &jobs->lock);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
}

void sim_jobs_take_back(sim_jobs *jobs, sim_job *job)
{
    (void)pthread_mutex_lock(&jobs->lock);
    if (job->state == QUEUED) {
        sim_job *before = NULL;
        for (sim_job *one = jobs->first; one != job; one = one->next) {
            before = one;
        }
        if (before != NULL) {
            before->next = job->next;
        } else {
            jobs->first = job->next;
        }
        jobs->last = jobs->last == job ? before : jobs->last;
        job->state = NONE;
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    sim_jobs_wait(jobs, job);
}
