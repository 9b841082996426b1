/*
 * curves.c - evaluations on the way and at the end, and the rows they belong to.
 */
#include "run.h"

#include <inttypes.h>
#include <stdio.h>

#define TOP5_LEAST_CLASSES 11 /* of fewer it says little */

void train_print_eval(const train_flags *flags, const train_result *result)
{
    const dunlin_metrics *eval = &result->eval;
    printf("test ");
    if (flags->loss_value != DUNLIN_LOSS_MSE) {
        printf("accuracy %.2f %%, ", 100.0 * eval->accuracy);
    }
    if (flags->loss_value == DUNLIN_LOSS_CROSS_ENTROPY && result->n_outputs >= TOP5_LEAST_CLASSES) {
        printf("top-5 %.2f %%, ", 100.0 * eval->top5_accuracy);
    }
    printf("loss %.4f, on %" PRId64 " examples\n", eval->loss, eval->n_examples);
}

dunlin_status train_note_curves(const train_flags *flags, dunlin_trainer *trainer, train_curves *to,
                                const train_row *step, bool is_epoch_end, progress *line,
                                train_result *result)
{
    train_row row = *step;
    row.step = dunlin_trainer_n_steps(trainer);
    const bool is_time = flags->eval_steps > 0 ? row.step % flags->eval_steps == 0 : is_epoch_end;
    dunlin_status status = DUNLIN_OK;
    result->has_eval = false;
    if (to->test != NULL && is_time) {
        status = dunlin_trainer_evaluate(trainer, to->test, 0, to->test->n_examples, &result->eval);
        result->has_eval = status == DUNLIN_OK;
        row.test = result->has_eval ? &result->eval : NULL;
        row.has_accuracy = flags->loss_value != DUNLIN_LOSS_MSE;
    }
    if (result->has_eval) {
        progress_end(line);
        printf("step %" PRId64 ": ", row.step);
        train_print_eval(flags, result);
        (void)fflush(stdout);
    }
    if (status == DUNLIN_OK && to->log.file >= 0) {
        status = dunlin_trainer_get_report(trainer, &result->report);
        row.peak_bytes = result->report.peak_bytes;
        train_log_row(&to->log, &row);
    }
    return status;
}
