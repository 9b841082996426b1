/*
 * ranks.h - the processes that share a run: one, or as many as mpirun has started.
 *
 * Every rank has the task, the data, the base and the rows of closed rounds; clients are trained by
 * the rank that takes them from the round's queue. All calls but ranks_next() come from one thread
 * of each rank, in the same order on all of them. A rank that ends ends the others (MPI_Abort).
 */
#ifndef SAMPLES_MEMORY_RANKS_H
#define SAMPLES_MEMORY_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ranks ranks;

/* One of them without MPI, or without mpirun. NULL: no memory, or MPI does not start. */
ranks *ranks_open(void);
/* With a failure of this rank the others end as well. NULL is fine. */
void ranks_close(ranks *all, bool has_failed);

int32_t ranks_count(const ranks *all);
int32_t ranks_index(const ranks *all);
/* Those whose index is 0 speak to people and write files. */
bool ranks_is_first(const ranks *all);
/* Ends all of them at once, with this exit status. */
void ranks_abort(const ranks *all, int exit_status);

/* A new queue of `n` places; each place is given out once, to any thread of any rank: 0, 1 ...; n
 * and more: there is none left. */
void ranks_queue(ranks *all, int64_t n);
int64_t ranks_next(ranks *all);

/* Everybody's sums of counts. */
void ranks_sum(ranks *all, int64_t *values, size_t n);
/* The highest of all. */
int64_t ranks_highest(ranks *all, int64_t value);
/* What rank 0 has, on all of them. */
void ranks_share(ranks *all, void *bytes, size_t n);
/* The pieces of all ranks, one after the other, in `out`, which has room for them; how many bytes
 * that are. */
size_t ranks_gather(ranks *all, const void *own, size_t n_own, void *out, size_t room);

#endif
