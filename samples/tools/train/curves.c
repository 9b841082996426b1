/*
 * curves.c - evaluations on the way and at the end, and the rows they belong to.
 */
#include "run.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define TOP5_LEAST_CLASSES 11 /* of fewer it says little */

void train_print_eval(const train_flags *flags, const train_result *result, const char *name,
                      const dunlin_metrics *eval)
{
    printf("%s ", name);
    if (flags->loss_value != DUNLIN_LOSS_MSE) {
        printf("accuracy %.2f %%, ", 100.0 * eval->accuracy);
    }
    const bool is_test = eval == &result->eval;
    if (is_test && result->has_ranks) {
        train_print_tops(flags, result);
    } else if (flags->loss_value == DUNLIN_LOSS_CROSS_ENTROPY &&
               result->n_outputs >= TOP5_LEAST_CLASSES) {
        printf("top-5 %.2f %%, ", 100.0 * eval->top5_accuracy);
    }
    dunlin_class_scores means = DUNLIN_CLASS_SCORES_INIT;
    const train_confusion *confusion = &result->confusion;
    if (is_test && result->n_labels > 1 && !result->predicts_tokens && confusion->n_classes > 0 &&
        dunlin_confusion_means(confusion->counts, confusion->n_classes, &means) == DUNLIN_OK) {
        printf("mean IoU %.4f, ", means.iou);
    }
    printf("loss %.4f, ", eval->loss);
    if (result->predicts_tokens) {
        printf("perplexity %.3f, ", exp(eval->loss));
    }
    printf("on %" PRId64 " examples\n", eval->n_examples);
    if (is_test) {
        train_print_scores(flags, result);
    }
}

dunlin_status train_evaluate(dunlin_trainer *trainer, const dunlin_source *source, train_pace *pace,
                             dunlin_metrics *out_metrics, bool *out_has)
{
    train_pace_evaluation(pace, true);
    const dunlin_status status =
        source == NULL
            ? DUNLIN_OK
            : dunlin_trainer_evaluate(trainer, source, 0, source->n_examples, out_metrics);
    train_pace_evaluation(pace, false);
    *out_has = source != NULL && status == DUNLIN_OK;
    return status;
}

dunlin_status train_test(const train_flags *flags, dunlin_trainer *trainer,
                         const dunlin_source *source, train_pace *pace, train_result *result)
{
    train_confusion *confusion = &result->confusion;
    const bool has_labels = source != NULL && train_loss(flags) == DUNLIN_LOSS_CROSS_ENTROPY &&
                            !train_is_integer(flags);
    const bool is_confused = has_labels && result->n_outputs <= TRAIN_MAX_CONFUSED;
    confusion->n_classes = 0;
    result->has_ranks = false;
    if (!is_confused && (!has_labels || flags->tops.n == 0)) {
        const dunlin_status ended =
            train_evaluate(trainer, source, pace, &result->eval, &result->has_eval);
        train_take_scores(trainer, result);
        return ended;
    }
    dunlin_answer_counts counts = DUNLIN_ANSWER_COUNTS_INIT;
    counts.n_classes = (int32_t)result->n_outputs;
    counts.confusion = is_confused ? confusion->counts : NULL;
    counts.n_ranks = flags->tops.most;
    counts.ranks = flags->tops.n > 0 ? result->ranks : NULL;
    train_pace_evaluation(pace, true);
    const dunlin_status status = dunlin_trainer_count_answers(
        trainer, source, 0, source->n_examples, &counts, &result->eval);
    train_pace_evaluation(pace, false);
    confusion->n_classes = status == DUNLIN_OK && is_confused ? counts.n_classes : 0;
    result->has_ranks = status == DUNLIN_OK && counts.ranks != NULL;
    train_take_scores(trainer, result);
    result->has_eval = status == DUNLIN_OK;
    return status;
}

dunlin_status train_note_curves(const train_flags *flags, dunlin_trainer *trainer, train_curves *to,
                                const train_row *step, bool is_epoch_end, train_pace *pace,
                                train_result *result)
{
    train_row row = *step;
    row.step = dunlin_trainer_n_steps(trainer);
    const bool is_time = flags->eval_steps > 0 ? row.step % flags->eval_steps == 0 : is_epoch_end;
    dunlin_status status = DUNLIN_OK;
    result->has_eval = false;
    result->has_validation = false;
    row.has_accuracy = flags->loss_value != DUNLIN_LOSS_MSE;
    if (is_time) {
        status = train_evaluate(trainer, to->validation, pace, &result->validation,
                                &result->has_validation);
    }
    if (is_time && status == DUNLIN_OK) {
        status = train_test(flags, trainer, to->test, pace, result);
    }
    row.validation = result->has_validation ? &result->validation : NULL;
    row.test = result->has_eval ? &result->eval : NULL;
    if (row.validation != NULL || row.test != NULL) {
        progress_clear(&pace->line);
    }
    if (row.validation != NULL) {
        printf("step %" PRId64 ": ", row.step);
        train_print_eval(flags, result, "validation", row.validation);
    }
    if (row.test != NULL) {
        printf("step %" PRId64 ": ", row.step);
        train_print_eval(flags, result, "test", row.test);
    }
    (void)fflush(stdout);
    if (status == DUNLIN_OK && to->log.file >= 0) {
        status = dunlin_trainer_get_report(trainer, &result->report);
        row.peak_bytes = result->report.peak_bytes;
        train_log_row(&to->log, &row);
    }
    return status;
}
