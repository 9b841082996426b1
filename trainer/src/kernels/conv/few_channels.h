/*
 * few_channels.h - the engine of convolutions whose groups have few channels (one group, or many):
 * maps, and the reducer of their weights and biases. It takes the same passes as conv_engines.h's.
 */
#ifndef DUNLIN_KERNELS_FEW_CHANNELS_H
#define DUNLIN_KERNELS_FEW_CHANNELS_H

#include "conv_engines.h"

#define SMALL_OUTPUTS 8
#define SMALL_CHANNELS 64
#define SMALL_DEPTH 1024
#define SMALL_FLOATS (12 << 10) /* of a band's planes, about: they stay in the nearest caches */
#define SMALL_ACCUMULATORS (TILE_ROWS * TILE_VECTORS)
#define CHUNK_CHANNELS 16 /* of all groups whose planes lie together, about: a line of a cache */

typedef struct few_channel_plan {
    conv_view view;
    int64_t outputs; /* of a group, as tiles have them: one, or even */
    int64_t vectors; /* of pixels, or taps, at once */
    int64_t depth;
    int64_t groups, n_chunks;       /* of a chunk, of the shape */
    int64_t lines, columns;         /* of a band */
    int64_t line_bands, n_bands;    /* of a line, of a sample */
    int64_t width;                  /* of a plane's line */
    int64_t reach_h, reach_w;       /* of the taps that meet a band's source */
    int64_t plane_floats;           /* from source plane to source plane */
    int64_t out_planes, out_floats; /* of a chunk; from output plane to output plane */
    int64_t row_floats;             /* of pixels as they lie in memory */
} few_channel_plan;

/* Pixels of a sample, and the groups of a chunk. */
typedef struct few_channel_band {
    int64_t unit; /* of all samples' */
    int64_t sample;
    int64_t t0, t1; /* lines */
    int64_t u0, u1; /* columns */
    int64_t group, n_groups;
    int64_t h0, h1; /* rows of taps that meet the source anywhere */
} few_channel_band;

typedef struct few_channel_job {
    few_channel_plan plan;
    const map_pass *pass;          /* maps */
    const dunlin_fused_call *call; /* the weight gradient */
    const float *w;                /* [group][depth][outputs] */
    int32_t offsets[SMALL_DEPTH];  /* of a window's elements */
    float *rooms, *parts;
    int64_t room_floats, part_floats;
    int64_t chunk;               /* the weight gradient: all units are of it */
    int64_t first_unit, n_units; /* bands of all samples */
    shares shared;
} few_channel_job;

/* --- what both share --- */

/* False if the shape is not for this engine. */
bool K(few_channel_plan)(const dunlin_conv_shape *shape, bool is_input_grad,
                         few_channel_plan *plan);
/* Floats of a worker: source planes, output planes, pixels as they lie in memory. */
int64_t K(few_channel_floats)(const few_channel_plan *plan);
/* Where a window's elements lie from its first one on, in planes that begin with the first row of
 * taps. */
void K(few_channel_find_offsets)(few_channel_job *job);
/* The rows' channels, to planes; `rows->out` is room for them, of their number as pitch. */
void K(few_channel_write_pixels)(strip_source source, const load_rows *rows, float *to,
                                 int64_t plane_floats);
/* The source under a band; a plane begins where the band's first row of taps reads. */
void K(few_channel_write_planes)(const few_channel_plan *plan, strip_source source,
                                 const few_channel_band *band, float *rows, float *planes);
/* A band for the worker in this slot. False: there is none left. */
bool K(few_channel_next_band)(few_channel_job *job, int64_t slot, few_channel_band *out_band);
void K(few_channel_run_bands)(few_channel_job *job, int64_t n_chunks, pthreadpool_task_1d_t worker,
                              dunlin_threads *threads);

/* What a band's first row of taps adds to the offsets. */
static inline int64_t band_base(const few_channel_plan *plan, const few_channel_band *band)
{
    return band->h0 * plan->view.h.pitch * plan->width;
}

/* Elements of a window in a row of its taps. */
static inline int64_t row_depth(const few_channel_plan *plan)
{
    return (int64_t)plan->view.w.n_taps * plan->view.channels;
}

/* Pixels of a band as planes have them, with what lies between lines. */
static inline int64_t band_flat(const few_channel_plan *plan, const few_channel_band *band)
{
    return (band->t1 - band->t0 - 1) * plan->width + band->u1 - band->u0;
}

/* --- passes --- */

bool K(few_channel_map_is_for)(const dunlin_conv_shape *shape, bool is_input_grad);
int64_t K(few_channel_map_units)(const dunlin_conv_shape *shape, bool is_input_grad);
uint64_t K(few_channel_map_bytes)(const dunlin_conv_shape *shape, bool is_input_grad,
                                  size_t n_threads);
void K(few_channel_map_run)(const map_pass *pass, bool is_input_grad);

bool K(few_channel_reduce_is_for)(const dunlin_conv_shape *shape);
uint64_t K(few_channel_reduce_bytes)(const dunlin_conv_shape *shape, size_t n_threads);
void K(few_channel_reduce_run)(const dunlin_fused_call *call, float *workspace);

#endif
