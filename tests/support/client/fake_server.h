/*
 * fake_server.h - a server of the protocol inside the test, put in the place of the transport: no
 * sockets, a clock of its own, and every answer may be corrupted.
 *
 * It checks what a client sends as strictly as a server must: signatures, counters, tokens,
 * idempotency keys with their bodies. `complaint` names the first thing that was wrong.
 */
#ifndef DUNLIN_TESTS_FAKE_SERVER_H
#define DUNLIN_TESTS_FAKE_SERVER_H

#include "context/client_context.h"

#define FAKE_TENSORS 3
#define FAKE_VALUES 70015
#define FAKE_KEYS 64

/* What is spoilt of a call's answer. */
typedef enum fake_spoil {
    FAKE_FINE = 0,
    FAKE_LOST_REQUEST, /* CLOSED, and the server has seen nothing */
    FAKE_LOST_REPLY,   /* CLOSED, after the server has done it */
    FAKE_RUBBISH,      /* 200 with bytes that are no message */
    FAKE_CUT,          /* 200 with half of the answer's bytes */
    FAKE_BUSY,         /* 503, retry at once */
    FAKE_BROKEN,       /* 500 with a page of text */
    FAKE_EXPIRED,      /* 410 */
    FAKE_MISSING       /* 404 */
} fake_spoil;

typedef struct fake_key {
    char key[DUNLIN_WIRE_IDEMPOTENCY_BYTES];
    uint8_t body_sha256[DUNLIN_SHA256_BYTES];
    uint8_t reply[2600];
    size_t reply_bytes;
} fake_key;

typedef struct fake_server {
    dunlin_transport base;
    /* What a test may set, before or between rounds. */
    int64_t now_ms; /* wall and boot clock of the runtime; sleeping moves it */
    bool has_offer;
    bool is_evaluation;
    bool ignores_ranges;
    bool forgets_device; /* answers UNAUTHENTICATED until the next enrolment */
    uint64_t run_epoch;
    uint64_t round;
    uint64_t deadline_ms;
    dunlin__window accepted;
    dunlin__window rejected;
    dunlin__policy policy;
    dunlin__training_plan plan;
    bool has_privacy; /* what is said of noise, in the offer... */
    dunlin_v1_privacy_t privacy;
    bool is_secure; /* the offer and the assignment are of a secure aggregation, by the plan's terms
                     */
    dunlin_v1_decline_reason_t decline_reason; /* of the last offer that was declined */
    dunlin_v1_capabilities_t capabilities;     /* of the last check-in */
    uint64_t upload_bytes;                     /* of the offer; 0: of the whole update in float32 */
    uint32_t required_feature;                 /* of the offer and the assignment; 0: none */
    uint32_t assignment_feature;               /* of the assignment alone */
    dunlin_v1_commit_outcome_t outcome;
    dunlin__call spoil_call;
    fake_spoil spoil;
    int spoil_times;    /* -1: always */
    int spoil_exchange; /* the n-th exchange from now on, whatever the call; -1: none */
    void (*edit_assignment_fn)(dunlin__assignment *assignment);
    void (*edit_sealed_fn)(dunlin_v1_signed_assignment_t *sealed);
    bool is_over; /* without an offer: the run is over, and has left the base */
    void (*edit_over_fn)(dunlin__run_over *statement);
    void (*edit_sealed_over_fn)(dunlin_v1_signed_run_over_t *sealed);
    int64_t exchange_ms; /* what each exchange takes */
    /* A bit of this byte is wrong in the hashes of the base's chunks (takes remaking the base), in
     * the base's hash in the assignment, in the hash of the answer to a put; -1: none. The server
     * then gives objects out by names that are wrong in a byte. */
    int wrong_chunk_byte;
    int wrong_base_byte;
    int wrong_put_byte;
    bool has_no_statistic;   /* "mean" is averaged; takes remaking the base */
    char tensor_names_begin; /* 0: as they are; takes remaking the base */

    uint8_t signing_key[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t signing_public[DUNLIN_PUBLIC_KEY_BYTES];
    float values[FAKE_VALUES]; /* of the base */
    uint8_t manifest[4096];
    size_t manifest_bytes;
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];

    /* Objects beside the base: given out by the hash of their bytes. */
    struct {
        const uint8_t *bytes; /* NULL: none */
        size_t n_bytes;
    } objects[4];

    /* What a test may look at. */
    int n_exchanges;
    int n_calls[DUNLIN_N_CALLS];
    int n_enrolled;
    int n_contributions;
    int n_aborts;
    dunlin__abort_request last_abort;
    dunlin__commit_request commit;
    dunlin__telemetry_request telemetry; /* the last batch */
    int n_telemetry_records;
    float update[FAKE_VALUES];       /* as uploaded; of a packed one as decoded at the commit */
    uint8_t packed[FAKE_VALUES * 5]; /* its bytes */
    uint64_t update_bytes;           /* of it, as the manifest has it */
    double packed_square;            /* of its decoded norm */
    uint64_t object_bytes;           /* sent as objects */
    char complaint[200];

    /* Its own. */
    uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES];
    char challenge[DUNLIN_WIRE_ID_BYTES];
    uint64_t counter;
    fake_key keys[FAKE_KEYS];
    int n_keys;
    uint8_t put_manifest[8192];
    size_t put_bytes;
    uint8_t put_sha256[DUNLIN_SHA256_BYTES];
    uint64_t chunk_length[8]; /* of each chunk, what has come */
    bool is_committed;
    bool is_assigned;
} fake_server;

/* A server with a base of three tensors ("weights" of several chunks, "bias", "mean" STATISTIC) and
 * an offer for everybody. */
void fake_server_init(fake_server *server);

/* Manifest and hashes for the values as they are now. */
void fake_server_remake_base(fake_server *server);

/* A runtime in `folder` that talks to the server and lives by its clock. */
dunlin_runtime *fake_server_runtime(fake_server *server, const char *folder,
                                    const dunlin_alloc *alloc);

/* Options of a client that trusts the server. */
dunlin_client_options fake_server_client(const fake_server *server);

/* An own learner: value i of the update is step * (i % 5 + 1). Works in so many slices. Evaluating
 * takes as many; its loss is 1 / (1 + slices of training so far). */
typedef struct fake_learner {
    float step;
    int n_slices;
    int64_t n_examples;
    int n_busy;               /* so often LOCKED from load */
    dunlin_status fit_status; /* of fit, if not OK */
    dunlin_status load_status;
    bool drops_tensor; /* save leaves one out */
    bool gives_nan;
    void (*edit_report_fn)(dunlin_learner_report *report); /* of fit and evaluate, NULL: none */
    bool wants_names;   /* MISMATCH for a base whose first tensor is not "weights" */
    fake_server *clock; /* a slice takes slice_ms by it */
    int64_t slice_ms;
    int64_t checkpoint_takes_ms; /* by the clock */
    dunlin_status checkpoint_status;
    dunlin_status restore_status;
    int slice;
    int n_checkpoints;
    int n_restores; /* that went well */
    int n_loads;
    int n_unloads;
    int n_fits;
    int n_evaluates;
    int evaluation; /* slice of the current one */
    dunlin_task task;
    char precision[32]; /* the task's, whose text ends with load; "": none */
    dunlin_weights_reader base;
} fake_learner;

dunlin_learner fake_learner_make(fake_learner *learner);
/* The same, but it can keep its training: a checkpoint holds the number of the slice. */
dunlin_learner fake_learner_make_keeping(fake_learner *learner);

/* What the update must hold at place i. */
float fake_learner_update(const fake_learner *learner, const fake_server *server, int64_t i);

/* A client, its learner and the server it knows: what a test of the rounds begins with. */
typedef struct fake_world {
    fake_server server;
    fake_learner learner;
    dunlin_learner plug;
    dunlin_runtime *runtime;
    dunlin_client_options options;
    dunlin_client *client;
    char folder[64];
} fake_world;

/* A folder, a server, the plain learner, options: to be changed as a test likes before open. */
void fake_world_make(fake_world *world);
/* Runtime and client, in the state the folder has. */
void fake_world_open(fake_world *world);
void fake_world_close(fake_world *world);

/* A fresh folder under the system's place for temporary files; removed, with all in it. */
void fake_folder_make(char out_path[64]);
void fake_folder_remove(const char *path);
/* How many files and folders there are in it, itself not counted. */
int fake_folder_count(const char *path);

#endif
