/*
 * prelu_kernel.c - PReLU (He et al. 2015, "Delving Deep into Rectifiers"), forward and backward.
 *
 * A sample is gone through in lines, whose elements have the same slopes from line to line: one
 * period of slopes, or as many as make a line worth a loop. Slopes' gradients are summed by blocks
 * of lines in float and in double between them, each sample by itself; then samples in order.
 */
#include "kernels/gemm/gemm.h"
#include "kernels/simd/vecmath.h"

#define LEAST_LINE 128 /* at least, unless a sample is shorter */
#define LINE_UNIT 16   /* periods are repeated in multiples of it */
#define BLOCK_LINES 64 /* added in float */

static int64_t period_of(const dunlin_prelu_call *call)
{
    return call->n_slopes * call->inner;
}

static int64_t line_floats(int64_t n_slopes, int64_t inner)
{
    const int64_t period = n_slopes * inner;
    return period >= LEAST_LINE ? period
                                : period * round_up(ceil_div(LEAST_LINE, period), LINE_UNIT);
}

/* A sample's: sums in double, then a block's in float. */
static uint64_t sample_bytes(int64_t n_slopes, int64_t inner)
{
    return (uint64_t)round_up(2 * n_slopes + line_floats(n_slopes, inner), 16) * sizeof(float);
}

uint64_t K(prelu_workspace_bytes)(int64_t n_slopes, int64_t inner, uint64_t *out_sample_bytes)
{
    *out_sample_bytes = sample_bytes(n_slopes, inner);
    return (uint64_t)round_up(line_floats(n_slopes, inner), 16) * sizeof(float);
}

typedef struct prelu_job {
    const dunlin_prelu_call *call;
    float *slopes;       /* of a line */
    char *samples;       /* their workspace */
    int64_t line;        /* floats */
    int64_t n;           /* of a sample */
    int64_t task_floats; /* a multiple of a line */
    int64_t n_tasks;     /* of a sample */
} prelu_job;

static prelu_job job_of(const dunlin_prelu_call *call)
{
    prelu_job job = {.call = call, .slopes = call->workspace};
    job.line = line_floats(call->n_slopes, call->inner);
    job.samples = (char *)call->workspace + (uint64_t)round_up(job.line, 16) * sizeof(float);
    job.n = call->n_rows * period_of(call);
    job.task_floats = job.line * max_i64(1, TASK_BLOCK / job.line);
    job.n_tasks = ceil_div(job.n, job.task_floats);
    for (int64_t i = 0; i < min_i64(job.line, job.n); i++) {
        job.slopes[i] = call->slopes[i / call->inner % call->n_slopes];
    }
    return job;
}

/* n elements from the beginning of a line on, of this vector's place in it. */
ALWAYS_INLINE void write_line(const prelu_job *job, int64_t at, int64_t n)
{
    const dunlin_prelu_call *call = job->call;
    const bool is_backward = call->dy != NULL;
    const float *from = is_backward ? call->dy + at : call->x + at;
    float *to = is_backward ? call->dx + at : call->y + at;
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat x = vload_n(call->x + at + i, left);
        const vfloat v = vload_n(from + i, left);
        vstore_n(to + i, vselect_less(vzero(), x, v, v * vload_n(job->slopes + i, left)), left);
    }
}

/* The same with the slopes' share added up. */
ALWAYS_INLINE void sum_line(const prelu_job *job, int64_t at, int64_t n, float *sums)
{
    const dunlin_prelu_call *call = job->call;
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat x = vload_n(call->x + at + i, left);
        const vfloat dy = vload_n(call->dy + at + i, left);
        const vfloat share = vselect_less(vzero(), x, vzero(), x * dy);
        vstore_n(sums + i, vload_n(sums + i, left) + share, left);
        if (call->dx != NULL) {
            const vfloat slopes = vload_n(job->slopes + i, left);
            vstore_n(call->dx + at + i, vselect_less(vzero(), x, dy, dy * slopes), left);
        }
    }
}

static void map_task(void *ctx, size_t task)
{
    const prelu_job *job = ctx;
    const int64_t sample = (int64_t)task / job->n_tasks;
    const int64_t first = (int64_t)task % job->n_tasks * job->task_floats;
    const int64_t end = min_i64(job->n, first + job->task_floats);
    for (int64_t i = first; i < end; i += job->line) {
        write_line(job, sample * job->n + i, min_i64(job->line, end - i));
    }
}

static void sums_task(void *ctx, size_t task)
{
    const prelu_job *job = ctx;
    const dunlin_prelu_call *call = job->call;
    char *base = job->samples + (uint64_t)task * sample_bytes(call->n_slopes, call->inner);
    double *sums = (double *)(void *)base;
    float *block = (float *)(void *)(sums + call->n_slopes);
    const int64_t n_used = min_i64(job->line, job->n);
    memset(base, 0, (size_t)sample_bytes(call->n_slopes, call->inner));
    for (int64_t i = 0, lines = 1; i < job->n; i += job->line, lines++) {
        sum_line(job, (int64_t)task * job->n + i, min_i64(job->line, job->n - i), block);
        if (lines % BLOCK_LINES == 0 || i + job->line >= job->n) {
            for (int64_t k = 0; k < n_used; k++) {
                sums[k / call->inner % call->n_slopes] += (double)block[k];
            }
            memset(block, 0, (size_t)n_used * sizeof(float));
        }
    }
}

/* The samples' sums, in order. */
static void add_samples(const prelu_job *job)
{
    const dunlin_prelu_call *call = job->call;
    if (call->is_reset) {
        memset(call->dslopes, 0, (size_t)call->n_slopes * sizeof(float));
    }
    const char *base = job->samples;
    for (int64_t s = 0; s < call->n_samples; s++) {
        const double *sums = (const double *)(const void *)base;
        for (int64_t c = 0; c < call->n_slopes; c++) {
            call->dslopes[c] += (float)sums[c];
        }
        base += sample_bytes(call->n_slopes, call->inner);
    }
}

void K(prelu)(const dunlin_prelu_call *call)
{
    prelu_job job = job_of(call);
    const int64_t n_floats = call->n_samples * job.n;
    if (call->dslopes == NULL) {
        run_tasks(call->threads, map_task, &job, call->n_samples * job.n_tasks, n_floats);
        return;
    }
    run_tasks(call->threads, sums_task, &job, call->n_samples, n_floats);
    add_samples(&job);
}
