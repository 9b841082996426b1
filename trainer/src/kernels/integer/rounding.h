/*
 * rounding.h - from sums to int8: the roundings of integer.h for one value, and what a task counts
 * while it rounds.
 */
#ifndef DUNLIN_KERNELS_ROUNDING_H
#define DUNLIN_KERNELS_ROUNDING_H

#include "kernels/api/integer.h"
#include "kernels/parallel/tasks.h"
#include "kernels/simd/vec.h"

#include <stdatomic.h>

/* What a task has rounded so far. */
typedef struct int_count {
    int64_t largest, n_clipped;
} int_count;

/* What all tasks of a call have: a maximum and a sum, so their order does not matter. */
typedef struct int_tally {
    atomic_int_fast64_t largest, n_clipped;
} int_tally;

static inline void int_tally_open(int_tally *tally)
{
    atomic_init(&tally->largest, 0);
    atomic_init(&tally->n_clipped, 0);
}

static inline void int_tally_take(int_tally *tally, const int_count *count)
{
    int_fast64_t largest = atomic_load_explicit(&tally->largest, memory_order_relaxed);
    while (largest < count->largest &&
           !atomic_compare_exchange_weak_explicit(&tally->largest, &largest, count->largest,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    atomic_fetch_add_explicit(&tally->n_clipped, count->n_clipped, memory_order_relaxed);
}

/* Once all tasks are done. */
static inline void int_tally_close(int_tally *tally, const dunlin_int_rounding *rounding)
{
    dunlin_int_stats *stats = rounding->stats;
    if (stats == NULL) {
        return;
    }
    const int64_t largest = atomic_load_explicit(&tally->largest, memory_order_relaxed);
    const int64_t before = rounding->is_reset ? 0 : stats->largest;
    stats->largest = max_i64(before, largest);
    stats->n_clipped = (rounding->is_reset ? 0 : stats->n_clipped) +
                       atomic_load_explicit(&tally->n_clipped, memory_order_relaxed);
}

/* |v|, also of the least value. */
ALWAYS_INLINE uint32_t int_size(int32_t v)
{
    return v < 0 ? 0U - (uint32_t)v : (uint32_t)v;
}

ALWAYS_INLINE uint64_t int_size_wide(int64_t v)
{
    return v < 0 ? 0U - (uint64_t)v : (uint64_t)v;
}

ALWAYS_INLINE int32_t int_within(int32_t v, int32_t low, int32_t high)
{
    v = v < low ? low : v;
    return v > high ? high : v;
}

/* What is added to a magnitude before it is shifted: half of the unit. */
ALWAYS_INLINE uint32_t int_half(int32_t shift)
{
    return shift > 0 ? 1U << (shift - 1) : 0U;
}

/* |v| / 2^shift, half up; 0 <= shift <= 31, and half is int_half() of it. */
ALWAYS_INLINE uint32_t int_shifted(uint32_t size, int32_t shift, uint32_t half)
{
    return (size + half) >> shift;
}

/* A magnitude within 127 with the sign of v. */
ALWAYS_INLINE int32_t int_signed(uint32_t size, int32_t v)
{
    const int32_t q = size > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : (int32_t)size;
    return v < 0 ? -q : q;
}

#endif
