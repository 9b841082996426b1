/*
 * few_channels.h - the engine of convolutions to few channels: maps, and the reducer of their
 * weights and biases. It takes the same passes as conv_engines.h's.
 */
#ifndef DUNLIN_KERNELS_FEW_CHANNELS_H
#define DUNLIN_KERNELS_FEW_CHANNELS_H

#include "conv_engines.h"

#define SMALL_OUTPUTS 8
#define SMALL_CHANNELS 64
#define SMALL_DEPTH 1024
#define SMALL_FLOATS (12 << 10) /* of a band's planes, about: they stay in the nearest caches */
#define SMALL_ACCUMULATORS (TILE_ROWS * TILE_VECTORS)

typedef struct few_channel_plan {
    conv_view view;
    int64_t outputs; /* even */
    int64_t vectors; /* of pixels, or taps, at once */
    int64_t depth;
    int64_t width; /* of a plane's line */
    int64_t reach_h, reach_w;
    int64_t lines, n_bands; /* of a band, of a sample */
    int64_t plane_floats;   /* from source plane to source plane */
    int64_t out_floats;     /* from output plane to output plane */
    int64_t row_floats;     /* of pixels as they lie in memory */
} few_channel_plan;

typedef struct few_channel_band {
    int64_t unit;   /* of all samples' */
    int64_t t0, t1; /* lines */
} few_channel_band;

typedef struct few_channel_job {
    few_channel_plan plan;
    const map_pass *pass;          /* maps */
    const dunlin_fused_call *call; /* the weight gradient */
    const float *w;                /* [depth][outputs] */
    float bias[SMALL_OUTPUTS];
    int32_t offsets[SMALL_DEPTH + SMALL_ACCUMULATORS]; /* of a window's elements */
    float *rooms, *parts;
    int64_t room_floats, part_floats;
    int64_t first_unit, n_units; /* bands of all samples */
    shares shared;
} few_channel_job;

/* --- what both share --- */

/* False if the shape is not for this engine. */
bool K(few_channel_plan)(const dunlin_conv_shape *shape, bool is_input_grad,
                         few_channel_plan *plan);
/* Floats of a worker: source planes, output planes, pixels as they lie in memory. */
int64_t K(few_channel_floats)(const few_channel_plan *plan);
/* Where a window's elements lie from its first one on; a few zeros follow. */
void K(few_channel_find_offsets)(few_channel_job *job);
/* n pixels of `channels` channels, to planes; `rows` is room for them. */
void K(few_channel_write_pixels)(strip_source source, int64_t pixel, int64_t n, int64_t channels,
                                 float *rows, float *to, int64_t plane_floats);
/* The source under lines [t0, t1). */
void K(few_channel_write_planes)(const few_channel_plan *plan, strip_source source, int64_t sample,
                                 int64_t t0, int64_t t1, float *rows, float *planes);
/* A band for the worker in this slot. False: there is none left. */
bool K(few_channel_next_band)(few_channel_job *job, int64_t slot, few_channel_band *out_band);
void K(few_channel_run_bands)(few_channel_job *job, pthreadpool_task_1d_t worker,
                              dunlin_threads *threads);

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
