/*
 * server.h - the mock server without its sockets: one population, one task, its rounds.
 *
 * http.c turns requests into calls of dunlin__server_handle() and the three upload calls; a worker
 * thread (or a test) calls dunlin__server_tick(). All state lies under one lock; what takes long
 * (checking signatures, copying updates, folding, evaluating) is done outside it.
 */
#ifndef DUNLIN_SERVER_SERVER_H
#define DUNLIN_SERVER_SERVER_H

#include "certs.h"
#include "db.h"
#include "evaluate.h"
#include "files.h"
#include "models.h"
#include "options.h"
#include "places.h"
#include "task.h"

#include <pthread.h>
#include <stdatomic.h>

#define DUNLIN_SERVER_CHALLENGE_BYTES 33u /* 32 hex digits and the ending 0 */
#define DUNLIN_SERVER_KEPT_MODELS 3u      /* bases that can be fetched: this round's and older */

/* ---- requests and replies, as plain data ---- */

/* Header values are NULL where the request has none. */
typedef struct dunlin__server_request {
    dunlin__route route;
    const char *method;
    const char *path;
    const char *authority;
    const char *device_id;
    const char *challenge;
    const char *counter;
    const char *signature;
    const char *idempotency_key;
    const char *token;
    const char *content_range;
    const char *range;
    const char *if_range;
    const uint8_t *certificate_sha256; /* of the client's public key, verified by TLS */
    const uint8_t *body;
    size_t n_body;
    int64_t clock_skew_ms; /* of a fault script: how far the server's clock is off for this call */
} dunlin__server_request;

typedef struct dunlin__server_reply {
    uint32_t http_code;
    size_t n_body;
    uint8_t body[DUNLIN_SERVER_ANSWER_BYTES]; /* a protobuf message */
    int fd;                                   /* >= 0: the body is a part of a file instead */
    uint64_t fd_offset;
    uint64_t n_fd_bytes;
    bool is_object; /* cacheable for ever, has an ETag */
    char etag[DUNLIN_SHA256_HEX_BYTES + 2];
    char content_range[DUNLIN_WIRE_RANGE_BYTES];
    bool has_upload_offset;
    uint64_t upload_offset;
    /* Of fault scripts: */
    const char *content_type; /* instead of the usual one; static */
    const char *location;     /* static */
    int64_t retry_after_ms;   /* as a header; -1: none */
} dunlin__server_reply;

/* ---- devices ---- */

typedef enum dunlin__part {
    DUNLIN_PART_NONE = 0,
    DUNLIN_PART_OFFERED,
    DUNLIN_PART_ASSIGNED,
    DUNLIN_PART_ACCEPTED,
    DUNLIN_PART_DROPPED
} dunlin__part;

typedef struct dunlin__server_device {
    dunlin__device_row row; /* row.row 0: forgotten, the slot is free */
    char challenge[DUNLIN_SERVER_CHALLENGE_BYTES];
    int64_t challenge_ms;
    uint64_t counter_top;  /* the highest counter seen over the challenge */
    uint64_t counter_seen; /* bit i: counter_top - i was used */
    bool has_checked_in;
    uint64_t part_round; /* the round that `part` speaks of */
    dunlin__part part;
    int64_t offer_until_ms;
    uint32_t n_missed; /* rounds in a row that it took work in and let end without an answer */
} dunlin__server_device;

typedef struct dunlin__server_devices {
    dunlin__server_device **list; /* in the order of enrolment */
    size_t n;
    size_t capacity;
    uint32_t *table; /* by id: place in the list + 1; open addressing */
    uint64_t n_known;
    uint64_t n_checked_in;
} dunlin__server_devices;

/* ---- the server ---- */

typedef struct dunlin__server_counters {
    atomic_uint_fast64_t n_requests;
    atomic_uint_fast64_t n_refused; /* answered with 4xx */
    atomic_uint_fast64_t n_failed;  /* answered with 5xx */
    atomic_uint_fast64_t n_connections;
    atomic_uint_fast64_t body_bytes_down;
    atomic_uint_fast64_t body_bytes_up;
    atomic_uint_fast64_t n_telemetry;
    atomic_uint_fast64_t n_faults; /* of the script */
} dunlin__server_counters;

typedef struct dunlin__server {
    dunlin__server_options options;
    dunlin__server_task task;
    dunlin__server_certs certs;
    dunlin__places places;       /* none without --tokens; under the lock */
    dunlin__places status_token; /* one, or none */
    dunlin__layout layout;
    dunlin__evaluator *evaluator;
    dunlin__server_path folder;
    dunlin_alloc alloc;
    dunlin_log log;
    int64_t (*now_ms_fn)(void *ctx); /* the time; a test's own if set before open */
    void *now_ctx;
    int64_t clock_offset_ms; /* from the steady clock to the wall's, as it was at the start */
    dunlin__server_counters counters;
    int lock_fd; /* keeps a second server out of the folder */

    pthread_mutex_t lock; /* over all that follows */
    pthread_cond_t changed;
    dunlin__server_db *db;
    dunlin__server_devices devices;
    int64_t run_epoch;
    bool is_started; /* the barrier has been passed */
    bool is_done;    /* all rounds are over */
    bool is_exported;
    bool is_woken;           /* something happened that may end the round */
    dunlin__round_row round; /* the one at hand */
    struct {
        uint64_t round;
        uint32_t n_accepted; /* contributions of devices that are not in the list any more */
    } gone;
    bool *in_cohort;       /* by client index; NULL when the clients are not known beforehand */
    uint64_t down_at_open; /* body bytes when the round was opened */
    uint64_t up_at_open;
    dunlin__round_row *closed; /* rounds that are over, in order */
    size_t n_closed;
    size_t closed_capacity;
    dunlin__published models[DUNLIN_SERVER_KEPT_MODELS]; /* newest first */
    dunlin_error fault; /* what holds the rounds up, if status is not OK; tried again */
    uint32_t n_faults;  /* in a row */
    int64_t retry_ms;   /* not before then */
    bool is_stale;      /* memory may differ from the database: to be read again first */
    struct {
        uint64_t file;
        uint32_t n; /* evaluations of it that failed */
    } tries;

    pthread_t worker;
    bool has_worker;
    bool is_stopping;
} dunlin__server;

/* Opens or makes the state and takes up where it was left. `options` and `task` are copied, the
 * task's tensors are taken over. Fields for tests (now_ms_fn) are set before. */
DUNLIN_NODISCARD dunlin_status dunlin__server_open(dunlin__server *server,
                                                   const dunlin__server_options *options,
                                                   dunlin__server_task *task, const dunlin_log *log,
                                                   dunlin_error *error);
/* What the options say of the certificate. */
dunlin__server_certs_wish dunlin__server_wish(const dunlin__server_options *options);
/* Reads the file of tokens again; what was there stays if it is wrong. */
DUNLIN_NODISCARD dunlin_status dunlin__server_read_tokens(dunlin__server *server,
                                                          dunlin_error *error);
/* Starts the thread that closes rounds. */
DUNLIN_NODISCARD dunlin_status dunlin__server_start(dunlin__server *server, dunlin_error *error);
/* Stops the thread, closes the state. */
void dunlin__server_close(dunlin__server *server);

/* Answers one call but CHUNK_PUT. Any thread. */
void dunlin__server_handle(dunlin__server *server, const dunlin__server_request *request,
                           dunlin__server_reply *reply);

/* ---- shared by the files of the server; "locked": the caller holds the lock ---- */

/* Milliseconds since 1970 as the wall clock had it at the start, and steady from there: a clock
 * that is set while the server runs moves no deadline. */
int64_t dunlin__server_now(const dunlin__server *server);

/* An empty reply. */
void dunlin__server_reply_clear(dunlin__server_reply *reply);
/* Makes the reply a typed status. */
void dunlin__server_refuse(dunlin__server_reply *reply, dunlin_v1_status_code_t code,
                           const char *format, ...) DUNLIN_PRINTF(3, 4);
/* Makes the reply from an error of ours: the code follows the status. */
void dunlin__server_refuse_error(dunlin__server_reply *reply, const dunlin_error *error);
void dunlin__server_refuse_with(dunlin__server_reply *reply, dunlin__status *status);

/* 32 random hex digits. */
DUNLIN_NODISCARD dunlin_status dunlin__server_draw_id(char out_id[33], dunlin_error *error);

dunlin__window dunlin__server_window(uint64_t least_ms);

/* Reads all rows again, after the start or a transaction that failed. Locked. */
DUNLIN_NODISCARD dunlin_status dunlin__server_reload(dunlin__server *server, dunlin_error *error);

/* auth.c. Locked, all of them. */
DUNLIN_NODISCARD dunlin_status dunlin__devices_add(dunlin__server *server,
                                                   const dunlin__device_row *row,
                                                   dunlin__server_device **out_device,
                                                   dunlin_error *error);
dunlin__server_device *dunlin__devices_find(dunlin__server *server, const char *id);
dunlin__server_device *dunlin__devices_find_key(dunlin__server *server,
                                                const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES]);
dunlin__server_device *dunlin__devices_find_row(dunlin__server *server, int64_t row);
dunlin__server_device *dunlin__devices_find_index(dunlin__server *server, int64_t client_index);
void dunlin__devices_remove(dunlin__server *server, dunlin__server_device *device);
/* Drops the slots of devices that were removed, where no slot is free; what they gave to the round
 * at hand still counts. */
void dunlin__devices_compact(dunlin__server *server);
void dunlin__devices_free(dunlin__server *server);
/* A new challenge if there is none or it is old. */
DUNLIN_NODISCARD dunlin_status dunlin__device_challenge(dunlin__server *server,
                                                        dunlin__server_device *device,
                                                        dunlin_error *error);
/* False if the counter was used or is too old to tell. */
bool dunlin__device_use_counter(dunlin__server_device *device, uint64_t counter);

/* Not locked. Checks a signed request: fills the reply and returns false if it is refused. */
bool dunlin__server_authenticate(dunlin__server *server, const dunlin__server_request *request,
                                 dunlin__server_reply *reply);

/* calls.c and the calls. `apply` runs locked, inside one transaction with the stored answer. */
typedef struct dunlin__call_state {
    dunlin__server *server;
    const dunlin__server_request *request;
    dunlin__server_reply *reply;
    dunlin__server_device *device; /* NULL where the call has none */
    int64_t now_ms;
    bool is_brief; /* the stored answer may be dropped soon */
    /* Of commit: what was prepared outside the lock. */
    dunlin__commit_request commit;
    dunlin__server_path spooled; /* "" if there is none */
    bool is_refused;             /* the update itself is bad; the text says why */
    char refusal[160];
    /* Files to remove once the transaction is through: an assignment's. */
    char finished_assignment[DUNLIN_WIRE_ID_BYTES];
    bool is_forgotten; /* forget: take the device out of the table afterwards */
} dunlin__call_state;

/* False: the path names another population, or another version is spoken; refused. */
bool dunlin__call_is_ours(const dunlin__call_state *call);
bool dunlin__call_speaks(const dunlin__call_state *call, uint32_t version);

/* enrol.c */
void dunlin__serve_enrol(dunlin__call_state *call);
/* Refuses a device that is not in the table, and tells one that lost its place so. Locked. */
void dunlin__server_refuse_stranger(dunlin__server *server, const char *device_id,
                                    dunlin__server_reply *reply);
/* checkin.c */
void dunlin__serve_checkin(dunlin__call_state *call);
void dunlin__serve_accept(dunlin__call_state *call);
void dunlin__serve_forget(dunlin__call_state *call);
void dunlin__serve_put(dunlin__call_state *call);
void dunlin__serve_commit(dunlin__call_state *call);
void dunlin__serve_abort(dunlin__call_state *call);
/* Not locked. False: the reply says why. */
bool dunlin__serve_commit_prepare(dunlin__call_state *call);

/* Finds the assignment and that it is the device's; fills the reply and returns false otherwise.
 * Locked. */
bool dunlin__server_find_assignment(dunlin__server *server, const char *id,
                                    const dunlin__server_device *device,
                                    dunlin__assignment_row *out_assignment,
                                    dunlin__server_reply *reply);

/* objects.c */
void dunlin__server_object_get(dunlin__server *server, const dunlin__server_request *request,
                               dunlin__server_reply *reply);
void dunlin__server_chunk_head(dunlin__server *server, const dunlin__server_request *request,
                               dunlin__server_reply *reply);

/* A chunk on its way up. Bytes go to the file as they come, so a cut leaves what has arrived. */
typedef struct dunlin__server_upload {
    int fd; /* -1: nothing is written (there already, or refused) */
    dunlin__server_path part;
    dunlin__server_path whole;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    uint64_t offset; /* of the next byte */
    uint64_t end;    /* of the announced range */
    uint64_t total_bytes;
} dunlin__server_upload;

/* Checks token, chunk and range. False: the reply is the answer, the body is to be ignored. */
bool dunlin__server_upload_begin(dunlin__server *server, const dunlin__server_request *request,
                                 dunlin__server_upload *upload, dunlin__server_reply *reply);
/* False: as above. */
bool dunlin__server_upload_write(dunlin__server_upload *upload, const void *bytes, size_t n_bytes,
                                 dunlin__server_reply *reply);
/* The whole body is there: answers. */
void dunlin__server_upload_end(dunlin__server_upload *upload, dunlin__server_reply *reply);
/* The connection is gone: keeps what has arrived. Harmless after end. */
void dunlin__server_upload_abort(dunlin__server_upload *upload);

/* Where an assignment's update lies while it comes up, and when it is whole. */
DUNLIN_NODISCARD dunlin_status dunlin__server_upload_folder(const dunlin__server *server,
                                                            const char *assignment_id,
                                                            dunlin__server_path *out_path,
                                                            dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_spool_path(const dunlin__server *server,
                                                         const char *assignment_id,
                                                         dunlin__server_path *out_path,
                                                         dunlin_error *error);

/* cohort.c and rounds.c. Locked, but tick. */
dunlin__part dunlin__device_part(const dunlin__server *server, const dunlin__server_device *device);
void dunlin__device_set_part(dunlin__server *server, dunlin__server_device *device,
                             dunlin__part part);
/* At a check-in: notes what became of the work that the device had before. */
void dunlin__device_settle(const dunlin__server *server, dunlin__server_device *device,
                           int64_t now_ms);
typedef struct dunlin__part_counts {
    uint32_t n_offered; /* and not yet expired */
    uint32_t n_assigned;
    uint32_t n_accepted;
    uint32_t n_dropped;
} dunlin__part_counts;
dunlin__part_counts dunlin__server_count_parts(const dunlin__server *server, int64_t now_ms);
/* Why the device gets no work now; NONE if it may be offered some. */
dunlin_v1_rejection_t dunlin__server_judge(dunlin__server *server,
                                           const dunlin__server_device *device, int64_t now_ms);
/* Least wait of a device that gets no work: until its turn may come, if that is known. */
uint64_t dunlin__server_wait_ms(const dunlin__server *server, const dunlin__server_device *device);
/* Passes the barrier when enough have checked in. */
DUNLIN_NODISCARD dunlin_status dunlin__server_check_barrier(dunlin__server *server, int64_t now_ms,
                                                            dunlin_error *error);
/* Who is asked in a round: sets in_cohort for the round at hand. */
DUNLIN_NODISCARD dunlin_status dunlin__server_choose_cohort(dunlin__server *server,
                                                            dunlin_error *error);
/* The rank of a client in a round, the lowest are chosen. */
uint64_t dunlin__server_rank(uint64_t seed, uint64_t round, uint64_t client_index);
/* Closes the round if it is time, folds, publishes, opens the next, evaluates. Not locked; one
 * thread. */
void dunlin__server_tick(dunlin__server *server);
/* The seed of one client's work in one round. */
uint64_t dunlin__server_work_seed(uint64_t seed, uint64_t round, uint64_t client_index);

/* status.c: the JSON text, from malloc; NULL when out of memory. Any thread. */
char *dunlin__server_status_text(dunlin__server *server);

#endif
