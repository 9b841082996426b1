/*
 * ranks_one.c - a run of one process, for builds without MPI.
 */
#include "ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ranks {
    atomic_llong next;
};

ranks *ranks_open(void)
{
    return calloc(1, sizeof(ranks));
}

void ranks_close(ranks *all, bool has_failed)
{
    (void)has_failed;
    free(all);
}

int32_t ranks_count(const ranks *all)
{
    (void)all;
    return 1;
}

int32_t ranks_index(const ranks *all)
{
    (void)all;
    return 0;
}

bool ranks_is_first(const ranks *all)
{
    (void)all;
    return true;
}

void ranks_abort(const ranks *all, int exit_status)
{
    (void)all;
    _Exit(exit_status);
}

void ranks_queue(ranks *all, int64_t n)
{
    (void)n;
    atomic_store(&all->next, 0);
}

int64_t ranks_next(ranks *all)
{
    return (int64_t)atomic_fetch_add(&all->next, 1);
}

void ranks_sum(ranks *all, int64_t *values, size_t n)
{
    (void)all;
    (void)values;
    (void)n;
}

int64_t ranks_highest(ranks *all, int64_t value)
{
    (void)all;
    return value;
}

void ranks_share(ranks *all, void *bytes, size_t n)
{
    (void)all;
    (void)bytes;
    (void)n;
}

size_t ranks_gather(ranks *all, const void *own, size_t n_own, void *out, size_t room)
{
    (void)all;
    const size_t n = n_own < room ? n_own : room;
    if (n > 0) {
        memcpy(out, own, n);
    }
    return n;
}
