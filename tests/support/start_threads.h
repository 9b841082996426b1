/*
 * start_threads.h - threads for kernels that are called directly.
 */
#ifndef TESTS_SUPPORT_START_THREADS_H
#define TESTS_SUPPORT_START_THREADS_H

#include "kernels/parallel/threads.h"

#include <stdlib.h>

/* NULL, which is "serial", if they cannot be started. */
static inline dunlin_threads *start_threads(size_t n)
{
    dunlin_threads *threads = malloc(sizeof *threads);
    if (threads != NULL && !dunlin__threads_open(threads, n)) {
        free(threads);
        return NULL;
    }
    return threads;
}

static inline void stop_threads(dunlin_threads *threads)
{
    if (threads != NULL) {
        dunlin__threads_close(threads);
    }
    free(threads);
}

#endif
