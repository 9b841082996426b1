/*
 * threads.h - the threads that kernels spread their work over, and how they wait between two ops.
 *
 * A worker that sleeps is woken in 5 to 50 us, once or twice an op; one that spins starts at once,
 * but it occupies a core that another program may want, and a program that takes the core from it
 * stops the op. So workers spin while no other program wants the cores, which their processor time
 * shows, and sleep for a while otherwise. At the end of a fit, an evaluation or a prediction they
 * go to sleep at once; after a single step by themselves, some ten milliseconds later.
 */
#ifndef DUNLIN_KERNELS_THREADS_H
#define DUNLIN_KERNELS_THREADS_H

#include <pthread.h>
#include <pthreadpool.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define DUNLIN_THREADS_MOST 256

/* Owned by one caller, who alone hands out work; NULL stands for "serial" everywhere. */
typedef struct dunlin_threads {
    pthreadpool_t pool;
    bool has_clocks; /* processor time can be read for each thread; without it they never spin */
    bool spins;
    int64_t spin_after_ns;      /* by the monotonic clock: not before */
    int64_t sleep_ns;           /* how long they sleep when time is lost again */
    int64_t began_ns, began_at; /* this look: processor time of all until it, and when it began */
    pthread_t looker;           /* the caller then: time is that of one and the same */
    int64_t wall_ns, lost_ns;   /* of looks since the last judgement */
    int64_t left_at;            /* when the last work was done */
    size_t n_clocks;            /* of the workers; the caller may be another from call to call */
    clockid_t clocks[DUNLIN_THREADS_MOST];
} dunlin_threads;

/* Starts n threads, the caller among them, at most DUNLIN_THREADS_MOST. False: they could not be
 * started. */
bool dunlin__threads_open(dunlin_threads *threads, size_t n);
/* Nothing happens if they were never opened. */
void dunlin__threads_close(dunlin_threads *threads);
/* NULL: 1. */
size_t dunlin__threads_count(const dunlin_threads *threads);

/* fn(ctx, 0 .. n - 1), each once, on all threads; returns when all are done. */
void dunlin__threads_run(dunlin_threads *threads, pthreadpool_task_1d_t fn, void *ctx, size_t n);
/* Workers that spin go to sleep: there is no more work for a while. NULL: nothing. */
void dunlin__threads_rest(dunlin_threads *threads);

#endif
