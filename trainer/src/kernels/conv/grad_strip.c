/*
 * grad_strip.c - see grad_strip.h. A strip lies in lanes of channels, so that the GEMM's columns
 * are near each other; what needs no view and no padding is read where it lies, in runs.
 */
#include "grad_strip.h"

/* A line of the block; one that begins where the last one ends goes on with it. */
static void add_run(grad_depth *depth, int64_t offset, int64_t n, int64_t step)
{
    gemm_run *last = depth->runs + depth->n_runs - 1;
    if (depth->n_runs > 0 && last->offset + last->n * step == offset) {
        last->n += n;
    } else {
        depth->runs[depth->n_runs++] = (gemm_run){offset, n};
    }
}

/* The packed panels of a block's pieces, one after another, and where its lines begin. */
static void write_x(strip_layout *layout, const grad_block *block, float *strip, grad_depth *depth)
{
    const conv_view *view = layout->view;
    const grid_piece *pieces = block->pieces;
    int64_t n_pieces = block->n_pieces;
    grid_piece joined = pieces[0];
    if (n_pieces > 1 && dunlin__view_is_plain(view)) {
        /* whole samples of single pixels lie one after another, as one large sample would */
        joined.t1 = (int32_t)(n_pieces * view->h.n_grid);
        pieces = &joined;
        n_pieces = 1;
    }
    int64_t pixels = 0;
    for (int64_t p = 0; p < n_pieces; p++) {
        pixels += strip_pixels(layout, &pieces[p]);
    }
    /* a pixel between them, so that lanes of 512 pixels do not fight for one set of the cache */
    layout->lane_pitch = layout->is_lanes ? (pixels + 1) * LANES : LANES;
    const int64_t step = layout->w.step * layout->pitch;
    int64_t base = 0;
    depth->n_runs = 0;
    for (int64_t p = 0; p < n_pieces; p++) {
        const grid_piece *piece = &pieces[p];
        K(strip_write)(layout, piece, strip + base);
        for (int64_t t = 0; t < piece->t1 - piece->t0; t++) {
            add_run(depth, base + t * layout->h.step * layout->width * layout->pitch,
                    piece->u1 - piece->u0, step);
        }
        base += strip_pixels(layout, piece) * layout->pitch;
    }
}

/* A single tap of a plain source that lies inside it: the GEMM reads lines where they are. */
static bool x_is_direct(const grad_job *job)
{
    const dunlin_view *x = &job->call->x;
    return job->view.h.n_taps * job->view.w.n_taps == 1 && view_is_as_it_lies(x) &&
           x->plus == NULL && x->pitch % PAGE_FLOATS != 0 && K(view_is_inside)(&job->view);
}

static void direct_x(const grad_job *job, const grad_part *part, const grad_block *block,
                     grad_strip *strip)
{
    const conv_view *view = &job->view;
    const dunlin_view *x = &job->call->x;
    strip_layout *layout = &strip->layout;
    *layout = K(strip_layout_make)(view, (strip_source){.view = x}, part->group, true);
    layout->pitch = x->pitch;
    layout->w.step = view->w.step;
    layout->n_channels = part->n_channels;
    strip->at = x->x + layout->channel + part->channel;
    strip->depth.n_runs = 0;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        const grid_piece *piece = &block->pieces[p];
        for (int64_t t = piece->t0; t < piece->t1; t++) {
            const int64_t line =
                piece->sample * view->h.n_source + t * view->h.step + view->h.offset;
            const int64_t pixel =
                line * view->w.n_source + piece->u0 * view->w.step + view->w.offset;
            add_run(&strip->depth, pixel * x->pitch, piece->u1 - piece->u0,
                    view->w.step * x->pitch);
        }
    }
}

void K(grad_strip_make)(const grad_job *job, const grad_part *part, const grad_block *block,
                        grad_strip *strip)
{
    const conv_view *view = &job->view;
    const strip_source source = {.view = &job->call->x};
    strip_layout *layout = &strip->layout;
    if (x_is_direct(job)) {
        direct_x(job, part, block, strip);
        return;
    }
    strip->at = part->strip;
    *layout = K(strip_layout_make)(view, source, part->group, true);
    int64_t columns = 0;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        columns = max_i64(columns, block->pieces[p].u1 - block->pieces[p].u0);
    }
    K(strip_fit)(layout, columns, 0, view_depth(view));
    layout->channel += part->channel;
    layout->n_channels = part->n_channels;
    write_x(layout, block, part->strip, &strip->depth);
}

strip_layout K(grad_plain_layout)(const grad_job *job, const grad_block *block)
{
    const conv_view *view = &job->view;
    strip_layout layout =
        K(strip_layout_make)(view, (strip_source){.view = &job->call->x}, 0, true);
    K(strip_fit)(&layout, view->w.n_grid, 0, view_depth(view));
    layout.lane_pitch = layout.is_lanes ? (block->n_rows + 1) * LANES : LANES;
    return layout;
}

void K(grad_strip_piece)(const grad_job *job, const grad_part *part, const grad_block *block,
                         const grid_piece *piece, int64_t first)
{
    const strip_layout layout = K(grad_plain_layout)(job, block);
    K(strip_write)(&layout, piece, part->strip + first * layout.pitch);
}
