/*
 * pool_grad.c - gradients of pooling, gathered: each input pixel sums what the windows over it send
 * back, in the windows' order, and goes through the sink. No two tasks write the same element.
 */
#include "isa.h"
#include "units.h"
#include "window.h"

#define GRAD_PIXELS 8
#define GRAD_CHANNELS 256 /* at once, whole vectors, of GRAD_PIXELS pixels, on the stack */

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

/* n bytes of the winners' places; where more can be read, a whole vector, which costs no call. */
ALWAYS_INLINE vint winners(const uint8_t *index, int32_t n, bool has_room)
{
    vbytes bytes = {0};
    if (has_room) {
        memcpy(&bytes, index, VEC);
    } else {
        memcpy(&bytes, index, (size_t)n);
    }
    return __builtin_convertvector(bytes, vint);
}

/* What a window sends to n channels from c on; above them zero. */
ALWAYS_INLINE vfloat share_vector(const dunlin_grad *dy, const pool_share *share, int64_t c,
                                  int32_t n, bool has_room)
{
    const vfloat v = output_grad(dy, share->pixel, c, n);
    if (share->index == NULL) {
        return v * vset1(share->factor);
    }
    return (vfloat)((vint)v & (winners(share->index + c, n, has_room) == share->tap));
}

static void add_share(const dunlin_grad *dy, const pool_share *share, int64_t channel,
                      int64_t n_channels, float *dx)
{
    for (int64_t c = 0; c < n_channels; c += VEC) {
        const int32_t n = vec_left(n_channels, c);
        const vfloat v = share_vector(dy, share, channel + c, n, false);
        vstore_n(dx + c, vload_n(dx + c, n) + v, n);
    }
}

/* Output rows or columns [first, end) whose windows lie over one input row or column. */
typedef struct pool_span {
    int64_t first, end;
} pool_span;

/* The columns' windows of an image up to so wide are found once for all rows. */
#define MAX_SPANS 512

typedef struct pool_job {
    const dunlin_pool_call *call;
    pool_span columns[MAX_SPANS];
} pool_job;

static pool_span span_of_row(const dunlin_pool_shape *shape, int64_t iy)
{
    pool_span span;
    pool_windows_over(iy, shape->kernel_h, shape->stride_h, shape->pad_top, shape->out_h,
                      &span.first, &span.end);
    return span;
}

static pool_span span_of_column(const dunlin_pool_shape *shape, int64_t ix)
{
    pool_span span;
    pool_windows_over(ix, shape->kernel_w, shape->stride_w, shape->pad_left, shape->out_w,
                      &span.first, &span.end);
    return span;
}

/* An input pixel, and the windows over it. */
typedef struct pool_pixel {
    int64_t sample, iy, ix;
    pool_span rows, columns;
} pool_pixel;

static pool_share share_of(const dunlin_pool_call *call, const pool_pixel *at, int64_t oy,
                           int64_t ox)
{
    const dunlin_pool_shape *shape = call->shape;
    pool_share share = {.pixel = (at->sample * shape->out_h + oy) * shape->out_w + ox};
    if (call->is_max) {
        const int64_t tap_h = at->iy + shape->pad_top - oy * shape->stride_h;
        const int64_t tap_w = at->ix + shape->pad_left - ox * shape->stride_w;
        share.index = call->index + share.pixel * shape->channels;
        share.tap = (uint8_t)(tap_h * shape->kernel_w + tap_w);
    } else {
        const pool_window window = pool_window_at(shape, oy, ox);
        share.factor = pool_factor(shape, &window);
    }
    return share;
}

/* The sums of these shares; dx has room for whole vectors. */
ALWAYS_INLINE void sum_shares(const dunlin_pool_call *call, const pool_share *shares, int n_shares,
                              int64_t channel, int64_t n_channels, float *dx)
{
    const dunlin_pool_shape *shape = call->shape;
    const uint8_t *end =
        call->index + call->n_samples * shape->out_h * shape->out_w * shape->channels;
    for (int64_t c = 0; c < n_channels; c += VEC) {
        const int32_t n = vec_left(n_channels, c);
        vfloat sum = vzero();
        for (int i = 0; i < n_shares; i++) {
            const bool has_room =
                shares[i].index != NULL && end - shares[i].index >= channel + c + VEC;
            sum += share_vector(&call->dy, &shares[i], channel + c, n, has_room);
        }
        vstore(dx + c, sum);
    }
}

#define MAX_SHARES 16 /* more windows than these over a pixel go one by one */

/* What all windows over a pixel send to it, in their order. */
static void gather_pixel(const dunlin_pool_call *call, const pool_pixel *at, int64_t channel,
                         int64_t n_channels, float *dx)
{
    pool_share shares[MAX_SHARES];
    int n_shares = 0;
    const bool are_few =
        (at->rows.end - at->rows.first) * (at->columns.end - at->columns.first) <= MAX_SHARES;
    if (!are_few) {
        vclear(dx, n_channels);
    }
    for (int64_t oy = at->rows.first; oy < at->rows.end; oy++) {
        for (int64_t ox = at->columns.first; ox < at->columns.end; ox++) {
            const pool_share share = share_of(call, at, oy, ox);
            if (are_few) {
                shares[n_shares++] = share;
            } else {
                add_share(&call->dy, &share, channel, n_channels, dx);
            }
        }
    }
    if (are_few) {
        sum_shares(call, shares, n_shares, channel, n_channels, dx);
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
    const dunlin_pool_call *call = ((const pool_job *)ctx)->call;
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
    const pool_job *job = ctx;
    const dunlin_pool_call *call = job->call;
    const int64_t width = call->shape->in_w;
    float tile[GRAD_PIXELS * GRAD_CHANNELS];
    pool_pixel at = {.sample = block->sample, .iy = block->row / width, .ix = block->row % width};
    at.rows = span_of_row(call->shape, at.iy);
    const sink_rows all = rows_of(call, block);
    for (int64_t i = 0; i < block->n_rows; i += GRAD_PIXELS) {
        const int64_t n_rows = min_i64(GRAD_PIXELS, block->n_rows - i);
        const pool_pixel first = at;
        for (int64_t c = 0; c < block->n_channels; c += GRAD_CHANNELS) {
            sink_rows rows = all;
            rows.dx = tile;
            rows.dx_pitch = GRAD_CHANNELS;
            rows.pixel = all.pixel + i;
            rows.n_rows = n_rows;
            rows.channel = block->channel + c;
            rows.n_channels = min_i64(GRAD_CHANNELS, block->n_channels - c);
            rows.sums = block->sums + c;
            at = first;
            for (int64_t r = 0; r < n_rows; r++) {
                at.columns =
                    width <= MAX_SPANS ? job->columns[at.ix] : span_of_column(call->shape, at.ix);
                gather_pixel(call, &at, rows.channel, rows.n_channels, tile + r * GRAD_CHANNELS);
                if (++at.ix == width) {
                    at.ix = 0;
                    at.rows = span_of_row(call->shape, ++at.iy);
                }
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
    const bool is_global = is_global_average(call);
    pool_job pool;
    pool.call = call;
    for (int64_t ix = 0; ix < shape->in_w && shape->in_w <= MAX_SPANS && !is_global; ix++) {
        pool.columns[ix] = span_of_column(shape, ix);
    }
    unit_job job = {.block_fn = is_global ? global_block : pool_block,
                    .ctx = &pool,
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
