/*
 * joint_phases.c - the fused backward pass over images of few pixels, on several threads.
 *
 * Their chains of dw continue from block to block, so blocks cannot be divided among threads; if
 * elements were, every thread would compute all of dy and x. So a group of blocks takes two phases:
 * all threads pack dy and x, sample by sample; then all compute dx, block by block, and dw, part by
 * part, from the packed panels. Each thread keeps to its samples as far as it can (ranges.h).
 *
 * Every element has the chain that a single thread makes.
 */
#include "joint.h"

#define GROUP_FLOATS (128 << 10) /* of the panels of a group, about */
#define GROUP_BLOCKS 2           /* for each thread, at most */
#define PARTS 4                  /* of dw for each thread, so that all end together */

typedef struct phases_job {
    fused_grads_job *fused_grads;
    int64_t first, n; /* the current blocks */
    float *panels;    /* dy's and x's of each */
    int64_t dy_floats, block_floats;
    bool is_by_channels;
    int64_t width, n_parts; /* of dw: channels or columns */
    shares weights, samples, dx, dw;
} phases_job;

bool K(phases_is_for)(const dunlin_conv_shape *shape, size_t n_threads)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    return n_threads > 1 && fused_grads_may_be_for(&view) && view_rows(&view) > 0 &&
           view_rows(&view) < DUNLIN_KERNEL_ROWS_PER_PARTIAL;
}

/* Of a block: x's lanes lie a pixel apart. */
static int64_t block_floats(const dunlin_conv_shape *shape, int64_t *out_dy)
{
    int64_t x = 0;
    K(fused_grads_block_floats)(shape, shape->in_c, out_dy, &x);
    return *out_dy + x + round_up(round_up(shape->in_c, LANES), 16);
}

static int64_t group_blocks(int64_t floats, int64_t threads)
{
    return max_i64(threads, min_i64(GROUP_BLOCKS * threads, GROUP_FLOATS / floats));
}

int64_t K(phases_floats)(const dunlin_conv_shape *shape, size_t n_threads)
{
    int64_t dy = 0;
    const int64_t threads = (int64_t)n_threads;
    const int64_t floats = block_floats(shape, &dy);
    return group_blocks(floats, threads) * floats + threads * K(fused_grads_room_floats)();
}

/* Where block i of the group lies. */
static grad_part panels_at(const phases_job *job, int64_t i)
{
    const dunlin_fused_call *call = job->fused_grads->grad.call;
    float *base = job->panels + i * job->block_floats;
    return (grad_part){.n_columns = call->shape->out_c,
                       .n_channels = call->shape->in_c,
                       .dw = call->dw,
                       .db = call->db,
                       .b = base,
                       .strip = base + job->dy_floats};
}

/* --- the first phase --- */

static void pack_worker(void *ctx, size_t slot)
{
    phases_job *job = ctx;
    const grad_job *grad = &job->fused_grads->grad;
    int64_t i = 0;
    while ((i = shares_take(&job->weights, (int64_t)slot)) < job->weights.n_units) {
        K(fused_grads_pack_task)(job->fused_grads, (size_t)i);
    }
    while ((i = shares_take(&job->samples, (int64_t)slot)) < job->samples.n_units) {
        const int64_t index = i / grad->tiling.samples;
        const grad_part part = panels_at(job, index);
        grad_block block;
        K(grad_block_at)(grad, job->first + index, &block);
        const int64_t p = i % grad->tiling.samples; /* pieces are whole samples */
        const int64_t row = p * view_rows(&grad->view);
        K(grad_pack_piece)(grad, &part, &block, &block.pieces[p], row);
        K(grad_strip_piece)(grad, &part, &block, &block.pieces[p], row);
    }
}

/* --- the second --- */

static void run_dx(const phases_job *job, int64_t unit, const map_room *room)
{
    const fused_grads_job *fused_grads = job->fused_grads;
    const int64_t index = unit / fused_grads->map.cuts.n;
    const grad_part part = panels_at(job, index);
    grad_block pixels;
    K(grad_block_at)(&fused_grads->grad, job->first + index, &pixels);
    map_block block = {
        .pieces = pixels.pieces, .n_pieces = pixels.n_pieces, .n_rows = pixels.n_rows};
    const grid_piece *piece = &pixels.pieces[0];
    const int64_t n = cut_size(&fused_grads->map.cuts, unit % fused_grads->map.cuts.n);
    prefetch_epilogue(&block.prefetch, &fused_grads->grad.call->dx, fused_grads->map.is_streamed,
                      NULL, fused_grads->view.outputs,
                      view_out_pixel(&fused_grads->grad.view, piece->sample, piece->t0, piece->u0),
                      pixels.n_rows);
    prefetch_pace(&block.prefetch,
                  gemm_steps(pixels.n_rows, n, fused_grads->view.channels, TALL_ROWS));
    K(fused_grads_dx)(fused_grads, &block, unit % fused_grads->map.cuts.n, part.b, room);
}

static void run_dw(const phases_job *job, int64_t index)
{
    const grad_job *grad = &job->fused_grads->grad;
    const int64_t first = index * job->width;
    for (int64_t i = 0; i < job->n; i++) {
        grad_part part = panels_at(job, i);
        grad_block block;
        K(grad_block_at)(grad, job->first + i, &block);
        if (job->is_by_channels) {
            part.channel = first;
            part.n_channels = min_i64(job->width, part.n_channels - first);
        } else {
            part.column = first;
            part.n_columns = index == job->n_parts - 1 ? part.n_columns - first : job->width;
        }
        K(grad_add_packed)(grad, &part, &block);
    }
}

static void product_worker(void *ctx, size_t slot)
{
    phases_job *job = ctx;
    const map_room room =
        K(fused_grads_room)(job->fused_grads->rooms + (int64_t)slot * K(fused_grads_room_floats)());
    int64_t i = 0;
    while ((i = shares_take(&job->dx, (int64_t)slot)) < job->dx.n_units) {
        run_dx(job, i, &room);
    }
    while ((i = shares_take(&job->dw, (int64_t)slot)) < job->dw.n_units) {
        run_dw(job, i);
    }
    vstream_done();
}

/* dw in parts: of whole lanes of channels, or of whole panels of columns, whichever are more. */
static void cut_weights(phases_job *job, const dunlin_conv_shape *shape, int64_t threads)
{
    const int64_t lanes = ceil_div(shape->in_c, LANES);
    const column_cuts panels = column_cuts_make(shape->out_c, 1);
    job->is_by_channels = lanes >= panels.n;
    if (job->is_by_channels) {
        job->width = ceil_div(lanes, min_i64(lanes, PARTS * threads)) * LANES;
        job->n_parts = ceil_div(shape->in_c, job->width);
        return;
    }
    const column_cuts cuts =
        column_cuts_make(shape->out_c, ceil_div(shape->out_c, PARTS * threads));
    job->width = cuts.width;
    job->n_parts = cuts.n;
}

void K(phases_run)(fused_grads_job *fused_grads)
{
    const dunlin_fused_call *call = fused_grads->grad.call;
    const dunlin_conv_shape *shape = call->shape;
    const int64_t threads = (int64_t)task_threads(call->threads);
    const int64_t samples = fused_grads->grad.tiling.samples;
    const int64_t of_sample = view_rows(&fused_grads->view) * shape->in_c * shape->out_c;
    phases_job job = {.fused_grads = fused_grads, .panels = fused_grads->rooms};
    job.block_floats = block_floats(shape, &job.dy_floats);
    const int64_t group = group_blocks(job.block_floats, threads);
    const int64_t at_once = min_i64(group, fused_grads->grad.n_blocks);
    fused_grads->rooms += group * job.block_floats;
    fused_grads->map.cuts = column_cuts_make(
        shape->in_c,
        min_i64(SCRATCH_COLUMNS, ceil_div(shape->in_c, ceil_div(GROUP_BLOCKS * threads, at_once))));
    cut_weights(&job, shape, threads);
    shares_open(&job.weights, K(fused_grads_pack_tasks)(fused_grads), threads);
    for (job.first = 0; job.first < fused_grads->grad.n_blocks; job.first += job.n) {
        job.n = min_i64(group, fused_grads->grad.n_blocks - job.first);
        const int64_t n_samples = min_i64(job.n * samples, call->n_samples - job.first * samples);
        shares_open(&job.samples, n_samples, threads);
        shares_open(&job.dx, job.n * fused_grads->map.cuts.n, threads);
        shares_open(&job.dw, job.n_parts, threads);
        run_tasks(call->threads, pack_worker, &job, threads, n_samples * of_sample);
        run_tasks(call->threads, product_worker, &job, threads, n_samples * of_sample);
    }
}
