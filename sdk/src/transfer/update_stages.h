/*
 * update_stages.h - what is done to an update between the learner and the file: a chain of stages
 * over blocks.
 *
 * A stage sees every value of the update in order, first in `survey` (if it has one: clipping needs
 * the norm of the whole), then in `apply`, which changes the block in place. Noise, quantisation
 * and masks are further stages.
 */
#ifndef DUNLIN_SDK_UPDATE_STAGES_H
#define DUNLIN_SDK_UPDATE_STAGES_H

#include <dunlin/base.h>

typedef struct dunlin__update_stage {
    void *ctx;
    void (*survey_fn)(void *ctx, const float *values, size_t n); /* may be NULL */
    void (*apply_fn)(void *ctx, float *values, size_t n);
} dunlin__update_stage;

/* Clips the whole update to an L2 norm (McMahan et al. 2018): scales by min(1, clip / norm). */
typedef struct dunlin__clip_stage {
    double clip_norm;
    double square_sum;
} dunlin__clip_stage;

dunlin__update_stage dunlin__clip_stage_make(dunlin__clip_stage *state, double clip_norm);

#endif
