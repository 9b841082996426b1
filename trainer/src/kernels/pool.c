/*
 * pool.c - max and average pooling, forward. A task is one output row; channels run innermost.
 *
 * Padding never wins a maximum and adds nothing to an average. A window with no pixel at all gives
 * zero.
 */
#include "isa.h"
#include "window.h"

typedef struct pool_job {
    const dunlin_pool_shape *shape;
    const float *x;
    float *y;
    uint8_t *index;
} pool_job;

#define NO_WINNER 255

static void first_candidate(const float *x, int64_t channels, uint8_t tap, float *y, uint8_t *index)
{
    memcpy(y, x, (size_t)channels * sizeof(float));
    if (index != NULL) {
        memset(index, tap, (size_t)channels);
    }
}

/* Ties stay with the first; not-a-number wins and stays, so that it is seen. */
static void candidate(const float *x, int64_t channels, uint8_t tap, float *y, uint8_t *index)
{
    if (index == NULL) {
        for (int64_t c = 0; c < channels; c++) {
            bool wins = x[c] > y[c] || x[c] != x[c];
            y[c] = wins ? x[c] : y[c];
        }
        return;
    }
    for (int64_t c = 0; c < channels; c++) {
        bool wins = x[c] > y[c] || x[c] != x[c];
        y[c] = wins ? x[c] : y[c];
        index[c] = wins ? tap : index[c];
    }
}

static void max_pixel(const pool_job *job, const pool_window *window, const float *sample, float *y,
                      uint8_t *index)
{
    const dunlin_pool_shape *shape = job->shape;
    const int64_t channels = shape->channels;
    if (window->first_h >= window->end_h || window->first_w >= window->end_w) {
        memset(y, 0, (size_t)channels * sizeof(float));
        if (index != NULL) {
            memset(index, NO_WINNER, (size_t)channels);
        }
        return;
    }
    bool is_first = true;
    for (int64_t i = window->first_h; i < window->end_h; i++) {
        for (int64_t j = window->first_w; j < window->end_w; j++) {
            const float *x = sample + ((window->y + i) * shape->in_w + window->x + j) * channels;
            uint8_t tap = (uint8_t)(i * shape->kernel_w + j);
            if (is_first) {
                first_candidate(x, channels, tap, y, index);
            } else {
                candidate(x, channels, tap, y, index);
            }
            is_first = false;
        }
    }
}

static void max_task(void *ctx, size_t task)
{
    const pool_job *job = ctx;
    const dunlin_pool_shape *shape = job->shape;
    const int64_t sample = (int64_t)task / shape->out_h;
    const int64_t oy = (int64_t)task % shape->out_h;
    const float *x = job->x + sample * shape->in_h * shape->in_w * shape->channels;
    const int64_t row = (int64_t)task * shape->out_w * shape->channels;
    for (int64_t ox = 0; ox < shape->out_w; ox++) {
        pool_window window = pool_window_at(shape, oy, ox);
        int64_t at = row + ox * shape->channels;
        max_pixel(job, &window, x, job->y + at, job->index == NULL ? NULL : job->index + at);
    }
}

void K(max_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                 uint8_t *index, pthreadpool_t threads)
{
    pool_job job = {.shape = shape, .x = x};
    job.y = y;
    job.index = index;
    run_tasks(threads, max_task, &job, n * shape->out_h,
              n * shape->in_h * shape->in_w * shape->channels);
}

static void average_task(void *ctx, size_t task)
{
    const pool_job *job = ctx;
    const dunlin_pool_shape *shape = job->shape;
    const int64_t channels = shape->channels;
    const int64_t sample = (int64_t)task / shape->out_h;
    const int64_t oy = (int64_t)task % shape->out_h;
    const float *x = job->x + sample * shape->in_h * shape->in_w * channels;
    for (int64_t ox = 0; ox < shape->out_w; ox++) {
        pool_window window = pool_window_at(shape, oy, ox);
        float *y = job->y + ((int64_t)task * shape->out_w + ox) * channels;
        memset(y, 0, (size_t)channels * sizeof(float));
        for (int64_t i = window.first_h; i < window.end_h; i++) {
            const float *from = x + ((window.y + i) * shape->in_w + window.x) * channels;
            for (int64_t j = window.first_w; j < window.end_w; j++) {
                for (int64_t c = 0; c < channels; c++) {
                    y[c] += from[j * channels + c];
                }
            }
        }
        const float factor = pool_factor(shape, &window);
        for (int64_t c = 0; c < channels; c++) {
            y[c] *= factor;
        }
    }
}

void K(average_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                     pthreadpool_t threads)
{
    pool_job job = {.shape = shape, .x = x};
    job.y = y;
    run_tasks(threads, average_task, &job, n * shape->out_h,
              n * shape->in_h * shape->in_w * shape->channels);
}
