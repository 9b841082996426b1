/*
 * test_session.c - the state machine alone: transitions by hand, windows and clocks, and random
 * chains of events, after any of which a new START must be able to go on.
 */
#include "session/session.h"

#include <wire/messages.h>

#include <criterion/criterion.h>

#include <random.h>
#include <string.h>

static dunlin__moment moment(int64_t wall_ms, int64_t boot_ms, const char *boot_id)
{
    dunlin__moment at = {.wall_ms = wall_ms, .boot_ms = boot_ms};
    (void)strncpy(at.boot_id, boot_id, sizeof at.boot_id - 1);
    return at;
}

static dunlin__event event_of(dunlin__event_kind kind, int64_t now_ms)
{
    return (dunlin__event){.kind = kind,
                           .now = moment(now_ms, now_ms, "boot-a"),
                           .random = 12345,
                           .is_eligible = true,
                           .retry_after_ms = -1};
}

static void enrol(dunlin__journal *journal)
{
    (void)strcpy(journal->device_id, "device-1");
}

/* A session in the middle of `phase`. */
static dunlin__action bring_to(dunlin__session *session, dunlin__journal *journal,
                               dunlin_phase phase)
{
    memset(session, 0, sizeof *session);
    memset(journal, 0, sizeof *journal);
    enrol(journal);
    dunlin__event event = event_of(DUNLIN_EVENT_START, 1000);
    dunlin__action action = dunlin__session_step(session, journal, &event);
    static const dunlin__event_kind WAY[] = {[DUNLIN_PHASE_CHECKIN] = DUNLIN_EVENT_OFFERED,
                                             [DUNLIN_PHASE_ACCEPT] = DUNLIN_EVENT_ASSIGNED,
                                             [DUNLIN_PHASE_FETCH] = DUNLIN_EVENT_FETCHED,
                                             [DUNLIN_PHASE_LEARN] = DUNLIN_EVENT_LEARNED,
                                             [DUNLIN_PHASE_PUT] = DUNLIN_EVENT_PUT,
                                             [DUNLIN_PHASE_UPLOAD] = DUNLIN_EVENT_UPLOADED};
    while (session->phase < phase) {
        event = event_of(WAY[session->phase], 1000);
        event.has_offer = true;
        event.epoch = 2;
        event.round = 5;
        event.deadline_ms = 100000;
        event.n_missing = 1;
        event.accepted = (dunlin__wait_window){1000, 1000};
        event.rejected = (dunlin__wait_window){3000, 3000};
        if (event.kind == DUNLIN_EVENT_OFFERED) {
            (void)strcpy(journal->offer_id, "offer-1");
        }
        action = dunlin__session_step(session, journal, &event);
    }
    return action;
}

Test(session, a_new_device_enrols_first)
{
    dunlin__session session = {0};
    dunlin__journal journal = {0};
    dunlin__event event = event_of(DUNLIN_EVENT_START, 1000);
    cr_assert_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_ENROL);
    cr_expect_eq(journal.phase, DUNLIN_PHASE_ENROL);
    enrol(&journal);
    event = event_of(DUNLIN_EVENT_ENROLLED, 1001);
    cr_assert_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_CHECKIN);
    event = event_of(DUNLIN_EVENT_REJECTED, 1002);
    event.rejected = (dunlin__wait_window){7000, 7000};
    dunlin__action action = dunlin__session_step(&session, &journal, &event);
    cr_assert_eq(action.kind, DUNLIN_ACTION_END);
    cr_expect_eq(action.outcome, DUNLIN_OUTCOME_NOT_SELECTED);
    cr_expect_eq(journal.wait_ms, 7000);
}

Test(session, enrolment_can_ask_to_wait)
{
    dunlin__session session = {0};
    dunlin__journal journal = {0};
    dunlin__event event = event_of(DUNLIN_EVENT_START, 1000);
    (void)dunlin__session_step(&session, &journal, &event);
    event = event_of(DUNLIN_EVENT_ENROLLED, 1001);
    event.has_window = true;
    event.accepted = (dunlin__wait_window){500, 500};
    dunlin__action action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.kind, DUNLIN_ACTION_END);
    cr_expect_eq(action.outcome, DUNLIN_OUTCOME_NOT_SELECTED);
    enrol(&journal);
    event = event_of(DUNLIN_EVENT_START, 1500);
    action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.outcome, DUNLIN_OUTCOME_TOO_EARLY);
    cr_expect_eq(action.wait_ms, 1);
    event = event_of(DUNLIN_EVENT_START, 1501);
    cr_expect_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_CHECKIN);
}

Test(session, the_way_of_a_round)
{
    static const dunlin__action_kind WANTED[] = {[DUNLIN_PHASE_CHECKIN] = DUNLIN_ACTION_CHECKIN,
                                                 [DUNLIN_PHASE_ACCEPT] = DUNLIN_ACTION_ACCEPT,
                                                 [DUNLIN_PHASE_FETCH] = DUNLIN_ACTION_FETCH,
                                                 [DUNLIN_PHASE_LEARN] = DUNLIN_ACTION_LEARN,
                                                 [DUNLIN_PHASE_PUT] = DUNLIN_ACTION_PUT,
                                                 [DUNLIN_PHASE_UPLOAD] = DUNLIN_ACTION_UPLOAD,
                                                 [DUNLIN_PHASE_COMMIT] = DUNLIN_ACTION_COMMIT};
    dunlin__session session;
    dunlin__journal journal;
    for (int phase = DUNLIN_PHASE_CHECKIN; phase <= DUNLIN_PHASE_COMMIT; phase++) {
        dunlin__action action = bring_to(&session, &journal, (dunlin_phase)phase);
        cr_expect_eq(action.kind, WANTED[phase]);
        cr_expect_eq((int)journal.phase, phase);
    }
    (void)strcpy(journal.key, "key");
    dunlin__event event = event_of(DUNLIN_EVENT_COMMITTED, 2000);
    event.outcome = DUNLIN_OUTCOME_ACCEPTED;
    dunlin__action action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.kind, DUNLIN_ACTION_END);
    cr_expect_eq(action.outcome, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(journal.wait_ms, 1000, "the window of the check-in, when the commit brings none");
    cr_expect_eq(journal.contributed_round, 5);
    cr_expect_eq(journal.phase, DUNLIN_PHASE_IDLE);
    cr_expect_eq(journal.key[0], '\0');
}

Test(session, nothing_missing_goes_straight_to_the_commit)
{
    dunlin__session session;
    dunlin__journal journal;
    (void)bring_to(&session, &journal, DUNLIN_PHASE_PUT);
    dunlin__event event = event_of(DUNLIN_EVENT_PUT, 1000);
    cr_expect_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_COMMIT);
    (void)bring_to(&session, &journal, DUNLIN_PHASE_LEARN);
    session.is_evaluation = true;
    event = event_of(DUNLIN_EVENT_LEARNED, 1000);
    cr_expect_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_COMMIT);
}

Test(session, a_rollback_is_refused)
{
    static const struct {
        uint64_t epoch;
        uint64_t round;
        bool is_taken;
    } CASES[] = {{2, 5, true},  {2, 6, true},   {3, 0, true},
                 {2, 4, false}, {1, 99, false}, {0, 0, false}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        dunlin__session session;
        dunlin__journal journal;
        (void)bring_to(&session, &journal, DUNLIN_PHASE_ACCEPT);
        journal.seen_epoch = 2;
        journal.seen_round = 5;
        dunlin__event event = event_of(DUNLIN_EVENT_ASSIGNED, 1000);
        event.epoch = CASES[i].epoch;
        event.round = CASES[i].round;
        event.deadline_ms = 1000;
        dunlin__action action = dunlin__session_step(&session, &journal, &event);
        cr_expect_eq(action.kind, CASES[i].is_taken ? DUNLIN_ACTION_FETCH : DUNLIN_ACTION_ABORT);
        if (!CASES[i].is_taken) {
            event = event_of(DUNLIN_EVENT_ABORTED, 1000);
            action = dunlin__session_step(&session, &journal, &event);
            cr_expect_eq(action.status, DUNLIN_ROLLBACK);
            cr_expect_eq(journal.seen_epoch, 2);
            cr_expect_eq(journal.seen_round, 5);
        }
    }
}

Test(session, failures)
{
    dunlin__session session;
    dunlin__journal journal;
    (void)bring_to(&session, &journal, DUNLIN_PHASE_PUT);
    session.deadline_ms = 24ULL * 3600 * 1000;
    (void)strcpy(journal.key, "key-of-put");
    for (int i = 0; i < DUNLIN_QUICK_RETRIES; i++) {
        dunlin__event event = event_of(DUNLIN_EVENT_FAILED, 1000);
        event.status = DUNLIN_CLOSED;
        dunlin__action action = dunlin__session_step(&session, &journal, &event);
        cr_assert_eq(action.kind, DUNLIN_ACTION_PAUSE);
        int64_t about = 250LL << i;
        cr_expect(action.wait_ms >= about / 2 && action.wait_ms <= about * 3 / 2);
        event = event_of(DUNLIN_EVENT_RESUME, 1000);
        cr_assert_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_PUT);
        cr_expect_str_eq(journal.key, "key-of-put", "a retry keeps its key");
    }
    dunlin__event event = event_of(DUNLIN_EVENT_FAILED, 1000);
    event.status = DUNLIN_CLOSED;
    dunlin__action action = dunlin__session_step(&session, &journal, &event);
    cr_assert_eq(action.kind, DUNLIN_ACTION_END);
    cr_expect_eq(action.status, DUNLIN_CLOSED);
    cr_expect_eq(journal.phase, DUNLIN_PHASE_PUT, "the assignment is kept");
    event = event_of(DUNLIN_EVENT_START, 1000 + journal.wait_ms - 1);
    cr_expect_eq(dunlin__session_step(&session, &journal, &event).outcome,
                 DUNLIN_OUTCOME_TOO_EARLY);
    event = event_of(DUNLIN_EVENT_START, 1000 + journal.wait_ms);
    cr_expect_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_PUT);

    (void)bring_to(&session, &journal, DUNLIN_PHASE_PUT);
    event = event_of(DUNLIN_EVENT_FAILED, 1000);
    event.status = DUNLIN_UNREACHABLE;
    event.retry_after_ms = 3LL * 3600 * 1000;
    action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.kind, DUNLIN_ACTION_END, "a long wait is not waited inside the round");
    cr_expect_eq(journal.wait_ms, 3LL * 3600 * 1000);
    cr_expect_eq(journal.phase, DUNLIN_PHASE_PUT);

    (void)bring_to(&session, &journal, DUNLIN_PHASE_FETCH);
    event = event_of(DUNLIN_EVENT_FAILED, 1000);
    event.status = DUNLIN_PROTOCOL;
    event.is_permanent = true;
    action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.kind, DUNLIN_ACTION_ABORT);
    cr_expect_eq(action.reason, DUNLIN_V1_ABORT_REASON_DOWNLOAD);
    event = event_of(DUNLIN_EVENT_FAILED, 1000); /* saying so fails too */
    event.status = DUNLIN_CLOSED;
    action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.kind, DUNLIN_ACTION_END);
    cr_expect_eq(action.status, DUNLIN_PROTOCOL);
    cr_expect(journal.wait_ms >= 5000 && journal.wait_ms <= 15000);

    (void)bring_to(&session, &journal, DUNLIN_PHASE_UPLOAD);
    event = event_of(DUNLIN_EVENT_FAILED, 1000);
    event.status = DUNLIN_REJECTED;
    event.is_closed = true;
    event.is_permanent = true;
    action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.kind, DUNLIN_ACTION_END);
    cr_expect_eq(action.outcome, DUNLIN_OUTCOME_LATE);
    cr_expect_eq(journal.wait_ms, 3000);
}

Test(session, an_unknown_device_enrols_once)
{
    dunlin__session session;
    dunlin__journal journal;
    (void)bring_to(&session, &journal, DUNLIN_PHASE_CHECKIN);
    dunlin__event event = event_of(DUNLIN_EVENT_FAILED, 1000);
    event.status = DUNLIN_SIGNATURE;
    event.is_permanent = true;
    event.is_unknown_device = true;
    cr_assert_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_ENROL);
    cr_expect_eq(journal.device_id[0], '\0');
    enrol(&journal);
    dunlin__event enrolled = event_of(DUNLIN_EVENT_ENROLLED, 1000);
    cr_assert_eq(dunlin__session_step(&session, &journal, &enrolled).kind, DUNLIN_ACTION_CHECKIN);
    dunlin__action action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.kind, DUNLIN_ACTION_END);
    cr_expect_eq(action.status, DUNLIN_SIGNATURE);
    cr_expect_str_eq(journal.device_id, "device-1");
}

Test(session, an_event_out_of_place_ends_the_round)
{
    dunlin__session session;
    dunlin__journal journal;
    (void)bring_to(&session, &journal, DUNLIN_PHASE_FETCH);
    dunlin__event event = event_of(DUNLIN_EVENT_COMMITTED, 1000);
    dunlin__action action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.kind, DUNLIN_ACTION_END);
    cr_expect_eq(action.status, DUNLIN_INTERNAL);
    cr_expect_eq(dunlin__session_step(&session, &journal, &event).status, DUNLIN_INTERNAL);
}

/* --- waiting --- */

/* After a reboot the clock says last year: the delay is waited once more, not for a year. */
Test(session, a_clock_set_back_makes_the_delay_begin_again_once)
{
    dunlin__session session = {0};
    dunlin__journal journal = {.wait_from = moment(900000000, 50, "boot-b"), .wait_ms = 1000};
    enrol(&journal);
    dunlin__event event = event_of(DUNLIN_EVENT_START, 5000);
    dunlin__action action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.outcome, DUNLIN_OUTCOME_TOO_EARLY);
    cr_expect_eq(action.wait_ms, 1000);
    cr_expect_eq(journal.wait_from.wall_ms, 5000);
    event = event_of(DUNLIN_EVENT_START, 5400);
    action = dunlin__session_step(&session, &journal, &event);
    cr_expect_eq(action.wait_ms, 600);
    event = event_of(DUNLIN_EVENT_START, 6000);
    cr_expect_eq(dunlin__session_step(&session, &journal, &event).kind, DUNLIN_ACTION_CHECKIN);
}

Test(session, waits_by_the_clock_that_can_be_trusted)
{
    dunlin__moment from = moment(100000, 5000, "boot-a");
    static const struct {
        int64_t wall_ms;
        int64_t boot_ms;
        const char *boot_id;
        int64_t left_ms;
    } CASES[] =
        {
            {100000, 5000, "boot-a", 1000},
            {100400, 5400, "boot-a", 600},
            {100999, 5999, "boot-a", 1},
            {101000, 6000, "boot-a", 0},
            {999999, 5400, "boot-a", 600}, /* same boot: the wall clock was set forward */
            {1, 5400, "boot-a", 600},      /* or back */
            {1, 6000, "boot-a", 0},
            {100400, 10, "boot-b", 600}, /* another boot: the wall */
            {101000, 10, "boot-b", 0},
            {90000, 10, "boot-b", 1000}, /* set back: not more than drawn */
            {100400, 99999, "", 600},    /* no name of the boot */
        };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        dunlin__moment now = moment(CASES[i].wall_ms, CASES[i].boot_ms, CASES[i].boot_id);
        cr_expect_eq(dunlin__wait_left_ms(&from, 1000, &now), CASES[i].left_ms, "case %zu", i);
    }
    from.boot_id[0] = '\0';
    dunlin__moment now = moment(100400, 99999, "");
    cr_expect_eq(dunlin__wait_left_ms(&from, 1000, &now), 600);
    cr_expect_eq(dunlin__wait_left_ms(&from, 0, &now), 0);
    cr_expect_eq(dunlin__wait_left_ms(&from, -5, &now), 0);
}

Test(session, windows_are_drawn_uniformly)
{
    dunlin__wait_window window = {100, 109};
    uint64_t state = test_seed(3);
    int counts[10] = {0};
    int n = 10000;
    for (int i = 0; i < n; i++) {
        int64_t at = dunlin__window_draw(&window, test_random_u64(&state));
        cr_assert(at >= 100 && at <= 109);
        counts[at - 100]++;
    }
    double chi = 0.0;
    for (int i = 0; i < 10; i++) {
        chi += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0;
    }
    cr_expect_lt(chi, 33.0); /* 9 degrees of freedom: beyond this once in 10^4 */
    window = (dunlin__wait_window){5, 5};
    cr_expect_eq(dunlin__window_draw(&window, 77), 5);
    window = (dunlin__wait_window){9, 5};
    cr_expect_eq(dunlin__window_draw(&window, 77), 9);
    window = (dunlin__wait_window){UINT64_MAX, UINT64_MAX};
    cr_expect_eq((uint64_t)dunlin__window_draw(&window, 77), DUNLIN_WIRE_MAX_WAIT_MS);
    window = (dunlin__wait_window){0, UINT64_MAX};
    cr_expect_leq((uint64_t)dunlin__window_draw(&window, UINT64_MAX), DUNLIN_WIRE_MAX_WAIT_MS);
}

/* In a secure aggregation others are waited for, before the update is put and after its commit. */
Test(session, others_are_awaited_as_long_as_they_say)
{
    static const struct {
        dunlin_phase phase;
        dunlin__action_kind kind;
    } places[] = {{DUNLIN_PHASE_PUT, DUNLIN_ACTION_PUT},
                  {DUNLIN_PHASE_COMMIT, DUNLIN_ACTION_COMMIT}};
    static const int64_t waits[][2] = {{-1, 0}, {0, 0}, {700, 700}, {3600000, 60000}};
    dunlin__session session;
    dunlin__journal journal;
    for (size_t p = 0; p < 2; p++) {
        (void)bring_to(&session, &journal, places[p].phase);
        session.n_failures = 3;
        for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
            dunlin__event event = event_of(DUNLIN_EVENT_AWAIT, 2000);
            event.retry_after_ms = waits[i][0];
            dunlin__action action = dunlin__session_step(&session, &journal, &event);
            cr_expect_eq(action.kind, DUNLIN_ACTION_PAUSE);
            cr_expect_eq(action.wait_ms, waits[i][1], "%lld", (long long)action.wait_ms);
            cr_expect_eq(session.n_failures, 0, "the server was reached");
            event = event_of(DUNLIN_EVENT_RESUME, 2000);
            action = dunlin__session_step(&session, &journal, &event);
            cr_expect_eq(action.kind, places[p].kind);
            cr_expect_eq(journal.phase, places[p].phase);
        }
    }
    (void)bring_to(&session, &journal, DUNLIN_PHASE_FETCH);
    dunlin__event event = event_of(DUNLIN_EVENT_AWAIT, 2000);
    cr_expect_eq(dunlin__session_step(&session, &journal, &event).status, DUNLIN_INTERNAL);
}

/* --- random chains --- */

static dunlin__event draw_event(uint64_t *state, int64_t *now_ms)
{
    *now_ms += (int64_t)test_random_below(state, 20000);
    dunlin__event event =
        event_of((dunlin__event_kind)test_random_below(state, DUNLIN_EVENT_WITHDRAWN + 1), *now_ms);
    uint64_t bits = test_random_u64(state);
    event.random = test_random_u64(state);
    event.is_eligible = bits & 1;
    event.has_offer = bits & 2;
    event.has_window = bits & 4;
    event.is_evaluation = bits & 8;
    event.is_permanent = bits & 16;
    event.is_closed = (bits & 96) == 96;
    event.is_unknown_device = bits & 128;
    event.accepted = (dunlin__wait_window){test_random_below(state, 9000), test_random_u64(state)};
    event.rejected =
        (dunlin__wait_window){test_random_below(state, 9000), test_random_below(state, 90000)};
    event.epoch = test_random_below(state, 4);
    event.round = test_random_below(state, 4);
    event.deadline_ms = 1 + test_random_below(state, 200000);
    event.n_missing = (uint32_t)test_random_below(state, 3);
    event.outcome = (dunlin_outcome)test_random_below(state, DUNLIN_OUTCOME_STOPPED + 1);
    event.status = (bits & 256) != 0 ? DUNLIN_STOPPED : DUNLIN_CLOSED;
    event.retry_after_ms = (bits & 512) != 0 ? -1 : (int64_t)test_random_below(state, 1000000);
    return event;
}

static void check_action(const dunlin__session *session, const dunlin__journal *journal,
                         const dunlin__action *action, uint64_t seed)
{
    bool is_ended = action->kind == DUNLIN_ACTION_END;
    cr_assert((int)action->kind >= 0 && action->kind <= DUNLIN_ACTION_END, "seed %llu",
              (unsigned long long)seed);
    cr_assert_eq(session->is_active, !is_ended, "seed %llu", (unsigned long long)seed);
    cr_assert_geq(journal->wait_ms, 0);
    cr_assert_leq((uint64_t)journal->wait_ms, DUNLIN_WIRE_MAX_WAIT_MS);
    cr_assert(action->kind != DUNLIN_ACTION_PAUSE ||
                  (action->wait_ms >= 0 && action->wait_ms <= 2 * DUNLIN_QUICK_RETRY_MOST_MS),
              "seed %llu", (unsigned long long)seed);
    cr_assert((int)journal->phase >= DUNLIN_PHASE_IDLE && journal->phase <= DUNLIN_PHASE_ABORT);
}

/* Plays a faithful driver with a willing server from wherever the session is: it must reach END. */
static void must_end(dunlin__session session, dunlin__journal journal, int64_t now_ms,
                     uint64_t seed)
{
    static const dunlin__event_kind ANSWERS[] = {[DUNLIN_ACTION_ENROL] = DUNLIN_EVENT_ENROLLED,
                                                 [DUNLIN_ACTION_CHECKIN] = DUNLIN_EVENT_OFFERED,
                                                 [DUNLIN_ACTION_ACCEPT] = DUNLIN_EVENT_ASSIGNED,
                                                 [DUNLIN_ACTION_DECLINE] = DUNLIN_EVENT_DECLINED,
                                                 [DUNLIN_ACTION_FETCH] = DUNLIN_EVENT_FETCHED,
                                                 [DUNLIN_ACTION_LEARN] = DUNLIN_EVENT_LEARNED,
                                                 [DUNLIN_ACTION_PUT] = DUNLIN_EVENT_PUT,
                                                 [DUNLIN_ACTION_UPLOAD] = DUNLIN_EVENT_UPLOADED,
                                                 [DUNLIN_ACTION_COMMIT] = DUNLIN_EVENT_COMMITTED,
                                                 [DUNLIN_ACTION_ABORT] = DUNLIN_EVENT_ABORTED,
                                                 [DUNLIN_ACTION_PAUSE] = DUNLIN_EVENT_RESUME};
    dunlin__event event = event_of(DUNLIN_EVENT_START, now_ms);
    event.now.wall_ms += (int64_t)DUNLIN_WIRE_MAX_WAIT_MS;
    event.now.boot_ms += (int64_t)DUNLIN_WIRE_MAX_WAIT_MS;
    session.deadline_ms = 0; /* a fresh handle takes it from the assignment */
    dunlin__action action = dunlin__session_step(&session, &journal, &event);
    for (int i = 0; i < 12 && action.kind != DUNLIN_ACTION_END; i++) {
        event.kind = ANSWERS[action.kind];
        event.has_offer = true;
        event.epoch = 100;
        event.round = 100;
        event.n_missing = 1;
        event.outcome = DUNLIN_OUTCOME_ACCEPTED;
        if (action.kind == DUNLIN_ACTION_ENROL) {
            enrol(&journal);
        }
        action = dunlin__session_step(&session, &journal, &event);
    }
    cr_assert_eq(action.kind, DUNLIN_ACTION_END, "seed %llu", (unsigned long long)seed);
    cr_assert_eq(action.outcome, DUNLIN_OUTCOME_ACCEPTED, "seed %llu: %d", (unsigned long long)seed,
                 (int)action.outcome);
}

Test(session, random_chains_of_events)
{
    uint64_t first = test_seed(1);
    int n_cases = test_cases(20000);
    for (int i = 0; i < n_cases; i++) {
        uint64_t seed = first + (uint64_t)i;
        uint64_t state = seed;
        int64_t now_ms = 1000;
        dunlin__session session = {0};
        dunlin__journal journal = {0};
        int n_events = 1 + (int)test_random_below(&state, 30);
        for (int k = 0; k < n_events; k++) {
            dunlin__event event = draw_event(&state, &now_ms);
            if (!session.is_active) {
                event.kind = DUNLIN_EVENT_START;
            }
            if (event.kind == DUNLIN_EVENT_ENROLLED) {
                enrol(&journal);
            }
            dunlin__action action = dunlin__session_step(&session, &journal, &event);
            check_action(&session, &journal, &action, seed);
        }
        must_end(session, journal, now_ms, seed);
    }
}
