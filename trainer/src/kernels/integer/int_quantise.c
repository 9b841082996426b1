/*
 * int_quantise.c - float to int8 with a given exponent, and back.
 */
#include "dot.h"
#include "int_entries.h"
#include "rounding.h"

#include <math.h>

typedef struct quantise_job {
    int64_t n, block;
    const float *x;
    int8_t *out;
    float up, over; /* whose product the scale is: a float may not hold that */
    double scale;
    const int8_t *q;
    float *values;
    atomic_int_fast64_t n_clipped, n_not_finite;
    int_tally tally; /* of the bits of magnitudes */
} quantise_job;

/* What a task has counted, by lane. */
typedef struct quantise_count {
    vint largest, n_clipped, n_not_finite;
} quantise_count;

/* A vector of floats as whole numbers; lanes that are not used hold zeros. */
ALWAYS_INLINE vint quantised(vint bits, float up, float over, quantise_count *count)
{
    const vint magnitude = bits & 0x7FFFFFFF;
    const vint is_finite = magnitude < 0x7F800000;
    const vint finite = magnitude & is_finite;
    /* exact: powers of two; what gets too small for it is far below half of a unit */
    const vfloat scaled = (vfloat)finite * up * over;
    const vint is_small = scaled < 200.0F;
    const vfloat most = (vfloat){0} + 200.0F;
    const vfloat size = (vfloat)(((vint)scaled & is_small) | ((vint)most & ~is_small));
    const vint whole = __builtin_convertvector(size, vint);
    /* exact, and half of a unit goes up in magnitude */
    const vint goes_up = (size - __builtin_convertvector(whole, vfloat)) >= 0.5F;
    const vint q = whole - goes_up;
    count->largest = vint_max(count->largest, finite);
    count->n_not_finite += ~is_finite;
    count->n_clipped += q > DUNLIN_INT_MOST;
    return vint_signed(vint_min(q, (vint){0} + DUNLIN_INT_MOST), bits);
}

static void quantise_task(void *ctx, size_t task)
{
    quantise_job *job = (quantise_job *)ctx;
    const int64_t end = min_i64(job->n, ((int64_t)task + 1) * job->block);
    const float up = job->up;
    const float over = job->over;
    const float *x = job->x;
    int8_t *out = job->out;
    quantise_count count = {{0}, {0}, {0}};
    int_count all = {0, 0};
    int64_t n_not_finite = 0;
    for (int64_t i = (int64_t)task * job->block; i < end; i += VEC) {
        const int32_t left = vec_left(end, i);
        const vint bits = (vint)vload_n(x + i, left);
        vint_store_chars(out + i, quantised(bits, up, over, &count), left);
    }
    for (int i = 0; i < VEC; i++) {
        all.largest = max_i64(all.largest, count.largest[i]);
        all.n_clipped -= count.n_clipped[i];
        n_not_finite -= count.n_not_finite[i];
    }
    atomic_fetch_add_explicit(&job->n_clipped, all.n_clipped, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->n_not_finite, n_not_finite, memory_order_relaxed);
    int_tally_take(&job->tally, &(int_count){.largest = all.largest});
}

bool K(int_quantise)(const dunlin_int_quantise_call *call)
{
    quantise_job job = {.n = call->n, .block = task_block(call->threads, call->n), .x = call->x};
    job.out = call->out;
    const int32_t half = -call->exponent / 2;
    job.up = (float)ldexp(1.0, half);
    job.over = (float)ldexp(1.0, -call->exponent - half);
    int_tally_open(&job.tally);
    atomic_init(&job.n_clipped, 0);
    atomic_init(&job.n_not_finite, 0);
    run_tasks(call->threads, quantise_task, &job, ceil_div(call->n, job.block), call->n);
    if (call->out_clipped != NULL) {
        *call->out_clipped += atomic_load_explicit(&job.n_clipped, memory_order_relaxed);
    }
    if (call->out_largest != NULL) {
        const int32_t bits =
            (int32_t)atomic_load_explicit(&job.tally.largest, memory_order_relaxed);
        memcpy(call->out_largest, &bits, sizeof bits);
    }
    return atomic_load_explicit(&job.n_not_finite, memory_order_relaxed) == 0;
}

static void dequantise_task(void *ctx, size_t task)
{
    const quantise_job *job = (const quantise_job *)ctx;
    const int64_t end = min_i64(job->n, ((int64_t)task + 1) * job->block);
    for (int64_t i = (int64_t)task * job->block; i < end; i++) {
        job->values[i] = (float)((double)job->q[i] * job->scale);
    }
}

void K(int_dequantise)(int64_t n, const int8_t *x, int32_t exponent, float *out,
                       dunlin_threads *threads)
{
    quantise_job job = {.n = n, .block = task_block(threads, n), .q = x, .values = out};
    job.scale = ldexp(1.0, exponent);
    run_tasks(threads, dequantise_task, &job, ceil_div(n, job.block), n);
}
