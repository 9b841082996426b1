/*
 * depthwise_forward.c - a fused depthwise convolution. The usual kernels go band by band through
 * the tiles of depthwise_tile.h. For others each source row is normalised once into a ring, a few
 * neighbours of an output row are computed at once, and the row is summed while it is warm.
 *
 * A pixel's chain begins with the bias and takes its taps in the kernel's
 * order; a tap outside the image is a zero.
 */
#include "depthwise_tile.h"
#include "kernels/gemm/gemm.h"

#include <math.h>

#define FORWARD_PIXELS 8
#define BAND_ROWS 16         /* of the source; with a tile's columns at most a block of the sums */
#define PREFETCH_FLOATS 1024 /* of a row; a tile's time must cover what memory takes */
#define LARGE_FLOATS (2 << 20) /* of source and output together: 8 MiB */

typedef struct forward_job {
    const dunlin_fused_call *call;
    strip_units units;
    row_ring ring;
    int64_t worker_floats;
    bool is_tiled, is_streamed;
    bool is_large; /* more than caches hold: memory is asked for ahead */
    float *workspace;
    double *partials; /* [strip][2][channels] */
    shares shared;
} forward_job;

/* A worker's memory and the row it works on. */
typedef struct forward_worker {
    const forward_job *job;
    row_ring ring;
    float *w;           /* [tap][width] of the part */
    float *bias;        /* width */
    float *ones;        /* width */
    float *sums;        /* 2 x n_channels */
    const float **taps; /* source rows of the output row */
    int64_t n_channels;
    float *y;               /* the row */
    prefetch_list prefetch; /* rows that come soon */
} forward_worker;

/* Shapes that need no ring. */
static bool tiled_is_for(const dunlin_conv_shape *shape)
{
    return shape->kernel_h == TILE_TAPS && shape->kernel_w == TILE_TAPS && shape->dilation_h == 1 &&
           shape->dilation_w == 1 && shape->stride_h == shape->stride_w && shape->stride_w <= 2 &&
           shape->out_c % VEC == 0 && shape->out_w >= TILE_PIXELS;
}

static row_ring ring_of(const dunlin_conv_shape *shape)
{
    if (tiled_is_for(shape)) {
        return (row_ring){.pixels = 1};
    }
    row_ring ring = {.n_rows = (int64_t)(shape->kernel_h - 1) * shape->dilation_h + 1,
                     .left = shape->pad_left,
                     .n_source = shape->in_h};
    const int64_t reach = (int64_t)(shape->out_w - 1) * shape->stride_w +
                          (int64_t)(shape->kernel_w - 1) * shape->dilation_w + 1;
    ring.pixels = max_i64(ring.left + shape->in_w, reach);
    return ring;
}

/* Floats of a channel in a worker: ring and zeros, weights, bias, ones, sums. */
static int64_t channel_floats(const dunlin_conv_shape *shape)
{
    const row_ring ring = ring_of(shape);
    return (ring.n_rows + 1) * ring.pixels + (int64_t)shape->kernel_h * shape->kernel_w + 4;
}

static int64_t worker_floats(const dunlin_conv_shape *shape)
{
    const int64_t floats = channel_floats(shape);
    return round_up(floats * (part_most(shape->out_c, floats) + VEC), 16) +
           pointer_floats(shape->kernel_h);
}

uint64_t K(depthwise_forward_workspace)(const dunlin_conv_shape *shape, size_t n_threads,
                                        uint64_t *out_sample_bytes)
{
    const strip_units units = strips_of(shape->out_h, shape->out_w);
    *out_sample_bytes =
        units.is_few ? 0 : (uint64_t)units.n_strips * 2 * (uint64_t)shape->out_c * sizeof(double);
    return (n_threads == 0 ? 1 : n_threads) * (uint64_t)worker_floats(shape) * sizeof(float);
}

/* `pixels` neighbours from column u on, one vector of channels; n channels are stored. */
ALWAYS_INLINE void forward_tile(forward_worker *worker, int64_t u, int64_t c, int32_t n, int pixels,
                                bool is_three)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_conv_shape *shape = call->shape;
    const int64_t width = worker->ring.width;
    const int64_t step = shape->stride_w * width;
    const float *w = worker->w + c;
    prefetch_some(&worker->prefetch);
    vfloat sum[FORWARD_PIXELS];
    UNROLL
    for (int p = 0; p < pixels; p++) {
        sum[p] = vload(worker->bias + c);
    }
    for (int32_t i = 0; i < shape->kernel_h; i++) {
        const float *from = worker->taps[i] + u * step + c;
        if (is_three) {
            const vfloat w0 = vload(w);
            const vfloat w1 = vload(w + width);
            const vfloat w2 = vload(w + 2 * width);
            UNROLL
            for (int p = 0; p < pixels; p++) {
                const float *x = from + p * step;
                sum[p] = vfma(vload(x), w0, sum[p]);
                sum[p] = vfma(vload(x + width), w1, sum[p]);
                sum[p] = vfma(vload(x + 2 * width), w2, sum[p]);
            }
        } else {
            for (int32_t j = 0; j < shape->kernel_w; j++) {
                const vfloat weight = vload(w + j * width);
                const float *x = from + (int64_t)j * shape->dilation_w * width;
                UNROLL
                for (int p = 0; p < pixels; p++) {
                    sum[p] = vfma(vload(x + p * step), weight, sum[p]);
                }
            }
        }
        w += shape->kernel_w * width;
    }
    float *y = worker->y + u * call->y_pitch + c;
    const vfloat low = vset1(call->low);
    const vfloat high = vset1(call->high);
    UNROLL
    for (int p = 0; p < pixels; p++) {
        vstore_n(y + p * call->y_pitch, vclip(sum[p], low, high), n);
    }
}

ALWAYS_INLINE void forward_span(forward_worker *worker, int64_t u, int pixels, bool is_three)
{
    int64_t c = 0;
    for (; c + VEC <= worker->n_channels; c += VEC) {
        forward_tile(worker, u, c, VEC, pixels, is_three);
    }
    if (c < worker->n_channels) {
        forward_tile(worker, u, c, (int32_t)(worker->n_channels - c), pixels, is_three);
    }
}

/* Tiles that would hang over the end begin earlier: a pixel computed twice is
 * the same. */
ALWAYS_INLINE void forward_row(forward_worker *worker, int64_t n, bool is_three)
{
    if (n >= FORWARD_PIXELS) {
        for (int64_t u = 0; u < n; u += FORWARD_PIXELS) {
            forward_span(worker, min_i64(u, n - FORWARD_PIXELS), FORWARD_PIXELS, is_three);
        }
    } else if (n >= 4) {
        forward_span(worker, 0, 4, is_three);
        if (n > 4) {
            forward_span(worker, n - 4, 4, is_three);
        }
    } else {
        for (int64_t u = 0; u < n; u++) {
            forward_span(worker, u, 1, is_three);
        }
    }
}

/* Sums of the row just written, in pieces of a block; full chains go to `to`.
 */
static void sum_row(forward_worker *worker, const strip_unit *unit, int64_t *count, double *to)
{
    const dunlin_fused_call *call = worker->job->call;
    const int64_t n = call->shape->out_w;
    const int64_t n_channels = unit->n_channels;
    for (int64_t u = 0; u < n; u += STAT_BLOCK_ROWS) {
        const int64_t pixels = min_i64(STAT_BLOCK_ROWS, n - u);
        if (chain_is_full(*count, pixels, STAT_BLOCK_ROWS)) {
            stat_flush(worker->sums, 2, n_channels, to, call->shape->out_c);
            *count = 0;
        }
        K(stat_rows)
        (worker->y + u * call->y_pitch, call->y_pitch, pixels, n_channels,
         call->stat.about + unit->channel, worker->sums);
        *count += pixels;
    }
}

static void load_row(forward_worker *worker, const strip_unit *unit, int64_t sample, int64_t y)
{
    const dunlin_fused_call *call = worker->job->call;
    const row_ring *ring = &worker->ring;
    load_rows load = {.pixel = (sample * call->shape->in_h + y) * call->shape->in_w,
                      .pixel_step = 1,
                      .n_rows = call->shape->in_w,
                      .channel = unit->channel,
                      .n_channels = unit->n_channels,
                      .out_pitch = ring->width,
                      .prefetch = &worker->prefetch};
    load.out = ring_slot(ring, y) + ring->left * ring->width;
    K(view_rows)(&call->x, &load);
}

/* What the output row after t takes in and writes. */
static void look_prefetch(forward_worker *worker, const strip_unit *unit, int64_t sample, int64_t t,
                          int64_t next_x)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_conv_shape *shape = call->shape;
    worker->prefetch = (prefetch_list){.part = 0};
    if (worker->job->is_large && t + 1 < shape->out_h) {
        const int64_t n = unit->n_channels;
        const int64_t lines = min_i64(shape->stride_h, shape->in_h - next_x);
        prefetch_stored(&worker->prefetch, call->x.x, call->x.is_half, call->x.pitch, n,
                        (sample * shape->in_h + next_x) * shape->in_w, lines * shape->in_w);
        prefetch_rows(&worker->prefetch, call->y, call->y_pitch, n,
                      (sample * shape->out_h + t + 1) * shape->out_w, shape->out_w);
    }
}

/* The unit's rows of one sample. */
static void run_strip(forward_worker *worker, const strip_unit *unit, int64_t sample, double *to)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_conv_shape *shape = call->shape;
    const bool is_three = shape->kernel_w == 3 && shape->dilation_w == 1;
    int64_t count = 0;
    worker->ring.next = max_i64(0, unit->first * shape->stride_h - shape->pad_top);
    for (int64_t t = unit->first; t < unit->end; t++) {
        const int64_t top = t * shape->stride_h - shape->pad_top;
        const int64_t last = top + (int64_t)(shape->kernel_h - 1) * shape->dilation_h;
        look_prefetch(worker, unit, sample, t, min_i64(last, shape->in_h - 1) + 1);
        for (; worker->ring.next <= min_i64(last, shape->in_h - 1); worker->ring.next++) {
            load_row(worker, unit, sample, worker->ring.next);
        }
        for (int32_t i = 0; i < shape->kernel_h; i++) {
            worker->taps[i] = ring_row(&worker->ring, top + (int64_t)i * shape->dilation_h);
        }
        worker->y = call->y + ((sample * shape->out_h + t) * shape->out_w) * call->y_pitch;
        worker->y += unit->channel;
        if (is_three) {
            forward_row(worker, shape->out_w, true);
        } else {
            forward_row(worker, shape->out_w, false);
        }
        if (to != NULL) {
            sum_row(worker, unit, &count, to);
        }
    }
    if (to != NULL) {
        stat_flush(worker->sums, 2, unit->n_channels, to, shape->out_c);
    }
}

/* The band's tile without its columns. */
static band_tile tile_of(const forward_worker *worker, const strip_unit *unit, int64_t sample,
                         int64_t t, int64_t n_rows)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_conv_shape *shape = call->shape;
    const int64_t top = t * shape->stride_h - shape->pad_top;
    const bool is_viewed = call->x.scale != NULL;
    const bool is_clipped = is_viewed && call->x.fn == DUNLIN_VIEW_CLIP;
    const float *zeros = worker->ring.zeros;
    band_tile tile = {.x_row = shape->in_w * call->x.pitch,
                      .x_pixel = call->x.pitch,
                      .y_row = shape->out_w * call->y_pitch,
                      .y_pixel = call->y_pitch,
                      .n_rows = n_rows,
                      .first_row = max_i64(0, -top),
                      .end_row = shape->in_h - top,
                      .w = worker->w,
                      .bias = worker->bias,
                      .scale = is_viewed ? call->x.scale + unit->channel : worker->ones,
                      .shift = is_viewed ? call->x.shift + unit->channel : zeros,
                      .about = call->stat.sums == NULL ? zeros : call->stat.about + unit->channel,
                      .w_tap = worker->ring.width,
                      .sums = worker->sums,
                      .squares = worker->sums + worker->n_channels,
                      .fn = is_viewed ? call->x.fn : DUNLIN_VIEW_CLIP,
                      .low = is_clipped ? call->x.low : -INFINITY,
                      .high = is_clipped ? call->x.high : INFINITY,
                      .y_low = call->low,
                      .y_high = call->high,
                      .is_half = call->x.is_half,
                      .is_streamed = worker->job->is_streamed,
                      .is_near = prefetch_is_near_for_tiles()};
    tile.x = stored_at(call->x.x, (sample * shape->in_h + top) * tile.x_row + unit->channel,
                       tile.is_half);
    tile.y = call->y + (sample * shape->out_h + t) * tile.y_row + unit->channel;
    return tile;
}

/* A block's sums are at an end. */
static void flush_block(forward_worker *worker, const strip_unit *unit, double *to)
{
    if (to == NULL) {
        vclear(worker->sums, 2 * unit->n_channels);
    } else {
        stat_flush(worker->sums, 2, unit->n_channels, to, worker->job->call->shape->out_c);
    }
}

/* Rows [t, t + n_rows) of the unit. A tile that would hang over the end begins earlier. */
static void run_band(forward_worker *worker, const strip_unit *unit, int64_t sample, int64_t t,
                     int64_t n_rows, double *to)
{
    const dunlin_conv_shape *shape = worker->job->call->shape;
    const int64_t stride = shape->stride_w;
    const int64_t n = shape->out_w;
    const band_tile band = tile_of(worker, unit, sample, t, n_rows);
    int64_t count = 0;
    int64_t far = ceil_div(PREFETCH_FLOATS, TILE_PIXELS * stride * unit->n_channels) * TILE_PIXELS;
    for (int64_t at = 0; at < n; at += TILE_PIXELS) {
        band_tile tile = band;
        const int64_t u = min_i64(at, n - TILE_PIXELS);
        const int64_t left = u * stride - shape->pad_left;
        tile.x = stored_at(tile.x, left * tile.x_pixel, tile.is_half);
        tile.y += u * tile.y_pixel;
        tile.first_pixel = max_i64(0, -left);
        tile.end_pixel = shape->in_w - left;
        tile.n_known = at - u;
        /* after the row's end the next band begins */
        const bool is_here = u + far < n;
        const int64_t prefetch = is_here ? far : far < n ? far - n : 0;
        tile.x_prefetch = (prefetch * stride + TILE_TAPS - stride) * tile.x_pixel +
                          (is_here ? 0 : n_rows * stride * tile.x_row);
        tile.y_prefetch = prefetch * tile.y_pixel + (is_here ? 0 : n_rows * tile.y_row);
        const int64_t pixels = n_rows * (TILE_PIXELS - tile.n_known);
        if (chain_is_full(count, pixels, STAT_BLOCK_ROWS)) {
            flush_block(worker, unit, to);
            count = 0;
        }
        count += pixels;
        tile_all(&tile, unit->n_channels, stride);
    }
    flush_block(worker, unit, to);
}

static void run_bands(forward_worker *worker, const strip_unit *unit, int64_t sample, double *to)
{
    const int64_t n = unit->end - unit->first;
    const int64_t most = BAND_ROWS / worker->job->call->shape->stride_h;
    const int64_t rows = ceil_div(n, ceil_div(n, most));
    for (int64_t t = unit->first; t < unit->end; t += rows) {
        run_band(worker, unit, sample, t, min_i64(rows, unit->end - t), to);
    }
}

static void run_unit(forward_worker *worker, const strip_unit *unit)
{
    const forward_job *job = worker->job;
    const dunlin_fused_call *call = job->call;
    const int64_t channels = call->shape->out_c;
    const int64_t n_taps = (int64_t)call->shape->kernel_h * call->shape->kernel_w;
    worker->n_channels = unit->n_channels;
    for (int64_t i = 0; i < n_taps; i++) {
        vcopy(worker->w + i * worker->ring.width, call->w + i * channels + unit->channel,
              unit->n_channels);
    }
    if (call->bias != NULL) {
        vcopy(worker->bias, call->bias + unit->channel, unit->n_channels);
    }
    double *to = NULL;
    if (call->stat.sums != NULL && job->units.is_few) {
        to = call->stat.sums + unit->channel;
    } else if (call->stat.sums != NULL) {
        to = job->partials + unit->index * 2 * channels + unit->channel;
        memset(to, 0, (size_t)unit->n_channels * sizeof(double));
        memset(to + channels, 0, (size_t)unit->n_channels * sizeof(double));
    }
    for (int64_t s = unit->sample; s < unit->end_sample; s++) {
        if (job->is_tiled) {
            run_bands(worker, unit, s, to);
        } else {
            run_strip(worker, unit, s, to);
        }
    }
}

static void forward_task(void *ctx, size_t slot)
{
    forward_job *job = ctx;
    const dunlin_conv_shape *shape = job->call->shape;
    float *room = job->workspace + (int64_t)slot * job->worker_floats;
    vclear(room, channel_floats(shape) * job->ring.width);
    forward_worker worker = {.job = job, .ring = job->ring};
    row_ring *ring = &worker.ring;
    const int64_t row = ring->pixels * ring->width;
    ring->rows = room;
    ring->zeros = room + ring->n_rows * row;
    worker.w = room + (ring->n_rows + 1) * row;
    worker.bias = worker.w + (int64_t)shape->kernel_h * shape->kernel_w * ring->width;
    worker.ones = worker.bias + ring->width;
    worker.sums = worker.ones + ring->width;
    for (int64_t i = 0; i < ring->width; i++) {
        worker.ones[i] = 1.0f;
    }
    worker.taps = (const float **)(void *)(worker.sums + 2 * ring->width);
    for (;;) {
        const int64_t i = shares_take(&job->shared, (int64_t)slot);
        if (i >= job->units.n_units) {
            break;
        }
        const strip_unit unit =
            unit_at(&job->units, i, shape->out_h, shape->out_c, job->call->n_samples);
        run_unit(&worker, &unit);
    }
    vstream_done();
}

void K(depthwise_fused_forward)(const dunlin_fused_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    const int64_t channels = shape->out_c;
    const int64_t n_threads = (int64_t)task_threads(call->threads);
    forward_job job = {.call = call,
                       .units = strips_of(shape->out_h, shape->out_w),
                       .ring = ring_of(shape),
                       .worker_floats = worker_floats(shape),
                       .workspace = call->workspace};
    job.partials = (double *)(void *)(job.workspace + n_threads * job.worker_floats);
    const int64_t sample_floats =
        (int64_t)shape->in_h * shape->in_w + (int64_t)shape->out_h * shape->out_w;
    job.is_tiled = tiled_is_for(shape);
    job.is_streamed = VEC * sizeof(float) == LINE_BYTES && /* else half lines, far apart */
                      rows_are_streamed(call->y, call->y_pitch, channels,
                                        call->n_samples * shape->out_h * shape->out_w);
    job.is_large = call->n_samples * sample_floats * channels >= LARGE_FLOATS;
    units_share(&job.units, channels, part_most(channels, channel_floats(shape)), call->n_samples,
                call->threads);
    job.ring.width = part_width(job.units.part_channels);
    shares_open(&job.shared, job.units.n_units, n_threads);
    if (call->stat.sums != NULL && call->is_reset) {
        memset(call->stat.sums, 0, 2 * (size_t)channels * sizeof(double));
    }
    run_tasks(call->threads, forward_task, &job, min_i64(n_threads, job.units.n_units),
              call->n_samples * shape->out_h * shape->out_w * channels);
    if (call->stat.sums != NULL && !job.units.is_few) {
        const stat_merge sums = {.partials = job.partials,
                                 .n_units = call->n_samples * job.units.n_strips,
                                 .n_stats = 1,
                                 .n = 2 * channels,
                                 .sums = {call->stat.sums}};
        K(stat_merge)(&sums, call->threads);
    }
}
