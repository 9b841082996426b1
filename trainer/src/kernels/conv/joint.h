/*
 * joint.h - what both ways of dividing the fused backward pass among threads have in common
 * (joint.c, joint_phases.c).
 */
#ifndef DUNLIN_KERNELS_FUSED_GRADS_H
#define DUNLIN_KERNELS_FUSED_GRADS_H

#include "conv_engines.h"
#include "kernels/gemm/ordered_sum.h"

#define SUNK_ROWS 56 /* of dx that go through the sink at once: whole tiles, tall ones too */

typedef struct fused_grads_job {
    map_job map;
    grad_job grad;
    conv_view view; /* of the input gradient */
    int64_t whole;  /* depth in panels of full width */
    float *b;       /* the weights, turned and packed */
    float *rooms;
    int64_t dy_floats, x_floats; /* of a block's panels and strip */
    int64_t room_floats;
    int64_t range_cuts; /* of dx's columns that a worker has */
    bool is_shared;     /* blocks are, so that their parts of dw have turns */
    ordered blocks;
} fused_grads_job;

/* Floats of a block's panels of dy and of its strip of so many of x's channels, at most. */
void K(fused_grads_block_floats)(const dunlin_conv_shape *shape, int64_t channels, int64_t *out_dy,
                                 int64_t *out_x);
/* Of a worker's scratch and sums, which lie in this order. */
int64_t K(fused_grads_room_floats)(void);
map_room K(fused_grads_room)(float *base);

/* A task for each piece of each cut of the weights. */
int64_t K(fused_grads_pack_tasks)(const fused_grads_job *job);
void K(fused_grads_pack_task)(void *ctx, size_t index);

/* The sums of a block's samples start from zero, and dx of one cut of the columns is made from dy's
 * panels. */
void K(fused_grads_dx)(const fused_grads_job *job, map_block *block, int64_t cut, const float *dy,
                       const map_room *room);

/* Images of few pixels on several threads: dy and x are packed once, by all; then all make dx and
 * dw from them. */
bool K(phases_is_for)(const dunlin_conv_shape *shape, size_t n_threads);
int64_t K(phases_floats)(const dunlin_conv_shape *shape, size_t n_threads);
void K(phases_run)(fused_grads_job *job);

#endif
