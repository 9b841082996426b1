/*
 * pool_grad.c - gradients of pooling, gathered: a task is one row of the input, which sums what the
 * windows over it send back, in the windows' order. No two tasks write the same element.
 */
#include "isa.h"
#include "window.h"

typedef struct pool_grad_job {
    const dunlin_pool_shape *shape;
    const float *dy;
    const uint8_t *index; /* NULL: average */
    float *dx;
} pool_grad_job;

/* What the winner of tap `tap` gets. */
static void send_back(const float *dy, const uint8_t *index, uint8_t tap, int64_t channels,
                      float *dx)
{
    for (int64_t c = 0; c < channels; c++) {
        dx[c] += index[c] == tap ? dy[c] : 0.0f;
    }
}

static void share_back(const float *dy, float factor, int64_t channels, float *dx)
{
    for (int64_t c = 0; c < channels; c++) {
        dx[c] += dy[c] * factor;
    }
}

/* From the windows of output row oy to pixel (iy, ix). */
static void gather_row(const pool_grad_job *job, int64_t sample, int64_t oy, int64_t iy, int64_t ix)
{
    const dunlin_pool_shape *shape = job->shape;
    const int64_t channels = shape->channels;
    float *dx = job->dx + ((sample * shape->in_h + iy) * shape->in_w + ix) * channels;
    int64_t first = 0;
    int64_t end = 0;
    pool_windows_over(ix, shape->kernel_w, shape->stride_w, shape->pad_left, shape->out_w, &first,
                      &end);
    for (int64_t ox = first; ox < end; ox++) {
        pool_window window = pool_window_at(shape, oy, ox);
        int64_t at = ((sample * shape->out_h + oy) * shape->out_w + ox) * channels;
        if (job->index != NULL) {
            int64_t tap = (iy - window.y) * shape->kernel_w + (ix - window.x);
            send_back(job->dy + at, job->index + at, (uint8_t)tap, channels, dx);
        } else {
            share_back(job->dy + at, pool_factor(shape, &window), channels, dx);
        }
    }
}

static void pool_grad_task(void *ctx, size_t task)
{
    const pool_grad_job *job = ctx;
    const dunlin_pool_shape *shape = job->shape;
    const int64_t sample = (int64_t)task / shape->in_h;
    const int64_t iy = (int64_t)task % shape->in_h;
    const size_t row_floats = (size_t)shape->in_w * (size_t)shape->channels;
    memset(job->dx + task * row_floats, 0, row_floats * sizeof(float));
    int64_t first = 0;
    int64_t end = 0;
    pool_windows_over(iy, shape->kernel_h, shape->stride_h, shape->pad_top, shape->out_h, &first,
                      &end);
    for (int64_t ix = 0; ix < shape->in_w; ix++) {
        for (int64_t oy = first; oy < end; oy++) {
            gather_row(job, sample, oy, iy, ix);
        }
    }
}

void K(max_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy,
                      const uint8_t *index, float *dx, pthreadpool_t threads)
{
    pool_grad_job job = {.shape = shape, .dy = dy, .index = index};
    job.dx = dx;
    run_tasks(threads, pool_grad_task, &job, n * shape->in_h,
              n * shape->in_h * shape->in_w * shape->channels);
}

void K(average_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy, float *dx,
                          pthreadpool_t threads)
{
    pool_grad_job job = {.shape = shape, .dy = dy};
    job.dx = dx;
    run_tasks(threads, pool_grad_task, &job, n * shape->in_h,
              n * shape->in_h * shape->in_w * shape->channels);
}
