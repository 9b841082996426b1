/*
 * train.c - steps, fits, evaluations, predictions: the calls that run plans.
 *
 * Invariant: none of them allocates; between two steps the weights are those of a whole number of
 * steps, and the counter says of how many, or the trainer is torn.
 */
#include "train.h"

#include "batches.h"
#include "calibrate.h"
#include "integer/precision.h"
#include "step/adapt/adapt.h"
#include "step/context/context.h"
#include "step/context/examples.h"
#include "step/run/clock.h"
#include "step/run/look.h"
#include "tally.h"
#include "warn.h"
#include "weigh.h"

#include <mem/support.h>

#include <inttypes.h>

#define HINT_BLOCK 64 /* indices of a call of hint_fn */

static dunlin_status check_source(const dunlin_trainer *trainer, const dunlin_source *source,
                                  bool is_predicting)
{
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    const dunlin_step_graph *step = trainer->train.step;
    DUNLIN_TRY(dunlin__examples_check(source, step, "trainer", trainer->error));
    if (dunlin__precision_is_whole(trainer->precision) && source->weight_fn != NULL) {
        return dunlin__fail(trainer->error, DUNLIN_UNSUPPORTED, "trainer", 0,
                            "the source has weights of examples, and precision %s has none",
                            dunlin__precision_name(trainer->precision));
    }
    return dunlin__answers_check(source, step, is_predicting, trainer->error);
}

static dunlin_step_run make_run(const dunlin_trainer *trainer, const dunlin_source *source,
                                int64_t n, double *out_sums)
{
    const dunlin_trainer_options *options = &trainer->options;
    dunlin_step_run run = {
        .kernels = trainer->kernels,
        .integers = trainer->integers,
        .grad_bits = dunlin__grad_bits_at(&trainer->grad_bits, trainer->step),
        .weight_growth = trainer->weight_growth,
        .threads = trainer->threads,
        .source = source,
        .n_batch = n,
        .class_weights = trainer->class_weights,
        .has_ignore_label = options->has_ignore_label,
        .ignore_label = options->ignore_label,
        .seed = trainer->seed,
        .step = trainer->step,
        .lr = dunlin_trainer_lr(trainer),
        .momentum = options->momentum,
        .weight_decay = options->weight_decay,
        .is_nesterov = options->is_nesterov,
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .eps = options->eps,
        .clip_value = options->clip_value,
        .clip_norm = options->clip_norm,
        .gradient_fn = options->gradient_fn,
        .gradient_ctx = options->gradient_ctx,
        .out_sums = out_sums,
        .watch = trainer->watch,
        .swap = trainer->swap,
        .error = trainer->error,
    };
    for (uint32_t i = 0; i < trainer->train.step->n_outputs; i++) {
        run.n_counted[i] = n * trainer->train.step->outputs[i].n_rows;
        run.weight_sums[i] = (double)run.n_counted[i];
    }
    return run;
}

/* Rows of all outputs that count. */
static int64_t n_counted(const dunlin_trainer *trainer, const dunlin_step_run *run)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < trainer->train.step->n_outputs; i++) {
        n += run->n_counted[i];
    }
    return n;
}

static void begin_source(const dunlin_source *source, int64_t step)
{
    if (source->step_fn != NULL) {
        source->step_fn(source->ctx, step);
    }
}

static dunlin_status train_step(dunlin_trainer *trainer, dunlin_step_run *run)
{
    DUNLIN_TRY(dunlin__adapt_between(trainer));
    DUNLIN_TRY(dunlin__trainer_weigh(trainer, run));
    DUNLIN_TRY(dunlin__trainer_check_counted(trainer, run->n_batch, n_counted(trainer, run)));
    dunlin__trainer_warn_of_one(trainer, run->n_batch);
    DUNLIN_TRY(dunlin__calibrate_step(trainer, run));
    dunlin_step_trace trace = {.largest_example = -1};
    run->trace = &trace;
    dunlin_exec_control *control = dunlin__adapt_begin_step(trainer, run->n_batch);
    const dunlin_status status = dunlin__exec(&trainer->train, &trainer->arena, control, run);
    if (status != DUNLIN_OK) {
        /* Tensors are written out before any weight changes; they are read back after that. */
        const bool has_lost = trainer->swap != NULL && trainer->swap->file.has_lost;
        if (trace.has_changed || has_lost) {
            dunlin__trainer_tear(trainer);
        } else if (trace.ended_forward && trainer->swap == NULL) {
            dunlin__look_again(&trainer->train, &trainer->arena, run);
        }
        const dunlin_error first = *trainer->error;
        const dunlin_status ended = dunlin__adapt_end_step(trainer);
        *trainer->error = first;
        return status != DUNLIN_OK ? status : ended;
    }
    trainer->step++;
    trainer->moved_bytes += dunlin__plan_operand_bytes(&trainer->train.lowered.graph,
                                                       trainer->train.plan, (uint64_t)run->n_batch);
    return dunlin__adapt_end_step(trainer);
}

/* Of what runs plans for a while: another such call is not expected at once. A stop that came until
 * here was meant for this one. */
static void end_call(dunlin_trainer *trainer)
{
    atomic_store(&trainer->is_stopping, false);
    dunlin__threads_rest(trainer->threads);
    dunlin__adapt_end(trainer);
}

dunlin_status dunlin__train_step(dunlin_trainer *trainer, const dunlin_source *source,
                                 const int64_t *indices, int64_t n, dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(check_source(trainer, source, false));
    if (indices == NULL || n < 1 || n > trainer->options.batch) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "a step takes 1 to %" PRId64 " examples, not %" PRId64,
                            trainer->options.batch, n);
    }
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= source->n_examples) {
            return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                                "index %" PRId64 " is not one of the source's %" PRId64 " examples",
                                indices[i], source->n_examples);
        }
    }
    double sums[DUNLIN_MAX_LOSS_SUMS] = {0.0};
    dunlin_step_run run = make_run(trainer, source, n, sums);
    run.indices = indices;
    begin_source(source, trainer->step);
    dunlin__adapt_begin(trainer);
    const dunlin_status status = train_step(trainer, &run);
    dunlin__adapt_end(trainer);
    DUNLIN_TRY(status);
    dunlin_tally total = {.n = 0};
    dunlin__tally_add(&total, trainer->train.step, &run, sums);
    dunlin__tally_metrics(trainer, &total, out_metrics);
    return DUNLIN_OK;
}

static bool tell_progress(dunlin_trainer *trainer, const dunlin_progress *progress)
{
    if (trainer->options.progress_fn == NULL) {
        return true;
    }
    trainer->is_telling = true;
    const bool goes_on = trainer->options.progress_fn(trainer->options.progress_ctx, progress);
    trainer->is_telling = false;
    return goes_on;
}

static dunlin_status fail_stopped(const dunlin_trainer *trainer, const dunlin_progress *progress)
{
    return dunlin__fail(trainer->error, DUNLIN_STOPPED, "trainer", 0,
                        "stopped on request after %" PRId64 " of %" PRId64 " examples",
                        progress->n_seen, progress->n_total);
}

/* A stop that came before the call's first step. */
static dunlin_status check_stop(const dunlin_trainer *trainer, int64_t n_total)
{
    const dunlin_progress progress = {.struct_size = sizeof progress, .n_total = n_total};
    return atomic_load(&trainer->is_stopping) ? fail_stopped(trainer, &progress) : DUNLIN_OK;
}

/* One call of fit. */
typedef struct fit_state {
    dunlin_trainer *trainer;
    const dunlin_source *source;
    dunlin_fit_options options;
    dunlin_batches batches;
    dunlin_fit_cursor *cursor;
    int64_t n_total; /* of this call */
    int64_t n_steps;
    double start_ms;
    dunlin_tally total;
} fit_state;

static dunlin_status check_cursor(const fit_state *fit)
{
    const dunlin_fit_cursor *cursor = fit->cursor;
    if (cursor->epoch < 0 || cursor->position < 0 || cursor->position > fit->batches.n_epoch) {
        return dunlin__fail(fit->trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "the cursor (epoch %" PRId64 ", position %" PRId64
                            ") lies outside of %" PRId64 " epochs of %" PRId64 " examples",
                            cursor->epoch, cursor->position, fit->options.epochs,
                            fit->batches.n_epoch);
    }
    return DUNLIN_OK;
}

static bool is_at_limit(const fit_state *fit)
{
    const dunlin_fit_options *options = &fit->options;
    return (options->max_steps != 0 && fit->n_steps >= options->max_steps) ||
           (options->max_ms != 0 && dunlin__clock_ms() - fit->start_ms >= (double)options->max_ms);
}

/* Tells the source what the step after the one at the cursor will ask for. */
static void hint_next(const fit_state *fit, const dunlin_shuffle *shuffle, int64_t n_now)
{
    const dunlin_trainer *trainer = fit->trainer;
    const dunlin_source *source = fit->source;
    dunlin_fit_cursor next = *fit->cursor;
    if (source->hint_fn == NULL || !dunlin__batches_advance(&fit->batches, &next, n_now)) {
        return;
    }
    dunlin_shuffle own = *shuffle;
    if (next.epoch != fit->cursor->epoch) {
        dunlin__shuffle_init(&own, source->n_examples, trainer->seed, next.epoch);
    }
    const dunlin_step_run run = {.shuffle = fit->options.keep_order ? NULL : &own,
                                 .first_index = next.position};
    const int64_t n = dunlin__batches_size(&fit->batches, next.position);
    int64_t indices[HINT_BLOCK];
    for (int64_t first = 0; first < n; first += HINT_BLOCK) {
        const int64_t n_block = n - first < HINT_BLOCK ? n - first : HINT_BLOCK;
        for (int64_t i = 0; i < n_block; i++) {
            indices[i] = dunlin__run_example(&run, first + i);
        }
        source->hint_fn(source->ctx, trainer->step + 1, indices, n_block);
    }
}

static dunlin_status fit_step(fit_state *fit, const dunlin_shuffle *shuffle)
{
    dunlin_trainer *trainer = fit->trainer;
    const int64_t n = dunlin__batches_size(&fit->batches, fit->cursor->position);
    double sums[DUNLIN_MAX_LOSS_SUMS] = {0.0};
    dunlin_step_run run = make_run(trainer, fit->source, n, sums);
    run.shuffle = fit->options.keep_order ? NULL : shuffle;
    run.first_index = fit->cursor->position;
    begin_source(fit->source, trainer->step);
    hint_next(fit, shuffle, n);
    DUNLIN_TRY(train_step(trainer, &run));
    dunlin__tally_add(&fit->total, trainer->train.step, &run, sums);
    fit->n_steps++;
    const dunlin_progress progress = {
        .struct_size = sizeof progress,
        .step = trainer->step,
        .epoch = fit->cursor->epoch,
        .n_seen = fit->total.n,
        .n_total = fit->n_total,
        .loss = dunlin__tally_loss(trainer->train.step, &run, sums),
    };
    (void)dunlin__batches_advance(&fit->batches, fit->cursor, n);
    const bool goes_on = tell_progress(trainer, &progress);
    if (!fit->cursor->is_done && (!goes_on || atomic_load(&trainer->is_stopping))) {
        return fail_stopped(trainer, &progress);
    }
    return DUNLIN_OK;
}

static dunlin_status run_fit(fit_state *fit)
{
    dunlin_shuffle shuffle = {.n = 0};
    int64_t shuffled_epoch = -1;
    DUNLIN_TRY(check_stop(fit->trainer, fit->n_total));
    while (!fit->cursor->is_done) {
        if (shuffled_epoch != fit->cursor->epoch) {
            shuffled_epoch = fit->cursor->epoch;
            dunlin__shuffle_init(&shuffle, fit->source->n_examples, fit->trainer->seed,
                                 shuffled_epoch);
        }
        DUNLIN_TRY(fit_step(fit, &shuffle));
        if (is_at_limit(fit)) {
            break;
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__train_fit(dunlin_trainer *trainer, const dunlin_source *source,
                                const dunlin_fit_options *options, dunlin_fit_cursor *cursor,
                                dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(check_source(trainer, source, false));
    dunlin_fit_cursor own = {.epoch = 0};
    fit_state fit = {.trainer = trainer,
                     .source = source,
                     .cursor = cursor != NULL ? cursor : &own,
                     .start_ms = dunlin__clock_ms()};
    DUNLIN_TRY(dunlin__batches_init(source->n_examples, trainer->options.batch, options,
                                    &fit.options, &fit.batches, trainer->error));
    DUNLIN_TRY(check_cursor(&fit));
    (void)dunlin__batches_advance(&fit.batches, fit.cursor, 0);
    fit.n_total = dunlin__batches_total(&fit.batches, fit.cursor);
    dunlin__adapt_begin(trainer);
    const dunlin_status status = run_fit(&fit);
    end_call(trainer);
    dunlin__tally_metrics(trainer, &fit.total, out_metrics);
    return status;
}

static dunlin_status check_range(const dunlin_trainer *trainer, const dunlin_source *source,
                                 int64_t first, int64_t n, bool is_predicting)
{
    DUNLIN_TRY(check_source(trainer, source, is_predicting));
    if (first < 0 || n < 1 || first > source->n_examples || n > source->n_examples - first) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "examples %" PRId64 " + %" PRId64 " of the source's %" PRId64
                            " are asked for",
                            first, n, source->n_examples);
    }
    return DUNLIN_OK;
}

/* Runs the inference plan over the range, batch by batch: metrics, or logits if `out_logits` is
 * set. */
static dunlin_status run_infer(dunlin_trainer *trainer, const dunlin_source *source, int64_t first,
                               int64_t n, float *out_logits, dunlin_tally *total)
{
    const int64_t batch = trainer->options.batch;
    DUNLIN_TRY(check_stop(trainer, n));
    for (int64_t done = 0; done < n;) {
        const int64_t n_now = n - done < batch ? n - done : batch;
        double sums[DUNLIN_MAX_LOSS_SUMS] = {0.0};
        dunlin_step_run run = make_run(trainer, source, n_now, sums);
        run.first_index = first + done;
        run.confusion = total->counts == NULL ? NULL : total->counts->confusion;
        run.ranks = total->counts == NULL ? NULL : total->counts->ranks;
        run.n_ranks = run.ranks == NULL ? 0 : total->counts->n_ranks;
        run.rank_room = total->rank_room;
        begin_source(source, -1);
        if (out_logits != NULL) {
            const dunlin_step_output *of = &trainer->infer.step->outputs[total->output];
            run.logits = out_logits + done * of->n_rows * of->n_classes;
            run.logits_of = total->output;
        }
        DUNLIN_TRY(dunlin__adapt_between(trainer));
        if (out_logits == NULL) {
            DUNLIN_TRY(dunlin__trainer_weigh(trainer, &run));
        }
        if (done == 0) {
            DUNLIN_TRY(dunlin__calibrate_infer(trainer, &run));
        }
        dunlin_step_trace trace = {.largest_example = -1};
        run.trace = &trace;
        dunlin_exec_control *control = dunlin__adapt_begin_infer(trainer);
        DUNLIN_TRY(dunlin__exec(&trainer->infer, &trainer->arena, control, &run));
        dunlin__tally_add(total, trainer->train.step, &run, sums);
        done += n_now;
        const dunlin_progress progress = {
            .struct_size = sizeof progress,
            .step = trainer->step,
            .n_seen = done,
            .n_total = n,
            .loss = dunlin__tally_loss(trainer->train.step, &run, sums),
        };
        const bool goes_on = out_logits != NULL || tell_progress(trainer, &progress);
        if (done < n && (!goes_on || atomic_load(&trainer->is_stopping))) {
            return fail_stopped(trainer, &progress);
        }
    }
    return out_logits != NULL ? DUNLIN_OK
                              : dunlin__trainer_check_counted(trainer, n, total->n_counted);
}

dunlin_status dunlin__train_evaluate(dunlin_trainer *trainer, const dunlin_source *source,
                                     int64_t first, int64_t n, const dunlin_answer_counts *counts,
                                     float *rank_room, dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(check_range(trainer, source, first, n, false));
    dunlin_tally total = {.counts = counts, .rank_room = rank_room};
    dunlin__adapt_begin(trainer);
    const dunlin_status status = run_infer(trainer, source, first, n, NULL, &total);
    end_call(trainer);
    dunlin__tally_metrics(trainer, &total, out_metrics);
    return status;
}

dunlin_status dunlin__train_predict(dunlin_trainer *trainer, const dunlin_source *source,
                                    int32_t output, int64_t first, int64_t n, float *out_logits)
{
    DUNLIN_TRY(check_range(trainer, source, first, n, true));
    if (output < 0 || output >= (int32_t)trainer->infer.step->n_outputs) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "output %" PRId32 " is not one of the model's %" PRIu32, output,
                            trainer->infer.step->n_outputs);
    }
    if (out_logits == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0, "out_logits is NULL");
    }
    dunlin_tally total = {.output = (uint32_t)output};
    dunlin__adapt_begin(trainer);
    const dunlin_status status = run_infer(trainer, source, first, n, out_logits, &total);
    end_call(trainer);
    return status;
}
