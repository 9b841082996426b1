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

#define TASK_BLOCK 16384     /* floats of an elementwise piece */
#define TASK_LEAST (1 << 16) /* below so many floats nothing is handed to other threads */

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

/* fn(ctx, 0 .. n_tasks - 1); `n_floats` is what they touch in all. */
static inline void run_tasks(dunlin_threads *threads, pthreadpool_task_1d_t fn, void *ctx,
                             int64_t n_tasks, int64_t n_floats)
{
    if (threads != NULL && n_tasks > 1 && n_floats >= TASK_LEAST) {
        dunlin__threads_run(threads, fn, ctx, (size_t)n_tasks);
        return;
    }
    for (int64_t i = 0; i < n_tasks; i++) {
        fn(ctx, (size_t)i);
    }
}

#endif
