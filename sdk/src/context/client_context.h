/*
 * client_context.h - the client and its round, as all their parts see them, and the questions that
 * these ask: may the round continue, how did it fail, where are its files.
 *
 * A client is small, and idle most of the time; all that a round needs beside the journal is in
 * dunlin__round, which is allocated when a round begins and freed when it ends.
 */
#ifndef DUNLIN_SDK_CLIENT_CONTEXT_H
#define DUNLIN_SDK_CLIENT_CONTEXT_H

#include "runtime.h"
#include "session/session.h"
#include "store/files.h"
#include "transport/url.h"

#include <wire/manifest.h>
#include <wire/messages.h>
#include <wire/signature.h>

#include <stdatomic.h>

#define DUNLIN_MAX_SIGNING_KEYS 2

/* A row of the base's table: where a tensor lies in the file of the base. */
typedef struct dunlin__base_tensor {
    uint64_t file_offset;
    uint64_t control_offset; /* of the server's variate there, in a round of SCAFFOLD */
    bool is_kept;            /* the device has a value of its own: a LOCAL tensor's, or a variate */
    uint64_t kept_offset;    /* of that in its file; see kept.h */
} dunlin__base_tensor;

/* What checkpoints of the current training have cost, all in ms since the weights were loaded. */
typedef struct dunlin__checkpoint_pace {
    int64_t learnt_ms; /* training, without checkpoints */
    int64_t learnt_at_last_ms;
    int64_t spent_ms; /* on checkpoints */
    int32_t n_made;
    int64_t expected_ms; /* of the next: what the last one took */
} dunlin__checkpoint_pace;

/* Its part in a secure aggregation; see round/secure.h. */
typedef struct dunlin__secure_part {
    struct dunlin__secagg_client *session; /* NULL: none */
    uint32_t step;                         /* of the message... */
    uint8_t *request;                      /* ...that is to be answered; NULL: none */
    size_t n_request;
    bool is_telling;         /* the update is committed, and more is to be told */
    dunlin__event committed; /* what the commit was answered with */
} dunlin__secure_part;

/* What one round holds. */
typedef struct dunlin__round {
    dunlin__assignment assignment;
    bool has_assignment;
    dunlin__run_over run_over; /* what the check-in brought in place of work, verified */
    bool is_fetching_last;     /* the model that it names comes down */
    uint8_t sealed[DUNLIN_V1_ACCEPT_RESPONSE_SIZE]; /* the answer that carried it, as it goes into
                                                       the journal */
    size_t sealed_bytes;
    char folder[DUNLIN_FILE_PATH_BYTES]; /* of this client's files */
    /* The base, once fetched: its table for the learner, names in `names`. */
    dunlin_weights_tensor *tensors;
    dunlin__base_tensor *places;
    int32_t n_tensors;
    char *names;
    size_t names_bytes;
    int base_fd; /* -1: closed */
    int kept_fd; /* -1: nothing is kept, or it is closed */
    dunlin_weights_reader base;
    dunlin_weights_reader correction; /* of SCAFFOLD */
    bool is_loaded;                   /* the learner holds this round */
    bool is_fitted;                   /* and has been trained to the end, or as far as it may */
    double done_share;                /* of its training; 0: not known, or all */
    dunlin__app_metric *metrics;      /* the app's own: room for DUNLIN_WIRE_METRICS; NULL: none */
    uint32_t n_metrics;
    dunlin__checkpoint_pace pace;
    uint8_t *manifest; /* of the update while it goes up */
    size_t manifest_bytes;
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];
    dunlin__put_response put;
    int64_t began_ms;
    unsigned n_changes_seen; /* of the example store, when the round last looked */
    bool has_timed_phase;
    dunlin_phase timed_phase; /* whose time on the network runs, since... */
    int64_t phase_began_ms;
    int64_t fetch_ms;
    int64_t send_ms;
    int32_t phase_tries[DUNLIN_N_PHASES]; /* pieces of work, and what they took */
    int64_t phase_ms[DUNLIN_N_PHASES];
    bool is_suspended; /* conditions do not hold just now, since... */
    int64_t suspended_at_ms;
    int64_t suspended_ms;             /* before that */
    bool has_energy, has_lost_energy; /* a call of the learner was counted; one was not */
    double energy_j;
    dunlin__secure_part secure;
    uint64_t commit_sent_bytes; /* kept out of the journal, whose numbers the commit carries: a
                                   retry with the same key must have the same body */
    uint64_t commit_received_bytes;
    dunlin_round_report
        report;           /* as of the last action; the journal is cleared when the round ends */
    dunlin_error failure; /* that the round is given up for; an abort may fail after it */
} dunlin__round;

/* Whose the client is. One whose destruction was asked for while a call runs is that call's to
 * free. */
typedef enum dunlin__client_use {
    DUNLIN_CLIENT_IDLE = 0,
    DUNLIN_CLIENT_IN_CALL,
    DUNLIN_CLIENT_LEAVING
} dunlin__client_use;

struct dunlin_client {
    dunlin_runtime *runtime;
    dunlin_client *next; /* in the runtime's list */
    dunlin_learner learner;
    dunlin__origin origin; /* of the server */
    char *population;
    char *name;
    char *enrolment_token;
    uint8_t signing_keys[DUNLIN_MAX_SIGNING_KEYS][DUNLIN_PUBLIC_KEY_BYTES];
    int32_t n_signing_keys;
    dunlin_client_options options; /* its pointers are replaced by NULL, but for callbacks, their
                                      contexts and the example store */
    dunlin__journal journal;
    dunlin__session session;
    dunlin__action action; /* to be performed next */
    bool has_action;
    int64_t paused_ms; /* when a pause began, by the boot clock */
    dunlin__round *round;
    atomic_bool is_stopped;
    atomic_bool is_paused;
    atomic_int call; /* a dunlin__client_use */
    bool is_forgotten;
    bool keeps_model;      /* of rounds, for the app */
    bool fetches_last;     /* and that which a run has left */
    bool holds_examples;   /* the example store stays open for it */
    bool is_ahead;         /* the journal in memory could not be written: the store's counts */
    uint64_t random_state; /* for jitter and windows; seeded from the system */
    dunlin_error error;
};

/* How an action failed, beside its status and detail. */
typedef struct dunlin__fault {
    bool is_permanent;
    bool is_closed;
    bool is_gone;           /* closed, since the server has not what was asked for */
    bool is_unknown_device; /* the server does not know our key */
    int64_t retry_after_ms; /* -1: none */
} dunlin__fault;

/* Sets is_permanent from a status of ours. */
dunlin__fault dunlin__fault_of(dunlin_status status);
/* Passes a status on, and sets the fault if it is a failure. */
dunlin_status dunlin__fault_judge(dunlin_status status, dunlin__fault *out_fault);

/* True when the application wants to stop, the deadline has passed or the device's conditions no
 * longer hold; handed to the transport. */
bool dunlin__client_should_stop(void *client);

/* Should work and waiting end: for good, or for now? */
bool dunlin__client_is_interrupted(const dunlin_client *client);

/* Is the round to pause where the journal says? No call is sent; an abort goes first. */
bool dunlin__client_is_to_pause(const dunlin_client *client);

/* Tells the application; false: it wants to stop. */
bool dunlin__client_tell(dunlin_client *client, dunlin_phase phase, int64_t done, int64_t total,
                         double loss);

/* A fresh random number of this client. */
uint64_t dunlin__client_random(dunlin_client *client);

/* What an assignment's deadline and the app's own limit leave for the round. */
uint64_t dunlin__round_deadline_ms(const dunlin_client *client);

/* Where a client's files of a round lie. */
dunlin_status dunlin__client_folder(dunlin_client *client, char out_path[DUNLIN_FILE_PATH_BYTES]);
/* Where lies what a client keeps from round to round. Any thread. */
dunlin_status dunlin__client_local_folder(const dunlin_client *client,
                                          char out_path[DUNLIN_FILE_PATH_BYTES],
                                          dunlin_error *error);
/* And the newest federated model, for the app. Any thread. */
dunlin_status dunlin__client_model_folder(const dunlin_client *client,
                                          char out_path[DUNLIN_FILE_PATH_BYTES],
                                          dunlin_error *error);

#endif
