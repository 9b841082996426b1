/*
 * session.c - the transitions of a round.
 *
 * Semantics of Google's Federated Compute client: two retry windows, each drawn once; permanent and
 * transient errors with growing delays of their own (retry.h); an abort with a reason.
 * Invariant: every event leads to an action, and every chain that does not only pause to END.
 */
#include "session.h"

#include "retry.h"

#include <wire/messages.h>

#include <string.h>

#define BUSY_MS 20
#define SUSPENDED_MS 1000 /* between two looks at the device's conditions */

int64_t dunlin__ms_between(int64_t from_ms, int64_t to_ms)
{
    if (from_ms < 0 && to_ms > INT64_MAX + from_ms) {
        return INT64_MAX;
    }
    if (from_ms > 0 && to_ms < INT64_MIN + from_ms) {
        return INT64_MIN;
    }
    return to_ms - from_ms;
}

int64_t dunlin__ms_passed(int64_t from_ms, int64_t to_ms)
{
    return to_ms > from_ms ? dunlin__ms_between(from_ms, to_ms) : 0;
}

int64_t dunlin__wait_left_ms(const dunlin__moment *from, int64_t delay_ms,
                             const dunlin__moment *now)
{
    if (delay_ms <= 0) {
        return 0;
    }
    bool is_same_boot = from->boot_id[0] != '\0' && strcmp(from->boot_id, now->boot_id) == 0;
    /* Nothing has passed by a wall clock that was set back: see move_wait(). */
    int64_t passed = is_same_boot ? dunlin__ms_passed(from->boot_ms, now->boot_ms)
                                  : dunlin__ms_passed(from->wall_ms, now->wall_ms);
    return passed >= delay_ms ? 0 : delay_ms - passed;
}

int64_t dunlin__window_draw(const dunlin__wait_window *window, uint64_t random)
{
    uint64_t low =
        window->min_ms < DUNLIN_WIRE_MAX_WAIT_MS ? window->min_ms : DUNLIN_WIRE_MAX_WAIT_MS;
    uint64_t high =
        window->max_ms < DUNLIN_WIRE_MAX_WAIT_MS ? window->max_ms : DUNLIN_WIRE_MAX_WAIT_MS;
    if (high <= low) {
        return (int64_t)low;
    }
    return (int64_t)(low + random % (high - low + 1));
}

static void wait_from_now(dunlin__journal *journal, const dunlin__event *event, int64_t delay_ms)
{
    journal->wait_from = event->now;
    journal->wait_ms = delay_ms;
}

static bool has_assignment(dunlin_phase phase)
{
    return phase >= DUNLIN_PHASE_FETCH && phase <= DUNLIN_PHASE_COMMIT;
}

/* Forgets the current round; identity, windows and what was seen stay. */
static void clear_round(dunlin__session *session, dunlin__journal *journal)
{
    journal->phase = DUNLIN_PHASE_IDLE;
    journal->session[0] = '\0';
    journal->offer_id[0] = '\0';
    journal->key[0] = '\0';
    memset(&journal->begun, 0, sizeof journal->begun);
    journal->n_examples = 0;
    journal->n_steps = 0;
    journal->learn_ms = 0;
    journal->loss = 0.0;
    journal->accuracy = 0.0;
    journal->peak_bytes = 0;
    journal->evaluated = 0;
    journal->loss_before = 0.0;
    journal->accuracy_before = 0.0;
    journal->loss_after = 0.0;
    journal->accuracy_after = 0.0;
    journal->checkpoint = 0;
    journal->sent_bytes = 0;
    journal->received_bytes = 0;
    journal->kept_pending = 0;
    journal->within_clip = 0;
    session->is_active = false;
    session->phase = DUNLIN_PHASE_IDLE;
    session->n_failures = 0;
}

static dunlin__action end(dunlin__session *session, dunlin__journal *journal,
                          dunlin_outcome outcome, dunlin_status status)
{
    clear_round(session, journal);
    return (dunlin__action){.kind = DUNLIN_ACTION_END, .outcome = outcome, .status = status};
}

static dunlin__action enter(dunlin__session *session, dunlin__journal *journal, dunlin_phase phase,
                            dunlin__action_kind kind)
{
    session->phase = phase;
    session->n_failures = 0;
    journal->phase = phase;
    journal->key[0] = '\0'; /* a new request gets a new key */
    return (dunlin__action){.kind = kind};
}

static dunlin__action pause_for(int64_t wait_ms)
{
    return (dunlin__action){.kind = DUNLIN_ACTION_PAUSE, .wait_ms = wait_ms};
}

static dunlin__action pause_within(int64_t wait_ms, int64_t most_ms)
{
    return pause_for(wait_ms < 0 ? 0 : wait_ms < most_ms ? wait_ms : most_ms);
}

/* The action that belongs to a phase: what a kill or a pause goes on with. */
static dunlin__action action_of(dunlin_phase phase)
{
    static const dunlin__action_kind KINDS[] = {[DUNLIN_PHASE_IDLE] = DUNLIN_ACTION_CHECKIN,
                                                [DUNLIN_PHASE_ENROL] = DUNLIN_ACTION_ENROL,
                                                [DUNLIN_PHASE_CHECKIN] = DUNLIN_ACTION_CHECKIN,
                                                [DUNLIN_PHASE_ACCEPT] = DUNLIN_ACTION_ACCEPT,
                                                [DUNLIN_PHASE_FETCH] = DUNLIN_ACTION_FETCH,
                                                [DUNLIN_PHASE_LEARN] = DUNLIN_ACTION_LEARN,
                                                [DUNLIN_PHASE_PUT] = DUNLIN_ACTION_PUT,
                                                [DUNLIN_PHASE_UPLOAD] = DUNLIN_ACTION_UPLOAD,
                                                [DUNLIN_PHASE_COMMIT] = DUNLIN_ACTION_COMMIT,
                                                [DUNLIN_PHASE_ABORT] = DUNLIN_ACTION_ABORT};
    return (dunlin__action){.kind = KINDS[phase]};
}

/* Tells a server that waits for something that nothing will come; ends with outcome or status. */
static dunlin__action give_up(dunlin__session *session, dunlin__journal *journal, int32_t reason,
                              dunlin_outcome outcome, dunlin_status status)
{
    if (!has_assignment(session->phase)) {
        return end(session, journal, outcome, status);
    }
    session->pending =
        (dunlin__action){.kind = DUNLIN_ACTION_END, .outcome = outcome, .status = status};
    session->phase = DUNLIN_PHASE_ABORT;
    journal->phase = DUNLIN_PHASE_ABORT;
    journal->key[0] = '\0';
    return (dunlin__action){.kind = DUNLIN_ACTION_ABORT, .reason = reason};
}

static bool is_past_deadline(const dunlin__session *session, const dunlin__journal *journal,
                             const dunlin__event *event)
{
    return has_assignment(session->phase) && session->deadline_ms > 0 &&
           dunlin__wait_left_ms(&journal->begun, (int64_t)session->deadline_ms, &event->now) == 0;
}

static int32_t abort_reason(dunlin_phase phase)
{
    if (phase == DUNLIN_PHASE_FETCH) {
        return DUNLIN_V1_ABORT_REASON_DOWNLOAD;
    }
    return phase == DUNLIN_PHASE_LEARN ? DUNLIN_V1_ABORT_REASON_TRAINING
                                       : DUNLIN_V1_ABORT_REASON_UPLOAD;
}

static dunlin__action on_failed(dunlin__session *session, dunlin__journal *journal,
                                const dunlin__event *event)
{
    if (session->phase == DUNLIN_PHASE_ABORT) {
        return end(session, journal, session->pending.outcome, session->pending.status);
    }
    if (event->status == DUNLIN_STOPPED) {
        return give_up(session, journal, DUNLIN_V1_ABORT_REASON_STOPPED, DUNLIN_OUTCOME_STOPPED,
                       DUNLIN_OK);
    }
    if (event->is_unknown_device && session->phase == DUNLIN_PHASE_CHECKIN &&
        !session->has_enrolled) {
        /* The server lost us, or this is the copy of another device's journal: a new identity. */
        journal->device_id[0] = '\0';
        journal->challenge[0] = '\0';
        journal->counter = 0;
        memset(journal->private_key, 0, sizeof journal->private_key);
        return enter(session, journal, DUNLIN_PHASE_ENROL, DUNLIN_ACTION_ENROL);
    }
    if (event->is_closed &&
        (has_assignment(session->phase) || session->phase == DUNLIN_PHASE_ACCEPT)) {
        wait_from_now(journal, event, journal->rejected_wait_ms);
        return end(session, journal, DUNLIN_OUTCOME_LATE, DUNLIN_OK);
    }
    if (event->is_permanent) {
        dunlin__retry_refused(journal, &session->retry, session->phase, &event->now, event->random,
                              event->retry_after_ms);
        return give_up(session, journal, abort_reason(session->phase), DUNLIN_OUTCOME_NONE,
                       event->status);
    }
    session->n_failures++;
    /* Training is expensive: one that failed is not tried again at once, whatever the reason. */
    bool is_training = session->phase == DUNLIN_PHASE_LEARN;
    if (has_assignment(session->phase) && !is_training &&
        session->n_failures <= DUNLIN_QUICK_RETRIES &&
        event->retry_after_ms <= DUNLIN_QUICK_RETRY_MOST_MS) {
        int64_t delay_ms = dunlin__retry_jitter(
            (int64_t)DUNLIN_QUICK_RETRY_MS << (session->n_failures - 1), event->random);
        return pause_for(dunlin__retry_asked(delay_ms, event->retry_after_ms));
    }
    if (is_training) {
        dunlin__retry_refused(journal, &session->retry, session->phase, &event->now, event->random,
                              event->retry_after_ms);
    } else {
        dunlin__retry_unreachable(journal, &session->retry, &event->now, event->random,
                                  event->retry_after_ms);
    }
    if (!has_assignment(session->phase)) {
        return end(session, journal, DUNLIN_OUTCOME_NONE, event->status);
    }
    /* The assignment stays in the journal: the next call goes on with it, until its deadline. */
    session->is_active = false;
    session->n_failures = 0;
    return (dunlin__action){
        .kind = DUNLIN_ACTION_END, .outcome = DUNLIN_OUTCOME_NONE, .status = event->status};
}

/* The wall clock was set back to before the wait began: the delay is waited at most once more, from
 * now on, and not until the clock has caught up. */
static void move_wait(dunlin__journal *journal, const dunlin__moment *now)
{
    const dunlin__moment *from = &journal->wait_from;
    bool is_same_boot = from->boot_id[0] != '\0' && strcmp(from->boot_id, now->boot_id) == 0;
    if (is_same_boot ? now->boot_ms < from->boot_ms : now->wall_ms < from->wall_ms) {
        journal->wait_from = *now;
    }
}

static dunlin__action on_start(dunlin__session *session, dunlin__journal *journal,
                               const dunlin__event *event)
{
    session->phase = journal->phase;
    session->n_failures = 0;
    session->has_enrolled = false;
    session->is_active = true;
    if (journal->wait_ms > 0) {
        move_wait(journal, &event->now);
    }
    int64_t left = dunlin__wait_left_ms(&journal->wait_from, journal->wait_ms, &event->now);
    if (has_assignment(journal->phase)) {
        if (left > 0) {
            session->is_active = false;
            return (dunlin__action){
                .kind = DUNLIN_ACTION_END, .outcome = DUNLIN_OUTCOME_TOO_EARLY, .wait_ms = left};
        }
        return action_of(journal->phase);
    }
    if (journal->phase == DUNLIN_PHASE_ABORT) {
        /* Killed while saying so: the server's deadline says it for us. */
        clear_round(session, journal);
        session->is_active = true;
    }
    if (left > 0) {
        dunlin__action action = end(session, journal, DUNLIN_OUTCOME_TOO_EARLY, DUNLIN_OK);
        action.wait_ms = left;
        return action;
    }
    if (!event->is_eligible) {
        return end(session, journal, DUNLIN_OUTCOME_NOT_ELIGIBLE, DUNLIN_OK);
    }
    if (journal->phase == DUNLIN_PHASE_ACCEPT && journal->offer_id[0] != '\0') {
        return action_of(
            DUNLIN_PHASE_ACCEPT); /* with the same key: the server gives the stored answer */
    }
    if (journal->device_id[0] == '\0') {
        return enter(session, journal, DUNLIN_PHASE_ENROL, DUNLIN_ACTION_ENROL);
    }
    return enter(session, journal, DUNLIN_PHASE_CHECKIN, DUNLIN_ACTION_CHECKIN);
}

static dunlin__action on_offered(dunlin__session *session, dunlin__journal *journal,
                                 const dunlin__event *event)
{
    journal->accepted_wait_ms = dunlin__window_draw(&event->accepted, event->random);
    journal->rejected_wait_ms = dunlin__window_draw(&event->rejected, event->random >> 7);
    if (event->kind == DUNLIN_EVENT_REJECTED && event->is_run_over) {
        wait_from_now(journal, event, dunlin__window_draw(&event->over, event->random));
        return end(session, journal, DUNLIN_OUTCOME_RUN_OVER, DUNLIN_OK);
    }
    if (event->kind == DUNLIN_EVENT_REJECTED) {
        wait_from_now(journal, event, journal->rejected_wait_ms);
        return end(session, journal, DUNLIN_OUTCOME_NOT_SELECTED, DUNLIN_OK);
    }
    dunlin__action action = enter(session, journal, DUNLIN_PHASE_ACCEPT,
                                  event->has_offer ? DUNLIN_ACTION_ACCEPT : DUNLIN_ACTION_DECLINE);
    action.reason = event->decline_reason;
    return action;
}

static dunlin__action on_assigned(dunlin__session *session, dunlin__journal *journal,
                                  const dunlin__event *event)
{
    bool is_older = event->epoch < journal->seen_epoch ||
                    (event->epoch == journal->seen_epoch && event->round < journal->seen_round);
    session->is_evaluation = event->is_evaluation;
    session->deadline_ms = event->deadline_ms;
    session->round = event->round;
    dunlin__action action = enter(session, journal, DUNLIN_PHASE_FETCH, DUNLIN_ACTION_FETCH);
    journal->begun = event->now;
    if (is_older) {
        dunlin__retry_refused(journal, &session->retry, session->phase, &event->now, event->random,
                              -1);
        return give_up(session, journal, DUNLIN_V1_ABORT_REASON_REFUSED, DUNLIN_OUTCOME_NONE,
                       DUNLIN_ROLLBACK);
    }
    journal->seen_epoch = event->epoch;
    journal->seen_round = event->round;
    return action;
}

static dunlin__action on_committed(dunlin__session *session, dunlin__journal *journal,
                                   const dunlin__event *event)
{
    bool is_accepted = event->outcome == DUNLIN_OUTCOME_ACCEPTED;
    int64_t delay = is_accepted ? journal->accepted_wait_ms : journal->rejected_wait_ms;
    if (event->has_window) {
        delay = dunlin__window_draw(&event->accepted, event->random);
    }
    wait_from_now(journal, event, delay);
    if (is_accepted && journal->kept_pending != 0) {
        journal->kept = journal->kept_pending;
        journal->kept_round = journal->seen_round;
    }
    if (is_accepted) {
        journal->contributed_wall_ms = event->now.wall_ms;
        journal->contributed_round = journal->seen_round;
    }
    return end(session, journal, event->outcome, DUNLIN_OK);
}

static dunlin__action on_progress(dunlin__session *session, dunlin__journal *journal,
                                  const dunlin__event *event)
{
    switch ((int)event->kind) {
    case DUNLIN_EVENT_FETCHED:
        return enter(session, journal, DUNLIN_PHASE_LEARN, DUNLIN_ACTION_LEARN);
    case DUNLIN_EVENT_LEARNED:
        return session->is_evaluation
                   ? enter(session, journal, DUNLIN_PHASE_COMMIT, DUNLIN_ACTION_COMMIT)
                   : enter(session, journal, DUNLIN_PHASE_PUT, DUNLIN_ACTION_PUT);
    case DUNLIN_EVENT_PUT:
        return event->n_missing > 0
                   ? enter(session, journal, DUNLIN_PHASE_UPLOAD, DUNLIN_ACTION_UPLOAD)
                   : enter(session, journal, DUNLIN_PHASE_COMMIT, DUNLIN_ACTION_COMMIT);
    case DUNLIN_EVENT_UPLOADED:
        return enter(session, journal, DUNLIN_PHASE_COMMIT, DUNLIN_ACTION_COMMIT);
    case DUNLIN_EVENT_AWAIT:
        session->n_failures = 0;
        return pause_within(event->retry_after_ms, DUNLIN_QUICK_RETRY_MOST_MS);
    default:
        return action_of(session->phase);
    }
}

/* The current phase has done what it had to. */
static bool is_success(dunlin__event_kind kind)
{
    return kind >= DUNLIN_EVENT_ENROLLED && kind <= DUNLIN_EVENT_COMMITTED;
}

/* Whether an event belongs to the phase; else the driver has a defect, and the round ends. */
static bool is_in_place(const dunlin__session *session, dunlin__event_kind kind)
{
    switch (kind) {
    case DUNLIN_EVENT_ENROLLED:
        return session->phase == DUNLIN_PHASE_ENROL;
    case DUNLIN_EVENT_REJECTED:
    case DUNLIN_EVENT_OFFERED:
        return session->phase == DUNLIN_PHASE_CHECKIN;
    case DUNLIN_EVENT_DECLINED:
    case DUNLIN_EVENT_ASSIGNED:
        return session->phase == DUNLIN_PHASE_ACCEPT;
    case DUNLIN_EVENT_FETCHED:
        return session->phase == DUNLIN_PHASE_FETCH;
    case DUNLIN_EVENT_LEARNED:
    case DUNLIN_EVENT_BUSY:
        return session->phase == DUNLIN_PHASE_LEARN;
    case DUNLIN_EVENT_PUT:
        return session->phase == DUNLIN_PHASE_PUT;
    case DUNLIN_EVENT_UPLOADED:
        return session->phase == DUNLIN_PHASE_UPLOAD;
    case DUNLIN_EVENT_COMMITTED:
        return session->phase == DUNLIN_PHASE_COMMIT;
    case DUNLIN_EVENT_ABORTED:
        return session->phase == DUNLIN_PHASE_ABORT;
    case DUNLIN_EVENT_AWAIT:
        return session->phase == DUNLIN_PHASE_PUT || session->phase == DUNLIN_PHASE_COMMIT;
    case DUNLIN_EVENT_START:
    case DUNLIN_EVENT_RESUME:
    case DUNLIN_EVENT_FAILED:
    case DUNLIN_EVENT_STOP:
    case DUNLIN_EVENT_UNFIT:
    case DUNLIN_EVENT_INELIGIBLE:
    case DUNLIN_EVENT_WITHDRAWN:
    default:
        return true;
    }
}

static dunlin__action on_enrolled(dunlin__session *session, dunlin__journal *journal,
                                  const dunlin__event *event)
{
    int64_t delay = dunlin__window_draw(&event->accepted, event->random);
    session->has_enrolled = true;
    if (event->has_window && delay > 0) {
        wait_from_now(journal, event, delay);
        dunlin__action action = end(session, journal, DUNLIN_OUTCOME_NOT_SELECTED, DUNLIN_OK);
        action.wait_ms = delay;
        return action;
    }
    return enter(session, journal, DUNLIN_PHASE_CHECKIN, DUNLIN_ACTION_CHECKIN);
}

/* The device ends the round: the server gets the reason, and is asked again after its wait. */
static dunlin__action withdraw(dunlin__session *session, dunlin__journal *journal,
                               const dunlin__event *event, int32_t reason, dunlin_outcome outcome)
{
    wait_from_now(journal, event, journal->rejected_wait_ms);
    return give_up(session, journal, reason, outcome, DUNLIN_OK);
}

/* The app asks for an end; where the round is being given up already, that was the end of it. */
static dunlin__action on_stop(dunlin__session *session, dunlin__journal *journal)
{
    if (session->phase == DUNLIN_PHASE_ABORT) {
        return end(session, journal, session->pending.outcome, session->pending.status);
    }
    return give_up(session, journal, DUNLIN_V1_ABORT_REASON_STOPPED, DUNLIN_OUTCOME_STOPPED,
                   DUNLIN_OK);
}

dunlin__action dunlin__session_step(dunlin__session *session, dunlin__journal *journal,
                                    const dunlin__event *event)
{
    if (event->kind == DUNLIN_EVENT_START) {
        dunlin__action action = on_start(session, journal, event);
        if (action.kind == DUNLIN_ACTION_END || !is_past_deadline(session, journal, event)) {
            return action;
        }
    } else if (!session->is_active || !is_in_place(session, event->kind)) {
        return end(session, journal, DUNLIN_OUTCOME_NONE, DUNLIN_INTERNAL);
    }
    if (event->kind != DUNLIN_EVENT_COMMITTED && is_past_deadline(session, journal, event)) {
        return withdraw(session, journal, event, DUNLIN_V1_ABORT_REASON_DEADLINE,
                        DUNLIN_OUTCOME_LATE);
    }
    if (is_success(event->kind)) {
        dunlin__retry_succeeded(journal, session->phase);
    }
    switch ((int)event->kind) {
    case DUNLIN_EVENT_ENROLLED:
        return on_enrolled(session, journal, event);
    case DUNLIN_EVENT_REJECTED:
    case DUNLIN_EVENT_OFFERED:
        return on_offered(session, journal, event);
    case DUNLIN_EVENT_DECLINED:
        wait_from_now(journal, event,
                      event->has_window ? dunlin__window_draw(&event->accepted, event->random)
                                        : journal->rejected_wait_ms);
        return end(session, journal, DUNLIN_OUTCOME_DECLINED, DUNLIN_OK);
    case DUNLIN_EVENT_ASSIGNED:
        return on_assigned(session, journal, event);
    case DUNLIN_EVENT_COMMITTED:
        return on_committed(session, journal, event);
    case DUNLIN_EVENT_ABORTED:
        return end(session, journal, session->pending.outcome, session->pending.status);
    case DUNLIN_EVENT_FAILED:
        return on_failed(session, journal, event);
    case DUNLIN_EVENT_BUSY:
        return pause_for(BUSY_MS);
    case DUNLIN_EVENT_UNFIT:
        return pause_within(event->retry_after_ms, SUSPENDED_MS);
    case DUNLIN_EVENT_STOP:
        return on_stop(session, journal);
    case DUNLIN_EVENT_INELIGIBLE:
        return withdraw(session, journal, event, DUNLIN_V1_ABORT_REASON_CONDITIONS,
                        DUNLIN_OUTCOME_NOT_ELIGIBLE);
    case DUNLIN_EVENT_WITHDRAWN:
        return withdraw(session, journal, event, DUNLIN_V1_ABORT_REASON_STOPPED,
                        DUNLIN_OUTCOME_WITHDRAWN);
    default: /* a phase has done what it had to, or goes on */
        return on_progress(session, journal, event);
    }
}
