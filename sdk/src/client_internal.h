/*
 * client_internal.h - the insides of runtime and client, and what the files of a round offer each
 * other.
 *
 * A client is small and idle most of its life; all that a round needs beside the journal is in
 * dunlin__round, made when a round begins and gone when it ends.
 */
#ifndef DUNLIN_SDK_CLIENT_INTERNAL_H
#define DUNLIN_SDK_CLIENT_INTERNAL_H

#include "session.h"
#include "store.h"
#include "transport.h"

#include <mem/support.h>
#include <wire/manifest.h>
#include <wire/messages.h>
#include <wire/signature.h>

#include <pthread.h>
#include <stdatomic.h>

#define DUNLIN_MAX_SIGNING_KEYS 2
#define DUNLIN_FILE_PATH_BYTES 1024

struct dunlin_runtime {
    dunlin_alloc alloc;
    dunlin_log log;
    dunlin_clock clock;
    dunlin_transport *transport;
    dunlin__store *store;
    char *folder;
    char boot_id[DUNLIN_BOOT_ID_BYTES];
    uint8_t installation[DUNLIN_SHA256_BYTES]; /* a hash; zeros: not known */
    pthread_mutex_t lock;                      /* over the list */
    dunlin_client *clients; /* those at hand: two of one name would spoil each other's journal */
    bool is_leaving;        /* destroyed by the app; goes with the last of them */
};

dunlin__moment dunlin__runtime_now(const dunlin_runtime *runtime);
/* Takes a client into the runtime's list; STATE if one of its name is there, or the app has
 * destroyed the runtime. */
dunlin_status dunlin__runtime_add(dunlin_runtime *runtime, dunlin_client *client,
                                  dunlin_error *error);
/* True if the runtime is to be freed by the caller: the app has destroyed it, and this was its last
 * client. */
DUNLIN_NODISCARD bool dunlin__runtime_remove(dunlin_runtime *runtime, const dunlin_client *client);
void dunlin__runtime_free(dunlin_runtime *runtime);
void dunlin__runtime_sleep(const dunlin_runtime *runtime, int64_t ms);

/* A row of the base's table: where a tensor lies in the file of the base. */
typedef struct dunlin__base_tensor {
    uint64_t file_offset;
    uint64_t control_offset; /* of the server's variate there, in a round of SCAFFOLD */
    bool is_kept;            /* the device has a value of its own: a LOCAL tensor's, or a variate */
    uint64_t kept_offset;    /* of that in its file; see kept.h */
} dunlin__base_tensor;

/* What checkpoints of the training at hand have cost, all in ms since the weights were loaded. */
typedef struct dunlin__checkpoint_pace {
    int64_t learnt_ms; /* training, without checkpoints */
    int64_t learnt_at_last_ms;
    int64_t spent_ms; /* on checkpoints */
    int32_t n_made;
    int64_t expected_ms; /* of the next: what the last one took */
} dunlin__checkpoint_pace;

/* What one round holds. */
typedef struct dunlin__round {
    dunlin__assignment assignment;
    bool has_assignment;
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
    bool is_fitted;                   /* and has been trained to the end */
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
    int64_t suspended_ms;       /* before that */
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
    char *server_url;
    char *authority; /* as requests are signed over */
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
    bool holds_examples;   /* the example store stays open for it */
    bool is_ahead;         /* the journal in memory could not be written: the store's counts */
    uint64_t random_state; /* for jitter and windows; seeded from the system */
    dunlin_error error;
};

/* How an action failed, beside its status and detail. */
typedef struct dunlin__fault {
    bool is_permanent;
    bool is_closed;
    bool is_unknown_device; /* the server does not know our key */
    int64_t retry_after_ms; /* -1: none */
} dunlin__fault;

/* client_options.c: ARGUMENT names the option and its limit. */
dunlin_status dunlin__client_options_check(const dunlin_client_options *options, bool allow_plain,
                                           dunlin_error *error);

/* --- calls.c: one function per call of the protocol --- */

/* Sets is_permanent from a status of ours. */
dunlin__fault dunlin__fault_of(dunlin_status status);
/* Passes a status on, and sets the fault if it is a failure. */
dunlin_status dunlin__fault_judge(dunlin_status status, dunlin__fault *out_fault);

/*
 * Signs and sends a POST with the journal's idempotency key; a 503 is tried again, a stale
 * challenge signed anew. The reply's body goes to `out_reply` (capacity DUNLIN_WIRE_BODY_BYTES).
 */
dunlin_status dunlin__call_post(dunlin_client *client, const dunlin__route *route,
                                const uint8_t *body, size_t n_bytes, uint8_t *out_reply,
                                size_t *out_reply_bytes, dunlin__fault *out_fault);
dunlin_status dunlin__call_enrol(dunlin_client *client, dunlin__event *out_event,
                                 dunlin__fault *out_fault);
dunlin_status dunlin__call_checkin(dunlin_client *client, dunlin__event *out_event,
                                   dunlin__fault *out_fault);
dunlin_status dunlin__call_accept(dunlin_client *client, dunlin__event *out_event,
                                  dunlin__fault *out_fault);
dunlin_status dunlin__call_decline(dunlin_client *client, int32_t reason, dunlin__event *out_event,
                                   dunlin__fault *out_fault);
dunlin_status dunlin__call_put(dunlin_client *client, dunlin__event *out_event,
                               dunlin__fault *out_fault);
dunlin_status dunlin__call_commit(dunlin_client *client, dunlin__event *out_event,
                                  dunlin__fault *out_fault);
dunlin_status dunlin__call_abort(dunlin_client *client, int32_t reason, dunlin__fault *out_fault);
dunlin_status dunlin__call_forget(dunlin_client *client, dunlin__fault *out_fault);

/* device_key.c: makes a key where there is none and no key store; its public half; signs. */
dunlin_status dunlin__device_key_make(dunlin_client *client);
dunlin_status dunlin__device_key_public(dunlin_client *client,
                                        uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES]);
dunlin_status dunlin__device_key_sign(dunlin_client *client, const dunlin__signed_request *request,
                                      uint8_t out_signature[DUNLIN_SIGNATURE_BYTES]);
void dunlin__device_key_forget(dunlin_client *client);

/* exchange.c: performs a request within the round's limits of bytes and time, counts its bodies,
 * and refuses what the server cannot have said. Sets should_stop itself. */
dunlin_status dunlin__client_exchange(dunlin_client *client, const dunlin_http_request *request,
                                      dunlin_http_reply *out_reply, dunlin__fault *out_fault);

/* A reply that is not 2xx: the server's typed status into our status, detail and fault. */
dunlin_status dunlin__call_refused(dunlin_client *client, const dunlin_http_reply *reply,
                                   dunlin__status *out_status, dunlin__fault *out_fault);

/* True when the application wants to stop, the deadline has passed or the device's conditions no
 * longer hold; handed to the transport. */
bool dunlin__client_should_stop(void *client);

/* Verifies and reads the assignment in round->sealed; MISMATCH if it is not for this client. */
dunlin_status dunlin__assignment_read(dunlin_client *client);

/* The journal as the store has it; that of another installation is emptied. */
dunlin_status dunlin__client_load(dunlin_client *client, dunlin_error *error);

/* A fresh random number of this client. */
uint64_t dunlin__client_random(dunlin_client *client);

/* --- conditions.c --- */

/* The device's conditions now; all is well if the app does not say. */
dunlin_conditions dunlin__client_conditions(const dunlin_client *client);
/* Do they meet what the app itself requires? */
bool dunlin__client_is_eligible(const dunlin_client *client, const dunlin_conditions *conditions);

/* Looks at the conditions before the round at hand goes on. True: they do not hold. The event is
 * UNFIT, with the time until they are looked at again, as long as the grace period lasts; training
 * is kept on the storage once. INELIGIBLE behind it. */
bool dunlin__round_is_suspended(dunlin_client *client, int64_t now_ms, dunlin__event *out_event);

/* How long the round has waited for its conditions. */
int64_t dunlin__round_suspended_ms(const dunlin_client *client, int64_t now_ms);

/* --- fetch.c --- */

/* Downloads and verifies the base, all of it or what is missing; checks room, limits, finiteness.
 */
dunlin_status dunlin__fetch_base(dunlin_client *client, dunlin__fault *out_fault);

/* base_weights.c: the base's manifest as a source over its open file, which must stay. */
dunlin__manifest_source dunlin__base_manifest(dunlin_client *client, int *manifest_fd);
/* A stream of the base: `reader` stands at its first tensor; where it begins in the base's file. */
typedef struct dunlin__base_stream {
    dunlin__manifest_reader reader;
    dunlin__stream stream;
    uint64_t offset;
} dunlin__base_stream;
/* MISMATCH if there is none of that name. */
dunlin_status dunlin__base_find(dunlin_client *client, const dunlin__manifest_source *source,
                                const char *name, dunlin__base_stream *out);
/* The table of the fetched base and a reader over its file, for the learner. */
dunlin_status dunlin__base_open(dunlin_client *client);
void dunlin__base_close(dunlin_client *client);

/* --- submit.c --- */

/* Writes the update of the loaded learner and its manifest to files; they do not change afterwards.
 */
dunlin_status dunlin__update_write(dunlin_client *client);
/* Reads the manifest of the written update back into the round. */
dunlin_status dunlin__update_read_manifest(dunlin_client *client);
/* Sends the chunks that the server misses. */
dunlin_status dunlin__update_send(dunlin_client *client, dunlin__fault *out_fault);

/* --- learn.c --- */

/* One slice of the learner's work. *out_event is filled when there is one: BUSY, or LEARNED once
 * the update is written. */
dunlin_status dunlin__learner_work(dunlin_client *client, int64_t max_ms, dunlin__event *out_event,
                                   bool *out_has_event, dunlin__fault *out_fault);
/* learner_report.c: NUMERIC for what is not finite, DATA for what is out of range. */
dunlin_status dunlin__learner_report_check(const dunlin_learner_report *report,
                                           dunlin_error *error);
/* A status as a learner may give it, or CALLBACK. */
dunlin_status dunlin__learner_status_check(dunlin_status status, dunlin_error *error);
/* Unloads what is loaded. */
void dunlin__learner_drop(dunlin_client *client);

/* --- round_examples.c; nothing happens in these for a client without an example store --- */

/* Does the store have for the task what an offer asks for? */
dunlin_v1_decline_reason_t dunlin__round_judge_examples(dunlin_client *client, const char *task,
                                                        uint64_t min_examples);
/* Fixes what the round trains on, or finds it again; fills its n_chosen and n_held_out. */
dunlin_status dunlin__round_choose_examples(dunlin_client *client, dunlin_task *task);
/* Between two pieces of work: has an example of the round been removed? */
dunlin_status dunlin__round_look_at_examples(dunlin_client *client, bool *out_is_withdrawn);
/* The same within a transfer, asked often: only removals since the last look. Any thread. */
bool dunlin__round_has_lost_examples(const dunlin_client *client);
/* The learner's CALLBACK, or what the store said when it was read for the learner. */
dunlin_status dunlin__round_cause(const dunlin_client *client, dunlin_status status);
/* The round is over. A failure is logged; the next round does it then. */
void dunlin__round_release_examples(dunlin_client *client);

/* --- checkpoint.c --- */

/* Keeps the training of the round at hand, if the learner can; failures are logged. */
void dunlin__checkpoint_save(dunlin_client *client);
/* Once the update is written and journalled, checkpoints are of no use. */
void dunlin__checkpoint_remove(dunlin_client *client);

/* --- round.c --- */

/* Performs the action at hand or a bounded part of it. *out_is_ended with the report filled when
 * the round is over. */
dunlin_status dunlin__round_advance(dunlin_client *client, int64_t max_ms, int64_t *out_wait_ms,
                                    bool *out_is_ended, dunlin_round_report *out_report);

/* What an assignment's deadline and the app's own limit leave for the round. */
uint64_t dunlin__round_deadline_ms(const dunlin_client *client);

/* Keeps what was learned since the last checkpoint, if the round can go on with it. */
void dunlin__round_keep_training(dunlin_client *client);
/* The same, if it is a pause that ended a call of the learner's. */
void dunlin__round_keep_paused(dunlin_client *client);

/* Should work and waiting end: for good, or for now? */
bool dunlin__client_is_interrupted(const dunlin_client *client);

/* Where a client's files of a round lie. */
dunlin_status dunlin__client_folder(dunlin_client *client, char out_path[DUNLIN_FILE_PATH_BYTES]);
/* Where lies what a client keeps from round to round. */
dunlin_status dunlin__client_kept_folder(dunlin_client *client,
                                         char out_path[DUNLIN_FILE_PATH_BYTES]);

/* Ends what a round holds: the learner's load, open files; with `remove_files` the files too. */
void dunlin__round_free(dunlin_client *client, bool remove_files);

/* Tells the application; false: it wants to stop. */
bool dunlin__client_tell(dunlin_client *client, dunlin_phase phase, int64_t done, int64_t total,
                         double loss);

/* --- files.c --- */

/* "<folder>/<name>" into out; LIMIT if it does not fit. */
dunlin_status dunlin__file_path(const char *folder, const char *name,
                                char out_path[DUNLIN_FILE_PATH_BYTES], dunlin_error *error);
/* Opens for reading and writing, made if missing, 0600. */
dunlin_status dunlin__file_open(const char *path, int *out_fd, dunlin_error *error);
dunlin_status dunlin__file_write(int fd, const void *data, size_t n_bytes, uint64_t offset,
                                 dunlin_error *error);
/* Exactly n_bytes, or IO. */
dunlin_status dunlin__file_read(int fd, void *data, size_t n_bytes, uint64_t offset,
                                dunlin_error *error);
/* Data to the storage, then the folder's entry. */
dunlin_status dunlin__file_sync(int fd, const char *folder, dunlin_error *error);
/* Data to the storage, then a new name in place of an old file, then the folder's entry. */
dunlin_status dunlin__file_rename(int fd, const char *from, const char *to, const char *folder,
                                  dunlin_error *error);
dunlin_status dunlin__folder_make(const char *folder, dunlin_error *error);
void dunlin__folder_remove(const char *folder);
/* Does a piece of a file have this hash? False also for a piece that cannot be read. */
bool dunlin__file_matches(int fd, uint64_t offset, uint64_t n_bytes,
                          const uint8_t sha256[DUNLIN_SHA256_BYTES]);
/* Room on the file system of a folder. */
dunlin_status dunlin__folder_room(const char *folder, uint64_t *out_bytes, dunlin_error *error);

#endif
