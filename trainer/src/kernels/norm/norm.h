/*
 * norm.h - how batch norm's reductions and maps walk over rows; both directions share it.
 */
#ifndef DUNLIN_KERNELS_NORM_H
#define DUNLIN_KERNELS_NORM_H

#include "kernels/gemm/gemm.h"

#define NORM_BLOCK 64     /* rows summed in float before double takes over */
#define NORM_PARTIALS 960 /* partial sums (pairs) kept at once, on the caller's stack */

/* One vector of channels. */
typedef struct norm_piece {
    const dunlin_norm_call *call;
    int64_t channel;
    int32_t n;
} norm_piece;

/* Both sums over rows [row, row + n_rows), from zero. */
typedef void (*norm_block_fn)(const norm_piece *piece, int64_t row, int64_t n_rows, vfloat *out_a,
                              vfloat *out_b);

typedef struct norm_job {
    const dunlin_norm_call *call;
    norm_block_fn block;
    int64_t first_sample;
    int64_t first_channel, n_channels; /* of this round */
    double *partials;                  /* [sample][2][n_channels]; NULL: into the sums */
} norm_job;

static inline void norm_add(double *to, vfloat v, int32_t n)
{
    float values[VEC];
    vstore(values, v);
    for (int32_t i = 0; i < n; i++) {
        to[i] += (double)values[i];
    }
}

/* Rows [row, row + n_rows) in blocks of at most `block` rows, into a[] and b[] of n channels. */
static inline void norm_rows_into(const norm_job *job, const norm_piece *piece, int64_t row,
                                  int64_t n_rows, int64_t block, double *a, double *b)
{
    for (int64_t i = 0; i < n_rows; i += block) {
        vfloat sum_a;
        vfloat sum_b;
        job->block(piece, row + i, min_i64(block, n_rows - i), &sum_a, &sum_b);
        norm_add(a, sum_a, piece->n);
        norm_add(b, sum_b, piece->n);
    }
}

/* One sample's partial of one vector of channels, or with few rows a vector's chain over all. */
static void norm_reduce_task(void *ctx, size_t task)
{
    const norm_job *job = ctx;
    const dunlin_norm_call *call = job->call;
    const int64_t vectors = ceil_div(job->n_channels, VEC);
    const int64_t offset = (int64_t)task % vectors * VEC;
    norm_piece piece = {.call = call, .channel = job->first_channel + offset};
    piece.n = vec_left(job->first_channel + job->n_channels, piece.channel);
    if (job->partials == NULL) {
        norm_rows_into(job, &piece, 0, call->rows_per_sample * call->n_samples, 1,
                       call->sums + piece.channel, call->sums + call->channels + piece.channel);
        return;
    }
    const int64_t sample = (int64_t)task / vectors;
    double *a = job->partials + sample * 2 * job->n_channels + offset;
    norm_rows_into(job, &piece, (job->first_sample + sample) * call->rows_per_sample,
                   call->rows_per_sample, NORM_BLOCK, a, a + job->n_channels);
}

static inline void norm_merge(const norm_job *job, int64_t n_samples)
{
    const dunlin_norm_call *call = job->call;
    for (int64_t s = 0; s < n_samples; s++) {
        const double *a = job->partials + s * 2 * job->n_channels;
        for (int64_t c = 0; c < job->n_channels; c++) {
            call->sums[job->first_channel + c] += a[c];
            call->sums[call->channels + job->first_channel + c] += a[job->n_channels + c];
        }
    }
}

/* Adds the two sums of each channel over all rows of the call. */
static inline void norm_reduce(const dunlin_norm_call *call, norm_block_fn block)
{
    if (call->is_reset) {
        memset(call->sums, 0, 2 * (size_t)call->channels * sizeof(double));
    }
    norm_job job = {.call = call, .block = block, .n_channels = call->channels};
    const int64_t floats_of_row = call->channels;
    if (call->rows_per_sample < DUNLIN_KERNEL_ROWS_PER_PARTIAL) {
        run_tasks(call->threads, norm_reduce_task, &job, ceil_div(call->channels, VEC),
                  call->n_samples * call->rows_per_sample * floats_of_row);
        return;
    }
    double partials[2 * NORM_PARTIALS];
    job.partials = partials;
    for (int64_t c = 0; c < call->channels; c += NORM_PARTIALS) {
        job.first_channel = c;
        job.n_channels = min_i64(NORM_PARTIALS, call->channels - c);
        const int64_t group = max_i64(1, NORM_PARTIALS / job.n_channels);
        for (int64_t s = 0; s < call->n_samples; s += group) {
            const int64_t n_samples = min_i64(group, call->n_samples - s);
            job.first_sample = s;
            memset(partials, 0, 2 * (size_t)(n_samples * job.n_channels) * sizeof(double));
            run_tasks(call->threads, norm_reduce_task, &job,
                      n_samples * ceil_div(job.n_channels, VEC),
                      n_samples * call->rows_per_sample * job.n_channels);
            norm_merge(&job, n_samples);
        }
    }
}

static inline int64_t norm_rows_of_task(const dunlin_norm_call *call)
{
    return max_i64(1, TASK_BLOCK / call->channels);
}

/* Hands out the rows of a map in fixed blocks. */
static inline void norm_rows(dunlin_norm_call *call, pthreadpool_task_1d_t fn)
{
    const int64_t n_rows = call->rows_per_sample * call->n_samples;
    run_tasks(call->threads, fn, call, ceil_div(n_rows, norm_rows_of_task(call)),
              n_rows * call->channels);
}

#endif
