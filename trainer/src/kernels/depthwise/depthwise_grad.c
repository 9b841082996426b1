/*
 * depthwise_grad.c - the weight gradient of a depthwise convolution: dw[tap][c] = sum over pixels
 * of x[window, c] * dy[c].
 *
 * Threads share the channels. A channel's chain takes the pixels of the fixed blocks in order; taps
 * outside the image are left out.
 */
#include "kernels/gemm/gemm.h"

#define TILE_PIXELS 8

typedef struct depthwise_grad_job {
    const dunlin_conv_call *call;
    conv_view view;
    pixel_blocks blocks;
    float *partial; /* [tap][channel], of the block */
    int64_t part_channels;
} depthwise_grad_job;

/* A part of the channels and neighbouring pixels of one output row. */
typedef struct depthwise_span {
    const conv_view *view;
    const float *x;  /* the sample */
    const float *dy; /* of pixel u */
    float *sums;
    int64_t y, u; /* source row of tap row 0; output column */
    int64_t c0, c1;
} depthwise_span;

uint64_t K(depthwise_workspace_bytes)(const dunlin_conv_shape *shape)
{
    return (uint64_t)shape->kernel_h * (uint64_t)shape->kernel_w * (uint64_t)shape->out_c *
           sizeof(float);
}

/* One tap of `pixels` pixels, one vector of channels; pixel_step is the source's. */
ALWAYS_INLINE void span_tap(const float *x, int64_t pixel_step, const vfloat *dy, float *sum,
                            int32_t n, int pixels)
{
    vfloat s = vload_n(sum, n);
    UNROLL
    for (int p = 0; p < pixels; p++) {
        s = vfma(vload_n(x + p * pixel_step, n), dy[p], s);
    }
    vstore_n(sum, s, n);
}

/* All taps inside the image of one tile; n channels from c. */
ALWAYS_INLINE void span_vector(const depthwise_span *span, int64_t c, int32_t n, int pixels)
{
    const conv_view *view = span->view;
    const int64_t channels = view->out_pitch;
    vfloat dy[TILE_PIXELS];
    UNROLL
    for (int p = 0; p < pixels; p++) {
        dy[p] = vload_n(span->dy + p * channels + c, n);
    }
    for (int64_t i = 0; i < view->h.n_taps; i++) {
        int64_t y = span->y + i * view->h.pitch;
        if (y < 0 || y >= view->h.n_source) {
            continue;
        }
        for (int64_t j = 0; j < view->w.n_taps; j++) {
            int64_t x = span->u * view->w.step + view->w.offset + j * view->w.pitch;
            if (x < 0 || x + (int64_t)(pixels - 1) * view->w.step >= view->w.n_source) {
                continue; /* a tile lies whole inside, so only single pixels come here */
            }
            span_tap(span->x + (y * view->w.n_source + x) * channels + c, view->w.step * channels,
                     dy, span->sums + (i * view->w.n_taps + j) * channels + c, n, pixels);
        }
    }
}

/* All channels of the part, `pixels` neighbours. */
ALWAYS_INLINE void span_channels(const depthwise_span *span, int pixels)
{
    int64_t c = span->c0;
    for (; c + VEC <= span->c1; c += VEC) {
        span_vector(span, c, VEC, pixels);
    }
    if (c < span->c1) {
        span_vector(span, c, (int32_t)(span->c1 - c), pixels);
    }
}

/* At most `left` pixels; returns how many. */
static int64_t run_span(const depthwise_span *span, int64_t left)
{
    if (left >= 8) {
        span_channels(span, 8);
        return 8;
    }
    if (left >= 4) {
        span_channels(span, 4);
        return 4;
    }
    if (left >= 2) {
        span_channels(span, 2);
        return 2;
    }
    span_channels(span, 1);
    return 1;
}

/* Pixels [first, first + n) of all samples' rows. */
static void run_pixels(const depthwise_grad_job *job, depthwise_span *span, int64_t first,
                       int64_t n)
{
    const conv_view *view = span->view;
    const int64_t sample_floats = (int64_t)view->h.n_source * view->w.n_source * view->source_pitch;
    const conv_axis *w = &view->w;
    const int64_t reach = (int64_t)(w->n_taps - 1) * w->pitch;
    /* pixels before this column have all their taps before the source's end */
    const int64_t whole = w->n_source - 1 - w->offset - reach;
    const int64_t end = whole < 0 ? 0 : min_i64(w->n_grid, whole / w->step + 1);
    int64_t pixel = first;
    while (pixel < first + n) {
        int64_t within = pixel % job->blocks.rows_per_sample;
        span->x = job->call->x + pixel / job->blocks.rows_per_sample * sample_floats;
        span->dy = job->call->dy + pixel * view->out_pitch;
        span->y = within / w->n_grid * view->h.step + view->h.offset;
        span->u = within % w->n_grid;
        bool is_whole = span->u * w->step + w->offset >= 0;
        pixel += run_span(span, is_whole ? min_i64(end - span->u, first + n - pixel) : 1);
    }
}

static void clear_rows(const depthwise_span *span, int64_t n_taps)
{
    for (int64_t i = 0; i < n_taps; i++) {
        vclear(span->sums + i * span->view->out_pitch + span->c0, span->c1 - span->c0);
    }
}

static void add_rows(const depthwise_span *span, int64_t n_taps, float *to)
{
    for (int64_t i = 0; i < n_taps; i++) {
        const int64_t row = i * span->view->out_pitch;
        for (int64_t c = span->c0; c < span->c1; c++) {
            to[row + c] += span->sums[row + c];
        }
    }
}

static void depthwise_grad_task(void *ctx, size_t index)
{
    const depthwise_grad_job *job = ctx;
    const conv_view *view = &job->view;
    const int64_t n_taps = (int64_t)view->h.n_taps * view->w.n_taps;
    depthwise_span span = {.view = view};
    span.c0 = (int64_t)index * job->part_channels;
    span.c1 = min_i64(span.c0 + job->part_channels, view->out_pitch);
    for (int64_t b = 0; b < job->blocks.n_blocks; b++) {
        int64_t first = 0;
        int64_t n = 0;
        pixel_block_at(&job->blocks, b, &first, &n);
        gemm_start start = pixel_block_start(&job->blocks, b, job->call->is_reset);
        span.sums = start == GEMM_ADD ? job->partial : job->call->out;
        if (start != GEMM_CHAIN) {
            clear_rows(&span, n_taps);
        }
        run_pixels(job, &span, first, n);
        if (start == GEMM_ADD) {
            add_rows(&span, n_taps, job->call->out);
        }
    }
}

void K(depthwise_weight_grad)(const dunlin_conv_call *call)
{
    depthwise_grad_job job = {.call = call, .partial = call->workspace};
    dunlin__view_forward(call->shape, &job.view);
    job.blocks = pixel_blocks_make(view_rows(&job.view), call->n_samples);
    const int64_t channels = call->shape->out_c;
    const int64_t threads = (int64_t)task_threads(call->threads);
    job.part_channels = round_up(ceil_div(channels, threads), VEC);
    run_tasks(call->threads, depthwise_grad_task, &job, ceil_div(channels, job.part_channels),
              job.blocks.n_rows * channels);
}
