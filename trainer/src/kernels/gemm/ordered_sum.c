/*
 * ordered_sum.c - an ordered reduction: parts of a weight gradient are computed in any order and
 * added in the order of the blocks.
 *
 * Invariant: of the runs from the next one to be added on, which are taken in order, a worker has
 * at most TURN_TAKEN, so no two of them share a buffer; it computes them in order, so the next one
 * to be added never waits for a buffer.
 */
#include "ordered_sum.h"

#include <sched.h>

void K(ordered_open)(ordered *t)
{
    const int64_t even = t->n_blocks / (TURN_RUNS_LEAST * max_i64(1, t->n_workers));
    t->run = max_i64(1, min_i64(order_run_most(t->n_dw, t->n_db), even));
    t->n_runs = ceil_div(t->n_blocks, t->run);
    atomic_init(&t->next, 0);
    atomic_init(&t->turn, 0);
    atomic_flag_clear(&t->is_adding);
    for (int64_t i = 0; i < TURN_TAKEN * t->n_workers; i++) {
        atomic_init(&t->ready[i], NULL);
    }
}

/* Parts `pitch` floats apart, one after the other. */
static void add_floats(float *to, const float *from, int64_t n, int64_t n_parts, int64_t pitch,
                       bool is_first)
{
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        vfloat v = vload_n(from + i, left);
        v = is_first ? v : vload_n(to + i, left) + v;
        for (int64_t k = 1; k < n_parts; k++) {
            v += vload_n(from + k * pitch + i, left);
        }
        vstore_n(to + i, v, left);
    }
}

static void add_run(const ordered *t, int64_t run, const float *parts)
{
    const bool is_first = run == 0 && t->is_reset;
    const int64_t n_parts = min_i64(t->run, t->n_blocks - run * t->run);
    const int64_t pitch = order_part_floats(t->n_dw, t->n_db);
    if (t->dw != NULL) {
        add_floats(t->dw, parts, t->n_dw, n_parts, pitch, is_first);
    }
    if (t->db != NULL) {
        add_floats(t->db, parts + t->n_dw, t->n_db, n_parts, pitch, is_first);
    }
}

static _Atomic(const float *) *ready_at(ordered *t, int64_t run)
{
    return &t->ready[run % (TURN_TAKEN * t->n_workers)];
}

/* Adds the runs whose turn it is, unless another worker is at it. One that gets ready while that
 * one leaves off is seen by who made it: it looks again. */
static void add_ready(ordered *t)
{
    int64_t turn = atomic_load(&t->turn);
    while (atomic_load(ready_at(t, turn)) != NULL && !atomic_flag_test_and_set(&t->is_adding)) {
        turn = atomic_load(&t->turn);
        const float *parts = atomic_load(ready_at(t, turn));
        if (parts != NULL) {
            add_run(t, turn, parts);
            atomic_store(ready_at(t, turn), NULL);
            atomic_store(&t->turn, ++turn);
        }
        atomic_flag_clear(&t->is_adding);
    }
}

/* Room for the parts of the worker's run. */
static float *room_for(ordered *t, order_worker *w)
{
    const int64_t floats = order_room_floats(t->n_dw, t->n_db) / TURN_PARTS;
    for (;;) {
        const int64_t turn = atomic_load(&t->turn);
        for (int64_t i = 0; i < TURN_PARTS; i++) {
            if (w->runs[i] < turn) {
                w->runs[i] = w->run;
                return w->floats + i * floats;
            }
        }
        add_ready(t);
        (void)sched_yield();
    }
}

static int64_t take(ordered *t)
{
    return atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
}

order_worker K(ordered_begin)(ordered *t, float *floats)
{
    return (order_worker){.floats = floats, .runs = {-1, -1}, .run = -1, .next_run = take(t)};
}

static int64_t end_of(const ordered *t, int64_t run)
{
    return min_i64(t->n_blocks, (run + 1) * t->run);
}

bool K(ordered_next)(ordered *t, order_worker *w)
{
    if (w->run >= 0 && ++w->block == end_of(t, w->run)) {
        atomic_store(ready_at(t, w->run), w->parts);
        add_ready(t);
        w->run = -1;
    }
    if (w->run < 0) {
        if (w->next_run >= t->n_runs) {
            return false;
        }
        w->run = w->next_run;
        w->next_run = take(t);
        w->parts = room_for(t, w);
        w->block = w->run * t->run;
    }
    w->next = w->block + 1 < end_of(t, w->run) ? w->block + 1 : w->next_run * t->run;
    w->dw = w->parts + (w->block - w->run * t->run) * order_part_floats(t->n_dw, t->n_db);
    w->db = t->db == NULL ? NULL : w->dw + t->n_dw;
    return true;
}
