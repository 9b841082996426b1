/*
 * merge.c - adds the units' partial sums in the units' order. Threads share the channels, so no bit
 * depends on their number.
 */
#include "sink.h"

#define MERGE_LINE 8 /* doubles: nobody writes into another's line */

typedef struct merge_job {
    const stat_merge *merge;
    int64_t width, n_parts; /* doubles of a part; of a statistic */
} merge_job;

static void merge_task(void *ctx, size_t task)
{
    const merge_job *job = ctx;
    const stat_merge *merge = job->merge;
    const int64_t stat = (int64_t)task / job->n_parts;
    const int64_t first = (int64_t)task % job->n_parts * job->width;
    const int64_t end = min_i64(merge->n, first + job->width);
    const int64_t pitch = merge->n_stats * merge->n;
    double *sums = merge->sums[stat];
    for (int64_t u = 0; u < merge->n_units; u++) {
        const double *partials = merge->partials + u * pitch + stat * merge->n;
        for (int64_t i = first; i < end; i++) {
            sums[i] += partials[i];
        }
    }
}

void K(stat_merge)(const stat_merge *merge, dunlin_threads *threads)
{
    const int64_t wanted = (int64_t)task_threads(threads);
    merge_job job = {.merge = merge, .width = round_up(ceil_div(merge->n, wanted), MERGE_LINE)};
    job.n_parts = ceil_div(merge->n, max_i64(1, job.width));
    run_tasks(threads, merge_task, &job, merge->n_stats * job.n_parts,
              2 * merge->n_units * merge->n_stats * merge->n);
}
