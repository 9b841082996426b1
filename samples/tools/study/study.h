/*
 * study.h - what the studies share: the command line, networks, tables whose rows are kept, runs.
 *
 * A study is a list of jobs. A job has inputs (JSON) and makes rows; finished jobs are appended to
 * a journal, so that an interrupted study goes on. Columns named "time_..." come from the clock,
 * and "wire_..." are bytes of messages, which carry times and signatures; all others follow from
 * the inputs alone.
 */
#ifndef SAMPLES_STUDY_STUDY_H
#define SAMPLES_STUDY_STUDY_H

#include "limit.h"

#include <dunlin/trainer_advanced.h>

#include <common/args.h>
#include <common/augment.h>
#include <common/data.h>
#include <common/output.h>
#include <common/policies.h>
#include <common/progress.h>
#include <common/swap.h>
#include <jansson.h>
#include <stdio.h>

extern const program_info study_program;

#define STUDY_MAX_LIST 32
#define STUDY_MAX_SUBJECTS 24
#define STUDY_MAX_FILES 8
#define STUDY_PIECE_BYTES 1024 /* of a list with commas, at most */
#define STUDY_BATCH 32         /* the batch whose ideal step is the measure of budgets */

/* A budget: bytes, or a share of what the ideal step of batch 32 takes, or what a step takes with
 * no memory shared. */
typedef struct study_budget {
    char text[24]; /* as given */
    double share;  /* 0: bytes */
    int64_t batch; /* of that step; 0: bytes or a share */
    uint64_t bytes;
} study_budget;

/* A way to come to a batch: a number, the largest that fits, or the largest that is within `ratio`
 * times the fastest time per example of the same budget. */
typedef struct study_rule {
    char text[24]; /* as given: "32", "most", "price:1.1" */
    int64_t batch; /* 0: by the planner */
    double ratio;  /* 0: at any price */
} study_rule;

/* What --dataset names, as it is stored. */
typedef struct study_data {
    char title[128];
    bool is_synthetic;
    bool has_shape; /* else its examples take the shape of any model */
    dunlin_shape shape;
    int32_t n_classes;
    int64_t n_examples;        /* for training */
    int64_t n_natural_clients; /* 0: none are known */
} study_data;

/* The command line. */
typedef struct study_flags {
    const char *study; /* a study's name, or "all" */
    const char *named; /* the named study whose part this is; NULL: none */
    const char *parts; /* of a named study; NULL: all of them */
    const char *models, *budgets, *policies, *batches, *costs, *out, *data, *json, *traces;
    const char *dataset;    /* NULL: each study's own */
    const char *torch;      /* a Python that has PyTorch, or "none"; NULL: one that is found */
    const char *precisions; /* of precision: NULL: all */
    /* Of convergence and federated. */
    const char *rates, *partitions, *schedule, *augment, *validation, *energy;
    double weight_decay, warmup_percent;
    bool has_warmup;
    int64_t epochs, rounds, n_clients, cohort, max_examples; /* 0: the study's own */
    int64_t n_jobs;                                          /* processes */
    const char *swap_dir, *swap_speed;
    bool is_quick, is_resume, no_times;
    bool has_out;
    uint64_t seed;
    int64_t n_threads, steps, n_seeds;
    int64_t image;   /* 0: each study's own, or the data set's */
    int64_t classes; /* outputs of each network; 0: as many as --dataset has, or the study's own */
    double target;
    double max_minutes, max_processor_minutes;      /* 0: no limit */
    double swap_write_mb_per_s, swap_read_mb_per_s; /* 0: the trainer's own */
    /* Derived. */
    const char *model_list[STUDY_MAX_LIST];
    int32_t n_models;                                   /* 0: the study's own */
    char file_list[STUDY_MAX_FILES][STUDY_PIECE_BYTES]; /* those of them that are files */
    int32_t n_files;
    study_budget budget_list[STUDY_MAX_LIST];
    int32_t n_budgets;
    dunlin_policy policy_list[STUDY_MAX_LIST];
    int32_t n_policies;
    int64_t ghost_list[STUDY_MAX_LIST]; /* of --policies ghost:N */
    int32_t n_ghosts;
    int64_t batch_list[STUDY_MAX_LIST]; /* the numbers of --batches */
    int32_t n_batches;
    study_rule rule_list[STUDY_MAX_LIST]; /* all of it */
    int32_t n_rules;
    double rate_list[STUDY_MAX_LIST]; /* ascending */
    int32_t n_rates;
    bool has_rule_rate; /* --lr names the study's rule, too */
    char partition_list[STUDY_MAX_LIST][32];
    int32_t n_partitions;
    augment_choice changes;
    dunlin_schedule_kind schedule_kind; /* if `schedule` is there */
    uint64_t models_bytes;              /* a checksum of the ONNX files of --models; 0: none */
    const char *folder;                 /* of the data sets; NULL: there is none */
    data_choice choice;                 /* of --dataset */
    study_data own;                     /* the same, looked into */
    const char *command;                /* as typed */
    const char *program;                /* how the program was called */
    uint64_t costs_bytes;               /* a checksum of the file of --costs; 0: none */
} study_flags;

/* flags_grid.c: checks of the lists above. */
int study_check_models(study_flags *flags);
int study_check_policies(study_flags *flags);
int study_check_batches(study_flags *flags);
int study_check_grid(study_flags *flags);
/* All of them, and the budgets: anew from the texts of the flags. */
int study_check_lists(study_flags *flags);
/* Continues an FNV-1a checksum over a file's bytes; false: it cannot be read. */
#define STUDY_CHECKSUM_BEGIN 0xcbf29ce484222325ULL
bool study_checksum_file(const char *path, uint64_t *io_sum);
/* Whether any flag asks for runs of one's own, beside the study's small list. */
bool study_is_grid(const study_flags *flags);

/* The next piece of a list with commas; false at the end. What is too long is cut off. */
bool study_next_piece(const char **at, char out_piece[STUDY_PIECE_BYTES]);
/* "256MiB", "60%" or "none:8". */
bool study_parse_budget(const char *text, study_budget *out_budget);

/* data.c: --dataset and --image; fills `choice` and `own`, and refuses as dunlin-train does. */
int study_check_data(study_flags *flags);
/* Whether one of a study's own networks takes what the data set holds. */
bool study_data_fits(const study_flags *flags, const char *model);
/* The network taken where a study's own ones do not fit. */
const char *study_data_model(const study_flags *flags);
/* Side of the images that the data set itself has; 0: none, or they are not square. */
int32_t study_data_image(const study_flags *flags);

/* `argv[1]` is the study. */
args_result study_parse(int argc, char **argv, study_flags *out_flags);

/* The path of a file in DIR, of a part of a named study with that one's name before it; false if it
 * is too long. */
bool study_path(const study_flags *flags, const char *name, const char *suffix,
                char out[OUTPUT_PATH_BYTES]);

typedef struct study study;

/* One study. Its run_fn is called twice: to count the jobs, then to do them. */
typedef struct study_kind {
    const char *name;           /* on the command line, and of the files */
    const char *title;          /* in the report */
    const char *question;       /* one sentence */
    const char *method;         /* what is held fixed and how it is measured */
    const char *const *columns; /* ends with NULL */
    int (*run_fn)(study *at);
    bool is_parallel; /* its jobs may run in several processes: --jobs */
    /* Makes tables beside the rows, when all of them are there; NULL: there are none. */
    void (*finish_fn)(study *at);
} study_kind;

extern const study_kind study_max_batch, study_throughput, study_curve, study_ablation,
    study_adaptation, study_convergence, study_federated, study_heterogeneity, study_precision;

/* --- run.c, rows.c: jobs, their rows, the journal --- */

/*
 * Opens the tables of one study in DIR: rows of finished jobs are read back with --resume, and
 * dropped without.
 */
int study_open(const study_flags *flags, const study_kind *kind, study **out_study);
void study_close(study *at);

/* Runs it: counts, then works. With a limit the first seed of everything comes before the others,
 * parts that may not begin are left out, and the rows stand in the same order all the same. */
int study_run(study *at, study_limit *limit);
/* Parts that the limit left out; study_left_out() has a note for each, and belongs to the study. */
int64_t study_n_left_out(const study *at);
const json_t *study_left_out(const study *at);
int64_t study_n_parts(const study *at);
/* What study_tell_filter() was told; "": nothing. */
const char *study_filter(const study *at);

/*
 * Begins a job: true if it has to be done, and then its rows follow and study_end_job(). False if
 * it is counted only, if its rows are kept, or if the study has failed. `inputs` is taken over;
 * `units` is about how long it takes, `note` what it is.
 */
bool study_begin_job(study *at, json_t *inputs, int64_t units, const char *note);
/* Takes the row over. */
void study_add_row(study *at, json_t *row);
/* Keeps the rows: all of them are in the journal afterwards, or none. */
void study_end_job(study *at);
/* Ends the study with a line on stderr; the rows of the job are dropped. */
void study_fail(study *at, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with what a library call left. */
void study_fail_with(study *at, const char *what, const dunlin_error *error);
bool study_has_failed(const study *at);

/* Counts alone: nothing is known of any row. */
bool study_is_counting(const study *at);
/* Why jobs are left out, for a study that has none left: the filter with its value. The first that
 * is told stands. */
void study_tell_filter(study *at, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Rows with "table": a table beside that of the study, DIR/STUDY_TABLE.csv, and of that name in its
 * JSON. `columns` ends with NULL. `rows` is taken over. */
void study_add_table(study *at, const char *name, const char *const *columns, json_t *rows);

const study_flags *study_flags_of(const study *at);
const json_t *study_rows(const study *at);
const study_kind *study_kind_of(const study *at);

/* Asked to stop, by a signal. */
void study_interrupt(void);
bool study_is_interrupted(void);

/* Cells: real numbers are rounded to six digits, so that CSV and journal agree; what is not finite
 * is empty. */
void row_set_text(json_t *row, const char *column, const char *text);
void row_set_int(json_t *row, const char *column, int64_t number);
void row_set_real(json_t *row, const char *column, double number);

/* --- subject.c: networks --- */

/* A network of a study, opened once. */
typedef struct study_subject {
    const char *name; /* of the zoo, or the path of an ONNX file */
    int32_t image;    /* as asked for; 0: of no images, or the network's own */
    int32_t side;     /* of the images that it takes; 0: it takes none, or they are not square */
    int32_t channels; /* 0: the network's own */
    int32_t classes;  /* the same */
    dunlin_model *model;
    int32_t n_threads;    /* of each trainer: a step's workspace depends on it */
    uint64_t ideal_bytes; /* of batch 32 with nothing recomputed, at its best packing */
    uint64_t least_bytes; /* of batch 32 under AUTO */
    double ideal_ms;      /* predicted by the roofline, of the ideal step of batch 32 */
    dunlin_costs *costs;  /* NULL: the roofline */
} study_subject;

/* The models of the flags, or the study's own (with commas): how many. */
int32_t study_models(const study *at, const char *own, const char *out[STUDY_MAX_LIST]);

/* As the tables call it: a file without its folders. */
const char *study_model_name(const char *model);
bool study_is_file(const char *model);
/* Opens an ONNX file in the sizes of a zoo's options; with other classes its last layer is a fresh
 * one. */
dunlin_status study_open_file(const study_flags *flags, const char *path,
                              const dunlin_zoo_options *sizes, dunlin_model **out_model,
                              dunlin_error *error);
/* Side of the images of a subject, as the tables have it: 0 where none was asked for. */
int32_t study_image_side(const study_subject *subject);
/* Some layer takes statistics of its batch. */
bool study_has_batch_norm(const study_subject *subject);
/* The data set that a network is trained on where none is named; NULL: none of the folder's fits
 * it, as study_tell_no_data() says. */
const char *study_default_dataset(const study_flags *flags, const char *model);
void study_tell_no_data(study *at, const char *model);
/* What is held out of a data set's training split, by --validation, else a tenth; whole writers or
 * users where they are known. */
dunlin_validation study_validation(const study_flags *flags, const char *dataset);
/* The same as text, for dunlin-fleet: "10%:writers:seed=1". */
#define STUDY_VALIDATION_BYTES 64
void study_validation_text(const dunlin_validation *held_out, char out[STUDY_VALIDATION_BYTES]);

/* How heavy a step of one example is, beside LeNet's: for the time left. */
int64_t study_weight(const char *model);

/* Opens a model for images of `image` (0: its own) with `classes` (0: its own) outputs; what is 0
 * follows the data set of --dataset, if there is one. Kept until the study ends. NULL: the study
 * has failed. */
const study_subject *study_open_subject(study *at, const char *model, int32_t image,
                                        int32_t channels, int32_t classes);
void study_close_subjects(study *at);

/* The image size of a model in this study: that of --image, or of the data set of --dataset, or
 * `full`, with --quick `quick`. 0 for what takes no images. */
int32_t study_image(const study *at, const char *model, int32_t quick, int32_t full);

/* The bytes of a budget for a subject; 0: a step with no memory shared cannot be planned. */
uint64_t study_bytes(const study_budget *budget, const study_subject *subject);

/* The budgets, policies and batches of the flags, or the study's own. */
int32_t study_budgets(const study *at, const char *own, study_budget out[STUDY_MAX_LIST]);
int32_t study_policies(const study *at, const char *own, dunlin_policy out[STUDY_MAX_LIST]);
int32_t study_batches(const study *at, const char *own, int64_t out[STUDY_MAX_LIST]);

/* Options every run has; with the subject's costs. */
dunlin_trainer_options study_options(const study *at, const study_subject *subject,
                                     dunlin_policy policy, uint64_t budget_bytes, int64_t batch);

/* A split in the shape of a model, of --dataset or else of `dataset` (NULL: synthetic), without
 * what is held out, or that (NULL: nothing is); the study has failed if it is NULL. */
dunlin_dataset *study_open_split(study *at, const study_subject *subject, const char *dataset,
                                 dunlin_split split, int64_t max_examples,
                                 const dunlin_validation *held_out);
dunlin_dataset *study_open_data(study *at, const study_subject *subject, const char *dataset,
                                dunlin_split split, int64_t max_examples);

/* --- steps.c: a few steps under a plan --- */

typedef struct study_steps {
    bool is_fitting; /* else only needed_bytes is known */
    uint64_t needed_bytes;
    dunlin_trainer_report report;
    double step_ms; /* median on the wall's clock; not a number: no step was taken */
    double processor_ms, processor_low_ms, processor_high_ms; /* of a step: median, least, most */
    int64_t n_timed;
    double energy_j;        /* of a step, by the machine's counters; not a number: there are none */
    uint64_t operand_bytes; /* of a step, read and written by its operations */
    double loss;            /* of the last step */
    uint64_t hash;          /* of the weights */
} study_steps;

/* Plans, and takes `n_steps` steps on `data` after one that is not timed; 0: only plans. False: the
 * study has failed. */
bool study_take_steps(study *at, const study_subject *subject,
                      const dunlin_trainer_options *options, const dunlin_dataset *data,
                      int64_t n_steps, study_steps *out_steps);
/* The columns of the clock that steps have: "time_step_ms" and the four of STUDY_TIMES. */
void study_set_times(json_t *row, const study_steps *steps);
#define STUDY_TIMES "time_cpu_ms", "time_cpu_low_ms", "time_cpu_high_ms", "time_steps"

/* --- report.c --- */

/* One cell of a CSV file. */
void study_write_cell(FILE *file, const json_t *cell);
/* Whether --no-times leaves a column out. */
bool study_is_left_out(const study_flags *flags, const char *column);

/* tables.c: the tables beside the rows, DIR/NAME_TABLE.csv each, and in the JSON object. */
int study_write_tables(const study *at);
void study_put_tables(const study *at, json_t *object);
/* DIR/NAMESUFFIX with the columns of rows, which end with NULL. EXIT_OK, or the line is printed. */
int study_write_rows(const study_flags *flags, const char *name, const char *suffix,
                     const char *const *columns, const json_t *rows);

/* DIR/NAME.csv, whole; with --dataset the rows end with the data set's title. */
int study_write_csv(const study *at);
/* DIR/report.html over all tables in DIR, the same as JSON in DIR/report.json and in the file of
 * --json. */
int study_write_report(const study_flags *flags, const study_kind *const *kinds, size_t n_kinds);

#endif
