/*
 * ranks_mpi.c - the processes of mpirun, or of srun.
 *
 * The queue of a round is a counter at rank 0 that others raise by themselves (one-sided
 * communication), so nobody waits for a master. Without a launcher there is one process, and MPI is
 * not started.
 */
#include "ranks.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((size_t)1 << 26) /* elements of one message */

struct ranks {
    bool is_joined; /* else there is one process, with its own counter */
    int n;
    int index;
    MPI_Win window;
    int64_t *counter; /* of the window; at rank 0 */
    pthread_mutex_t lock;
    atomic_llong next;
};

/* What launchers leave for those that they start. */
static bool has_launcher(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                                        "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (getenv(names[i]) != NULL) { /* before any thread */
            return true;
        }
    }
    return false;
}

static bool join(ranks *all)
{
    int level = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS ||
        level < MPI_THREAD_SERIALIZED) {
        return false;
    }
    (void)MPI_Comm_size(MPI_COMM_WORLD, &all->n);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &all->index);
    const MPI_Aint n_bytes = all->index == 0 ? (MPI_Aint)sizeof(int64_t) : 0;
    if (MPI_Win_allocate(n_bytes, (int)sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD,
                         (void *)&all->counter, &all->window) != MPI_SUCCESS) {
        return false;
    }
    (void)MPI_Win_lock_all(MPI_MODE_NOCHECK, all->window);
    all->is_joined = true;
    return true;
}

ranks *ranks_open(void)
{
    ranks *all = calloc(1, sizeof *all);
    if (all == NULL) {
        return NULL;
    }
    all->n = 1;
    (void)pthread_mutex_init(&all->lock, NULL);
    if (has_launcher() && !join(all)) {
        free(all);
        return NULL;
    }
    return all;
}

void ranks_close(ranks *all, bool has_failed)
{
    if (all == NULL) {
        return;
    }
    if (all->is_joined && has_failed) {
        ranks_abort(all, EXIT_FAILURE);
    }
    if (all->is_joined) {
        (void)MPI_Win_unlock_all(all->window);
        (void)MPI_Win_free(&all->window);
        (void)MPI_Finalize();
    }
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
}

int32_t ranks_count(const ranks *all)
{
    return all->n;
}

int32_t ranks_index(const ranks *all)
{
    return all->index;
}

bool ranks_is_first(const ranks *all)
{
    return all->index == 0;
}

void ranks_abort(const ranks *all, int exit_status)
{
    if (all->is_joined) {
        (void)MPI_Abort(MPI_COMM_WORLD, exit_status);
    }
    _Exit(exit_status);
}

/* What was in rank 0's counter before. */
static int64_t change_counter(ranks *all, int64_t value, MPI_Op how)
{
    int64_t before = 0;
    (void)MPI_Fetch_and_op(&value, &before, MPI_INT64_T, 0, 0, how, all->window);
    (void)MPI_Win_flush(0, all->window);
    return before;
}

void ranks_queue(ranks *all, int64_t n)
{
    (void)n;
    atomic_store(&all->next, 0);
    if (!all->is_joined) {
        return;
    }
    (void)MPI_Barrier(MPI_COMM_WORLD); /* nobody takes from the queue of before any more */
    if (all->index == 0) {
        (void)change_counter(all, 0, MPI_REPLACE);
    }
    (void)MPI_Barrier(MPI_COMM_WORLD);
}

int64_t ranks_next(ranks *all)
{
    if (!all->is_joined) {
        return (int64_t)atomic_fetch_add(&all->next, 1);
    }
    (void)pthread_mutex_lock(&all->lock);
    const int64_t place = change_counter(all, 1, MPI_SUM);
    (void)pthread_mutex_unlock(&all->lock);
    return place;
}

void ranks_sum(ranks *all, int64_t *values, size_t n)
{
    for (size_t done = 0; all->is_joined && done < n; done += PIECE) {
        const size_t n_now = n - done < PIECE ? n - done : PIECE;
        (void)MPI_Allreduce(MPI_IN_PLACE, values + done, (int)n_now, MPI_INT64_T, MPI_SUM,
                            MPI_COMM_WORLD);
    }
}

int64_t ranks_highest(ranks *all, int64_t value)
{
    int64_t highest = value;
    if (all->is_joined) {
        (void)MPI_Allreduce(&value, &highest, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    }
    return highest;
}

void ranks_share(ranks *all, void *bytes, size_t n)
{
    for (size_t done = 0; all->is_joined && done < n; done += PIECE) {
        const size_t n_now = n - done < PIECE ? n - done : PIECE;
        (void)MPI_Bcast((char *)bytes + done, (int)n_now, MPI_BYTE, 0, MPI_COMM_WORLD);
    }
}

/* Where each rank's piece begins; false where they do not fit. */
static bool place_pieces(const ranks *all, const int *counts, int *out_places, size_t room)
{
    size_t sum = 0;
    for (int i = 0; i < all->n; i++) {
        out_places[i] = (int)sum;
        sum += (size_t)counts[i];
    }
    out_places[all->n] = (int)sum;
    return sum <= room;
}

size_t ranks_gather(ranks *all, const void *own, size_t n_own, void *out, size_t room)
{
    if (!all->is_joined) {
        const size_t n = n_own < room ? n_own : room;
        memcpy(out, own, n);
        return n;
    }
    int *counts = calloc(2 * (size_t)all->n + 1, sizeof *counts);
    if (counts == NULL) {
        ranks_abort(all, EXIT_FAILURE);
        return 0;
    }
    int *places = counts + all->n;
    const int n = (int)n_own;
    (void)MPI_Allgather(&n, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
    if (!place_pieces(all, counts, places, room)) {
        ranks_abort(all, EXIT_FAILURE);
    }
    (void)MPI_Allgatherv(own, n, MPI_BYTE, out, counts, places, MPI_BYTE, MPI_COMM_WORLD);
    const size_t n_gathered = (size_t)places[all->n];
    free(counts);
    return n_gathered;
}
