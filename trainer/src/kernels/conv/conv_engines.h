/*
 * conv_engines.h - the two engines of fused convolution calls: maps (forward,
 * input gradient), and the reducer of weights and biases.
 */
#ifndef DUNLIN_KERNELS_CONV_ENGINES_H
#define DUNLIN_KERNELS_CONV_ENGINES_H

#include "input_strip.h"
#include "kernels/parallel/ranges.h"

/* A map over all pixels of a view, or of several that share out the same output
 * pixels. */
typedef struct map_pass {
    const dunlin_conv_shape *shape;
    int64_t n_samples;
    strip_source source;
    const float *w;
    bool is_transposed; /* input gradient: the weights stand the other way */
    const float *bias;
    float *out;
    int64_t out_pitch;
    bool is_clipped;
    float low, high;
    const dunlin_stat *stat;         /* forward: sums of what is written; NULL: none */
    const dunlin_epilogue *epilogue; /* input gradient; NULL: it lies as it is made */
    double *partials;                /* [sample][unit][stat][2][channels] */
    int64_t units;                   /* of a sample */
    float *workspace;
    dunlin_threads *threads;
} map_pass;

/* --- the map engine's inside, for the joint backward pass --- */

#define SCRATCH_COLUMNS 192 /* that a block finishes at once */
#define SCRATCH_PITCH (SCRATCH_COLUMNS + VEC + 16)

typedef struct map_job {
    const map_pass *pass;
    const conv_view *view;
    strip_layout layout;
    row_tiling tiling;
    depth_cuts depth;
    int64_t group;
    int64_t first_unit;    /* of the view in a sample */
    int64_t column;        /* the first of those packed */
    column_cuts cuts;      /* shared out among the threads */
    int64_t n_pack_pieces; /* of a cut, while it is packed */
    int64_t n_units;       /* of all samples */
    bool is_thin;          /* the weights are read as they lie */
    int64_t n_stats, stat_channels;
    bool is_streamed; /* the output goes past the caches */
    bool is_summed;   /* forward, sums are taken while a product is in registers */
    float *b;
    float *rooms; /* of the workers */
    int64_t strip_floats, room_floats;
    shares units;
} map_job;

/* A worker's memory. */
typedef struct map_room {
    float *strip, *scratch, *sums;
} map_room;

typedef struct map_block {
    const grid_piece *pieces;
    int64_t n_pieces;
    int64_t n_rows;
    int64_t cut;
    const float *a_rows[BLOCK_ROWS];
    bool is_ready; /* a_rows, for all of the depth */
    prefetch_list prefetch;
} map_block;

/* The sums of a piece's unit. */
static inline double *map_unit_partials(const map_job *job, const grid_piece *piece)
{
    int64_t unit = job->first_unit + piece->t0 / job->tiling.unit_lines;
    unit += piece->sample * job->pass->units;
    return job->pass->partials + unit * job->n_stats * 2 * job->stat_channels;
}

/* Weights to be packed: depth [k0, k1), n columns from `column` of the group; piece `index` of
 * job->n_pack_pieces. */
typedef struct map_piece {
    int64_t column, n, k0, k1, index;
} map_piece;

/* So that all threads pack, and none waits long for another. */
static inline int64_t pack_pieces_for(int64_t threads)
{
    return threads > 1 ? 2 * threads : 1;
}

/* A piece into the panels of all n columns at `out`. */
void K(map_pack_piece)(const map_job *job, const map_piece *piece, float *out);
/* Columns [column, column + n) of a finished block into the sink and the sums.
 */
void K(map_finish)(const map_job *job, const map_block *block, int64_t column, int64_t n,
                   const map_room *room);
/* The product of a block, forward, and its sums, taken from the registers. */
void K(map_sum)(const map_job *job, const map_block *block, int64_t column, gemm_block *gemm,
                const map_room *room);
/* Rows of C of a block, in the scratch or (NULL) in the output. */
void K(map_rows_of_c)(const map_job *job, const map_block *block, int64_t column, float *scratch,
                      float **out_rows);
/* The sums of a piece's unit start from zero. */
void K(map_clear)(const map_job *job, const grid_piece *piece, int64_t column, int64_t n);

/* --- input gradients of few rows (few_rows.c) --- */

/* The call's rows are few; or those of any call are (its weights are light). */
bool K(skinny_is_for)(const dunlin_conv_shape *shape, int64_t n_samples);
bool K(skinny_is_all)(const dunlin_conv_shape *shape);
uint64_t K(skinny_bytes)(const dunlin_conv_shape *shape, size_t n_threads);
void K(skinny_run)(const map_pass *pass);

/* --- dense layers over many rows (many_rows.c) --- */

uint64_t K(dense_bytes)(const dunlin_conv_shape *shape, bool is_input_grad, size_t n_threads);
/* False, and nothing done, where something is to be done to what is read or written. */
bool K(dense_run)(const map_pass *pass);

/* --- the reducer's --- */

#define GRAD_PIXELS 512                 /* of a block, at most */
#define GRAD_DENSE_PIXELS 64            /* of a dense layer's: small panels, the chain goes on */
#define FUSED_GRADS_WEIGHTS (300 << 10) /* more take too much of the caches in the joint pass */
#define TOKEN_WEIGHTS (200 << 10)       /* of rows without columns, whose passes apart are faster */

/* Shapes whose weight gradient has the joint pass's blocks. One row a sample (a dense layer) is too
 * little work to hold both passes' panels at once; and dy's panels are runs of dx's depth. */
static inline bool fused_grads_may_be_for(const conv_view *view)
{
    const int64_t most = view->w.n_grid == 1 ? TOKEN_WEIGHTS : FUSED_GRADS_WEIGHTS;
    if (view->outputs > (DEPTH_RUNS - 1) * TILE_VECTORS * VEC) {
        return false;
    }
    return view->groups == 1 && view_rows(view) > 1 && dunlin__view_is_plain(view) &&
           (int64_t)view->channels * view->outputs <= most;
}

typedef struct grad_job {
    const dunlin_fused_call *call;
    conv_view view;
    row_tiling tiling;
    bool is_chain;
    int64_t n_blocks, per_sample;
    column_cuts columns;
    int64_t row_channels, n_row_cuts; /* of dw: channels of every tap */
    int64_t chunk;                    /* channels that are taken at once */
    bool is_held;                     /* all of them: dy comes in cuts */
    float *rooms;
    int64_t b_floats, room_floats;
    shares shared;
    struct ordered *ordered; /* NULL: dw is shared out by element */
} grad_job;

/* A part of dw. */
typedef struct grad_part {
    int64_t group;
    int64_t column, n_columns;
    int64_t channel, n_channels;
    float *dw, *db; /* the whole arrays; db may be NULL */
    float *b, *strip;
} grad_part;

/* The pixels of one block. */
typedef struct grad_block {
    grid_piece pieces[GRAD_PIXELS];
    int64_t n_pieces, n_rows;
    gemm_start start;
    prefetch_list *prefetch; /* what the GEMM asks for meanwhile; NULL: nothing */
} grad_block;

/* What does not depend on how dw is shared out. */
void K(grad_open)(const dunlin_fused_call *call, grad_job *job);
void K(grad_block_at)(const grad_job *job, int64_t index, grad_block *block);
/* Its first piece alone; returns the rows of the whole block. */
int64_t K(grad_first_at)(const grad_job *job, int64_t index, grid_piece *out_first);
/* dy and, in part, the bias gradient; to part->b. */
void K(grad_pack)(const grad_job *job, const grad_part *part, const grad_block *block);
/* The same of one of its pieces, whose first row is row `first` of the block, without the bias
 * gradient; and that, once all are packed. */
void K(grad_pack_piece)(const grad_job *job, const grad_part *part, const grad_block *block,
                        const grid_piece *piece, int64_t first);
void K(grad_bias)(const grad_job *job, const grad_part *part, const grad_block *block);
/* x of a piece of a plain view's block to part->strip; and a block whose pieces all lie there and
 * whose dy is packed into the part's rows of dw. */
void K(grad_strip_piece)(const grad_job *job, const grad_part *part, const grad_block *block,
                         const grid_piece *piece, int64_t first);
void K(grad_add_packed)(const grad_job *job, const grad_part *part, const grad_block *block);
/* One block into the part's rows of dw; dy is packed. */
void K(grad_add)(const grad_job *job, const grad_part *part, const grad_block *block);

/* --- passes --- */

/* Units of all views of a pass, and the bytes of its panels. */
int64_t K(map_units)(const dunlin_conv_shape *shape, bool is_input_grad);
uint64_t K(map_bytes)(const dunlin_conv_shape *shape, bool is_input_grad, uint32_t uses,
                      size_t n_threads);
void K(map_run)(const map_pass *pass, bool is_input_grad);

/*
 * Both gradients of a pointwise convolution block by block, dy made once for
 * both; the same bits as apart. False, and nothing done, where that is not to
 * be had.
 */
bool K(fused_grads_is_for)(const dunlin_conv_shape *shape, size_t n_threads);
uint64_t K(fused_grads_bytes)(const dunlin_conv_shape *shape, size_t n_threads);
void K(fused_grads_run)(const map_pass *pass, const dunlin_fused_call *call);

uint64_t K(reduce_bytes)(const dunlin_conv_shape *shape, size_t n_threads);
void K(reduce_run)(const dunlin_fused_call *call, float *workspace);

#endif
