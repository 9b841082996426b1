/*
 * update_stages.c - the stages of an update.
 */
#include "update_stages.h"

#include <math.h>

static void clip_survey(void *ctx, const float *values, size_t n)
{
    dunlin__clip_stage *state = ctx;
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    state->square_sum += sum;
}

static void clip_apply(void *ctx, float *values, size_t n)
{
    const dunlin__clip_stage *state = ctx;
    double norm = sqrt(state->square_sum);
    if (norm <= state->clip_norm) {
        return;
    }
    double factor = state->clip_norm / norm;
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)((double)values[i] * factor);
    }
}

dunlin__update_stage dunlin__clip_stage_make(dunlin__clip_stage *state, double clip_norm)
{
    state->clip_norm = clip_norm;
    state->square_sum = 0.0;
    return (dunlin__update_stage){.ctx = state, .survey_fn = clip_survey, .apply_fn = clip_apply};
}
