/*
 * turns.c - parts of a weight gradient, made in any order and added in that of the blocks.
 *
 * Invariant: of the blocks from the turn on, which are taken in order, a worker has at most
 * TURN_TAKEN, so no two of them share a place; it makes them in order, so the one whose turn it is
 * never waits for room.
 */
#include "turns.h"

#include <sched.h>

void K(turns_open)(turns *t)
{
    atomic_init(&t->next, 0);
    atomic_init(&t->turn, 0);
    atomic_flag_clear(&t->is_adding);
    for (int64_t i = 0; i < TURN_TAKEN * t->n_workers; i++) {
        atomic_init(&t->ready[i], NULL);
    }
}

static void add_floats(float *to, const float *from, int64_t n, bool is_first)
{
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat v = vload_n(from + i, left);
        vstore_n(to + i, is_first ? v : vload_n(to + i, left) + v, left);
    }
}

static void add_part(const turns *t, int64_t block, const float *part)
{
    const bool is_first = block == 0 && t->is_reset;
    if (t->dw != NULL) {
        add_floats(t->dw, part, t->n_dw, is_first);
    }
    if (t->db != NULL) {
        add_floats(t->db, part + t->n_dw, t->n_db, is_first);
    }
}

static _Atomic(const float *) *ready_at(turns *t, int64_t block)
{
    return &t->ready[block % (TURN_TAKEN * t->n_workers)];
}

/* Adds the parts whose turn it is, unless another worker is at it. One that gets ready while that
 * one leaves off is seen by who made it: it looks again. */
static void add_ready(turns *t)
{
    int64_t turn = atomic_load(&t->turn);
    while (atomic_load(ready_at(t, turn)) != NULL && !atomic_flag_test_and_set(&t->is_adding)) {
        turn = atomic_load(&t->turn);
        const float *part = atomic_load(ready_at(t, turn));
        if (part != NULL) {
            add_part(t, turn, part);
            atomic_store(ready_at(t, turn), NULL);
            atomic_store(&t->turn, ++turn);
        }
        atomic_flag_clear(&t->is_adding);
    }
}

float *K(turns_part)(turns *t, turn_parts *parts, int64_t block)
{
    for (;;) {
        const int64_t turn = atomic_load(&t->turn);
        for (int64_t i = 0; i < TURN_PARTS; i++) {
            if (parts->blocks[i] < turn) {
                parts->blocks[i] = block;
                return parts->floats + i * turn_part_floats(t->n_dw, t->n_db);
            }
        }
        add_ready(t);
        (void)sched_yield();
    }
}

void K(turns_give)(turns *t, int64_t block, const float *part)
{
    atomic_store(ready_at(t, block), part);
    add_ready(t);
}
