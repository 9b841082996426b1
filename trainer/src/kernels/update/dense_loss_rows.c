/*
 * dense_loss_rows.c - cross-entropy of softmax over logits of which each class's lie together: a
 * row is a lane, and every lane does what loss.c does with a row, in its order.
 */
#include "dense_loss.h"
#include "kernels/simd/vecmath.h"

#include <math.h>

#define SUM_LANES 4 /* of a row's sum, as in loss.c */

/* Some rows: their state, a lane each. */
typedef struct class_lanes {
    const dunlin_loss_call *loss;
    float *logits; /* of the first lane */
    int64_t pitch;
    int64_t first; /* row of the call */
    int32_t n;     /* lanes that are rows */
    int32_t n_computed;
    int32_t labels[CLASS_COLUMNS];
    bool counts[CLASS_COLUMNS];
    float largest[CLASS_COLUMNS];
    float own[CLASS_COLUMNS]; /* logit of the label */
    int32_t rank[CLASS_COLUMNS];
    double sums[SUM_LANES][CLASS_COLUMNS];
    double other[CLASS_COLUMNS]; /* what smoothing sums up */
    double sum[CLASS_COLUMNS], log_sum[CLASS_COLUMNS], total[CLASS_COLUMNS];
    float factor[CLASS_COLUMNS], scale[CLASS_COLUMNS];
} class_lanes;

static float lane_weight(const dunlin_loss_call *loss, int64_t row)
{
    const int64_t per_weight = loss->rows_per_weight > 1 ? loss->rows_per_weight : 1;
    return loss->weights != NULL ? loss->weights[row / per_weight] : 1.0F;
}

static void open_lanes(const class_block *block, int64_t column, class_lanes *lanes)
{
    const dunlin_loss_call *loss = &block->call->loss;
    lanes->loss = loss;
    lanes->logits = block->logits + column;
    lanes->pitch = block->pitch;
    lanes->first = block->first + column;
    lanes->n = (int32_t)min_i64(CLASS_COLUMNS, block->n_rows - column);
    lanes->n_computed = (int32_t)round_up(lanes->n, VEC);
    for (int32_t i = 0; i < CLASS_COLUMNS; i++) {
        const bool is_row = i < lanes->n;
        const int32_t label = is_row ? loss->labels[lanes->first + i] : DUNLIN_NO_LABEL;
        const float weight = is_row ? lane_weight(loss, lanes->first + i) : 0.0F;
        lanes->counts[i] = weight != 0.0F && label != DUNLIN_NO_LABEL;
        lanes->scale[i] = loss->weights != NULL ? loss->scale * weight : loss->scale;
        lanes->labels[i] = label >= 0 && label < loss->classes ? label : -1;
        lanes->own[i] = 0.0F;
        if (is_row && lanes->labels[i] >= 0) {
            lanes->own[i] = lanes->logits[label * block->pitch + i];
        }
        lanes->largest[i] = -HUGE_VALF;
        lanes->factor[i] = 0.0F;
        lanes->rank[i] = 0;
        lanes->other[i] = 0.0;
        lanes->total[i] = 0.0;
        for (int k = 0; k < SUM_LANES; k++) {
            lanes->sums[k][i] = 0.0;
        }
    }
}

/* Largest logits; and how many classes come before the label. */
static void rank_lanes(class_lanes *lanes)
{
    for (int32_t c = 0; c < lanes->loss->classes; c++) {
        const float *row = lanes->logits + c * lanes->pitch;
        for (int32_t i = 0; i < lanes->n_computed; i += VEC) {
            vstore(lanes->largest + i, vmax(vload(row + i), vload(lanes->largest + i)));
        }
        for (int32_t i = 0; i < lanes->n_computed; i++) {
            const float own = lanes->own[i];
            const bool is_before = c < lanes->labels[i];
            lanes->rank[i] += (row[i] > own) | ((row[i] == own) & is_before);
        }
    }
}

/* Exponentials about the largest logit, in place if `is_kept`, and their sums. */
static void exponentials_of(class_lanes *lanes, bool is_kept)
{
    float e[CLASS_COLUMNS];
    const bool is_smoothed = lanes->loss->smoothing != 0.0F && lanes->loss->class_weights == NULL;
    for (int32_t c = 0; c < lanes->loss->classes; c++) {
        float *row = lanes->logits + c * lanes->pitch;
        double *sums = lanes->sums[c % SUM_LANES];
        for (int32_t i = 0; i < lanes->n_computed && is_smoothed; i++) {
            lanes->other[i] += (double)(row[i] - lanes->largest[i]);
        }
        for (int32_t i = 0; i < lanes->n_computed; i += VEC) {
            vstore(e + i, vexp(vload(row + i) - vload(lanes->largest + i)));
        }
        for (int32_t i = 0; i < lanes->n_computed; i++) {
            sums[i] += (double)e[i];
        }
        for (int32_t i = 0; i < lanes->n_computed && is_kept; i += VEC) {
            vstore(row + i, vload(e + i));
        }
    }
}

/* With weights of classes: what smoothing adds to the loss, and to what the gradients are worth. */
static void add_weighted(class_lanes *lanes, double share)
{
    for (int32_t c = 0; c < lanes->loss->classes; c++) {
        const float *row = lanes->logits + c * lanes->pitch;
        const double part = share * (double)lanes->loss->class_weights[c];
        for (int32_t i = 0; i < lanes->n_computed; i++) {
            lanes->total[i] += part;
            lanes->other[i] += part * (lanes->log_sum[i] - (double)(row[i] - lanes->largest[i]));
        }
    }
}

static double label_loss(const class_lanes *lanes, int32_t i)
{
    return lanes->log_sum[i] - (double)(lanes->own[i] - lanes->largest[i]);
}

static class_row plain_lane(class_lanes *lanes, int32_t i)
{
    const dunlin_loss_call *loss = lanes->loss;
    class_row row = {.loss = label_loss(lanes, i)};
    if (loss->smoothing != 0.0F) {
        const double mean = lanes->log_sum[i] - lanes->other[i] / loss->classes;
        row.loss += (double)loss->smoothing * (mean - row.loss);
    }
    row.right = lanes->rank[i] == 0 ? 1.0 : 0.0;
    row.right5 = lanes->rank[i] < 5 ? 1.0 : 0.0;
    lanes->factor[i] = (float)((double)lanes->scale[i] / lanes->sum[i]);
    return row;
}

static double own_share(const class_lanes *lanes, int32_t i)
{
    const dunlin_loss_call *loss = lanes->loss;
    return (1.0 - (double)loss->smoothing) * (double)loss->class_weights[lanes->labels[i]];
}

static class_row weighted_lane(class_lanes *lanes, int32_t i)
{
    const bool does_weigh = lanes->loss->class_weights[lanes->labels[i]] != 0.0F;
    /* the sums began with the label's part */
    const class_row row = {.loss = lanes->other[i],
                           .right = lanes->rank[i] == 0 && does_weigh ? 1.0 : 0.0,
                           .right5 = lanes->rank[i] < 5 && does_weigh ? 1.0 : 0.0};
    lanes->factor[i] = (float)((double)lanes->scale[i] * lanes->total[i] / lanes->sum[i]);
    return row;
}

/* exp * factor - what smoothing takes off; the label's is taken off its own. */
static void gradients_of(const class_lanes *lanes)
{
    const dunlin_loss_call *loss = lanes->loss;
    float all[CLASS_COLUMNS] = {0.0F};
    float factor[CLASS_COLUMNS];
    float is_kept[CLASS_COLUMNS]; /* 1: the row counts */
    for (int32_t i = 0; i < CLASS_COLUMNS; i++) {
        factor[i] = lanes->factor[i];
        is_kept[i] = lanes->counts[i] ? 1.0F : 0.0F;
    }
    for (int32_t i = 0; i < lanes->n; i++) {
        all[i] = lanes->scale[i] * loss->smoothing / (float)loss->classes;
    }
    const double share = (double)loss->smoothing / loss->classes;
    for (int32_t c = 0; c < loss->classes; c++) {
        float *row = lanes->logits + c * lanes->pitch;
        for (int32_t i = 0; i < lanes->n && loss->class_weights != NULL; i++) {
            all[i] = (float)((double)lanes->scale[i] * share * (double)loss->class_weights[c]);
        }
        for (int32_t i = 0; i < lanes->n_computed; i += VEC) {
            const vfloat gradient = vload(row + i) * vload(factor + i) - vload(all + i);
            vstore(row + i, vselect_less(vset1(0.5F), vload(is_kept + i), gradient, vzero()));
        }
    }
    for (int32_t i = 0; i < lanes->n; i++) {
        if (lanes->counts[i] && lanes->labels[i] >= 0) {
            lanes->logits[lanes->labels[i] * lanes->pitch + i] -=
                loss->class_weights != NULL ? (float)((double)lanes->scale[i] * own_share(lanes, i))
                                            : lanes->scale[i] * (1.0F - loss->smoothing);
        }
    }
}

static void count_lanes(const class_lanes *lanes, int64_t *confusion)
{
    const int32_t classes = lanes->loss->classes;
    for (int32_t i = 0; i < lanes->n; i++) {
        const int32_t label = lanes->loss->labels[lanes->first + i];
        int32_t best = 0;
        for (int32_t c = 1; c < classes; c++) {
            const float *logits = lanes->logits + i;
            best = logits[c * lanes->pitch] > logits[best * lanes->pitch] ? c : best;
        }
        if (label != DUNLIN_NO_LABEL) {
            __atomic_fetch_add(&confusion[(int64_t)label * classes + best], 1, __ATOMIC_RELAXED);
        }
    }
}

void K(class_rows)(void *ctx, size_t task)
{
    const class_block *block = ctx;
    const int64_t column = (int64_t)task * CLASS_COLUMNS;
    const dunlin_loss_call *loss = &block->call->loss;
    const bool is_weighted = loss->class_weights != NULL;
    const bool is_twice = is_weighted && loss->smoothing != 0.0F;
    class_lanes lanes;
    open_lanes(block, column, &lanes);
    if (block->call->confusion != NULL) {
        count_lanes(&lanes, block->call->confusion);
    }
    rank_lanes(&lanes);
    exponentials_of(&lanes, block->has_grad && !is_twice);
    for (int32_t i = 0; i < CLASS_COLUMNS; i++) {
        lanes.sum[i] =
            (lanes.sums[0][i] + lanes.sums[1][i]) + (lanes.sums[2][i] + lanes.sums[3][i]);
        lanes.log_sum[i] = log(lanes.sum[i]);
        if (is_weighted && lanes.labels[i] >= 0) {
            lanes.total[i] = own_share(&lanes, i);
            lanes.other[i] = lanes.total[i] * label_loss(&lanes, i);
        }
    }
    if (is_twice) {
        add_weighted(&lanes, (double)loss->smoothing / loss->classes);
        exponentials_of(&lanes, block->has_grad);
    }
    for (int32_t i = 0; i < lanes.n; i++) {
        class_row row = {.loss = 0.0};
        lanes.factor[i] = 0.0F;
        if (lanes.counts[i] && lanes.labels[i] >= 0) {
            row = is_weighted ? weighted_lane(&lanes, i) : plain_lane(&lanes, i);
        } else if (lanes.counts[i]) {
            row.loss = (double)NAN;
        }
        block->rows[column + i] = row;
    }
    if (block->has_grad) {
        gradients_of(&lanes);
    }
}
