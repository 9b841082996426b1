/*
 * int_quantise.c - float to int8 with a given exponent, and back.
 */
#include "int_entries.h"
#include "rounding.h"

#include <math.h>

typedef struct quantise_job {
    int64_t n, block;
    const float *x;
    int8_t *out;
    double scale;
    const int8_t *q;
    float *values;
    atomic_int_fast64_t n_clipped, n_not_finite;
} quantise_job;

static void quantise_task(void *ctx, size_t task)
{
    quantise_job *job = (quantise_job *)ctx;
    const int64_t end = min_i64(job->n, ((int64_t)task + 1) * job->block);
    const double scale = job->scale;
    const float *x = job->x;
    int8_t *out = job->out;
    int32_t n_clipped = 0;
    int32_t n_not_finite = 0;
    for (int64_t i = (int64_t)task * job->block; i < end; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &x[i], sizeof bits);
        const bool is_finite = (bits & 0x7F800000U) != 0x7F800000U;
        const double v = is_finite ? (double)x[i] * scale : 0.0; /* exact: a power of two */
        double size = fabs(v);
        size = size < 200.0 ? size : 200.0;
        /* exact, and half of a unit goes up in magnitude */
        const int32_t q = (int32_t)(size + 0.5);
        n_not_finite += is_finite ? 0 : 1;
        n_clipped += q > DUNLIN_INT_MOST ? 1 : 0;
        const int32_t most = q > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : q;
        out[i] = (int8_t)(v < 0.0 ? -most : most);
    }
    atomic_fetch_add_explicit(&job->n_clipped, n_clipped, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->n_not_finite, n_not_finite, memory_order_relaxed);
}

bool K(int_quantise)(const dunlin_int_quantise_call *call)
{
    quantise_job job = {.n = call->n, .block = task_block(call->threads, call->n), .x = call->x};
    job.out = call->out;
    job.scale = ldexp(1.0, -call->exponent);
    atomic_init(&job.n_clipped, 0);
    atomic_init(&job.n_not_finite, 0);
    run_tasks(call->threads, quantise_task, &job, ceil_div(call->n, job.block), call->n);
    if (call->out_clipped != NULL) {
        *call->out_clipped += atomic_load_explicit(&job.n_clipped, memory_order_relaxed);
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
