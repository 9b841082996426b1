/*
 * ranges.h - units of work, in the order of the samples, in equal runs: one for each worker, which
 * takes from the others' runs when its own is done.
 *
 * So in one operation after the other a worker gets about the same samples, and finds what it reads
 * in its own caches: what another core has just written takes about twice as long. Who gets a unit
 * changes no bit of it.
 */
#ifndef DUNLIN_KERNELS_RANGES_H
#define DUNLIN_KERNELS_RANGES_H

#include "tasks.h"

#include <stdatomic.h>

#define SHARES_MOST 16
#define SHARE_BYTES 64 /* a cache's line: who takes from its own does not disturb others */

typedef struct shares {
    int64_t n_units, n_shares;
    struct {
        _Alignas(SHARE_BYTES) atomic_int_fast64_t taken;
    } of[SHARES_MOST];
} shares;

static inline void shares_open(shares *s, int64_t n_units, int64_t n_workers)
{
    s->n_units = n_units;
    s->n_shares = max_i64(1, min_i64(min_i64(n_workers, n_units), SHARES_MOST));
    for (int64_t i = 0; i < s->n_shares; i++) {
        atomic_init(&s->of[i].taken, 0);
    }
}

/* A unit for the worker in this slot; n_units: all are taken. */
static inline int64_t shares_take(shares *s, int64_t slot)
{
    for (int64_t i = 0; i < s->n_shares; i++) {
        const int64_t share = (slot + i) % s->n_shares;
        const int64_t first = share * s->n_units / s->n_shares;
        const int64_t end = (share + 1) * s->n_units / s->n_shares;
        const int64_t unit =
            first + atomic_fetch_add_explicit(&s->of[share].taken, 1, memory_order_relaxed);
        if (unit < end) {
            return unit;
        }
    }
    return s->n_units;
}

#endif
