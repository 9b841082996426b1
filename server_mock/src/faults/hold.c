/*
 * hold.c - one thread that resumes suspended connections.
 *
 * Invariant: a connection is in the list exactly while it is suspended; both change under the lock.
 */
#include "hold.h"

#include <mem/support.h>

#include <microhttpd.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct held {
    struct MHD_Connection *connection;
    int64_t due_ms;
    bool is_until_answer;
} held;

struct dunlin__holds {
    dunlin_alloc alloc;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread;
    bool is_ending;
    held *list;
    size_t n;
    size_t capacity;
};

static int64_t now_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void release(dunlin__holds *holds, size_t index)
{
    struct MHD_Connection *connection = holds->list[index].connection;
    holds->n--;
    holds->list[index] = holds->list[holds->n];
    MHD_resume_connection(connection);
}

/* Resumes those whose time has come; the time of the next, or INT64_MAX. */
static int64_t release_due(dunlin__holds *holds)
{
    int64_t now = now_ms();
    int64_t next = INT64_MAX;
    for (size_t i = holds->n; i-- > 0;) {
        if (holds->list[i].due_ms <= now) {
            release(holds, i);
        } else if (holds->list[i].due_ms < next) {
            next = holds->list[i].due_ms;
        }
    }
    return next;
}

static void *run(void *ctx)
{
    dunlin__holds *holds = ctx;
    (void)pthread_mutex_lock(&holds->lock);
    while (!holds->is_ending) {
        int64_t next = release_due(holds);
        if (next == INT64_MAX) {
            (void)pthread_cond_wait(&holds->changed, &holds->lock);
        } else {
            struct timespec until = {.tv_sec = (time_t)(next / 1000),
                                     .tv_nsec = (long)(next % 1000) * 1000000L};
            (void)pthread_cond_timedwait(&holds->changed, &holds->lock, &until);
        }
    }
    (void)pthread_mutex_unlock(&holds->lock);
    return NULL;
}

dunlin_status dunlin__holds_start(const dunlin_alloc *alloc, dunlin__holds **out_holds,
                                  dunlin_error *error)
{
    *out_holds = NULL;
    dunlin__holds *holds = dunlin__alloc_zeroed(alloc, 1, sizeof *holds);
    if (holds == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "http", 0, "%zu bytes", sizeof *holds);
    }
    holds->alloc = *alloc;
    pthread_condattr_t by_uptime;
    (void)pthread_condattr_init(&by_uptime);
    (void)pthread_condattr_setclock(&by_uptime, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&holds->lock, NULL);
    (void)pthread_cond_init(&holds->changed, &by_uptime);
    (void)pthread_condattr_destroy(&by_uptime);
    int code = pthread_create(&holds->thread, NULL, run, holds);
    holds->has_thread = code == 0;
    if (!holds->has_thread) {
        dunlin__holds_free(holds);
        return dunlin__fail(error, DUNLIN_MEMORY, "http", code,
                            "the thread that holds replies cannot be started: %s", strerror(code));
    }
    *out_holds = holds;
    return DUNLIN_OK;
}

bool dunlin__hold(dunlin__holds *holds, struct MHD_Connection *connection, int64_t ms,
                  bool is_until_answer)
{
    (void)pthread_mutex_lock(&holds->lock);
    void *list = holds->list;
    bool is_held = !holds->is_ending && dunlin__grow_array(&holds->alloc, &list, &holds->capacity,
                                                           holds->n + 1, sizeof *holds->list);
    holds->list = list;
    if (is_held) {
        holds->list[holds->n] = (held){connection, now_ms() + ms, is_until_answer};
        holds->n++;
        MHD_suspend_connection(connection);
        (void)pthread_cond_signal(&holds->changed);
    }
    (void)pthread_mutex_unlock(&holds->lock);
    return is_held;
}

void dunlin__holds_answered(dunlin__holds *holds)
{
    (void)pthread_mutex_lock(&holds->lock);
    for (size_t i = holds->n; i-- > 0;) {
        if (holds->list[i].is_until_answer) {
            release(holds, i);
        }
    }
    (void)pthread_mutex_unlock(&holds->lock);
}

void dunlin__holds_end_all(dunlin__holds *holds)
{
    if (holds == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&holds->lock);
    holds->is_ending = true;
    while (holds->n > 0) {
        release(holds, holds->n - 1);
    }
    (void)pthread_cond_signal(&holds->changed);
    (void)pthread_mutex_unlock(&holds->lock);
    if (holds->has_thread) {
        (void)pthread_join(holds->thread, NULL);
        holds->has_thread = false;
    }
}

void dunlin__holds_free(dunlin__holds *holds)
{
    if (holds == NULL) {
        return;
    }
    (void)pthread_cond_destroy(&holds->changed);
    (void)pthread_mutex_destroy(&holds->lock);
    dunlin_alloc alloc = holds->alloc;
    dunlin__free_array(&alloc, holds->list, holds->capacity, sizeof *holds->list);
    dunlin__free_array(&alloc, holds, 1, sizeof *holds);
}
