/*
 * bf16_kernel.c - floats to the nearest bfloat16, which is stored as its 16 bits, and back.
 */
#include "kernels/gemm/gemm.h"
#include "kernels/simd/bf16.h"

typedef struct bf16_job {
    int64_t n, block;
    const float *x;
    const uint16_t *halves;
    float *out;
    uint16_t *out_halves;
} bf16_job;

static int64_t end_of(const bf16_job *job, size_t task)
{
    return min_i64(job->n, ((int64_t)task + 1) * job->block);
}

static void store_task(void *ctx, size_t task)
{
    const bf16_job *job = ctx;
    const float *x = job->x;
    uint16_t *out = job->out_halves;
    const int64_t end = end_of(job, task);
    int64_t i = (int64_t)task * job->block;
    for (; i + VEC <= end; i += VEC) {
        vstore_halves(out + i, vround_bf16(vload(x + i)));
    }
    for (; i < end; i++) {
        out[i] = bf16_half(bf16_round(x[i]));
    }
}

static void load_task(void *ctx, size_t task)
{
    const bf16_job *job = ctx;
    const uint16_t *x = job->halves;
    float *out = job->out;
    const int64_t end = end_of(job, task);
    int64_t i = (int64_t)task * job->block;
    for (; i + VEC <= end; i += VEC) {
        vstore(out + i, vload_halves(x + i));
    }
    for (; i < end; i++) {
        const uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

static void run_job(bf16_job *job, pthreadpool_task_1d_t fn, dunlin_threads *threads)
{
    job->block = task_block(threads, job->n);
    run_tasks(threads, fn, job, ceil_div(job->n, job->block), job->n);
}

void K(bf16_store)(int64_t n, const float *x, uint16_t *out, dunlin_threads *threads)
{
    run_job(&(bf16_job){.n = n, .x = x, .out_halves = out}, store_task, threads);
}

void K(bf16_load)(int64_t n, const uint16_t *x, float *out, dunlin_threads *threads)
{
    run_job(&(bf16_job){.n = n, .halves = x, .out = out}, load_task, threads);
}
