/*
 * test_retry.c - how long a client waits after failures: the sequences of waits by hand, the rows
 * of failures in the journal, and what a real client's rounds make of them.
 */
#include "client/in_world.h"

#include <math.h>

#define RETRY_TEST(name) WORLD_TEST(retry, name)
#define MINUTE_MS 60000LL

static const dunlin__retry DEFAULTS;

static dunlin__moment at(int64_t ms)
{
    dunlin__moment moment = {.wall_ms = 1000000 + ms, .boot_ms = ms};
    (void)strcpy(moment.boot_id, "boot-a");
    return moment;
}

/* --- the sequences of waits --- */

/* 1, 2, 4, 4 ... s for ten minutes, then 8, 16 ... up to 15 minutes, each 0.5 to 1.5 times. */
Test(retry, a_server_that_is_away)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        static const int64_t YOUNG[] = {1000, 2000, 4000};
        dunlin__journal journal = {0};
        int64_t now_ms = 0;
        int64_t wanted_ms = 0;
        for (int i = 0; now_ms < 10 * MINUTE_MS; i++) {
            dunlin__moment now = at(now_ms);
            wanted_ms = YOUNG[i < 2 ? i : 2];
            dunlin__retry_unreachable(&journal, &DEFAULTS, &now, seed * 7919 + (uint64_t)i * 104729,
                                      -1);
            cr_assert(journal.wait_ms >= wanted_ms / 2 && journal.wait_ms <= wanted_ms * 3 / 2,
                      "wait %d is %lld ms", i, (long long)journal.wait_ms);
            cr_assert_leq(journal.wait_ms, 6000);
            cr_assert_eq(journal.wait_from.boot_ms, now_ms);
            now_ms += journal.wait_ms;
        }
        for (int i = 0; i < 12; i++) {
            dunlin__moment now = at(now_ms);
            wanted_ms = wanted_ms < 7 * MINUTE_MS ? 2 * wanted_ms : 15 * MINUTE_MS;
            wanted_ms = wanted_ms < 15 * MINUTE_MS ? wanted_ms : 15 * MINUTE_MS;
            dunlin__retry_unreachable(&journal, &DEFAULTS, &now, seed + (uint64_t)i * 31, -1);
            cr_assert(journal.wait_ms >= wanted_ms / 2 && journal.wait_ms <= wanted_ms * 3 / 2,
                      "late wait %d is %lld ms, not about %lld", i, (long long)journal.wait_ms,
                      (long long)wanted_ms);
            now_ms += journal.wait_ms;
        }
        cr_assert_eq(wanted_ms, 15 * MINUTE_MS);
    }
}

Test(retry, the_jitter_is_full_and_even)
{
    double sum = 0.0;
    int64_t least = INT64_MAX;
    int64_t most = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        int64_t delay = dunlin__retry_jitter(4000, i * 0x9E3779B97F4A7C15ULL >> 11);
        least = delay < least ? delay : least;
        most = delay > most ? delay : most;
        sum += (double)delay;
    }
    cr_expect(least >= 2000 && least < 2050, "%lld", (long long)least);
    cr_expect(most <= 6000 && most > 5950, "%lld", (long long)most);
    cr_expect(fabs(sum / 10000 - 4000) < 50, "%g", sum / 10000);
    cr_expect_eq(dunlin__retry_jitter(0, 77), 0);
}

Test(retry, refusals_begin_at_ten_seconds)
{
    dunlin__journal journal = {0};
    int64_t wanted_ms = 10000;
    for (int i = 0; i < 60; i++) {
        dunlin__moment now = at(i);
        dunlin__retry_refused(&journal, &DEFAULTS, DUNLIN_PHASE_CHECKIN, &now, (uint64_t)i * 104729,
                              -1);
        cr_assert(journal.wait_ms >= wanted_ms / 2 && journal.wait_ms <= wanted_ms * 3 / 2,
                  "refusal %d waits %lld ms", i, (long long)journal.wait_ms);
        wanted_ms = wanted_ms < 120 * MINUTE_MS ? 2 * wanted_ms : 240 * MINUTE_MS;
    }
    cr_expect_eq(wanted_ms, 240 * MINUTE_MS);
}

Test(retry, what_the_server_asks_for_is_taken)
{
    static const int64_t ASKED[] = {300, 1000, 7000, 3 * 60 * MINUTE_MS};
    for (size_t i = 0; i < sizeof ASKED / sizeof ASKED[0]; i++) {
        dunlin__journal journal = {0};
        dunlin__moment now = at(5);
        dunlin__retry_unreachable(&journal, &DEFAULTS, &now, 3, ASKED[i]);
        cr_expect_eq(journal.wait_ms, ASKED[i]);
        dunlin__retry_refused(&journal, &DEFAULTS, DUNLIN_PHASE_CHECKIN, &now, 3, ASKED[i]);
        cr_expect_eq(journal.wait_ms, ASKED[i]);
    }
    dunlin__journal journal = {0};
    dunlin__moment now = at(5);
    dunlin__retry_unreachable(&journal, &DEFAULTS, &now, 3, 0);
    cr_expect_geq(journal.wait_ms, 500, "0 is no wait, and no leave to ask without end");
    dunlin__retry_unreachable(&journal, &DEFAULTS, &now, 3, 1);
    cr_expect_eq(journal.wait_ms, DUNLIN_RETRY_LEAST_MS);
}

Test(retry, the_apps_own_ladders)
{
    static const dunlin__retry OWN = {
        .first_ms = 50, .most_ms = 120, .refused_first_ms = 70, .refused_most_ms = 90};
    static const dunlin__retry LONG = {.first_ms = 60 * MINUTE_MS,
                                       .refused_first_ms = 600 * MINUTE_MS};
    dunlin__journal journal = {0};
    dunlin__moment now = at(0);
    for (int i = 0; i < 5; i++) {
        static const int64_t WANTED[] = {50, 100, 120, 120, 120};
        dunlin__retry_unreachable(&journal, &OWN, &now, (uint64_t)i * 977, -1);
        cr_expect(journal.wait_ms >= WANTED[i] / 2 && journal.wait_ms <= WANTED[i] * 3 / 2);
    }
    for (int i = 0; i < 3; i++) {
        dunlin__retry_refused(&journal, &OWN, DUNLIN_PHASE_CHECKIN, &now, (uint64_t)i * 977, -1);
        cr_expect(journal.wait_ms >= 35 && journal.wait_ms <= 135);
    }
    journal = (dunlin__journal){0};
    dunlin__retry_unreachable(&journal, &LONG, &now, 0, -1);
    cr_expect_geq(journal.wait_ms, 30 * MINUTE_MS, "a first wait above the default of the most");
    dunlin__retry_refused(&journal, &LONG, DUNLIN_PHASE_CHECKIN, &now, 0, -1);
    cr_expect_geq(journal.wait_ms, 300 * MINUTE_MS);
}

/* A refusal is over when what was refused has gone well, and not when something before it has. */
Test(retry, what_ends_a_row)
{
    dunlin__journal journal = {0};
    dunlin__moment now = at(0);
    dunlin__retry_unreachable(&journal, &DEFAULTS, &now, 0, -1);
    dunlin__retry_refused(&journal, &DEFAULTS, DUNLIN_PHASE_LEARN, &now, 0, -1);
    dunlin__retry_succeeded(&journal, DUNLIN_PHASE_CHECKIN);
    cr_expect_eq(journal.n_failures, 0);
    cr_expect_eq(journal.n_refusals, 1);
    dunlin__retry_refused(&journal, &DEFAULTS, DUNLIN_PHASE_CHECKIN, &now, 0, -1);
    cr_expect_eq(journal.refused_phase, DUNLIN_PHASE_LEARN, "the furthest counts");
    dunlin__retry_succeeded(&journal, DUNLIN_PHASE_FETCH);
    cr_expect_eq(journal.n_refusals, 2);
    dunlin__retry_succeeded(&journal, DUNLIN_PHASE_LEARN);
    cr_expect_eq(journal.n_refusals, 0);
}

/* --- rounds --- */

static void expect_wait(int64_t about_ms, const char *what)
{
    int64_t wait_ms = dunlin_client_wait_ms(w.client);
    cr_assert(wait_ms >= about_ms / 2 && wait_ms <= about_ms * 3 / 2, "%s: %lld ms, not about %lld",
              what, (long long)wait_ms, (long long)about_ms);
}

static void reopen(void)
{
    fake_world_close(&w);
    fake_world_open(&w);
}

/* The row is counted on from the storage after each kill, and one success ends it. */
RETRY_TEST(the_count_survives_a_kill_and_a_success_clears_it)
{
    static const int64_t WANTED[] = {1000, 2000, 4000, 4000};
    w.server.spoil_call = DUNLIN_CALL_CHECKIN;
    w.server.spoil = FAKE_LOST_REQUEST;
    for (int i = 0; i < 4; i++) {
        w.server.spoil_times = -1;
        (void)run(DUNLIN_CLOSED, DUNLIN_OUTCOME_NONE);
        expect_wait(WANTED[i], "away");
        reopen();
        expect_wait(WANTED[i], "after a kill");
        w.server.now_ms += dunlin_client_wait_ms(w.client);
    }
    w.server.spoil_times = 0;
    w.server.has_offer = false;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_NOT_SELECTED);
    reopen();
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    w.server.spoil_times = -1;
    (void)run(DUNLIN_CLOSED, DUNLIN_OUTCOME_NONE);
    expect_wait(1000, "a new row");
}

/* For as long as ten minutes the server may be away: its first answer comes within 6 s of its
 * return, wherever in the round the device was. Each call meets other times. */
RETRY_TEST(served_within_six_seconds_of_the_servers_return)
{
    static const dunlin__call CALLS[] = {DUNLIN_CALL_CHECKIN,    DUNLIN_CALL_ACCEPT,
                                         DUNLIN_CALL_OBJECT_GET, DUNLIN_CALL_PUT,
                                         DUNLIN_CALL_CHUNK_PUT,  DUNLIN_CALL_COMMIT};
    w.server.deadline_ms = 24ULL * 60 * MINUTE_MS;
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        const int64_t first_ms = 500 + 97000 * (int64_t)i;
        for (int64_t away_ms = first_ms; away_ms < 10 * MINUTE_MS - 6000; away_ms += 291000) {
            dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
            int64_t back_ms = w.server.now_ms + away_ms;
            w.server.round++;
            w.server.spoil_call = CALLS[i];
            w.server.spoil = FAKE_LOST_REQUEST;
            while (w.server.now_ms <= back_ms) {
                int n_before = w.server.n_calls[CALLS[i]];
                w.server.spoil_times = -1;
                int64_t wait_ms = 0;
                bool is_ended = false;
                while (!is_ended && w.server.now_ms <= back_ms) {
                    dunlin_status status =
                        dunlin_client_step(w.client, 0, &wait_ms, &is_ended, &report);
                    cr_assert(status == DUNLIN_OK || status == DUNLIN_CLOSED);
                    w.server.now_ms += wait_ms;
                }
                w.server.now_ms += is_ended ? dunlin_client_wait_ms(w.client) : 0;
                cr_assert(w.server.now_ms > back_ms || w.server.n_calls[CALLS[i]] > n_before);
            }
            cr_assert_leq(w.server.now_ms - back_ms, 6000, "call %d, away for %lld ms",
                          (int)CALLS[i], (long long)away_ms);
            w.server.spoil_times = 0;
            (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
            w.server.now_ms += dunlin_client_wait_ms(w.client);
        }
    }
}

/* A training that fails is not repeated in a hot loop: 10 s, 20 s, 40 s ..., though each check-in
 * between goes well. */
RETRY_TEST(a_training_that_fails_is_not_repeated_at_once)
{
    w.learner.fit_status = DUNLIN_NUMERIC;
    for (int64_t about_ms = 10000; about_ms <= 160000; about_ms *= 2) {
        (void)run(DUNLIN_NUMERIC, DUNLIN_OUTCOME_NONE);
        expect_wait(about_ms, "failed for good");
        reopen();
        w.server.now_ms += dunlin_client_wait_ms(w.client);
    }
    w.learner.fit_status = DUNLIN_OK;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    w.server.round++;
    w.learner.fit_status = DUNLIN_NUMERIC;
    (void)run(DUNLIN_NUMERIC, DUNLIN_OUTCOME_NONE);
    expect_wait(10000, "after a success");
}

/* Nor one that fails for a reason that may pass, which keeps the assignment. */
RETRY_TEST(a_training_that_lacks_memory_is_not_repeated_at_once)
{
    w.server.deadline_ms = 60 * MINUTE_MS;
    w.learner.fit_status = DUNLIN_MEMORY;
    for (int64_t about_ms = 10000; about_ms <= 80000; about_ms *= 2) {
        int n_fits = w.learner.n_fits;
        (void)run(DUNLIN_MEMORY, DUNLIN_OUTCOME_NONE);
        cr_expect_eq(w.learner.n_fits, n_fits + 1);
        expect_wait(about_ms, "no memory");
        w.server.now_ms += dunlin_client_wait_ms(w.client);
    }
    w.learner.fit_status = DUNLIN_OK;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_ACCEPT], 1, "the assignment was kept");
}

RETRY_TEST(waits_out_of_range_are_refused_by_name)
{
    static const struct {
        int64_t first, most, refused_first, refused_most;
        const char *names;
    } CASES[] = {{-1, 0, 0, 0, "retry_first_ms is -1"},
                 {2, 1, 0, 0, "retry_most_ms 1"},
                 {0, 8LL * 24 * 3600 * 1000, 0, 0, "604800000"},
                 {0, 0, -5, 0, "retry_refused_first_ms is -5"},
                 {0, 0, 0, INT64_MIN, "retry_refused_most_ms -9223372036854775808"},
                 {0, 0, INT64_MAX, 0, "604800000"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        dunlin_client_options options = w.options;
        dunlin_client *client = NULL;
        dunlin_error error = {0};
        options.name = "other";
        options.retry_first_ms = CASES[i].first;
        options.retry_most_ms = CASES[i].most;
        options.retry_refused_first_ms = CASES[i].refused_first;
        options.retry_refused_most_ms = CASES[i].refused_most;
        cr_expect_eq(dunlin_client_create(w.runtime, &options, &w.plug, &client, &error),
                     DUNLIN_ARGUMENT);
        cr_expect_not_null(strstr(error.text, CASES[i].names), "%s", error.text);
        dunlin_client_destroy(client);
    }
}

/* What a client waits after it could not reach its server for the first time. */
static int64_t wait_of_seed(uint64_t seed)
{
    fake_world_close(&w);
    w.options.random_seed = seed;
    w.options.retry_first_ms = 1000000;
    w.options.retry_most_ms = 1000000;
    fake_world_open(&w);
    w.server.spoil_call = DUNLIN_CALL_ENROL;
    w.server.spoil = FAKE_LOST_REQUEST;
    w.server.spoil_times = -1;
    (void)run(DUNLIN_CLOSED, DUNLIN_OUTCOME_NONE);
    const int64_t wait_ms = dunlin_client_wait_ms(w.client);
    w.server.now_ms += wait_ms;
    return wait_ms;
}

RETRY_TEST(waits_follow_from_a_seed)
{
    const int64_t first_ms = wait_of_seed(5);
    cr_expect_eq(wait_of_seed(5), first_ms);
    cr_expect_neq(wait_of_seed(6), first_ms);
}

/* An app that was built before these options were there gets the defaults. */
RETRY_TEST(an_older_app_gets_the_defaults)
{
    fake_world_close(&w);
    memset((char *)&w.options + offsetof(dunlin_client_options, retry_first_ms), 0x7F,
           sizeof w.options - offsetof(dunlin_client_options, retry_first_ms));
    w.options.struct_size = offsetof(dunlin_client_options, retry_first_ms);
    fake_world_open(&w);
    w.server.spoil_call = DUNLIN_CALL_ENROL;
    w.server.spoil = FAKE_LOST_REQUEST;
    w.server.spoil_times = -1;
    (void)run(DUNLIN_CLOSED, DUNLIN_OUTCOME_NONE);
    expect_wait(1000, "default");
}
