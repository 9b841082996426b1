/*
 * confusion.c - what an evaluation took for what, class by class, and scores of that.
 */
#include "integer/precision.h"
#include "step/context/guard.h"
#include "train.h"

#include <dunlin/pixels.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

static dunlin_status check(const dunlin_trainer *trainer, const dunlin_answer_counts *counts)
{
    const int32_t own = trainer->infer.step->n_classes;
    if (trainer->options.loss != DUNLIN_LOSS_CROSS_ENTROPY ||
        dunlin__precision_is_whole(trainer->precision)) {
        return dunlin__fail(trainer->error, DUNLIN_UNSUPPORTED, "trainer", 0,
                            "answers are counted by class with cross-entropy with labels and in "
                            "float32 alone");
    }
    if (counts->confusion != NULL && counts->n_classes != own) {
        return dunlin__fail(trainer->error, DUNLIN_MISMATCH, "trainer", 0,
                            "there is room for %" PRId32 " classes; the model has %" PRId32,
                            counts->n_classes, own);
    }
    if (counts->ranks != NULL && (counts->n_ranks < 1 || counts->n_ranks > own)) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "n_ranks is %" PRId32 "; the limits are 1 and the model's %" PRId32
                            " classes",
                            counts->n_ranks, own);
    }
    return DUNLIN_OK;
}

// NOLINTNEXTLINE(readability-function-size): the public call's arguments
static dunlin_status count(dunlin_trainer *trainer, const dunlin_source *source, int64_t first,
                           int64_t n, const dunlin_answer_counts *counts,
                           dunlin_metrics *out_metrics)
{
    dunlin_source taken = DUNLIN_SOURCE_INIT;
    dunlin_answer_counts wanted = DUNLIN_ANSWER_COUNTS_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_source, source, &taken, trainer->error));
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_answer_counts, counts, &wanted, trainer->error));
    DUNLIN_TRY(check(trainer, &wanted));
    if (wanted.confusion != NULL) {
        memset(wanted.confusion, 0,
               (size_t)wanted.n_classes * (size_t)wanted.n_classes * sizeof *wanted.confusion);
    }
    if (wanted.ranks != NULL) {
        memset(wanted.ranks, 0, (size_t)wanted.n_ranks * sizeof *wanted.ranks);
    }
    /* Over a vocabulary no logits are in memory; a sample's are made once more. */
    const dunlin_step_graph *step = trainer->infer.step;
    const bool has_logits = step->outputs[0].logits != DUNLIN_STEP_NONE;
    const size_t n_room =
        wanted.ranks == NULL || has_logits ? 0 : (size_t)step->n_rows * (size_t)step->n_classes;
    float *room = n_room == 0 ? NULL : dunlin__alloc_array(&trainer->base, n_room, sizeof *room);
    if (n_room > 0 && room == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_MEMORY, "trainer", 0,
                            "no memory for the %zu outputs of an example", n_room);
    }
    const dunlin_status status =
        dunlin__train_evaluate(trainer, &taken, first, n, &wanted, room, out_metrics);
    if (room != NULL) {
        dunlin__free_array(&trainer->base, room, n_room, sizeof *room);
    }
    return status;
}

// NOLINTNEXTLINE(readability-function-size): one call instead of a struct in every program
dunlin_status dunlin_trainer_count_answers(dunlin_trainer *trainer, const dunlin_source *source,
                                           int64_t first, int64_t n,
                                           const dunlin_answer_counts *counts,
                                           dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, count(trainer, source, first, n, counts, out_metrics));
}

// NOLINTNEXTLINE(readability-function-size): one call instead of a struct in every program
dunlin_status dunlin_trainer_confusion(dunlin_trainer *trainer, const dunlin_source *source,
                                       int64_t first, int64_t n, int32_t n_classes, int64_t *counts,
                                       dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    dunlin_answer_counts wanted = DUNLIN_ANSWER_COUNTS_INIT;
    wanted.confusion = counts;
    wanted.n_classes = n_classes;
    if (counts == NULL) {
        return dunlin__trainer_leave(
            trainer, dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0, "counts is NULL"));
    }
    return dunlin__trainer_leave(trainer, count(trainer, source, first, n, &wanted, out_metrics));
}

static double share(double part, double whole)
{
    return whole > 0.0 ? part / whole : 0.0;
}

/* False: a count is negative. The number of rows that were taken for the class: *out_taken. */
static bool score_class(const int64_t *counts, int32_t n_classes, int32_t which,
                        dunlin_class_scores *out, int64_t *out_taken)
{
    int64_t labels = 0;
    int64_t taken = 0;
    for (int32_t i = 0; i < n_classes; i++) {
        const int64_t of_label = counts[(int64_t)which * n_classes + i];
        const int64_t as_class = counts[(int64_t)i * n_classes + which];
        if (of_label < 0 || as_class < 0) {
            return false;
        }
        labels += of_label;
        taken += as_class;
    }
    const double both = (double)counts[(int64_t)which * n_classes + which];
    out->n = labels;
    out->precision = share(both, (double)taken);
    out->recall = share(both, (double)labels);
    out->f1 = share(2.0 * both, (double)labels + (double)taken);
    out->iou = share(both, (double)labels + (double)taken - both);
    *out_taken = taken;
    return true;
}

dunlin_status dunlin_confusion_class(const int64_t *counts, int32_t n_classes, int32_t which,
                                     dunlin_class_scores *out_scores)
{
    DUNLIN_TRY(dunlin__struct_check(out_scores, "dunlin_class_scores", NULL));
    dunlin_class_scores scores = {.struct_size = sizeof scores};
    int64_t taken = 0;
    if (counts == NULL || which < 0 || which >= n_classes ||
        !score_class(counts, n_classes, which, &scores, &taken)) {
        return DUNLIN_ARGUMENT;
    }
    dunlin__struct_give(&scores, sizeof scores, out_scores);
    return DUNLIN_OK;
}

dunlin_status dunlin_confusion_means(const int64_t *counts, int32_t n_classes,
                                     dunlin_class_scores *out_scores)
{
    DUNLIN_TRY(dunlin__struct_check(out_scores, "dunlin_class_scores", NULL));
    dunlin_class_scores all = {.struct_size = sizeof all};
    double n_there = 0.0;
    if (counts == NULL || n_classes < 1) {
        return DUNLIN_ARGUMENT;
    }
    for (int32_t i = 0; i < n_classes; i++) {
        dunlin_class_scores one = {.struct_size = sizeof one};
        int64_t taken = 0;
        if (!score_class(counts, n_classes, i, &one, &taken)) {
            return DUNLIN_ARGUMENT;
        }
        all.n += one.n;
        all.precision += one.precision;
        all.recall += one.recall;
        all.f1 += one.f1;
        all.iou += one.iou;
        n_there += one.n > 0 || taken > 0 ? 1.0 : 0.0;
    }
    all.precision = share(all.precision, n_there);
    all.recall = share(all.recall, n_there);
    all.f1 = share(all.f1, n_there);
    all.iou = share(all.iou, n_there);
    dunlin__struct_give(&all, sizeof all, out_scores);
    return DUNLIN_OK;
}
