/*
 * test_threads.c - work on threads: each task runs once, and workers sleep where other programs
 * take their cores.
 */
#include "kernels/parallel/threads.h"

#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

TestSuite(threads, .timeout = 900); /* that of the other suites: else Criterion leaks one of them */

#define N_TASKS 1000

static void count_task(void *ctx, size_t index)
{
    atomic_int *counts = ctx;
    atomic_fetch_add(&counts[index], 1);
}

Test(threads, each_task_runs_once)
{
    for (size_t n = 1; n <= 5; n++) {
        static atomic_int counts[N_TASKS];
        dunlin_threads threads;
        cr_assert(dunlin__threads_open(&threads, n));
        cr_assert_eq(dunlin__threads_count(&threads), n);
        for (int round = 0; round < 20; round++) {
            for (int i = 0; i < N_TASKS; i++) {
                atomic_store(&counts[i], 0);
            }
            dunlin__threads_run(&threads, count_task, counts, N_TASKS);
            for (int i = 0; i < N_TASKS; i++) {
                cr_assert_eq(atomic_load(&counts[i]), 1, "task %d of round %d", i, round);
            }
            if (round % 7 == 0) {
                dunlin__threads_rest(&threads);
            }
        }
        dunlin__threads_close(&threads);
    }
}

Test(threads, none_is_one)
{
    dunlin_threads never = {.pool = NULL};
    cr_assert_eq(dunlin__threads_count(NULL), 1);
    dunlin__threads_rest(NULL);
    dunlin__threads_close(&never);
}

static void sleep_task(void *ctx, size_t index)
{
    (void)ctx;
    (void)index;
    const struct timespec time = {.tv_nsec = 60000000};
    (void)nanosleep(&time, NULL);
}

/* Threads that do not get their cores' time are the same to look at as threads that sleep. */
Test(threads, workers_sleep_where_time_is_lost)
{
    atomic_int counts[2] = {0, 0};
    dunlin_threads threads;
    cr_assert(dunlin__threads_open(&threads, 2));
    dunlin__threads_run(&threads, count_task, counts, 2);
    cr_assert_eq(threads.spins, threads.has_clocks);
    dunlin__threads_run(&threads, sleep_task, NULL, 2);
    dunlin__threads_run(&threads, count_task, counts, 2);
    cr_assert_not(threads.spins, "two threads used no time for 60 ms");
    const int64_t first = threads.sleep_ns;
    sleep_task(NULL, 0);
    sleep_task(NULL, 0);
    dunlin__threads_run(&threads, count_task, counts, 2);
    cr_assert_eq(threads.spins, threads.has_clocks, "120 ms later they try again");
    dunlin__threads_run(&threads, sleep_task, NULL, 2);
    dunlin__threads_run(&threads, count_task, counts, 2);
    cr_assert_not(threads.spins);
    cr_assert(!threads.has_clocks || threads.sleep_ns > first, "and wait longer");
    dunlin__threads_close(&threads);
}

Test(threads, resting_ends_spinning)
{
    atomic_int counts[2] = {0, 0};
    dunlin_threads threads;
    cr_assert(dunlin__threads_open(&threads, 2));
    dunlin__threads_run(&threads, count_task, counts, 2);
    dunlin__threads_rest(&threads);
    cr_assert_not(threads.spins);
    const bool was_disturbed = threads.spin_after_ns > 0; /* by another process, just here */
    dunlin__threads_run(&threads, count_task, counts, 2);
    cr_assert(was_disturbed || threads.spins == threads.has_clocks, "a rest is no loss");
    cr_assert_eq(atomic_load(&counts[0]), 2);
    dunlin__threads_close(&threads);
}

static void *work_elsewhere(void *ctx)
{
    atomic_int counts[2] = {0, 0};
    dunlin__threads_run(ctx, count_task, counts, 2);
    return NULL;
}

/* A look that one thread began, a second ago, tells nothing of the time of another. */
Test(threads, the_caller_may_be_another)
{
    atomic_int counts[2] = {0, 0};
    dunlin_threads threads;
    cr_assert(dunlin__threads_open(&threads, 2));
    dunlin__threads_run(&threads, count_task, counts, 2);
    threads.began_at -= 1000000000;
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, work_elsewhere, &threads), 0);
    cr_assert_eq(pthread_join(other, NULL), 0);
    cr_assert_eq(threads.spins, threads.has_clocks);
    cr_assert(!threads.has_clocks || !pthread_equal(threads.looker, pthread_self()));
    dunlin__threads_close(&threads);
}

Test(threads, time_between_calls_is_no_loss)
{
    atomic_int counts[2] = {0, 0};
    dunlin_threads threads;
    cr_assert(dunlin__threads_open(&threads, 2));
    dunlin__threads_run(&threads, count_task, counts, 2);
    const int64_t before = threads.lost_ns;
    sleep_task(NULL, 0);
    dunlin__threads_run(&threads, count_task, counts, 2);
    cr_assert_eq(threads.lost_ns, before);
    cr_assert_eq(threads.spins, threads.has_clocks);
    dunlin__threads_close(&threads);
}
