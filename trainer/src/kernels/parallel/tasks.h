/*
 * tasks.h - work cut into fixed pieces and spread over the threads.
 *
 * Pieces never depend on the number of threads, or nothing of the result depends on the pieces.
 */
#ifndef DUNLIN_KERNELS_TASKS_H
#define DUNLIN_KERNELS_TASKS_H

#include "threads.h"

#include <stddef.h>
#include <stdint.h>

#define TASK_BLOCK 16384    /* floats of an elementwise piece, at most */
#define TASK_BLOCK_UNIT 256 /* and a multiple of this */
/* Below so many floats nothing is handed to other threads: to those that spin, which takes under a
 * microsecond, and to those that sleep. */
#define TASK_LEAST_SPIN (1 << 14)
#define TASK_LEAST_SLEEP (1 << 16)

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

static inline size_t task_threads(const dunlin_threads *threads)
{
    return dunlin__threads_count(threads);
}

/* Floats of an elementwise piece, of which all threads get some; where the cuts lie changes
 * nothing. */
static inline int64_t task_block(const dunlin_threads *threads, int64_t n)
{
    const int64_t part = round_up(ceil_div(n, 2 * (int64_t)task_threads(threads)), TASK_BLOCK_UNIT);
    return max_i64(TASK_BLOCK_UNIT, min_i64(TASK_BLOCK, part));
}

/* fn(ctx, 0 .. n_tasks - 1); `n_floats` is what they touch in all. */
static inline void run_tasks(dunlin_threads *threads, pthreadpool_task_1d_t fn, void *ctx,
                             int64_t n_tasks, int64_t n_floats)
{
    const bool is_enough =
        threads != NULL && n_floats >= (threads->spins ? TASK_LEAST_SPIN : TASK_LEAST_SLEEP);
    if (is_enough && n_tasks > 1) {
        dunlin__threads_run(threads, fn, ctx, (size_t)n_tasks);
        return;
    }
    for (int64_t i = 0; i < n_tasks; i++) {
        fn(ctx, (size_t)i);
    }
}

#endif
