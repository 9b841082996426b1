/*
 * train.h - the parts of dunlin-train: flags, what is trained on what, the run, the results.
 */
#ifndef SAMPLES_TRAIN_TRAIN_H
#define SAMPLES_TRAIN_TRAIN_H

#include "common/args.h"
#include "common/augment.h"
#include "common/data.h"
#include "common/groups.h"

#include <dunlin/batch.h>
#include <dunlin/costs.h>
#include <dunlin/pipeline.h>
#include <dunlin/pixels.h>
#include <dunlin/several.h>
#include <dunlin/trainer_advanced.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

extern const program_info train_program;

#define TRAIN_MAX_FITS 16     /* budgets of one table */
#define TRAIN_MAX_MOMENTS 256 /* changes of the budget in one run */

/* One change of the budget: at a share of a step of this run, or so long after its start. */
typedef struct train_moment {
    int64_t step;
    double percent;
    double seconds;
    uint64_t budget_bytes;
} train_moment;

/* --top-k: the numbers, and room for as many ranks as the largest. */
#define TRAIN_MAX_TOPS 8
#define TRAIN_MAX_RANKS 1024
typedef struct train_tops {
    int32_t k[TRAIN_MAX_TOPS];
    int32_t n, most; /* 0: not given */
} train_tops;

/* --outputs: names and weights, as the options take them. */
typedef struct train_outputs {
    char pieces[1024];
    char names[1024]; /* with commas */
    char own[256];    /* of a ready-made network: those that are not trained */
    dunlin_output_loss losses[DUNLIN_MODEL_MAX_OUTPUTS];
    int32_t n; /* 0: not given */
} train_outputs;

/* The command line. */
typedef struct train_flags {
    const char *model, *data, *dataset;
    const char *policy, *optimizer, *loss, *schedule, *isa, *frozen, *lr_decay;
    const char *json, *save, *checkpoint, *resume, *plan_dump, *costs, *cache;
    const char *swap_dir, *swap_speed;
    const char *precision, *grad_bits; /* NULL: fp32; the precision's own */
    const char *growth;                /* --weight-growth; NULL: the precision's own */
    const char *storage;               /* NULL: exact */
    dunlin_storage storage_value;
    int64_t image, length, classes, max_examples, n_writers;
    int64_t batch, micro_batch, epochs, steps, n_threads;
    int64_t resize, crop, padding, ahead_threads;
    const char *augment;    /* NULL: not given */
    const char *border;     /* NULL: zero */
    augment_choice changes; /* what it asks for */
    int64_t warmup_steps, period_steps;
    int64_t ignore_label;
    bool has_ignore_label;
    const char *budget, *budget_at, *budget_trace;
    train_moment moments[TRAIN_MAX_MOMENTS];
    int32_t n_moments;
    uint64_t least_budget_bytes;      /* 0: the budget stays */
    uint64_t budgets[TRAIN_MAX_FITS]; /* ascending; more than one only with --what-fits */
    int32_t n_budgets;
    uint64_t budget_bytes; /* 0: none; of several the largest */
    uint64_t seed, prefetch_bytes;
    uint64_t data_budget_bytes; /* 0: none */
    double lr, momentum, weight_decay, beta1, beta2, eps, gamma, min_lr;
    double label_smoothing, clip_value, clip_norm;
    const char *max_ratio_text;                     /* NULL: not given */
    double max_ratio;                               /* infinite: any */
    double swap_write_mb_per_s, swap_read_mb_per_s; /* 0: the trainer's own */
    bool is_nesterov, freeze_batch_norm, is_ghost, no_fuse, keep_order, drop_last;
    bool is_qdq; /* of --save */
    bool is_eval, is_max_batch, is_what_fits, is_plan_only, is_list;
    const char *log, *eval_every, *validation; /* NULL: none */
    dunlin_validation held_out;                /* what --validation says */
    int64_t eval_steps;                        /* 0: at the end of each epoch */
    bool has_lr, has_steps, has_epochs, has_micro_batch, has_seed, has_momentum, has_betas,
        has_gamma;
    bool has_random_crop, is_flip;
    dunlin_policy policy_value;
    dunlin_optimizer optimizer_value;
    dunlin_loss loss_value;
    dunlin_schedule_kind schedule_value;
    data_choice choice;
    const char *outputs_given;
    const char *tops_given;
    train_tops tops;
    train_outputs outputs;
    const char *trained, *decay_norms, *groups_given;
    group_list groups;
} train_flags;

/* Parses and checks what can be checked without the model. Of a command line that is refused, the
 * flags hold what was read, and --json wherever it stands. */
args_result train_parse(int argc, char **argv, train_flags *out_flags);

/* The model of --model, in the sizes asked for; EXIT_OK, or the status to end with (reported). */
int train_open_model(const train_flags *flags, dunlin_model **out_model);

/* One split in the shape the model takes. */
int train_open_data(const train_flags *flags, const dunlin_model *model, dunlin_split split,
                    dunlin_dataset **out_dataset);

/* How often labels were taken for which class, in one evaluation. */
#define TRAIN_MAX_CONFUSED 64
typedef struct train_confusion {
    int32_t n_classes; /* 0: it was not counted */
    int64_t counts[TRAIN_MAX_CONFUSED * TRAIN_MAX_CONFUSED];
} train_confusion;

typedef struct train_result train_result;

/* Tells the index of a folder of pictures, if it is one, on the terminal and in the result. */
void train_tell_index(const dunlin_dataset *train, train_result *result);
/* The same of a data set that is opened for it alone. */
int train_plan_index(const train_flags *flags, const dunlin_model *model, train_result *result);

/* --- split.c: --validation --- */

int train_check_validation(train_flags *flags);

/* The training split, and what of it is not trained on. Must not move; is valid no longer than the
 * data set. */
typedef struct train_split {
    int64_t *indices; /* NULL: all is trained on */
    int64_t n_train, n_validation;
    dunlin_dataset_view train_view, validation_view;
    dunlin_source train, validation; /* as the data set delivers them */
} train_split;

int train_split_open(const train_flags *flags, const dunlin_dataset *dataset, train_split *out);
void train_split_close(train_split *split);

/* The examples of a split as the model takes them: the data set's, or a pipeline's over them. */
typedef struct train_feed {
    dunlin_source source;
    dunlin_pipeline *pipeline; /* NULL: there is none */
} train_feed;

/* Whether a flag asks for a pipeline; the data set is then opened as it is stored. */
bool train_has_pipeline(const train_flags *flags);
/* `stored`: some examples of the data set; `is_trained`: they are read ahead of the training. */
int train_open_feed(const train_flags *flags, const dunlin_model *model,
                    const dunlin_dataset *dataset, const dunlin_source *stored, bool is_trained,
                    train_feed *out_feed);
void train_close_feed(train_feed *feed);
/* How --prefetch is shared out: to examples that are held ready and what the threads work in, and,
 * of a folder, to decoding. 0 threads or examples: as the pipeline has it without being told. */
typedef struct train_ahead {
    uint64_t bytes, decode_bytes;
    int64_t n_examples;
    int32_t n_threads;
} train_ahead;

/* `stored`: what goes into the pipeline; `taken`: what the model takes. */
train_ahead train_plan_ahead(const train_flags *flags, const dunlin_shape *stored,
                             const dunlin_shape *taken);

/* All zero without a pipeline. */
dunlin_pipeline_report train_feed_report(const train_feed *feed);

/* --- augment.c: --augment --- */

/* Fills in what --random-crop and --flip fill in, and the rest. */
int train_check_augment(train_flags *flags);
/* That of the trainer: mixed examples have targets, so cross-entropy is over shares of classes. */
dunlin_loss train_loss(const train_flags *flags);
/* Of the pipeline of what is trained on. */
void train_fill_augment(const train_flags *flags, int64_t n_classes, int64_t epoch_steps,
                        dunlin_pipeline_options *options);

/* A source whose labels become targets: 1 for the class, 0 for the other outputs. Must not move. */
typedef struct train_targets {
    dunlin_source labels;
    int32_t n_outputs;
} train_targets;

/* A feed's source as the loss of the flags takes it; `targets` is valid as long as the result. */
void train_source(const train_flags *flags, const dunlin_source *labels, int64_t n_outputs,
                  train_targets *targets, dunlin_source *out_source);

/* precision.c: --precision, --grad-bits and --weight-growth. */
bool train_is_integer(const train_flags *flags);
/* As dunlin_trainer_options.weight_growth has it. */
int32_t train_growth(const train_flags *flags);
/* Refuses what has no meaning in integers. */
int train_check_precision(train_flags *flags);
/* The bits of a run of n_steps steps, a stage after the other. Nothing in float32. */
dunlin_status train_set_bits(const train_flags *flags, dunlin_trainer *trainer, int64_t n_steps);

/* outputs.c: --outputs. The flags must not move after it. */
int train_check_several(train_flags *flags);
void train_choose_outputs(const train_flags *flags, dunlin_trainer_options *options);
/* Of a model with several outputs: their names; what each scored in the last evaluation; and a line
 * for each. */
void train_name_scores(const dunlin_model *model, train_result *result);
void train_take_scores(const dunlin_trainer *trainer, train_result *result);
void train_print_scores(const train_flags *flags, const train_result *result);

/* tops.c: --top-k. The model's classes are known in the second call. */
int train_check_tops(train_flags *flags);
int train_fit_tops(const train_flags *flags, int64_t n_classes);
/* Share of the rows that count whose label is among the k highest outputs; of the last test. */
double train_top(const train_result *result, int32_t k);
/* "top-3 81.20 %, " of each. */
void train_print_tops(const train_flags *flags, const train_result *result);

/* groups.c: --trained, --decay-norms and --groups. The flags must not move after it. */
int train_check_groups(train_flags *flags);
void train_choose_parameters(const train_flags *flags, dunlin_trainer_options *options);

/* The flags as options of the trainer, without costs. */
dunlin_trainer_options train_options(const train_flags *flags);

/* The costs of --costs: read from the file, or measured and written there; none without it.
 * `*out_name` is what the JSON says of them. */
int train_open_costs(const train_flags *flags, const dunlin_model *model, dunlin_costs **out_costs,
                     const char **out_name);

/* Step times: all of them up to a limit, then every second one, and so on. */
#define TRAIN_TIMES 2048
typedef struct train_times {
    float ms[TRAIN_TIMES];
    int32_t n;
    int64_t stride;
    int64_t n_steps;
} train_times;

/* What fits into one budget. The ratios are of the time per example, over that in the fastest step
 * of 32; not a number where not even one example fits. */
typedef struct train_fit {
    dunlin_batch_fit found;
    double time_ratio;     /* of found.capped */
    double time_ratio_any; /* of found.any */
} train_fit;

#define TRAIN_REFUSAL_BYTES 256

/* What there is to tell at the end. */
struct train_result {
    dunlin_trainer_report report;
    const dunlin_costs *costs; /* NULL: the roofline */
    const char *costs_name;    /* "roofline", "measured", or the file */
    char data_title[128];      /* shortened to that */
    bool is_synthetic;
    int64_t n_train;
    int64_t n_validation;
    uint64_t data_index_bytes; /* of a folder; 0: there is none */
    char data_sha256[65];      /* of the training split as it is stored; "": not asked for */
    int64_t n_params;
    int64_t n_outputs;
    int64_t n_labels;     /* of an example */
    bool predicts_tokens; /* a label for each token: the loss is a token's */
    int64_t image;
    bool has_run;
    int64_t n_steps; /* of this run */
    int64_t n_seen;
    double fit_ms, step_ms_median;
    double loss_first, loss_last;
    bool is_stopped;
    bool has_eval;
    dunlin_metrics scores[DUNLIN_MODEL_MAX_OUTPUTS]; /* of the test split, by output */
    char score_names[DUNLIN_MODEL_MAX_OUTPUTS][128]; /* shortened to that */
    int32_t n_scores;                                /* 0: there is one output */
    bool is_log_lost; /* reported; all else was written, and the program fails at its end */
    dunlin_metrics eval;
    train_confusion confusion;      /* of the same evaluation */
    int64_t ranks[TRAIN_MAX_RANKS]; /* the same: rows by how many classes came before the label */
    bool has_ranks;
    bool has_validation;
    dunlin_metrics validation;
    bool has_max_batch;
    train_fit max_fit;
    char refusal[TRAIN_REFUSAL_BYTES]; /* why --max-batch or --what-fits has no answer; else "" */
    train_fit fits[TRAIN_MAX_FITS];
    int32_t n_fits;
    uint64_t rss_peak_bytes, rss_growth_bytes;
    uint64_t anon_growth_bytes, file_growth_bytes; /* from before the trainer to after the steps */
    uint64_t cgroup_peak_bytes;                    /* 0: it cannot be read */
    uint64_t weights_hash;
    struct json_t *scales; /* in integers: see scales.c; NULL: none */
    dunlin_budget_change changes[TRAIN_MAX_MOMENTS];
    int32_t n_changes;
    int32_t n_refused;               /* of a trace */
    dunlin_pipeline_report pipeline; /* of the training split; zero: there is none */
    uint64_t decode_peak_bytes;      /* of both splits, the larger */
};

/* Which share of the steps' time they waited for examples that threads were making, or made them
 * themselves; 0 without a pipeline. */
double train_waited_share(const train_result *result);

/* Trains, evaluates and writes the files asked for. */
int train_run(const train_flags *flags, const dunlin_model *model, train_result *result);

/* --list: prints every parameter, and writes them into the JSON file of --json; no data, no plan.
 */
int train_list(const train_flags *flags, const dunlin_model *model);

/* The plan as .txt or .svg. */
int train_dump_plan(const train_flags *flags, const dunlin_trainer *trainer,
                    const train_result *result);

/* SHA-256 of the examples as they are stored, in order, and their labels, in hexadecimal digits. */
int train_hash_data(const dunlin_dataset *dataset, char out_digits[65]);

/* The JSON file of --json, if there is one, of a run that ends with `exit_status`, refused or not;
 * the status to end with: that, or EXIT_FAILED where the file cannot be written (reported). */
int train_write_json(const train_flags *flags, const train_result *result, int exit_status);

/* The plan for people: bytes, what is kept, recomputed and sliced, time. */
void train_print_plan(const train_flags *flags, const train_result *result);

/* Nothing without --ghost; with it, whether the weights are others because of it. */
void train_print_ghost(const train_flags *flags, const dunlin_trainer_report *report);

/* "mobilenet_v2, batch 32, ..." in one line. */
#define TRAIN_TITLE_BYTES 256
void train_title(const train_flags *flags, const train_result *result,
                 char out_title[TRAIN_TITLE_BYTES]);

/* --max-batch and --what-fits: print, and fill the result. */
int train_max_batch(const train_flags *flags, const dunlin_model *model, train_result *result);
int train_what_fits(const train_flags *flags, const dunlin_model *model, train_result *result);

/* --- adapt.c: budgets that change --- */

/* Reads --budget-at and --budget-trace; sets least_budget_bytes. */
int train_check_moments(train_flags *flags);

/* The changes of one run in progress. Must not move. */
typedef struct train_adaptation {
    const train_flags *flags;
    dunlin_trainer *trainer;
    pthread_t thread; /* follows a trace */
    bool has_thread;
    atomic_bool is_over;
    struct timespec start;
    int32_t n_refused;
} train_adaptation;
dunlin_status train_begin_changes(const train_flags *flags, dunlin_trainer *trainer,
                                  train_adaptation *out_run);
void train_end_changes(train_adaptation *run, train_result *result);
const char *train_way_name(dunlin_budget_way way);
/* 1 - (time the change took + recompute time) / time to come as far under the new plan. */
double train_saved_share(const dunlin_budget_change *change);
void train_print_changes(const train_result *result);

/* --- log.c: the curves of a run --- */

/* Checks --log and --eval-every; the latter asks for --eval too. */
int train_check_log(train_flags *flags);

#define TRAIN_LOG_PATH_BYTES 1024

typedef struct train_log {
    char path[TRAIN_LOG_PATH_BYTES];
    bool has_validation;
    bool is_events; /* of TensorBoard, in a folder; else rows of a CSV file */
    int file;       /* -1: none, or it failed */
    off_t size;     /* of its whole rows */
    bool has_failed;
} train_log;

typedef struct train_row {
    int64_t step, epoch; /* from 1 */
    double loss, lr, examples_per_s;
    const dunlin_metrics *test, *validation; /* NULL: there was no evaluation after this step */
    bool has_accuracy;
    uint64_t peak_bytes;
} train_row;

/* Begins the CSV file anew, or after the row of step n_steps where the run is resumed; in a folder
 * (a name that ends in /) a new event file each time. */
int train_open_log(const train_flags *flags, int64_t n_steps, train_log *out_log);
/* A row that cannot be written is reported once; no others are then written. */
void train_log_row(train_log *log, const train_row *row);
/* Whether all rows were written. */
bool train_close_log(train_log *log);

/* One line from an error's detail; EXIT_FAILED to return. */
int train_fail(const dunlin_error *error);

#endif
