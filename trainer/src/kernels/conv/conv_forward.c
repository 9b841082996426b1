/*
 * conv_forward.c - convolution forward and its input gradient, as GEMMs over windows
 * read in place (input_strip.h). B is packed once for all pixels; a block of pixels
 * takes the whole depth, and is finished - summed, masked, scaled - while it
 * lies in the caches.
 *
 * Each output element is a sum of chains that begin where the depth's blocks do, which depend on
 * the shape alone, as do the units that sums are taken over; other cuts lie between chains and
 * change no bit.
 */
#include "conv_engines.h"

#define B_FLOATS (512 << 10)        /* of packed weights at once, about */
#define B_FLOATS_FEW (96 << 10)     /* for few pixels: they stay in the second cache */
#define FEW_ROWS 128                /* pixels of a call */
#define EVEN_ROWS 56                /* of a unit, at least, where units are made even */
#define THIN_ROWS 32                /* so few that the weights are read as they lie */
#define THIN_DEPTH (2 * PART_DEPTH) /* of the weights, at once */
#define LONG_LINE 16                /* pixels */

static column_cuts view_columns(const conv_view *view, int64_t n_rows, int64_t threads)
{
    const int64_t floats =
        n_rows <= FEW_ROWS ? min_i64(B_FLOATS, threads * B_FLOATS_FEW) : B_FLOATS;
    return column_cuts_make(view->outputs, floats / max_i64(1, view_depth(view)));
}

static int64_t b_floats(const conv_view *view)
{
    const column_cuts cuts = view_columns(view, INT64_MAX, 1);
    return round_up(view_depth(view) * round_up(cut_most(&cuts), VEC), 16);
}

/* --- weights into panels --- */

/* Packed B: for each cut of the columns its blocks of depth. */
static float *cut_b(const map_job *job, int64_t cut)
{
    return job->b + cut * job->cuts.width * job->depth.depth;
}

static void pack_task(void *ctx, size_t index)
{
    const map_job *job = ctx;
    const int64_t task = (int64_t)index / job->n_pack_pieces;
    const int64_t cut = task / job->depth.n;
    const int64_t k0 = task % job->depth.n * job->depth.block;
    const map_piece piece = {.column = job->column + cut * job->cuts.width,
                             .n = cut_size(&job->cuts, cut),
                             .k0 = k0,
                             .k1 = min_i64(job->depth.depth, k0 + job->depth.block),
                             .index = (int64_t)index % job->n_pack_pieces};
    K(map_pack_piece)(job, &piece, cut_b(job, cut) + k0 * round_up(piece.n, VEC));
}

/* --- a block of pixels --- */

/* Where the rows of A begin: in the strip or in the source. Writes the strip.
 */
static void block_rows_of_a(map_block *block, const strip_layout *layout, float *strip)
{
    const float **out_rows = block->a_rows;
    const conv_view *view = layout->view;
    const int64_t step_w = layout->w.step * layout->pitch;
    const int64_t step_h = layout->h.step * layout->width * layout->pitch;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        const grid_piece *piece = &block->pieces[p];
        const float *base = strip;
        if (layout->is_direct) {
            const strip_source *from = &layout->source;
            base = from->view != NULL ? from->view->x : from->grad->g;
            base += ((piece->sample * view->h.n_source + view->h.offset) * view->w.n_source +
                     view->w.offset) *
                        layout->pitch +
                    layout->base + piece->t0 * step_h + piece->u0 * step_w;
        } else {
            K(strip_write)(layout, piece, strip);
            strip += strip_pixels(layout, piece) * layout->pitch;
        }
        for (int64_t t = piece->t0; t < piece->t1; t++, base += step_h) {
            for (int64_t u = 0; u < piece->u1 - piece->u0; u++) {
                *out_rows++ = base + u * step_w;
            }
        }
    }
}

/* Where the rows of C begin. */
void K(map_rows_of_c)(const map_job *job, const map_block *block, int64_t column, float *scratch,
                      float **out_rows)
{
    const conv_view *view = job->view;
    for (int64_t i = 0; scratch != NULL && i < block->n_rows; i++) {
        out_rows[i] = scratch + i * SCRATCH_PITCH;
    }
    if (scratch != NULL) {
        return;
    }
    const int64_t pitch = job->pass->out_pitch;
    float *out = job->pass->out + job->group * view->outputs + column;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        const grid_piece *piece = &block->pieces[p];
        for (int64_t t = piece->t0; t < piece->t1; t++) {
            const int64_t pixel = view_out_pixel(view, piece->sample, t, piece->u0);
            for (int64_t u = 0; u < piece->u1 - piece->u0; u++) {
                *out_rows++ = out + (pixel + u * view->w.out_step) * pitch;
            }
        }
    }
}

/* --- units --- */

/* Columns [column, column + n) of a cut of a block: the whole depth, then what
 * follows. */
static void run_columns(const map_job *job, map_block *block, int64_t column, int64_t n,
                        const map_room *room)
{
    const map_pass *pass = job->pass;
    float *c_rows[BLOCK_ROWS];
    gemm_run runs[DEPTH_RUNS + 2];
    const int64_t first = job->column + block->cut * job->cuts.width + column;
    const int64_t cut_width = round_up(cut_size(&job->cuts, block->cut), VEC);
    K(map_rows_of_c)
    (job, block, first, pass->epilogue == NULL ? NULL : room->scratch, c_rows);
    gemm_block gemm = {.a_rows = block->a_rows,
                       .runs = runs,
                       .m = block->n_rows,
                       .n = n,
                       .c_rows = c_rows,
                       .is_parted = true,
                       .low = pass->low,
                       .high = pass->high,
                       .prefetch = &block->prefetch,
                       .is_streamed = job->is_streamed && pass->epilogue == NULL};
    if (pass->bias != NULL) {
        gemm.bias = pass->bias + job->group * job->view->outputs + first;
    }
    int64_t k0 = 0;
    do {
        const int64_t k1 = depth_end(&job->depth, k0, job->is_thin ? THIN_DEPTH : INT64_MAX / 2);
        strip_layout layout = job->layout;
        K(strip_fit)(&layout, block->pieces[0].u1 - block->pieces[0].u0, k0, k1);
        if (!block->is_ready && k1 > k0) {
            block_rows_of_a(block, &layout, room->strip);
            block->is_ready = k1 - k0 == job->depth.depth;
        }
        gemm.n_runs = k1 > k0 ? K(strip_runs)(&layout, k0, k1, runs) : 0;
        gemm.k = k1 - k0;
        gemm.b = cut_b(job, block->cut) + k0 * cut_width + column * gemm.k;
        if (job->is_thin) {
            gemm.b_pitch = job->view->out_pitch;
            gemm.b = pass->w + k0 * gemm.b_pitch + job->group * job->view->outputs + first;
        }
        gemm.start = k0 > 0 ? GEMM_ADD : pass->bias != NULL ? GEMM_BIAS : GEMM_ZERO;
        gemm.is_clipped = pass->is_clipped && k1 == job->depth.depth;
        if (job->is_summed && k1 == job->depth.depth) {
            K(map_sum)(job, block, first, &gemm, room);
        } else {
            K(gemm)(&gemm);
        }
        k0 = k1;
    } while (k0 < job->depth.depth);
    if (pass->epilogue != NULL || (pass->stat != NULL && !job->is_summed)) {
        K(map_finish)(job, block, first, n, room);
    }
}

/*
 * Rows that are asked for while a block is computed: those that the next one reads, and where its
 * output goes.
 */
static void look_prefetch(const map_job *job, const grid_piece *next, int64_t n_rows,
                          prefetch_list *prefetch)
{
    const map_pass *pass = job->pass;
    const conv_view *view = job->view;
    *prefetch = (prefetch_list){.part = 0};
    if (next->sample >= pass->n_samples || view->groups > 1) {
        return;
    }
    const int64_t pixel = view_out_pixel(view, next->sample, next->t0, next->u0);
    prefetch_source(prefetch, view, pass->source, next, n_rows);
    const bool is_together = view->w.out_step == 1; /* the output's pixels */
    if (is_together && pass->epilogue != NULL) {
        prefetch_epilogue(prefetch, pass->epilogue, job->is_streamed, NULL, view->outputs, pixel,
                          n_rows);
    } else if (is_together && !job->is_streamed) {
        prefetch_rows(prefetch, pass->out, pass->out_pitch, view->outputs, pixel, n_rows);
    }
    prefetch_pace(prefetch, gemm_steps(n_rows, cut_most(&job->cuts), job->depth.depth, TALL_ROWS));
}

/* The first block of a unit. */
static void look_at_unit(const map_job *job, int64_t unit, prefetch_list *prefetch)
{
    const row_tiling *tiling = &job->tiling;
    grid_piece piece = {.sample = unit * tiling->samples};
    if (tiling->samples > 1) {
        const int64_t n = min_i64(tiling->samples, job->pass->n_samples - piece.sample);
        look_prefetch(job, &piece, view_rows(job->view) * n, prefetch);
        return;
    }
    piece.sample = unit / tiling->units_per_sample;
    piece.t0 = (int32_t)(unit % tiling->units_per_sample * tiling->unit_lines);
    const int64_t lines = min_i64(tiling->lines, job->view->h.n_grid - piece.t0);
    look_prefetch(job, &piece, lines * tiling->columns, prefetch);
}

static void run_block(const map_job *job, map_block *block, const map_room *room)
{
    const column_cuts cuts = column_cuts_make(cut_size(&job->cuts, block->cut), SCRATCH_COLUMNS);
    block->is_ready = false;
    block->n_rows = 0;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        block->n_rows += piece_rows(&block->pieces[p]);
    }
    for (int64_t i = 0; i < cuts.n; i++) {
        run_columns(job, block, i * cuts.width, cut_size(&cuts, i), room);
    }
}

static void clear_partials(const map_job *job, const grid_piece *piece, int64_t cut)
{
    K(map_clear)
    (job, piece, job->column + cut * job->cuts.width, cut_size(&job->cuts, cut));
}

/* One block of whole samples. */
static void run_samples(const map_job *job, int64_t unit, int64_t cut, const map_room *room)
{
    const row_tiling *tiling = &job->tiling;
    grid_piece pieces[BLOCK_ROWS];
    map_block block = {.pieces = pieces, .cut = cut};
    const int64_t first = unit * tiling->samples;
    const int64_t end = min_i64(job->pass->n_samples, first + tiling->samples);
    for (int64_t s = first; s < end; s++) {
        pieces[block.n_pieces] =
            (grid_piece){.sample = s, .t1 = job->view->h.n_grid, .u1 = job->view->w.n_grid};
        if (job->n_stats > 0) {
            clear_partials(job, &pieces[block.n_pieces], cut);
        }
        block.n_pieces++;
    }
    look_at_unit(job, unit + 1, &block.prefetch);
    run_block(job, &block, room);
}

/* What comes after a block of a unit of lines. */
static void look_past(const map_job *job, const grid_piece *piece, int64_t unit, int64_t end,
                      prefetch_list *prefetch)
{
    const row_tiling *tiling = &job->tiling;
    const int64_t grid_w = job->view->w.n_grid;
    grid_piece next = *piece;
    if (piece->u1 < grid_w) {
        next.u0 = piece->u1;
    } else if (piece->t1 < end) {
        next.t0 = piece->t1;
        next.u0 = 0;
    } else {
        look_at_unit(job, unit + 1, prefetch);
        return;
    }
    const int64_t lines = min_i64(tiling->lines, end - next.t0);
    look_prefetch(job, &next, lines * min_i64(tiling->columns, grid_w - next.u0), prefetch);
}

static void run_lines(const map_job *job, int64_t unit, int64_t cut, const map_room *room)
{
    const row_tiling *tiling = &job->tiling;
    const int64_t grid_w = job->view->w.n_grid;
    grid_piece piece = {.sample = unit / tiling->units_per_sample};
    map_block block = {.pieces = &piece, .n_pieces = 1, .cut = cut};
    const int64_t first = unit % tiling->units_per_sample * tiling->unit_lines;
    const int64_t end = min_i64(job->view->h.n_grid, first + tiling->unit_lines);
    piece.t0 = (int32_t)first;
    if (job->n_stats > 0) {
        clear_partials(job, &piece, cut);
    }
    for (piece.t0 = (int32_t)first; piece.t0 < end; piece.t0 = piece.t1) {
        piece.t1 = (int32_t)min_i64(end, piece.t0 + tiling->lines);
        for (piece.u0 = 0; piece.u0 < grid_w; piece.u0 = piece.u1) {
            piece.u1 = (int32_t)min_i64(grid_w, piece.u0 + tiling->columns);
            look_past(job, &piece, unit, end, &block.prefetch);
            run_block(job, &block, room);
        }
    }
}

static void map_worker(void *ctx, size_t slot)
{
    map_job *job = ctx;
    float *base = job->rooms + (int64_t)slot * job->room_floats;
    const map_room room = {.strip = base,
                           .scratch = base + job->strip_floats,
                           .sums = base + job->room_floats -
                                   (int64_t)EPILOGUE_MAX_SUMS * (SCRATCH_COLUMNS + VEC)};
    memset(room.sums, 0, sizeof(float) * EPILOGUE_MAX_SUMS * (SCRATCH_COLUMNS + VEC));
    for (;;) {
        const int64_t index = shares_take(&job->units, (int64_t)slot);
        if (index >= job->units.n_units) {
            vstream_done();
            return;
        }
        const int64_t unit = index / job->cuts.n;
        if (job->tiling.samples > 1) {
            run_samples(job, unit, index % job->cuts.n, &room);
        } else {
            run_lines(job, unit, index % job->cuts.n, &room);
        }
    }
}

/* --- views --- */

static int64_t room_floats_of(int64_t strip_floats, bool has_scratch)
{
    return strip_floats + (has_scratch ? (int64_t)BLOCK_ROWS * SCRATCH_PITCH : 0) +
           round_up((int64_t)EPILOGUE_MAX_SUMS * (SCRATCH_COLUMNS + VEC), 16);
}

/* Columns are cut where there are not enough units for all threads. */
static column_cuts packed_cuts(const map_job *job, int64_t n_columns, int64_t threads)
{
    const int64_t wanted = threads > 1 ? ceil_div(2 * threads, max_i64(1, job->n_units)) : 1;
    return job->tiling.samples > 1 ? sample_cuts(n_columns, job->n_units, threads)
                                   : column_cuts_make(n_columns, ceil_div(n_columns, wanted));
}

/* Samples of a unit, so that units go evenly into the threads: where the cuts lie changes no bit.
 */
static int64_t even_samples(const map_job *job, int64_t threads)
{
    const int64_t most = job->tiling.samples;
    const int64_t n = job->pass->n_samples;
    const int64_t n_units = round_up(ceil_div(n, most), threads);
    const int64_t samples = max_i64(1, ceil_div(n, n_units));
    return most > 1 && samples > 1 && samples * view_rows(job->view) >= EVEN_ROWS ? samples : most;
}

/* Columns that are packed at once, all pixels. */
static void run_packed(map_job *job, int64_t n_columns)
{
    const map_pass *pass = job->pass;
    const int64_t threads = (int64_t)task_threads(pass->threads);
    const int64_t rows = view_rows(job->view) * pass->n_samples;
    const int64_t work = max_i64(1, job->depth.depth) * n_columns;
    job->cuts = packed_cuts(job, n_columns, threads);
    if (!job->is_thin) {
        job->n_pack_pieces = pack_pieces_for(threads);
        run_tasks(pass->threads, pack_task, job, job->cuts.n * job->depth.n * job->n_pack_pieces,
                  work);
    }
    const int64_t n_workers = min_i64(threads, job->n_units * job->cuts.n);
    shares_open(&job->units, job->n_units * job->cuts.n, n_workers);
    run_tasks(pass->threads, map_worker, job, n_workers, work * rows);
}

/* What is read again soon stays: what the next part of the depth is added to, sums. */
static bool is_streamed(const map_job *job, int64_t n_rows)
{
    const map_pass *pass = job->pass;
    const int64_t channels = job->view->outputs;
    if (pass->epilogue != NULL) {
        return epilogue_is_streamed(pass->epilogue, channels, n_rows);
    }
    return job->depth.n == 1 && (pass->stat == NULL || job->is_summed) &&
           rows_are_streamed(pass->out, pass->out_pitch, channels, n_rows);
}

static void run_view(const map_pass *pass, const conv_view *view, int64_t first_unit)
{
    map_job job = {.pass = pass, .view = view, .first_unit = first_unit};
    if (view_rows(view) == 0 || pass->n_samples == 0) {
        return;
    }
    const block_limits limits = map_limits(view, pass->is_transposed);
    job.tiling = K(row_tiling_make)(view, limits);
    job.depth = K(depth_cuts_make)(view);
    const int64_t threads = (int64_t)task_threads(pass->threads);
    job.tiling.samples = even_samples(&job, threads);
    job.n_units = job.tiling.samples > 1 ? ceil_div(pass->n_samples, job.tiling.samples)
                                         : pass->n_samples * job.tiling.units_per_sample;
    job.n_stats = pass->epilogue != NULL ? pass->epilogue->n_stats : pass->stat != NULL ? 1 : 0;
    job.stat_channels = view->out_pitch;
    job.layout = K(strip_layout_make)(view, pass->source, 0, false);
    job.strip_floats = job.layout.is_direct ? 0 : K(strip_floats)(view, limits);
    job.room_floats = room_floats_of(job.strip_floats, pass->epilogue != NULL);
    job.b = pass->workspace;
    job.rooms = job.b + b_floats(view);
    const int64_t n_rows = view_rows(view) * pass->n_samples;
    /* samples of few rows lie together in a tile: their sums come after */
    job.is_summed = pass->stat != NULL && job.tiling.samples == 1;
    job.is_streamed = is_streamed(&job, n_rows);
    job.is_thin = n_rows <= THIN_ROWS && !pass->is_transposed;
    const column_cuts blocks = job.is_thin ? even_cuts(view->outputs, view->outputs, 1)
                                           : view_columns(view, n_rows, threads);
    for (job.group = 0; job.group < view->groups; job.group++) {
        job.layout = K(strip_layout_make)(view, pass->source, job.group, false);
        for (int64_t i = 0; i < blocks.n; i++) {
            job.column = i * blocks.width;
            run_packed(&job, cut_size(&blocks, i));
        }
    }
}

/*
 * With one output along an axis, the stride along it says nothing. With one larger than the input
 * each line of the input gradient is a phase of its own, with the one tap that meets the output
 * instead of the whole kernel; where lines are long enough for a block of their own.
 */
static dunlin_conv_shape shape_in_lines(const dunlin_conv_shape *shape)
{
    dunlin_conv_shape lines = *shape;
    if (shape->out_h == 1 && shape->kernel_h > 1 && shape->in_w >= LONG_LINE) {
        lines.stride_h = shape->in_h + shape->kernel_h * shape->dilation_h;
    } else if (shape->out_w == 1 && shape->kernel_w > 1 && shape->in_h >= LONG_LINE) {
        lines.stride_w = shape->in_w + shape->kernel_w * shape->dilation_w;
    }
    return lines;
}

/* View i of a pass; false past the last. */
static bool pass_view(const dunlin_conv_shape *shape, bool is_input_grad, int32_t i,
                      conv_view *out_view)
{
    if (!is_input_grad) {
        dunlin__view_forward(shape, out_view);
        return i == 0;
    }
    const dunlin_conv_shape lines = shape_in_lines(shape);
    if (i >= lines.stride_h * lines.stride_w) {
        return false;
    }
    dunlin__view_input_grad(&lines, i / lines.stride_w, i % lines.stride_w, out_view);
    return true;
}

void K(map_run)(const map_pass *pass, bool is_input_grad)
{
    conv_view view;
    int64_t unit = 0;
    for (int32_t i = 0; pass_view(pass->shape, is_input_grad, i, &view); i++) {
        run_view(pass, &view, unit);
        if (view_rows(&view) > 0) {
            unit += K(row_tiling_make)(&view, map_limits(&view, is_input_grad)).units_per_sample;
        }
    }
}

int64_t K(map_units)(const dunlin_conv_shape *shape, bool is_input_grad)
{
    conv_view view;
    int64_t units = 0;
    for (int32_t i = 0; pass_view(shape, is_input_grad, i, &view); i++) {
        if (view_rows(&view) > 0) {
            units += K(row_tiling_make)(&view, map_limits(&view, is_input_grad)).units_per_sample;
        }
    }
    return units;
}

uint64_t K(map_bytes)(const dunlin_conv_shape *shape, bool is_input_grad, uint32_t uses,
                      size_t n_threads)
{
    conv_view view;
    int64_t most = 0;
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    for (int32_t i = 0; pass_view(shape, is_input_grad, i, &view); i++) {
        const bool is_direct =
            (uses & (is_input_grad ? DUNLIN_FUSED_GRAD : DUNLIN_FUSED_VIEW)) == 0 &&
            K(view_is_direct)(&view);
        const int64_t room =
            room_floats_of(is_direct ? 0 : K(strip_floats)(&view, map_limits(&view, is_input_grad)),
                           is_input_grad);
        most = max_i64(most, b_floats(&view) + threads * round_up(room, 16));
    }
    return (uint64_t)most * sizeof(float);
}
