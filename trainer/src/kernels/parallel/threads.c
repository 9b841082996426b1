/*
 * threads.c - the pool, and whether its workers spin or sleep between two ops.
 */
#include "threads.h"

#include "kernels/simd/denormals.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define LOOK_NS 10000000   /* between two looks, for each thread */
#define SLEEP_NS 100000000 /* workers sleep so long at first, then twice as long */
#define SLEEP_MOST 16000000000
#define CALM_NS 2000000000 /* without a loss: the next one is the first again */
#define APART_NS 2000000   /* between two works: the caller was elsewhere, which is no loss */
#define LOST_PART 4        /* of a core's time lost to others: they sleep */

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};
    return clock_gettime(clock, &now) == 0 ? (int64_t)now.tv_sec * 1000000000 + now.tv_nsec : -1;
}

/* --- processor time --- */

/* Each worker writes the id of its clock: a task waits until all tasks have begun. */
typedef struct clock_round {
    dunlin_threads *threads;
    pthread_t caller;
    size_t n;
    atomic_size_t n_begun, n_clocks;
} clock_round;

static void find_clock(void *ctx, size_t index)
{
    clock_round *round = ctx;
    (void)index;
#if defined(_POSIX_THREAD_CPUTIME) && _POSIX_THREAD_CPUTIME >= 0
    clockid_t clock;
    if (!pthread_equal(pthread_self(), round->caller) &&
        pthread_getcpuclockid(pthread_self(), &clock) == 0 && clock_ns(clock) >= 0) {
        round->threads->clocks[atomic_fetch_add(&round->n_clocks, 1)] = clock;
    }
#endif
    atomic_fetch_add(&round->n_begun, 1);
    while (atomic_load(&round->n_begun) < round->n) {
        (void)sched_yield();
    }
}

/* Of the workers and the caller. */
static int64_t used_ns(const dunlin_threads *threads)
{
    int64_t sum = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < threads->n_clocks; i++) {
        sum += clock_ns(threads->clocks[i]);
    }
    return sum;
}

/* --- to spin or to sleep --- */

static void begin_look(dunlin_threads *threads)
{
    threads->looker = pthread_self();
    threads->began_at = clock_ns(CLOCK_MONOTONIC);
    threads->began_ns = used_ns(threads);
}

/* Threads that spin use all of their cores' time; what they did not is lost to others. */
static void end_look(dunlin_threads *threads, int64_t now)
{
    const int64_t n = (int64_t)pthreadpool_get_threads_count(threads->pool);
    const int64_t wall = now - threads->began_at;
    if (!pthread_equal(threads->looker, pthread_self())) {
        return;
    }
    threads->wall_ns += wall;
    threads->lost_ns += n * wall - (used_ns(threads) - threads->began_ns);
    if (threads->wall_ns < n * LOOK_NS) {
        return;
    }
    if (threads->lost_ns >= threads->wall_ns / LOST_PART) {
        threads->spins = false;
        threads->spin_after_ns = now + threads->sleep_ns;
        threads->sleep_ns = threads->sleep_ns < SLEEP_MOST ? 2 * threads->sleep_ns : SLEEP_MOST;
    } else if (now - threads->spin_after_ns > CALM_NS) {
        threads->sleep_ns = SLEEP_NS;
    }
    threads->wall_ns = 0;
    threads->lost_ns = 0;
}

static void look(dunlin_threads *threads, int64_t now)
{
    if (now - threads->left_at > APART_NS) {
        begin_look(threads);
        return;
    }
    const int64_t n = (int64_t)pthreadpool_get_threads_count(threads->pool);
    if (threads->wall_ns + now - threads->began_at >= n * LOOK_NS) {
        end_look(threads, now);
        begin_look(threads);
    }
}

/* --- the pool --- */

bool dunlin__threads_open(dunlin_threads *threads, size_t n)
{
    *threads = (dunlin_threads){.pool = pthreadpool_create(n), .sleep_ns = SLEEP_NS};
    if (threads->pool == NULL) {
        return false;
    }
    clock_round round = {.threads = threads, .caller = pthread_self(), .n = n};
    pthreadpool_parallelize_1d(threads->pool, find_clock, &round, n,
                               PTHREADPOOL_FLAG_YIELD_WORKERS);
    threads->n_clocks = atomic_load(&round.n_clocks);
    threads->has_clocks = threads->n_clocks == n - 1;
    return true;
}

void dunlin__threads_close(dunlin_threads *threads)
{
    pthreadpool_destroy(threads->pool);
    threads->pool = NULL;
}

size_t dunlin__threads_count(const dunlin_threads *threads)
{
    return threads == NULL ? 1 : pthreadpool_get_threads_count(threads->pool);
}

/* Distributions build pthreadpool for 32-bit x86 without SSE, and so without the mode that its flag
 * asks for: each task sets it there. */
#if defined(__i386__)
#define POOL_KNOWS_MODE false
#else
#define POOL_KNOWS_MODE true
#endif

typedef struct flushed_work {
    pthreadpool_task_1d_t fn;
    void *ctx;
} flushed_work;

static void flushed_task(void *ctx, size_t index)
{
    const flushed_work *work = ctx;
    const uint64_t mode = subnormals_flush();
    work->fn(work->ctx, index);
    float_mode_set(mode);
}

void dunlin__threads_run(dunlin_threads *threads, pthreadpool_task_1d_t fn, void *ctx, size_t n)
{
    bool begins = false;
    if (threads->has_clocks) {
        const int64_t now = clock_ns(CLOCK_MONOTONIC);
        begins = !threads->spins && now >= threads->spin_after_ns;
        if (threads->spins) {
            look(threads, now);
        }
    }
    threads->spins = threads->spins || begins;
    const bool is_flushed = subnormals_are_flushed();
    const uint32_t mode = is_flushed ? PTHREADPOOL_FLAG_DISABLE_DENORMALS : 0;
    const uint32_t wait = threads->spins ? 0 : PTHREADPOOL_FLAG_YIELD_WORKERS;
    if (is_flushed && !POOL_KNOWS_MODE) {
        flushed_work work = {.fn = fn, .ctx = ctx};
        pthreadpool_parallelize_1d(threads->pool, flushed_task, &work, n, wait);
    } else {
        pthreadpool_parallelize_1d(threads->pool, fn, ctx, n, mode | wait);
    }
    if (begins) {
        begin_look(threads); /* they are awake now */
    }
    threads->left_at = threads->has_clocks ? clock_ns(CLOCK_MONOTONIC) : 0;
}

static void do_nothing(void *ctx, size_t index)
{
    (void)ctx;
    (void)index;
}

void dunlin__threads_rest(dunlin_threads *threads)
{
    if (threads == NULL || !threads->spins) {
        return;
    }
    end_look(threads, clock_ns(CLOCK_MONOTONIC));
    threads->spins = false;
    pthreadpool_parallelize_1d(threads->pool, do_nothing, NULL,
                               pthreadpool_get_threads_count(threads->pool),
                               PTHREADPOOL_FLAG_YIELD_WORKERS);
}
