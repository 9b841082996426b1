/*
 * int_real.c - floats to int8 with real units, one for all or one a channel, and what is counted of
 * them; or to pairs of int8. The sums of products of such numbers as gradients.
 *
 * Invariant: a strip of channels has one task, and what all tasks count of one unit is a maximum
 * and sums of whole numbers: neither threads nor cuts change a bit.
 */
#include "dot.h"
#include "int_entries.h"
#include "rounding.h"

#include <math.h>

#define STRIP 64 /* channels of a task */
#define STRIP_VECTORS (STRIP / VEC)
#define SQUARE_ROWS 32 /* whose squares, each up to 8160 * 8160, 31 bits hold */
#define FINE_UNITS 64  /* parts of a unit */
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

/* A vector of floats, as it is rounded. */
typedef struct real_vector {
    vint sign;      /* a mask */
    vint magnitude; /* bits */
    vfloat size;    /* 0 for what is no number */
} real_vector;

/* What a piece of one unit counts, lane by lane; it is short. */
typedef struct real_lanes {
    vint largest, n_clipped, fines, wholes;
} real_lanes;

/* The same of a strip of channels. */
typedef struct strip_lanes {
    vint largest[STRIP_VECTORS], n_clipped[STRIP_VECTORS], n_beyond[STRIP_VECTORS];
    vint squares[STRIP_VECTORS]; /* of up to SQUARE_ROWS rows */
    double all_squares[STRIP];
} strip_lanes;

ALWAYS_INLINE real_vector take(const float *x, int32_t n)
{
    const vint bits = (vint)vload_n(x, n);
    const vint magnitude = bits & 0x7FFFFFFF;
    const vint number = magnitude & (vint)(magnitude <= INFINITE);
    return (real_vector){.sign = bits >> 31, .magnitude = magnitude, .size = (vfloat)number};
}

ALWAYS_INLINE vfloat within(vfloat scaled, float most)
{
    const vint is_less = (vint)(scaled < vset1(most));
    return (vfloat)(((vint)scaled & is_less) | ((vint)vset1(most) & ~is_less));
}

/* Half up. */
ALWAYS_INLINE vint nearest(vfloat scaled)
{
    const vint whole = __builtin_convertvector(scaled, vint);
    const vfloat rest = scaled - __builtin_convertvector(whole, vfloat);
    return whole - (vint)(rest >= vset1(0.5F));
}

ALWAYS_INLINE vint fine_of(vfloat scaled)
{
    return __builtin_convertvector(within(scaled, 127.5F) * vset1((float)FINE_UNITS), vint);
}

ALWAYS_INLINE vint signed_as(vint size, vint sign)
{
    return (size ^ sign) - sign;
}

/* --- by channel --- */

static void add_squares(strip_lanes *lanes)
{
    for (int64_t v = 0; v < STRIP_VECTORS; v++) {
        for (int i = 0; i < VEC; i++) {
            lanes->all_squares[v * VEC + i] += (double)lanes->squares[v][i];
        }
        lanes->squares[v] = (vint){0};
    }
}

/* One row of a strip of channels. */
ALWAYS_INLINE void quantise_row(const float *x, int64_t n, const float *inverses,
                                const float *limits, int8_t *out, strip_lanes *lanes)
{
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const int64_t v = i / VEC;
        const real_vector of = take(x + i, left);
        const vfloat scaled = within(of.size * vload(inverses + i), 200.0F);
        const vint q = nearest(scaled);
        const vint most = vint_min(q, (vint){0} + DUNLIN_INT_MOST);
        if (out != NULL) {
            vint_store_chars(out + i, signed_as(most, of.sign), left);
        }
        lanes->largest[v] = vint_max(lanes->largest[v], of.magnitude);
        lanes->n_clipped[v] -= (vint)(q > DUNLIN_INT_MOST);
        if (limits != NULL) {
            const vint fine = fine_of(scaled);
            lanes->n_beyond[v] -= (vint)(of.size > vload(limits + i));
            lanes->squares[v] += fine * fine;
        }
    }
}

static void close_strip(const dunlin_int_real_call *call, int64_t first, int64_t n,
                        const strip_lanes *lanes)
{
    for (int64_t i = 0; i < n; i++) {
        dunlin_int_spread *spread = &call->spreads[first + i];
        const int32_t largest = lanes->largest[i / VEC][i % VEC];
        spread->squares += lanes->all_squares[i];
        spread->n += call->n_rows;
        spread->n_clipped += lanes->n_clipped[i / VEC][i % VEC];
        spread->n_beyond += lanes->n_beyond[i / VEC][i % VEC];
        spread->largest = largest > spread->largest ? largest : spread->largest;
    }
}

/* Channels [task * STRIP, ...) of all rows. */
static void channels_task(void *ctx, size_t task)
{
    const real_job *job = (const real_job *)ctx;
    const dunlin_int_real_call *call = job->call;
    const int64_t first = (int64_t)task * STRIP;
    const int64_t n = min_i64(STRIP, call->channels - first);
    float inverses[STRIP] = {0};
    float limits[STRIP] = {0};
    strip_lanes lanes;
    memset(&lanes, 0, sizeof lanes);
    for (int64_t i = 0; i < n; i++) {
        inverses[i] = 1.0F / call->units[first + i];
        limits[i] = call->limits != NULL ? call->limits[first + i] : 0.0F;
    }
    for (int64_t row = 0; row < call->n_rows; row++) {
        const int64_t at = row * call->channels + first;
        int8_t *out = call->out != NULL ? call->out + at : NULL;
        if (call->limits != NULL) {
            quantise_row(call->x + at, n, inverses, limits, out, &lanes);
        } else {
            quantise_row(call->x + at, n, inverses, NULL, out, &lanes);
        }
        if (row % SQUARE_ROWS == SQUARE_ROWS - 1 || row == call->n_rows - 1) {
            add_squares(&lanes);
        }
    }
    if (call->spreads != NULL) {
        close_strip(call, first, n, &lanes);
    }
}

/* --- one unit for all --- */

ALWAYS_INLINE void quantise_values(const float *x, int32_t n, vfloat inverse, int8_t *out,
                                   real_lanes *lanes, bool has_sums)
{
    const real_vector of = take(x, n);
    const vfloat scaled = within(of.size * inverse, 200.0F);
    const vint q = nearest(scaled);
    const vint most = vint_min(q, (vint){0} + DUNLIN_INT_MOST);
    if (out != NULL) {
        vint_store_chars(out, signed_as(most, of.sign), n);
    }
    lanes->largest = vint_max(lanes->largest, of.magnitude);
    lanes->n_clipped -= (vint)(q > DUNLIN_INT_MOST);
    if (has_sums) {
        lanes->fines += fine_of(scaled);
        lanes->wholes += most;
    }
}

ALWAYS_INLINE void quantise_pairs(const float *x, int32_t n, vfloat inverse, int8_t *out,
                                  int8_t *out_low, real_lanes *lanes)
{
    const real_vector of = take(x, n);
    const vint q = nearest(within(of.size * inverse, 20000.0F));
    const vint most = vint_min(q, (vint){0} + DUNLIN_INT_MOST_PAIR);
    const vint high = (most + (1 << (LOW_BITS - 1))) >> LOW_BITS;
    const vint low = most - high * (1 << LOW_BITS);
    if (out != NULL) {
        vint_store_chars(out, signed_as(high, of.sign), n);
        vint_store_chars(out_low, signed_as(low, of.sign), n);
    }
    lanes->largest = vint_max(lanes->largest, of.magnitude);
    lanes->n_clipped -= (vint)(q > DUNLIN_INT_MOST_PAIR);
}

/* A piece of all values, as it is asked for. */
static real_lanes take_piece(const dunlin_int_real_call *call, int64_t first, int64_t end)
{
    const vfloat inverse = vset1(1.0F / call->units[0]);
    real_lanes lanes = {.largest = {0}};
    const bool has_out = call->out != NULL;
    for (int64_t at = first; at < end; at += VEC) {
        const int32_t n = vec_left(end, at);
        const float *x = call->x + at;
        int8_t *out = has_out ? call->out + at : NULL;
        if (call->finds_largest) {
            lanes.largest = vint_max(lanes.largest, take(x, n).magnitude);
        } else if (call->out_low != NULL) {
            quantise_pairs(x, n, inverse, out, call->out_low + at, &lanes);
        } else if (call->has_sums) {
            quantise_values(x, n, inverse, out, &lanes, true);
        } else {
            quantise_values(x, n, inverse, out, &lanes, false);
        }
    }
    return lanes;
}

static void values_task(void *ctx, size_t task)
{
    real_job *job = (real_job *)ctx;
    const int64_t end = min_i64(job->n, ((int64_t)task + 1) * job->block);
    const real_lanes lanes = take_piece(job->call, (int64_t)task * job->block, end);
    int_count count = {0, 0};
    int64_t fines = 0;
    int64_t wholes = 0;
    for (int i = 0; i < VEC; i++) {
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

/* --- sums of products to gradients --- */

typedef struct scale_job {
    const dunlin_int_scale_call *call;
    int64_t block; /* rows */
} scale_job;

ALWAYS_INLINE void scale_row(const dunlin_int_scale_call *call, int64_t at, bool is_wide,
                             bool has_low)
{
    for (int64_t c = 0; c < call->channels; c++) {
        double sum = is_wide ? (double)call->wide_sums[at + c] : (double)call->sums[at + c];
        if (has_low) {
            sum = sum * (1 << LOW_BITS) +
                  (is_wide ? (double)call->wide_low_sums[at + c] : (double)call->low_sums[at + c]);
        }
        call->out[at + c] = (float)(sum * call->factors[c]);
    }
}

static void scale_task(void *ctx, size_t task)
{
    const scale_job *job = (const scale_job *)ctx;
    const dunlin_int_scale_call *call = job->call;
    const int64_t end = min_i64(call->n_rows, ((int64_t)task + 1) * job->block);
    for (int64_t row = (int64_t)task * job->block; row < end; row++) {
        const int64_t at = row * call->channels;
        if (call->wide_sums != NULL) {
            scale_row(call, at, true, call->wide_low_sums != NULL);
        } else if (call->low_sums != NULL) {
            scale_row(call, at, false, true);
        } else {
            scale_row(call, at, false, false);
        }
    }
}

void K(int_scale_sums)(const dunlin_int_scale_call *call)
{
    scale_job job = {.call = call, .block = task_block(call->threads, call->n_rows)};
    run_tasks(call->threads, scale_task, &job, ceil_div(call->n_rows, job.block),
              call->n_rows * call->channels);
}

typedef struct keep_job {
    float *values;
    int64_t n, block;
    double scale;
    uint64_t key;
} keep_job;

/* 53 bits as a double, in two halves that 32 bits hold. */
ALWAYS_INLINE double draw_of(uint64_t key, uint64_t element)
{
    const uint64_t bits = dunlin__int_draw(key, element) >> 11;
    const int32_t high = (int32_t)(bits >> 27);
    const int32_t low = (int32_t)(bits & (((uint64_t)1 << 27) - 1));
    return (double)high * 0x1p-26 + (double)low * 0x1p-53;
}

static void keep_task(void *ctx, size_t task)
{
    const keep_job *job = (const keep_job *)ctx;
    const int64_t end = min_i64(job->n, ((int64_t)task + 1) * job->block);
    for (int64_t i = (int64_t)task * job->block; i < end; i++) {
        const double size = fabs((double)job->values[i]) * job->scale;
        const int32_t whole = (int32_t)size;
        const int32_t up = whole + (size - (double)whole > draw_of(job->key, (uint64_t)i) ? 1 : 0);
        const int32_t q = up > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : up;
        job->values[i] = (float)(job->values[i] < 0.0F ? -q : q) * 0x1p-14F;
    }
}

void K(int_keep_proportions)(int64_t n, float *values, double scale, uint64_t key,
                             dunlin_threads *threads)
{
    keep_job job = {.values = values, .n = n, .block = task_block(threads, n), .scale = scale};
    job.key = key;
    run_tasks(threads, keep_task, &job, ceil_div(n, job.block), 8 * n);
}
