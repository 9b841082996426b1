/*
 * ordered_sum.h - an ordered reduction of a weight gradient whose blocks of pixels are divided
 * among threads: each block's part is summed from zero and added in order, so the sum is the one
 * that a single thread computes.
 *
 * Blocks are taken in runs, whose parts are added in one pass. Whoever finds a run ready adds it. A
 * worker waits for a slower one only when TURN_PARTS runs of its own have not been added.
 */
#ifndef DUNLIN_KERNELS_ORDERED_SUM_H
#define DUNLIN_KERNELS_ORDERED_SUM_H

#include "gemm.h"

#include <stdatomic.h>

#define TURN_PARTS 2                /* runs that a worker has room for */
#define TURN_TAKEN (TURN_PARTS + 1) /* that it has at most, one not begun */
#define TURN_RUN_FLOATS (16 << 10)  /* of a run's parts, unless it is one block */
#define TURN_RUN_MOST 8             /* blocks */
#define TURN_RUNS_LEAST 4           /* of each worker, so that all end together */
/* Larger gradients are shared out by element, where that is a choice. */
#define TURN_FLOATS (48 << 10)

typedef struct ordered {
    float *dw, *db; /* db may be NULL */
    int64_t n_dw, n_db;
    bool is_reset; /* the first block's part is what is there, not added to it */
    int64_t n_blocks, n_workers;
    int64_t run, n_runs; /* blocks of a run */
    atomic_int_fast64_t next, turn;
    atomic_flag is_adding;
    _Atomic(const float *) ready[TURN_TAKEN * DUNLIN_THREADS_MOST]; /* by run, modulo */
} ordered;

/* What a worker is at, and has on the way. */
typedef struct order_worker {
    float *floats;            /* order_room_floats() */
    int64_t runs[TURN_PARTS]; /* that each buffer holds */
    int64_t run, next_run;    /* the current one, -1: none; and the one taken beside it */
    float *parts;             /* of the current run */
    int64_t block, next;      /* the current one; the one after it, n_blocks or more: none */
    float *dw, *db;           /* the block's part; db only where it is wanted */
} order_worker;

/* A block's part of dw, followed by that of db. */
static inline int64_t order_part_floats(int64_t n_dw, int64_t n_db)
{
    return round_up(n_dw + n_db, 16);
}

/* Blocks of a run, at most. */
static inline int64_t order_run_most(int64_t n_dw, int64_t n_db)
{
    return max_i64(1, min_i64(TURN_RUN_MOST, TURN_RUN_FLOATS / order_part_floats(n_dw, n_db)));
}

/* Of a worker. */
static inline int64_t order_room_floats(int64_t n_dw, int64_t n_db)
{
    return TURN_PARTS * order_run_most(n_dw, n_db) * order_part_floats(n_dw, n_db);
}

/* dw, db, n_dw, n_db, is_reset, n_blocks and n_workers are set. */
void K(ordered_open)(ordered *t);

order_worker K(ordered_begin)(ordered *t, float *floats);
/* The next block: its part is to be made from zero before the next call, which gives it away. False
 * at the end. */
bool K(ordered_next)(ordered *t, order_worker *w);

#endif
