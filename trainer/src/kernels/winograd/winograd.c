/*
 * winograd.c - maps of 3 x 3 windows by Winograd's algorithm (winograd.h): a block of tiles is
 * transformed to its points, each point is a product with its own transformed weights, and the
 * products come back as pixels, which are finished like any map's.
 *
 * Tiles lie as a view whose windows are 4 x 4 pixels, two apart, so strips and blocks are those of
 * any convolution. Whether a shape is computed so, and its blocks, depend on the shape alone.
 */
#include "winograd.h"

#define WINO_LEAST 16             /* channels on either side */
#define WINO_COLUMNS 96           /* of the products that a block finishes at once: whole panels */
#define WINO_TILES 64             /* of a block, at most */
#define WINO_FLOATS (256 << 10)   /* of its points, about */
#define WINO_UNIT (UNIT_ROWS / 4) /* tiles of a unit, about */
#define U_FLOATS (1024 << 10)     /* of transformed weights that all tiles pass at once, about */
#define PACK_DEPTH 16             /* of the weights, transformed by a task */

typedef struct wino_plan {
    conv_view view; /* of the pixels */
    conv_view tiles;
    row_tiling tiling; /* of tiles */
    int64_t most;      /* tiles of a block */
    int64_t pitch, point;
    int64_t m_pitch, m_point; /* of the products */
    int64_t strip_floats, room_floats;
} wino_plan;

typedef struct wino_job {
    wino_plan plan;
    map_job map; /* of the pixels; its cuts are of the weights packed at once */
    strip_layout layout;
    float *u;
} wino_job;

typedef struct wino_room {
    float *strip, *points, *products;
    map_room map;
} wino_room;

/* --- plan --- */

static void view_of(const dunlin_conv_shape *shape, bool is_input_grad, conv_view *view)
{
    if (is_input_grad) {
        dunlin__view_input_grad(shape, 0, 0, view);
    } else {
        dunlin__view_forward(shape, view);
    }
}

bool K(winograd_is_for)(const dunlin_conv_shape *shape, bool is_input_grad)
{
    conv_view view;
    if (shape->groups != 1 || shape->kernel_h != 3 || shape->kernel_w != 3 ||
        shape->stride_h != 1 || shape->stride_w != 1 || shape->dilation_h != 1 ||
        shape->dilation_w != 1 || shape->in_c < WINO_LEAST || shape->out_c < WINO_LEAST) {
        return false;
    }
    view_of(shape, is_input_grad, &view);
    const int64_t tiles = (int64_t)((view.h.n_grid + 1) / 2) * (int64_t)((view.w.n_grid + 1) / 2);
    return tiles > 0 && 9 * view_rows(&view) * 2 >= 3 * WINO_POINTS * tiles;
}

static wino_plan plan_make(const dunlin_conv_shape *shape, bool is_input_grad)
{
    wino_plan plan;
    view_of(shape, is_input_grad, &plan.view);
    plan.tiles = plan.view;
    const conv_axis *h = &plan.view.h;
    const conv_axis *w = &plan.view.w;
    plan.tiles.h = wino_axis(h->n_grid, h->n_source, h->offset, WINO_SIDE);
    plan.tiles.w = wino_axis(w->n_grid, w->n_source, w->offset, WINO_SIDE);
    const int64_t fit = WINO_FLOATS / ((int64_t)WINO_POINTS * plan.view.channels);
    const block_limits limits = {max_i64(WINO_TILES / 4, min_i64(WINO_TILES, fit)), STRIP_FLOATS,
                                 WINO_UNIT};
    plan.tiling = K(row_tiling_make)(&plan.tiles, limits);
    const row_tiling *tiling = &plan.tiling;
    plan.most = tiling->samples * tiling->lines * tiling->columns;
    /* a little more than a power of two, so that they do not fight for one set of the cache */
    plan.pitch = round_up(plan.view.channels, 16) + 16;
    plan.point = plan.most * plan.pitch + 16;
    plan.m_pitch = round_up(min_i64(WINO_COLUMNS + VEC, plan.view.outputs), 16) + 16;
    plan.m_point = plan.most * plan.m_pitch + 16;
    plan.strip_floats = K(strip_floats)(&plan.tiles, limits);
    plan.room_floats = round_up(plan.strip_floats, 16) + WINO_POINTS * (plan.point + plan.m_point) +
                       (is_input_grad ? 4 * plan.most * SCRATCH_PITCH : 0) +
                       round_up((int64_t)EPILOGUE_MAX_SUMS * (SCRATCH_COLUMNS + VEC), 16);
    return plan;
}

/* Columns whose weights are held at once. On several threads few tiles are brought to their points
 * only once where all weights fit: each thread holds its own columns'. */
static column_cuts plan_columns(const wino_plan *plan, int64_t threads)
{
    const int64_t columns = plan->view.outputs;
    const int64_t most = U_FLOATS / ((int64_t)WINO_POINTS * plan->view.channels);
    if (threads > 1 && plan->tiling.samples > 1 && columns <= most) {
        return even_cuts(columns, columns, 1);
    }
    return column_cuts_make(columns, most);
}

/* Floats of a point's weights, n columns. */
static int64_t u_point(const wino_plan *plan, int64_t n)
{
    return plan->view.channels * round_up(n, VEC) + 16;
}

static int64_t u_floats(const wino_plan *plan, int64_t threads)
{
    const column_cuts cuts = plan_columns(plan, threads);
    return WINO_POINTS * u_point(plan, cut_most(&cuts));
}

int64_t K(winograd_units)(const dunlin_conv_shape *shape, bool is_input_grad)
{
    return plan_make(shape, is_input_grad).tiling.units_per_sample;
}

uint64_t K(winograd_bytes)(const dunlin_conv_shape *shape, bool is_input_grad, size_t n_threads)
{
    const wino_plan plan = plan_make(shape, is_input_grad);
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    return (uint64_t)(u_floats(&plan, threads) + threads * plan.room_floats) * sizeof(float);
}

/* --- weights --- */

/* Row k of the weights, from the first of the packed columns on. */
static void tap_rows(const wino_job *job, int64_t k, int64_t column, const float **taps)
{
    const conv_view *view = &job->plan.view;
    const bool is_transposed = job->map.pass->is_transposed;
    for (int64_t i = 0; i < 9; i++) {
        const int64_t tap = view_tap(view, i);
        taps[i] = job->map.pass->w + (is_transposed
                                          ? (tap * view->outputs + column) * view->source_pitch + k
                                          : (tap * view->channels + k) * view->out_pitch + column);
    }
}

/* A line of each tap that is wanted soon, `floats` further on. */
ALWAYS_INLINE void ask_taps(const float *const *taps, int64_t floats)
{
    UNROLL
    for (int i = 0; i < 9; i++) {
        __builtin_prefetch(taps[i] + floats, 0, 2);
    }
}

/* A vector of a panel's columns, transposed: rows[1] of them from rows[0] on, `width` apart. */
static void pack_vector(const wino_job *job, int64_t column, int64_t used, const int64_t rows[2],
                        float *to, int64_t width, int64_t point)
{
    float transposed[WINO_POINTS][VEC][PACK_DEPTH] = {0};
    const float *taps[9];
    for (int64_t n = 0; n < used; n++) {
        tap_rows(job, rows[0], column + n, taps);
        ask_taps(taps, PACK_DEPTH);
        for (int64_t c = 0; c < rows[1]; c += VEC) {
            wino_weights(taps, c, vec_left(rows[1], c), &transposed[0][n][c],
                         (int64_t)VEC * PACK_DEPTH);
        }
    }
    for (int64_t p = 0; p < WINO_POINTS; p++) {
        K(transpose_block)(transposed[p][0], PACK_DEPTH, VEC, rows[1], to + p * point, width);
    }
}

/* Depth [k0, k1) and the `used` columns of one panel, from `column` on. */
static void pack_panel(const wino_job *job, int64_t column, int64_t used, int64_t k0, int64_t k1,
                       float *to, int64_t point)
{
    const int64_t width = round_up(used, VEC);
    const float *taps[9];
    if (!job->map.pass->is_transposed) {
        for (int64_t k = k0; k < k1; k++) {
            tap_rows(job, k, column, taps);
            for (int64_t c = 0; c < used; c += VEC) {
                wino_weights(taps, c, vec_left(used, c), to + k * width + c, point);
            }
        }
        return;
    }
    for (int64_t n = 0; n < width; n += VEC) {
        pack_vector(job, column + n, vec_left(used, n), (const int64_t[]){k0, k1 - k0},
                    to + k0 * width + n, width, point);
    }
}

/* The weights of a cut: from point to point as far as those of all columns that are packed. */
static float *cut_u(const wino_job *job, int64_t cut)
{
    return job->u + cut * job->map.cuts.width * job->plan.view.channels;
}

static void pack_task(void *ctx, size_t index)
{
    const wino_job *job = ctx;
    const int64_t depth = job->plan.view.channels;
    const int64_t n_parts = ceil_div(depth, PACK_DEPTH);
    const int64_t cut = (int64_t)index / n_parts;
    const int64_t k0 = (int64_t)index % n_parts * PACK_DEPTH;
    const int64_t k1 = min_i64(depth, k0 + PACK_DEPTH);
    const int64_t n = cut_size(&job->map.cuts, cut);
    const int64_t first = job->map.column + cut * job->map.cuts.width;
    const int64_t point = u_point(&job->plan, job->map.cuts.columns);
    for (int64_t column = 0; column < n;) {
        const int64_t width = (int64_t)panel_vectors(ceil_div(n - column, VEC)) * VEC;
        float *to = cut_u(job, cut) + column * depth;
        pack_panel(job, first + column, min_i64(width, n - column), k0, k1, to, point);
        column += width;
    }
}

/* --- a block of tiles --- */

/* A block's tiles: pieces of the tiles' view, and where their points lie. */
typedef struct wino_block {
    map_block map; /* pieces of pixels; a_rows of tiles */
    grid_piece pixels[WINO_TILES];
    const grid_piece *tiles;
    int64_t n_tiles;
} wino_block;

/* The tiles of a piece to their points, from tile `first` of the block on. */
static void piece_points(const wino_job *job, const grid_piece *piece, int64_t first,
                         const wino_room *room)
{
    const wino_plan *plan = &job->plan;
    strip_layout layout = job->layout;
    const float *from = K(winograd_strip)(&layout, piece, room->strip);
    const wino_line run = {.from = from,
                           .pitch = layout.pitch,
                           .line = layout.width * layout.pitch,
                           .to = room->points + first * plan->pitch,
                           .to_pitch = plan->pitch,
                           .point = plan->point,
                           .n_tiles = piece->u1 - piece->u0};
    wino_lines(run, piece->t1 - piece->t0, plan->view.channels);
}

/* The products of n columns back to pixels, into rows of C from `rows` on. */
static void block_pixels(const wino_job *job, const wino_block *block, float *const *rows,
                         int64_t column, int64_t n, const wino_room *room)
{
    const wino_plan *plan = &job->plan;
    const map_pass *pass = job->map.pass;
    wino_out out = {.from = room->products,
                    .point = plan->m_point,
                    .bias = pass->bias == NULL ? NULL : pass->bias + column,
                    .is_clipped = pass->is_clipped,
                    .low = pass->low,
                    .high = pass->high};
    for (int64_t p = 0; p < block->map.n_pieces; p++) {
        const grid_piece *pixels = &block->map.pieces[p];
        const int64_t width = pixels->u1 - pixels->u0;
        for (int64_t t = pixels->t0; t < pixels->t1; t += 2) {
            const bool has_below = t + 1 < pixels->t1;
            for (int64_t u = 0; u < width; u += 2) {
                const bool has_right = u + 1 < width;
                out.rows[0] = rows[u];
                out.rows[1] = has_right ? rows[u + 1] : NULL;
                out.rows[2] = has_below ? rows[width + u] : NULL;
                out.rows[3] = has_below && has_right ? rows[width + u + 1] : NULL;
                int64_t c = 0;
                for (; c + VEC <= n; c += VEC) {
                    wino_output(&out, c, VEC);
                }
                if (c < n) {
                    wino_output(&out, c, (int32_t)(n - c));
                }
                out.from += plan->m_pitch;
            }
            rows += (has_below ? 2 : 1) * width;
        }
    }
}

/* Columns [column, column + n) of a cut: products, pixels, and what follows. */
static void run_columns(const wino_job *job, wino_block *block, int64_t column, int64_t n,
                        const wino_room *room)
{
    const wino_plan *plan = &job->plan;
    const map_pass *pass = job->map.pass;
    const int64_t cut = block->map.cut;
    const int64_t u_step = u_point(plan, job->map.cuts.columns);
    const int64_t first = job->map.column + cut * job->map.cuts.width + column;
    float *c_rows[4 * WINO_TILES];
    for (int64_t p = 0; p < WINO_POINTS; p++) {
        const gemm_run run = {.offset = p * plan->point, .n = plan->view.channels};
        for (int64_t i = 0; i < block->n_tiles; i++) {
            c_rows[i] = room->products + p * plan->m_point + i * plan->m_pitch;
        }
        const gemm_block gemm = {.a_rows = block->map.a_rows,
                                 .runs = &run,
                                 .n_runs = 1,
                                 .b = cut_u(job, cut) + p * u_step + column * plan->view.channels,
                                 .m = block->n_tiles,
                                 .n = n,
                                 .k = plan->view.channels,
                                 .c_rows = c_rows,
                                 .is_parted = true,
                                 .prefetch = &block->map.prefetch};
        K(gemm)(&gemm);
    }
    K(map_rows_of_c)
    (&job->map, &block->map, first, pass->epilogue == NULL ? NULL : room->map.scratch, c_rows);
    block_pixels(job, block, c_rows, first, n, room);
    if (pass->epilogue != NULL || pass->stat != NULL) {
        K(map_finish)(&job->map, &block->map, first, n, &room->map);
    }
}

static void run_block(const wino_job *job, wino_block *block, const wino_room *room)
{
    const wino_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    grid_piece *pixels = block->pixels;
    block->n_tiles = 0;
    block->map.n_rows = 0;
    for (int64_t p = 0; p < block->map.n_pieces; p++) {
        const grid_piece *piece = &block->tiles[p];
        pixels[p] = (grid_piece){piece->sample, 2 * piece->t0,
                                 (int32_t)min_i64(2 * piece->t1, view->h.n_grid), 2 * piece->u0,
                                 (int32_t)min_i64(2 * piece->u1, view->w.n_grid)};
        piece_points(job, piece, block->n_tiles, room);
        block->n_tiles += piece_rows(piece);
        block->map.n_rows += piece_rows(&pixels[p]);
    }
    block->map.pieces = pixels;
    for (int64_t i = 0; i < block->n_tiles; i++) {
        block->map.a_rows[i] = room->points + i * plan->pitch;
    }
    const int64_t cut_n = cut_size(&job->map.cuts, block->map.cut);
    const column_cuts cuts = column_cuts_make(cut_n, WINO_COLUMNS);
    for (int64_t i = 0; i < cuts.n; i++) {
        run_columns(job, block, i * cuts.width, cut_size(&cuts, i), room);
    }
}

/* --- units --- */

/* What is asked for while a block is computed: what `next` reads, and where its output goes. */
static void look_prefetch(const wino_job *job, const grid_piece *next, int64_t n_tiles,
                          prefetch_list *prefetch)
{
    const wino_plan *plan = &job->plan;
    const map_pass *pass = job->map.pass;
    const conv_view *view = &plan->view;
    *prefetch = (prefetch_list){.part = 0};
    if (next->sample >= pass->n_samples) {
        return;
    }
    const int64_t pixel = view_out_pixel(view, next->sample, 2 * next->t0, 2 * next->u0);
    const int64_t last = view_rows(view) * pass->n_samples;
    const int64_t n_rows = min_i64(4 * n_tiles, last - pixel);
    prefetch_source(prefetch, &plan->tiles, pass->source, next, n_tiles);
    if (pass->epilogue != NULL) {
        prefetch_epilogue(prefetch, pass->epilogue, job->map.is_streamed, NULL, view->outputs,
                          pixel, n_rows);
    } else {
        prefetch_rows(prefetch, pass->out, pass->out_pitch, view->outputs, pixel, n_rows);
    }
    prefetch_pace(prefetch, WINO_POINTS * gemm_steps(n_tiles, cut_most(&job->map.cuts),
                                                     view->channels, TALL_ROWS));
}

/* Block `index` of all: of whole samples, or of lines of one. Returns its tiles, 0 past the last.
 */
static int64_t block_at(const wino_job *job, int64_t index, grid_piece *pieces, int64_t *out_n)
{
    const row_tiling *tiling = &job->plan.tiling;
    const conv_view *tiles = &job->plan.tiles;
    const int64_t n_samples = job->map.pass->n_samples;
    int64_t n = 0;
    *out_n = 0;
    if (tiling->samples > 1) {
        const int64_t first = index * tiling->samples;
        for (int64_t s = first; s < min_i64(n_samples, first + tiling->samples); s++) {
            pieces[(*out_n)++] =
                (grid_piece){.sample = s, .t1 = tiles->h.n_grid, .u1 = tiles->w.n_grid};
            n += view_rows(tiles);
        }
        return n;
    }
    const int64_t per_line = ceil_div(tiles->w.n_grid, tiling->columns);
    const int64_t per_unit = ceil_div(tiling->unit_lines, tiling->lines) * per_line;
    const int64_t unit = index / per_unit;
    const int64_t within = index % per_unit;
    const int64_t first = unit % tiling->units_per_sample * tiling->unit_lines;
    const int64_t end = min_i64(tiles->h.n_grid, first + tiling->unit_lines);
    grid_piece piece = {.sample = unit / tiling->units_per_sample,
                        .t0 = (int32_t)min_i64(end, first + within / per_line * tiling->lines),
                        .u0 = (int32_t)(within % per_line * tiling->columns)};
    piece.t1 = (int32_t)min_i64(end, piece.t0 + tiling->lines);
    piece.u1 = (int32_t)min_i64(tiles->w.n_grid, piece.u0 + tiling->columns);
    pieces[(*out_n)++] = piece;
    return piece.sample < n_samples ? piece_rows(&piece) : 0;
}

static int64_t blocks_per_unit(const wino_plan *plan)
{
    const row_tiling *tiling = &plan->tiling;
    return tiling->samples > 1 ? 1
                               : ceil_div(tiling->unit_lines, tiling->lines) *
                                     ceil_div(plan->tiles.w.n_grid, tiling->columns);
}

static void clear_sums(const wino_job *job, const grid_piece *piece, int64_t cut)
{
    const grid_piece pixels = {.sample = piece->sample, .t0 = 2 * piece->t0};
    K(map_clear)
    (&job->map, &pixels, job->map.column + cut * job->map.cuts.width,
     cut_size(&job->map.cuts, cut));
}

static void run_unit(const wino_job *job, int64_t unit, int64_t cut, const wino_room *room)
{
    const int64_t n_blocks = blocks_per_unit(&job->plan);
    grid_piece pieces[WINO_TILES];
    grid_piece soon[WINO_TILES];
    int64_t n_soon = 0;
    wino_block block = {.map = {.cut = cut}, .tiles = pieces};
    for (int64_t i = 0; i < n_blocks; i++) {
        if (block_at(job, unit * n_blocks + i, pieces, &block.map.n_pieces) == 0) {
            return;
        }
        for (int64_t p = 0; i == 0 && job->map.n_stats > 0 && p < block.map.n_pieces; p++) {
            clear_sums(job, &pieces[p], cut);
        }
        const int64_t next = i + 1 < n_blocks ? unit * n_blocks + i + 1 : (unit + 1) * n_blocks;
        const int64_t n_tiles = block_at(job, next, soon, &n_soon);
        block.map.prefetch = (prefetch_list){.part = 0};
        if (n_tiles > 0) {
            look_prefetch(job, &soon[0], n_tiles, &block.map.prefetch);
        }
        run_block(job, &block, room);
    }
}

static void wino_worker(void *ctx, size_t slot)
{
    wino_job *job = ctx;
    const wino_plan *plan = &job->plan;
    const int64_t n_sums = (int64_t)EPILOGUE_MAX_SUMS * (SCRATCH_COLUMNS + VEC);
    wino_room room = {.strip = job->map.rooms + (int64_t)slot * plan->room_floats};
    room.points = room.strip + round_up(plan->strip_floats, 16);
    room.products = room.points + WINO_POINTS * plan->point;
    room.map.scratch = room.products + WINO_POINTS * plan->m_point;
    room.map.sums = room.strip + plan->room_floats - round_up(n_sums, 16);
    memset(room.map.sums, 0, (size_t)n_sums * sizeof(float));
    for (;;) {
        const int64_t index = shares_take(&job->map.units, (int64_t)slot);
        if (index >= job->map.units.n_units) {
            vstream_done();
            return;
        }
        run_unit(job, index / job->map.cuts.n, index % job->map.cuts.n, &room);
    }
}

void K(winograd_run)(const map_pass *pass, bool is_input_grad)
{
    wino_job job = {.plan = plan_make(pass->shape, is_input_grad), .u = pass->workspace};
    const wino_plan *plan = &job.plan;
    const conv_view *view = &job.plan.view;
    const int64_t threads = (int64_t)task_threads(pass->threads);
    const int64_t n_rows = view_rows(view) * pass->n_samples;
    if (n_rows == 0) {
        return;
    }
    job.map.pass = pass;
    job.map.view = view;
    job.map.tiling = plan->tiling;
    job.map.tiling.unit_lines = 2 * plan->tiling.unit_lines;
    job.map.n_units = plan->tiling.samples > 1 ? ceil_div(pass->n_samples, plan->tiling.samples)
                                               : pass->n_samples * plan->tiling.units_per_sample;
    job.map.n_stats = pass->epilogue != NULL ? pass->epilogue->n_stats : pass->stat != NULL ? 1 : 0;
    job.map.stat_channels = view->out_pitch;
    job.map.is_streamed =
        pass->epilogue != NULL && epilogue_is_streamed(pass->epilogue, view->outputs, n_rows);
    job.map.rooms = job.u + u_floats(plan, threads);
    job.layout = K(strip_layout_make)(&plan->tiles, pass->source, 0, false);
    const column_cuts blocks = plan_columns(plan, threads);
    const int64_t wanted = threads > 1 ? ceil_div(2 * threads, job.map.n_units) : 1;
    for (int64_t i = 0; i < blocks.n; i++) {
        const int64_t n = cut_size(&blocks, i);
        const int64_t work = view->channels * n;
        job.map.column = i * blocks.width;
        job.map.cuts = plan->tiling.samples > 1 ? sample_cuts(n, job.map.n_units, threads)
                                                : column_cuts_make(n, ceil_div(n, wanted));
        run_tasks(pass->threads, pack_task, &job,
                  job.map.cuts.n * ceil_div(view->channels, PACK_DEPTH), WINO_POINTS * work);
        const int64_t n_workers = min_i64(threads, job.map.n_units * job.map.cuts.n);
        shares_open(&job.map.units, job.map.n_units * job.map.cuts.n, n_workers);
        run_tasks(pass->threads, wino_worker, &job, n_workers, work * n_rows * 4);
    }
}
