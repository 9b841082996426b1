/*
 * update_clip.h - the first stage of an update: its bound.
 *
 * The update is the difference of the averaged tensors from the base, plus what is left of earlier
 * ones if that is fed back; running statistics have no part in it. It is scaled by min(1, bound /
 * norm) as a whole (McMahan, Ramage, Talwar, Zhang 2018, "flat clipping"), or tensor by tensor to
 * bound / sqrt(tensors) ("per-layer clipping"), which bounds the whole by the same number.
 */
#ifndef DUNLIN_SDK_UPDATE_CLIP_H
#define DUNLIN_SDK_UPDATE_CLIP_H

#include "update_values.h"

typedef struct dunlin__clip {
    double bound; /* of the whole; 0: none */
    bool is_per_layer;
    bool sends_weights; /* what is sent are whole weights: base + factor * difference */
    int32_t n_layers;   /* averaged tensors */
    double *factors;    /* of each tensor of the base */
    double *sums;       /* of squares, as many: of what is sent */
    double norm;        /* of the whole before it was clipped */
    /* Elements [first, first + n) of base tensor `index` that are added to the difference; NULL:
     * nothing. */
    dunlin_status (*residual_fn)(void *ctx, int32_t index, int64_t first, int64_t n, float *out);
    void *residual_ctx;
} dunlin__clip;

/* Makes room and fills in the plan's bound; MEMORY. Follow by dunlin__clip_close(), also after a
 * failure. */
dunlin_status dunlin__clip_open(dunlin__clip *clip, const dunlin__update_values *values);
void dunlin__clip_close(dunlin__clip *clip, dunlin_client *client);

/* Goes over the whole update until what is sent, as it is rounded, is within the bound: the factors
 * are final then. */
dunlin_status dunlin__clip_settle(dunlin__clip *clip, const dunlin__update_values *values);

/* Into the journal: what the commit will say of the norm, if the plan asks. After the factors are
 * final. */
void dunlin__clip_note(const dunlin__clip *clip, dunlin_client *client);

/* What is sent of base tensor `index`, elements [first, first + n): differences, or whole weights.
 * Statistics are as they were trained, whatever the bound. */
dunlin_status dunlin__clip_read(const dunlin__clip *clip, const dunlin__update_values *values,
                                int32_t index, int64_t first, int64_t n, float *out);

#endif
