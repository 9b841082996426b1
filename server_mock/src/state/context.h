/*
 * context.h - the mock server without its sockets: one population, one task, its rounds. What all
 * of its files share.
 *
 * exchange.c turns requests into calls of dunlin__server_handle() and the three upload calls; a
 * worker thread (or a test) calls dunlin__server_tick(). All state lies under one lock; what takes
 * long (checking signatures, copying updates, folding, evaluating) is done outside it.
 */
#ifndef DUNLIN_SERVER_CONTEXT_H
#define DUNLIN_SERVER_CONTEXT_H

#include "base/certs.h"
#include "base/files.h"
#include "devices.h"
#include "model/evaluate.h"
#include "model/models.h"
#include "places.h"
#include "task/options.h"
#include "task/task.h"
#include "watch.h"

#include <pthread.h>
#include <stdatomic.h>

/* Bases that can be fetched: this round's and older; so many, or as many as updates may be stale.
 */
#define DUNLIN_SERVER_KEPT_MODELS 3u
#define DUNLIN_SERVER_MOST_MODELS (DUNLIN_SERVER_STALENESS + 1)

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

/* Why no other round opens. */
typedef enum dunlin__stop_reason {
    DUNLIN_STOP_NONE = 0,
    DUNLIN_STOP_ROUNDS,
    DUNLIN_STOP_TARGET,
    DUNLIN_STOP_PATIENCE
} dunlin__stop_reason;

/* A round's model, and how good it is. */
typedef struct dunlin__best_model {
    uint64_t round; /* 0: none */
    double accuracy;
    double loss;
} dunlin__best_model;

/* A client's place in the order of a round. */
typedef struct dunlin__ranked {
    uint64_t rank;
    uint32_t client_index;
} dunlin__ranked;

/* What is known of rounds to come: of each the last client that is asked. */
typedef struct dunlin__ahead {
    uint64_t *rounds; /* by round modulo n; 0: not found out */
    dunlin__ranked *last;
    size_t n;
} dunlin__ahead;

/* Whom a round asks first, found out once for it (rounds/profile.c). */
typedef struct dunlin__round_choice {
    uint64_t round;   /* 0: none found out yet */
    bool is_open;     /* too little is known: all are welcome */
    double least;     /* UTILITY: of less a device waits... */
    double unit;      /* ...where the usefulness of its examples is a part of this */
    double explore;   /* the chance of one that has not reported */
    double prefer_ms; /* ...and of which whoever takes longer is worth less */
    uint32_t tier;    /* TIERS: that is asked, from 0 */
    uint32_t n_tiers; /* that there are */
    double ends_ms[DUNLIN_SERVER_TIERS]; /* the longest time of each */
} dunlin__round_choice;

/* What tiers have had, from round to round (rounds/tiers.c). */
typedef struct dunlin__tier_past {
    uint32_t n_asked[DUNLIN_SERVER_TIERS]; /* rounds that counted, of each */
    uint32_t last;                         /* that was drawn */
    uint64_t looked_round;                 /* the last that looked at losses; 0: none yet */
    double losses[DUNLIN_SERVER_TIERS];    /* by then */
    bool has_weights;                      /* else all alike */
    double weights[DUNLIN_SERVER_TIERS];   /* by which tiers are drawn since then */
} dunlin__tier_past;

struct dunlin__secure; /* rounds/secure.c */

struct dunlin__server {
    dunlin_server_options options;
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
    int lock_fd;         /* keeps a second server out of the folder */
    bool trusts_callers; /* clients of its own process: requests/local.h */

    pthread_mutex_t lock; /* over all that follows */
    pthread_cond_t changed;
    dunlin__server_db *db;
    dunlin__server_devices devices;
    int64_t run_epoch;
    bool is_started; /* the barrier has been passed */
    bool is_done;    /* no other round opens, because of... */
    dunlin__stop_reason stop;
    dunlin__best_model best; /* whose files models/best.* are; round 0: nobody's */
    bool is_exported;
    bool is_woken;           /* something happened that may end the round */
    dunlin__round_row round; /* the current one */
    struct {
        uint64_t round;
        uint32_t n_accepted; /* contributions of devices that are not in the list any more */
    } gone;
    bool *in_cohort; /* by client index; NULL when the clients are not known beforehand */
    uint32_t n_in_cohort;
    dunlin__round_choice choice;
    dunlin__tier_past tiers;
    struct dunlin__secure *secure; /* the sessions of secure aggregation; NULL: none yet */
    bool is_repeatable;            /* noise has, or had, a seed that is known: nothing is private */
    dunlin__ahead ahead;
    uint64_t down_at_open; /* body bytes when the round was opened */
    uint64_t up_at_open;
    dunlin__round_row *closed; /* rounds that are over, in order */
    size_t n_closed;
    size_t closed_capacity;
    dunlin__published models[DUNLIN_SERVER_MOST_MODELS]; /* newest first */
    dunlin_error fault; /* what holds the rounds up, if status is not OK; tried again */
    uint32_t n_faults;  /* in a row */
    int64_t retry_ms;   /* not before then */
    bool is_stale;      /* memory may differ from the database: to be read again first */
    struct {
        uint64_t file;
        uint32_t n; /* evaluations of it that failed */
    } tries;
    dunlin__watch watch; /* for people and monitors; no decision follows from it */

    pthread_t worker;
    bool has_worker;
    bool is_stopping;
};

/* How many bases are kept. */
size_t dunlin__server_n_models(const dunlin__server *server);
/* From the steady clock to the wall's, in milliseconds, as they are now. */
int64_t dunlin__server_clock_offset(void);
/* Milliseconds since 1970 as the wall clock had it at the start, and steady from there: a clock
 * that is set while the server runs moves no deadline. */
int64_t dunlin__server_now(const dunlin__server *server);
/* 32 random hex digits. */
DUNLIN_NODISCARD dunlin_status dunlin__server_draw_id(char out_id[33], dunlin_error *error);
/* Where an assignment's update lies while it comes up, and when it is whole. */
DUNLIN_NODISCARD dunlin_status dunlin__server_upload_folder(const dunlin__server *server,
                                                            const char *assignment_id,
                                                            dunlin__server_path *out_path,
                                                            dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_spool_path(const dunlin__server *server,
                                                         const char *assignment_id,
                                                         dunlin__server_path *out_path,
                                                         dunlin_error *error);
/* The file of weights that is the base of a round. */
DUNLIN_NODISCARD dunlin_status dunlin__server_weights_path(const dunlin__server *server,
                                                           uint64_t round,
                                                           dunlin__server_path *out_path,
                                                           dunlin_error *error);

#endif
