/*
 * test_resume.c - rounds that are cut: a kill after each action, each exchange lost before and
 * after the server saw it, answers spoilt; always at most one contribution, and in the end one.
 */
#include "client/fake_server.h"

#include <criterion/criterion.h>

#include <string.h>

static fake_world w;

static void begin(void)
{
    fake_world_make(&w);
    fake_world_open(&w);
}

static void end(const char *what, int n)
{
    fake_world_close(&w);
    cr_assert_str_eq(w.server.complaint, "", "%s %d: %s", what, n, w.server.complaint);
    cr_assert_eq(w.learner.n_loads, w.learner.n_unloads, "%s %d", what, n);
    cr_assert_leq(fake_folder_count(w.folder), 3, "%s %d: files are left behind", what, n);
    fake_folder_remove(w.folder);
}

/* Steps until the round ends, at most n_steps; true if it has ended. */
static bool step_on(int n_steps, dunlin_status *out_status, dunlin_round_report *out_report)
{
    bool is_ended = false;
    for (int i = 0; i < n_steps && !is_ended; i++) {
        int64_t wait_ms = 0;
        *out_status = dunlin_client_step(w.client, 0, &wait_ms, &is_ended, out_report);
        w.server.now_ms += wait_ms;
    }
    return is_ended;
}

/* Rounds until one is accepted; what went wrong on the way is not permanent. */
static void finish_round(const char *what, int n)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 6; i++) {
        dunlin_status status = DUNLIN_OK;
        (void)step_on(1000, &status, &report);
        if (report.outcome == DUNLIN_OUTCOME_ACCEPTED) {
            break;
        }
        w.server.now_ms += dunlin_client_wait_ms(w.client);
    }
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s %d: %s: %s", what, n,
                 dunlin_outcome_name(report.outcome), dunlin_client_last_error(w.client)->text);
    cr_assert_eq(w.server.n_contributions, 1, "%s %d", what, n);
    for (int64_t i = 0; i < FAKE_VALUES; i += 97) {
        cr_assert_float_eq(w.server.update[i], fake_learner_update(&w.learner, &w.server, i), 1e-6F,
                           "%s %d: value %lld", what, n, (long long)i);
    }
}

Test(resume, after_a_kill_behind_each_action)
{
    for (int n_steps = 1; n_steps < 40; n_steps++) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        dunlin_status status = DUNLIN_OK;
        begin();
        bool is_ended = step_on(n_steps, &status, &report);
        cr_assert_eq(status, DUNLIN_OK);
        if (!is_ended) {
            fake_world_close(&w);
            fake_world_open(&w);
            finish_round("kill after action", n_steps);
            cr_assert_eq(w.server.n_enrolled, 1, "kill after action %d", n_steps);
        }
        end("kill after action", n_steps);
        if (is_ended) {
            cr_assert_gt(n_steps, 9);
            return;
        }
    }
    cr_assert_fail("the round has no end");
}

Test(resume, kills_after_every_single_action)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    dunlin_status status = DUNLIN_OK;
    begin();
    w.learner.n_slices = 1; /* this learner keeps nothing of its training: see test_checkpoint.c */
    for (int i = 0; i < 60 && !step_on(2, &status, &report); i++) {
        fake_world_close(&w);
        fake_world_open(&w);
    }
    cr_assert_eq(status, DUNLIN_OK);
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    cr_assert_eq(w.server.n_contributions, 1);
    end("kills after every action", 0);
}

static void lose_each(fake_spoil how, const char *what)
{
    for (int n = 0;; n++) {
        begin();
        w.server.spoil = how;
        w.server.spoil_exchange = n;
        finish_round(what, n);
        bool is_over = w.server.spoil_exchange >= 0;
        end(what, n);
        if (is_over) {
            cr_assert_gt(n, 9);
            return;
        }
    }
}

Test(resume, each_request_lost)
{
    lose_each(FAKE_LOST_REQUEST, "lost request");
}

Test(resume, each_reply_lost)
{
    lose_each(FAKE_LOST_REPLY, "lost reply");
}

Test(resume, each_exchange_busy)
{
    lose_each(FAKE_BUSY, "busy");
}

Test(resume, each_answer_broken)
{
    lose_each(FAKE_BROKEN, "broken");
}

Test(resume, a_reply_lost_and_then_a_kill)
{
    for (int n = 0;; n++) {
        dunlin_status status = DUNLIN_OK;
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        begin();
        w.server.spoil = FAKE_LOST_REPLY;
        w.server.spoil_exchange = n;
        while (w.server.spoil_exchange >= 0 && !step_on(1, &status, &report)) {
        }
        bool is_over = w.server.spoil_exchange >= 0;
        if (!is_over) {
            fake_world_close(&w);
            fake_world_open(&w);
            w.server.now_ms += dunlin_client_wait_ms(w.client);
            finish_round("lost reply and kill at exchange", n);
        }
        end("lost reply and kill at exchange", n);
        if (is_over) {
            return;
        }
    }
}

/* A round that stays without the network long enough is paused, and resumes later. */
Test(resume, a_long_absence_of_the_network)
{
    static const dunlin__call CALLS[] = {DUNLIN_CALL_OBJECT_GET, DUNLIN_CALL_PUT,
                                         DUNLIN_CALL_CHUNK_PUT, DUNLIN_CALL_COMMIT};
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        begin();
        w.server.deadline_ms = 24LL * 3600 * 1000;
        w.server.spoil_call = CALLS[i];
        w.server.spoil = i % 2 == 0 ? FAKE_LOST_REQUEST : FAKE_LOST_REPLY;
        w.server.spoil_times = -1;
        cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_CLOSED);
        cr_assert_eq(w.server.n_calls[CALLS[i]], DUNLIN_QUICK_RETRIES + 1);
        int64_t wait_ms = dunlin_client_wait_ms(w.client);
        cr_assert(wait_ms >= 500 && wait_ms <= 1500);
        cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK);
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_TOO_EARLY);
        int n_assigned = w.server.n_calls[DUNLIN_CALL_ACCEPT];
        w.server.spoil_times = 0;
        w.server.now_ms += wait_ms;
        finish_round("long absence at call", (int)CALLS[i]);
        cr_assert_eq(w.server.n_calls[DUNLIN_CALL_ACCEPT], n_assigned);
        end("long absence at call", (int)CALLS[i]);
    }
}

/* Not a byte of the base is fetched twice. */
Test(resume, chunks_that_came_are_kept)
{
    dunlin_status status = DUNLIN_OK;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    begin();
    w.server.spoil = FAKE_CUT;
    w.server.spoil_exchange = 5; /* enrol, checkin, accept, manifest, chunk 0, chunk 1 */
    cr_assert(step_on(100, &status, &report));
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    uint64_t second = sizeof w.server.values - DUNLIN_WIRE_CHUNK_MIN_BYTES;
    cr_assert_eq(w.server.object_bytes,
                 w.server.manifest_bytes + sizeof w.server.values + second - second / 2);
    end("cut chunk", 0);
    begin();
    w.server.ignores_ranges = true; /* a cache that sends the whole is lived with */
    w.server.spoil = FAKE_CUT;
    w.server.spoil_exchange = 5;
    cr_assert(step_on(100, &status, &report));
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    end("cut chunk without ranges", 0);
}

/* Each call answered with rubbish, cut, "expired" and "not found": an error in one line or an
 * outcome, no file is left, and the next round is fine. */
Test(resume, spoilt_answers)
{
    static const dunlin__call CALLS[] = {
        DUNLIN_CALL_ENROL, DUNLIN_CALL_CHECKIN,   DUNLIN_CALL_ACCEPT, DUNLIN_CALL_OBJECT_GET,
        DUNLIN_CALL_PUT,   DUNLIN_CALL_CHUNK_PUT, DUNLIN_CALL_COMMIT};
    static const fake_spoil SPOILS[] = {FAKE_RUBBISH, FAKE_CUT, FAKE_EXPIRED, FAKE_MISSING};
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0] * 4; i++) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        dunlin__call call = CALLS[i / 4];
        begin();
        w.server.spoil_call = call;
        w.server.spoil = SPOILS[i % 4];
        w.server.spoil_times = -1;
        dunlin_status status = dunlin_client_run_round(w.client, &report);
        const dunlin_error *error = dunlin_client_last_error(w.client);
        const char *name = dunlin__call_describe(call)->name;
        bool is_told = status != DUNLIN_OK || report.outcome == DUNLIN_OUTCOME_LATE ||
                       report.outcome == DUNLIN_OUTCOME_ACCEPTED;
        cr_assert(is_told, "%s spoilt by %d: %s %s", name, (int)SPOILS[i % 4],
                  dunlin_status_name(status), dunlin_outcome_name(report.outcome));
        cr_assert(report.outcome != DUNLIN_OUTCOME_ACCEPTED || call == DUNLIN_CALL_CHUNK_PUT,
                  "%s spoilt by %d", name, (int)SPOILS[i % 4]);
        if (status != DUNLIN_OK) {
            cr_assert_eq(error->status, status, "%s", name);
            cr_assert_neq(error->text[0], '\0');
            cr_assert_null(strchr(error->text, '\n'));
        }
        cr_assert_leq(w.server.n_exchanges, 40, "%s: hammered", name);
        w.server.spoil_times = 0;
        w.server.spoil = FAKE_FINE;
        for (int k = 0; k < 4 && report.outcome != DUNLIN_OUTCOME_ACCEPTED; k++) {
            w.server.now_ms += dunlin_client_wait_ms(w.client);
            w.server.round++;
            status = dunlin_client_run_round(w.client, &report);
        }
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s: %s", name, error->text);
        end(name, (int)SPOILS[i % 4]);
    }
}

/* What a server has forgotten of a round is one that is long over: late, and no refusal. */
Test(resume, what_is_gone_is_late)
{
    static const dunlin__call CALLS[] = {DUNLIN_CALL_OBJECT_GET, DUNLIN_CALL_PUT,
                                         DUNLIN_CALL_CHUNK_PUT, DUNLIN_CALL_COMMIT};
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        const char *name = dunlin__call_describe(CALLS[i])->name;
        begin();
        w.server.spoil_call = CALLS[i];
        w.server.spoil = FAKE_MISSING;
        w.server.spoil_times = -1;
        cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK, "%s: %s", name,
                     dunlin_client_last_error(w.client)->text);
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_LATE, "%s", name);
        cr_assert_eq(w.client->journal.n_refusals, 0, "%s", name);
        end(name, FAKE_MISSING);
    }
}

/* The same across kills: that the delay has begun again is in the journal. */
Test(resume, a_clock_set_back_across_kills)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    begin();
    cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK);
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    int64_t wait_ms = dunlin_client_wait_ms(w.client);
    cr_assert_gt(wait_ms, 100);
    w.server.now_ms -= 1000000000;
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK);
        cr_assert_eq(report.outcome, i < 3 ? DUNLIN_OUTCOME_TOO_EARLY : DUNLIN_OUTCOME_ACCEPTED);
        fake_world_close(&w);
        w.server.now_ms += wait_ms / 3 + 1;
        w.server.round++;
        fake_world_open(&w);
    }
    end("clock set back", 0);
}
