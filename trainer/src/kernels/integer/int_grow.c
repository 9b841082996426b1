/*
 * int_grow.c - weights of 8 or 16 bits at the ends of their range: how many there are, and all of
 * them halved, as a higher exponent has them.
 *
 * Halves go to the even neighbour, so that a halving moves the mean of weights to neither side.
 */
#include "int_entries.h"
#include "rounding.h"

#define PAIR_OFFSET (1 << 17) /* makes any weight positive, and keeps what is even even */

typedef struct grow_job {
    int64_t n, block;
    int8_t *high, *low;
    const int8_t *read_high, *read_low;
    int_tally tally;
} grow_job;

/* v / 2, halves to the even neighbour; |v| <= DUNLIN_INT_PAIR_MOST. */
ALWAYS_INLINE int32_t half_of(int32_t v)
{
    const uint32_t up = (uint32_t)(v + PAIR_OFFSET);
    return (int32_t)((up + (up >> 1 & 1)) >> 1) - PAIR_OFFSET / 2;
}

/* A weight of 8 bits, and the one of 16 with both bytes alike, is at an end. */
static void count_task(void *ctx, size_t task)
{
    grow_job *job = (grow_job *)ctx;
    const int64_t first = (int64_t)task * job->block;
    const int64_t end = min_i64(job->n, first + job->block);
    const int8_t *high = job->read_high;
    const int8_t *low = job->read_low != NULL ? job->read_low : high;
    int64_t n = 0;
    for (int64_t i = first; i < end; i++) {
        const bool is_end = high[i] == DUNLIN_INT_MOST || high[i] == -DUNLIN_INT_MOST;
        n += (int)is_end & (int)(low[i] == high[i]);
    }
    const int_count count = {.n_clipped = n};
    int_tally_take(&job->tally, &count);
}

int64_t K(int_count_ends)(int64_t n, const int8_t *high, const int8_t *low, dunlin_threads *threads)
{
    grow_job job = {.n = n, .block = task_block(threads, n), .read_high = high, .read_low = low};
    int_tally_open(&job.tally);
    run_tasks(threads, count_task, &job, ceil_div(n, job.block), n);
    return atomic_load_explicit(&job.tally.n_clipped, memory_order_relaxed);
}

static void halve_task(void *ctx, size_t task)
{
    const grow_job *job = (const grow_job *)ctx;
    const int64_t first = (int64_t)task * job->block;
    const int64_t end = min_i64(job->n, first + job->block);
    int8_t *high = job->high;
    int8_t *low = job->low;
    for (int64_t i = first; i < end && low == NULL; i++) {
        high[i] = (int8_t)half_of(high[i]);
    }
    for (int64_t i = first; i < end && low != NULL; i++) {
        const int32_t half = half_of(high[i] * 256 + low[i]);
        const int32_t up = ((half + 128 + (1 << 15)) >> 8) - 128; /* no shift of what is below 0 */
        high[i] = (int8_t)up;
        low[i] = (int8_t)(half - up * 256);
    }
}

void K(int_halve)(int64_t n, int8_t *high, int8_t *low, dunlin_threads *threads)
{
    grow_job job = {.n = n, .block = task_block(threads, n), .high = high, .low = low};
    run_tasks(threads, halve_task, &job, ceil_div(n, job.block), n);
}
