/*
 * winograd_grad.c - the weight gradient of 3 x 3 windows by the transpose of Winograd's algorithm:
 * dg = G^T [sum over tiles of (B^T d B) * (A e A^T)] G, e the gradient of a tile's 2 x 2 outputs.
 *
 * A block of a sample's tiles is one product for each point, made from zero, and its dg is added to
 * dw in order: cutting the batch changes no bit. Threads share the channels of x, or, where dw is
 * small, the blocks (ordered_sum.h).
 */
#include "kernels/gemm/ordered_sum.h"
#include "winograd.h"

#define GRAD_TILES 56           /* of a block, at least if the sample has them */
#define GRAD_TILES_MOST 128     /* its products' depth */
#define GRAD_FLOATS (448 << 10) /* of a block's points, about */
#define GRAD_LEAST 36           /* tiles of a sample: fewer do not pay for the way back to dw */
#define TAPS 9                  /* of a window */
#define GRAD_CHANNELS LANES     /* of x whose products come back at once, from the first cache */

typedef struct wino_grad_plan {
    conv_view x, dy;
    row_tiling tiling;
    int64_t most; /* tiles of a block */
    int64_t pitch, point, dy_point;
    int64_t width, u_point; /* of the products: a panel */
    int64_t strip_floats, room_floats;
} wino_grad_plan;

typedef struct wino_grad_job {
    const dunlin_fused_call *call;
    wino_grad_plan plan;
    int64_t n_blocks; /* of a sample */
    int64_t channels; /* of x, of a part */
    float *rooms;
    int64_t room_floats;
    shares shared;
    ordered *ordered; /* NULL: channels are shared out */
} wino_grad_job;

/* A worker's memory, its channels of x, and where its sums go. */
typedef struct wino_part {
    int64_t channel, n_channels;
    float *strip, *points, *dy, *products;
    float *dw, *db;
} wino_part;

bool K(winograd_reduce_is_for)(const dunlin_conv_shape *shape)
{
    const int64_t h = (shape->out_h + 1) / 2;
    const int64_t w = (shape->out_w + 1) / 2;
    return K(winograd_is_for)(shape, false) && h * w >= GRAD_LEAST;
}

static wino_grad_plan plan_make(const dunlin_conv_shape *shape)
{
    wino_grad_plan plan;
    dunlin__view_forward(shape, &plan.x);
    plan.dy = plan.x;
    plan.dy.channels = shape->out_c;
    plan.dy.source_pitch = shape->out_c;
    plan.dy.h = wino_axis(shape->out_h, shape->out_h, 0, 2);
    plan.dy.w = wino_axis(shape->out_w, shape->out_w, 0, 2);
    plan.x.h = wino_axis(shape->out_h, shape->in_h, -shape->pad_top, WINO_SIDE);
    plan.x.w = wino_axis(shape->out_w, shape->in_w, -shape->pad_left, WINO_SIDE);
    const int64_t fit = GRAD_FLOATS / (WINO_POINTS * ((int64_t)shape->in_c + shape->out_c));
    const int64_t tiles = max_i64(GRAD_TILES, min_i64(GRAD_TILES_MOST, fit));
    const block_limits limits = {tiles, INT64_MAX / 2, tiles};
    plan.tiling = K(row_tiling_make)(&plan.x, limits);
    plan.tiling.samples = 1;
    plan.most = plan.tiling.lines * plan.tiling.columns;
    plan.pitch = round_up(shape->in_c, 16) + 16;
    plan.point = plan.most * plan.pitch + 16;
    plan.dy_point = plan.most * round_up(shape->out_c, VEC) + 16;
    plan.width = (int64_t)TILE_VECTORS * VEC;
    plan.u_point = GRAD_CHANNELS * plan.width + 16;
    const int64_t x = K(strip_pixels_most)(&plan.x, plan.tiling.lines, plan.tiling.columns);
    const int64_t dy = K(strip_pixels_most)(&plan.dy, plan.tiling.lines, plan.tiling.columns);
    plan.strip_floats =
        round_up(max_i64(x * plan.pitch, dy * (round_up(shape->out_c, 16) + 16)), 16);
    plan.room_floats =
        plan.strip_floats + WINO_POINTS * (plan.point + plan.dy_point + plan.u_point);
    return plan;
}

static int64_t weights_floats(const dunlin_conv_shape *shape)
{
    return TAPS * (int64_t)shape->in_c * shape->out_c;
}

/* Every part of the channels makes all of dy's points: blocks are shared out if they may. */
static int64_t ordered_floats(const dunlin_conv_shape *shape, int64_t threads)
{
    const int64_t n = weights_floats(shape);
    return threads > 1 && n <= TURN_FLOATS ? order_room_floats(n, shape->out_c) : 0;
}

uint64_t K(winograd_reduce_bytes)(const dunlin_conv_shape *shape, size_t n_threads)
{
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    return (uint64_t)(threads * (plan_make(shape).room_floats + ordered_floats(shape, threads))) *
           sizeof(float);
}

static int64_t columns_per_line(const wino_grad_plan *plan)
{
    return ceil_div(plan->x.w.n_grid, plan->tiling.columns);
}

static grid_piece block_at(const wino_grad_job *job, int64_t index)
{
    const row_tiling *tiling = &job->plan.tiling;
    const conv_view *tiles = &job->plan.x;
    const int64_t within = index % job->n_blocks;
    const int64_t per_line = columns_per_line(&job->plan);
    grid_piece piece = {.sample = index / job->n_blocks,
                        .t0 = (int32_t)(within / per_line * tiling->lines),
                        .u0 = (int32_t)(within % per_line * tiling->columns)};
    piece.t1 = (int32_t)min_i64(tiles->h.n_grid, piece.t0 + tiling->lines);
    piece.u1 = (int32_t)min_i64(tiles->w.n_grid, piece.u0 + tiling->columns);
    return piece;
}

/* --- points --- */

static void x_points(const wino_grad_job *job, const wino_part *part, const grid_piece *piece)
{
    const wino_grad_plan *plan = &job->plan;
    const strip_source source = {.view = &job->call->x};
    strip_layout layout = K(strip_layout_make)(&plan->x, source, 0, false);
    wino_line run = {.to = part->points,
                     .to_pitch = plan->pitch,
                     .point = plan->point,
                     .n_tiles = piece->u1 - piece->u0};
    const bool is_whole = layout.is_direct || layout.is_run;
    if (!is_whole) {
        layout.channel = part->channel;
        layout.n_channels = part->n_channels;
    }
    run.from = K(winograd_strip)(&layout, piece, part->strip) + (is_whole ? part->channel : 0);
    run.pitch = layout.pitch;
    run.line = layout.width * layout.pitch;
    wino_lines(run, piece->t1 - piece->t0, part->n_channels);
}

/* The sums of a block's pixels, line by line, into the bias gradient. */
static void add_bias(const wino_line *run, const grid_piece *piece, int64_t channels, bool is_first,
                     float *db)
{
    const int64_t lines = 2 * (piece->t1 - piece->t0);
    for (int64_t c = 0; c < channels; c += VEC) {
        const int32_t n = vec_left(channels, c);
        vfloat sum = vzero();
        for (int64_t i = 0; i < lines; i++) {
            const float *row = run->from + i * run->line + c;
            for (int64_t u = 0; u < 2 * run->n_tiles; u++) {
                sum += vload_n(row + u * run->pitch, n);
            }
        }
        vstore_n(db + c, is_first ? sum : vload_n(db + c, n) + sum, n);
    }
}

/* The gradient's points, as packed B; the bias gradient with the first part. */
static void dy_points(const wino_grad_job *job, const wino_part *part, const grid_piece *piece,
                      bool is_first)
{
    const wino_grad_plan *plan = &job->plan;
    const dunlin_fused_call *call = job->call;
    const strip_source source = {.grad = &call->dy};
    const int64_t n_tiles = piece_rows(piece);
    const int64_t channels = plan->dy.channels;
    strip_layout layout = K(strip_layout_make)(&plan->dy, source, 0, false);
    wino_line run = {.point = plan->dy_point, .n_tiles = piece->u1 - piece->u0};
    run.from = K(winograd_strip)(&layout, piece, part->strip);
    run.pitch = layout.pitch;
    run.line = layout.width * layout.pitch;
    if (part->db != NULL && part->channel == 0) {
        add_bias(&run, piece, channels, is_first, part->db);
    }
    for (int64_t t = piece->t0; call->dw != NULL && t < piece->t1; t++) {
        const int64_t row = (t - piece->t0) * run.n_tiles;
        for (int64_t column = 0; column < channels; column += run.to_pitch) {
            run.to_pitch = (int64_t)panel_vectors(ceil_div(channels - column, VEC)) * VEC;
            float *to = part->dy + column * n_tiles + row * run.to_pitch;
            for (int64_t c = 0; c < run.to_pitch; c += VEC) {
                const int64_t left = channels - column - c;
                if (left >= VEC) {
                    wino_gradient(&run, column + c, VEC, to + c);
                } else if (left > 0) {
                    wino_gradient(&run, column + c, (int32_t)left, to + c);
                }
            }
        }
        run.from += 2 * run.line;
    }
}

/* --- products --- */

/* Channels [channel, channel + m) of the part and the `n` columns of a panel: products, and back
 * to dw. */
static void run_panel(const wino_grad_job *job, const wino_part *part, gemm_block *gemm,
                      int64_t channel, int64_t column, bool is_first)
{
    const wino_grad_plan *plan = &job->plan;
    const dunlin_conv_shape *shape = job->call->shape;
    float *c_rows[GRAD_CHANNELS];
    const int64_t tap = (int64_t)shape->in_c * shape->out_c;
    float *rows = part->dw + (part->channel + channel) * shape->out_c + column;
    gemm->c_rows = c_rows;
    for (int64_t p = 0; p < WINO_POINTS; p++) {
        for (int64_t i = 0; i < gemm->m; i++) {
            c_rows[i] = part->products + p * plan->u_point + i * plan->width;
        }
        gemm->a = part->points + p * plan->point + channel;
        gemm->b = part->dy + p * plan->dy_point + column * gemm->k;
        K(gemm)(gemm);
    }
    for (int64_t i = 0; i < gemm->m; i++) {
        float *dw = rows + i * shape->out_c;
        const float *from = part->products + i * plan->width;
        for (int64_t c = 0; c < gemm->n; c += VEC) {
            const int32_t n = vec_left(gemm->n, c);
            if (n == VEC) {
                wino_add_weights(from + c, plan->u_point, dw + c, tap, VEC, is_first);
            } else {
                wino_add_weights(from + c, plan->u_point, dw + c, tap, n, is_first);
            }
        }
    }
    gemm->c_rows = NULL;
}

/* What block `index` reads, asked for while another is computed. */
static void look_prefetch(const wino_grad_job *job, const wino_part *part, int64_t index,
                          prefetch_list *prefetch)
{
    const wino_grad_plan *plan = &job->plan;
    const dunlin_conv_shape *shape = job->call->shape;
    *prefetch = (prefetch_list){.part = 0};
    if (index >= job->call->n_samples * job->n_blocks) {
        return;
    }
    const grid_piece piece = block_at(job, index);
    const strip_source x = {.view = &job->call->x};
    const strip_source dy = {.grad = &job->call->dy};
    const int64_t n = piece_rows(&piece);
    prefetch_source(prefetch, &plan->dy, dy, &piece, n);
    prefetch_source(prefetch, &plan->x, x, &piece, n);
    prefetch_pace(prefetch,
                  WINO_POINTS * gemm_steps(part->n_channels, shape->out_c, plan->most, TILE_ROWS));
}

/* `next`: the block that this worker does after it. */
static void run_block(const wino_grad_job *job, const wino_part *part, int64_t index, int64_t next)
{
    const wino_grad_plan *plan = &job->plan;
    const dunlin_fused_call *call = job->call;
    const bool is_first = job->ordered != NULL || (index == 0 && call->is_reset);
    const grid_piece piece = block_at(job, index);
    const gemm_run depth = {.n = piece_rows(&piece)};
    prefetch_list prefetch;
    dy_points(job, part, &piece, is_first);
    if (call->dw == NULL) {
        return;
    }
    x_points(job, part, &piece);
    look_prefetch(job, part, next, &prefetch);
    gemm_block gemm = {.runs = &depth,
                       .n_runs = 1,
                       .k = depth.n,
                       .a_pitch = plan->pitch,
                       .lane_pitch = LANES,
                       .prefetch = &prefetch};
    for (int64_t i = 0; i < part->n_channels; i += GRAD_CHANNELS) {
        gemm.m = min_i64(GRAD_CHANNELS, part->n_channels - i);
        for (int64_t column = 0; column < call->shape->out_c;) {
            const int64_t left = call->shape->out_c - column;
            const int64_t width = (int64_t)panel_vectors(ceil_div(left, VEC)) * VEC;
            gemm.n = min_i64(width, left);
            run_panel(job, part, &gemm, i, column, is_first);
            column += width;
        }
    }
}

static wino_part part_at(const wino_grad_job *job, size_t slot)
{
    const wino_grad_plan *plan = &job->plan;
    wino_part part = {.n_channels = plan->x.channels,
                      .strip = job->rooms + (int64_t)slot * job->room_floats,
                      .dw = job->call->dw,
                      .db = job->call->db};
    part.points = part.strip + plan->strip_floats;
    part.dy = part.points + WINO_POINTS * plan->point;
    part.products = part.dy + WINO_POINTS * plan->dy_point;
    return part;
}

static void channels_worker(void *ctx, size_t slot)
{
    wino_grad_job *job = ctx;
    const int64_t channels = job->plan.x.channels;
    wino_part part = part_at(job, slot);
    for (;;) {
        part.channel = job->channels * shares_take(&job->shared, (int64_t)slot);
        if (part.channel >= channels) {
            return;
        }
        part.n_channels = min_i64(job->channels, channels - part.channel);
        for (int64_t i = 0; i < job->call->n_samples * job->n_blocks; i++) {
            run_block(job, &part, i, i + 1);
        }
    }
}

static void ordered_worker(void *ctx, size_t slot)
{
    const wino_grad_job *job = ctx;
    ordered *blocks = job->ordered;
    wino_part part = part_at(job, slot);
    order_worker at = K(ordered_begin)(blocks, part.strip + job->plan.room_floats);
    while (K(ordered_next)(blocks, &at)) {
        part.dw = at.dw;
        part.db = at.db;
        run_block(job, &part, at.block, at.next);
    }
}

void K(winograd_reduce_run)(const dunlin_fused_call *call, float *workspace)
{
    wino_grad_job job = {.call = call, .plan = plan_make(call->shape), .rooms = workspace};
    const wino_grad_plan *plan = &job.plan;
    const int64_t threads = (int64_t)task_threads(call->threads);
    const int64_t channels = plan->x.channels;
    job.n_blocks = ceil_div(plan->x.h.n_grid, plan->tiling.lines) * columns_per_line(plan);
    job.room_floats = plan->room_floats + ordered_floats(call->shape, threads);
    const int64_t work =
        call->n_samples * view_rows(&plan->x) * WINO_POINTS * channels * call->shape->out_c;
    ordered blocks = {.dw = call->dw,
                      .db = call->db,
                      .n_dw = weights_floats(call->shape),
                      .n_db = call->shape->out_c,
                      .is_reset = call->is_reset,
                      .n_blocks = call->n_samples * job.n_blocks};
    if (job.room_floats > plan->room_floats) {
        blocks.n_workers = min_i64(threads, blocks.n_blocks);
        K(ordered_open)(&blocks);
        job.ordered = &blocks;
        run_tasks(call->threads, ordered_worker, &job, blocks.n_workers, work);
        return;
    }
    job.channels = round_up(ceil_div(channels, threads), 16);
    shares_open(&job.shared, ceil_div(channels, job.channels), threads);
    run_tasks(call->threads, channels_worker, &job,
              min_i64(threads, ceil_div(channels, job.channels)), work);
}
