/*
 * run.c - the run: create, resume, fit, evaluate, write.
 *
 * Invariant: no memory is taken between creating the trainer and reading the process's high-water
 * mark, so that its growth is the trainer's.
 */
#include "run.h"

#include "common/output.h"
#include "common/process.h"
#include "common/weights.h"
#include "object.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* How far the run is, and what it has seen. */
typedef struct watch {
    train_pace pace;
    train_times times;
    train_result *result;
    int64_t epoch;
    double epoch_loss; /* sum over the steps of the epoch */
    int64_t epoch_steps;
} watch;

static void note_time(train_times *times, double ms)
{
    if (times->n_steps % times->stride == 0) {
        if (times->n == TRAIN_TIMES) {
            for (int32_t i = 0; i < TRAIN_TIMES / 2; i++) {
                times->ms[i] = times->ms[2 * i];
            }
            times->n = TRAIN_TIMES / 2;
            times->stride *= 2;
        }
        if (times->n_steps % times->stride == 0) {
            times->ms[times->n] = (float)ms;
            times->n++;
        }
    }
    times->n_steps++;
}

static int compare_times(const void *left, const void *right)
{
    float a = *(const float *)left;
    float b = *(const float *)right;
    return (a > b) - (a < b);
}

static double median(train_times *times)
{
    if (times->n == 0) {
        return 0.0;
    }
    qsort(times->ms, (size_t)times->n, sizeof times->ms[0], compare_times);
    return (double)times->ms[times->n / 2];
}

static void end_epoch(watch *seen)
{
    if (seen->epoch_steps > 0) {
        progress_clear(&seen->pace.line);
        printf("epoch %" PRId64 ": mean loss %.5g over %" PRId64 " steps\n", seen->epoch + 1,
               seen->epoch_loss / (double)seen->epoch_steps, seen->epoch_steps);
        (void)fflush(stdout);
    }
    seen->epoch_loss = 0.0;
    seen->epoch_steps = 0;
}

/* Takes note of one step. */
static void note_step(watch *seen, const dunlin_metrics *step, double ms)
{
    train_result *result = seen->result;
    note_time(&seen->times, ms);
    if (result->n_steps == 0) {
        result->loss_first = step->loss;
    }
    result->loss_last = step->loss;
    result->n_steps++;
    result->n_seen += step->n_examples;
    seen->epoch_loss += step->loss;
    seen->epoch_steps++;
    train_pace_step(&seen->pace, step->n_examples, ms, step->loss);
}

/* One step at a time, so that each has its own rate and can be the last. */
static dunlin_status fit(const train_flags *flags, dunlin_trainer *trainer,
                         const dunlin_source *source, int64_t n_test, dunlin_fit_cursor *cursor,
                         train_curves *to, watch *seen)
{
    train_result *result = seen->result;
    train_length plan = train_find_length(flags, source->n_examples, cursor);
    dunlin_fit_options options = DUNLIN_FIT_OPTIONS_INIT;
    options.epochs = flags->has_steps && !flags->has_epochs ? INT32_MAX : flags->epochs;
    options.max_steps = 1;
    options.keep_order = flags->keep_order;
    options.drop_last = flags->drop_last;
    dunlin_status status = train_set_schedule(flags, trainer, &plan, cursor);
    train_pace_begin(flags, &plan, dunlin_trainer_n_steps(trainer), result->n_validation, n_test,
                     &seen->pace);
    double begin_ms = clock_ms();
    while (status == DUNLIN_OK && is_interrupted == 0 && result->n_steps < plan.run_steps &&
           !cursor->is_done) {
        if (cursor->epoch != seen->epoch) {
            end_epoch(seen);
            seen->epoch = cursor->epoch;
        }
        dunlin_metrics step = {0};
        const double lr = (double)dunlin_trainer_lr(trainer);
        double step_ms = clock_ms();
        status = dunlin_trainer_fit(trainer, source, &options, cursor, &step);
        if (status == DUNLIN_OK && step.n_examples == 0) {
            break; /* the checkpoint was of the run's end */
        }
        if (status == DUNLIN_OK) {
            step_ms = clock_ms() - step_ms;
            note_step(seen, &step, step_ms);
            const train_row row = {.epoch = seen->epoch + 1,
                                   .loss = step.loss,
                                   .lr = lr,
                                   .examples_per_s = 1e3 * (double)step.n_examples / step_ms};
            const bool is_epoch_end = cursor->epoch != seen->epoch || cursor->is_done ||
                                      seen->epoch_steps == plan.epoch_steps;
            status = train_note_curves(flags, trainer, to, &row, is_epoch_end, &seen->pace, result);
        }
    }
    result->fit_ms = clock_ms() - begin_ms;
    end_epoch(seen);
    result->step_ms_median = median(&seen->times);
    result->has_run = true;
    result->is_stopped = is_interrupted != 0;
    return status;
}

/* Everything that is written at the end but the JSON. */
static dunlin_status write_files(const train_flags *flags, dunlin_trainer *trainer, int64_t n_train,
                                 int64_t n_validation, const dunlin_fit_cursor *cursor)
{
    dunlin_status status = DUNLIN_OK;
    if (flags->checkpoint != NULL) {
        status = train_write_cursor(flags, trainer, n_train, n_validation, cursor);
    }
    if (status == DUNLIN_OK && flags->checkpoint != NULL) {
        status = dunlin_trainer_save_checkpoint(trainer, flags->checkpoint);
    }
    if (status == DUNLIN_OK && flags->save != NULL) {
        status = flags->is_qdq ? dunlin_trainer_export_qdq(trainer, flags->save)
                               : dunlin_trainer_export_onnx(trainer, flags->save);
    }
    return status;
}

/* What there is to do when the trainer has done its work. */
static dunlin_status finish(const train_flags *flags, dunlin_trainer *trainer,
                            const dunlin_fit_cursor *cursor, watch *seen)
{
    train_result *result = seen->result;
    progress_begin(&seen->pace.line, "writing", NULL);
    dunlin_status status = dunlin_trainer_get_report(trainer, &result->report);
    if (status == DUNLIN_OK) {
        status = write_files(flags, trainer, result->n_train, result->n_validation, cursor);
    }
    if (status == DUNLIN_OK) {
        status = weights_hash(trainer, &result->weights_hash);
        result->scales = train_scales_array(trainer);
    }
    progress_end(&seen->pace.line);
    return status;
}

/* The work on a trainer, from resuming to the last file. `validation` and `test` may have no
 * source.
 */
static int work(const train_flags *flags, dunlin_trainer *trainer, const train_feed *train,
                const train_feed *validation, const train_feed *test, watch *seen)
{
    train_result *result = seen->result;
    dunlin_fit_cursor cursor = {0};
    dunlin_status status = DUNLIN_OK;
    if (flags->resume != NULL) {
        status = dunlin_trainer_load_checkpoint(trainer, flags->resume);
        if (status == DUNLIN_OK) {
            if (train_read_cursor(flags, trainer, result->n_train, result->n_validation, &cursor) !=
                EXIT_OK) {
                return EXIT_FAILED;
            }
            seen->epoch = cursor.epoch;
        }
    }
    /* Twice: replacing a property takes the room of both for a moment. Better now than at the end.
     */
    for (int i = 0; i < 2 && status == DUNLIN_OK && flags->checkpoint != NULL; i++) {
        status = train_write_cursor(flags, trainer, result->n_train, result->n_validation, &cursor);
    }
    dunlin_source source, validation_source, test_source;
    train_targets targets, validation_targets, test_targets;
    const bool has_validation = validation->source.read_fn != NULL;
    const bool has_test = test->source.read_fn != NULL;
    train_source(flags, &train->source, result->n_outputs, &targets, &source);
    if (status == DUNLIN_OK) {
        train_source(flags, &test->source, result->n_outputs, &test_targets, &test_source);
        train_source(flags, &validation->source, result->n_outputs, &validation_targets,
                     &validation_source);
        train_curves to = {.test = flags->eval_every != NULL ? &test_source : NULL,
                           .validation = has_validation ? &validation_source : NULL};
        if (train_open_log(flags, dunlin_trainer_n_steps(trainer), &to.log) != EXIT_OK) {
            return EXIT_FAILED;
        }
        train_adaptation changes;
        status = train_begin_changes(flags, trainer, &changes);
        status = status == DUNLIN_OK
                     ? fit(flags, trainer, &source, has_test ? test_source.n_examples : 0, &cursor,
                           &to, seen)
                     : status;
        train_end_changes(&changes, result);
        result->is_log_lost = !train_close_log(&to.log);
    }
    if (status == DUNLIN_OK && has_validation && !result->is_stopped && !result->has_validation) {
        status = train_evaluate(trainer, &validation_source, &seen->pace, &result->validation,
                                &result->has_validation);
    }
    if (status == DUNLIN_OK && has_test && !result->is_stopped && !result->has_eval) {
        status = train_test(flags, trainer, &test_source, &seen->pace, result);
    }
    progress_end(&seen->pace.line);
    status = status == DUNLIN_OK ? finish(flags, trainer, &cursor, seen) : status;
    return status == DUNLIN_OK ? EXIT_OK : train_fail(dunlin_trainer_last_error(trainer));
}

static void print_result(const train_flags *flags, const train_result *result)
{
    double seconds = result->fit_ms / 1e3;
    printf("%" PRId64 " steps in %.1f s (%.0f examples/s, median step %.2f ms, predicted "
           "%.2f by %s costs): loss %.4f -> %.4f\n",
           result->n_steps, seconds, seconds > 0.0 ? (double)result->n_seen / seconds : 0.0,
           result->step_ms_median, result->report.predicted_ms,
           result->costs == NULL ? "roofline" : "measured", result->loss_first, result->loss_last);
    if (result->has_validation) {
        train_print_eval(flags, result, "validation", &result->validation);
    }
    if (result->has_eval) {
        train_print_eval(flags, result, "test", &result->eval);
    }
    if (result->pipeline.bytes != 0) {
        const dunlin_pipeline_report *pipeline = &result->pipeline;
        printf("pipeline: %" PRIu64 " bytes outside of the trainer; %" PRId64
               " reads found the example made, %" PRId64 " waited for it, %" PRId64
               " made it themselves; steps were held up for %.3f %% of their time\n",
               pipeline->bytes, pipeline->n_ready, pipeline->n_waited, pipeline->n_direct,
               100.0 * train_waited_share(result));
    }
    if (result->decode_peak_bytes != 0) {
        printf("decoding: at most %" PRIu64 " bytes at a time\n", result->decode_peak_bytes);
    }
    const dunlin_trainer_report *report = &result->report;
    if (report->n_swapped > 0) {
        printf("swapped: %" PRIu64 " bytes out in %.1f ms, %" PRIu64 " back in %.1f ms (%s)\n",
               report->swapped_out_bytes, report->swapped_out_ms, report->swapped_in_bytes,
               report->swapped_in_ms,
               strcmp(report->swap_way, "direct") == 0 ? "direct: no page cache"
                                                       : "flushed and dropped from the cache");
    }
    printf("memory: planned %" PRIu64 ", peak %" PRIu64 " bytes; the process grew by %" PRIu64 "\n",
           result->report.planned_bytes, result->report.peak_bytes, result->rss_growth_bytes);
}

static uint64_t growth(uint64_t before_bytes, uint64_t after_bytes)
{
    return after_bytes > before_bytes ? after_bytes - before_bytes : 0;
}

/* Creates the trainer between two readings of the process's high-water mark, and works. */
static int run_on(const train_flags *flags, const dunlin_model *model, const train_feed *train,
                  const train_feed *validation, const train_feed *test, watch *seen)
{
    train_result *result = seen->result;
    dunlin_trainer_options options = train_options(flags);
    options.costs = result->costs;
    options.progress_fn = train_pace_hear;
    options.progress_ctx = &seen->pace;
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)fflush(stdout);
    uint64_t before_bytes = process_reset_peak();
    uint64_t resident_bytes = process_peak_bytes();
    const process_memory before = process_resident();
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    progress_begin(&seen->pace.line, "planning", NULL);
    const dunlin_status status = dunlin_trainer_create(model, &options, &trainer, &error);
    progress_end(&seen->pace.line);
    if (status != DUNLIN_OK) {
        return train_fail(&error);
    }
    int exit_status = EXIT_OK;
    if (dunlin_trainer_get_report(trainer, &result->report) == DUNLIN_OK) {
        train_print_plan(flags, result);
    }
    if (flags->plan_dump != NULL) {
        exit_status = train_dump_plan(flags, trainer, result);
    }
    if (exit_status == EXIT_OK) {
        exit_status = work(flags, trainer, train, validation, test, seen);
    }
    uint64_t peak_bytes = process_peak_bytes();
    const process_memory after = process_resident();
    result->anon_growth_bytes = growth(before.anonymous_bytes, after.anonymous_bytes);
    result->file_growth_bytes = growth(before.file_bytes, after.file_bytes);
    result->cgroup_peak_bytes = process_group_peak_bytes();
    result->rss_growth_bytes = growth(resident_bytes, peak_bytes);
    result->rss_peak_bytes = peak_bytes > before_bytes ? peak_bytes : before_bytes;
    result->pipeline = train_feed_report(train);
    dunlin_trainer_destroy(trainer);
    return exit_status;
}

/* How many examples there are to train and to validate on: into `result` and onto the terminal. */
static int tell_data(const train_flags *flags, const dunlin_dataset *train,
                     const train_split *split, train_result *result)
{
    result->n_train = split->n_train;
    result->n_validation = split->n_validation;
    (void)snprintf(result->data_title, sizeof result->data_title, "%s",
                   dunlin_dataset_title(train));
    result->is_synthetic = dunlin_dataset_is_synthetic(train);
    printf("%s on %s: %" PRId64 " examples", flags->model, result->data_title, result->n_train);
    if (split->n_validation > 0) {
        printf(", and %" PRId64 " for validation", split->n_validation);
    }
    printf("\n");
    if (dunlin_dataset_note(train)[0] != '\0') {
        printf("%s: %s\n", result->data_title, dunlin_dataset_note(train));
    }
    train_tell_index(train, result);
    if (flags->drop_last && result->n_train < flags->batch) {
        return program_refuse(&train_program, DUNLIN_DATA,
                              "--drop-last leaves nothing: %" PRId64
                              " examples are no whole batch of %" PRId64,
                              result->n_train, flags->batch);
    }
    return EXIT_OK;
}

/* The larger one; either may be NULL. */
static uint64_t decode_peak(const dunlin_dataset *train, const dunlin_dataset *test)
{
    const uint64_t peak = train == NULL ? 0 : dunlin_dataset_decode_peak(train);
    const uint64_t other = test == NULL ? 0 : dunlin_dataset_decode_peak(test);
    return peak > other ? peak : other;
}

int train_run(const train_flags *flags, const dunlin_model *model, train_result *result)
{
    dunlin_dataset *train = NULL;
    dunlin_dataset *test = NULL;
    train_split split = {.indices = NULL};
    dunlin_source test_stored;
    train_feed train_from = {.pipeline = NULL};
    train_feed validation_from = {.pipeline = NULL};
    train_feed test_from = {.pipeline = NULL};
    watch *seen = calloc(1, sizeof *seen);
    if (seen == NULL) {
        return program_refuse(&train_program, DUNLIN_MEMORY, "no memory for what the run watches");
    }
    seen->result = result;
    seen->times.stride = 1;
    int exit_status = train_open_data(flags, model, DUNLIN_SPLIT_TRAIN, &train);
    if (exit_status == EXIT_OK && flags->is_eval) {
        exit_status = train_open_data(flags, model, DUNLIN_SPLIT_TEST, &test);
    }
    if (exit_status == EXIT_OK) {
        exit_status = train_split_open(flags, train, &split);
    }
    if (exit_status == EXIT_OK && flags->json != NULL) {
        exit_status = train_hash_data(train, result->data_sha256);
    }
    if (exit_status == EXIT_OK) {
        exit_status = tell_data(flags, train, &split, result);
    }
    if (exit_status == EXIT_OK) {
        exit_status = train_open_feed(flags, model, train, &split.train, true, &train_from);
    }
    if (exit_status == EXIT_OK && split.n_validation > 0) {
        exit_status =
            train_open_feed(flags, model, train, &split.validation, false, &validation_from);
    }
    if (exit_status == EXIT_OK && test != NULL) {
        dunlin_dataset_source(test, &test_stored);
        exit_status = train_open_feed(flags, model, test, &test_stored, false, &test_from);
    }
    if (exit_status == EXIT_OK) {
        exit_status = run_on(flags, model, &train_from, &validation_from, &test_from, seen);
    }
    result->decode_peak_bytes = decode_peak(train, test);
    if (exit_status == EXIT_OK) {
        print_result(flags, result);
        train_print_changes(result);
        if (result->is_stopped) {
            exit_status =
                program_refuse(&train_program, DUNLIN_STOPPED,
                               "stopped on request after %" PRId64 " steps", result->n_steps);
        }
    }
    train_close_feed(&test_from);
    train_close_feed(&validation_from);
    train_close_feed(&train_from);
    train_split_close(&split);
    dunlin_dataset_close(test);
    dunlin_dataset_close(train);
    free(seen);
    return exit_status;
}
