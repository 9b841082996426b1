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
#include <stdatomic.h>

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

/*
 * The learner of a device: training takes simulated time, piece by piece; what it computes comes of
 * a job on another thread, with a trainer of the plan for the device's memory at that time.
 */
typedef struct sim_learner {
    sim_job job; /* first: see jobs.h */
    struct simulation *sim;
    const sim_device *device;
    int64_t index; /* among the clients */
    dunlin_source source;
    sim_task task;
    const dunlin_weights_tensor *tensors; /* the client's, while loaded */
    int32_t n_tensors;
    float *values; /* of all tensors: the base, then what was trained */
    int64_t n_values;
    int32_t row; /* of the costs */
    bool is_loaded;
    bool is_queued;
    bool has_result;     /* `result` and `values` are of the training */
    bool is_interrupted; /* the app has just been ended; the simulation clears it */
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

typedef struct sim_client {
    dunlin_client *client; /* NULL: left out */
    sim_learner learner;
    dunlin_dataset_view view;
    struct simulation *sim;
    int64_t due_us;
    int64_t sequence;
    dunlin_phase phase;   /* as it last said */
    bool is_active;       /* within a call sequence: a check-in or a round */
    bool has_work;        /* from the assignment to the end of the round */
    bool was_unfit;       /* conditions did not hold in this round */
    bool was_interrupted; /* the app was ended in this round */
    uint64_t round;       /* of the work */
    uint64_t bytes_down, bytes_up;
    int64_t n_assigned, n_accepted;
} sim_client;

typedef struct sim_class_sums {
    int64_t n_devices, n_assigned, n_accepted;
    int64_t n_partial; /* of the accepted: with part of the work */
    int64_t dropped[SIM_CAUSES];
    int64_t accepted_at[24]; /* by hour of the day */
    uint64_t bytes_down, bytes_up;
    int64_t n_examples, n_right; /* of the last model, on the devices' examples */
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
    atomic_llong heap_bytes; /* of runtime and clients, through the hooks */
    sim_client *clients;
    int64_t n_clients;
    int64_t *heap; /* indices of clients, by (due_us, index, sequence) */
    int64_t n_heap;
    int64_t now_us;            /* what the clock says to the client that runs */
    int64_t told_us;           /* the last moment that the server knows; -1: none */
    int64_t n_working;         /* clients with work */
    int64_t begun_us;          /* of the first check-in; -1: none yet */
    bool is_over;              /* a client was told so */
    psa_hash_operation_t hash; /* of all events */
    int64_t n_events;
    FILE *events; /* --events; NULL: none */
    char events_sha256[SIM_SHA256_TEXT];
    int64_t *dropped_by; /* SIM_CAUSES of each round, from round 0 on */
    uint64_t *peaks;     /* by round */
    int64_t n_rounds;
    int64_t of_row[SIM_ROWS]; /* trainings planned for it */
    int64_t ready_at[24];     /* devices that may train at the full hour of the first day */
    sim_class_sums sums[SIM_CLASSES];
    sim_left_out left_out;
    int64_t n_needs_planner; /* devices that could not without: none_bytes is more than they have */
    double worst_tenth;      /* accuracy; below 0: not known */
    double accuracy_mean;    /* over devices; below 0: not known */
    fleet_totals totals;
} simulation;

/* ---- clients.c ---- */

/* Opens pools, runtime and a client for each device that can take part; EXIT_OK or the line. */
int sim_clients_open(simulation *sim);
void sim_clients_close(simulation *sim);
/* What the device of a client stands on at the client's time. */
const sim_moment *sim_client_moment(const sim_client *client);

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

/* ---- steps.c ---- */

/* Runs events until the run is over, interrupted or late; EXIT_OK, or the line was printed. */
int sim_steps_run(simulation *sim, fleet_end *out_end);

/* ---- judge.c ---- */

/* The last model on each device's examples. False: it could not be read. */
bool sim_judge(simulation *sim);

/* ---- report.c ---- */

/* What simulated time adds to the result. */
void sim_report(simulation *sim, json_t *result, const json_t *status);

#endif
