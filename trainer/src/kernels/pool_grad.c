/*
 * pool_grad.c - gradients of pooling, gathered: each input pixel sums what the windows over it send
 * back, in the windows' order, and goes through the sink. No two tasks write the same element.
 */
#include "isa.h"
#include "units.h"
#include "window.h"

#define GRAD_PIXELS 8
#define GRAD_CHANNELS 256 /* at once, of GRAD_PIXELS pixels, on the stack */

/* What one window sends to a pixel. */
typedef struct pool_share {
    int64_t pixel;        /* the window's output pixel, counted over all samples */
    const uint8_t *index; /* of it; NULL: average */
    uint8_t tap;
    float factor;
} pool_share;

size_t K(pool_workspace_bytes)(const dunlin_pool_shape *shape, size_t *out_sample_bytes)
{
    *out_sample_bytes = unit_partial_bytes(shape->channels, (int64_t)shape->in_h * shape->in_w,
                                           DUNLIN_SINK_MAX_STATS);
    return 0;
}

/* The gradient of the pooling's output. */
ALWAYS_INLINE vfloat output_grad(const dunlin_grad *dy, int64_t pixel, int64_t c, int32_t n)
{
    const vfloat g = vload_n(dy->g + pixel * dy->pitch + c, n);
    const vfloat v = dy->factor == NULL ? g : g * vload_n(dy->factor + c, n);
    if (dy->raw == NULL) {
        return v;
    }
    const vfloat raw = vload_n(dy->raw + pixel * dy->raw_pitch + c, n);
    const vfloat rest = vfma(raw, vload_n(dy->slope + c, n), vload_n(dy->offset + c, n));
    return dy->factor == NULL ? g + rest : vfma(g, vload_n(dy->factor + c, n), rest);
}

ALWAYS_INLINE void share_vector(const dunlin_grad *dy, const pool_share *share, int64_t c,
                                float *dx, int32_t n)
{
    vfloat v = output_grad(dy, share->pixel, c, n);
    if (share->index == NULL) {
        v *= vset1(share->factor);
    } else {
        vbytes index = {0};
        memcpy(&index, share->index + c, (size_t)n);
        v = (vfloat)((vint)v & (__builtin_convertvector(index, vint) == share->tap));
    }
    vstore_n(dx, vload_n(dx, n) + v, n);
}

static void add_share(const dunlin_grad *dy, const pool_share *share, int64_t channel,
                      int64_t n_channels, float *dx)
{
    int64_t c = 0;
    for (; c + VEC <= n_channels; c += VEC) {
        share_vector(dy, share, channel + c, dx + c, VEC);
    }
    if (c < n_channels) {
        share_vector(dy, share, channel + c, dx + c, (int32_t)(n_channels - c));
    }
}

/* All windows over input pixel (iy, ix) of a sample. */
static void gather_pixel(const dunlin_pool_call *call, int64_t sample, int64_t iy, int64_t ix,
                         int64_t channel, int64_t n_channels, float *dx)
{
    const dunlin_pool_shape *shape = call->shape;
    int64_t first_h = 0;
    int64_t end_h = 0;
    int64_t first_w = 0;
    int64_t end_w = 0;
    pool_windows_over(iy, shape->kernel_h, shape->stride_h, shape->pad_top, shape->out_h, &first_h,
                      &end_h);
    pool_windows_over(ix, shape->kernel_w, shape->stride_w, shape->pad_left, shape->out_w, &first_w,
                      &end_w);
    vclear(dx, n_channels);
    for (int64_t oy = first_h; oy < end_h; oy++) {
        for (int64_t ox = first_w; ox < end_w; ox++) {
            const pool_window window = pool_window_at(shape, oy, ox);
            pool_share share = {.pixel = (sample * shape->out_h + oy) * shape->out_w + ox};
            if (call->is_max) {
                share.index = call->index + share.pixel * shape->channels;
                share.tap = (uint8_t)((iy - window.y) * shape->kernel_w + (ix - window.x));
            } else {
                share.factor = pool_factor(shape, &window);
            }
            add_share(&call->dy, &share, channel, n_channels, dx);
        }
    }
}

static sink_rows rows_of(const dunlin_pool_call *call, const unit_block *block)
{
    return (sink_rows){.pixel = block->sample * call->shape->in_h * call->shape->in_w + block->row,
                       .pixel_step = 1,
                       .n_rows = block->n_rows,
                       .channel = block->channel,
                       .n_channels = block->n_channels,
                       .sums = block->sums,
                       .sums_pitch = block->n_channels};
}

/* A window over the whole image: one gradient for all its pixels. */
static void global_block(const void *ctx, const unit_block *block)
{
    const dunlin_pool_call *call = ctx;
    const pool_window window = pool_window_at(call->shape, 0, 0);
    const pool_share share = {.pixel = block->sample, .factor = pool_factor(call->shape, &window)};
    float tile[UNIT_CHANNELS];
    vclear(tile, block->n_channels);
    add_share(&call->dy, &share, block->channel, block->n_channels, tile);
    sink_rows rows = rows_of(call, block);
    rows.dx = tile;
    K(sink_rows)(&call->dx, &rows);
}

static void pool_block(const void *ctx, const unit_block *block)
{
    const dunlin_pool_call *call = ctx;
    const int64_t width = call->shape->in_w;
    float tile[GRAD_PIXELS * GRAD_CHANNELS];
    const sink_rows all = rows_of(call, block);
    for (int64_t i = 0; i < block->n_rows; i += GRAD_PIXELS) {
        const int64_t n_rows = min_i64(GRAD_PIXELS, block->n_rows - i);
        for (int64_t c = 0; c < block->n_channels; c += GRAD_CHANNELS) {
            sink_rows rows = all;
            rows.dx = tile;
            rows.dx_pitch = GRAD_CHANNELS;
            rows.pixel = all.pixel + i;
            rows.n_rows = n_rows;
            rows.channel = block->channel + c;
            rows.n_channels = min_i64(GRAD_CHANNELS, block->n_channels - c);
            rows.sums = block->sums + c;
            for (int64_t r = 0; r < n_rows; r++) {
                const int64_t at = block->row + i + r;
                gather_pixel(call, block->sample, at / width, at % width, rows.channel,
                             rows.n_channels, tile + r * GRAD_CHANNELS);
            }
            K(sink_rows)(&call->dx, &rows);
        }
    }
}

static bool is_global_average(const dunlin_pool_call *call)
{
    const dunlin_pool_shape *shape = call->shape;
    return !call->is_max && shape->out_h == 1 && shape->out_w == 1 &&
           shape->kernel_h - shape->pad_top >= shape->in_h &&
           shape->kernel_w - shape->pad_left >= shape->in_w;
}

void K(pool_backward)(const dunlin_pool_call *call)
{
    const dunlin_pool_shape *shape = call->shape;
    unit_job job = {.block_fn = is_global_average(call) ? global_block : pool_block,
                    .ctx = call,
                    .channels = shape->channels,
                    .rows_per_sample = (int64_t)shape->in_h * shape->in_w,
                    .n_samples = call->n_samples,
                    .partials = call->workspace,
                    .is_reset = call->is_reset};
    unit_take_sink(&job, &call->dx);
    unit_run(&job, call->threads);
}

static void pool_grad(const dunlin_pool_shape *shape, int64_t n, const float *dy, float *dx,
                      dunlin_pool_call *call)
{
    call->shape = shape;
    call->n_samples = n;
    call->dy = (dunlin_grad){.g = dy, .pitch = shape->channels};
    call->dx = (dunlin_sink){.out = dx, .pitch = shape->channels, .is_direct = true};
    K(pool_backward)(call);
}

void K(max_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy,
                      const uint8_t *index, float *dx, pthreadpool_t threads)
{
    dunlin_pool_call call = {.is_max = true, .threads = threads};
    call.index = (uint8_t *)(uintptr_t)index;
    pool_grad(shape, n, dy, dx, &call);
}

void K(average_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy, float *dx,
                          pthreadpool_t threads)
{
    dunlin_pool_call call = {.threads = threads};
    pool_grad(shape, n, dy, dx, &call);
}
