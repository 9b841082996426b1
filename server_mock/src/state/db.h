/*
 * db.h - the server's database: devices, sessions, assignments, contributions, rounds, stored
 * answers.
 *
 * SQLite in WAL mode, one connection, used by one thread at a time (under the server's lock). What
 * belongs together is written between begin and commit; a kill in between leaves none of it.
 */
#ifndef DUNLIN_SERVER_DB_H
#define DUNLIN_SERVER_DB_H

#include <dunlin/alloc.h>
#include <wire/messages.h>
#include <wire/protocol.h>

typedef struct dunlin__server_db dunlin__server_db;

/* Opens or makes the database, mode 0600. VERSION for one that is newer than this program. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_open(const char *path, const dunlin_alloc *alloc,
                                                      dunlin__server_db **out_db,
                                                      dunlin_error *error);
void dunlin__server_db_close(dunlin__server_db *db);

/* From here on nothing is synced: for a server whose clients are of its own process, and gone with
 * it. A kill of that process alone loses nothing. `has_moments`: what comes after one
 * dunlin__server_db_force() stays in the log until the next, so without the log the database is
 * what it was then. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_relax(dunlin__server_db *db, bool has_moments,
                                                       dunlin_error *error);
/* The half of it that `has_moments` is, with all syncs: for a simulation over the wire. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_keep_log(dunlin__server_db *db,
                                                          dunlin_error *error);

/* `is_durable`: commit returns when the data is on the disk, not just in the system's hands; needed
 * for what a client relies on after an answer. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_begin(dunlin__server_db *db, bool is_durable,
                                                       dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_commit(dunlin__server_db *db, dunlin_error *error);
/* Harmless when nothing was begun. */
/* A number for all that has been committed so far. */
uint64_t dunlin__server_db_ticket(dunlin__server_db *db);
/* Not locked, from any thread: returns when what the ticket stands for is on the storage. Those who
 * wait at the same time share one sync. IO: it may not be there; dunlin__server_db_force() next. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_wait(dunlin__server_db *db, uint64_t ticket,
                                                      dunlin_error *error);
/* Locked. Writes all that has been committed to its place again, syncs it and cuts the write-ahead
 * log: a sync that failed says nothing by succeeding the next time, and what was deleted is gone.
 */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_force(dunlin__server_db *db, dunlin_error *error);
void dunlin__server_db_rollback(dunlin__server_db *db);

/* Whole numbers by name. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_get(dunlin__server_db *db, const char *name,
                                                     int64_t fallback, int64_t *out_value,
                                                     dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_set(dunlin__server_db *db, const char *name,
                                                     int64_t value, dunlin_error *error);

/* ---- devices ---- */

typedef struct dunlin__device_row {
    int64_t row; /* 0 before it is added */
    char id[DUNLIN_WIRE_ID_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
    int64_t client_index; /* its place in the order of folding */
    uint64_t last_round;  /* of private rounds: the last that it had work in; 0: none yet */
    uint64_t n_rounds;    /* and how many */
} dunlin__device_row;

DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_device(dunlin__server_db *db,
                                                            dunlin__device_row *device,
                                                            dunlin_error *error);
/* Forgets the device and its sessions, assignments and stored answers; contributions stay, without
 * a name. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_remove_device(dunlin__server_db *db, int64_t row,
                                                               const char *device_id,
                                                               dunlin_error *error);
typedef dunlin_status (*dunlin__device_fn)(void *ctx, const dunlin__device_row *device);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_device(dunlin__server_db *db,
                                                             dunlin__device_fn device_fn, void *ctx,
                                                             dunlin_error *error);

/* Notes that the device has work in a private round: its last_round and n_rounds. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_take_part(dunlin__server_db *db,
                                                           const dunlin__device_row *device,
                                                           dunlin_error *error);

/* ---- what proves a place ---- */

/* A token or a certificate, by its SHA-256, and the key that used it. */
typedef struct dunlin__proof_row {
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    int64_t client_index;
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES]; /* all 0: its device was forgotten */
} dunlin__proof_row;

DUNLIN_NODISCARD dunlin_status
dunlin__server_db_find_proof(dunlin__server_db *db, const uint8_t sha256[DUNLIN_SHA256_BYTES],
                             dunlin__proof_row *out_proof, bool *out_is_found, dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_put_proof(dunlin__server_db *db,
                                                           const dunlin__proof_row *proof,
                                                           dunlin_error *error);
/* Takes the key out of whatever it has proved a place by: that stays used, but names nobody. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_spend_proofs(
    dunlin__server_db *db, const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES], dunlin_error *error);

/* Notes that the device with this id lost its place to another key; the newest 4096 are kept. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_replaced(dunlin__server_db *db,
                                                              const char *device_id, int64_t at_ms,
                                                              dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_find_replaced(dunlin__server_db *db,
                                                               const char *device_id,
                                                               bool *out_is_found,
                                                               dunlin_error *error);

/* ---- sessions and assignments ---- */

typedef enum dunlin__work_state {
    DUNLIN_WORK_OPEN = 1,
    DUNLIN_WORK_DONE = 2, /* accepted */
    DUNLIN_WORK_GONE = 3  /* declined, aborted, replaced, late, refused */
} dunlin__work_state;

typedef struct dunlin__session_row {
    char id[DUNLIN_WIRE_ID_BYTES];
    int64_t device;
    uint64_t round;
    dunlin__work_state state;
    int64_t until_ms;
    bool packs;   /* the device can send packed updates... */
    bool unpacks; /* ...and read packed bases */
} dunlin__session_row;

DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_session(dunlin__server_db *db,
                                                             const dunlin__session_row *session,
                                                             dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_find_session(dunlin__server_db *db, const char *id,
                                                              dunlin__session_row *out_session,
                                                              bool *out_is_found,
                                                              dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_end_session(dunlin__server_db *db, const char *id,
                                                             dunlin__work_state state,
                                                             dunlin_error *error);

typedef struct dunlin__assignment_row {
    char id[DUNLIN_WIRE_ID_BYTES];
    int64_t device;
    uint64_t round;
    dunlin__work_state state;
    char token[DUNLIN_WIRE_ID_BYTES];
    int64_t deadline_ms;
    bool packs;             /* the update comes packed, if the task wants that */
    uint64_t replaces_from; /* not stored: what the device has open from this round on; 0: of the
                               same round */
    bool has_manifest;
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];
} dunlin__assignment_row;

/* Replaces what the device had open in the round, or from an older one on. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_assignment(
    dunlin__server_db *db, const dunlin__assignment_row *assignment, dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_find_assignment(
    dunlin__server_db *db, const char *id, dunlin__assignment_row *out_assignment,
    bool *out_is_found, dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_end_assignment(dunlin__server_db *db,
                                                                const char *id,
                                                                dunlin__work_state state,
                                                                dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_set_manifest(
    dunlin__server_db *db, const char *id, const uint8_t manifest_sha256[DUNLIN_SHA256_BYTES],
    dunlin_error *error);
typedef dunlin_status (*dunlin__assignment_fn)(void *ctx, const dunlin__assignment_row *assignment);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_assignment(
    dunlin__server_db *db, uint64_t round, dunlin__assignment_fn assignment_fn, void *ctx,
    dunlin_error *error);
/* Drops sessions and assignments of rounds below `round`. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_prune_work(dunlin__server_db *db, uint64_t round,
                                                            dunlin_error *error);

/* ---- contributions ---- */

/* What devices say of the model on their own examples: name in a commit and in the status. "loss"
 * and "accuracy" are of the round's own work: while training, or of the evaluation. */
#define DUNLIN_DEVICE_METRIC_MAP(X)                                                                \
    X(LOSS, "loss")                                                                                \
    X(ACCURACY, "accuracy")                                                                        \
    X(LOSS_BEFORE, "loss_before")                                                                  \
    X(ACCURACY_BEFORE, "accuracy_before")                                                          \
    X(LOSS_AFTER, "loss_after")                                                                    \
    X(ACCURACY_AFTER, "accuracy_after")

typedef enum dunlin__device_metric {
#define DUNLIN_METRIC_ENUMERATOR(name, text) DUNLIN_METRIC_##name,
    DUNLIN_DEVICE_METRIC_MAP(DUNLIN_METRIC_ENUMERATOR)
#undef DUNLIN_METRIC_ENUMERATOR
        DUNLIN_N_METRICS
} dunlin__device_metric;

typedef struct dunlin__device_metrics {
    bool is_there[DUNLIN_N_METRICS];
    double values[DUNLIN_N_METRICS];
} dunlin__device_metrics;

/* "loss" ...; never NULL. */
const char *dunlin__device_metric_name(dunlin__device_metric metric);

typedef struct dunlin__contribution_row {
    uint64_t round;
    int64_t client_index;
    int64_t device;
    char assignment[DUNLIN_WIRE_ID_BYTES];
    double weight;
    uint64_t n_steps;
    uint64_t train_ms;
    dunlin__device_metrics metrics;
    dunlin_v1_within_clip_t within_clip;
    double norm; /* of the update; negative before the round has closed, and where none was taken */
} dunlin__contribution_row;

/* STATE if the device or its index has one in the round. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_contribution(
    dunlin__server_db *db, const dunlin__contribution_row *contribution, dunlin_error *error);
typedef dunlin_status (*dunlin__contribution_fn)(void *ctx,
                                                 const dunlin__contribution_row *contribution);
/* In the order of client indices. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_contribution(
    dunlin__server_db *db, uint64_t round, dunlin__contribution_fn contribution_fn, void *ctx,
    dunlin_error *error);

/* Keeps the norm of a contribution's update. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_set_norm(dunlin__server_db *db, uint64_t round,
                                                          int64_t client_index, double norm,
                                                          dunlin_error *error);
typedef dunlin_status (*dunlin__norm_fn)(void *ctx, double norm);
/* The norms of the last `n_rounds` rounds whose models stayed, the shortest first. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_norm(dunlin__server_db *db, uint32_t n_rounds,
                                                           dunlin__norm_fn norm_fn, void *ctx,
                                                           dunlin_error *error);

/* ---- rounds ---- */

typedef enum dunlin__close_reason {
    DUNLIN_CLOSE_NONE = 0,
    DUNLIN_CLOSE_GOAL = 1,
    DUNLIN_CLOSE_DEADLINE = 2,
    DUNLIN_CLOSE_ALL = 3,        /* nobody is left who could contribute */
    DUNLIN_CLOSE_TAKEN_BACK = 4, /* the model it began from was taken back */
    DUNLIN_CLOSE_FAILED = 5      /* its secure aggregation cannot give a sum any more */
} dunlin__close_reason;

typedef enum dunlin__round_state {
    DUNLIN_ROUND_OPEN = 1,
    DUNLIN_ROUND_CLOSING = 2,
    DUNLIN_ROUND_CLOSED = 3
} dunlin__round_state;

#define DUNLIN_ROUND_WHY_BYTES 320u

#define DUNLIN_ROUND_SEED_BYTES 32u

/* Drawn for one round; away again once it has been used. */
typedef struct dunlin__round_seed {
    bool is_there;
    uint8_t bytes[DUNLIN_ROUND_SEED_BYTES];
} dunlin__round_seed;

typedef struct dunlin__round_row {
    uint64_t round; /* from 1 */
    dunlin__round_state state;
    dunlin__close_reason reason;
    int64_t opened_ms;
    int64_t deadline_ms; /* 0: nobody has taken work yet */
    int64_t closed_ms;
    uint64_t n_participants;
    uint64_t n_dropped;
    uint64_t bytes_down;
    uint64_t bytes_up;
    double weight_sum;
    bool is_evaluation;             /* devices evaluate, the model stays */
    dunlin__device_metrics metrics; /* means over the contributions, by weight */
    bool is_evaluated;
    double accuracy;
    double loss;
    bool is_failed;     /* too few contributions, or no average of them: the model stayed */
    uint64_t base;      /* the round whose model it began from; 0: the first weights */
    bool is_taken_back; /* its model is bad: later rounds do not begin from it */
    uint64_t n_scaled;  /* updates that were scaled down to the bound */
    double norm_bound;  /* of its updates; 0: there was none */
    double clip_norm;   /* that its updates were clipped to; 0: they were not */
    bool has_clip_within;
    double clip_within;               /* the part of them that was within it before */
    char why[DUNLIN_ROUND_WHY_BYTES]; /* it failed, was taken back, or has no figures; "" */
    bool is_private;                  /* closed with noise... */
    double epsilon;                   /* ...and what the run had cost by then */
    dunlin__round_seed draw_seed;     /* of its cohort */
    dunlin__round_seed noise_seed;    /* of its noise, from the begin of its close on */
    bool is_given_up; /* its model could not be evaluated; not stored, so a start tries again */
} dunlin__round_row;

/* Adds or replaces. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_put_round(dunlin__server_db *db,
                                                           const dunlin__round_row *round,
                                                           dunlin_error *error);
typedef dunlin_status (*dunlin__round_fn)(void *ctx, const dunlin__round_row *round);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_round(dunlin__server_db *db,
                                                            dunlin__round_fn round_fn, void *ctx,
                                                            dunlin_error *error);

/* Drops the contributions of a round. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_drop_contributions(dunlin__server_db *db,
                                                                    uint64_t round,
                                                                    dunlin_error *error);

/* ---- what a private run has promised ---- */

/* A text by name, cut at its capacity; "" where there is none. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_get_term(dunlin__server_db *db, const char *name,
                                                          char *out_value, size_t capacity,
                                                          dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_set_term(dunlin__server_db *db, const char *name,
                                                          const char *value, dunlin_error *error);

/* ---- telemetry ---- */

#define DUNLIN_SERVER_EVENTS 256 /* that sums are kept of */

/* The sums of one event over all records of all devices. */
typedef struct dunlin__telemetry_row {
    uint32_t event;
    uint64_t n;
    double count_sum;
    double value_sum;
    double value_min;
    double value_max;
} dunlin__telemetry_row;

/* Adds a record to its event's sums; not if there are DUNLIN_SERVER_EVENTS others. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_telemetry(dunlin__server_db *db,
                                                               uint32_t event, double count,
                                                               double value, bool *out_is_stored,
                                                               dunlin_error *error);
typedef dunlin_status (*dunlin__telemetry_fn)(void *ctx, const dunlin__telemetry_row *row);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_each_telemetry(dunlin__server_db *db,
                                                                dunlin__telemetry_fn telemetry_fn,
                                                                void *ctx, dunlin_error *error);

/* ---- stored answers ---- */

#define DUNLIN_SERVER_ANSWER_BYTES 8192u

typedef struct dunlin__answer_row {
    char scope[DUNLIN_SHA256_HEX_BYTES]; /* the device's id; at enrolment its key's hash */
    char key[DUNLIN_WIRE_ID_BYTES];
    uint8_t request_sha256[DUNLIN_SHA256_BYTES]; /* of method, path and body */
    uint32_t http_code;
    int64_t made_ms;
    bool is_brief; /* may be dropped soon: an answer to a check-in that changed nothing */
    size_t n_body;
    uint8_t body[DUNLIN_SERVER_ANSWER_BYTES];
} dunlin__answer_row;

DUNLIN_NODISCARD dunlin_status dunlin__server_db_find_answer(dunlin__server_db *db,
                                                             const char *scope, const char *key,
                                                             dunlin__answer_row *out_answer,
                                                             bool *out_is_found,
                                                             dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_db_add_answer(dunlin__server_db *db,
                                                            const dunlin__answer_row *answer,
                                                            dunlin_error *error);
/* Drops brief answers older than a moment, and all older than another. */
DUNLIN_NODISCARD dunlin_status dunlin__server_db_prune_answers(dunlin__server_db *db,
                                                               int64_t brief_before_ms,
                                                               int64_t all_before_ms,
                                                               dunlin_error *error);

#endif
