/*
 * central.c - one run of convergence: SGD with momentum under a plan, a row for each look at the
 * test split, or for tuning at the validation split.
 *
 * Invariant: which examples are trained on, in which order and with which changes follows from the
 * seed alone; evaluation is in no time, no energy and no count of bytes.
 */
#include "central.h"

#include <dunlin/pipeline.h>
#include <dunlin/trainer_advanced.h>

#include <common/energy.h>
#include <math.h>
#include <string.h>

#define RATE 0.02
#define MOST_RATE 0.08
#define WARMUP_PERCENT 5.0

double central_rule(int64_t batch)
{
    const double rate = RATE * (double)batch / STUDY_BATCH;
    return rate > MOST_RATE ? MOST_RATE : rate;
}

/* What a run stands on. */
typedef struct central {
    study *at;
    const central_run *run;
    dunlin_dataset *data, *judge;
    dunlin_pipeline *pipeline; /* NULL: nothing is changed */
    dunlin_source train, tested;
    dunlin_trainer *trainer;
    bool drops_last;
    int64_t epoch_steps;
    /* Of the steps so far. */
    int64_t n_seen;
    double train_ms, cpu_s, energy_j, operand_bytes;
} central;

static json_t *begin_row(const central *on)
{
    const central_run *run = on->run;
    const grid_variant *variant = run->variant;
    const study_flags *flags = study_flags_of(on->at);
    json_t *row =
        run->is_tuning ? grid_tuning_row(run->group, run->rate.lr, run->seed) : json_object();
    row_set_text(row, "model", study_model_name(run->model));
    row_set_text(row, "dataset", dunlin_dataset_title(on->data));
    row_set_int(row, "batch", variant->batch);
    row_set_int(row, "ghost", variant->ghost);
    row_set_int(row, "seed", (int64_t)run->seed);
    row_set_int(row, "is_synthetic", dunlin_dataset_is_synthetic(on->data) ? 1 : 0);
    if (run->is_tuning) {
        row_set_int(row, "validation_examples", on->tested.n_examples);
        return row;
    }
    if (run->precision != NULL) {
        row_set_text(row, "setting", "centralised");
        row_set_text(row, "precision", run->precision);
        row_set_text(row, "grad_bits", run->grad_bits);
    }
    const bool is_both = flags->has_rule_rate && flags->n_rates > 0;
    char label[160];
    (void)snprintf(label, sizeof label, "%s%s", variant->label,
                   is_both && strcmp(run->rate.rule, "rule") == 0 ? ", rate by the rule" : "");
    row_set_text(row, "variant", label);
    row_set_text(row, "policy", policy_name(variant->policy));
    row_set_int(row, "budget_bytes", (int64_t)variant->budget_bytes);
    row_set_text(row, "batch_rule", variant->rule.text);
    row_set_real(row, "price", variant->price);
    row_set_text(row, "rate_rule", run->rate.rule);
    row_set_int(row, "test_examples", on->tested.n_examples);
    row_set_int(row, "train_examples", on->train.n_examples);
    if (strcmp(run->rate.rule, "tuned") == 0) {
        row_set_int(row, "tuned_on_seed", (int64_t)flags->seed);
        row_set_int(row, "rate_is_edge", run->rate.is_edge ? 1 : 0);
    }
    return row;
}

/* Random changes of the training examples. */
static bool open_pipeline(central *on, const study_subject *subject)
{
    const study_flags *flags = study_flags_of(on->at);
    const augment_choice *changes = &flags->changes;
    const dunlin_shape shape = dunlin_dataset_shape(on->data);
    const dunlin_shape taken = dunlin_model_input_shape(subject->model);
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    dunlin_error error = {0};
    if (flags->augment == NULL) {
        return true;
    }
    const dunlin_source stored = on->train;
    options.seed = on->run->seed;
    options.crop_height = changes->has_crop && taken.n_dims == 3 ? (int32_t)taken.dims[1] : 0;
    options.is_random_crop = changes->has_crop;
    options.padding = (int32_t)changes->padding;
    options.is_flip = changes->is_flip;
    options.cutout = (int32_t)changes->cutout;
    options.shift = (int32_t)changes->shift;
    options.mixup = (float)changes->mixup;
    options.noise = (float)changes->noise;
    options.n_classes = (int32_t)dunlin_model_n_outputs(subject->model);
    options.epoch_steps = on->epoch_steps;
    if (dunlin_pipeline_create(&stored, &shape, &options, NULL, &on->pipeline, &error) !=
        DUNLIN_OK) {
        study_fail_with(on->at, "--augment", &error);
        return false;
    }
    dunlin_pipeline_source(on->pipeline, &on->train);
    return true;
}

static bool open_data(central *on, const study_subject *subject)
{
    const central_run *run = on->run;
    const dunlin_validation *held_out = run->has_held_out ? &run->held_out : NULL;
    const int64_t batch = run->variant->batch;
    on->data = study_open_split(on->at, subject, run->dataset, DUNLIN_SPLIT_TRAIN,
                                run->max_examples, held_out);
    if (on->data != NULL) {
        on->judge = study_open_split(on->at, subject, run->dataset,
                                     run->is_tuning ? DUNLIN_SPLIT_VALIDATION : DUNLIN_SPLIT_TEST,
                                     run->is_tuning ? run->max_examples : run->max_test,
                                     run->is_tuning ? held_out : NULL);
    }
    if (on->judge == NULL) {
        return false;
    }
    dunlin_dataset_source(on->data, &on->train);
    dunlin_dataset_source(on->judge, &on->tested);
    /* Statistics of a few examples throw batch norm off its way. */
    on->drops_last = study_has_batch_norm(subject) && on->train.n_examples >= batch;
    on->epoch_steps = batch == 0 ? 0
                                 : dunlin_epoch_steps(on->train.n_examples, batch,
                                                      on->drops_last ? DUNLIN_REMAINDER_DROP
                                                                     : DUNLIN_REMAINDER_KEEP);
    return open_pipeline(on, subject);
}

/* Counts what the steps of a call moved: whole batches, and at most one that is not. */
static dunlin_status count_bytes(central *on, int64_t n_examples)
{
    const int64_t batch = on->run->variant->batch;
    uint64_t whole = 0;
    uint64_t rest = 0;
    dunlin_status status = dunlin_trainer_operand_bytes(on->trainer, batch, &whole);
    if (status == DUNLIN_OK && n_examples % batch > 0) {
        status = dunlin_trainer_operand_bytes(on->trainer, n_examples % batch, &rest);
    }
    const int64_t n_whole = n_examples / batch;
    on->operand_bytes += (double)n_whole * (double)whole + (double)rest;
    return status;
}

static dunlin_status train_some(central *on, const dunlin_fit_options *fit,
                                dunlin_fit_cursor *cursor, dunlin_metrics *out_metrics)
{
    const char *folder = study_flags_of(on->at)->energy;
    const energy_mark before = energy_read(folder);
    const double begin_ms = clock_ms();
    const double begin_s = grid_cpu_s();
    const dunlin_status status =
        dunlin_trainer_fit(on->trainer, &on->train, fit, cursor, out_metrics);
    on->cpu_s += grid_cpu_s() - begin_s;
    on->train_ms += clock_ms() - begin_ms;
    const energy_mark after = energy_read(folder);
    on->energy_j += energy_between(&before, &after);
    on->n_seen += out_metrics->n_examples;
    return status == DUNLIN_OK ? count_bytes(on, out_metrics->n_examples) : status;
}

/* The names that a run on one machine shares with one of a fleet: an epoch is a round. */
static void set_shared_names(const central *on, json_t *row)
{
    if (on->run->precision != NULL) {
        (void)json_object_set(row, "round", json_object_get(row, "epoch"));
        (void)json_object_set(row, "accuracy", json_object_get(row, "test_accuracy"));
        (void)json_object_set(row, "loss", json_object_get(row, "test_loss"));
    }
}

/* Of bits in place of a rate there is no rate to tell. */
static void set_rate(const central *on, json_t *row)
{
    row_set_real(row, "lr", on->run->grad_bits == NULL ? on->run->rate.lr : (double)NAN);
}

static void add_row(central *on, const dunlin_metrics *trained, const dunlin_metrics *tested,
                    const dunlin_trainer_report *report, bool is_last)
{
    const bool is_tuning = on->run->is_tuning;
    const int64_t n_steps = dunlin_trainer_n_steps(on->trainer);
    json_t *row = begin_row(on);
    set_rate(on, row);
    row_set_real(row, "epoch",
                 on->drops_last ? (double)n_steps / (double)on->epoch_steps
                                : (double)on->n_seen / (double)on->train.n_examples);
    row_set_int(row, "examples", on->n_seen);
    row_set_int(row, "steps", n_steps);
    row_set_real(row, is_tuning ? "validation_accuracy" : "test_accuracy", tested->accuracy);
    row_set_real(row, is_tuning ? "validation_loss" : "test_loss", tested->loss);
    row_set_real(row, "train_loss", trained->loss);
    row_set_int(row, "n_slices", report->n_slices);
    row_set_int(row, "peak_bytes", (int64_t)report->peak_bytes);
    row_set_int(row, "operand_bytes", (int64_t)on->operand_bytes);
    row_set_real(row, "time_train_s", on->train_ms / 1e3);
    row_set_real(row, "time_cpu_s", on->cpu_s);
    row_set_real(row, "energy_j", on->energy_j);
    if (is_tuning) {
        row_set_int(row, "is_last", is_last ? 1 : 0);
    }
    set_shared_names(on, row);
    study_add_row(on->at, row);
}

/* A rate by which there are no numbers, or a batch that does not fit. */
static void add_empty_row(const central *on, const char *why)
{
    json_t *row = begin_row(on);
    set_rate(on, row);
    row_set_text(row, "end", why);
    if (on->run->is_tuning) {
        row_set_int(row, "is_last", 1);
    }
    study_add_row(on->at, row);
}

/* Each of the stages of "5,4,3" has an equal part of the steps, the last one what is left. */
static dunlin_status set_bits(central *on, int64_t n_steps)
{
    int64_t n_stages = 1;
    for (const char *at = on->run->grad_bits; *at != '\0'; at++) {
        n_stages += *at == ',' ? 1 : 0;
    }
    const int64_t n = (n_steps + n_stages - 1) / n_stages;
    return dunlin_trainer_set_grad_bits(on->trainer, on->run->grad_bits, n > 0 ? n : 1);
}

static dunlin_status set_schedule(central *on)
{
    const study_flags *flags = study_flags_of(on->at);
    const int64_t n_steps = on->run->epochs * on->epoch_steps;
    if (on->run->grad_bits != NULL) {
        return set_bits(on, n_steps);
    }
    const double percent = flags->has_warmup ? flags->warmup_percent : WARMUP_PERCENT;
    const dunlin_schedule schedule = {.struct_size = sizeof schedule,
                                      .kind = flags->schedule != NULL ? flags->schedule_kind
                                                                      : DUNLIN_SCHEDULE_COSINE,
                                      .warmup_steps = (int64_t)(percent / 100.0 * (double)n_steps),
                                      .total_steps = n_steps,
                                      .min_lr = 0.0};
    return dunlin_trainer_set_schedule(on->trainer, &schedule);
}

/* Stretches of training, each followed by a look. */
static dunlin_status train(central *on)
{
    const central_run *run = on->run;
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    dunlin_fit_cursor cursor = {0};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    fit.epochs = run->epochs;
    fit.drop_last = on->drops_last;
    fit.max_steps = (on->epoch_steps + run->looks - 1) / run->looks;
    dunlin_status status = set_schedule(on);
    while (status == DUNLIN_OK && !cursor.is_done && !study_has_failed(on->at)) {
        dunlin_metrics trained = {0};
        dunlin_metrics tested = {0};
        status = train_some(on, &fit, &cursor, &trained);
        if (status == DUNLIN_OK) {
            status = dunlin_trainer_evaluate(on->trainer, &on->tested, 0, on->tested.n_examples,
                                             &tested);
        }
        if (status == DUNLIN_OK) {
            status = dunlin_trainer_get_report(on->trainer, &report);
        }
        if (status == DUNLIN_OK) {
            add_row(on, &trained, &tested, &report, cursor.is_done);
        }
    }
    return status;
}

static void run_on(central *on, const study_subject *subject)
{
    const central_run *run = on->run;
    const study_flags *flags = study_flags_of(on->at);
    dunlin_error error = {0};
    dunlin_trainer_options options =
        grid_options(on->at, subject, run->variant, run->variant->batch);
    options.seed = run->seed;
    options.precision = run->precision;
    if (run->grad_bits == NULL) {
        options.lr = (float)run->rate.lr;
        options.weight_decay = (float)flags->weight_decay;
    } else { /* what sets a rate is refused */
        const dunlin_trainer_options plain = DUNLIN_TRAINER_OPTIONS_INIT;
        options.lr = plain.lr;
        options.momentum = plain.momentum;
    }
    if (flags->changes.mixup > 0.0) {
        options.loss = DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
    }
    if (dunlin_trainer_create(subject->model, &options, &on->trainer, &error) != DUNLIN_OK) {
        study_fail_with(on->at, subject->name, &error);
        return;
    }
    const dunlin_status status = train(on);
    if (status == DUNLIN_NUMERIC) {
        add_empty_row(on, "diverged"); /* no accuracy from here on */
    } else if (status != DUNLIN_OK) {
        study_fail_with(on->at, subject->name, dunlin_trainer_last_error(on->trainer));
    }
    dunlin_trainer_destroy(on->trainer);
}

void central_train(study *at, const study_subject *subject, const central_run *run)
{
    central on = {.at = at, .run = run};
    if (open_data(&on, subject)) {
        if (run->variant->batch == 0) {
            add_empty_row(&on, "does not fit");
        } else {
            run_on(&on, subject);
        }
    }
    dunlin_pipeline_destroy(on.pipeline);
    dunlin_dataset_close(on.judge);
    dunlin_dataset_close(on.data);
}
