/*
 * simulation.h - a running simulation: what its parts share.
 *
 * Time is whole microseconds since the beginning; the clock of server and clients says SIM_BEGIN_MS
 * and so much more. One thread runs events in the order of (time, client, sequence); others train.
 */
#ifndef SAMPLES_SIMULATE_SIMULATION_H
#define SAMPLES_SIMULATE_SIMULATION_H

#include "costs.h"
#include "jobs.h"
#include "simulate.h"

#include <psa/crypto.h>

#define SIM_TEXT_BYTES 256

/* Why a device that had work in a round did not count. */
typedef enum sim_cause {
    SIM_CAUSE_LATE = 0,       /* its training and transfers took longer than the deadline */
    SIM_CAUSE_SURPLUS = 1,    /* the round had enough others before */
    SIM_CAUSE_CONDITIONS = 2, /* charger, Wi-Fi or idle hours ended, or it was offline */
    SIM_CAUSE_FAILURE = 3,    /* the app was ended */
    SIM_CAUSE_MEMORY = 4,     /* too little at that time of the day */
    SIM_CAUSE_REFUSED = 5,    /* by the server */
    SIM_CAUSE_ERROR = 6       /* anything else */
} sim_cause;
#define SIM_CAUSES 7
const char *sim_cause_name(sim_cause cause);

struct simulation;

/* A task of our own, with what it points to: the client's is gone after load. */
typedef struct sim_task {
    dunlin_task task;
    dunlin_task_parameters parameters;
    dunlin_task_schedule schedule;
    dunlin_task_group groups[DUNLIN_TASK_GROUPS];
    char *texts[2 + 2 * DUNLIN_TASK_GROUPS]; /* owned */
    int32_t n_texts;
} sim_task;

/* What a training has come to, for a client that is taken up again. */
typedef struct sim_progress {
    bool is_loaded; /* else there is none */
    bool is_queued; /* it has begun */
    uint64_t round;
    int32_t row;
    int64_t loaded_us, total_us, done_us, fails_us;
    int64_t max_steps;
    double done_share;
} sim_progress;

/*
 * The learner of a device: training takes simulated time, piece by piece; what it computes comes of
 * a job on another thread, with a trainer of the plan for the device's memory at that time.
 */
typedef struct sim_learner {
    sim_job job; /* first: see jobs.h */
    struct simulation *sim;
    struct sim_client *client; /* whose it is */
    const sim_device *device;
    int64_t index; /* among the clients */
    dunlin_source source;
    sim_task task;
    dunlin_weights_tensor *tensors; /* while loaded, as the next: a client may end before it */
    char *names;
    int32_t n_tensors;
    float *values; /* of all tensors: the base, then what was trained */
    int64_t n_values;
    int32_t row; /* of the costs */
    bool is_loaded;
    bool is_queued;
    bool has_result;     /* `result` and `values` are of the training */
    bool is_interrupted; /* the app has just been ended; the simulation clears it */
    bool is_paused;      /* its client is taken up again: what was loaded stays */
    sim_progress before; /* of a process that was ended */
    int64_t loaded_us;
    int64_t total_us, done_us;
    double done_share; /* of the work, 1: all */
    int64_t fails_us;  /* of done_us; -1: not in this round */
    dunlin_learner_report result;
    dunlin_status status; /* of the job */
    char text[SIM_TEXT_BYTES];
} sim_learner;

/* Fills the learner of a client and what the client is given. */
void sim_learner_begin(sim_learner *learner, dunlin_learner *out_learner);
/* Drops what it has loaded, if anything. */
void sim_learner_end(sim_learner *learner);
/* Whether it trains, or did before its client was taken up again. */
bool sim_learner_is_at_work(const sim_learner *learner);
void sim_learner_progress(const sim_learner *learner, sim_progress *out_progress);

/* What a device has from its check-in to the end of its round; an idle one has none. */
typedef struct sim_visit {
    sim_learner learner;
    dunlin_dataset_view view;
    dunlin_client *client;
    dunlin_learner_metric metric; /* that goes up with its contribution */
    double begun_j;               /* what the device had used before */
} sim_visit;

/* What a device has used. */
typedef struct sim_used {
    double compute_j, radio_j;
    uint64_t bytes_down, bytes_up;
    double debt;     /* points of its battery that are missing beside the trace... */
    int64_t debt_us; /* ...at this time; paid back on the charger */
} sim_used;

typedef struct sim_client {
    struct simulation *sim;
    const sim_device *device;
    sim_visit *visit; /* NULL: idle */
    int64_t index;
    int64_t due_us;
    int64_t sequence;
    uint64_t round; /* of the work */
    sim_used used;
    int32_t n_assigned, n_accepted;
    dunlin_phase phase;   /* as it last said */
    bool is_left_out;     /* never takes part */
    bool has_work;        /* from the assignment to the end of the round */
    bool was_unfit;       /* conditions did not hold in this round */
    bool was_interrupted; /* the app was ended in this round */
} sim_client;

typedef struct sim_class_sums {
    int64_t n_devices, n_assigned, n_accepted;
    int64_t n_partial; /* of the accepted: with part of the work */
    int64_t dropped[SIM_CAUSES];
    int64_t accepted_at[24]; /* by 24ths of the period */
    uint64_t bytes_down, bytes_up;
    int64_t n_examples, n_right; /* of the last model, on the devices' examples */
    double compute_j, radio_j;
    double most_j; /* of one device, as the next */
    uint64_t most_bytes;
} sim_class_sums;

/* Why devices of the file take no part. */
typedef struct sim_left_out {
    int64_t memory, storage, never_ready;
} sim_left_out;

typedef struct simulation {
    const fleet_flags *flags;
    const fleet_world *world;
    fleet_server *server;
    sim_devices devices;
    sim_costs costs;
    dunlin_trainer_pool *pools[SIM_ROWS]; /* by row; rows of one plan share theirs */
    bool is_own_pool[SIM_ROWS];
    sim_jobs *jobs;
    dunlin_runtime *runtime;
    sim_client *clients;
    int64_t n_clients;
    int64_t *heap; /* indices of clients, by (due_us, index, sequence) */
    int64_t n_heap;
    int64_t now_us;    /* what the clock says to the client that runs */
    int64_t told_us;   /* the last moment that the server knows; -1: none */
    int64_t n_working; /* clients with work */
    int64_t begun_us;  /* of the first check-in; -1: none yet */
    bool is_over;      /* a client was told so */
    uint8_t chain[32]; /* SHA-256 of the one before this event, and its line */
    int64_t n_events;
    int64_t events_bytes; /* of the file */
    FILE *events;         /* --events; NULL: none */
    char events_sha256[SIM_SHA256_TEXT];
    int64_t *dropped_by; /* SIM_CAUSES of each round, from round 0 on */
    uint64_t *peaks;     /* by round, as the next */
    double *joules;      /* of those that had work */
    int64_t n_rounds;
    int64_t of_row[SIM_ROWS]; /* trainings planned for it */
    int64_t ready_at[24];     /* devices that may train when a 24th of the first period begins */
    sim_class_sums sums[SIM_CLASSES];
    sim_left_out left_out;
    int64_t n_needs_planner; /* devices that could not without: none_bytes is more than they have */
    double worst_tenth;      /* accuracy; below 0: not known */
    double accuracy_mean;    /* over devices; below 0: not known */
    fleet_totals totals;
    uint64_t moment;                   /* the number of the last one; 0: none */
    uint64_t newest_round;             /* that a device had work of */
    int64_t last_moment_events;        /* that there were by then */
    char fingerprint[SIM_SHA256_TEXT]; /* of what events follow from */
    struct sim_live *live;             /* what the page is told by; NULL: there is none */
} simulation;

/* ---- clients.c ---- */

/* Opens pools and runtime, and says when each device that can take part comes; EXIT_OK or the line.
 */
int sim_clients_open(simulation *sim);
void sim_clients_close(simulation *sim);
/* The client of a device, taken up where the store has it; false: the line was printed. And its
 * end, which is no end of what the store has. */
bool sim_visit_begin(sim_client *client);
void sim_visit_end(sim_client *client);
/* Ends the client and leaves what it trains, and takes up another one from the journal. */
bool sim_visit_pause(sim_client *client);
bool sim_visit_renew(sim_client *client);
/* A visit as it was in another process. */
bool sim_visit_resume(sim_client *client, double begun_j, const sim_progress *before);
/* The examples of a device; false: it has none. */
bool sim_client_examples(const sim_client *client, dunlin_dataset_view *out_view,
                         dunlin_source *out_source);
/* What the device of a client stands on at the client's time. */
const sim_moment *sim_client_moment(const sim_client *client);

/* ---- energy.c: an estimate (samples/SIMULATE.md) ---- */

/* Counts a piece of computing that ends now, and what a step has moved. */
void sim_energy_compute(sim_client *client, int64_t us);
void sim_energy_move(sim_client *client, uint64_t sent, uint64_t received);
/* Percent of the battery, of the trace less what has been used and not been charged again. */
double sim_client_battery(const sim_client *client, int64_t us);
/* As sim_is_ready() and sim_ready_from_us(), with that battery. */
bool sim_client_is_ready(const sim_client *client, int64_t us);
int64_t sim_client_ready_from_us(const sim_client *client, int64_t us);

/* ---- events.c ---- */

/* The next event of a client; the earliest is taken out. */
void sim_events_push(simulation *sim, int64_t index);
int64_t sim_events_pop(simulation *sim);
/* What happened, into the hash and the file. */
void sim_events_note(simulation *sim, const sim_client *client, int64_t us, int32_t outcome,
                     uint64_t sent, uint64_t received);
bool sim_events_begin(simulation *sim);
bool sim_events_end(simulation *sim);

/* ---- pipes.c: the server's clock ---- */

/* Tells the server the time and waits until it has done what is due; false: it has ended. */
bool sim_server_tell(simulation *sim, int64_t us);
/* Lets it keep the moment of a number, and bring its database into one file. EXIT_OK, or the line
 * has been printed. */
int sim_server_keep(simulation *sim, uint64_t number);
int sim_server_settle(simulation *sim, uint64_t number);

/* ---- keep.c ---- */

/* After an event: takes all clients up again, and keeps the moment, if a device has the first work
 * of a round, `round`. EXIT_OK, or the line has been printed. */
int sim_keep_step(simulation *sim, uint64_t round);
/* Goes on from the last moment that was kept, if there is one. The same. */
int sim_keep_take(simulation *sim);

/* ---- steps.c ---- */

/* Runs events until the run is over, interrupted or late; EXIT_OK, or the line was printed. */
int sim_steps_run(simulation *sim, fleet_end *out_end);

/* ---- judge.c ---- */

/* The last model on each device's examples. False: it could not be read. */
bool sim_judge(simulation *sim);

/* ---- report.c ---- */

/* What simulated time adds to the result. */
void sim_report(simulation *sim, json_t *result, const json_t *status);
/* What is known of devices by now (a new reference; NULL: no memory): `simulated` of the result,
 * but for hashes and accuracies, and the rounds of the status from the index `first` on. */
json_t *sim_report_now(simulation *sim, const json_t *status, size_t first);

/* ---- live.c ---- */

/* Where the page is told, for a server over the wire; false: no memory. And its end. */
bool sim_live_open(simulation *sim);
void sim_live_close(simulation *sim);
/* Writes SIM_LIVE of the run's folder; `status` is the newest one of the server. */
void sim_live_tell(simulation *sim, const json_t *status);

#endif
