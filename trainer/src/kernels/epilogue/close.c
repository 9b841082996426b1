/*
 * close.c - kernels over rows in memory: joining and writing views (blend), finalising gradients
 * (close), and batch norm's sums over a tensor that was not summed while it was written.
 */
#include "activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/simd/bf16.h"
#include "units.h"

#define GRAD_TILE_ROWS 8
#define GRAD_TILE_CHANNELS 256 /* of a lazy gradient at once, on the stack */

uint64_t K(close_workspace_bytes)(int32_t channels, int64_t rows_per_sample,
                                  uint64_t *out_sample_bytes)
{
    *out_sample_bytes = unit_partial_bytes(channels, rows_per_sample, DUNLIN_EPILOGUE_MAX_STATS);
    return 0;
}

static void round_row(float *x, uint16_t *halves, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        const vfloat v = vround_bf16(vload(x + i));
        vstore(x + i, v);
        vstore_halves(halves + i, v);
    }
    for (; i < n; i++) {
        x[i] = bf16_round(x[i]);
        halves[i] = bf16_half(x[i]);
    }
}

static void round_block(const dunlin_rounding *rounding, const unit_block *block, int64_t pixel,
                        int64_t channels)
{
    if (rounding->floats == NULL) {
        return;
    }
    const bool is_whole = block->n_channels == channels;
    const int64_t n = is_whole ? block->n_rows * channels : block->n_channels;
    for (int64_t i = 0; i < (is_whole ? 1 : block->n_rows); i++) {
        const int64_t at = (pixel + i) * channels + block->channel;
        round_row(rounding->floats + at, rounding->halves + at, n);
    }
}

static void close_block(const void *ctx, const unit_block *block)
{
    const dunlin_close_call *call = ctx;
    const int64_t pixel = block->sample * call->rows_per_sample + block->row;
    round_block(&call->rounding, block, pixel, call->channels);
    epilogue_rows rows = {.dx = call->from.g + pixel * call->from.pitch + block->channel,
                          .dx_pitch = call->from.pitch,
                          .pixel = pixel,
                          .pixel_step = 1,
                          .n_rows = block->n_rows,
                          .channel = block->channel,
                          .n_channels = block->n_channels,
                          .sums = block->sums,
                          .sums_pitch = block->n_channels};
    K(epilogue_rows)(&call->to, &rows);
}

/* The gradient is made a tile at a time; the sums' runs stay those of the whole block. */
static void close_lazy_block(const void *ctx, const unit_block *block)
{
    const dunlin_close_call *call = ctx;
    float tile[GRAD_TILE_ROWS * GRAD_TILE_CHANNELS];
    const int64_t pixel = block->sample * call->rows_per_sample + block->row;
    load_rows load = {.pixel_step = 1, .out_pitch = GRAD_TILE_CHANNELS};
    epilogue_rows rows = {.dx = tile,
                          .dx_pitch = GRAD_TILE_CHANNELS,
                          .pixel_step = 1,
                          .sums_pitch = block->n_channels};
    load.out = tile;
    for (int64_t i = 0; i < block->n_rows; i += GRAD_TILE_ROWS) {
        load.pixel = rows.pixel = pixel + i;
        load.n_rows = rows.n_rows = min_i64(GRAD_TILE_ROWS, block->n_rows - i);
        for (int64_t c = 0; c < block->n_channels; c += GRAD_TILE_CHANNELS) {
            load.channel = rows.channel = block->channel + c;
            load.n_channels = rows.n_channels = min_i64(GRAD_TILE_CHANNELS, block->n_channels - c);
            rows.sums = block->sums + c;
            K(grad_rows)(&call->from, &load);
            K(epilogue_rows)(&call->to, &rows);
        }
    }
}

void K(close)(const dunlin_close_call *call)
{
    unit_job job = {.block_fn = grad_is_plain(&call->from) ? close_block : close_lazy_block,
                    .ctx = call,
                    .channels = call->channels,
                    .rows_per_sample = call->rows_per_sample,
                    .n_samples = call->n_samples,
                    .partials = call->workspace,
                    .is_reset = call->is_reset};
    unit_take_epilogue(&job, &call->to);
    unit_run(&job, call->threads);
}

static void sums_block(const void *ctx, const unit_block *block)
{
    const dunlin_sums_call *call = ctx;
    const dunlin_stat *stat = &call->stat;
    const int64_t pixel = block->sample * call->rows_per_sample + block->row;
    round_block(&call->rounding, block, pixel, call->channels);
    K(stat_rows)
    (stat->raw + pixel * stat->raw_pitch + block->channel, stat->raw_pitch, block->n_rows,
     block->n_channels, stat->about + block->channel, block->sums);
}

void K(sums)(const dunlin_sums_call *call)
{
    unit_job job = {.block_fn = sums_block,
                    .ctx = call,
                    .channels = call->channels,
                    .rows_per_sample = call->rows_per_sample,
                    .n_samples = call->n_samples,
                    .n_stats = 1,
                    .sums = {call->stat.sums},
                    .partials = call->workspace,
                    .is_reset = call->is_reset};
    unit_run(&job, call->threads);
}

/* What stands on a side of a blend; a view without a function of its own clips. */
typedef enum blend_side {
    BLEND_NONE = 0,
    BLEND_PLAIN,
    BLEND_VIEW,
    BLEND_HARD_SWISH,
    BLEND_SILU
} blend_side;

ALWAYS_INLINE vfloat blend_value(const dunlin_view *view, blend_side side, int64_t row, int64_t c,
                                 vfloat scale, vfloat shift, int32_t n)
{
    const vfloat v = vload_n(view->x + row * view->pitch + c, n);
    switch (side) {
    case BLEND_VIEW:
        return vclip(vfma(v, scale, shift), vset1(view->low), vset1(view->high));
    case BLEND_HARD_SWISH:
        return vhard_swish(vfma(v, scale, shift));
    case BLEND_SILU:
        return vsilu(vfma(v, scale, shift));
    case BLEND_NONE:
    case BLEND_PLAIN:
        break;
    }
    return v;
}

ALWAYS_INLINE bool blend_is_view(blend_side side)
{
    return side != BLEND_NONE && side != BLEND_PLAIN;
}

#define BLEND_ROWS 8 /* at once; so many further ones are asked for */

typedef struct blend_job {
    dunlin_blend_call call;
    bool is_streamed;
} blend_job;

/* Rows [first, end) of one vector of channels. */
ALWAYS_INLINE void blend_vector(const blend_job *job, blend_side a, blend_side b, int64_t first,
                                int64_t end, int64_t c, int32_t n)
{
    const dunlin_blend_call *call = &job->call;
    const vfloat low = vset1(call->low);
    const vfloat high = vset1(call->high);
    const vfloat a_scale = blend_is_view(a) ? vload_n(call->a.scale + c, n) : vzero();
    const vfloat a_shift = blend_is_view(a) ? vload_n(call->a.shift + c, n) : vzero();
    const vfloat b_scale = blend_is_view(b) ? vload_n(call->b.scale + c, n) : vzero();
    const vfloat b_shift = blend_is_view(b) ? vload_n(call->b.shift + c, n) : vzero();
    for (int64_t i = first; i < end; i++) {
        __builtin_prefetch(call->a.x + (i + BLEND_ROWS) * call->a.pitch + c);
        if (b != BLEND_NONE) {
            __builtin_prefetch(call->b.x + (i + BLEND_ROWS) * call->b.pitch + c);
        }
        if (!job->is_streamed) {
            __builtin_prefetch(call->out + (i + BLEND_ROWS) * call->out_pitch + c, 1);
        }
        vfloat v = blend_value(&call->a, a, i, c, a_scale, a_shift, n);
        if (b != BLEND_NONE) {
            v += blend_value(&call->b, b, i, c, b_scale, b_shift, n);
        }
        if (job->is_streamed) {
            vstream(call->out + i * call->out_pitch + c, vclip(v, low, high));
        } else {
            vstore_n(call->out + i * call->out_pitch + c, vclip(v, low, high), n);
        }
    }
}

ALWAYS_INLINE void blend_rows(const blend_job *job, blend_side a, blend_side b, int64_t first,
                              int64_t end)
{
    const int64_t channels = job->call.channels;
    for (int64_t i = first; i < end; i += BLEND_ROWS) {
        const int64_t stop = min_i64(end, i + BLEND_ROWS);
        int64_t c = 0;
        for (; c + VEC <= channels; c += VEC) {
            blend_vector(job, a, b, i, stop, c, VEC);
        }
        if (c < channels) {
            blend_vector(job, a, b, i, stop, c, (int32_t)(channels - c));
        }
    }
}

static blend_side side_of(const dunlin_view *view)
{
    if (view->x == NULL || view->scale == NULL) {
        return view->x == NULL ? BLEND_NONE : BLEND_PLAIN;
    }
    switch (view->fn) {
    case DUNLIN_VIEW_HARD_SWISH:
        return BLEND_HARD_SWISH;
    case DUNLIN_VIEW_SILU:
        return BLEND_SILU;
    case DUNLIN_VIEW_CLIP:
        break;
    }
    return BLEND_VIEW;
}

static int64_t blend_rows_of_task(const dunlin_blend_call *call)
{
    const int64_t n = call->rows_per_sample * call->n_samples * call->channels;
    return round_up(ceil_div(task_block(call->threads, n), call->channels), BLEND_ROWS);
}

static void blend_some(const blend_job *job, size_t task)
{
    const dunlin_blend_call *call = &job->call;
    const int64_t rows = blend_rows_of_task(call);
    const int64_t first = (int64_t)task * rows;
    const int64_t end = min_i64(call->rows_per_sample * call->n_samples, first + rows);
    const blend_side a = side_of(&call->a);
    const blend_side b = side_of(&call->b);
    if (a == BLEND_PLAIN && b == BLEND_NONE) {
        blend_rows(job, BLEND_PLAIN, BLEND_NONE, first, end);
    } else if (a == BLEND_PLAIN && b == BLEND_PLAIN) {
        blend_rows(job, BLEND_PLAIN, BLEND_PLAIN, first, end);
    } else if (a == BLEND_PLAIN && b == BLEND_VIEW) {
        blend_rows(job, BLEND_PLAIN, BLEND_VIEW, first, end);
    } else if (a == BLEND_VIEW && b == BLEND_NONE) {
        blend_rows(job, BLEND_VIEW, BLEND_NONE, first, end);
    } else if (a == BLEND_VIEW && b == BLEND_PLAIN) {
        blend_rows(job, BLEND_VIEW, BLEND_PLAIN, first, end);
    } else if (a == BLEND_VIEW && b == BLEND_VIEW) {
        blend_rows(job, BLEND_VIEW, BLEND_VIEW, first, end);
    } else if (a == BLEND_HARD_SWISH && b == BLEND_NONE) {
        blend_rows(job, BLEND_HARD_SWISH, BLEND_NONE, first, end);
    } else if (a == BLEND_SILU && b == BLEND_NONE) {
        blend_rows(job, BLEND_SILU, BLEND_NONE, first, end);
    } else {
        blend_rows(job, a, b, first, end);
    }
}

static void blend_task(void *ctx, size_t task)
{
    const blend_job *job = ctx;
    blend_some(job, task);
    if (job->is_streamed) {
        vstream_done();
    }
}

void K(blend)(const dunlin_blend_call *call)
{
    const int64_t n_rows = call->rows_per_sample * call->n_samples;
    blend_job job = {.call = *call,
                     .is_streamed =
                         call->out != call->a.x && call->out != call->b.x &&
                         rows_are_streamed(call->out, call->out_pitch, call->channels, n_rows)};
    run_tasks(call->threads, blend_task, &job, ceil_div(n_rows, blend_rows_of_task(call)),
              n_rows * call->channels);
}
