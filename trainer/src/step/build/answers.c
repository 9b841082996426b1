/*
 * answers.c - labels and targets as a source gave them: checked, and as the loss takes them.
 */
#include "answers.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

static bool has_weight(const dunlin_step_run *run, int64_t index)
{
    const dunlin_source *source = run->source;
    return source->weight_fn == NULL || source->weight_fn(source->ctx, index) != 0.0F;
}

/* Labels that do not count are taken away. */
static dunlin_status check_labels(const dunlin_step_run *run, const dunlin_answer *of,
                                  const int64_t *indices, int64_t n, int32_t *labels)
{
    for (int64_t i = 0; i < n; i++) {
        const bool counts = has_weight(run, indices[i]);
        for (int64_t row = i * of->n_rows; row < (i + 1) * of->n_rows; row++) {
            if (!counts || (of->loss == DUNLIN_LOSS_CROSS_ENTROPY &&
                            dunlin__run_is_ignored(run, labels[row]))) {
                labels[row] = DUNLIN_NO_LABEL;
                continue;
            }
            DUNLIN_TRY(dunlin__run_check_label(run, labels[row], indices[i], of->n_classes));
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_targets(const dunlin_step_run *run, const dunlin_answer *of,
                                   const int64_t *indices, int64_t n, float *targets)
{
    const int64_t n_targets = of->n_rows * of->n_classes;
    for (int64_t i = 0; i < n; i++) {
        if (!has_weight(run, indices[i])) {
            memset(targets + i * n_targets, 0, (size_t)n_targets * sizeof(float));
        }
    }
    for (int64_t i = 0; i < n * n_targets; i++) {
        const bool is_in_range = of->loss != DUNLIN_LOSS_MSE
                                     ? targets[i] >= 0.0F && targets[i] <= 1.0F
                                     : isfinite(targets[i]);
        if (!is_in_range) {
            return dunlin__fail(run->error, DUNLIN_DATA, "step", 0,
                                "target %lld of example %lld is %g; it must be %s",
                                (long long)(i % n_targets), (long long)indices[i / n_targets],
                                (double)targets[i],
                                of->loss != DUNLIN_LOSS_MSE ? "in [0, 1]" : "finite");
        }
    }
    return DUNLIN_OK;
}

/* Targets as the model has its output become targets as it lies: channels of a pixel together. */
static void turn_targets(const dunlin_step_run *run, const dunlin_answer *of, int64_t n,
                         float *targets, float *scratch)
{
    const int64_t n_targets = of->n_rows * of->n_classes;
    for (int64_t i = 0; i < n; i++) {
        float *own = targets + i * n_targets;
        run->kernels->transpose(1, of->n_classes, of->n_rows, own, scratch, run->threads);
        memcpy(own, scratch, (size_t)n_targets * sizeof *own);
    }
}

/* Labels, where shares of classes are asked for: 1 for the class. They were read where the shares
 * will lie, and are spread from the last to the first. */
static dunlin_status spread_labels(const dunlin_step_run *run, const dunlin_answer *of,
                                   const int64_t *indices, int64_t n, float *answers)
{
    const int64_t width = of->n_classes;
    DUNLIN_TRY(check_labels(run, of, indices, n, (int32_t *)(void *)answers));
    for (int64_t i = n * of->n_rows - 1; i >= 0; i--) {
        int32_t label = 0;
        memcpy(&label, answers + i, sizeof label);
        memset(answers + i * width, 0, (size_t)width * sizeof *answers);
        if (label != DUNLIN_NO_LABEL) {
            answers[i * width + label] = 1.0F;
        }
    }
    return DUNLIN_OK;
}

int64_t dunlin__answer_width(const dunlin_answer *of)
{
    return of->n_rows * (of->loss == DUNLIN_LOSS_CROSS_ENTROPY ? 1 : of->n_classes);
}

dunlin_status dunlin__answer_take(const dunlin_step_run *run, const dunlin_answer *of,
                                  const int64_t *indices, int64_t n, void *answers, float *scratch)
{
    const bool has_targets =
        of->loss != DUNLIN_LOSS_CROSS_ENTROPY && dunlin__source_has_targets(run->source, of->index);
    if (!has_targets && of->loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY) {
        return spread_labels(run, of, indices, n, answers);
    }
    if (!has_targets) {
        return check_labels(run, of, indices, n, answers);
    }
    DUNLIN_TRY(check_targets(run, of, indices, n, answers));
    if (of->is_image) {
        turn_targets(run, of, n, answers, scratch);
    }
    return DUNLIN_OK;
}
