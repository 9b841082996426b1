/*
 * grad_strip.h - x of a block of pixels as the weight gradient's GEMM reads it: a strip in lanes,
 * or x itself.
 */
#ifndef DUNLIN_KERNELS_GRAD_STRIP_H
#define DUNLIN_KERNELS_GRAD_STRIP_H

#include "conv_engines.h"

/* The depth of a block. */
typedef struct grad_depth {
    gemm_run runs[GRAD_PIXELS];
    int64_t n_runs;
} grad_depth;

/* The strip of a block's x, or x itself. */
typedef struct grad_strip {
    const float *at; /* the first pixel */
    strip_layout layout;
    grad_depth depth;
} grad_strip;

/* The part's channels of the block, from part->strip on where they have to be written. */
void K(grad_strip_make)(const grad_job *job, const grad_part *part, const grad_block *block,
                        grad_strip *strip);
/* Of a plain view, whose samples lie one after another: all pixels of the block are one run. */
strip_layout K(grad_plain_layout)(const grad_job *job, const grad_block *block);

#endif
