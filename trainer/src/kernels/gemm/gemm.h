/*
 * gemm.h - the parts of one instruction set's kernels that use each other: GEMM,
 * packers, and the entries of the table.
 */
#ifndef DUNLIN_KERNELS_GEMM_H
#define DUNLIN_KERNELS_GEMM_H

#include "geometry.h"
#include "kernels/parallel/tasks.h"
#include "kernels/simd/prefetch.h"
#include "kernels/simd/vec.h"

/* Floats of B fetched ahead of their use: it streams from the second cache. */
#define PREFETCH_B (8 * TILE_VECTORS * VEC)
/* Channels that lie together in a strip that is read by columns: two tiles of
 * rows. */
#define LANES ((int64_t)2 * TILE_ROWS)

/* Pixels at once in the weight gradient of depthwise convolutions; bits depend
 * on it. */
#define PIXEL_BLOCK 256

/*
 * Products of one chain of a parted sum: rounding errors grow with the chain, which of one over
 * hundreds of products is the larger part. Cuts of the depth are multiples of it, so that they lie
 * between chains.
 */
#define PART_DEPTH 64

/* How a tile of C begins and ends. */
typedef enum gemm_start {
    GEMM_ZERO = 0, /* C = chain from zero */
    GEMM_BIAS,     /* C = chain from bias[column] */
    GEMM_CHAIN,    /* the chain goes on in C */
    GEMM_ADD       /* C += chain from zero; parted, one after the other */
} gemm_start;

/* Elements of the depth that follow one another in A. */
typedef struct gemm_run {
    int64_t offset, n;
} gemm_run;

/*
 * C[m][n] from A and packed B; C's row i begins at c_rows[i]. The depth is
 * `runs`, k elements in all. Row form: A's row i at a_rows[i], plus a run's
 * offset, element after element; of runs from tail_run on at tail_rows[i], if that is set. Column
 * form (a_rows NULL): row i at a + i /
 * LANES * lane_pitch + i % LANES, plus a run's offset, elements a_pitch apart.
 * B comes from K(pack_b), K(pack_b_transposed) or in the same layout.
 */
typedef struct gemm_block {
    const float *const *a_rows;
    const float *const *tail_rows;
    int64_t tail_run;
    const float *a;
    int64_t a_pitch, lane_pitch;
    const gemm_run *runs;
    int64_t n_runs;
    const float *b;
    int64_t b_pitch; /* 0: packed; otherwise B as it lies, for few rows in row form */
    int64_t m, n, k;
    float *const *c_rows;
    const float *bias; /* GEMM_BIAS: n floats */
    gemm_start start;
    bool is_parted;  /* a sum of chains of PART_DEPTH products; not: one chain */
    bool is_clipped; /* C is clipped to low, high as it is stored */
    float low, high;
    const float *about;      /* of C's columns; NULL: no sums */
    float *sums;             /* n sums of C - about, then n of its squares: chains that go on */
    prefetch_list *prefetch; /* a line of it with every step of depth; NULL: nothing */
    bool is_far;             /* C is asked for while a tile is computed */
    bool is_streamed;        /* C goes past the caches: aligned, whole vectors, the whole depth */
} gemm_block;

void K(gemm)(const gemm_block *block);

/* How many vectors the next panel of B has when so many are left. */
static inline int32_t panel_vectors(int64_t vectors_left)
{
    if (vectors_left == TILE_VECTORS + 1 && TILE_VECTORS > 2) {
        return (TILE_VECTORS + 1) / 2;
    }
    return vectors_left < TILE_VECTORS ? (int32_t)vectors_left : TILE_VECTORS;
}

/* Steps of depth of a product: of all its tiles, narrow ones of `narrow_rows`. */
static inline int64_t gemm_steps(int64_t m, int64_t n, int64_t k, int64_t narrow_rows)
{
    int64_t tiles = 0;
    for (int64_t left = ceil_div(n, VEC); left > 0; left -= panel_vectors(left)) {
        tiles += ceil_div(m, panel_vectors(left) < TILE_VECTORS ? narrow_rows : TILE_ROWS);
    }
    return tiles * k;
}

/* B[k][n] at b[k * pitch + n], into panels of whole vectors: [panel][k][vectors
 * * VEC]. */
void K(pack_b)(const float *b, int64_t pitch, int64_t k, int64_t n, float *out);
/* B[k][n] at b[n * pitch + k]; row k of a panel of `panel_k` rows is the first
 * written. */
void K(pack_b_transposed)(const float *b, int64_t pitch, int64_t n, int64_t k, int64_t first_k,
                          int64_t panel_k, float *out);

/* to[j * to_pitch + i] = from[i * from_pitch + j] */
void K(transpose_block)(const float *from, int64_t from_pitch, int64_t rows, int64_t columns,
                        float *to, int64_t to_pitch);

/* Depthwise convolutions (groups == in_c == out_c). `out` pixels are a view's;
 * bias may be NULL. */
void K(depthwise)(const conv_view *view, const dunlin_conv_call *call, const float *x,
                  const float *bias);
void K(depthwise_weight_grad)(const dunlin_conv_call *call);
uint64_t K(depthwise_workspace_bytes)(const dunlin_conv_shape *shape);

/* Fused, for the same shapes: what fused_forward, fused_backward and
 * fused_workspace_bytes do. */
uint64_t K(depthwise_fused_workspace)(const dunlin_conv_shape *shape, uint32_t uses,
                                      size_t n_threads, uint64_t *out_sample_bytes);
void K(depthwise_fused_forward)(const dunlin_fused_call *call);
void K(depthwise_fused_backward)(const dunlin_fused_call *call);
uint64_t K(depthwise_forward_workspace)(const dunlin_conv_shape *shape, size_t n_threads,
                                        uint64_t *out_sample_bytes);
uint64_t K(depthwise_backward_workspace)(const dunlin_conv_shape *shape, size_t n_threads,
                                         uint64_t *out_sample_bytes);
void K(depthwise_bias_grad)(const dunlin_fused_call *call);

/* db += sums of dy over rows, by the rule of weight gradients. */
void K(bias_grad)(const dunlin_conv_call *call);

/* Blocks of pixels of a weight gradient: [first, first + n) of all samples'
 * rows. */
typedef struct pixel_blocks {
    int64_t rows_per_sample;
    int64_t n_blocks;   /* in all */
    int64_t per_sample; /* 0: blocks run over samples */
    int64_t block;      /* rows of a block */
    int64_t n_rows;     /* in all */
} pixel_blocks;

static inline pixel_blocks pixel_blocks_make(int64_t rows_per_sample, int64_t n_samples)
{
    pixel_blocks blocks = {.rows_per_sample = rows_per_sample,
                           .n_rows = rows_per_sample * n_samples};
    if (rows_per_sample >= DUNLIN_KERNEL_ROWS_PER_PARTIAL) {
        int64_t n = ceil_div(rows_per_sample, PIXEL_BLOCK);
        blocks.block = ceil_div(rows_per_sample, n);
        blocks.per_sample = ceil_div(rows_per_sample, blocks.block);
        blocks.n_blocks = blocks.per_sample * n_samples;
    } else {
        blocks.block = PIXEL_BLOCK;
        blocks.n_blocks = ceil_div(blocks.n_rows, PIXEL_BLOCK);
    }
    return blocks;
}

static inline void pixel_block_at(const pixel_blocks *blocks, int64_t i, int64_t *out_first,
                                  int64_t *out_n)
{
    if (blocks->per_sample == 0) {
        *out_first = i * blocks->block;
        *out_n = min_i64(blocks->block, blocks->n_rows - *out_first);
        return;
    }
    int64_t within = (i % blocks->per_sample) * blocks->block;
    *out_first = (i / blocks->per_sample) * blocks->rows_per_sample + within;
    *out_n = min_i64(blocks->block, blocks->rows_per_sample - within);
}

/* How the i-th block enters the gradient. */
static inline gemm_start pixel_block_start(const pixel_blocks *blocks, int64_t i, bool is_reset)
{
    if (i == 0 && is_reset) {
        return GEMM_ZERO;
    }
    return blocks->per_sample == 0 ? GEMM_CHAIN : GEMM_ADD;
}

/* Entries of the table; see kernels.h. */
uint64_t K(conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                 size_t n_threads);
void K(conv_forward)(const dunlin_conv_call *call);
void K(conv_input_grad)(const dunlin_conv_call *call);
void K(conv_weight_grad)(const dunlin_conv_call *call);
uint64_t K(fused_workspace_bytes)(const dunlin_conv_shape *shape, uint32_t uses, size_t n_threads,
                                  uint64_t *out_sample_bytes);
void K(fused_forward)(const dunlin_fused_call *call);
void K(fused_backward)(const dunlin_fused_call *call);
void K(blend)(const dunlin_blend_call *call);
uint64_t K(close_workspace_bytes)(int32_t channels, int64_t rows_per_sample,
                                  uint64_t *out_sample_bytes);
void K(close)(const dunlin_close_call *call);
void K(sums)(const dunlin_sums_call *call);
uint64_t K(pool_workspace_bytes)(const dunlin_pool_shape *shape, uint64_t *out_sample_bytes);
void K(pool_forward)(const dunlin_pool_call *call);
void K(pool_backward)(const dunlin_pool_call *call);
void K(max_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                 uint8_t *index, dunlin_threads *threads);
void K(max_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy,
                      const uint8_t *index, float *dx, dunlin_threads *threads);
void K(average_pool)(const dunlin_pool_shape *shape, int64_t n, const float *x, float *y,
                     dunlin_threads *threads);
void K(average_pool_grad)(const dunlin_pool_shape *shape, int64_t n, const float *dy, float *dx,
                          dunlin_threads *threads);
void K(clip)(int64_t n, const float *x, float low, float high, float *y, dunlin_threads *threads);
void K(clip_grad)(int64_t n, const float *dy, const float *y, float low, float high, float *dx,
                  dunlin_threads *threads);
void K(add)(int64_t n, const float *a, const float *b, float *out, dunlin_threads *threads);
void K(copy_rows)(int64_t n_rows, int64_t width, const float *from, int64_t from_pitch, float *to,
                  int64_t to_pitch, dunlin_threads *threads);
void K(bf16_store)(int64_t n, const float *x, uint16_t *out, dunlin_threads *threads);
void K(bf16_load)(int64_t n, const uint16_t *x, float *out, dunlin_threads *threads);
void K(scaled_store)(const dunlin_scaled_call *call);
void K(scaled_load)(const dunlin_scaled_call *call);
void K(transpose)(int64_t n, int64_t rows, int64_t columns, const float *x, float *y,
                  dunlin_threads *threads);
void K(dropout)(int64_t first_sample, int64_t n_samples, int64_t n_elements, float ratio,
                uint64_t key, const float *x, float *y, dunlin_threads *threads);
void K(norm_sums)(const dunlin_norm_call *call);
void K(norm_apply)(const dunlin_norm_call *call);
void K(norm_grad_sums)(const dunlin_norm_call *call);
void K(norm_grad_apply)(const dunlin_norm_call *call);
void K(norm_grad_frozen)(const dunlin_norm_call *call);
uint64_t K(group_norm_workspace_bytes)(int32_t channels);
void K(group_norm)(const dunlin_group_norm_call *call);
void K(group_norm_grad)(const dunlin_group_norm_call *call);
uint64_t K(prelu_workspace_bytes)(int64_t n_slopes, int64_t inner, uint64_t *out_sample_bytes);
void K(prelu)(const dunlin_prelu_call *call);
uint64_t K(layer_norm_workspace_bytes)(int32_t width, int64_t rows_per_sample);
void K(layer_norm)(const dunlin_layer_norm_call *call);
void K(layer_norm_grad)(const dunlin_layer_norm_call *call);
void K(response_norm)(const dunlin_response_norm_call *call);
void K(resize)(const dunlin_resize_call *call);
void K(softmax_loss)(const dunlin_loss_call *call);
uint64_t K(dense_loss_workspace_bytes)(const dunlin_dense_loss_shape *shape, size_t n_threads);
void K(dense_loss)(const dunlin_dense_loss_call *call);
void K(squared_loss)(const dunlin_loss_call *call);
void K(logistic_loss)(const dunlin_loss_call *call);
bool K(sgd)(const dunlin_sgd_call *call);
bool K(adam)(const dunlin_adam_call *call);
void K(square_sums)(int64_t n, const float *x, float limit, double *out_sums,
                    dunlin_threads *threads);
void K(stage_u8)(int64_t n, int64_t pixels, int32_t channels, const uint8_t *x, float scale,
                 const float *mean, const float *inv_std, float *y, dunlin_threads *threads);
void K(stage_f32)(int64_t n, int64_t pixels, int32_t channels, const float *x, float scale,
                  const float *mean, const float *inv_std, float *y, dunlin_threads *threads);
void K(unary)(const dunlin_unary_call *call);
void K(walk)(const dunlin_walk_call *call);
void K(embedding)(const dunlin_embedding_call *call);
void K(embedding_grad)(const dunlin_embedding_call *call);
void K(add_row_sums)(int64_t n_rows, int64_t width, const float *a, const dunlin_row_sums *sums,
                     float *out, dunlin_threads *threads);
void K(softmax)(const dunlin_softmax_call *call);
uint64_t K(matmul_workspace_bytes)(const dunlin_matmul_shape *shape, size_t n_threads);
void K(matmul)(const dunlin_matmul_call *call);
uint64_t K(attention_workspace_bytes)(const dunlin_attention_shape *shape, bool is_backward,
                                      size_t n_threads);
void K(attention)(const dunlin_attention_call *call);

#endif
