/*
 * int_real.c - floats to int8 with real units, one for all or one a channel, and what is counted of
 * them; or to pairs of int8.
 *
 * Invariant: a strip of channels has one task, and what all tasks count of one unit is a maximum
 * and sums of whole numbers: neither threads nor cuts change a bit.
 */
#include "int_entries.h"
#include "rounding.h"

#define STRIP 64      /* channels, or neighbours, that are taken at once */
#define FINE_UNITS 64 /* parts of a unit */
#define INFINITE 0x7F800000
#define LOW_BITS 7 /* of a pair */

/* What all pieces of one unit count. */
typedef struct real_tally {
    int_tally bits; /* of magnitudes */
    atomic_int_fast64_t fines, wholes;
} real_tally;

typedef struct real_job {
    const dunlin_int_real_call *call;
    int64_t n, block; /* one unit: values in all, and of a task */
    real_tally tally;
} real_job;

/* What a strip counts, lane by lane; fines and wholes of a piece, which is short. */
typedef struct real_lanes {
    int32_t largest[STRIP], n_clipped[STRIP], n_beyond[STRIP];
    int32_t fines[STRIP], wholes[STRIP];
    double squares[STRIP];
} real_lanes;

/* A float as it is rounded. */
typedef struct real_value {
    int32_t bits, magnitude;
    float size, scaled;
} real_value;

ALWAYS_INLINE real_value take(const float *x, float inverse, float most)
{
    real_value v = {.bits = 0};
    memcpy(&v.bits, x, sizeof v.bits);
    v.magnitude = v.bits & 0x7FFFFFFF;
    const int32_t number = v.magnitude <= INFINITE ? v.magnitude : 0;
    memcpy(&v.size, &number, sizeof v.size);
    const float scaled = v.size * inverse;
    v.scaled = scaled < most ? scaled : most;
    return v;
}

/* Half up. */
ALWAYS_INLINE int32_t nearest(float scaled)
{
    const int32_t whole = (int32_t)scaled;
    return whole + (scaled - (float)whole >= 0.5F ? 1 : 0);
}

ALWAYS_INLINE int32_t fine_of(float scaled)
{
    return (int32_t)((scaled < 127.5F ? scaled : 127.5F) * (float)FINE_UNITS);
}

/* One row of a strip of channels. */
ALWAYS_INLINE void quantise_row(const float *x, int64_t n, const float *inverses,
                                const float *limits, int8_t *out, real_lanes *lanes)
{
    for (int64_t i = 0; i < n; i++) {
        const real_value v = take(&x[i], inverses[i], 200.0F);
        const int32_t q = nearest(v.scaled);
        const int32_t most = q > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : q;
        out[i] = (int8_t)(v.bits < 0 ? -most : most);
        lanes->largest[i] = v.magnitude > lanes->largest[i] ? v.magnitude : lanes->largest[i];
        lanes->n_clipped[i] += q > DUNLIN_INT_MOST ? 1 : 0;
        if (limits != NULL) {
            const int32_t fine = fine_of(v.scaled);
            lanes->n_beyond[i] += v.size > limits[i] ? 1 : 0;
            lanes->squares[i] += (double)(fine * fine);
        }
    }
}

/* Channels [task * STRIP, ...) of all rows. */
static void channels_task(void *ctx, size_t task)
{
    const real_job *job = (const real_job *)ctx;
    const dunlin_int_real_call *call = job->call;
    const int64_t first = (int64_t)task * STRIP;
    const int64_t n = min_i64(STRIP, call->channels - first);
    int8_t nowhere[STRIP];
    float inverses[STRIP];
    real_lanes lanes;
    memset(&lanes, 0, sizeof lanes);
    const float *limits = call->limits != NULL ? call->limits + first : NULL;
    for (int64_t i = 0; i < n; i++) {
        inverses[i] = 1.0F / call->units[first + i];
    }
    for (int64_t row = 0; row < call->n_rows; row++) {
        const int64_t at = row * call->channels + first;
        int8_t *out = call->out != NULL ? call->out + at : nowhere;
        if (limits != NULL) {
            quantise_row(call->x + at, n, inverses, limits, out, &lanes);
        } else {
            quantise_row(call->x + at, n, inverses, NULL, out, &lanes);
        }
    }
    for (int64_t i = 0; call->spreads != NULL && i < n; i++) {
        dunlin_int_spread *spread = &call->spreads[first + i];
        spread->squares += lanes.squares[i];
        spread->n += call->n_rows;
        spread->n_clipped += lanes.n_clipped[i];
        spread->n_beyond += lanes.n_beyond[i];
        spread->largest = lanes.largest[i] > spread->largest ? lanes.largest[i] : spread->largest;
    }
}

/* Neighbours of one unit. */
ALWAYS_INLINE void quantise_values(const float *x, int64_t n, float inverse, int8_t *out,
                                   real_lanes *lanes)
{
    for (int64_t i = 0; i < n; i++) {
        const real_value v = take(&x[i], inverse, 200.0F);
        const int32_t q = nearest(v.scaled);
        const int32_t most = q > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : q;
        out[i] = (int8_t)(v.bits < 0 ? -most : most);
        lanes->largest[i] = v.magnitude > lanes->largest[i] ? v.magnitude : lanes->largest[i];
        lanes->n_clipped[i] += q > DUNLIN_INT_MOST ? 1 : 0;
        lanes->fines[i] += fine_of(v.scaled);
        lanes->wholes[i] += most;
    }
}

ALWAYS_INLINE void quantise_pairs(const float *x, int64_t n, float inverse, int8_t *out,
                                  int8_t *out_low, real_lanes *lanes)
{
    for (int64_t i = 0; i < n; i++) {
        const real_value v = take(&x[i], inverse, 20000.0F);
        const int32_t q = nearest(v.scaled);
        const int32_t most = q > DUNLIN_INT_MOST_PAIR ? DUNLIN_INT_MOST_PAIR : q;
        const int32_t high = (most + (1 << (LOW_BITS - 1))) >> LOW_BITS;
        const int32_t low = most - high * (1 << LOW_BITS);
        out[i] = (int8_t)(v.bits < 0 ? -high : high);
        out_low[i] = (int8_t)(v.bits < 0 ? -low : low);
        lanes->largest[i] = v.magnitude > lanes->largest[i] ? v.magnitude : lanes->largest[i];
        lanes->n_clipped[i] += q > DUNLIN_INT_MOST_PAIR ? 1 : 0;
    }
}

/* A piece of all values, which have one unit. */
static void values_task(void *ctx, size_t task)
{
    real_job *job = (real_job *)ctx;
    const dunlin_int_real_call *call = job->call;
    const int64_t end = min_i64(job->n, ((int64_t)task + 1) * job->block);
    const float inverse = 1.0F / call->units[0];
    int8_t nowhere[STRIP];
    real_lanes lanes;
    memset(&lanes, 0, sizeof lanes);
    for (int64_t at = (int64_t)task * job->block; at < end; at += STRIP) {
        const int64_t n = min_i64(STRIP, end - at);
        int8_t *out = call->out != NULL ? call->out + at : nowhere;
        if (call->out_low != NULL) {
            quantise_pairs(call->x + at, n, inverse, out, call->out_low + at, &lanes);
        } else {
            quantise_values(call->x + at, n, inverse, out, &lanes);
        }
    }
    int_count count = {0, 0};
    int64_t fines = 0;
    int64_t wholes = 0;
    for (int64_t i = 0; i < STRIP; i++) {
        count.largest = max_i64(count.largest, lanes.largest[i]);
        count.n_clipped += lanes.n_clipped[i];
        fines += lanes.fines[i];
        wholes += lanes.wholes[i];
    }
    int_tally_take(&job->tally.bits, &count);
    atomic_fetch_add_explicit(&job->tally.fines, fines, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->tally.wholes, wholes, memory_order_relaxed);
}

void K(int_quantise_real)(const dunlin_int_real_call *call)
{
    real_job job = {.call = call, .n = call->n_rows * call->channels};
    if (call->is_by_channel) {
        run_tasks(call->threads, channels_task, &job, ceil_div(call->channels, STRIP), job.n);
        return;
    }
    dunlin_int_stats stats = {0, 0};
    job.block = task_block(call->threads, job.n);
    int_tally_open(&job.tally.bits);
    atomic_init(&job.tally.fines, 0);
    atomic_init(&job.tally.wholes, 0);
    run_tasks(call->threads, values_task, &job, ceil_div(job.n, job.block), job.n);
    int_tally_close(&job.tally.bits, &(dunlin_int_rounding){.stats = &stats, .is_reset = true});
    dunlin_int_spread *spread = call->spreads;
    if (spread != NULL) {
        const int32_t largest = (int32_t)stats.largest;
        spread->n += job.n;
        spread->n_clipped += stats.n_clipped;
        spread->fines += atomic_load_explicit(&job.tally.fines, memory_order_relaxed);
        spread->wholes += atomic_load_explicit(&job.tally.wholes, memory_order_relaxed);
        spread->largest = largest > spread->largest ? largest : spread->largest;
    }
}
