/*
 * depthwise.c - depthwise convolution, forward and input gradient: each channel with its own
 * window, vectors along the channels, a few pixels of a row at once so that a weight is loaded once
 * for all of them.
 *
 * A pixel's chain takes its taps in the kernel's order and leaves out those outside the image, the
 * same in the middle of a tile and at the border.
 */
#include "kernels/gemm/gemm.h"

#define TILE_PIXELS 8

typedef struct depthwise_job {
    const conv_view *view;
    const float *x;
    const float *w;
    const float *bias;
    float *out;
} depthwise_job;

/* Pixels of one grid row that share their taps. */
typedef struct depthwise_row {
    const conv_view *view;
    const float *x; /* the sample */
    const float *w;
    const float *bias;
    float *out;                /* of the row's first pixel */
    int64_t first_h, end_h, y; /* rows of taps inside; source row of tap row 0 */
    int64_t first_w, end_w;    /* columns of taps inside */
} depthwise_row;

/* The taps [first, end) of grid pixel t that lie inside the source. */
static void taps_inside(const conv_axis *axis, int64_t t, int64_t *out_first, int64_t *out_end)
{
    int64_t start = t * axis->step + axis->offset;
    int64_t first = 0;
    while (first < axis->n_taps && start + first * axis->pitch < 0) {
        first++;
    }
    int64_t end = axis->n_taps;
    while (end > first && start + (end - 1) * axis->pitch >= axis->n_source) {
        end--;
    }
    *out_first = first;
    *out_end = end;
}

/* `pixels` neighbours from grid column u, channels [c, c + n), n <= VEC. */
ALWAYS_INLINE void depthwise_tile(const depthwise_row *row, int64_t u, int64_t c, int32_t n,
                                  int pixels)
{
    const conv_view *view = row->view;
    const int64_t channels = view->source_pitch;
    vfloat sum[TILE_PIXELS];
    const vfloat start = row->bias == NULL ? vzero() : vload_n(row->bias + c, n);
    UNROLL
    for (int p = 0; p < pixels; p++) {
        sum[p] = start;
    }
    const int64_t pixel_step = view->w.step * channels;
    for (int64_t i = row->first_h; i < row->end_h; i++) {
        int64_t y = row->y + i * view->h.pitch;
        int64_t x = u * view->w.step + view->w.offset + row->first_w * view->w.pitch;
        const float *from = row->x + (y * view->w.n_source + x) * channels + c;
        int64_t tap = view_tap(view, i * view->w.n_taps + row->first_w);
        const float *w = row->w + tap * channels + c;
        for (int64_t j = row->first_w; j < row->end_w; j++) {
            const vfloat weight = vload_n(w, n);
            UNROLL
            for (int p = 0; p < pixels; p++) {
                sum[p] = vfma(vload_n(from + p * pixel_step, n), weight, sum[p]);
            }
            from += view->w.pitch * channels;
            w += view->w.tap_step * channels;
        }
    }
    float *out = row->out + u * view->w.out_step * channels + c;
    UNROLL
    for (int p = 0; p < pixels; p++) {
        vstore_n(out + p * view->w.out_step * channels, sum[p], n);
    }
}

/* All channels of `pixels` neighbours. */
ALWAYS_INLINE void depthwise_span(const depthwise_row *row, int64_t u, int pixels)
{
    const int64_t channels = row->view->source_pitch;
    int64_t c = 0;
    for (; c + VEC <= channels; c += VEC) {
        depthwise_tile(row, u, c, VEC, pixels);
    }
    if (c < channels) {
        depthwise_tile(row, u, c, (int32_t)(channels - c), pixels);
    }
}

/* At most `left` pixels that share the taps of pixel u; returns how many. */
static int64_t run_span(const depthwise_row *row, int64_t u, int64_t left)
{
    switch (min_i64(left, TILE_PIXELS)) {
    case 8:
        depthwise_span(row, u, 8);
        return 8;
    case 7:
    case 6:
        depthwise_span(row, u, 6);
        return 6;
    case 5:
    case 4:
        depthwise_span(row, u, 4);
        return 4;
    case 3:
    case 2:
        depthwise_span(row, u, 2);
        return 2;
    default:
        depthwise_span(row, u, 1);
        return 1;
    }
}

/* One grid row of one sample. */
static void depthwise_task(void *ctx, size_t index)
{
    const depthwise_job *job = ctx;
    const conv_view *view = job->view;
    const int64_t sample = (int64_t)index / view->h.n_grid;
    const int64_t t = (int64_t)index % view->h.n_grid;
    const int64_t sample_pixels = (int64_t)view->h.n_source * view->w.n_source;
    depthwise_row row = {.view = view,
                         .x = job->x + sample * sample_pixels * view->source_pitch,
                         .w = job->w,
                         .bias = job->bias,
                         .out = job->out + view_out_pixel(view, sample, t, 0) * view->out_pitch,
                         .y = t * view->h.step + view->h.offset};
    taps_inside(&view->h, t, &row.first_h, &row.end_h);
    if (view->w.n_taps == 0) {
        /* A phase of a strided input gradient that no tap meets: zeros. */
        row.end_h = row.first_h;
    }
    const conv_axis *w = &view->w;
    const int64_t reach = (int64_t)(w->n_taps - 1) * w->pitch;
    /* the last pixel whose taps all lie before the source's end */
    const int64_t whole = w->n_source - 1 - w->offset - reach;
    const int64_t end = whole < 0 ? 0 : min_i64(w->n_grid, whole / w->step + 1);
    int64_t u = 0;
    while (u < w->n_grid) {
        taps_inside(w, u, &row.first_w, &row.end_w);
        bool is_whole = row.first_w == 0 && row.end_w == w->n_taps;
        u += run_span(&row, u, is_whole ? max_i64(1, end - u) : 1);
    }
}

void K(depthwise)(const conv_view *view, const dunlin_conv_call *call, const float *x,
                  const float *bias)
{
    depthwise_job job = {.view = view, .x = x, .w = call->w, .bias = bias, .out = call->out};
    const int64_t n_rows = call->n_samples * view->h.n_grid;
    run_tasks(call->threads, depthwise_task, &job, view->w.n_grid == 0 ? 0 : n_rows,
              n_rows * view->w.n_grid * view->out_pitch);
}
