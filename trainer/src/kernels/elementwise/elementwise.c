/*
 * elementwise.c - kernels that work element by element: clip, add, dropout, rows moved or
 * transposed.
 *
 * Each element is read before it is written, so a buffer may be its own output where the header
 * says so.
 */
#include "kernels/gemm/gemm.h"

typedef struct pointwise_job {
    int64_t n;
    const float *a;
    const float *b;
    float low, high;
    float *out;
} pointwise_job;

static int64_t block_end(const pointwise_job *job, size_t task)
{
    return min_i64(job->n, ((int64_t)task + 1) * TASK_BLOCK);
}

static void clip_task(void *ctx, size_t task)
{
    const pointwise_job *job = ctx;
    const float low = job->low;
    const float high = job->high;
    const float *x = job->a;
    float *y = job->out;
    /* Not-a-number passes. */
    for (int64_t i = (int64_t)task * TASK_BLOCK; i < block_end(job, task); i++) {
        float v = x[i] < low ? low : x[i];
        y[i] = v > high ? high : v;
    }
}

void K(clip)(int64_t n, const float *x, float low, float high, float *y, dunlin_threads *threads)
{
    pointwise_job job = {.n = n, .a = x, .low = low, .high = high};
    job.out = y;
    run_tasks(threads, clip_task, &job, ceil_div(n, TASK_BLOCK), n);
}

static void clip_grad_task(void *ctx, size_t task)
{
    const pointwise_job *job = ctx;
    const float low = job->low;
    const float high = job->high;
    const float *dy = job->a;
    const float *y = job->b;
    float *dx = job->out;
    const int64_t end = block_end(job, task);
    for (int64_t i = (int64_t)task * TASK_BLOCK; i < end; i++) {
        float v = y[i];
        dx[i] = v > low && v < high ? dy[i] : 0.0f;
    }
}

void K(clip_grad)(int64_t n, const float *dy, const float *y, float low, float high, float *dx,
                  dunlin_threads *threads)
{
    pointwise_job job = {.n = n, .a = dy, .b = y, .low = low, .high = high};
    job.out = dx;
    run_tasks(threads, clip_grad_task, &job, ceil_div(n, TASK_BLOCK), n);
}

static void add_task(void *ctx, size_t task)
{
    const pointwise_job *job = ctx;
    const float *a = job->a;
    const float *b = job->b;
    float *out = job->out;
    const int64_t end = block_end(job, task);
    for (int64_t i = (int64_t)task * TASK_BLOCK; i < end; i++) {
        out[i] = a[i] + b[i];
    }
}

void K(add)(int64_t n, const float *a, const float *b, float *out, dunlin_threads *threads)
{
    pointwise_job job = {.n = n, .a = a, .b = b};
    job.out = out;
    run_tasks(threads, add_task, &job, ceil_div(n, TASK_BLOCK), n);
}

typedef struct rows_job {
    int64_t n_rows, width;
    int64_t rows_of_task;
    const float *from;
    int64_t from_pitch;
    float *to;
    int64_t to_pitch;
} rows_job;

static void rows_task(void *ctx, size_t task)
{
    const rows_job *job = ctx;
    const int64_t first = (int64_t)task * job->rows_of_task;
    const int64_t end = min_i64(job->n_rows, first + job->rows_of_task);
    for (int64_t i = first; i < end; i++) {
        vcopy(job->to + i * job->to_pitch, job->from + i * job->from_pitch, job->width);
    }
}

void K(copy_rows)(int64_t n_rows, int64_t width, const float *from, int64_t from_pitch, float *to,
                  int64_t to_pitch, dunlin_threads *threads)
{
    rows_job job = {.n_rows = n_rows,
                    .width = width,
                    .rows_of_task = max_i64(1, TASK_BLOCK / max_i64(1, width)),
                    .from = from,
                    .from_pitch = from_pitch,
                    .to_pitch = to_pitch};
    job.to = to;
    run_tasks(threads, rows_task, &job, ceil_div(n_rows, job.rows_of_task), n_rows * width);
}

/* A block of rows of one sample; both sides of a block fit in the first cache. */
#define TURN_BLOCK 64

typedef struct transpose_job {
    int64_t rows, columns;
    int64_t row_blocks;
    const float *x;
    float *y;
} transpose_job;

static void transpose_task(void *ctx, size_t task)
{
    const transpose_job *job = ctx;
    const int64_t sample = (int64_t)task / job->row_blocks;
    const int64_t row = (int64_t)task % job->row_blocks * TURN_BLOCK;
    const int64_t n_rows = min_i64(TURN_BLOCK, job->rows - row);
    const float *x = job->x + (sample * job->rows + row) * job->columns;
    float *y = job->y + sample * job->rows * job->columns + row;
    for (int64_t c = 0; c < job->columns; c += TURN_BLOCK) {
        int64_t n_columns = min_i64(TURN_BLOCK, job->columns - c);
        K(transpose_block)(x + c, job->columns, n_rows, n_columns, y + c * job->rows, job->rows);
    }
}

void K(transpose)(int64_t n, int64_t rows, int64_t columns, const float *x, float *y,
                  dunlin_threads *threads)
{
    transpose_job job = {
        .rows = rows, .columns = columns, .row_blocks = ceil_div(rows, TURN_BLOCK), .x = x};
    job.y = y;
    run_tasks(threads, transpose_task, &job, n * job.row_blocks, n * rows * columns);
}

typedef struct dropout_job {
    int64_t n;
    uint64_t first; /* counter of element 0 */
    uint64_t key;
    uint32_t threshold; /* draws below are dropped */
    float scale;
    const float *x;
    float *y;
} dropout_job;

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014) over key and counter: 64 bits that serve
 * two elements. */
static inline uint64_t draw(uint64_t key, uint64_t counter)
{
    uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

static void dropout_task(void *ctx, size_t task)
{
    const dropout_job job = *(const dropout_job *)ctx; /* a copy: nothing stored changes it */
    const int64_t end = min_i64(job.n, ((int64_t)task + 1) * TASK_BLOCK);
    for (int64_t i = (int64_t)task * TASK_BLOCK; i < end; i++) {
        uint64_t at = job.first + (uint64_t)i;
        uint64_t bits = draw(job.key, at >> 1);
        uint32_t half = (uint32_t)(bits >> ((at & 1) * 32));
        const float x = job.x[i]; /* read in any case: no branch on a draw */
        job.y[i] = half >= job.threshold ? x * job.scale : 0.0f;
    }
}

// NOLINTNEXTLINE(readability-function-size): the table's signature
void K(dropout)(int64_t first_sample, int64_t n_samples, int64_t n_elements, float ratio,
                uint64_t key, const float *x, float *y, dunlin_threads *threads)
{
    const double threshold = (double)ratio * 0x1p32;
    dropout_job job = {.n = n_samples * n_elements,
                       .first = (uint64_t)first_sample * (uint64_t)n_elements,
                       .key = key,
                       .threshold = threshold >= 0x1p32 - 1.0 ? UINT32_MAX : (uint32_t)threshold,
                       .scale = ratio < 1.0f ? 1.0f / (1.0f - ratio) : 0.0f,
                       .x = x};
    job.y = y;
    run_tasks(threads, dropout_task, &job, ceil_div(job.n, TASK_BLOCK), job.n);
}
