/*
 * fleet.h - a simulated fleet of clients against a server: what the parts of the program share.
 */
#ifndef SAMPLES_FLEET_FLEET_H
#define SAMPLES_FLEET_FLEET_H

#include <dunlin/batch.h>
#include <dunlin/builtin.h>
#include <dunlin/client.h>
#include <dunlin/dataset.h>

#include <common/args.h>
#include <common/augment.h>
#include <common/data.h>
#include <common/groups.h>
#include <common/output.h>
#include <common/progress.h>
#include <jansson.h>
#include <sys/types.h>

#define FLEET_PATH_BYTES 1024
#define FLEET_TEXT_BYTES 512

/* The first wait after a failure, and the longest. */
typedef struct wait_range {
    int64_t first_ms;
    int64_t most_ms;
} wait_range;

/* The command line. */
typedef struct fleet_flags {
    bool is_serving;
    const char *server_url;
    const char *ca_file;
    const char *key_file;
    int64_t n_clients;
    int64_t first_index;   /* of this fleet's devices among those of all fleets */
    int64_t n_all_clients; /* of all fleets together; 0: not given */
    const char *status_token_file;
    const char *tokens_file; /* NULL: the server takes devices without */
    int64_t n_rounds;
    const char *model;
    const char *dataset;
    const char *data;
    int64_t image; /* height and width that the network takes; 0: those of the data */
    const char *partition;
    const char *batch_text;
    const char *max_ratio_text; /* NULL: not given */
    uint64_t budget_bytes;
    int64_t epochs;
    double lr;
    double momentum;
    bool has_momentum;
    double lr_decay;
    int64_t cohort;
    bool has_cohort;
    const char *algorithm;
    const char *local; /* prefixes of tensors that stay on the devices; NULL: none */
    double over_select;
    double rollback; /* 0: models far below the best are not taken back */
    bool has_rollback;
    double deadline_s;
    double target_accuracy; /* reached: no other round; 0: none */
    int64_t patience;       /* rounds without a better model, then no other; 0: none */
    int64_t keep_every;     /* models of every N-th round stay at the server; 0: none */
    const char *windows;
    const char *retry_text;         /* NULL: not given */
    const char *retry_refused_text; /* the same */
    const char *report_file;
    const char *json_file;
    const char *state_folder;
    const char *faults_file;
    bool sends_telemetry;
    int64_t evaluate_every; /* 0: never */
    bool evaluates;         /* on the devices, before and after each training */
    uint64_t seed;
    int64_t n_threads;
    const char *population;
    int64_t max_examples; /* 0: all */
    bool is_quiet;        /* nothing on standard output; not a flag */
    const char *strategy; /* of the server, as the next; strategy.c. NULL: not given */
    double server_lr, server_momentum, beta1, beta2, tau, trim;
    bool has_server_lr, has_server_momentum, has_beta1, has_beta2, has_tau, has_trim;
    /* Held out of the training split, and what the server judges models on: NULL, nothing, test. */
    const char *validation, *judge;
    int64_t ghost;        /* slices of ghost statistics, 0: exact; not a flag */
    dunlin_policy policy; /* of the devices' plans; not a flag */
    /* What the plan orders beside the plain training; orders.c. Texts: NULL, not given. */
    const char *remainder, *optimizer, *schedule, *frozen, *trained, *decay_norms, *groups_given;
    double weight_decay, clip_norm, clip_value, gamma, min_lr; /* 0: none */
    int64_t warmup_steps, period_steps, padding, ignore_label;
    const char *precision, *grad_bits; /* precision.c; NULL: fp32; the paper's */
    const char *storage;               /* the same; NULL: exact */
    dunlin_storage storage_value;
    bool has_lr;
    bool has_gamma, has_random_crop, has_ignore_label, is_flip;
    const char *augment;  /* NULL: not given */
    const char *compress; /* of the updates, as the next; compress.c. NULL: not given */
    int64_t feedback;     /* rounds; 0: none */
    double update_clip, clip_quantile; /* 0: none */
    bool is_clip_layers, is_keeping_model;
    const char *dp; /* noise on the rounds; dp.c. NULL: none */
    uint64_t noise_seed;
    bool has_noise_seed;
    bool is_secagg;          /* secagg.c */
    int64_t n_neighbours;    /* 0: as the server chooses */
    const char *secagg_keys; /* NULL: none */
    double secagg_leave;     /* part of the devices */
    augment_choice changes;
    /* Unequal devices in simulated time; simulate/. NULL: not given. */
    const char *devices_file, *make_devices, *costs_file, *measure_file, *events_file;
    double sim_hours;
    const char *transport;   /* NULL: wire */
    bool is_in_memory;       /* derived */
    struct ranks *processes; /* of a run in memory; memory_join() */
    int64_t judge_every;     /* 0: each round */
    bool has_clients;
    double partial;                   /* 0: all of the work; unequal.c, as the next */
    const char *buffered, *selection; /* NULL: not given */
    /* Derived. */
    const char *strategy_name; /* without the number after it */
    data_choice choice;
    dunlin_partition_kind partition_kind;
    double alpha;
    double proximal_mu;
    wait_range retry;           /* after a server that cannot be reached, ms */
    wait_range retry_refused;   /* after a refusal, ms */
    dunlin_validation held_out; /* if `validation` is there */
    bool is_judged_by_held_out;
    int64_t batch;    /* 0: the largest that is not too slow */
    double max_ratio; /* of that; infinite: any */
    group_list groups;
} fleet_flags;

extern const program_info fleet_program;

/* orders.c: the flags of the plan's orders, and the keys they become in the task file's plan (a new
 * object, empty without any). The flags must not move after the first call. */
#define FLEET_GROUPS_MOST 8
int fleet_check_orders(fleet_flags *flags);
json_t *fleet_orders_json(const fleet_flags *flags);

/* strategy.c: the flags of the server's strategy, and the keys they become in the task file: none
 * without --strategy. */
int fleet_check_strategy(fleet_flags *flags);
void fleet_strategy_json(const fleet_flags *flags, json_t *task);

/* compress.c: what updates weigh, and how long they may be; the keys that become of it in the task
 * file and its plan. */
int fleet_check_compress(fleet_flags *flags);
void fleet_compress_json(const fleet_flags *flags, json_t *task, json_t *plan);

/* precision.c: the numbers that devices train in, and in which they store what a step keeps; the
 * keys that become of it in the task file and its plan, and those of a rate that go. */
int fleet_check_precision(fleet_flags *flags);
bool fleet_is_integer(const fleet_flags *flags);
void fleet_precision_json(const fleet_flags *flags, json_t *task, json_t *plan);

/* dp.c: noise on the rounds, and the task's key of it. */
int fleet_check_dp(fleet_flags *flags);
void fleet_dp_json(const fleet_flags *flags, json_t *task);

/* unequal.c: rounds for unequal devices; the keys that become of it in the task file and its plan.
 */
int fleet_check_unequal(fleet_flags *flags);
void fleet_unequal_json(const fleet_flags *flags, json_t *task, json_t *plan);
/* Whether the same flags give the same models: not where, by a real clock, who is fast decides. */
bool fleet_is_repeatable(const fleet_flags *flags);

/* secagg.c: rounds of which the server sees a sum alone, and the task's key of it; whether a device
 * leaves a round, once its shares are with the others; what a round's line says of it. */
int fleet_check_secagg(fleet_flags *flags);
void fleet_secagg_json(const fleet_flags *flags, json_t *task);
bool fleet_secagg_leaves(const fleet_flags *flags, uint64_t round, uint64_t device);
void fleet_secagg_print(const json_t *round);

args_result fleet_parse(int argc, char **argv, fleet_flags *out_flags);

/* How --batch max came to its answer. */
typedef struct fleet_batch {
    bool is_chosen;
    dunlin_batch_fit fit;
    double reference_ms; /* of an example in the fastest step of 32, memory unlimited */
    int64_t steps_batch; /* the largest that keeps ten steps an epoch */
    char steps_text[FLEET_TEXT_BYTES]; /* which devices take fewer, and why; else "" */
} fleet_batch;

/* What the clients stand on, from the data and the model. */
typedef struct fleet_world {
    dunlin_dataset *dataset;
    dunlin_partition *partition;
    dunlin_model *model;
    dunlin_trainer_pool *pool;
    int64_t n_params;
    int64_t batch;
    int64_t largest_step;         /* of any device: of one whose remainder joins, more than batch */
    fleet_batch choice;           /* of --batch max; else all zero */
    char error[FLEET_TEXT_BYTES]; /* why the world could not be opened */
} fleet_world;

/* batch.c: chooses world->batch as the flags say; of the options the batch does not matter. */
dunlin_status fleet_batch_choose(const fleet_flags *flags, fleet_world *world,
                                 const dunlin_trainer_options *options, dunlin_error *error);
/* The result of --batch max, in a line, and in another one which devices take few steps. */
void fleet_batch_print(const fleet_flags *flags, const fleet_world *world);
/* What there is to say of --batch max in the result (a new reference), NULL without it. */
json_t *fleet_batch_json(const fleet_flags *flags, const fleet_world *world);

/* What --validation says, as a server that judges by it takes it. */
#define FLEET_VALIDATION_BYTES 128
void fleet_validation_text(const fleet_flags *flags, char out[FLEET_VALIDATION_BYTES]);

/* EXIT_OK, or the line has been printed, and stands in out_world->error; the rest is then closed.
 */
int fleet_world_open(const fleet_flags *flags, fleet_world *out_world);
void fleet_world_close(fleet_world *world);

/* The server: a child process, or somebody else's. */
typedef struct fleet_server {
    pid_t pid;                     /* 0: not ours */
    char folder[FLEET_PATH_BYTES]; /* of everything the run leaves; removed at the end if made by us
                                    */
    bool is_own_folder;
    char url[FLEET_TEXT_BYTES];
    char ca_file[FLEET_PATH_BYTES];
    uint8_t signing_keys[2 * 65]; /* the one in use, and the next where it is known */
    int32_t n_signing_keys;
    char status_token[256]; /* "": none */
    bool is_refused;        /* the status is not for us */
    bool has_pipes;         /* its clock is ours: simulate/pipes.c */
    int pipes[4];           /* its input (read, write), its output (read, write); -1: closed */
    struct loop *loop;      /* it is a part of this process: memory/loop.h; NULL: it is not */
    /* Of a simulation that keeps moments (simulate/folder.c): the one that it goes on from, 0: it
     * begins; what its clock says first; the lock of the folder. */
    bool keeps;
    uint64_t moment;
    int64_t begin_ms;
    int lock_fd; /* if it keeps */
} fleet_server;

/* The folder of a run, as asked for or a new one that goes with it: `folder` and is_own_folder of
 * the server. And the task file of a run. EXIT_OK, or the line has been printed. */
int fleet_folder_make(const fleet_flags *flags, fleet_server *server);
int fleet_task_write(const fleet_flags *flags, const fleet_world *world, const char *path);

int fleet_server_open(const fleet_flags *flags, const fleet_world *world, fleet_server *out_server);
/* Ends the child and waits for it; its status is gone after this. */
void fleet_server_close(fleet_server *server);
/* True while a server of ours runs; false also prints the last of its log. */
bool fleet_server_is_alive(fleet_server *server);

/* /v1/status as JSON (a new reference), NULL when the server does not answer; when it refuses,
 * `is_refused` is set and the line has been printed. */
json_t *fleet_status_read(fleet_server *server);

/* How many devices this fleet has: as asked for, or fewer where the data have fewer. */
int64_t fleet_n_devices(const fleet_flags *flags, const fleet_world *world);

/*
 * The tokens of `n` places from `first` on, as dunlin-server reads them from the same file: one a
 * line, with its place after it or in the order of the lines; of two for a place the later one.
 * Entries that the file lacks stay NULL. EXIT_OK, or the line has been printed; free the tokens
 * either way.
 */
int fleet_tokens_read(const char *path, int64_t first, int64_t n, char **out_tokens);
void fleet_tokens_free(char **tokens, int64_t n);

/* The running fleet. */
typedef struct fleet_workers fleet_workers;

int fleet_workers_start(const fleet_flags *flags, const fleet_world *world,
                        const fleet_server *server, fleet_workers **out_workers);
/* Stops and joins; idempotent. */
void fleet_workers_stop(fleet_workers *workers);
void fleet_workers_destroy(fleet_workers *workers);

typedef struct fleet_totals {
    dunlin_runtime_stats transport;
    uint64_t n_rounds_run; /* by clients */
    uint64_t n_accepted;
    uint64_t n_failed;
    uint64_t idle_client_bytes; /* heap of one client, as the mean right after all were made */
    uint64_t moved_bytes;  /* through memory, by the training steps of this process's devices */
    int64_t n_descriptors; /* open in this process at its busiest, as sampled */
    double wall_s;
    char last_error[FLEET_TEXT_BYTES];
} fleet_totals;

/* What only the fleet knows. */
typedef struct fleet_figures {
    fleet_totals totals;
    const uint64_t *peaks; /* most bytes of a learner, of rounds 0 to n_peaks - 1 */
    int64_t n_peaks;
} fleet_figures;
void fleet_workers_totals(fleet_workers *workers, fleet_totals *out_totals);
uint64_t fleet_workers_round_peak(fleet_workers *workers, uint64_t round);
/* Those that are open in this process, -1 or less where the system does not tell. */
int64_t fleet_count_descriptors(void);
/* Both, for the result; valid while the workers are there. */
fleet_figures fleet_workers_figures(fleet_workers *workers);

/* The result as JSON (a new reference), and as a self-contained page. */
json_t *fleet_result(const fleet_flags *flags, const fleet_world *world, const json_t *status,
                     const fleet_figures *figures);
/* Writes the files that the flags ask for; the result (taken over) goes to `out_result`, too, if
 * there is one. EXIT_OK, or the line has been printed. */
int fleet_give_results(const fleet_flags *flags, json_t *result, const char *command,
                       json_t **out_result);
bool fleet_report_write(const char *path, const json_t *result, const char *command,
                        char out_error[OUTPUT_ERROR_BYTES]);

/* How a run ended. Neither over nor by a signal: the line has been printed. */
typedef struct fleet_end {
    bool is_over;   /* all rounds are, and evaluated */
    int signal;     /* that interrupted it; 0: none */
    json_t *status; /* the last there was (owned); NULL: the server never answered */
} fleet_end;

/* follow.c: shows progress, prints each round, until the run ends. */
fleet_end fleet_follow(const fleet_flags *flags, fleet_server *server, fleet_workers *workers);

/*
 * One run from the flags to the files they ask for; EXIT_OK, or the line has been printed. A run
 * that a signal ends leaves them with the rounds that closed: EXIT_SIGNAL and the signal's number.
 * `command` stands in the report; `out_result` (NULL: not wanted) takes a new reference.
 */
int fleet_run(const fleet_flags *flags, const char *command, json_t **out_result);
/* The signal that ended a run, 0: none. */
int fleet_interrupted(void);
/* Ends a run soon, as the signal `number` does; for signal handlers. */
void fleet_interrupt(int number);

#endif
