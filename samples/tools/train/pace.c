/*
 * pace.c - how far a run is, and how long it has to go: its training and all its evaluations.
 *
 * Each of the two goes on as fast as it has been so far; until an example was evaluated, one is
 * taken to need a third of what one needs to be trained on, the forward pass of three.
 */
#include "run.h"

#include <inttypes.h>
#include <stdio.h>

#define EVALUATED_SHARE (1.0 / 3.0)

static double ms_an_example(double ms, int64_t n)
{
    return n > 0 ? ms / (double)n : 0.0;
}

static double left_s(const train_pace *pace)
{
    const double train_ms = ms_an_example(pace->train_ms, pace->train_seen);
    const double eval_ms = pace->eval_seen > 0 ? ms_an_example(pace->eval_ms, pace->eval_seen)
                                               : EVALUATED_SHARE * train_ms;
    const int64_t n_train = pace->n_train - pace->train_seen;
    const int64_t n_eval = pace->n_eval - pace->eval_seen;
    const bool is_known = pace->n_train > 0 && (pace->train_seen > 0 || n_train <= 0);
    return is_known ? ((n_train > 0 ? (double)n_train : 0.0) * train_ms +
                       (n_eval > 0 ? (double)n_eval : 0.0) * eval_ms) /
                          1e3
                    : -1.0;
}

static void tell(train_pace *pace, const char *note)
{
    const double ms = ms_an_example(pace->train_ms, pace->train_seen);
    progress_tell(&pace->line, pace->train_seen, pace->n_train, ms > 0.0 ? 1e3 / ms : -1.0,
                  left_s(pace), note);
}

/* Evaluations at moments of the run, and of what was not evaluated on at its last moment. */
static int64_t find_evaluated(const train_flags *flags, const train_length *run, int64_t n_before,
                              int64_t n_validation, int64_t n_test)
{
    int64_t n_moments = (run->left_steps + run->epoch_steps - 1) / run->epoch_steps;
    bool is_at_end = true;
    if (flags->eval_steps > 0) {
        const int64_t last = n_before + run->left_steps;
        n_moments = last / flags->eval_steps - n_before / flags->eval_steps;
        is_at_end = last % flags->eval_steps == 0;
    }
    const int64_t n_on_the_way = n_validation + (flags->eval_every != NULL ? n_test : 0);
    return n_moments * n_on_the_way + (is_at_end ? 0 : n_validation) +
           (is_at_end && flags->eval_every != NULL ? 0 : n_test);
}

void train_pace_begin(const train_flags *flags, const train_length *run, int64_t n_before,
                      int64_t n_validation, int64_t n_test, train_pace *pace)
{
    pace->n_train = run->left_examples;
    pace->n_eval = pace->n_train > 0 && run->epoch_steps > 0
                       ? find_evaluated(flags, run, n_before, n_validation, n_test)
                       : 0;
    progress_begin(&pace->line, "training", "examples");
}

void train_pace_step(train_pace *pace, int64_t n_examples, double ms, double loss)
{
    char note[PROGRESS_NOTE_BYTES];
    pace->train_seen += n_examples;
    pace->train_ms += ms;
    (void)snprintf(note, sizeof note, "loss %.4f", loss);
    tell(pace, note);
}

void train_pace_evaluation(train_pace *pace, bool is_begun)
{
    if (is_begun) {
        pace->eval_before = pace->eval_seen;
        pace->eval_ms_before = pace->eval_ms;
        pace->eval_begin_ms = clock_ms();
    }
    pace->is_evaluating = is_begun;
}

bool train_pace_hear(void *ctx, const dunlin_progress *at)
{
    train_pace *pace = ctx;
    if (pace->is_evaluating) {
        char note[PROGRESS_NOTE_BYTES];
        pace->eval_seen = pace->eval_before + at->n_seen;
        pace->eval_ms = pace->eval_ms_before + clock_ms() - pace->eval_begin_ms;
        (void)snprintf(note, sizeof note, "evaluating, %" PRId64 " of %" PRId64, at->n_seen,
                       at->n_total);
        tell(pace, note);
    }
    return true;
}
