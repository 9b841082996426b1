/*
 * input_convert.c - converts images as the source gives them (planes of bytes or floats) to the
 * pixels that the network reads, and normalises them.
 */
#include "kernels/gemm/gemm.h"

typedef struct stage_job {
    int64_t pixels;
    int64_t blocks; /* of a sample */
    int64_t block_pixels;
    int32_t channels;
    const uint8_t *bytes; /* one of the two */
    const float *floats;
    float scale;
    const float *mean;
    const float *inv_std;
    float *y;
} stage_job;

static void stage_task(void *ctx, size_t task)
{
    const stage_job copy = *(const stage_job *)ctx; /* nothing that is stored changes it */
    const stage_job *job = &copy;
    const int64_t sample = (int64_t)task / job->blocks;
    const int64_t first = (int64_t)task % job->blocks * job->block_pixels;
    const int64_t end = min_i64(job->pixels, first + job->block_pixels);
    const int64_t channels = job->channels;
    float *y = job->y + sample * job->pixels * channels;
    for (int64_t c = 0; c < channels; c++) {
        const int64_t plane = (sample * channels + c) * job->pixels;
        const float scale = job->scale;
        const float mean = job->mean[c];
        const float inv_std = job->inv_std[c];
        if (job->bytes != NULL) {
            for (int64_t p = first; p < end; p++) {
                y[p * channels + c] = ((float)job->bytes[plane + p] * scale - mean) * inv_std;
            }
        } else {
            for (int64_t p = first; p < end; p++) {
                y[p * channels + c] = (job->floats[plane + p] * scale - mean) * inv_std;
            }
        }
    }
}

static void stage(stage_job *job, int64_t n, dunlin_threads *threads)
{
    job->block_pixels = max_i64(1, TASK_BLOCK / job->channels);
    job->blocks = ceil_div(job->pixels, job->block_pixels);
    run_tasks(threads, stage_task, job, n * job->blocks, n * job->pixels * job->channels);
}

// NOLINTNEXTLINE(readability-function-size): the table's signature
void K(stage_u8)(int64_t n, int64_t pixels, int32_t channels, const uint8_t *x, float scale,
                 const float *mean, const float *inv_std, float *y, dunlin_threads *threads)
{
    stage_job job = {.pixels = pixels,
                     .channels = channels,
                     .bytes = x,
                     .scale = scale,
                     .mean = mean,
                     .inv_std = inv_std};
    job.y = y;
    stage(&job, n, threads);
}

// NOLINTNEXTLINE(readability-function-size): the table's signature
void K(stage_f32)(int64_t n, int64_t pixels, int32_t channels, const float *x, float scale,
                  const float *mean, const float *inv_std, float *y, dunlin_threads *threads)
{
    stage_job job = {.pixels = pixels,
                     .channels = channels,
                     .floats = x,
                     .scale = scale,
                     .mean = mean,
                     .inv_std = inv_std};
    job.y = y;
    stage(&job, n, threads);
}
