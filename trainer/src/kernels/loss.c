/*
 * loss.c - softmax cross-entropy over class scores, its gradient, and the count of right answers.
 *
 * Scores are taken relative to the row's largest, so no exponential overflows; a score of minus
 * infinity is probability zero. Sums over rows go on in the order of the rows.
 */
#include "isa.h"

#include <math.h>

typedef struct loss_row {
    float largest;
    int32_t best;
    double sum; /* of exponentials about the largest */
} loss_row;

static loss_row row_of(const float *logits, int32_t classes)
{
    loss_row row = {.largest = logits[0]};
    for (int32_t c = 1; c < classes; c++) {
        if (logits[c] > row.largest) {
            row.largest = logits[c];
            row.best = c;
        }
    }
    for (int32_t c = 0; c < classes; c++) {
        row.sum += (double)expf(logits[c] - row.largest);
    }
    return row;
}

void K(softmax_loss)(const dunlin_loss_call *call)
{
    const int32_t classes = call->classes;
    double loss = call->is_reset || call->sums == NULL ? 0.0 : call->sums[0];
    double right = call->is_reset || call->sums == NULL ? 0.0 : call->sums[1];
    for (int64_t i = 0; i < call->n_rows; i++) {
        const float *logits = call->logits + i * classes;
        const int32_t label = call->labels[i];
        const loss_row row = row_of(logits, classes);
        const bool is_known = label >= 0 && label < classes;
        const double row_loss =
            is_known ? log(row.sum) - (double)(logits[label] - row.largest) : (double)NAN;
        const float weight = call->weights != NULL ? call->weights[i] : 1.0F;
        const float scale = call->scale * weight;
        loss += row_loss * (double)weight;
        right += is_known && row.best == label ? 1.0 : 0.0;
        if (call->dlogits == NULL) {
            continue;
        }
        float *dlogits = call->dlogits + i * classes;
        const float factor = (float)((double)scale / row.sum);
        for (int32_t c = 0; c < classes; c++) {
            dlogits[c] = expf(logits[c] - row.largest) * factor;
        }
        if (is_known) {
            dlogits[label] -= scale;
        }
    }
    if (call->sums != NULL) {
        call->sums[0] = loss;
        call->sums[1] = right;
    }
}
