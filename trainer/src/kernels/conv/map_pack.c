/*
 * map_pack.c - packs the weights of a map into the panels that its products read, transposed or
 * not.
 */
#include "conv_engines.h"

/* Depth [k0, k1) and `n` columns from `column` of a group, into panels. */
static void map_pack(const map_job *job, int64_t column, int64_t n, int64_t k0, int64_t k1,
                     float *out)
{
    const conv_view *view = job->view;
    if (!job->pass->is_transposed) {
        const int64_t pitch = view->out_pitch;
        const float *w = job->pass->w + k0 * pitch + job->group * view->outputs + column;
        K(pack_b)(w, pitch, k1 - k0, n, out);
        return;
    }
    const int64_t pitch = view->source_pitch;
    int64_t k = k0;
    while (k < k1) {
        int64_t tap = k / view->channels;
        int64_t channel = k - tap * view->channels;
        int64_t part = min_i64(view->channels - channel, k1 - k);
        int64_t row = view_tap(view, tap) * view->outputs + column;
        const float *w = job->pass->w + row * pitch + job->group * view->channels + channel;
        K(pack_b_transposed)(w, pitch, n, part, k - k0, k1 - k0, out);
        k += part;
    }
}

void K(map_pack_piece)(const map_job *job, const map_piece *piece, float *out)
{
    const int64_t most =
        round_up(ceil_div(piece->n, job->n_pack_pieces), (int64_t)TILE_VECTORS * VEC);
    const column_cuts pieces = column_cuts_make(piece->n, most);
    if (piece->index < pieces.n) {
        const int64_t column = piece->index * pieces.width;
        map_pack(job, piece->column + column, cut_size(&pieces, piece->index), piece->k0, piece->k1,
                 out + column * (piece->k1 - piece->k0));
    }
}
