/*
 * joint.c - both gradients of a pointwise convolution in one pass, a block of pixels at a time: dy
 * is read and computed once, into panels that are B of the weight gradient and A of the input
 * gradient.
 *
 * The blocks, their order and every chain are those of the two separate passes. On several threads
 * a block's part of dw is summed from zero and added in order (ordered_sum.h). Where the chain
 * continues from block to block each thread has a range of x's channels instead and goes through
 * all blocks by itself; where a range would be too narrow for that, the threads share the packing
 * of all panels (joint_phases.c).
 */
#include "joint.h"

#define RANGE_LEAST 64 /* channels: with fewer, all of dy is much to make for the products */
/* A range is whole lanes of dw's rows and whole vectors of dx's columns. */
#define RANGE_UNIT (LANES % VEC == 0 ? LANES : 2 * LANES)

static int64_t block_rows_most(const row_tiling *tiling, const conv_view *view)
{
    const bool is_whole = tiling->lines == view->h.n_grid && tiling->columns == view->w.n_grid;
    return tiling->lines * tiling->columns * (is_whole ? tiling->samples : 1);
}

bool K(fused_grads_is_for)(const dunlin_conv_shape *shape, size_t n_threads)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    if (!fused_grads_may_be_for(&view) || view_rows(&view) == 0) {
        return false;
    }
    const row_tiling tiling = K(row_tiling_make)(&view, map_limits(&view, true));
    return n_threads <= 1 || K(phases_is_for)(shape, n_threads) ||
           (view_rows(&view) >= DUNLIN_KERNEL_ROWS_PER_PARTIAL && tiling.columns == view.w.n_grid);
}

void K(fused_grads_block_floats)(const dunlin_conv_shape *shape, int64_t channels, int64_t *out_dy,
                                 int64_t *out_x)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    const row_tiling tiling = K(row_tiling_make)(&view, map_limits(&view, true));
    const int64_t rows = block_rows_most(&tiling, &view);
    *out_dy = round_up(rows * round_up(shape->out_c, VEC), 16);
    *out_x = round_up(rows * round_up(channels, LANES), 16);
}

#define ROOM_SUMS round_up((int64_t)EPILOGUE_MAX_SUMS *(SCRATCH_COLUMNS + VEC), 16)

int64_t K(fused_grads_room_floats)(void)
{
    return (int64_t)SUNK_ROWS * SCRATCH_PITCH + ROOM_SUMS;
}

map_room K(fused_grads_room)(float *base)
{
    const map_room room = {.scratch = base, .sums = base + (int64_t)SUNK_ROWS * SCRATCH_PITCH};
    memset(room.sums, 0, (size_t)ROOM_SUMS * sizeof(float));
    return room;
}

/* --- ranges --- */

/* x's channels in ranges, one for each worker, and those in cuts of dx's columns. */
typedef struct channel_ranges {
    column_cuts cuts;
    int64_t n, n_cuts; /* ranges; cuts of each */
} channel_ranges;

static bool has_ranges(const dunlin_conv_shape *shape, size_t n_threads)
{
    return K(phases_is_for)(shape, n_threads) && shape->in_c >= RANGE_LEAST * (int64_t)n_threads;
}

/* For one thread a single range. */
static channel_ranges ranges_of(const dunlin_conv_shape *shape, int64_t threads)
{
    channel_ranges ranges = {.n = 1, .cuts = column_cuts_make(shape->in_c, SCRATCH_COLUMNS)};
    ranges.n_cuts = ranges.cuts.n;
    if (threads > 1) {
        ranges.n_cuts = ceil_div(shape->in_c, threads * SCRATCH_COLUMNS);
        ranges.cuts.width =
            round_up(ceil_div(shape->in_c, threads * ranges.n_cuts), (int64_t)RANGE_UNIT);
        ranges.cuts.n = ceil_div(shape->in_c, ranges.cuts.width);
        ranges.n = ceil_div(ranges.cuts.n, ranges.n_cuts);
    }
    return ranges;
}

/* Of a worker that makes blocks by itself: all of their channels, or those of a range, whose lanes
 * lie a pixel apart. */
static int64_t room_floats_of(const dunlin_conv_shape *shape, size_t n_threads)
{
    int64_t dy = 0;
    int64_t x = 0;
    int64_t more = 0;
    int64_t channels = shape->in_c;
    if (has_ranges(shape, n_threads)) {
        const channel_ranges ranges = ranges_of(shape, (int64_t)n_threads);
        channels = min_i64(channels, ranges.n_cuts * ranges.cuts.width);
        more = round_up(round_up(channels, LANES), 16);
    } else if (n_threads > 1) {
        more = order_room_floats(channels * shape->out_c, shape->out_c);
    }
    K(fused_grads_block_floats)(shape, channels, &dy, &x);
    return dy + x + K(fused_grads_room_floats)() + more;
}

static int64_t weights_floats(const dunlin_conv_shape *shape)
{
    return round_up((int64_t)shape->out_c * round_up(shape->in_c, VEC), 16);
}

uint64_t K(fused_grads_bytes)(const dunlin_conv_shape *shape, size_t n_threads)
{
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    const bool is_by_phases = K(phases_is_for)(shape, n_threads) && !has_ranges(shape, n_threads);
    const int64_t rooms = is_by_phases ? K(phases_floats)(shape, n_threads)
                                       : threads * room_floats_of(shape, n_threads);
    return (uint64_t)(weights_floats(shape) + rooms) * sizeof(float);
}

/* The weights of cut i of the columns. */
static float *cut_b(const fused_grads_job *job, int64_t i)
{
    return job->b + i * job->map.cuts.width * job->view.channels;
}

int64_t K(fused_grads_pack_tasks)(const fused_grads_job *job)
{
    return job->map.cuts.n * job->map.n_pack_pieces;
}

void K(fused_grads_pack_task)(void *ctx, size_t index)
{
    const fused_grads_job *job = ctx;
    const int64_t cut = (int64_t)index / job->map.n_pack_pieces;
    const map_piece piece = {.column = cut * job->map.cuts.width,
                             .n = cut_size(&job->map.cuts, cut),
                             .k1 = job->view.channels,
                             .index = (int64_t)index % job->map.n_pack_pieces};
    K(map_pack_piece)(&job->map, &piece, cut_b(job, cut));
}

/* dy's panels as rows: where they begin in those of full width, and in the narrower ones; and the
 * runs of their depth. */
typedef struct dy_rows {
    const float *rows[BLOCK_ROWS], *tail_rows[BLOCK_ROWS];
    gemm_run runs[DEPTH_RUNS];
    int64_t n_runs, tail_run;
} dy_rows;

/* Panels of one width that have depth [k0, k1) of all n_rows. */
static void add_panels(const float **rows, int64_t n_rows, const float *dy, int64_t k0, int64_t k1,
                       dy_rows *out)
{
    const int64_t width = (int64_t)panel_vectors(ceil_div(k1 - k0, VEC)) * VEC;
    for (int64_t i = 0; k1 > k0 && i < n_rows; i++) {
        rows[i] = dy + k0 * n_rows + i * width;
    }
    for (int64_t k = k0; k < k1; k += width) {
        out->runs[out->n_runs++] = (gemm_run){(k - k0) * n_rows, min_i64(width, k1 - k)};
    }
}

static void rows_of_dy(const fused_grads_job *job, int64_t n_rows, const float *dy, dy_rows *out)
{
    out->n_runs = 0;
    add_panels(out->rows, n_rows, dy, 0, job->whole, out);
    out->tail_run = out->n_runs;
    add_panels(out->tail_rows, n_rows, dy, job->whole, job->view.channels, out);
}

/* Columns of dx of some rows of a block. */
typedef struct dx_part {
    int64_t row, n_rows;
    int64_t cut, column, n;
} dx_part;

static void multiply(const fused_grads_job *job, map_block *block, const dy_rows *dy,
                     const dx_part *part, float *const *c_rows)
{
    const bool has_whole = job->whole > 0;
    const bool has_tail = has_whole && job->whole < job->view.channels;
    const gemm_block gemm = {.a_rows = (has_whole ? dy->rows : dy->tail_rows) + part->row,
                             .tail_rows = has_tail ? dy->tail_rows + part->row : NULL,
                             .tail_run = dy->tail_run,
                             .runs = dy->runs,
                             .n_runs = dy->n_runs,
                             .b = cut_b(job, part->cut),
                             .m = part->n_rows,
                             .n = part->n,
                             .k = job->view.channels,
                             .c_rows = c_rows,
                             .is_parted = true,
                             .prefetch = &block->prefetch};
    K(gemm)(&gemm);
}

/* Rows [row, row + n) of a piece, which stand in the scratch, into the sink; full chains of sums
 * into the unit's. */
static void epilogue_some(const fused_grads_job *job, const grid_piece *piece, int64_t row,
                          int64_t n, const dx_part *part, const float *from, float *sums)
{
    const map_job *map = &job->map;
    const int64_t pixel = view_out_pixel(&job->view, piece->sample, piece->t0, piece->u0);
    const int64_t end = piece_rows(piece);
    double *partials = map->n_stats > 0 ? map_unit_partials(map, piece) + part->column : NULL;
    while (n > 0) {
        const int64_t some = min_i64(n, STAT_BLOCK_ROWS - row % STAT_BLOCK_ROWS);
        const epilogue_rows rows = {.dx = from,
                                    .dx_pitch = SCRATCH_PITCH,
                                    .pixel = pixel + row,
                                    .pixel_step = 1,
                                    .n_rows = some,
                                    .channel = part->column,
                                    .n_channels = part->n,
                                    .sums = sums,
                                    .sums_pitch = part->n,
                                    .is_streamed = map->is_streamed};
        K(epilogue_rows)(map->pass->epilogue, &rows);
        row += some;
        n -= some;
        from += some * SCRATCH_PITCH;
        if (map->n_stats > 0 && (row == end || row % STAT_BLOCK_ROWS == 0)) {
            stat_flush(sums, 2 * map->n_stats, part->n, partials, map->stat_channels);
        }
    }
}

/* Columns of dx through the sink, a few rows at a time: they stay in the first cache. */
static void run_sunk(const fused_grads_job *job, map_block *block, const dy_rows *dy, dx_part *part,
                     const map_room *room)
{
    float *c_rows[SUNK_ROWS];
    const grid_piece *piece = block->pieces;
    int64_t row = 0; /* of the piece */
    for (int64_t i = 0; i < SUNK_ROWS; i++) {
        c_rows[i] = room->scratch + i * SCRATCH_PITCH;
    }
    for (part->row = 0; part->row < block->n_rows; part->row += SUNK_ROWS) {
        part->n_rows = min_i64(SUNK_ROWS, block->n_rows - part->row);
        multiply(job, block, dy, part, c_rows);
        for (int64_t done = 0; done < part->n_rows;) {
            const int64_t end = piece_rows(piece);
            const int64_t n = min_i64(part->n_rows - done, end - row);
            epilogue_some(job, piece, row, n, part, c_rows[done], room->sums);
            done += n;
            row += n;
            if (row == end) {
                piece++;
                row = 0;
            }
        }
    }
}

void K(fused_grads_dx)(const fused_grads_job *job, map_block *block, int64_t cut, const float *dy,
                       const map_room *room)
{
    dy_rows rows;
    dx_part part = {.n_rows = block->n_rows,
                    .cut = cut,
                    .column = cut * job->map.cuts.width,
                    .n = cut_size(&job->map.cuts, cut)};
    for (int64_t p = 0; job->map.n_stats > 0 && p < block->n_pieces; p++) {
        const grid_piece *piece = &block->pieces[p];
        if (piece->t0 % job->map.tiling.unit_lines == 0 && piece->u0 == 0) {
            K(map_clear)(&job->map, piece, part.column, part.n);
        }
    }
    rows_of_dy(job, block->n_rows, dy, &rows);
    if (job->map.pass->epilogue != NULL) {
        run_sunk(job, block, &rows, &part, room);
        return;
    }
    float *c_rows[BLOCK_ROWS];
    K(map_rows_of_c)(&job->map, block, part.column, NULL, c_rows);
    multiply(job, block, &rows, &part, c_rows);
}

/* What is asked for while a block is computed: where its dx goes, and what the next one reads. Of a
 * range only its own channels: the others are being written. */
static void look_prefetch(const fused_grads_job *job, const grad_block *pixels, int64_t next,
                          const grad_part *part, prefetch_list *prefetch)
{
    const dunlin_fused_call *call = job->grad.call;
    const conv_view *view = &job->grad.view;
    const grid_piece *piece = &pixels->pieces[0];
    const bool is_range = part->n_channels < view->channels;
    int64_t pixel = view_out_pixel(view, piece->sample, piece->t0, piece->u0);
    *prefetch = (prefetch_list){.is_apart = is_range, .channel = part->channel};
    prefetch_epilogue(prefetch, &call->dx, job->map.is_streamed, call->x.x, part->n_channels, pixel,
                      pixels->n_rows);
    if (next < job->grad.n_blocks) {
        grid_piece first;
        const int64_t n_rows = K(grad_first_at)(&job->grad, next, &first);
        pixel = view_out_pixel(view, first.sample, first.t0, first.u0);
        prefetch->is_apart = false;
        prefetch_grad(prefetch, &call->dy, view->outputs, pixel, n_rows);
        prefetch->is_apart = is_range;
        prefetch_pixels(prefetch, (strip_source){.view = &call->x}, part->n_channels, pixel,
                        n_rows);
    }
    prefetch_pace(prefetch,
                  gemm_steps(part->n_channels, view->outputs, pixels->n_rows, TILE_ROWS) +
                      gemm_steps(pixels->n_rows, part->n_channels, view->outputs, TALL_ROWS));
}

/* A block: all of its channels, or the part's. */
static void run_block(fused_grads_job *job, int64_t index, int64_t next, grad_part *part,
                      const map_room *room)
{
    const int64_t width = job->map.cuts.width;
    const int64_t end = min_i64(job->map.cuts.n, ceil_div(part->channel + part->n_channels, width));
    grad_block pixels;
    map_block block;
    K(grad_block_at)(&job->grad, index, &pixels);
    look_prefetch(job, &pixels, next, part, &block.prefetch);
    pixels.prefetch = &block.prefetch;
    if (job->is_shared) {
        pixels.start = GEMM_ZERO;
    }
    K(grad_pack)(&job->grad, part, &pixels);
    K(grad_add)(&job->grad, part, &pixels);
    block.pieces = pixels.pieces;
    block.n_pieces = pixels.n_pieces;
    block.n_rows = pixels.n_rows;
    for (int64_t i = part->channel / width; i < end; i++) {
        K(fused_grads_dx)(job, &block, i, part->b, room);
    }
}

/* A worker's memory: panels and strip, scratch and sums, then what it has beside them. */
static map_room worker_room(const fused_grads_job *job, size_t slot, grad_part *part)
{
    const dunlin_fused_call *call = job->grad.call;
    float *base = job->rooms + (int64_t)slot * job->room_floats;
    *part = (grad_part){.n_columns = call->shape->out_c,
                        .n_channels = call->shape->in_c,
                        .dw = call->dw,
                        .db = call->db,
                        .b = base,
                        .strip = base + job->dy_floats};
    return K(fused_grads_room)(part->strip + job->x_floats);
}

/* Blocks, whose parts of dw have turns. */
static void ordered_worker(void *ctx, size_t slot)
{
    fused_grads_job *job = ctx;
    grad_part part;
    const map_room room = worker_room(job, slot, &part);
    order_worker at = K(ordered_begin)(&job->blocks, room.scratch + K(fused_grads_room_floats)());
    while (K(ordered_next)(&job->blocks, &at)) {
        part.dw = at.dw;
        part.db = at.db;
        run_block(job, at.block, at.next, &part, &room);
    }
    vstream_done();
}

/* A range of channels of all blocks: its weights, their gradient and dx's columns are its own. */
static void range_worker(void *ctx, size_t slot)
{
    fused_grads_job *job = ctx;
    grad_part part;
    const map_room room = worker_room(job, slot, &part);
    const int64_t first = (int64_t)slot * job->range_cuts;
    const int64_t end = min_i64(job->map.cuts.n, first + job->range_cuts);
    part.channel = first * job->map.cuts.width;
    part.n_channels = (end - first - 1) * job->map.cuts.width + cut_size(&job->map.cuts, end - 1);
    for (int64_t i = first; i < end; i++) {
        K(fused_grads_pack_task)(job, (size_t)i);
    }
    for (int64_t i = 0; i < job->grad.n_blocks; i++) {
        run_block(job, i, i + 1, &part, &room);
    }
    vstream_done();
}

static void run_ranges(fused_grads_job *job, const channel_ranges *ranges)
{
    const dunlin_fused_call *call = job->grad.call;
    job->range_cuts = ranges->n_cuts;
    job->map.n_pack_pieces = 1;
    run_tasks(call->threads, range_worker, job, ranges->n,
              job->grad.n_blocks * BLOCK_ROWS * call->shape->in_c * call->shape->out_c);
}

static void run_ordered(fused_grads_job *job)
{
    const dunlin_fused_call *call = job->grad.call;
    const dunlin_conv_shape *shape = call->shape;
    const int64_t n_dw = (int64_t)shape->in_c * shape->out_c;
    const int64_t threads = (int64_t)task_threads(call->threads);
    job->is_shared = true;
    job->map.n_pack_pieces = pack_pieces_for(threads);
    job->blocks.dw = call->dw;
    job->blocks.db = call->db;
    job->blocks.n_dw = n_dw;
    job->blocks.n_db = shape->out_c;
    job->blocks.is_reset = call->is_reset;
    job->blocks.n_blocks = job->grad.n_blocks;
    job->blocks.n_workers = min_i64(threads, job->grad.n_blocks);
    K(ordered_open)(&job->blocks);
    run_tasks(call->threads, K(fused_grads_pack_task), job, K(fused_grads_pack_tasks)(job), n_dw);
    run_tasks(call->threads, ordered_worker, job, job->blocks.n_workers,
              job->grad.n_blocks * BLOCK_ROWS * n_dw);
}

void K(fused_grads_run)(const map_pass *pass, const dunlin_fused_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    const size_t n_threads = task_threads(call->threads);
    fused_grads_job job = {.b = pass->workspace, .rooms = pass->workspace + weights_floats(shape)};
    dunlin__view_input_grad(shape, 0, 0, &job.view);
    K(grad_open)(call, &job.grad);
    const bool is_in_ranges = n_threads <= 1 || has_ranges(shape, n_threads);
    const channel_ranges ranges = ranges_of(shape, is_in_ranges ? (int64_t)n_threads : 1);
    job.map.pass = pass;
    job.map.view = &job.view;
    job.map.tiling = job.grad.tiling;
    job.map.cuts = ranges.cuts;
    job.map.n_stats = pass->epilogue == NULL ? 0 : pass->epilogue->n_stats;
    job.map.stat_channels = shape->in_c;
    job.map.is_streamed =
        pass->epilogue != NULL &&
        epilogue_is_streamed(pass->epilogue, shape->in_c, view_rows(&job.view) * call->n_samples);
    const int64_t panel = (int64_t)TILE_VECTORS * VEC;
    while (panel_vectors(ceil_div(shape->out_c - job.whole, VEC)) == TILE_VECTORS &&
           job.whole < shape->out_c) {
        job.whole = min_i64(shape->out_c, job.whole + panel);
    }
    job.room_floats = room_floats_of(shape, n_threads);
    K(fused_grads_block_floats)(shape, shape->in_c, &job.dy_floats, &job.x_floats);
    if (is_in_ranges) {
        job.x_floats = job.room_floats - job.dy_floats - K(fused_grads_room_floats)();
        run_ranges(&job, &ranges);
    } else if (K(phases_is_for)(shape, n_threads)) {
        job.map.n_pack_pieces = pack_pieces_for((int64_t)n_threads);
        K(phases_run)(&job);
    } else {
        run_ordered(&job);
    }
}
