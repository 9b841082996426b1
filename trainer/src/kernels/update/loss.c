/*
 * loss.c - losses over rows of outputs, their gradients, and the counts of right answers: softmax
 * cross-entropy with label smoothing, squared error, cross-entropy of sigmoids.
 *
 * Scores are taken relative to the row's largest, or by their magnitude, so no exponential
 * overflows; a score of minus infinity is probability zero. Rows are computed in any order and
 * summed in row order.
 */
#include "kernels/gemm/gemm.h"
#include "kernels/simd/vecmath.h"

#include <math.h>

/* Rows that are worked out before they are summed up. */
#define LOSS_ROWS 64
/* An exponential costs as much as so many plain floats. */
#define LOSS_WEIGHT 8

typedef struct loss_row {
    double loss;
    double right;
    double right5;
} loss_row;

typedef struct loss_job {
    const dunlin_loss_call *call;
    void (*row_fn)(const dunlin_loss_call *call, int64_t row, loss_row *out);
    int64_t first; /* row of the call */
    int64_t n;
    int64_t rows_of_task;
    loss_row rows[LOSS_ROWS];
} loss_job;

/* A row's weight in the loss without that of its label's class. */
static float weight_of(const dunlin_loss_call *call, int64_t row)
{
    const int64_t per_weight = call->rows_per_weight > 1 ? call->rows_per_weight : 1;
    return call->weights != NULL ? call->weights[row / per_weight] : 1.0F;
}

static bool does_count(const dunlin_loss_call *call, int64_t row)
{
    return weight_of(call, row) != 0.0F &&
           (call->labels == NULL || call->labels[row] != DUNLIN_NO_LABEL);
}

static void leave_row_out(const dunlin_loss_call *call, int64_t row, loss_row *out)
{
    *out = (loss_row){.loss = 0.0};
    if (call->dlogits != NULL) {
        memset(call->dlogits + row * call->classes, 0, (size_t)call->classes * sizeof(float));
    }
}

static void loss_task(void *ctx, size_t task)
{
    loss_job *job = ctx;
    const int64_t first = (int64_t)task * job->rows_of_task;
    const int64_t end = min_i64(job->n, first + job->rows_of_task);
    for (int64_t i = first; i < end; i++) {
        if (does_count(job->call, job->first + i)) {
            job->row_fn(job->call, job->first + i, &job->rows[i]);
        } else {
            leave_row_out(job->call, job->first + i, &job->rows[i]);
        }
    }
}

static void sum_rows(const dunlin_loss_call *call,
                     void (*row_fn)(const dunlin_loss_call *call, int64_t row, loss_row *out))
{
    double sums[DUNLIN_N_LOSS_SUMS] = {0.0, 0.0, 0.0};
    if (!call->is_reset && call->sums != NULL) {
        memcpy(sums, call->sums, sizeof sums);
    }
    const int64_t row_cost = (int64_t)call->classes * LOSS_WEIGHT;
    loss_job job = {.call = call, .row_fn = row_fn};
    job.rows_of_task = max_i64(1, TASK_BLOCK / row_cost);
    for (job.first = 0; job.first < call->n_rows; job.first += LOSS_ROWS) {
        job.n = min_i64(LOSS_ROWS, call->n_rows - job.first);
        run_tasks(call->threads, loss_task, &job, ceil_div(job.n, job.rows_of_task),
                  job.n * row_cost);
        for (int64_t i = 0; i < job.n; i++) {
            const float weight = weight_of(call, job.first + i);
            sums[DUNLIN_SUM_LOSS] += job.rows[i].loss * (double)weight;
            sums[DUNLIN_SUM_RIGHT] += job.rows[i].right;
            sums[DUNLIN_SUM_RIGHT5] += job.rows[i].right5;
        }
    }
    if (call->sums != NULL) {
        memcpy(call->sums, sums, sizeof sums);
    }
}

/* The class of a row's largest target; the first of equal ones. */
static int32_t most_likely(const float *targets, int32_t classes)
{
    int32_t best = 0;
    for (int32_t c = 1; c < classes; c++) {
        best = targets[c] > targets[best] ? c : best;
    }
    return best;
}

/* The factor of row i's gradient. */
static float row_scale(const dunlin_loss_call *call, int64_t row)
{
    return call->weights != NULL ? call->scale * weight_of(call, row) : call->scale;
}

/* How many classes come before the label by score; of equal ones the lower index comes first. */
static int32_t rank_of(const float *logits, int32_t classes, int32_t label)
{
    int32_t rank = 0;
    const float own = logits[label];
    for (int32_t c = 0; c < label; c++) {
        rank += logits[c] >= own ? 1 : 0;
    }
    for (int32_t c = label + 1; c < classes; c++) {
        rank += logits[c] > own ? 1 : 0;
    }
    return rank;
}

/* A row's largest score. Not-a-number is left to the exponentials. */
static float largest_of(const float *logits, int32_t classes)
{
    float largest = logits[0];
    int32_t c = 0;
    if (classes >= VEC) {
        vfloat best = vload(logits);
        for (; c + VEC <= classes; c += VEC) {
            best = vmax(vload(logits + c), best);
        }
        largest = vlargest(best);
    }
    for (; c < classes; c++) {
        largest = logits[c] > largest ? logits[c] : largest;
    }
    return largest;
}

#define SUM_LANES 4 /* of a row's sum: so many chains in double */

/* The exponentials about the largest, into `out` if it is not NULL; their sum. */
static double exponentials(const float *logits, int32_t classes, float largest, float *out)
{
    double sums[SUM_LANES] = {0.0};
    float e[VEC] = {0.0F};
    for (int32_t c = 0; c < classes; c += VEC) {
        const int32_t n = vec_left(classes, c);
        const vfloat v = vexp(vload_n(logits + c, n) - largest);
        if (n < VEC) {
            memset(e, 0, sizeof e);
        }
        vstore_n(e, v, n);
        if (out != NULL) {
            vstore_n(out + c, v, n);
        }
        for (int i = 0; i < VEC; i++) {
            sums[i % SUM_LANES] += (double)e[i];
        }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* What smoothing adds: the mean over classes of -log p, instead of the share taken off the label.
 */
static double smoothed(const dunlin_loss_call *call, const float *logits, float largest,
                       double log_sum, double label_loss)
{
    double sum = 0.0;
    for (int32_t c = 0; c < call->classes; c++) {
        sum += (double)(logits[c] - largest);
    }
    const double mean = log_sum - sum / call->classes;
    return label_loss + (double)call->smoothing * (mean - label_loss);
}

static void softmax_row(const dunlin_loss_call *call, int64_t row, loss_row *out)
{
    const int32_t classes = call->classes;
    const float *logits = call->logits + row * classes;
    float *dlogits = call->dlogits != NULL ? call->dlogits + row * classes : NULL;
    const int32_t label = call->labels[row];
    const bool is_known = label >= 0 && label < classes;
    const float largest = largest_of(logits, classes);
    const double sum = exponentials(logits, classes, largest, dlogits);
    *out = (loss_row){.loss = (double)NAN};
    if (is_known) {
        const double log_sum = log(sum);
        const int32_t rank = rank_of(logits, classes, label);
        out->loss = log_sum - (double)(logits[label] - largest);
        if (call->smoothing != 0.0F) {
            out->loss = smoothed(call, logits, largest, log_sum, out->loss);
        }
        out->right = rank == 0 ? 1.0 : 0.0;
        out->right5 = rank < 5 ? 1.0 : 0.0;
    }
    if (dlogits == NULL) {
        return;
    }
    const float scale = row_scale(call, row);
    const float factor = (float)((double)scale / sum);
    const float all = scale * call->smoothing / (float)classes;
    for (int32_t c = 0; c < classes; c++) {
        dlogits[c] = dlogits[c] * factor - all;
    }
    if (is_known) {
        dlogits[label] -= scale * (1.0F - call->smoothing);
    }
}

/* Classes have weights w (PyTorch's `weight`): (1 - s) w[label] times the label's loss, and s /
 * classes times the sum of w[c] and the loss of c. */
static void weighted_row(const dunlin_loss_call *call, int64_t row, loss_row *out)
{
    const int32_t classes = call->classes;
    const float *w = call->class_weights;
    const float *logits = call->logits + row * classes;
    float *dlogits = call->dlogits != NULL ? call->dlogits + row * classes : NULL;
    const int32_t label = call->labels[row];
    const bool is_known = label >= 0 && label < classes;
    const float largest = largest_of(logits, classes);
    const double sum = exponentials(logits, classes, largest, dlogits);
    const double log_sum = log(sum);
    const double share = (double)call->smoothing / classes;
    const double own = is_known ? (1.0 - (double)call->smoothing) * (double)w[label] : 0.0;
    double total = own;
    *out = (loss_row){.loss = (double)NAN};
    if (is_known) {
        const int32_t rank = rank_of(logits, classes, label);
        out->loss = own * (log_sum - (double)(logits[label] - largest));
        for (int32_t c = 0; c < classes && call->smoothing != 0.0F; c++) {
            total += share * (double)w[c];
            out->loss += share * (double)w[c] * (log_sum - (double)(logits[c] - largest));
        }
        out->right = rank == 0 && w[label] != 0.0F ? 1.0 : 0.0;
        out->right5 = rank < 5 && w[label] != 0.0F ? 1.0 : 0.0;
    }
    if (dlogits == NULL) {
        return;
    }
    const double scale = (double)row_scale(call, row);
    const float factor = (float)(scale * total / sum);
    for (int32_t c = 0; c < classes; c++) {
        dlogits[c] = dlogits[c] * factor - (float)(scale * share * (double)w[c]);
    }
    if (is_known) {
        dlogits[label] -= (float)(scale * own);
    }
}

/* -sum of t log p is the logarithm of the sum, so often as the targets add up to, less the sum of
 * t and the score; a class without a share adds nothing, whatever its score. Of targets with one 1
 * and zeros every operation is that of softmax_row(). */
static void soft_row(const dunlin_loss_call *call, int64_t row, loss_row *out)
{
    const int32_t classes = call->classes;
    const float *logits = call->logits + row * classes;
    const float *t = call->targets + row * classes;
    float *dlogits = call->dlogits != NULL ? call->dlogits + row * classes : NULL;
    const float largest = largest_of(logits, classes);
    const double sum = exponentials(logits, classes, largest, dlogits);
    const double log_sum = log(sum);
    const int32_t rank = rank_of(logits, classes, most_likely(t, classes));
    double total = 0.0;
    double scores = 0.0;
    for (int32_t c = 0; c < classes; c++) {
        total += (double)t[c];
        scores += t[c] != 0.0F ? (double)t[c] * (double)(logits[c] - largest) : 0.0;
    }
    *out = (loss_row){.loss = log_sum * total - scores,
                      .right = rank == 0 ? 1.0 : 0.0,
                      .right5 = rank < 5 ? 1.0 : 0.0};
    if (call->smoothing != 0.0F) {
        out->loss = smoothed(call, logits, largest, log_sum, out->loss);
    }
    if (dlogits == NULL) {
        return;
    }
    const float scale = row_scale(call, row);
    const double smoothing = (double)call->smoothing;
    const float factor = (float)((double)scale * ((1.0 - smoothing) * total + smoothing) / sum);
    const float all = scale * call->smoothing / (float)classes;
    const float own = scale * (1.0F - call->smoothing);
    for (int32_t c = 0; c < classes; c++) {
        dlogits[c] = dlogits[c] * factor - all;
    }
    for (int32_t c = 0; c < classes; c++) {
        dlogits[c] -= own * t[c];
    }
}

/* Over labels, or without them over targets, which are shares of the classes. */
void K(softmax_loss)(const dunlin_loss_call *call)
{
    sum_rows(call, call->labels == NULL          ? soft_row
                   : call->class_weights != NULL ? weighted_row
                                                 : softmax_row);
}

static void squared_row(const dunlin_loss_call *call, int64_t row, loss_row *out)
{
    const int32_t n = call->classes;
    const float *y = call->logits + row * n;
    const float *t = call->targets + row * n;
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const double d = (double)y[i] - (double)t[i];
        sum += d * d;
    }
    *out = (loss_row){.loss = sum / n};
    if (call->dlogits != NULL) {
        float *dy = call->dlogits + row * n;
        const float factor = 2.0F * row_scale(call, row) / (float)n;
        for (int32_t i = 0; i < n; i++) {
            dy[i] = (y[i] - t[i]) * factor;
        }
    }
}

void K(squared_loss)(const dunlin_loss_call *call)
{
    sum_rows(call, squared_row);
}

/* -t log(s) - (1 - t) log(1 - s), s the sigmoid of x, is max(x, 0) - x t + log(1 + exp(-|x|)). */
static void logistic_row(const dunlin_loss_call *call, int64_t row, loss_row *out)
{
    const int32_t n = call->classes;
    const float *x = call->logits + row * n;
    const float *t = call->targets + row * n;
    float *dx = call->dlogits != NULL ? call->dlogits + row * n : NULL;
    const float factor = row_scale(call, row) / (float)n;
    double sum = 0.0;
    double right = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const float e = expf(-fabsf(x[i]));
        const float linear = (x[i] > 0.0F ? x[i] : 0.0F) - x[i] * t[i];
        sum += (double)linear + (double)log1pf(e);
        right += (x[i] > 0.0F) == (t[i] > 0.5F) ? 1.0 : 0.0;
        if (dx != NULL) {
            const float sigmoid = (x[i] >= 0.0F ? 1.0F : e) / (1.0F + e);
            dx[i] = (sigmoid - t[i]) * factor;
        }
    }
    *out = (loss_row){.loss = sum / n, .right = right};
}

/* With w for a target of 1 (PyTorch's `pos_weight`): (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)).
 */
static void weighted_logistic_row(const dunlin_loss_call *call, int64_t row, loss_row *out)
{
    const int32_t n = call->classes;
    const float *x = call->logits + row * n;
    const float *t = call->targets + row * n;
    float *dx = call->dlogits != NULL ? call->dlogits + row * n : NULL;
    const float factor = row_scale(call, row) / (float)n;
    double sum = 0.0;
    double right = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const float e = expf(-fabsf(x[i]));
        const float weight = 1.0F + (call->class_weights[i] - 1.0F) * t[i];
        const double log_term = (double)log1pf(e) + (x[i] < 0.0F ? -(double)x[i] : 0.0);
        sum += (double)((1.0F - t[i]) * x[i]) + (double)weight * log_term;
        right += (x[i] > 0.0F) == (t[i] > 0.5F) ? 1.0 : 0.0;
        if (dx != NULL) {
            const float other = (x[i] >= 0.0F ? e : 1.0F) / (1.0F + e); /* 1 - s */
            dx[i] = (1.0F - t[i] - weight * other) * factor;
        }
    }
    *out = (loss_row){.loss = sum / n, .right = right};
}

void K(logistic_loss)(const dunlin_loss_call *call)
{
    sum_rows(call, call->class_weights != NULL ? weighted_logistic_row : logistic_row);
}
