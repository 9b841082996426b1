/*
 * margin.c - losses with a margin: of distances (Hadsell, Chopra, LeCun 2006), of cosines, and of
 * differences of distances (Schroff, Kalenichenko, Philbin 2015).
 */
#include "margin.h"

#include <math.h>
#include <string.h>

/* What an output y adds, with the share t of "alike": loss and slope; whether it is right. */
typedef struct margin_term {
    double loss;
    float slope;
    bool is_right;
} margin_term;

static margin_term distance_term(float margin, float y, float t)
{
    const float lack = margin > y ? margin - y : 0.0F;
    return (margin_term){
        .loss = (double)t * (double)y * (double)y + (1.0 - (double)t) * (double)lack * (double)lack,
        .slope = 2.0F * (t * y - (1.0F - t) * lack),
        .is_right = (y < 0.5F * margin) == (t > 0.5F),
    };
}

static margin_term cosine_term(float margin, float y, float t)
{
    const float excess = y > margin ? y - margin : 0.0F;
    return (margin_term){
        .loss = (double)t * (1.0 - (double)y) + (1.0 - (double)t) * (double)excess,
        .slope = (y > margin ? 1.0F - t : 0.0F) - t,
        .is_right = (y > 0.5F * (1.0F + margin)) == (t > 0.5F),
    };
}

static margin_term triplet_term(float margin, float y, float t)
{
    const bool is_near = y + margin > 0.0F;
    return (margin_term){.loss = is_near ? (double)t * (double)(y + margin) : 0.0,
                         .slope = is_near ? t : 0.0F,
                         .is_right = y < 0.0F};
}

static margin_term term_of(dunlin_loss loss, float margin, float y, float t)
{
    margin_term term = loss == DUNLIN_LOSS_CONTRASTIVE ? distance_term(margin, y, t)
                       : loss == DUNLIN_LOSS_COSINE    ? cosine_term(margin, y, t)
                                                       : triplet_term(margin, y, t);
    term.loss = isnan(y) ? (double)y : term.loss; /* no margin hides it */
    return term;
}

void dunlin__margin_loss(dunlin_loss loss, float margin, const dunlin_loss_call *call)
{
    double sums[DUNLIN_N_LOSS_SUMS] = {0.0, 0.0, 0.0};
    const int32_t n = call->classes;
    const int64_t per_weight = call->rows_per_weight > 1 ? call->rows_per_weight : 1;
    if (!call->is_reset && call->sums != NULL) {
        memcpy(sums, call->sums, sizeof sums);
    }
    for (int64_t row = 0; row < call->n_rows; row++) {
        const float weight = call->weights != NULL ? call->weights[row / per_weight] : 1.0F;
        const float factor = call->scale * weight / (float)n;
        double row_loss = 0.0;
        for (int32_t i = 0; i < n; i++) {
            const int64_t at = row * n + i;
            const margin_term term = term_of(loss, margin, call->logits[at], call->targets[at]);
            row_loss += weight != 0.0F ? term.loss : 0.0;
            sums[DUNLIN_SUM_RIGHT] += weight != 0.0F && term.is_right ? 1.0 : 0.0;
            if (call->dlogits != NULL) {
                call->dlogits[at] = weight != 0.0F ? term.slope * factor : 0.0F;
            }
        }
        sums[DUNLIN_SUM_LOSS] += row_loss / n * (double)weight;
    }
    if (call->sums != NULL) {
        memcpy(call->sums, sums, sizeof sums);
    }
}
