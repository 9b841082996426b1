/*
 * conv_grad.c - the weight gradient: dw[tap, channel][out] = sum over pixels of x * dy, a GEMM
 * whose depth is the pixels of the batch, and the bias gradient.
 *
 * Pixels come in blocks that the shape alone fixes: with DUNLIN_KERNEL_ROWS_PER_PARTIAL rows a
 * sample, a block is made from zero and added in order; with fewer, the chain goes on. So cutting
 * the batch changes no bit. Threads share the elements of dw, never the pixels.
 */
#include "fused.h"

#define GRAD_FLOATS (84 << 10) /* of dy that are packed at once, about */
#define PACK_ROWS 8            /* of dy: whole rows, so that memory is read in its order */
#define GRAD_ROWS (16 * LANES) /* of dw that go to the GEMM at once */

/*
 * Samples of few pixels bring large weights: their chain takes many of them at once, so that dw is
 * read and written seldom. Where the joint pass may do the same work, its blocks are used.
 */
static block_limits grad_limits(const conv_view *view)
{
    const bool is_long =
        view_rows(view) < DUNLIN_KERNEL_ROWS_PER_PARTIAL && !joint_may_be_for(view);
    const int64_t pixels = view_rows(view) == 1 ? GRAD_DENSE_PIXELS : GRAD_PIXELS;
    return is_long ? (block_limits){pixels, 4 * (int64_t)STRIP_FLOATS} : MAP_LIMITS;
}

/* Columns of dy that are packed at once. */
static int64_t grad_columns(const conv_view *view)
{
    return min_i64(view->outputs, GRAD_FLOATS / grad_limits(view).rows);
}

/* Blocks never span samples where samples have their own partials. */
static row_tiling grad_tiling(const conv_view *view)
{
    row_tiling tiling = K(row_tiling_make)(view, grad_limits(view));
    if (view_rows(view) >= DUNLIN_KERNEL_ROWS_PER_PARTIAL) {
        tiling.samples = 1;
    }
    return tiling;
}

static int64_t grad_b_floats(const conv_view *view)
{
    const int64_t most = min_i64(view->outputs, grad_columns(view) + VEC);
    return round_up(grad_limits(view).rows * round_up(most, (int64_t)VEC), 16);
}

size_t K(reduce_bytes)(const dunlin_conv_shape *shape, size_t n_threads)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    const int64_t floats = grad_b_floats(&view) + K(strip_floats)(&view, grad_limits(&view));
    return (size_t)floats * sizeof(float) * (n_threads == 0 ? 1 : n_threads);
}

void K(grad_block_at)(const grad_job *job, int64_t index, grad_block *block)
{
    const row_tiling *tiling = &job->tiling;
    const conv_view *view = &job->view;
    block->n_pieces = 0;
    block->n_rows = 0;
    block->ahead = NULL;
    block->start = index == 0 && job->call->is_reset ? GEMM_ZERO
                   : job->is_chain                   ? GEMM_CHAIN
                                                     : GEMM_ADD;
    if (job->per_sample == 0) {
        const int64_t first = index * tiling->samples;
        const int64_t end = min_i64(job->call->n_samples, first + tiling->samples);
        for (int64_t s = first; s < end; s++) {
            block->pieces[block->n_pieces++] =
                (grid_piece){.sample = s, .t1 = view->h.n_grid, .u1 = view->w.n_grid};
            block->n_rows += view_rows(view);
        }
        return;
    }
    const int64_t per_line = ceil_div(view->w.n_grid, tiling->columns);
    const int64_t within = index % job->per_sample;
    grid_piece piece = {.sample = index / job->per_sample,
                        .t0 = within / per_line * tiling->lines,
                        .u0 = within % per_line * tiling->columns};
    piece.t1 = min_i64(view->h.n_grid, piece.t0 + tiling->lines);
    piece.u1 = min_i64(view->w.n_grid, piece.u0 + tiling->columns);
    block->n_rows = (piece.t1 - piece.t0) * (piece.u1 - piece.u0);
    block->pieces[block->n_pieces++] = piece;
}

/* --- dy into panels --- */

/* Rows [first, first + n) of a block, which are pixels from `pixel` on, into all panels. */
static void pack_rows(const grad_job *job, const grad_part *part, const grad_block *block,
                      int64_t first, int64_t n, int64_t pixel)
{
    const strip_source source = {.grad = &job->call->dy};
    load_rows rows = {.pixel = pixel, .pixel_step = 1, .n_rows = n};
    for (int64_t column = 0; column < part->n_columns;) {
        const int64_t width = (int64_t)panel_vectors(ceil_div(part->n_columns - column, VEC)) * VEC;
        rows.channel = part->group * job->view.outputs + part->column + column;
        rows.n_channels = min_i64(width, part->n_columns - column);
        rows.out = part->b + column * block->n_rows + first * width;
        rows.out_pitch = width;
        for (int64_t i = 0; rows.n_channels < width && i < n; i++) {
            vclear(rows.out + i * width + rows.n_channels, width - rows.n_channels);
        }
        source_rows(source, &rows);
        column += width;
    }
}

/* The packed rows of one panel into the bias gradient. */
static void add_bias(const grad_block *block, const float *panel, int64_t width, int64_t used,
                     float *db)
{
    for (int64_t c = 0; c < used; c += VEC) {
        const int32_t n = vec_left(used, c);
        vfloat sum = block->start == GEMM_CHAIN ? vload_n(db + c, n) : vzero();
        for (int64_t i = 0; i < block->n_rows; i++) {
            sum += vload(panel + i * width + c);
        }
        vstore_n(db + c, block->start == GEMM_ADD ? vload_n(db + c, n) + sum : sum, n);
    }
}

void K(grad_pack)(const grad_job *job, const grad_part *part, const grad_block *block)
{
    int64_t first = 0;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        const grid_piece *piece = &block->pieces[p];
        const int64_t pixel = view_out_pixel(&job->view, piece->sample, piece->t0, piece->u0);
        const int64_t n_rows = (piece->t1 - piece->t0) * (piece->u1 - piece->u0);
        for (int64_t i = 0; i < n_rows; i += PACK_ROWS) {
            const int64_t n = min_i64(PACK_ROWS, n_rows - i);
            pack_rows(job, part, block, first, n, pixel + i);
            first += n;
        }
    }
    for (int64_t column = 0; part->db != NULL && part->channel == 0 && column < part->n_columns;) {
        const int64_t width = (int64_t)panel_vectors(ceil_div(part->n_columns - column, VEC)) * VEC;
        add_bias(block, part->b + column * block->n_rows, width,
                 min_i64(width, part->n_columns - column),
                 part->db + part->group * job->view.outputs + part->column + column);
        column += width;
    }
}

/* --- x into a strip --- */

/* The strips of a block's pieces, one behind the other, and where its lines begin. */
static int64_t write_x(strip_layout *layout, const grad_block *block, float *strip, gemm_run *runs)
{
    int64_t pixels = 0;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        pixels += strip_pixels(layout, &block->pieces[p]);
    }
    layout->lane_pitch = layout->is_lanes ? pixels * LANES : LANES;
    const int64_t step = layout->w.step * layout->pitch;
    int64_t n_runs = 0;
    int64_t base = 0;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        const grid_piece *piece = &block->pieces[p];
        K(strip_write)(layout, piece, strip + base);
        for (int64_t t = 0; t < piece->t1 - piece->t0; t++) {
            const int64_t offset = base + t * layout->h.step * layout->width * layout->pitch;
            const int64_t n = piece->u1 - piece->u0;
            if (n_runs > 0 && runs[n_runs - 1].offset + runs[n_runs - 1].n * step == offset) {
                runs[n_runs - 1].n += n;
            } else {
                runs[n_runs++] = (gemm_run){offset, n};
            }
        }
        base += strip_pixels(layout, piece) * layout->pitch;
    }
    return n_runs;
}

/* --- parts of dw --- */

/* Rows [row, row + m) of dw, all of the part's columns. */
static void run_rows(const grad_job *job, const grad_part *part, int64_t row, gemm_block *gemm)
{
    const conv_view *view = &job->view;
    float *c_rows[GRAD_ROWS];
    float *dw = part->dw + part->group * view->outputs + part->column;
    const float *a = gemm->a;
    const int64_t m = gemm->m;
    gemm->c_rows = c_rows;
    for (int64_t i = 0; i < m; i += GRAD_ROWS) {
        gemm->m = min_i64(GRAD_ROWS, m - i);
        gemm->a = a + i / LANES * gemm->lane_pitch;
        for (int64_t r = 0; r < gemm->m; r++) {
            c_rows[r] = dw + (row + i + r) * view->out_pitch;
        }
        K(gemm)(gemm);
    }
    gemm->c_rows = NULL;
}

void K(grad_add)(const grad_job *job, const grad_part *part, const grad_block *block)
{
    const conv_view *view = &job->view;
    gemm_run runs[GRAD_PIXELS];
    const strip_source source = {.view = &job->call->x};
    strip_layout layout = K(strip_layout_make)(view, source, part->group, true);
    K(strip_fit)(&layout, block->pieces[0].u1 - block->pieces[0].u0, 0, view_depth(view));
    layout.channel += part->channel;
    layout.n_channels = part->n_channels;
    gemm_block gemm = {.runs = runs,
                       .n_runs = write_x(&layout, block, part->strip, runs),
                       .a_pitch = layout.w.step * layout.pitch,
                       .b = part->b,
                       .n = part->n_columns,
                       .k = block->n_rows,
                       .start = block->start,
                       .ahead = block->ahead};
    gemm.lane_pitch = layout.lane_pitch;
    const int64_t taps_w = layout.is_merged ? 1 : view->w.n_taps;
    for (int64_t h = 0; h < view->h.n_taps; h++) {
        for (int64_t w = 0; w < taps_w; w++) {
            const int64_t pixel = h * layout.h.tap * layout.width + w * layout.w.tap;
            gemm.a = part->strip + pixel * layout.pitch;
            gemm.m = layout.is_merged ? (int64_t)view->w.n_taps * view->channels : part->n_channels;
            run_rows(job, part, (h * view->w.n_taps + w) * view->channels + part->channel, &gemm);
        }
    }
}

static void grad_worker(void *ctx, size_t slot)
{
    grad_job *job = ctx;
    grad_part part = {.dw = job->call->dw,
                      .db = job->call->db,
                      .b = job->rooms + (int64_t)slot * job->room_floats};
    part.strip = part.b + job->b_floats;
    grad_block block;
    const int64_t n_parts = job->view.groups * job->columns.n * job->n_row_cuts;
    for (;;) {
        const int64_t index = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (index >= n_parts) {
            return;
        }
        const int64_t column = index / job->n_row_cuts % job->columns.n;
        part.group = index / job->n_row_cuts / job->columns.n;
        part.column = column * job->columns.width;
        part.n_columns = cut_size(&job->columns, column);
        part.channel = index % job->n_row_cuts * job->row_channels;
        part.n_channels = min_i64(job->row_channels, job->view.channels - part.channel);
        for (int64_t b = 0; b < job->n_blocks; b++) {
            K(grad_block_at)(job, b, &block);
            K(grad_pack)(job, &part, &block);
            if (job->call->dw != NULL) {
                K(grad_add)(job, &part, &block);
            }
        }
    }
}

/* How dw is shared out: by columns while they last, then by channels. */
static void cut_parts(grad_job *job, int64_t threads)
{
    const conv_view *view = &job->view;
    const int64_t panel = (int64_t)TILE_VECTORS * VEC;
    int64_t most = grad_columns(view);
    if (view->groups < threads && view->outputs > panel) {
        most = min_i64(most, ceil_div(view->outputs, threads));
    }
    job->columns = column_cuts_make(view->outputs, most);
    job->row_channels = view->channels;
    if (view->groups * job->columns.n < threads && view->channels >= 2 * LANES) {
        job->row_channels = round_up(ceil_div(view->channels, threads), LANES);
    }
    if (view->h.n_taps * view->w.n_taps == 1) {
        const int64_t n = ceil_div(job->row_channels, depth_block_most(view));
        job->row_channels = round_up(ceil_div(job->row_channels, n), LANES);
    }
    job->n_row_cuts = ceil_div(view->channels, job->row_channels);
}

void K(grad_open)(const dunlin_fused_call *call, grad_job *job)
{
    *job = (grad_job){.call = call};
    dunlin__view_forward(call->shape, &job->view);
    const conv_view *view = &job->view;
    job->tiling = grad_tiling(view);
    job->is_chain = view_rows(view) < DUNLIN_KERNEL_ROWS_PER_PARTIAL;
    const row_tiling *tiling = &job->tiling;
    const bool is_whole = tiling->lines == view->h.n_grid && tiling->columns == view->w.n_grid;
    if (!is_whole) {
        job->per_sample =
            ceil_div(view->h.n_grid, tiling->lines) * ceil_div(view->w.n_grid, tiling->columns);
    }
    job->n_blocks =
        is_whole ? ceil_div(call->n_samples, tiling->samples) : call->n_samples * job->per_sample;
}

void K(reduce_run)(const dunlin_fused_call *call, float *workspace)
{
    grad_job job;
    K(grad_open)(call, &job);
    const conv_view *view = &job.view;
    const int64_t threads = (int64_t)task_threads(call->threads);
    cut_parts(&job, threads);
    job.rooms = workspace;
    job.b_floats = grad_b_floats(view);
    job.room_floats = job.b_floats + K(strip_floats)(view, grad_limits(view));
    atomic_init(&job.next, 0);
    const int64_t n_parts = view->groups * job.columns.n * job.n_row_cuts;
    run_tasks(call->threads, grad_worker, &job, min_i64(threads, n_parts),
              call->n_samples * view_rows(view) * view_depth(view) * view->outputs);
}

/* The bias gradient alone, of a depthwise convolution. */
void K(bias_grad)(const dunlin_conv_call *call)
{
    if (call->out_bias == NULL) {
        return;
    }
    const int64_t channels = call->shape->out_c;
    const pixel_blocks blocks =
        pixel_blocks_make((int64_t)call->shape->out_h * call->shape->out_w, call->n_samples);
    for (int64_t b = 0; b < blocks.n_blocks; b++) {
        int64_t row = 0;
        int64_t n_rows = 0;
        pixel_block_at(&blocks, b, &row, &n_rows);
        gemm_start start = pixel_block_start(&blocks, b, call->is_reset);
        for (int64_t c = 0; c < channels; c += VEC) {
            int32_t n = vec_left(channels, c);
            float *out = call->out_bias + c;
            vfloat sum = start == GEMM_CHAIN ? vload_n(out, n) : vzero();
            for (int64_t i = 0; i < n_rows; i++) {
                sum += vload_n(call->dy + (row + i) * channels + c, n);
            }
            vstore_n(out, start == GEMM_ADD ? vload_n(out, n) + sum : sum, n);
        }
    }
}
