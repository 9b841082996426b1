/*
 * units.h - divides rows of samples among threads in the units of the sums, for kernels that work
 * row by row.
 *
 * With few rows a sample a task takes some channels of all samples, one after the other, so that
 * the sums need no partials; otherwise a task is a unit and its partials are merged in order. Both
 * give the sums the same bits.
 */
#ifndef DUNLIN_KERNELS_UNITS_H
#define DUNLIN_KERNELS_UNITS_H

#include "sink.h"

#define UNIT_CHANNELS 512 /* at once: their sums lie on the stack */

/* Rows [row, row + n_rows) of a sample (not more than a block), channels [channel, ...). */
typedef struct unit_block {
    int64_t sample, row, n_rows;
    int64_t channel, n_channels;
    float *sums; /* [stat][2][n_channels], chained on */
} unit_block;

typedef struct unit_job {
    void (*block_fn)(const void *ctx, const unit_block *block);
    const void *ctx;
    int64_t channels, rows_per_sample, n_samples;
    uint32_t n_stats;
    double *sums[DUNLIN_EPILOGUE_MAX_STATS];
    double *partials; /* unit_partial_bytes() a sample */
    bool is_reset;
    /* set by unit_run() */
    stat_units units;
    int64_t part_channels;
} unit_job;

static inline uint64_t unit_partial_bytes(int64_t channels, int64_t rows_per_sample, size_t n_stats)
{
    if (rows_per_sample < DUNLIN_KERNEL_ROWS_PER_PARTIAL) {
        return 0;
    }
    return (uint64_t)stat_units_of(rows_per_sample).per_sample * n_stats * 2 * (uint64_t)channels *
           sizeof(double);
}

/* Rows of one unit, channels [channel, channel + n_channels), in blocks. */
static inline void unit_rows(const unit_job *job, int64_t sample, int64_t first, int64_t end,
                             int64_t channel, int64_t n_channels, double *const *to)
{
    float sums[EPILOGUE_MAX_SUMS * UNIT_CHANNELS];
    unit_block block = {.sample = sample, .channel = channel, .n_channels = n_channels};
    block.sums = sums;
    memset(sums, 0, 2 * (size_t)job->n_stats * (size_t)n_channels * sizeof(float));
    for (block.row = first; block.row < end; block.row += STAT_BLOCK_ROWS) {
        block.n_rows = min_i64(STAT_BLOCK_ROWS, end - block.row);
        job->block_fn(job->ctx, &block);
        for (uint32_t s = 0; s < job->n_stats; s++) {
            stat_flush(sums + (int64_t)s * 2 * n_channels, 2, n_channels, to[s] + channel,
                       job->channels);
        }
    }
}

static inline void unit_task(void *ctx, size_t task)
{
    const unit_job *job = ctx;
    const int64_t sample = (int64_t)task / job->units.per_sample;
    const int64_t first = (int64_t)task % job->units.per_sample * job->units.rows;
    const int64_t end = min_i64(job->rows_per_sample, first + job->units.rows);
    double *to[DUNLIN_EPILOGUE_MAX_STATS];
    const int64_t n = 2 * job->channels;
    for (uint32_t s = 0; s < job->n_stats; s++) {
        to[s] = job->partials + ((int64_t)task * job->n_stats + s) * n;
        memset(to[s], 0, (size_t)n * sizeof(double));
    }
    for (int64_t c = 0; c < job->channels; c += UNIT_CHANNELS) {
        unit_rows(job, sample, first, end, c, min_i64(UNIT_CHANNELS, job->channels - c), to);
    }
}

static inline void unit_channel_task(void *ctx, size_t task)
{
    const unit_job *job = ctx;
    const int64_t channel = (int64_t)task * job->part_channels;
    const int64_t n_channels = min_i64(job->part_channels, job->channels - channel);
    for (int64_t s = 0; s < job->n_samples; s++) {
        unit_rows(job, s, 0, job->rows_per_sample, channel, n_channels, job->sums);
    }
}

static inline void unit_run(unit_job *job, dunlin_threads *threads)
{
    const int64_t n_floats = job->n_samples * job->rows_per_sample * job->channels;
    for (uint32_t s = 0; s < job->n_stats && job->is_reset; s++) {
        memset(job->sums[s], 0, 2 * (size_t)job->channels * sizeof(double));
    }
    if (job->n_stats > 0 && job->rows_per_sample < DUNLIN_KERNEL_ROWS_PER_PARTIAL) {
        const int64_t parts = task_threads(threads) == 1 ? 1 : 2 * (int64_t)task_threads(threads);
        job->part_channels = min_i64(UNIT_CHANNELS, round_up(ceil_div(job->channels, parts), VEC));
        run_tasks(threads, unit_channel_task, job, ceil_div(job->channels, job->part_channels),
                  n_floats);
        return;
    }
    job->units = stat_units_of(job->rows_per_sample);
    const int64_t n_units = job->n_samples * job->units.per_sample;
    run_tasks(threads, unit_task, job, n_units, n_floats);
    stat_merge merge = {.partials = job->partials,
                        .n_units = n_units,
                        .n_stats = job->n_stats,
                        .n = 2 * job->channels};
    for (uint32_t s = 0; s < job->n_stats; s++) {
        merge.sums[s] = job->sums[s];
    }
    K(stat_merge)(&merge, threads);
}

/* The sink's statistics into a job. */
static inline void unit_take_epilogue(unit_job *job, const dunlin_epilogue *epilogue)
{
    job->n_stats = epilogue->n_stats;
    for (uint32_t s = 0; s < epilogue->n_stats; s++) {
        job->sums[s] = epilogue->stats[s].sums;
    }
}

#endif
