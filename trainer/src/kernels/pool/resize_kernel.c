/*
 * resize_kernel.c - images of another size, each pixel interpolated between four, or the nearest
 * one; and the gradient.
 *
 * Which pixels, and their shares, is given for each row and each column by itself: they grow with
 * the output's rows and columns. The gradient of an input row gathers from the output rows that
 * read it, in their order, so no two tasks write the same row and no cut changes a bit.
 */
#include "kernels/gemm/gemm.h"

/* share a of one row of pixels and share b of another: out += is for gradients. */
ALWAYS_INLINE void blend_pixel(const float *top, const float *bottom, const dunlin_resize_tap *row,
                               const dunlin_resize_tap *column, int32_t channels, float *out)
{
    const vfloat low = vset1(1.0F - row->share);
    const vfloat high = vset1(row->share);
    const vfloat left = vset1(1.0F - column->share);
    const vfloat right = vset1(column->share);
    const int64_t first = (int64_t)column->first * channels;
    const int64_t second = (int64_t)column->second * channels;
    for (int32_t c = 0; c < channels; c += VEC) {
        const int32_t n = vec_left(channels, c);
        const vfloat above =
            vfma(right, vload_n(top + second + c, n), left * vload_n(top + first + c, n));
        const vfloat below =
            vfma(right, vload_n(bottom + second + c, n), left * vload_n(bottom + first + c, n));
        vstore_n(out + c, vfma(high, below, low * above), n);
    }
}

/* Adds a share of a pixel to another one. */
ALWAYS_INLINE void add_pixel(const float *from, float share, int32_t channels, float *to)
{
    const vfloat factor = vset1(share);
    for (int32_t c = 0; c < channels; c += VEC) {
        const int32_t n = vec_left(channels, c);
        vstore_n(to + c, vfma(factor, vload_n(from + c, n), vload_n(to + c, n)), n);
    }
}

/* Output row `y` of a sample. */
static void forward_row(const dunlin_resize_call *call, const float *x, int64_t y, float *out)
{
    const dunlin_resize_shape *s = call->shape;
    const dunlin_resize_tap *row = &call->rows[y];
    const int64_t pitch = (int64_t)s->in_w * s->channels;
    const float *top = x + row->first * pitch;
    const float *bottom = x + row->second * pitch;
    for (int32_t j = 0; j < s->out_w; j++, out += s->channels) {
        const dunlin_resize_tap *column = &call->columns[j];
        if (s->is_linear) {
            blend_pixel(top, bottom, row, column, s->channels, out);
        } else {
            vcopy(out, top + (int64_t)column->first * s->channels, s->channels);
        }
    }
}

/* What one output row gives an input row, of which it takes `share`. */
static void add_row(const dunlin_resize_call *call, const float *dy, float share, float *dx)
{
    const dunlin_resize_shape *s = call->shape;
    for (int32_t j = 0; j < s->out_w; j++, dy += s->channels) {
        const dunlin_resize_tap *column = &call->columns[j];
        const float right = share * column->share;
        float *to = dx + (int64_t)column->first * s->channels;
        add_pixel(dy, share * (1.0F - column->share), s->channels, to);
        if (column->second != column->first) {
            add_pixel(dy, right, s->channels, dx + (int64_t)column->second * s->channels);
        }
    }
}

/* The first output row that reads input row `at`, or one after it. */
static int64_t first_reader(const dunlin_resize_call *call, int64_t at)
{
    int64_t low = 0;
    int64_t high = call->shape->out_h;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (call->rows[middle].second < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Input row `at` of a sample. */
static void backward_row(const dunlin_resize_call *call, const float *dy, int64_t at, float *dx)
{
    const dunlin_resize_shape *s = call->shape;
    const int64_t pitch = (int64_t)s->out_w * s->channels;
    vclear(dx, (int64_t)s->in_w * s->channels);
    for (int64_t y = first_reader(call, at); y < s->out_h && call->rows[y].first <= at; y++) {
        const dunlin_resize_tap *row = &call->rows[y];
        if (row->first == at) {
            add_row(call, dy + y * pitch, 1.0F - row->share, dx);
        }
        if (row->second == at && row->second != row->first) {
            add_row(call, dy + y * pitch, row->share, dx);
        }
    }
}

typedef struct resize_job {
    const dunlin_resize_call *call;
    int64_t n_rows; /* written, of a sample */
    int64_t rows_of_task, n_all;
} resize_job;

static void resize_task(void *ctx, size_t task)
{
    const resize_job *job = ctx;
    const dunlin_resize_call *call = job->call;
    const dunlin_resize_shape *s = call->shape;
    const int64_t first = (int64_t)task * job->rows_of_task;
    const int64_t end = min_i64(job->n_all, first + job->rows_of_task);
    const int64_t in_pitch = (int64_t)s->in_w * s->channels;
    const int64_t out_pitch = (int64_t)s->out_w * s->channels;
    for (int64_t i = first; i < end; i++) {
        const int64_t sample = i / job->n_rows;
        if (call->is_backward) {
            backward_row(call, call->from + sample * s->out_h * out_pitch, i % job->n_rows,
                         call->to + i * in_pitch);
        } else {
            forward_row(call, call->from + sample * s->in_h * in_pitch, i % job->n_rows,
                        call->to + i * out_pitch);
        }
    }
}

void K(resize)(const dunlin_resize_call *call)
{
    const dunlin_resize_shape *s = call->shape;
    const int64_t width = (int64_t)max_i64(s->in_w, s->out_w) * s->channels;
    resize_job job = {.call = call, .n_rows = call->is_backward ? s->in_h : s->out_h};
    job.n_all = call->n_samples * job.n_rows;
    job.rows_of_task = max_i64(1, TASK_BLOCK / width);
    run_tasks(call->threads, resize_task, &job, ceil_div(job.n_all, job.rows_of_task),
              job.n_all * width);
}
