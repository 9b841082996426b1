/*
 * run.h - what the files of a run share: its progress, its length, its curves.
 */
#ifndef SAMPLES_TRAIN_RUN_H
#define SAMPLES_TRAIN_RUN_H

#include "common/progress.h"
#include "train.h"

/* --- cursor.c --- */

/* The place that a resumed checkpoint holds; unchanged where it is of another run (reported).
 * Another validation split of the same data set is refused. */
int train_read_cursor(const train_flags *flags, dunlin_trainer *trainer, int64_t n_train,
                      int64_t n_validation, dunlin_fit_cursor *out_cursor);
dunlin_status train_write_cursor(const train_flags *flags, dunlin_trainer *trainer, int64_t n_train,
                                 int64_t n_validation, const dunlin_fit_cursor *cursor);

/* How long the run is, as far as the learning rate and the progress line need to know. */
typedef struct train_length {
    int64_t epoch_steps;
    int64_t decay_steps; /* over which the rate falls */
    int64_t run_steps;   /* of this run */
    /* What of that a run still has to go that begins at a place, and the examples of it; examples
     * 0: too many to count. */
    int64_t left_steps, left_examples;
} train_length;

/* Steps of an epoch of so many examples. */
int64_t train_epoch_steps(const train_flags *flags, int64_t n_train);
/* `cursor` is where the run begins. */
train_length train_find_length(const train_flags *flags, int64_t n_train,
                               const dunlin_fit_cursor *cursor);
dunlin_status train_set_schedule(const train_flags *flags, dunlin_trainer *trainer,
                                 const train_length *run, const dunlin_fit_cursor *cursor);

/* --- pace.c --- */

/* The progress line of a run, from its first step to its last evaluation. All zeros before it
 * begins; must not move. */
typedef struct train_pace {
    progress line;
    int64_t n_train, train_seen; /* examples; n_train 0: not known */
    double train_ms;             /* in steps */
    int64_t n_eval, eval_seen;   /* of all evaluations */
    double eval_ms;
    bool is_evaluating; /* since eval_begin_ms, with what was seen and had taken time before */
    int64_t eval_before;
    double eval_ms_before, eval_begin_ms;
} train_pace;

/* `n_before` optimiser steps are done; so many examples to validate and to test on (0: none). */
void train_pace_begin(const train_flags *flags, const train_length *run, int64_t n_before,
                      int64_t n_validation, int64_t n_test, train_pace *pace);
void train_pace_step(train_pace *pace, int64_t n_examples, double ms, double loss);
/* Before an evaluation, and after it. */
void train_pace_evaluation(train_pace *pace, bool is_begun);
/* The trainer's progress_fn; `ctx` is the pace. */
bool train_pace_hear(void *ctx, const dunlin_progress *at);

/* --- curves.c --- */

/* Where evaluations on the way come from, and where rows go. */
typedef struct train_curves {
    const dunlin_source *test, *validation; /* NULL: it is not evaluated on the way */
    train_log log;
} train_curves;

/* One line of an evaluation on what is called `name`. */
void train_print_eval(const train_flags *flags, const train_result *result, const char *name,
                      const dunlin_metrics *eval);
/* On all examples of a source; of none (NULL) nothing is reported. */
dunlin_status train_evaluate(dunlin_trainer *trainer, const dunlin_source *source, train_pace *pace,
                             dunlin_metrics *out_metrics, bool *out_has);
/* The same on the test split, into the result: class by class too where it may be. */
dunlin_status train_test(const train_flags *flags, dunlin_trainer *trainer,
                         const dunlin_source *source, train_pace *pace, train_result *result);

/* Evaluates if it is time after this step, and writes the step's row. */
dunlin_status train_note_curves(const train_flags *flags, dunlin_trainer *trainer, train_curves *to,
                                const train_row *step, bool is_epoch_end, train_pace *pace,
                                train_result *result);

#endif
