/*
 * watch.h - what there is to watch beside the rounds: what devices did and why, requests by call
 * and answer, devices by phase, how the open round filled up.
 *
 * Counts begin at zero when the server is opened. They are about all devices together and name
 * none.
 */
#ifndef DUNLIN_SERVER_WATCH_H
#define DUNLIN_SERVER_WATCH_H

#include <dunlin/log.h>
#include <wire/messages.h>
#include <wire/protocol.h>

#include <stdatomic.h>

typedef struct dunlin__server dunlin__server;

/* ---- what devices did ---- */

/* Enumerator, name, most reasons. */
#define DUNLIN_SERVER_EVENT_MAP(X)                                                                 \
    X(ENROL, "enrol")                                                                              \
    X(EVICT, "evict")                                                                              \
    X(FORGET, "forget")                                                                            \
    X(CHECKIN, "checkin")                                                                          \
    X(DECLINE, "decline")                                                                          \
    X(COMMIT, "commit")                                                                            \
    X(ABORT, "abort")

typedef enum dunlin__server_event_kind {
#define DUNLIN_SERVER_EVENT_ENUMERATOR(name, text) DUNLIN_SERVER_EVENT_##name,
    DUNLIN_SERVER_EVENT_MAP(DUNLIN_SERVER_EVENT_ENUMERATOR)
#undef DUNLIN_SERVER_EVENT_ENUMERATOR
        DUNLIN_N_SERVER_EVENTS
} dunlin__server_event_kind;

/* By what a place is proved: the reasons of ENROL. */
typedef enum dunlin__enrol_proof {
    DUNLIN_PROOF_FIRST, /* coming first: nothing is asked for */
    DUNLIN_PROOF_TOKEN,
    DUNLIN_PROOF_USED_TOKEN, /* by another key than before, where that is allowed */
    DUNLIN_PROOF_CERTIFICATE,
    DUNLIN_PROOF_CLAIM,
    DUNLIN_PROOF_KEY, /* the key that has the place already: the same device once more */
    DUNLIN_N_PROOFS
} dunlin__enrol_proof;

#define DUNLIN_SERVER_EVENT_REASONS                                                                \
    8u /* of a kind; the last also takes what has no number of its own */
#define DUNLIN_SERVER_EVENT_TEXT_BYTES 192u

/* One thing that a call did. `reason` is the number that the protocol gives it (Rejection,
 * DeclineReason, CommitOutcome, AbortReason) or of dunlin__enrol_proof; 0 where there is none. */
typedef struct dunlin__server_event {
    bool is_there;
    dunlin__server_event_kind kind;
    uint32_t reason;
    int64_t place;                             /* of the device; -1: none */
    char text[DUNLIN_SERVER_EVENT_TEXT_BYTES]; /* more, for people; "" if there is nothing more */
} dunlin__server_event;

/* "enrol", "commit" ... */
const char *dunlin__server_event_name(dunlin__server_event_kind kind);
/* "token", "goal_reached" ...; NULL for a number without a name. */
const char *dunlin__server_event_reason(dunlin__server_event_kind kind, uint32_t reason);

/* ---- requests ---- */

/* Beside the calls of the protocol: what people and monitors ask for, and what is no call. */
enum {
    DUNLIN_WATCH_PAGE = DUNLIN_N_CALLS,
    DUNLIN_WATCH_STATUS,
    DUNLIN_WATCH_METRICS,
    DUNLIN_WATCH_OTHER,
    DUNLIN_WATCH_CALLS
};

#define DUNLIN_WATCH_RESULTS 18u /* 0: done; else a status code of the protocol */
_Static_assert(DUNLIN_V1_STATUS_CODE_FORBIDDEN + 1 == DUNLIN_WATCH_RESULTS, "codes have a count");

/* "checkin" ..., "page", "status", "metrics", "other"; `out_name` gets it. */
#define DUNLIN_WATCH_NAME_BYTES 32u
void dunlin__watch_call_name(unsigned call, char out_name[DUNLIN_WATCH_NAME_BYTES]);
/* "ok", "stale_challenge" ... */
void dunlin__watch_result_name(unsigned result, char out_name[DUNLIN_WATCH_NAME_BYTES]);

/* ---- the open round ---- */

#define DUNLIN_WATCH_POINTS 128u

/* How many had been accepted at which time; thinned out when it is full. */
typedef struct dunlin__watch_point {
    int64_t at_ms;
    uint32_t n_accepted;
    uint32_t n_assigned; /* at work, or uploading */
} dunlin__watch_point;

/* ---- devices ---- */

/* The phase that a device has reached: each known device is in one of them. */
#define DUNLIN_SERVER_PHASE_MAP(X)                                                                 \
    X(ENROLLED, "enrolled")     /* not heard of since the server was opened */                     \
    X(CHECKED_IN, "checked_in") /* has no part in the open round */                                \
    X(OFFERED, "offered")                                                                          \
    X(ASSIGNED, "assigned")                                                                        \
    X(UPLOADING, "uploading") /* has put the manifest of its update */                             \
    X(ACCEPTED, "accepted")                                                                        \
    X(DROPPED, "dropped") /* gave its place in the round up */                                     \
    X(FAILED, "failed")   /* its training or transfer failed, or its update was refused */

typedef enum dunlin__server_phase {
#define DUNLIN_SERVER_PHASE_ENUMERATOR(name, text) DUNLIN_SERVER_PHASE_##name,
    DUNLIN_SERVER_PHASE_MAP(DUNLIN_SERVER_PHASE_ENUMERATOR)
#undef DUNLIN_SERVER_PHASE_ENUMERATOR
        DUNLIN_N_SERVER_PHASES
} dunlin__server_phase;

const char *dunlin__server_phase_name(dunlin__server_phase phase);

/* ---- all of it ---- */

typedef struct dunlin__watch {
    atomic_uint_fast64_t requests[DUNLIN_WATCH_CALLS][DUNLIN_WATCH_RESULTS];
    atomic_uint_fast64_t n_open; /* connections */
    int64_t opened_ms;           /* when the server was; by its own time */
    /* Under the server's lock: */
    uint64_t events[DUNLIN_N_SERVER_EVENTS][DUNLIN_SERVER_EVENT_REASONS];
    char texts[DUNLIN_N_SERVER_EVENTS][DUNLIN_SERVER_EVENT_REASONS]
              [DUNLIN_SERVER_EVENT_TEXT_BYTES]; /* the last */
    uint64_t round;                             /* that the points are of */
    dunlin__watch_point points[DUNLIN_WATCH_POINTS];
    uint32_t n_points;
    int64_t spacing_ms; /* least time between two points */
} dunlin__watch;

/* Counts what a call has done, and logs it. Locked, after the call's transaction is through. */
void dunlin__watch_event(dunlin__server *server, const dunlin__server_event *event);
/* Counts an answer to a request: `call` of dunlin__call or DUNLIN_WATCH_..., `result` 0 or a status
 * code. Any thread. */
void dunlin__watch_request(dunlin__server *server, unsigned call, unsigned result);
/* How many known devices are in each phase now. Locked. */
void dunlin__watch_phases(const dunlin__server *server, int64_t now_ms,
                          uint32_t out_counts[DUNLIN_N_SERVER_PHASES]);
/* Notes how full the open round is, if that has changed or some time has passed. Locked. */
void dunlin__watch_fill(dunlin__server *server, int64_t now_ms);

#endif
