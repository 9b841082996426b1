/*
 * train.h - the parts of dunlin-train: flags, what is trained on what, the run, the results.
 */
#ifndef SAMPLES_TRAIN_TRAIN_H
#define SAMPLES_TRAIN_TRAIN_H

#include "common/args.h"
#include "common/data.h"

#include <dunlin/pipeline.h>
#include <dunlin/trainer.h>

extern const program_info train_program;

/* The command line. */
typedef struct train_flags {
    const char *model, *data, *dataset;
    const char *policy, *optimizer, *loss, *schedule, *isa, *frozen, *lr_decay;
    const char *json, *save, *checkpoint, *resume, *plan_dump;
    int64_t image, classes, max_examples, n_writers;
    int64_t batch, micro_batch, epochs, steps, n_threads;
    int64_t resize, crop, padding;
    int64_t warmup_steps, period_steps;
    uint64_t budget_bytes, seed, prefetch_bytes;
    double lr, momentum, weight_decay, beta1, beta2, eps, gamma, min_lr;
    double label_smoothing, clip_value, clip_norm;
    bool is_nesterov, freeze_batch_norm, no_fuse, keep_order, drop_last;
    bool is_eval, is_max_batch, is_plan_only;
    bool has_steps, has_epochs, has_micro_batch, has_seed, has_momentum, has_betas, has_gamma;
    bool has_random_crop, is_flip;
    dunlin_policy policy_value;
    dunlin_optimizer optimizer_value;
    dunlin_loss loss_value;
    dunlin_schedule_kind schedule_value;
    data_choice choice;
} train_flags;

/* Parses and checks what can be checked without the model. */
args_result train_parse(int argc, char **argv, train_flags *out_flags);

/* The model of --model, in the sizes asked for; EXIT_OK, or the status to end with (told). */
int train_open_model(const train_flags *flags, dunlin_model **out_model);

/* One split in the shape the model takes. */
int train_open_data(const train_flags *flags, const dunlin_model *model, dunlin_split split,
                    dunlin_dataset **out_dataset);

/* The examples of a split as the model takes them: the data set's, or a pipeline's over them. */
typedef struct train_feed {
    dunlin_source source;
    dunlin_pipeline *pipeline; /* NULL: there is none */
} train_feed;

/* Whether a flag asks for a pipeline; the data set is then opened as it is stored. */
bool train_has_pipeline(const train_flags *flags);
int train_open_feed(const train_flags *flags, const dunlin_model *model,
                    const dunlin_dataset *dataset, dunlin_split split, train_feed *out_feed);
void train_close_feed(train_feed *feed);
/* All zero without a pipeline. */
dunlin_pipeline_report train_feed_report(const train_feed *feed);

/* A source whose labels become targets: 1 for the class, 0 for the other outputs. Must not move. */
typedef struct train_targets {
    dunlin_source labels;
    int32_t n_outputs;
} train_targets;

/* A feed's source as the loss of the flags takes it; `targets` lives as long as the result. */
void train_source(const train_flags *flags, const dunlin_source *labels, int64_t n_outputs,
                  train_targets *targets, dunlin_source *out_source);

/* The flags as options of the trainer. */
dunlin_trainer_options train_options(const train_flags *flags);

const char *train_policy_name(dunlin_policy policy);

/* Step times: all of them up to a limit, then every second one, and so on. */
#define TRAIN_TIMES 2048
typedef struct train_times {
    float ms[TRAIN_TIMES];
    int32_t n;
    int64_t stride;
    int64_t n_steps;
} train_times;

/* What there is to tell at the end. */
typedef struct train_result {
    dunlin_trainer_report report;
    const char *data_title;
    bool is_synthetic;
    int64_t n_train;
    int64_t n_params;
    int64_t n_outputs;
    int64_t image;
    bool has_run;
    int64_t n_steps; /* of this run */
    int64_t n_seen;
    double fit_ms, step_ms_median;
    double loss_first, loss_last;
    bool is_stopped;
    bool has_eval;
    dunlin_metrics eval;
    bool has_max_batch;
    int64_t max_batch; /* 0: unbounded */
    uint64_t rss_peak_bytes, rss_growth_bytes;
    uint64_t weights_hash;
    dunlin_pipeline_report pipeline; /* of the training split; zero: there is none */
} train_result;

/* Trains, evaluates and writes the files asked for. */
int train_run(const train_flags *flags, const dunlin_model *model, train_result *result);

/* The plan as .txt or .svg. */
int train_dump_plan(const train_flags *flags, const dunlin_trainer *trainer);

/* The JSON file of --json, if there is one, and the lines for people. */
int train_write_json(const train_flags *flags, const train_result *result);
void train_print_plan(const train_flags *flags, const dunlin_trainer_report *report);

/* One line from an error's detail; EXIT_FAILED to return. */
int train_fail(const dunlin_error *error);

#endif
