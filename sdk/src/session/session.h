/*
 * session.h - a round as a pure state machine: an event goes in, the next action comes out.
 *
 * It does no I/O, reads no clock, draws no random number and allocates nothing: the time and a
 * random number come with each event. What must survive a kill is in the journal, which it changes
 * and which the driver writes before it acts.
 */
#ifndef DUNLIN_SDK_SESSION_H
#define DUNLIN_SDK_SESSION_H

#include "retry.h"

/* What the driver is to do next. */
typedef enum dunlin__action_kind {
    DUNLIN_ACTION_ENROL = 0,
    DUNLIN_ACTION_CHECKIN,
    DUNLIN_ACTION_ACCEPT,  /* the offer in journal.offer_id */
    DUNLIN_ACTION_DECLINE, /* all offers, with action.reason */
    DUNLIN_ACTION_FETCH,
    DUNLIN_ACTION_LEARN,
    DUNLIN_ACTION_PUT,
    DUNLIN_ACTION_UPLOAD,
    DUNLIN_ACTION_COMMIT,
    DUNLIN_ACTION_ABORT, /* with action.reason; best effort */
    DUNLIN_ACTION_PAUSE, /* nothing for wait_ms, then DUNLIN_EVENT_RESUME */
    DUNLIN_ACTION_END    /* outcome or status */
} dunlin__action_kind;

typedef struct dunlin__action {
    dunlin__action_kind kind;
    int32_t reason; /* DECLINE: decline reason of the wire; ABORT: abort reason of the wire */
    int64_t wait_ms;
    dunlin_outcome outcome;
    dunlin_status status; /* END: OK, or the error the round ended with */
} dunlin__action;

/* A window of the wire. */
typedef struct dunlin__wait_window {
    uint64_t min_ms;
    uint64_t max_ms;
} dunlin__wait_window;

typedef enum dunlin__event_kind {
    DUNLIN_EVENT_START = 0, /* a round may begin, or goes on where the journal says */
    DUNLIN_EVENT_RESUME,    /* a pause is over */
    DUNLIN_EVENT_ENROLLED,  /* window */
    DUNLIN_EVENT_REJECTED,  /* check-in: both windows; is_run_over, its own window and the round */
    DUNLIN_EVENT_OFFERED,   /* check-in: both windows; has_offer and offer_id, or decline_reason */
    DUNLIN_EVENT_DECLINED,  /* the decline was taken note of */
    DUNLIN_EVENT_ASSIGNED,  /* epoch, round, is_evaluation, deadline_ms */
    DUNLIN_EVENT_FETCHED,
    DUNLIN_EVENT_LEARNED,
    DUNLIN_EVENT_PUT, /* n_missing */
    DUNLIN_EVENT_UPLOADED,
    DUNLIN_EVENT_COMMITTED, /* outcome, window */
    DUNLIN_EVENT_ABORTED,   /* said, or given up */
    DUNLIN_EVENT_FAILED, /* the current action: status, is_permanent, is_closed, retry_after_ms */
    DUNLIN_EVENT_BUSY,   /* the learner is busy now */
    DUNLIN_EVENT_STOP,   /* the application wants to stop */
    DUNLIN_EVENT_AWAIT,  /* others are awaited: retry_after_ms until they are asked for again */
    DUNLIN_EVENT_UNFIT,  /* the device's conditions do not hold just now: retry_after_ms until
                            INELIGIBLE */
    DUNLIN_EVENT_INELIGIBLE, /* nor have they for all of the grace period */
    DUNLIN_EVENT_WITHDRAWN   /* an example that the round trains on has been removed */
} dunlin__event_kind;

typedef struct dunlin__event {
    dunlin__event_kind kind;
    dunlin__moment now;
    uint64_t random;  /* fresh with every event */
    bool is_eligible; /* START */
    bool has_offer;
    int32_t decline_reason;
    bool has_window;
    dunlin__wait_window accepted;
    dunlin__wait_window rejected;
    bool is_run_over; /* signed by a key that the client trusts */
    dunlin__wait_window over;
    uint64_t epoch;
    uint64_t round;
    bool is_evaluation;
    uint64_t deadline_ms;
    uint32_t n_missing;
    dunlin_outcome outcome;
    dunlin_status status;
    bool is_permanent;      /* the same request would fail again */
    bool is_closed;         /* the round or assignment is over for us */
    bool is_unknown_device; /* the server does not know this device */
    int64_t retry_after_ms; /* -1: none */
} dunlin__event;

/* What need not survive a kill. */
typedef struct dunlin__session {
    dunlin__retry retry; /* the app's; stays as it was set */
    dunlin_phase phase;  /* = journal.phase, but for ABORT */
    bool is_active;      /* between START and END */
    bool is_evaluation;
    uint64_t deadline_ms; /* after journal.begun; 0: none */
    uint64_t round;
    int32_t n_failures;     /* in a row, of the current action */
    bool has_enrolled;      /* since START: a device that is not known even then gives up */
    dunlin__action pending; /* what to do after ABORT */
} dunlin__session;

/* After a transient failure of the network within a round so many retries follow, after 0.25, 0.5,
 * 1 and 2 s, before the round is paused. A wait that the server asks for is spent within the round
 * up to a limit. */
#define DUNLIN_QUICK_RETRIES 4
#define DUNLIN_QUICK_RETRY_MS 250
#define DUNLIN_QUICK_RETRY_MOST_MS 60000LL

/* Takes in an event; the action to perform next comes out, the journal is as it must be written
 * before. */
dunlin__action dunlin__session_step(dunlin__session *session, dunlin__journal *journal,
                                    const dunlin__event *event);

/* From one reading of a clock to another; what does not fit is the nearest that does. */
int64_t dunlin__ms_between(int64_t from_ms, int64_t to_ms);
/* The same, but 0 for a clock that went back. */
int64_t dunlin__ms_passed(int64_t from_ms, int64_t to_ms);

/* What is left of a delay that began at `from`: by the boot clock within a boot, else by the wall,
 * within [0, delay]. */
int64_t dunlin__wait_left_ms(const dunlin__moment *from, int64_t delay_ms,
                             const dunlin__moment *now);

/* A moment of a window, uniform, from a random number. */
int64_t dunlin__window_draw(const dunlin__wait_window *window, uint64_t random);

#endif
