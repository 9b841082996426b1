/*
 * conv_grad.c - the weight gradient: dw[tap, channel][out] = sum over pixels of x * dy, a GEMM
 * whose depth is the pixels of the batch, and the bias gradient.
 *
 * Pixels come in blocks that the shape alone fixes: of samples with many rows a block is made from
 * zero and added in order; with fewer, the chain goes on. So cutting the batch changes no bit.
 * Threads share the elements of dw; where it is small, and all of its rows would be packed by
 * everybody, they share the blocks (ordered_sum.h).
 */
#include "grad_strip.h"
#include "kernels/gemm/ordered_sum.h"

#define GRAD_COLUMNS 1024           /* of dy that are packed at once */
#define GRAD_ROWS (16 * LANES)      /* of dw that go to the GEMM at once */
#define WHOLE_FLOATS (24 << 10)     /* of packed dy that a row of dw's tiles passes at once */
#define CHUNK_FLOATS (112 << 10)    /* of a strip, about: it stays in the second cache */
#define ANY_FLOATS (INT64_MAX / 2)  /* of a strip: it holds as many channels as fit */
#define PREFETCH_FLOATS (512 << 10) /* of a block: more do not stay until they are read */
#define HELD_FLOATS (264 << 10)     /* of a strip that all of dy passes, a part at a time */
#define HELD_COLUMNS 192            /* of such a part */

/*
 * A block has as many pixels as the caches bear: each tile of dw is read and written once a block,
 * and dw is often larger than the second cache. A strip of x holds a chunk of the channels that
 * stays there; all of the block's dy streams past it. Where x is the smaller side and all of it
 * stays, it is held, and dy comes in parts that stay beside it: both are packed once.
 */
typedef struct grad_plan {
    row_tiling tiling;
    int64_t columns; /* of dy at once */
    bool is_held;
    int64_t chunk; /* channels of x at once */
    int64_t b_floats, strip_floats;
} grad_plan;

/* dw is too small to be shared out by element. */
static bool grad_is_whole(const conv_view *view)
{
    return view->groups == 1 && view->outputs <= VEC && view->channels < 2 * LANES;
}

/*
 * The chain goes on from sample to sample. Where threads share out the pixels, in the joint pass
 * and where they could not share out elements, samples that are worth it need partials; otherwise
 * only so many rows a sample do that one chain of the batch would lose too much by rounding.
 */
static bool grad_is_chain(const conv_view *view)
{
    const bool is_by_pixels = fused_grads_may_be_for(view) || grad_is_whole(view);
    return view_rows(view) < (is_by_pixels ? DUNLIN_KERNEL_ROWS_PER_PARTIAL : GRAD_PIXELS);
}

/* Where the joint pass may do the same work, its blocks are used. */
static block_limits grad_limits(const conv_view *view)
{
    if (fused_grads_may_be_for(view)) {
        return map_limits(view, true);
    }
    const int64_t rows = view_rows(view) == 1 ? GRAD_DENSE_PIXELS : GRAD_PIXELS;
    return (block_limits){rows, ANY_FLOATS, rows};
}

/* Blocks never span samples where samples have their own partials. */
static row_tiling grad_tiling(const conv_view *view)
{
    row_tiling tiling = K(row_tiling_make)(view, grad_limits(view));
    if (!grad_is_chain(view)) {
        tiling.samples = 1;
    }
    return tiling;
}

static grad_plan grad_plan_make(const conv_view *view)
{
    grad_plan plan = {.tiling = grad_tiling(view)};
    const row_tiling *tiling = &plan.tiling;
    const int64_t block_rows = tiling->samples * tiling->lines * tiling->columns;
    const int64_t pixels =
        tiling->samples * K(strip_pixels_most)(view, tiling->lines, tiling->columns);
    plan.is_held = dunlin__view_is_plain(view) && !fused_grads_may_be_for(view) &&
                   view->channels <= view->outputs && view->outputs > HELD_COLUMNS &&
                   (pixels + 1) * round_up(view->channels, LANES) <= HELD_FLOATS;
    plan.columns = min_i64(view->outputs, plan.is_held ? HELD_COLUMNS : GRAD_COLUMNS);
    const int64_t most = min_i64(view->outputs, plan.columns + VEC);
    plan.b_floats = round_up(block_rows * round_up(most, (int64_t)VEC), 16);
    const dunlin_view any = {.pitch = view->source_pitch};
    const strip_layout layout = K(strip_layout_make)(view, (strip_source){.view = &any}, 0, true);
    plan.chunk = view->channels;
    plan.strip_floats = pixels * layout.pitch;
    if (plan.is_held) {
        plan.strip_floats = (pixels + 1) * round_up(view->channels, LANES);
    } else if (layout.is_lanes) {
        const int64_t fit = max_i64(1, CHUNK_FLOATS / (pixels * LANES)) * LANES;
        plan.chunk = round_up(ceil_div(view->channels, ceil_div(view->channels, fit)), LANES);
        plan.strip_floats = (pixels + 1) * plan.chunk;
    }
    plan.strip_floats = round_up(plan.strip_floats, 16);
    return plan;
}

/* Shapes whose blocks are shared out. */
static bool takes_ordered(const conv_view *view, const grad_plan *plan, int64_t threads)
{
    return threads > 1 && view->groups == 1 && !grad_is_chain(view) && !plan->is_held &&
           plan->columns == view->outputs && view_depth(view) * view->outputs <= TURN_FLOATS;
}

uint64_t K(reduce_bytes)(const dunlin_conv_shape *shape, size_t n_threads)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    if (view_rows(&view) == 0) {
        return 0;
    }
    const grad_plan plan = grad_plan_make(&view);
    int64_t floats = plan.b_floats + plan.strip_floats;
    if (takes_ordered(&view, &plan, (int64_t)n_threads)) {
        floats += order_room_floats(view_depth(&view) * view.outputs, view.outputs);
    }
    return (uint64_t)floats * sizeof(float) * (n_threads == 0 ? 1 : n_threads);
}

int64_t K(grad_first_at)(const grad_job *job, int64_t index, grid_piece *out_first)
{
    const row_tiling *tiling = &job->tiling;
    const conv_view *view = &job->view;
    if (job->per_sample == 0) {
        const int64_t first = index * tiling->samples;
        const int64_t end = min_i64(job->call->n_samples, first + tiling->samples);
        *out_first = (grid_piece){.sample = first, .t1 = view->h.n_grid, .u1 = view->w.n_grid};
        return (end - first) * view_rows(view);
    }
    const int64_t per_line = ceil_div(view->w.n_grid, tiling->columns);
    const int64_t within = index % job->per_sample;
    grid_piece piece = {.sample = index / job->per_sample,
                        .t0 = (int32_t)(within / per_line * tiling->lines),
                        .u0 = (int32_t)(within % per_line * tiling->columns)};
    piece.t1 = (int32_t)min_i64(view->h.n_grid, piece.t0 + tiling->lines);
    piece.u1 = (int32_t)min_i64(view->w.n_grid, piece.u0 + tiling->columns);
    *out_first = piece;
    return piece_rows(&piece);
}

void K(grad_block_at)(const grad_job *job, int64_t index, grad_block *block)
{
    block->n_rows = K(grad_first_at)(job, index, &block->pieces[0]);
    block->n_pieces = job->per_sample == 0 ? block->n_rows / view_rows(&job->view) : 1;
    for (int64_t p = 1; p < block->n_pieces; p++) {
        block->pieces[p] = block->pieces[0];
        block->pieces[p].sample += p;
    }
    block->prefetch = NULL;
    block->start = index == 0 && job->call->is_reset ? GEMM_ZERO
                   : job->is_chain                   ? GEMM_CHAIN
                                                     : GEMM_ADD;
}

/* --- parts of dw --- */

/* Rows [row, row + m) of dw, the GEMM's columns. */
static void run_rows(const conv_view *view, float *dw, int64_t row, gemm_block *gemm)
{
    float *c_rows[GRAD_ROWS];
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

/* Every tap's rows of dw, the columns of one panel. */
static void run_taps(const grad_job *job, const grad_part *part, const grad_strip *strip, float *dw,
                     gemm_block *gemm)
{
    const conv_view *view = &job->view;
    const strip_layout *layout = &strip->layout;
    const int64_t taps_w = layout->is_merged ? 1 : view->w.n_taps;
    for (int64_t h = 0; h < view->h.n_taps; h++) {
        for (int64_t w = 0; w < taps_w; w++) {
            const int64_t pixel = h * layout->h.tap * layout->width + w * layout->w.tap;
            gemm->a = strip->at + pixel * layout->pitch;
            gemm->m =
                layout->is_merged ? (int64_t)view->w.n_taps * view->channels : part->n_channels;
            run_rows(view, dw, (h * view->w.n_taps + w) * view->channels + part->channel, gemm);
        }
    }
}

/* A part's columns of dy, packed, times the strip. */
static void add_product(const grad_job *job, const grad_part *part, const grad_block *block,
                        const grad_strip *strip)
{
    const conv_view *view = &job->view;
    const strip_layout *layout = &strip->layout;
    gemm_block gemm = {.runs = strip->depth.runs,
                       .n_runs = strip->depth.n_runs,
                       .k = block->n_rows,
                       .a_pitch = layout->w.step * layout->pitch,
                       .lane_pitch = layout->lane_pitch,
                       .start = block->start,
                       .is_far = block->start != GEMM_ADD,
                       .prefetch = block->prefetch};
    float *dw = part->dw + part->group * view->outputs + part->column;
    /* few pixels are little work: there what counts is that rows of dw are passed only once */
    const bool is_whole = block->n_rows * part->n_columns <= WHOLE_FLOATS;
    for (int64_t column = 0; column < part->n_columns;) {
        const int64_t width =
            is_whole ? part->n_columns
                     : (int64_t)panel_vectors(ceil_div(part->n_columns - column, VEC)) * VEC;
        gemm.b = part->b + column * block->n_rows;
        gemm.n = min_i64(width, part->n_columns - column);
        run_taps(job, part, strip, dw + column, &gemm);
        column += width;
    }
}

void K(grad_add_packed)(const grad_job *job, const grad_part *part, const grad_block *block)
{
    grad_part some = *part;
    grad_strip strip = {.layout = K(grad_plain_layout)(job, block)};
    strip.depth.runs[0] = (gemm_run){.n = block->n_rows};
    strip.depth.n_runs = 1;
    strip.at = part->strip + part->channel / LANES * strip.layout.lane_pitch;
    some.b += part->column * block->n_rows;
    K(grad_bias)(job, &some, block);
    add_product(job, &some, block, &strip);
}

/* Not inlined: the list of the strip's runs would add to the stack of the workers, which have a
 * block's pieces. */
__attribute__((noinline)) void K(grad_add)(const grad_job *job, const grad_part *part,
                                           const grad_block *block)
{
    grad_strip strip;
    K(grad_strip_make)(job, part, block, &strip);
    add_product(job, part, block, &strip);
}

/* A block into a part, a chunk of its channels after the other. */
static void run_block(const grad_job *job, const grad_part *part, const grad_block *block)
{
    grad_part chunk = *part;
    const int64_t end = part->channel + part->n_channels;
    K(grad_pack)(job, part, block);
    while (job->call->dw != NULL && chunk.channel < end) {
        chunk.n_channels = min_i64(job->chunk, end - chunk.channel);
        K(grad_add)(job, &chunk, block);
        chunk.channel += chunk.n_channels;
    }
}

/* The same, a cut of its columns after the other, past a strip that holds all channels. Not
 * inlined, as grad_add(). */
static __attribute__((noinline)) void run_held(const grad_job *job, const grad_part *part,
                                               const grad_block *block)
{
    grad_strip strip;
    grad_part some = *part;
    const column_cuts cuts = column_cuts_make(part->n_columns, HELD_COLUMNS);
    if (job->call->dw != NULL) {
        K(grad_strip_make)(job, part, block, &strip);
    }
    for (int64_t i = 0; i < cuts.n; i++) {
        some.column = part->column + i * cuts.width;
        some.n_columns = cut_size(&cuts, i);
        K(grad_pack)(job, &some, block);
        if (job->call->dw != NULL) {
            add_product(job, &some, block, &strip);
        }
    }
}

/* What block `index` reads, asked for while another is computed. */
static void look_prefetch(const grad_job *job, const grad_part *part, int64_t index,
                          const grad_block *now, prefetch_list *prefetch)
{
    const conv_view *view = &job->view;
    *prefetch = (prefetch_list){.part = 0};
    if (index >= job->n_blocks || view->groups > 1) {
        return;
    }
    grid_piece first;
    const int64_t n_rows = K(grad_first_at)(job, index, &first);
    if (n_rows * ((int64_t)view->channels + view->outputs) > PREFETCH_FLOATS) {
        return;
    }
    const int64_t pixel = view_out_pixel(view, first.sample, first.t0, first.u0);
    const strip_source x = {.view = &job->call->x};
    if (part->n_columns == view->outputs) {
        prefetch_grad(prefetch, &job->call->dy, view->outputs, pixel, n_rows);
    }
    prefetch_source(prefetch, view, x, &first, n_rows);
    prefetch_pace(prefetch, gemm_steps(view_depth(view) / view->channels * part->n_channels,
                                       part->n_columns, now->n_rows, TILE_ROWS));
}

/* Blocks of pixels, all of dw. */
static void ordered_worker(void *ctx, size_t slot)
{
    const grad_job *job = ctx;
    ordered *blocks = job->ordered;
    grad_part part = {.n_columns = job->view.outputs,
                      .n_channels = job->view.channels,
                      .b = job->rooms + (int64_t)slot * job->room_floats};
    part.strip = part.b + job->b_floats;
    order_worker at = K(ordered_begin)(blocks, part.b + job->room_floats -
                                                   order_room_floats(blocks->n_dw, blocks->n_db));
    while (K(ordered_next)(blocks, &at)) {
        grad_block block;
        prefetch_list prefetch;
        part.dw = at.dw;
        part.db = at.db;
        K(grad_block_at)(job, at.block, &block);
        look_prefetch(job, &part, at.next, &block, &prefetch);
        block.prefetch = &prefetch;
        block.start = GEMM_ZERO;
        run_block(job, &part, &block);
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
    prefetch_list prefetch;
    const int64_t n_parts = job->view.groups * job->columns.n * job->n_row_cuts;
    for (;;) {
        const int64_t index = shares_take(&job->shared, (int64_t)slot);
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
            look_prefetch(job, &part, b + 1, &block, &prefetch);
            block.prefetch = &prefetch;
            if (job->is_held) {
                run_held(job, &part, &block);
            } else {
                run_block(job, &part, &block);
            }
        }
    }
}

/* What one of the threads gets of `n_parts` parts, in units of their size. */
static int64_t largest_share(int64_t n_parts, int64_t size, int64_t threads)
{
    return ceil_div(n_parts, threads) * size;
}

/* How dw is shared out: as makes even shares; if both do, what is less to pack for everybody, since
 * each thread packs all of what is not cut, and its tiles keep the width of that. */
static void cut_parts(grad_job *job, int64_t columns, int64_t threads)
{
    const conv_view *view = &job->view;
    job->columns = column_cuts_make(view->outputs, columns);
    job->row_channels = view->channels;
    job->n_row_cuts = 1;
    if (view->groups >= threads || threads == 1) {
        return;
    }
    const column_cuts even = even_cuts(view->outputs, columns, threads);
    const int64_t channels = round_up(ceil_div(view->channels, threads), LANES);
    const int64_t n_channels = ceil_div(view->channels, channels);
    const int64_t by_columns =
        largest_share(view->groups * even.n, cut_most(&even), threads) * view->channels;
    const int64_t by_channels =
        largest_share(view->groups * job->columns.n * n_channels, channels, threads) *
        cut_most(&job->columns);
    const bool is_tie = by_channels == by_columns && view->channels >= view->outputs;
    if ((by_channels < by_columns || is_tie) && view->channels >= 2 * LANES) {
        job->row_channels = channels;
        job->n_row_cuts = n_channels;
    } else {
        job->columns = even;
    }
}

void K(grad_open)(const dunlin_fused_call *call, grad_job *job)
{
    *job = (grad_job){.call = call};
    dunlin__view_forward(call->shape, &job->view);
    const conv_view *view = &job->view;
    job->tiling = grad_tiling(view);
    job->is_chain = grad_is_chain(view);
    const row_tiling *tiling = &job->tiling;
    const bool is_whole = tiling->lines == view->h.n_grid && tiling->columns == view->w.n_grid;
    if (!is_whole) {
        job->per_sample =
            ceil_div(view->h.n_grid, tiling->lines) * ceil_div(view->w.n_grid, tiling->columns);
    }
    job->n_blocks =
        is_whole ? ceil_div(call->n_samples, tiling->samples) : call->n_samples * job->per_sample;
}

static void run_ordered(grad_job *job, int64_t threads)
{
    const dunlin_fused_call *call = job->call;
    const conv_view *view = &job->view;
    ordered blocks = {.dw = call->dw,
                      .db = call->db,
                      .n_dw = view_depth(view) * view->outputs,
                      .n_db = view->outputs,
                      .is_reset = call->is_reset,
                      .n_blocks = job->n_blocks,
                      .n_workers = min_i64(threads, job->n_blocks)};
    K(ordered_open)(&blocks);
    job->ordered = &blocks;
    job->room_floats += order_room_floats(blocks.n_dw, blocks.n_db);
    run_tasks(call->threads, ordered_worker, job, blocks.n_workers,
              call->n_samples * view_rows(view) * blocks.n_dw);
}

void K(reduce_run)(const dunlin_fused_call *call, float *workspace)
{
    grad_job job;
    K(grad_open)(call, &job);
    const conv_view *view = &job.view;
    const int64_t threads = (int64_t)task_threads(call->threads);
    const grad_plan plan = grad_plan_make(view);
    job.chunk = plan.chunk;
    job.is_held = plan.is_held;
    cut_parts(&job, plan.is_held ? view->outputs : plan.columns, threads);
    job.rooms = workspace;
    job.b_floats = plan.b_floats;
    job.room_floats = plan.b_floats + plan.strip_floats;
    if (takes_ordered(view, &plan, threads)) {
        run_ordered(&job, threads);
        return;
    }
    const int64_t n_parts = view->groups * job.columns.n * job.n_row_cuts;
    shares_open(&job.shared, n_parts, threads);
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
