/*
 * int_round.c - sums to int8 in the three roundings of NITI (Wang et al., TPDS 2022), as an output
 * or as the update of a weight of 8 or 16 bits; the largest magnitude.
 *
 * All on magnitudes, the sign is put back. A draw is of (key, element): slices and threads change
 * no bit. Sums of 32 bits that need no draw have loops that compilers make vectors of.
 */
#include "int_entries.h"
#include "rounding.h"

typedef struct round_job {
    const dunlin_int_round_call *call;
    int64_t block;
    int_tally tally;
} round_job;

/* |v| / 2^shift, shift >= 1. */
static inline uint64_t rounded(const dunlin_int_round_call *call, uint64_t size, int32_t shift,
                               uint64_t element)
{
    const uint64_t whole = size >> shift;
    const uint64_t rest = size & (((uint64_t)1 << shift) - 1);
    switch (call->mode) {
    case DUNLIN_INT_STOCHASTIC: {
        const uint64_t mask = ((uint64_t)1 << shift) - 1;
        return whole + (rest > (dunlin__int_draw(call->key, element) & mask) ? 1 : 0);
    }
    case DUNLIN_INT_PSEUDO: {
        const int32_t half = shift / 2;
        const uint64_t low = (rest & (((uint64_t)1 << half) - 1)) << (shift & 1);
        return whole + (rest >> half > low ? 1 : 0);
    }
    case DUNLIN_INT_NEAREST:
        break;
    }
    return whole + (rest >> (shift - 1));
}

static void take(const dunlin_int_round_call *call, int64_t i, int64_t v, int_count *count)
{
    const uint64_t size = int_size_wide(v);
    const int32_t shift = call->rounding.shift;
    const uint64_t q = shift <= 0 ? size : rounded(call, size, shift, call->first + (uint64_t)i);
    const int32_t most = q > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : (int32_t)q;
    int32_t out = int_within(v < 0 ? -most : most, call->low, call->high);
    bool is_clipped = q > DUNLIN_INT_MOST;
    if (call->is_subtracted) {
        const int32_t updated = call->out[i] - out;
        out = int_within(updated, -DUNLIN_INT_MOST, DUNLIN_INT_MOST);
        is_clipped = is_clipped || out != updated;
    }
    call->out[i] = (int8_t)out;
    count->n_clipped += is_clipped ? 1 : 0;
    count->largest = max_i64(count->largest, size > INT64_MAX ? INT64_MAX : (int64_t)size);
}

/* rounded() of 32 bits, shift >= 1, without draws. */
ALWAYS_INLINE uint32_t rounded_narrow(uint32_t size, int32_t shift, bool is_pseudo)
{
    const uint32_t rest = size & (((uint32_t)1 << shift) - 1);
    if (!is_pseudo) {
        return (size >> shift) + (rest >> (shift - 1));
    }
    const int32_t half = shift / 2;
    const uint32_t low = (rest & (((uint32_t)1 << half) - 1)) << (shift & 1);
    return (size >> shift) + (rest >> half > low ? 1 : 0);
}

/* take() of elements [first, end). */
ALWAYS_INLINE void take_narrow(const dunlin_int_round_call *call, int64_t first, int64_t end,
                               bool is_pseudo, bool is_subtracted, int_count *count)
{
    const int32_t *sums = call->sums;
    const int32_t shift = call->rounding.shift;
    const int32_t low = call->low;
    const int32_t high = call->high;
    int8_t *out = call->out;
    uint32_t largest = 0;
    int32_t n_clipped = 0;
    for (int64_t i = first; i < end; i++) {
        const int32_t v = sums[i];
        const uint32_t size = int_size(v);
        const uint32_t whole = rounded_narrow(size, shift, is_pseudo);
        const int32_t most = (int32_t)(whole > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : whole);
        int32_t q = int_within(v < 0 ? -most : most, low, high);
        int32_t clipped = whole > DUNLIN_INT_MOST ? 1 : 0;
        if (is_subtracted) {
            const int32_t updated = out[i] - q;
            q = int_within(updated, -DUNLIN_INT_MOST, DUNLIN_INT_MOST);
            clipped |= q != updated ? 1 : 0;
        }
        out[i] = (int8_t)q;
        n_clipped += clipped;
        largest = size > largest ? size : largest;
    }
    count->n_clipped += n_clipped;
    count->largest = max_i64(count->largest, largest);
}

#define NARROW_BLOCK ((int64_t)1 << 16) /* its clipped values are counted in 32 bits */

static void round_narrow(const dunlin_int_round_call *call, int64_t first, int64_t end,
                         int_count *count)
{
    const bool is_pseudo = call->mode == DUNLIN_INT_PSEUDO;
    for (int64_t i = first; i < end; i += NARROW_BLOCK) {
        const int64_t last = min_i64(end, i + NARROW_BLOCK);
        if (is_pseudo && call->is_subtracted) {
            take_narrow(call, i, last, true, true, count);
        } else if (is_pseudo) {
            take_narrow(call, i, last, true, false, count);
        } else if (call->is_subtracted) {
            take_narrow(call, i, last, false, true, count);
        } else {
            take_narrow(call, i, last, false, false, count);
        }
    }
}

static void round_task(void *ctx, size_t task)
{
    round_job *job = (round_job *)ctx;
    const dunlin_int_round_call *call = job->call;
    const int64_t first = (int64_t)task * job->block;
    const int64_t end = min_i64(call->n, first + job->block);
    int_count count = {0, 0};
    const int32_t shift = call->rounding.shift;
    if (call->sums != NULL && call->mode != DUNLIN_INT_STOCHASTIC && shift > 0 && shift < 32) {
        round_narrow(call, first, end, &count);
    } else {
        for (int64_t i = first; i < end; i++) {
            take(call, i, call->sums != NULL ? call->sums[i] : call->wide_sums[i], &count);
        }
    }
    int_tally_take(&job->tally, &count);
}

void K(int_round)(const dunlin_int_round_call *call)
{
    round_job job = {.call = call, .block = task_block(call->threads, call->n)};
    int_tally_open(&job.tally);
    run_tasks(call->threads, round_task, &job, ceil_div(call->n, job.block), call->n);
    int_tally_close(&job.tally, &call->rounding);
}

typedef struct pairs_job {
    const dunlin_int_pairs_call *call;
    int64_t block;
} pairs_job;

/* Less what is `size` far from 0. */
ALWAYS_INLINE void move_pair(const dunlin_int_pairs_call *call, int64_t i, int32_t size,
                             bool is_negative)
{
    const int32_t most = size > DUNLIN_INT_PAIR_MOST ? DUNLIN_INT_PAIR_MOST : size;
    const int32_t before = call->high[i] * 256 + call->low[i];
    const int32_t after = int_within(before - (is_negative ? -most : most), -DUNLIN_INT_PAIR_MOST,
                                     DUNLIN_INT_PAIR_MOST);
    const int32_t high = ((after + 128 + (1 << 15)) >> 8) - 128; /* no shift of what is below 0 */
    call->high[i] = (int8_t)high;
    call->low[i] = (int8_t)(after - high * 256);
}

static void pairs_task(void *ctx, size_t task)
{
    const pairs_job *job = (const pairs_job *)ctx;
    const dunlin_int_pairs_call *call = job->call;
    const int64_t first = (int64_t)task * job->block;
    const int64_t end = min_i64(call->n, first + job->block);
    const int32_t shift = call->shift;
    const dunlin_int_round_call pseudo = {.mode = DUNLIN_INT_PSEUDO};
    if (call->sums != NULL && shift > 0 && shift < 32) {
        for (int64_t i = first; i < end; i++) {
            const int32_t v = call->sums[i];
            const uint32_t size = rounded_narrow(int_size(v), shift, true);
            move_pair(call, i, (int32_t)(size > INT32_MAX ? INT32_MAX : size), v < 0);
        }
        return;
    }
    for (int64_t i = first; i < end; i++) {
        const int64_t v = call->sums != NULL ? call->sums[i] : call->wide_sums[i];
        const uint64_t size =
            shift > 0 ? rounded(&pseudo, int_size_wide(v), shift, 0) : int_size_wide(v) << -shift;
        move_pair(call, i, (int32_t)(size > INT32_MAX ? INT32_MAX : size), v < 0);
    }
}

void K(int_update_pairs)(const dunlin_int_pairs_call *call)
{
    pairs_job job = {.call = call, .block = task_block(call->threads, call->n)};
    run_tasks(call->threads, pairs_task, &job, ceil_div(call->n, job.block), call->n);
}

typedef struct largest_job {
    int64_t n, block;
    const int32_t *x;
    const int64_t *wide;
    int_tally tally;
} largest_job;

static void largest_task(void *ctx, size_t task)
{
    largest_job *job = (largest_job *)ctx;
    const int64_t first = (int64_t)task * job->block;
    const int64_t end = min_i64(job->n, first + job->block);
    uint32_t most = 0;
    uint64_t most_wide = 0;
    for (int64_t i = first; job->x != NULL && i < end; i++) {
        const uint32_t size = int_size(job->x[i]);
        most = size > most ? size : most;
    }
    for (int64_t i = first; job->x == NULL && i < end; i++) {
        const uint64_t size = int_size_wide(job->wide[i]);
        most_wide = size > most_wide ? size : most_wide;
    }
    int_count count = {.largest = most_wide > INT64_MAX ? INT64_MAX : (int64_t)most_wide};
    count.largest = max_i64(count.largest, most);
    int_tally_take(&job->tally, &count);
}

int64_t K(int_largest)(int64_t n, const int32_t *x, const int64_t *wide, dunlin_threads *threads)
{
    largest_job job = {.n = n, .block = task_block(threads, n), .x = x, .wide = wide};
    int_tally_open(&job.tally);
    run_tasks(threads, largest_task, &job, ceil_div(n, job.block), n);
    return atomic_load_explicit(&job.tally.largest, memory_order_relaxed);
}
