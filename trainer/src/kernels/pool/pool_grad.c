/*
 * pool_grad.c - gradients of pooling, gathered: each input pixel sums what the windows over it send
 * back, in the windows' order, and goes through the sink. No two tasks write the same element.
 */
#include "kernels/epilogue/units.h"
#include "kernels/gemm/gemm.h"
#include "pool_share.h"
#include "window.h"

#define GRAD_CHANNELS 256 /* of a tile, at most */
#define TILE_FLOATS 2048  /* of gathered pixels, on the stack: they stay in the first cache */

uint64_t K(pool_workspace_bytes)(const dunlin_pool_shape *shape, uint64_t *out_sample_bytes)
{
    *out_sample_bytes = unit_partial_bytes(shape->channels, (int64_t)shape->in_h * shape->in_w,
                                           DUNLIN_EPILOGUE_MAX_STATS);
    return 0;
}

/* Output rows or columns [first, end) whose windows lie over one input row or column. */
typedef struct pool_span {
    int64_t first, end;
} pool_span;

/* The columns' windows of an image up to so wide are found once for all rows. */
#define MAX_SPANS 448

/* Pixels of one input row, and what their windows send to them. */
typedef struct pool_line {
    int64_t sample, iy, first_x, n;
    int64_t channel, n_channels;
    float *dx; /* has room for a vector after its last pixel */
    int64_t dx_pitch;
} pool_line;

typedef struct pool_job {
    const dunlin_pool_call *call;
    void (*line_fn)(const struct pool_job *job, const pool_line *line);
    bool is_flat;        /* the sink knows no channels and its tensors are compact */
    place_reader places; /* max: of the winners; else of the signs */
    pool_span columns[MAX_SPANS];
} pool_job;

static pool_span span_of_row(const dunlin_pool_shape *shape, int64_t iy)
{
    pool_span span;
    const int64_t reach = (shape->kernel_h - 1) * pool_step(shape->dilation_h) + 1;
    pool_windows_over(iy, reach, shape->stride_h, shape->pad_top, shape->out_h, &span.first,
                      &span.end);
    return span;
}

static pool_span span_of_column(const dunlin_pool_shape *shape, int64_t ix)
{
    pool_span span;
    const int64_t reach = (shape->kernel_w - 1) * pool_step(shape->dilation_w) + 1;
    pool_windows_over(ix, reach, shape->stride_w, shape->pad_left, shape->out_w, &span.first,
                      &span.end);
    return span;
}

#define APART_TAPS 4 /* of a packed window, whose places have 2 bits */

/* Of windows that do not overlap, with one vector of channels: each sends its gradient to one of
 * its pixels, or to nobody. */
ALWAYS_INLINE void apart_line(const pool_job *job, const pool_line *line, bool is_packed)
{
    const pool_form form = {.is_max = true, .is_plain = true, .is_packed = is_packed};
    const dunlin_pool_shape *shape = job->call->shape;
    const pool_source from = source_of(job->call, &job->places, form, line->sample, line->channel);
    const place_at at = place_of(from.places, 0);
    const int32_t iy = (int32_t)line->iy + shape->pad_top; /* 32 bits divide faster */
    const int32_t ix = (int32_t)line->first_x + shape->pad_left;
    const int64_t oy = iy / shape->stride_h;
    const int64_t tap_h = iy % shape->stride_h;
    const bool has_row = oy < shape->out_h && tap_h < shape->kernel_h;
    const int64_t stride = shape->stride_w;
    const int64_t out_w = has_row ? shape->out_w : 0;
    const int64_t kernel_w = shape->kernel_w;
    const int64_t first_tap = tap_h * kernel_w;
    const int32_t n_channels = (int32_t)line->n_channels;
    const int64_t pitch = line->dx_pitch;
    vbytes wanted[APART_TAPS]; /* of a packed winner, by the tap of its row */
    for (int64_t i = 0; is_packed && i < min_i64(kernel_w, APART_TAPS); i++) {
        wanted[i] = place_wanted(&at, place_repeat(DUNLIN_PLACE_BITS, first_tap + i));
    }
    int64_t ox = ix / shape->stride_w;
    int64_t tap = ix % shape->stride_w;
    float *dx = line->dx;
    float *const end = dx + line->n * pitch;
    for (; dx < end; ox++, tap = 0) {
        vfloat v = vzero();
        vbytes winner = {0};
        if (ox < out_w) {
            const pool_share share = share_of(&from, form, oy * shape->out_w + ox);
            v = vload_n(share.g, n_channels);
            winner = is_packed ? place_load(&at, share.index) & at.mask
                               : vbytes_load(share.index, n_channels);
        }
        for (; tap < stride && dx < end; tap++, dx += pitch) {
            vfloat mine = vzero();
            if (tap < kernel_w && is_packed) {
                mine = vadd_equal(mine, v, winner, wanted[tap]);
            } else if (tap < kernel_w) {
                mine = vadd_where(mine, v, winner, (uint8_t)(first_tap + tap));
            }
            vstore(dx, mine);
        }
    }
}

static void apart_packed_line(const pool_job *job, const pool_line *line)
{
    apart_line(job, line, true);
}

static void apart_bytes_line(const pool_job *job, const pool_line *line)
{
    apart_line(job, line, false);
}

/* What all windows over a pixel send to it, in their order; pixels in theirs, since each one's last
 * vector reaches into the next. */
ALWAYS_INLINE void gather_line(const pool_job *job, pool_form form, const pool_line *line)
{
    const dunlin_pool_shape shape = *job->call->shape;
    const pool_source from = source_of(job->call, &job->places, form, line->sample, line->channel);
    const pool_span rows = span_of_row(&shape, line->iy);
    const int64_t tap_h = line->iy + shape.pad_top - rows.first * shape.stride_h;
    const int64_t n_pixels = line->n;
    const int64_t n_channels = line->n_channels;
    const bool has_table = shape.in_w <= MAX_SPANS;
    const pool_span *spans = has_table ? job->columns + line->first_x : NULL;
    float *dx = line->dx;
    pool_share shares[MAX_SHARES];
    for (int64_t i = 0; i < n_pixels; i++, dx += line->dx_pitch) {
        const int64_t ix = line->first_x + i;
        const pool_span columns = has_table ? spans[i] : span_of_column(&shape, ix);
        int64_t row_tap =
            tap_h * shape.kernel_w + ix + shape.pad_left - columns.first * shape.stride_w;
        form.goes_on = false;
        int n = 0;
        for (int64_t oy = rows.first; oy < rows.end; oy++) {
            int64_t tap = row_tap;
            row_tap -= (int64_t)shape.stride_h * shape.kernel_w;
            for (int64_t ox = columns.first; ox < columns.end; ox++, tap -= shape.stride_w) {
                if (n == MAX_SHARES) {
                    sum_shares(&from, form, shares, n, n_channels, dx);
                    form.goes_on = true;
                    n = 0;
                }
                pool_share *share = &shares[n++];
                *share = share_of(&from, form, oy * shape.out_w + ox);
                share->tap = form.is_packed ? place_repeat(DUNLIN_PLACE_BITS, tap) : (uint8_t)tap;
                if (!form.is_max) {
                    const pool_window window = pool_window_at(&shape, oy, ox);
                    share->factor = pool_factor(&shape, &window);
                }
            }
        }
        if (form.goes_on) {
            sum_shares(&from, form, shares, n, n_channels, dx);
        } else {
            sum_few_shares(&from, form, shares, n, n_channels, dx);
        }
    }
}

/* What the windows with a tap on pixel (iy, ix) send to it, of dilated windows: not all of those
 * that reach over it have one. */
ALWAYS_INLINE void gather_pixel(const dunlin_pool_shape *shape, pool_form form,
                                const pool_source *from, const pool_line *line, int64_t ix,
                                float *dx)
{
    const int64_t step_h = pool_step(shape->dilation_h);
    const int64_t step_w = pool_step(shape->dilation_w);
    const pool_span rows = span_of_row(shape, line->iy);
    const pool_span columns = span_of_column(shape, ix);
    sum_shares(from, form, NULL, 0, line->n_channels, dx);
    form.goes_on = true;
    for (int64_t oy = rows.first; oy < rows.end; oy++) {
        const int64_t at_h = line->iy + shape->pad_top - oy * shape->stride_h;
        for (int64_t ox = columns.first; ox < columns.end; ox++) {
            const int64_t at_w = ix + shape->pad_left - ox * shape->stride_w;
            if (at_h % step_h != 0 || at_w % step_w != 0) {
                continue;
            }
            const pool_window window = pool_window_at(shape, oy, ox);
            pool_share share = share_of(from, form, oy * shape->out_w + ox);
            const int64_t tap = at_h / step_h * shape->kernel_w + at_w / step_w;
            share.tap = form.is_packed ? place_repeat(DUNLIN_PLACE_BITS, tap) : (uint8_t)tap;
            share.factor = form.is_max ? 0.0f : pool_factor(shape, &window);
            sum_shares(from, form, &share, 1, line->n_channels, dx);
        }
    }
}

ALWAYS_INLINE void dilated_line(const pool_job *job, pool_form form, const pool_line *line)
{
    const dunlin_pool_shape shape = *job->call->shape;
    const pool_source from = source_of(job->call, &job->places, form, line->sample, line->channel);
    for (int64_t i = 0; i < line->n; i++) {
        gather_pixel(&shape, form, &from, line, line->first_x + i, line->dx + i * line->dx_pitch);
    }
}

static void max_dilated_line(const pool_job *job, const pool_line *line)
{
    const bool is_packed = job->places.form.bits < 8;
    dilated_line(job, (pool_form){.is_max = true, .is_packed = is_packed}, line);
}

static void average_dilated_line(const pool_job *job, const pool_line *line)
{
    dilated_line(job, (pool_form){.is_max = false}, line);
}

static void max_line(const pool_job *job, const pool_line *line)
{
    if (job->places.form.bits < 8) {
        gather_line(job, (pool_form){.is_max = true, .is_plain = true, .is_packed = true}, line);
    } else {
        gather_line(job, (pool_form){.is_max = true, .is_plain = true}, line);
    }
}

static void max_grad_line(const pool_job *job, const pool_line *line)
{
    const bool is_packed = job->places.form.bits < 8;
    gather_line(job, (pool_form){.is_max = true, .is_packed = is_packed}, line);
}

static void average_line(const pool_job *job, const pool_line *line)
{
    gather_line(job, (pool_form){.is_plain = true}, line);
}

static void average_grad_line(const pool_job *job, const pool_line *line)
{
    gather_line(job, (pool_form){.is_max = false}, line);
}

static epilogue_rows rows_of(const dunlin_pool_call *call, const unit_block *block)
{
    return (epilogue_rows){.pixel =
                               block->sample * call->shape->in_h * call->shape->in_w + block->row,
                           .pixel_step = 1,
                           .n_rows = block->n_rows,
                           .channel = block->channel,
                           .n_channels = block->n_channels,
                           .sums = block->sums,
                           .sums_pitch = block->n_channels};
}

/* One gradient for all pixels of a block, each element where its sign is set. */
static void masked_rows(const pool_job *job, const unit_block *block, const float *gradient)
{
    const dunlin_pool_call *call = job->call;
    const int64_t pixel_bytes = job->places.form.pixel_bytes;
    const uint8_t set = place_repeat(DUNLIN_SIGN_BITS, 1);
    const int64_t pitch = round_up(block->n_channels, VEC);
    const int64_t n_pixels = TILE_FLOATS / pitch;
    float tile[TILE_FLOATS];
    epilogue_rows rows = rows_of(call, block);
    const uint8_t *signs = call->signs + rows.pixel * pixel_bytes;
    rows.dx = tile;
    rows.dx_pitch = pitch;
    for (int64_t i = 0; i < block->n_rows; i += n_pixels, rows.pixel += n_pixels) {
        rows.n_rows = min_i64(n_pixels, block->n_rows - i);
        for (int64_t c = 0; c < block->n_channels; c += VEC) {
            const place_at at = place_of(&job->places, block->channel + c);
            const vfloat v = vload(gradient + c);
            for (int64_t k = 0; k < rows.n_rows; k++) {
                const vbytes loaded = place_load(&at, signs + (i + k) * pixel_bytes);
                vstore(tile + k * pitch + c, vkeep(v, place_compare(&at, loaded, set)));
            }
        }
        K(epilogue_rows)(&call->dx, &rows);
    }
}

/* A window over the whole image: one gradient for all its pixels. */
static void global_block(const void *ctx, const unit_block *block)
{
    const pool_job *job = ctx;
    const dunlin_pool_call *call = job->call;
    const pool_window window = pool_window_at(call->shape, 0, 0);
    const pool_form form = {.is_max = false};
    const pool_source from = source_of(call, &job->places, form, block->sample, block->channel);
    pool_share share = share_of(&from, form, 0);
    share.factor = pool_factor(call->shape, &window);
    float tile[UNIT_CHANNELS + VEC];
    sum_shares(&from, form, &share, 1, block->n_channels, tile);
    if (call->signs != NULL) {
        masked_rows(job, block, tile);
        return;
    }
    epilogue_rows rows = rows_of(call, block);
    rows.dx = tile;
    K(epilogue_rows)(&call->dx, &rows);
}

/* `n_pixels` from pixel `first` of the sample on, gathered into the tile. */
static void gather_pixels(const pool_job *job, pool_line line, int64_t first, int64_t n_pixels)
{
    const int64_t width = job->call->shape->in_w;
    line.iy = first / width;
    line.first_x = first % width;
    while (n_pixels > 0) {
        line.n = min_i64(n_pixels, width - line.first_x);
        job->line_fn(job, &line);
        n_pixels -= line.n;
        line.dx += line.n * line.dx_pitch;
        line.first_x = 0;
        line.iy++;
    }
}

static void pool_block(const void *ctx, const unit_block *block)
{
    const pool_job *job = ctx;
    const dunlin_pool_call *call = job->call;
    float tile[TILE_FLOATS + VEC];
    const epilogue_rows all = rows_of(call, block);
    /* Of a block that is some of the channels the rows lie apart. */
    const bool is_flat = job->is_flat && block->n_channels == call->shape->channels &&
                         block->n_channels <= GRAD_CHANNELS;
    const int64_t most = min_i64(GRAD_CHANNELS, block->n_channels);
    const int64_t pitch = is_flat ? most : round_up(most, VEC);
    const int64_t n_pixels = TILE_FLOATS / pitch;
    for (int64_t i = 0; i < block->n_rows; i += n_pixels) {
        for (int64_t c = 0; c < block->n_channels; c += GRAD_CHANNELS) {
            epilogue_rows rows = all;
            rows.dx = tile;
            rows.dx_pitch = pitch;
            rows.pixel = all.pixel + i;
            rows.n_rows = min_i64(n_pixels, block->n_rows - i);
            rows.channel = block->channel + c;
            rows.n_channels = min_i64(GRAD_CHANNELS, block->n_channels - c);
            rows.sums = block->sums + c;
            const pool_line line = {.sample = block->sample,
                                    .channel = rows.channel,
                                    .n_channels = rows.n_channels,
                                    .dx = tile,
                                    .dx_pitch = pitch};
            gather_pixels(job, line, block->row + i, rows.n_rows);
            if (is_flat) { /* one long row */
                rows.n_channels *= rows.n_rows;
                rows.n_rows = 1;
            }
            K(epilogue_rows)(&call->dx, &rows);
        }
    }
}

static bool is_dilated(const dunlin_pool_shape *shape)
{
    return shape->dilation_h > 1 || shape->dilation_w > 1;
}

static bool is_global_average(const dunlin_pool_call *call)
{
    const dunlin_pool_shape *shape = call->shape;
    return !call->is_max && !is_dilated(shape) && shape->out_h == 1 && shape->out_w == 1 &&
           shape->kernel_h - shape->pad_top >= shape->in_h &&
           shape->kernel_w - shape->pad_left >= shape->in_w;
}

void K(pool_backward)(const dunlin_pool_call *call)
{
    const dunlin_pool_shape *shape = call->shape;
    const bool is_global = is_global_average(call);
    pool_job pool;
    pool.call = call;
    pool.is_flat = epilogue_is_flat(&call->dx, shape->channels);
    pool.places = place_reader_of(call->is_max ? dunlin__place_bits(shape) : DUNLIN_SIGN_BITS,
                                  shape->channels);
    const bool is_plain = grad_is_plain(&call->dy);
    const bool is_apart = shape->kernel_h <= shape->stride_h &&
                          shape->kernel_w <= shape->stride_w && shape->channels <= VEC;
    if (is_dilated(shape)) {
        pool.line_fn = call->is_max ? max_dilated_line : average_dilated_line;
    } else if (call->is_max && is_plain) {
        pool.line_fn = !is_apart                    ? max_line
                       : pool.places.form.bits == 8 ? apart_bytes_line
                                                    : apart_packed_line;
    } else if (call->is_max) {
        pool.line_fn = max_grad_line;
    } else {
        pool.line_fn = is_plain ? average_line : average_grad_line;
    }
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
    unit_take_epilogue(&job, &call->dx);
    unit_run(&job, call->threads);
}

static void pool_grad(const dunlin_pool_shape *shape, int64_t n, const float *dy, float *dx,
                      dunlin_pool_call *call)
{
    call->shape = shape;
    call->n_samples = n;
    call->dy = (dunlin_grad){.g = dy, .pitch = shape->channels};
    call->dx = (dunlin_epilogue){.out = dx, .pitch = shape->channels, .is_direct = true};
    K(pool_backward)(call);
}

void K(max_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy,
                      const uint8_t *index, float *dx, dunlin_threads *threads)
{
    dunlin_pool_call call = {.is_max = true, .threads = threads};
    call.index = (uint8_t *)(uintptr_t)index;
    pool_grad(shape, n, dy, dx, &call);
}

void K(average_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy, float *dx,
                          dunlin_threads *threads)
{
    dunlin_pool_call call = {.threads = threads};
    pool_grad(shape, n, dy, dx, &call);
}
