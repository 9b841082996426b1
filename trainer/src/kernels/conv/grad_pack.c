/*
 * grad_pack.c - packs the weight gradient's dy into panels, and sums the bias gradient from them.
 */
#include "conv_engines.h"

#define PACK_ROWS 8 /* of dy: whole rows, so that memory is read in its order */

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

/* The packed rows of one panel into the bias gradient: `vectors` chains side by side. */
ALWAYS_INLINE void add_bias_of(const grad_block *block, const float *panel, int64_t used, float *db,
                               int vectors)
{
    vfloat sum[TILE_VECTORS];
    UNROLL
    for (int j = 0; j < vectors; j++) {
        const int32_t n = vec_left(used, (int64_t)j * VEC);
        sum[j] = block->start == GEMM_CHAIN ? vload_n(db + (ptrdiff_t)j * VEC, n) : vzero();
    }
    for (int64_t i = 0; i < block->n_rows; i++, panel += (ptrdiff_t)vectors * VEC) {
        UNROLL
        for (int j = 0; j < vectors; j++) {
            sum[j] += vload(panel + (ptrdiff_t)j * VEC);
        }
    }
    UNROLL
    for (int j = 0; j < vectors; j++) {
        const int32_t n = vec_left(used, (int64_t)j * VEC);
        float *to = db + (ptrdiff_t)j * VEC;
        vstore_n(to, block->start == GEMM_ADD ? vload_n(to, n) + sum[j] : sum[j], n);
    }
}

static void add_bias(const grad_block *block, const float *panel, int64_t width, int64_t used,
                     float *db)
{
    if (width == (int64_t)TILE_VECTORS * VEC) {
        add_bias_of(block, panel, used, db, TILE_VECTORS);
    } else if (width == (int64_t)2 * VEC) {
        add_bias_of(block, panel, used, db, 2);
    } else {
        add_bias_of(block, panel, used, db, 1);
    }
}

void K(grad_pack_piece)(const grad_job *job, const grad_part *part, const grad_block *block,
                        const grid_piece *piece, int64_t first)
{
    const int64_t pixel = view_out_pixel(&job->view, piece->sample, piece->t0, piece->u0);
    const int64_t n_rows = piece_rows(piece);
    for (int64_t i = 0; i < n_rows; i += PACK_ROWS) {
        pack_rows(job, part, block, first + i, min_i64(PACK_ROWS, n_rows - i), pixel + i);
    }
}

void K(grad_bias)(const grad_job *job, const grad_part *part, const grad_block *block)
{
    for (int64_t column = 0; part->db != NULL && part->channel == 0 && column < part->n_columns;) {
        const int64_t width = (int64_t)panel_vectors(ceil_div(part->n_columns - column, VEC)) * VEC;
        add_bias(block, part->b + column * block->n_rows, width,
                 min_i64(width, part->n_columns - column),
                 part->db + part->group * job->view.outputs + part->column + column);
        column += width;
    }
}

void K(grad_pack)(const grad_job *job, const grad_part *part, const grad_block *block)
{
    int64_t first = 0;
    for (int64_t p = 0; p < block->n_pieces; p++) {
        K(grad_pack_piece)(job, part, block, &block->pieces[p], first);
        first += piece_rows(&block->pieces[p]);
    }
    K(grad_bias)(job, part, block);
}
