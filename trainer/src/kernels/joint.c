/*
 * joint.c - both gradients of a pointwise convolution, a block of pixels at a time: dy is read and
 * made once, into panels that are B of the weight gradient and A of the input gradient.
 *
 * The blocks, their order and every chain are those of the two passes apart. On several threads a
 * block's part of dw is made from zero and added when its turn comes.
 */
#include "fused.h"

#include <sched.h>

typedef struct joint_job {
    map_job map;
    grad_job grad;
    conv_view view; /* of the input gradient */
    int64_t whole;  /* depth in panels of full width */
    float *b;       /* the weights, turned and packed */
    float *rooms;
    int64_t dy_floats, x_floats, room_floats;
    bool is_shared; /* several threads */
    int64_t n_workers;
    atomic_int_fast64_t next, turn;
} joint_job;

static int64_t block_rows_most(const row_tiling *tiling, const conv_view *view)
{
    const bool is_whole = tiling->lines == view->h.n_grid && tiling->columns == view->w.n_grid;
    return tiling->lines * tiling->columns * (is_whole ? tiling->samples : 1);
}

bool K(joint_is_for)(const dunlin_conv_shape *shape, size_t n_threads)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    if (!joint_may_be_for(&view) || view_rows(&view) == 0) {
        return false;
    }
    const row_tiling tiling = K(row_tiling_make)(&view, MAP_LIMITS);
    return n_threads <= 1 ||
           (view_rows(&view) >= DUNLIN_KERNEL_ROWS_PER_PARTIAL && tiling.columns == view.w.n_grid);
}

static int64_t room_floats_of(const dunlin_conv_shape *shape, size_t n_threads, int64_t *out_dy,
                              int64_t *out_x)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    const row_tiling tiling = K(row_tiling_make)(&view, MAP_LIMITS);
    const int64_t rows = block_rows_most(&tiling, &view);
    *out_dy = round_up(rows * round_up(shape->out_c, VEC), 16);
    *out_x = round_up(rows * round_up(shape->in_c, LANES), 16);
    const int64_t weights = n_threads > 1 ? ((int64_t)shape->in_c + 1) * shape->out_c : 0;
    return *out_dy + *out_x + (int64_t)BLOCK_ROWS * SCRATCH_PITCH +
           round_up((int64_t)SINK_MAX_SUMS * (SCRATCH_COLUMNS + VEC), 16) + round_up(weights, 16);
}

static int64_t weights_floats(const dunlin_conv_shape *shape)
{
    return round_up((int64_t)shape->out_c * round_up(shape->in_c, VEC), 16);
}

size_t K(joint_bytes)(const dunlin_conv_shape *shape, size_t n_threads)
{
    int64_t dy = 0;
    int64_t x = 0;
    const int64_t room = room_floats_of(shape, n_threads, &dy, &x);
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    return (size_t)(weights_floats(shape) + threads * room) * sizeof(float);
}

/* The depth of part d: that in panels of full width, that in the narrower ones. */
static void depth_part(const joint_job *job, int64_t d, int64_t *out_k0, int64_t *out_k1)
{
    *out_k0 = d == 0 ? 0 : job->whole;
    *out_k1 = d == 0 ? job->whole : job->view.channels;
}

/* The weights of cut i of the columns: part after part of the depth. */
static float *cut_b(const joint_job *job, int64_t i)
{
    return job->b + i * job->map.cuts.width * job->view.channels;
}

static void pack_task(void *ctx, size_t index)
{
    const joint_job *job = ctx;
    const int64_t n = cut_size(&job->map.cuts, (int64_t)index);
    const int64_t width = round_up(n, VEC);
    for (int64_t d = 0; d < 2; d++) {
        int64_t k0 = 0;
        int64_t k1 = 0;
        depth_part(job, d, &k0, &k1);
        if (k1 > k0) {
            K(map_pack)
            (&job->map, (int64_t)index * job->map.cuts.width, n, k0, k1,
             cut_b(job, (int64_t)index) + k0 * width);
        }
    }
}

/* A part of dy's panels as rows: where they begin, and the runs of their depth. */
static int64_t rows_of_dy(const joint_job *job, map_block *block, const float *dy, int64_t k0,
                          int64_t k1, gemm_run *runs)
{
    const int64_t vectors = panel_vectors(ceil_div(job->view.channels - k0, VEC));
    const int64_t width = vectors * VEC;
    int64_t n_runs = 0;
    for (int64_t i = 0; i < block->n_rows; i++) {
        block->a_rows[i] = dy + k0 * block->n_rows + i * width;
    }
    for (int64_t k = k0; k < k1; k += width) {
        runs[n_runs] = (gemm_run){n_runs * block->n_rows * width, min_i64(width, k1 - k)};
        n_runs++;
    }
    return n_runs;
}

/* dx of one block, from dy's panels. */
static void run_dx(const joint_job *job, map_block *block, const float *dy, const map_room *room)
{
    const map_pass *pass = job->map.pass;
    float *c_rows[BLOCK_ROWS];
    gemm_run runs[DEPTH_RUNS];
    for (int64_t i = 0; i < job->map.cuts.n; i++) {
        const int64_t column = i * job->map.cuts.width;
        const int64_t n = cut_size(&job->map.cuts, i);
        K(map_rows_of_c)
        (&job->map, block, column, pass->sink == NULL ? NULL : room->scratch, c_rows);
        gemm_start start = GEMM_ZERO;
        for (int64_t d = 0; d < 2; d++) {
            int64_t k0 = 0;
            int64_t k1 = 0;
            depth_part(job, d, &k0, &k1);
            if (k1 == k0) {
                continue;
            }
            gemm_block gemm = {.a_rows = block->a_rows,
                               .a_pitch = 1,
                               .runs = runs,
                               .n_runs = rows_of_dy(job, block, dy, k0, k1, runs),
                               .b = cut_b(job, i) + k0 * round_up(n, VEC),
                               .m = block->n_rows,
                               .n = n,
                               .k = k1 - k0,
                               .c_rows = c_rows,
                               .start = start,
                               .ahead = &block->ahead};
            K(gemm)(&gemm);
            start = GEMM_CHAIN;
        }
        if (pass->sink != NULL) {
            K(map_finish)(&job->map, block, column, n, room);
        }
    }
}

static void add_floats(float *to, const float *from, int64_t n, bool is_first)
{
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat v = vload_n(from + i, left);
        vstore_n(to + i, is_first ? v : vload_n(to + i, left) + v, left);
    }
}

/* Waits for block `index`'s turn, adds its part of the weights' gradient, and passes the turn on.
 */
static void add_in_turn(joint_job *job, int64_t index, const grad_part *part)
{
    const dunlin_fused_call *call = job->grad.call;
    const int64_t n = (int64_t)call->shape->in_c * call->shape->out_c;
    const bool is_first = index == 0 && call->is_reset;
    while (atomic_load_explicit(&job->turn, memory_order_acquire) != index) {
        (void)sched_yield();
    }
    add_floats(call->dw, part->dw, n, is_first);
    if (call->db != NULL) {
        add_floats(call->db, part->db, call->shape->out_c, is_first);
    }
    atomic_store_explicit(&job->turn, index + 1, memory_order_release);
}

/* What is asked for while a block is computed: where its dx goes, and what the next one reads. */
static void look_ahead(const joint_job *job, const grad_block *pixels, int64_t next,
                       ahead_list *ahead)
{
    const dunlin_fused_call *call = job->grad.call;
    const conv_view *view = &job->grad.view;
    const grid_piece *piece = &pixels->pieces[0];
    int64_t pixel = view_out_pixel(view, piece->sample, piece->t0, piece->u0);
    *ahead = (ahead_list){.part = 0};
    ahead_rows(ahead, call->dx.out, call->dx.pitch, view->channels, pixel, pixels->n_rows);
    ahead_rows(ahead, call->dx.addend, call->dx.addend_pitch, view->channels, pixel,
               pixels->n_rows);
    if (next >= job->grad.n_blocks) {
        return;
    }
    grad_block soon;
    K(grad_block_at)(&job->grad, next, &soon);
    piece = &soon.pieces[0];
    pixel = view_out_pixel(view, piece->sample, piece->t0, piece->u0);
    ahead_rows(ahead, call->dy.g, call->dy.pitch, view->outputs, pixel, soon.n_rows);
    ahead_rows(ahead, call->dy.raw, call->dy.raw_pitch, view->outputs, pixel, soon.n_rows);
    ahead_rows(ahead, call->x.x, call->x.pitch, view->channels, pixel, soon.n_rows);
}

static void run_block(joint_job *job, int64_t index, grad_part *part, const map_room *room)
{
    grad_block pixels;
    map_block block;
    K(grad_block_at)(&job->grad, index, &pixels);
    look_ahead(job, &pixels, index + job->n_workers, &block.ahead);
    pixels.ahead = &block.ahead;
    if (job->is_shared) {
        pixels.start = GEMM_ZERO;
    }
    K(grad_pack)(&job->grad, part, &pixels);
    K(grad_add)(&job->grad, part, &pixels);
    block.pieces = pixels.pieces;
    block.n_pieces = pixels.n_pieces;
    block.n_rows = pixels.n_rows;
    for (int64_t p = 0; job->map.n_stats > 0 && p < block.n_pieces; p++) {
        const grid_piece *piece = &block.pieces[p];
        if (piece->t0 % job->map.tiling.unit_lines == 0 && piece->u0 == 0) {
            K(map_clear)(&job->map, piece, 0, job->view.outputs);
        }
    }
    run_dx(job, &block, part->b, room);
    if (job->is_shared) {
        add_in_turn(job, index, part);
    }
}

static void joint_worker(void *ctx, size_t slot)
{
    joint_job *job = ctx;
    const dunlin_fused_call *call = job->grad.call;
    float *base = job->rooms + (int64_t)slot * job->room_floats;
    grad_part part = {.n_columns = call->shape->out_c,
                      .n_channels = call->shape->in_c,
                      .dw = call->dw,
                      .db = call->db,
                      .b = base,
                      .strip = base + job->dy_floats};
    const map_room room = {.scratch = part.strip + job->x_floats,
                           .sums =
                               part.strip + job->x_floats + (int64_t)BLOCK_ROWS * SCRATCH_PITCH};
    const int64_t n_sums = round_up((int64_t)SINK_MAX_SUMS * (SCRATCH_COLUMNS + VEC), 16);
    memset(room.sums, 0, (size_t)n_sums * sizeof(float));
    if (job->is_shared) {
        part.dw = room.sums + n_sums;
        part.db =
            call->db == NULL ? NULL : part.dw + (int64_t)call->shape->in_c * call->shape->out_c;
    }
    for (;;) {
        const int64_t index = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (index >= job->grad.n_blocks) {
            return;
        }
        run_block(job, index, &part, &room);
    }
}

void K(joint_run)(const map_pass *pass, const dunlin_fused_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    const size_t n_threads = task_threads(call->threads);
    joint_job job = {.b = pass->workspace, .rooms = pass->workspace + weights_floats(shape)};
    dunlin__view_input_grad(shape, 0, 0, &job.view);
    K(grad_open)(call, &job.grad);
    job.map.pass = pass;
    job.map.view = &job.view;
    job.map.tiling = job.grad.tiling;
    job.map.cuts = column_cuts_make(shape->in_c, SCRATCH_COLUMNS);
    job.map.n_stats = pass->sink == NULL ? 0 : pass->sink->n_stats;
    job.map.stat_channels = shape->in_c;
    const int64_t panel = (int64_t)TILE_VECTORS * VEC;
    while (panel_vectors(ceil_div(shape->out_c - job.whole, VEC)) == TILE_VECTORS &&
           job.whole < shape->out_c) {
        job.whole = min_i64(shape->out_c, job.whole + panel);
    }
    job.room_floats = room_floats_of(shape, n_threads, &job.dy_floats, &job.x_floats);
    const int64_t work =
        job.grad.n_blocks * BLOCK_ROWS * (int64_t)shape->in_c * (int64_t)shape->out_c;
    job.n_workers = min_i64((int64_t)n_threads, job.grad.n_blocks);
    job.is_shared = n_threads > 1;
    run_tasks(call->threads, pack_task, &job, job.map.cuts.n, (int64_t)shape->in_c * shape->out_c);
    atomic_init(&job.next, 0);
    atomic_init(&job.turn, 0);
    run_tasks(call->threads, joint_worker, &job, job.n_workers, work);
}
