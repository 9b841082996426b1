/*
 * conv_epilogue.c - the epilogue of a block that a map has computed, while it is in the caches: the
 * gradient epilogue or batch norm's sums, piece by piece.
 */
#include "conv_engines.h"

void K(map_clear)(const map_job *job, const grid_piece *piece, int64_t column, int64_t n)
{
    double *partials = map_unit_partials(job, piece) + job->group * job->view->outputs + column;
    for (int64_t i = 0; i < 2 * job->n_stats; i++) {
        memset(partials + i * job->stat_channels, 0, (size_t)n * sizeof *partials);
    }
}

/* Rows of one piece that lie `step` pixels apart from `pixel` on. */
typedef struct finish_span {
    int64_t pixel, step, n;
    const float *from; /* scratch */
    int64_t channel, n_channels;
    gemm_block *gemm; /* of the rows to come, which takes their sums; NULL: they are there */
} finish_span;

static void finish_rows(const map_job *job, const finish_span *span, double *partials, float *sums)
{
    const map_pass *pass = job->pass;
    for (int64_t i = 0; i < span->n; i += STAT_BLOCK_ROWS) {
        const int64_t n = min_i64(STAT_BLOCK_ROWS, span->n - i);
        const int64_t pixel = span->pixel + i * span->step;
        if (span->gemm != NULL) {
            span->gemm->m = n;
            K(gemm)(span->gemm);
            span->gemm->a_rows += n;
            span->gemm->c_rows += n;
        } else if (pass->epilogue == NULL) {
            K(stat_rows)
            (pass->out + pixel * pass->out_pitch + span->channel, pass->out_pitch, n,
             span->n_channels, pass->stat->about + span->channel, sums);
        } else {
            const epilogue_rows rows = {.dx = span->from + i * SCRATCH_PITCH,
                                        .dx_pitch = SCRATCH_PITCH,
                                        .pixel = pixel,
                                        .pixel_step = span->step,
                                        .n_rows = n,
                                        .channel = span->channel,
                                        .n_channels = span->n_channels,
                                        .sums = sums,
                                        .sums_pitch = span->n_channels,
                                        .is_streamed = job->is_streamed};
            K(epilogue_rows)(pass->epilogue, &rows);
        }
        if (job->n_stats > 0) {
            stat_flush(sums, 2 * job->n_stats, span->n_channels, partials + span->channel,
                       job->stat_channels);
        }
    }
}

static void finish_block(const map_job *job, const map_block *block, finish_span span, float *sums)
{
    const conv_view *view = job->view;
    span.step = view->w.out_step;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        const grid_piece *piece = &block->pieces[p];
        double *partials = job->n_stats > 0 ? map_unit_partials(job, piece) : NULL;
        const int64_t columns = piece->u1 - piece->u0;
        const bool is_whole =
            view->w.out_step == 1 && view->h.out_step == 1 && columns == view->w.n_out;
        const int64_t lines = is_whole ? piece->t1 - piece->t0 : 1;
        for (int64_t t = piece->t0; t < piece->t1; t += lines) {
            span.pixel = view_out_pixel(view, piece->sample, t, piece->u0);
            span.n = lines * columns;
            finish_rows(job, &span, partials, sums);
            span.from += span.from == NULL ? 0 : span.n * SCRATCH_PITCH;
        }
    }
}

void K(map_finish)(const map_job *job, const map_block *block, int64_t column, int64_t n,
                   const map_room *room)
{
    const finish_span span = {.from = room->scratch,
                              .channel = job->group * job->view->outputs + column,
                              .n_channels = n};
    finish_block(job, block, span, room->sums);
}

void K(map_sum)(const map_job *job, const map_block *block, int64_t column, gemm_block *gemm,
                const map_room *room)
{
    const finish_span span = {
        .channel = job->group * job->view->outputs + column, .n_channels = gemm->n, .gemm = gemm};
    gemm->about = job->pass->stat->about + span.channel;
    gemm->sums = room->sums;
    finish_block(job, block, span, room->sums);
}
