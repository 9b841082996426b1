/*
 * client.h - takes part in a federation: check-in, assignment, download, learning, upload, commit.
 *
 * A runtime holds what clients of one process share: the transport (one connection pool), the store
 * (one database), a clock. Clients are small: an idle one holds a few kilobytes and no descriptor.
 * One client is used by one thread at a time; different clients of a runtime may be used by
 * different threads; ..._stop() and ..._pause() may be called from any. While a call of a client
 * runs, ..._step(), ..._run_round(), ..._set_telemetry() and ..._forget() answer STATE, from other
 * threads and from the client's own callbacks alike; nothing happens then, and the detail of the
 * last failure stays.
 *
 * Example: one round of a client; `learner` is one of builtin.h's or of the app's own.
 *
 * @code
 * extern const uint8_t server_key[65];
 * extern const dunlin_learner learner;
 * dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
 * dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
 * dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
 * dunlin_runtime *runtime = NULL;
 * dunlin_client *client = NULL;
 * dunlin_error error;
 * shared.store_folder = "federation";
 * options.server_url = "https://training.example:8443";
 * options.population = "phones";
 * options.signing_keys = server_key;
 * options.n_signing_keys = 1;
 * if (dunlin_runtime_create(&shared, &runtime, &error) != DUNLIN_OK ||
 *     dunlin_client_create(runtime, &options, &learner, &client, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * } else if (dunlin_client_run_round(client, &report) != DUNLIN_OK) {
 *     printf("%s\n", dunlin_client_last_error(client)->text);
 * } else {
 *     printf("%s, %g\n", dunlin_outcome_name(report.outcome), report.loss);
 * }
 * dunlin_client_destroy(client);
 * dunlin_runtime_destroy(runtime);
 * @endcode
 */
#ifndef DUNLIN_CLIENT_H
#define DUNLIN_CLIENT_H

#include <dunlin/alloc.h>
#include <dunlin/key_store.h>
#include <dunlin/learner.h>
#include <dunlin/log.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_runtime dunlin_runtime;
typedef struct dunlin_client dunlin_client;

/** Time and sleep, for tests and simulations. Zeroed: the system's. Milliseconds; wall time since
 * 1970. Frozen: it never gets another member. */
typedef struct dunlin_clock {
    void *ctx;
    int64_t (*wall_ms_fn)(void *ctx);
    int64_t (*boot_ms_fn)(void *ctx); /* monotonic, counts suspend */
    void (*sleep_fn)(void *ctx, int64_t ms);
} dunlin_clock;

typedef struct dunlin_runtime_options {
    size_t struct_size;
    const char
        *store_folder;   /* private to the app; made if missing, mode 0700; database mode 0600 */
    const char *ca_file; /* PEM; NULL: the system's */
    /* Up to 4 base64 SHA-256 hashes of the server leaf's public key; one is enough to match.
     * NULL-terminated or NULL. */
    const char *const *spki_pins;
    const char *client_certificate; /* PEM files for mTLS, or NULL */
    const char *client_key;
    const char *proxy;          /* URL or NULL */
    bool allow_plain_loopback;  /* http:// to 127.0.0.1 or [::1]; for development */
    int32_t max_connections;    /* 0: 64 */
    int64_t connect_timeout_ms; /* 0: 10 s */
    int64_t request_timeout_ms; /* 0: 60 s without progress */
    dunlin_clock clock;
    dunlin_alloc alloc; /* of the runtime and its clients; called from every thread that uses one */
    dunlin_log log;
    /* A transfer slower than this on average over request_timeout_ms ends with TIMEOUT; 0: 1. */
    int64_t least_bytes_per_s;
    /* Called with each new socket before it connects, on any thread that uses a client: to bind it
     * to an unmetered network, for instance. False: the exchange fails with UNREACHABLE. */
    bool (*socket_fn)(void *ctx, int fd);
    void *socket_ctx;
    /* The app's own way to do HTTP (dunlin/transport.h); NULL: libcurl. The runtime takes it over
     * if it comes to be. CA, pins, mTLS, proxy and limits of time are then the transport's own
     * matter: it does not see these options. */
    struct dunlin_transport *transport;
    /* Names this installation of the app on this device: Android's ANDROID_ID, iOS's
     * identifierForVendor. Where the store says another one it is a copy (a backup brought to a new
     * phone, a cloned image), and each client enrols anew instead of passing for the other device.
     * Kept as a hash, never sent. NULL: /etc/machine-id if there is one, else copies are not seen.
     */
    const char *installation;
} dunlin_runtime_options;
#define DUNLIN_RUNTIME_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_runtime_options)

/**
 * Opens the store and the transport.
 *
 * @return OK; ARGUMENT if an option, or the table of options->transport, is wrong (the text names
 * it); VERSION if one of them sets what the library does not know, or the store has a newer schema,
 * which is left as it is; IO, SPACE, LOCKED, DATA (damaged) of the store; TLS if a file of
 * certificates or a key cannot be read; MEMORY. After a failure *out_runtime is NULL, and
 * options->transport is still the app's.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_runtime_create(
    const dunlin_runtime_options *options, dunlin_runtime **out_runtime, dunlin_error *out_error);
/** For when all its clients are gone; else it goes with the last of them, and takes no new one
 * (STATE). NULL is fine. */
DUNLIN_API void dunlin_runtime_destroy(dunlin_runtime *runtime);

typedef struct dunlin_runtime_stats {
    size_t struct_size;
    uint64_t n_requests;
    uint64_t n_handshakes; /* new connections */
    int32_t n_connections_peak;
    uint64_t body_bytes_sent;
    uint64_t body_bytes_received;
} dunlin_runtime_stats;
#define DUNLIN_RUNTIME_STATS_INIT DUNLIN_SIZED_INIT(dunlin_runtime_stats)

/** @return OK; ARGUMENT without a runtime or with stats that were not started from their INIT. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_runtime_get_stats(dunlin_runtime *runtime,
                                                                   dunlin_runtime_stats *out_stats);

/** Where a round stands. Journalled before it is acted on. */
typedef enum dunlin_phase {
    DUNLIN_PHASE_IDLE = 0,
    DUNLIN_PHASE_ENROL = 1,
    DUNLIN_PHASE_CHECKIN = 2,
    DUNLIN_PHASE_ACCEPT = 3,
    DUNLIN_PHASE_FETCH = 4,
    DUNLIN_PHASE_LEARN = 5,
    DUNLIN_PHASE_PUT = 6,
    DUNLIN_PHASE_UPLOAD = 7,
    DUNLIN_PHASE_COMMIT = 8,
    DUNLIN_PHASE_ABORT = 9
} dunlin_phase;
#define DUNLIN_N_PHASES 10
/** @return its name, "fetch"; never NULL: "unknown" for another number. */
DUNLIN_API const char *dunlin_phase_name(dunlin_phase phase);

/** Numbers only: never data, weights, labels or ids. The library sets struct_size. */
typedef struct dunlin_event {
    size_t struct_size;
    dunlin_phase phase;
    uint64_t round;
    int64_t done;  /* of total: bytes, or steps */
    int64_t total; /* 0 if unknown */
    double loss;
    int64_t elapsed_ms; /* since the round began */
} dunlin_event;
#define DUNLIN_EVENT_INIT DUNLIN_SIZED_INIT(dunlin_event)

/** Conditions of the device now. Polled before a check-in, between pieces of work, and during
 * transfers. The library sets struct_size and zeros; the app sets what it knows, member by member.
 */
typedef struct dunlin_conditions {
    size_t struct_size;
    bool is_charging;
    bool is_unmetered;
    bool is_idle;
    int64_t n_examples;
} dunlin_conditions;
#define DUNLIN_CONDITIONS_INIT DUNLIN_SIZED_INIT(dunlin_conditions)

/**
 * What is kept of the federated model on the storage, for the app: dunlin/app_model.h hands it out.
 * One model in all; while the next one comes down there are two.
 */
typedef enum dunlin_model_keeping {
    DUNLIN_MODEL_KEEPING_DEFAULT = 0, /* ALL if the learner asks for it (ops->keeps_model), as the
                                         built-in one does; else NONE */
    DUNLIN_MODEL_KEEPING_NONE = 1,    /* what was kept before is removed */
    DUNLIN_MODEL_KEEPING_ROUNDS = 2,  /* the base of each round that this device takes part in */
    DUNLIN_MODEL_KEEPING_ALL = 3      /* and what a run has left, fetched when it is over, if the
                                         device's      conditions allow it */
} dunlin_model_keeping;

typedef struct dunlin_client_options {
    size_t struct_size;
    const char *server_url; /* https://host:port */
    const char *population;
    const char *name; /* of this client in the runtime's store; NULL: "default" */
    /* One or two ECDSA P-256 keys that sign assignments: 65 bytes each, uncompressed point. The
     * second is a reserve. */
    const uint8_t *signing_keys;
    int32_t n_signing_keys;
    const char *enrolment_token; /* invitation, or NULL */
    uint64_t budget_bytes;       /* sent to the server as a power of two; 0: unknown */
    int32_t n_cores;
    /* HTTP bodies of a round, repeats and all: a hard line. 0: 1 GiB. LIMIT when a round would pass
     * it; known sizes are judged before anything is fetched. */
    uint64_t max_download_bytes;
    uint64_t max_upload_bytes;
    int64_t
        round_timeout_ms; /* our own limit for a whole round; 0: the assignment's deadline alone */
    /* What has to hold of the device for a round to begin and to go on. While it does not hold a
     * round is suspended: nothing is trained, no byte moves (a commit on its way excepted). */
    bool require_charging;
    bool require_unmetered;
    bool require_idle;
    bool (*conditions_fn)(
        void *ctx, dunlin_conditions *out_conditions); /* NULL: all is well, examples unknown */
    void *conditions_ctx;
    bool (*event_fn)(void *ctx,
                     const dunlin_event *event); /* false: stop. Calls into the client: STATE. */
    void *event_ctx;
    /* Training is kept on the storage after so many ms of it. 0: as often as costs at most 2 % of
     * the time, by measure, and at least 10 s apart; on storage so slow that this would leave more
     * than a minute of training unkept, once a minute, or as often as costs at most 10 %. -1:
     * never, it then begins anew after a kill. */
    int64_t checkpoint_ms;
    int64_t phase_timeout_ms;   /* for the network's part of one phase, its quick retries included:
                                   then TIMEOUT, and the round is paused; 0: no limit of its own */
    dunlin_key_store key_store; /* zeroed: the key lies in the journal */
    /* The app's floor of privacy: a training assignment that does not clip its update to at most
     * this L2 norm is refused with LIMIT. The norm is of the averaged tensors' difference from the
     * base, as the server will decode it; running statistics go up as they are. 0: none. */
    float max_update_norm;
    /* Where the learner's examples are kept (dunlin/examples.h); NULL: nowhere the client knows of.
     * It stays open for the client, which then declines tasks that the store's rules do not allow
     * or that want more examples than there are, fixes what a round trains on, gives the round up
     * with WITHDRAWN when one of these is removed, and clears the whole store when it is forgotten.
     */
    struct dunlin_examples *examples;
    /* The user has agreed to telemetry (dunlin_telemetry_event): how rounds go is noted when they
     * end, and sent in batches under random names. false: nothing is noted, and what waits from
     * before is removed. */
    bool sends_telemetry;
    /* A suspended round goes on when its conditions hold again within so long; else it ends with
     * NOT_ELIGIBLE. 0: 30 s; -1: it ends at once. The round's deadline runs on. */
    int64_t conditions_grace_ms;
    /* Waits after failures, in ms, each times a random 0.5 to 1.5; a wait that the server names
     * (Retry-After) is taken instead, as it is. How many failures there were in a row is kept on
     * the storage; a success ends the row.
     *
     * The server cannot be reached (UNREACHABLE, TIMEOUT, CLOSED, TLS, 5xx ...): 1, 2, 4, 4 ...
     * times retry_first_ms for ten minutes from the first failure on, then doubled each time up to
     * retry_most_ms. 0: 1 s and 15 min, so a server that was away for less than ten minutes is
     * asked again within 6 s of its return. Apps on many phones want longer ones, so that a server
     * that comes back is not asked by all of them at once: 60 s and 1 h, say.
     *
     * Refused, or failed in a way that would come again (PROTOCOL, SIGNATURE, NUMERIC ...), and
     * training that failed: retry_refused_first_ms, doubled each time up to
     * retry_refused_most_ms. 0: 10 s and 4 h.
     *
     * ARGUMENT: below 0, above 7 days, or a first wait above the most. */
    int64_t retry_first_ms;
    int64_t retry_most_ms;
    int64_t retry_refused_first_ms;
    int64_t retry_refused_most_ms;
    /* Numbers of the app's own for the contribution of this round, with any learner: asked once the
     * round's work is done, before anything of it is sent; they join those of the learner's report,
     * by the same rules. Returns how many *out_metrics has, readable until the client's next call.
     * Calls into the client: STATE. NULL: none. */
    int32_t (*metrics_fn)(void *ctx, uint64_t round, const dunlin_learner_metric **out_metrics);
    void *metrics_ctx;
    dunlin_model_keeping model_keeping;
    /* Joules that the device has used since any fixed moment, by the app's counter (Android's
     * BatteryManager, say); not a number: it does not tell just now. Called before and after each
     * piece of a training or evaluation, on the thread of the round; NULL: nothing is counted. */
    double (*energy_fn)(void *ctx);
    void *energy_ctx;
    /* Updates go up as they are, in float32, also in rounds of a task that wants them packed in
     * fewer bytes; a task that trains in a precision of int8 gives this client no work. false: they
     * are packed, or int8, as the task says. What a round moved is body_bytes_sent and
     * body_bytes_received of its report. */
    bool sends_plain;
    /* For simulations that are to be repeated: waits and windows are drawn from it. Keys, ids and
     * signatures are not. 0: from the system's random numbers, as it should be elsewhere, so that
     * devices do not come all at once. */
    uint64_t random_seed;
    /* More of the app's floor of privacy: offers of training below it are declined, assignments
     * refused with LIMIT, before anything is fetched; dunlin_client_last_error() has the reason.
     * What counts is what the server states: the epsilon of all rounds together, at most this, at a
     * delta of at most max_delta (0: any). No noise, or noise that can be repeated, is below it. 0:
     * none, as are the next. */
    double max_epsilon;
    double max_delta;
    uint32_t min_cohort; /* devices that a round is expected to have, as its server states */
    /* The app's floor of secure aggregation (sdk/SECAGG.md): offers of training in which the server
     * sees this device's update by itself are declined, assignments refused with LIMIT. What is
     * claimed of such a round is for a server that is honest but curious. */
    bool require_secure_aggregation;
    /* In a secure aggregation at least so many devices in the cohort, in the sum, and neighbours
     * that have to work together to see a secret; 0: no more than the protocol asks. Offers below
     * it are declined, assignments refused with LIMIT, whether it is required or not. */
    uint32_t secagg_min_cohort;
    uint32_t secagg_min_devices;
    uint32_t secagg_min_threshold;
    bool stores_exact; /* plan.storage: offers of training are declined, assignments LIMIT */
} dunlin_client_options;
#define DUNLIN_CLIENT_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_client_options)

/**
 * Makes a client, or takes up one that the store knows, in the state where it was left. `learner`
 * is copied; what it points to must outlive the client. Nothing is sent yet. STATE if the runtime
 * has a client of that name already.
 *
 * @return OK; STATE as above, or if the runtime has been destroyed; ARGUMENT if an option or a call
 * of the learner is missing or out of its range (the text names it), SIGNATURE if a signing key is
 * no point of the curve; VERSION if options or learner->ops set what the library does not know, or
 * the journal is of a newer schema; IO, SPACE, LOCKED, DATA (damaged) of the store; MEMORY. After a
 * failure *out_client is NULL.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_client_create(dunlin_runtime *runtime,
                                                               const dunlin_client_options *options,
                                                               const dunlin_learner *learner,
                                                               dunlin_client **out_client,
                                                               dunlin_error *out_error);
/**
 * Keeps what the store has; training in progress is kept too (one checkpoint). While a call of the
 * client runs, in one of its callbacks or on another thread, that call ends with PAUSED and the
 * client goes when it returns: what learner and options point to must stay until then. NULL is
 * fine.
 */
DUNLIN_API void dunlin_client_destroy(dunlin_client *client);

/**
 * What is noted for telemetry: a number of these events, a count and a value each, and how long
 * before the batch it was. Nothing else is sent with it: no key, id or signature of the device, no
 * name of anything. A batch of at most 32 goes up at the end of a round that did not fail, after
 * all else, within 5 s at most; at most 512 records wait on the storage, then the oldest go. They
 * share the connection of the round, so a server that wants to can tell whose they are: consent is
 * to be asked with that in mind.
 */
typedef enum dunlin_telemetry_event {
    DUNLIN_TELEMETRY_PHASE = 0,       /* and a dunlin_phase: pieces of work, ms they took */
    DUNLIN_TELEMETRY_ROUND = 16,      /* outcome (dunlin_outcome), ms in all */
    DUNLIN_TELEMETRY_FAILURE = 17,    /* dunlin_status, phase */
    DUNLIN_TELEMETRY_BYTES_DOWN = 18, /* 1, HTTP bodies of the round */
    DUNLIN_TELEMETRY_BYTES_UP = 19,
    DUNLIN_TELEMETRY_CHECKPOINTS = 21, /* of the training, ms they took */
    DUNLIN_TELEMETRY_PEAK_BYTES = 20,  /* 1, of the learner's memory */
    DUNLIN_TELEMETRY_STORAGE = 22      /* 1, the dunlin_task_storage of a training, unless EXACT */
} dunlin_telemetry_event;

/**
 * Consent given or withdrawn, between two calls: withdrawn, what waits is removed. LOCKED, IO: that
 * could not be done; nothing is noted or sent all the same, and it is to be tried again.
 *
 * @return OK; LOCKED, IO as above; STATE while a call of the client runs, then nothing happens;
 * ARGUMENT without a client.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_client_set_telemetry(dunlin_client *client,
                                                                      bool is_agreed);

/** How a round ended; none of these is an error. */
typedef enum dunlin_outcome {
    DUNLIN_OUTCOME_NONE = 0,         /* not ended yet */
    DUNLIN_OUTCOME_ACCEPTED = 1,     /* the update counts */
    DUNLIN_OUTCOME_NOT_SELECTED = 2, /* come back after retry_after_ms */
    DUNLIN_OUTCOME_TOO_EARLY = 3,    /* the retry window has not begun; nothing was sent */
    DUNLIN_OUTCOME_NOT_ELIGIBLE = 4, /* the device's conditions do not allow it now */
    DUNLIN_OUTCOME_DECLINED = 5,     /* none of the offers fits this device */
    DUNLIN_OUTCOME_LATE = 6,         /* the round closed without us */
    DUNLIN_OUTCOME_REFUSED = 7,      /* the server did not take the update */
    DUNLIN_OUTCOME_STOPPED = 8,
    DUNLIN_OUTCOME_PAUSED = 9,     /* the round is kept on the storage; the next call resumes it */
    DUNLIN_OUTCOME_WITHDRAWN = 10, /* an example that the round trained on was removed */
    /* All rounds of the run are over: the holder of the signing key says so. Come back after
       retry_after_ms, which is long: the operator may begin another run. report.round is the last
       one. */
    DUNLIN_OUTCOME_RUN_OVER = 11
} dunlin_outcome;
/** @return its name, "accepted"; never NULL: "unknown" for another number. */
DUNLIN_API const char *dunlin_outcome_name(dunlin_outcome outcome);

/** Who vouches for the epsilon of a round. */
typedef enum dunlin_epsilon_kind {
    DUNLIN_EPSILON_NONE = 0,             /* there is none */
    DUNLIN_EPSILON_STATED_BY_SERVER = 1, /* signed by the server, which adds the noise */
    DUNLIN_EPSILON_PROVED_HERE = 2       /* reckoned here: each device adds noise (PRIVACY.md) */
} dunlin_epsilon_kind;

/** Who can see a single device's update. */
typedef enum dunlin_aggregation_kind {
    DUNLIN_AGGREGATION_PLAIN = 0, /* the server */
    /* Nobody, if the server follows the protocol, whatever it looks at (honest but curious), and
     * not more devices work with it than the terms allow. It says which devices there are. */
    DUNLIN_AGGREGATION_HONEST_BUT_CURIOUS = 1
} dunlin_aggregation_kind;

typedef struct dunlin_round_report {
    size_t struct_size;
    dunlin_outcome outcome;
    dunlin_phase phase; /* where it ended */
    uint64_t round;
    int64_t retry_after_ms;
    uint64_t body_bytes_sent; /* HTTP bodies */
    uint64_t body_bytes_received;
    int64_t n_examples;
    int64_t n_steps;
    double loss;
    double accuracy;
    uint64_t peak_bytes; /* of the learner */
    int64_t fetch_ms;
    int64_t learn_ms;
    int64_t send_ms;
    int64_t total_ms;
    /* The server's plan asked how the model does on the device's examples before and after the
     * training; that was done, and went up with the update. */
    bool is_evaluated_around;
    double loss_before;
    double accuracy_before;
    double loss_after;
    double accuracy_after;
    int32_t n_checkpoints; /* of the training, in this process */
    int64_t checkpoint_ms; /* and what they took, beside learn_ms */
    int64_t suspended_ms;  /* waited for the device's conditions, in this process */
    /* What training and evaluating took in this process, by options.energy_fn: of the whole device.
     * False: it is not set, or did not tell. */
    bool has_energy;
    double energy_j;
    /* Differential privacy of all rounds of the run together, the unit being a device. */
    dunlin_epsilon_kind epsilon_kind;
    double epsilon;
    double delta;
    dunlin_aggregation_kind aggregation; /* of the round's update, as its assignment has it */
    dunlin_task_storage storage;         /* that the plan of a training asked for */
} dunlin_round_report;
#define DUNLIN_ROUND_REPORT_INIT DUNLIN_SIZED_INIT(dunlin_round_report)

/**
 * Does one bounded piece of work of a round, at most about max_ms (0: one action), for apps with
 * their own loop.
 *
 * `out_wait_ms`: call again after so long (0: at once). `*out_is_ended`: the round has ended, or is
 * paused; out_report (may be NULL) is filled. On a permanent error the round is over (an abort is
 * sent if that is possible); after a transient one (UNREACHABLE, TIMEOUT, CLOSED, SPACE ...) that a
 * few quick retries did not mend, an assignment stays in the store, and the next call after
 * dunlin_client_wait_ms() goes on where it was, until its deadline. The client stays usable.
 *
 * @return OK, whatever the outcome of the round; else what ended it, with the detail in
 * dunlin_client_last_error(): UNREACHABLE, TIMEOUT, CLOSED, TLS (the network; the round is paused),
 * SPACE, LOCKED, IO (the storage; it is paused too), REJECTED, PROTOCOL, SIGNATURE, DIGEST,
 * ROLLBACK, VERSION (what the server says), LIMIT (a limit of the app's would be passed), NUMERIC,
 * DATA, CALLBACK or the learner's own status (the training). STATE while a call of the client runs,
 * or when it has been forgotten; ARGUMENT without a client, or with a report that was not started
 * from its INIT: then nothing was done, and the report is not written.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_client_step(dunlin_client *client, int64_t max_ms,
                                                             int64_t *out_wait_ms,
                                                             bool *out_is_ended,
                                                             dunlin_round_report *out_report);

/**
 * Runs steps until the round has ended. Sleeps only inside the round; between rounds it returns.
 *
 * @return as dunlin_client_step().
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_client_run_round(dunlin_client *client,
                                                                  dunlin_round_report *out_report);

/** Ends a running step or round with outcome STOPPED soon: within one training step or network
 * poll. If none runs it is kept for the next call, which ends at once: without asking the server,
 * except for an abort of a paused round. It counts once. Any thread. */
DUNLIN_API void dunlin_client_stop(dunlin_client *client);

/**
 * Ends a running step or round with outcome PAUSED as soon as ..._stop() would, but keeps the
 * round: no call is sent, transfers and training continue where they are with the next call, of
 * this handle or of another after a restart. For the end of the time that an OS gives to work in
 * the background. If no call runs it is kept for the next one, which then ends at once with PAUSED
 * and asks nobody; it counts once. Any thread.
 */
DUNLIN_API void dunlin_client_pause(dunlin_client *client);

/** @return milliseconds until the server wants to see us again; 0: now. */
DUNLIN_API int64_t dunlin_client_wait_ms(dunlin_client *client);

/** @return the detail of the last failure, fit for a log: ids are left out. Valid until the
 * client's next call. */
DUNLIN_API const dunlin_error *dunlin_client_last_error(const dunlin_client *client);

/**
 * Withdraws, for an app whose user takes consent back: removes key, journal, files and examples
 * (all of options.examples) of this client, then tells the server. If a round runs on another
 * thread: dunlin_client_stop() first, and this when that call has returned (STATE until then).
 *
 * If the storage cannot be cleared (LOCKED, IO), its status, and the client is as before: to be
 * tried again. Otherwise the handle can only be destroyed; a status other than OK says that the
 * server did not hear of it, and will not.
 *
 * @return OK; LOCKED, IO as above; UNREACHABLE, TIMEOUT, CLOSED, TLS, REJECTED and the like: the
 * client is forgotten here and the server not informed; STATE while a call of the client runs, then
 * nothing happens; ARGUMENT without a client.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_client_forget(dunlin_client *client);

#ifdef __cplusplus
}
#endif

#endif
