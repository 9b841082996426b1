/*
 * turns.h - a weight gradient whose blocks of pixels are shared out: each block's part is made from
 * zero and added when its turn comes, so the sum is the one that a single thread makes.
 *
 * Whoever finds a part ready adds it. A worker waits for a slower one only when TURN_PARTS blocks
 * of its own have not had their turn.
 */
#ifndef DUNLIN_KERNELS_TURNS_H
#define DUNLIN_KERNELS_TURNS_H

#include "isa.h"

#include <stdatomic.h>

#define TURN_PARTS 2
#define TURN_TAKEN (TURN_PARTS + 1) /* blocks that a worker has at most, one not begun */
/* Larger gradients are shared out by element, where that is a choice. */
#define TURN_FLOATS (48 << 10)

typedef struct turns {
    float *dw, *db; /* db may be NULL */
    int64_t n_dw, n_db;
    bool is_reset; /* the first block's part is what is there, not added to it */
    int64_t n_blocks, n_workers;
    atomic_int_fast64_t next, turn;
    atomic_flag is_adding;
    _Atomic(const float *) ready[TURN_TAKEN * DUNLIN_THREADS_MOST]; /* by block, modulo */
} turns;

/* What a worker has on the way. */
typedef struct turn_parts {
    float *floats;              /* TURN_PARTS x turn_part_floats() */
    int64_t blocks[TURN_PARTS]; /* that each holds */
} turn_parts;

/* A block's part of dw, and of db behind it. */
static inline int64_t turn_part_floats(int64_t n_dw, int64_t n_db)
{
    return round_up(n_dw + n_db, 16);
}

/* dw, db, n_dw, n_db, is_reset, n_blocks and n_workers are set. */
void K(turns_open)(turns *t);

static inline turn_parts turn_parts_at(float *floats)
{
    return (turn_parts){.floats = floats, .blocks = {-1, -1}};
}

/* The next block, n_blocks or more at the end. A worker that begins one may have taken one more. */
static inline int64_t turns_take(turns *t)
{
    return atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
}

/* Room for the part of a block: dw, then n_dw floats on db. */
float *K(turns_part)(turns *t, turn_parts *parts, int64_t block);
/* It is made. */
void K(turns_give)(turns *t, int64_t block, const float *part);

#endif
