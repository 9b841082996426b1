/*
 * test_telemetry.c - telemetry: nothing without consent, numbers alone with it, once each whatever
 * is lost on the way, bounded on the storage, gone when consent is.
 */
#include "client/fake_server.h"
#include "telemetry/telemetry.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static fake_world w;

static void begin(bool is_agreed)
{
    fake_world_make(&w);
    w.options.sends_telemetry = is_agreed;
    fake_world_open(&w);
}

static void end(void)
{
    fake_world_close(&w);
    cr_assert_str_eq(w.server.complaint, "");
    fake_folder_remove(w.folder);
}

static void run(dunlin_status wanted)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    dunlin_status status = dunlin_client_run_round(w.client, &report);
    cr_assert_eq(status, wanted, "%s: %s", dunlin_status_name(status),
                 dunlin_client_last_error(w.client)->text);
    w.server.now_ms += dunlin_client_wait_ms(w.client) + 1;
    w.server.round++;
}

static bool has_file(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/telemetry.db", w.folder);
    return access(path, F_OK) == 0;
}

static const dunlin__telemetry_record *find(uint32_t event)
{
    for (size_t i = 0; i < w.server.telemetry.records_count; i++) {
        if (w.server.telemetry.records[i].event == event) {
            return &w.server.telemetry.records[i];
        }
    }
    return NULL;
}

Test(telemetry, nothing_is_noted_without_consent)
{
    begin(false);
    run(DUNLIN_OK);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_TELEMETRY], 0);
    cr_expect_not(has_file());
    end();
}

Test(telemetry, a_round_is_told_in_numbers)
{
    begin(true);
    w.learner.clock = &w.server;
    w.learner.slice_ms = 700;
    run(DUNLIN_OK);
    cr_assert_eq(w.server.n_calls[DUNLIN_CALL_TELEMETRY], 1);
    const dunlin__telemetry_record *learn = find(DUNLIN_TELEMETRY_PHASE + DUNLIN_PHASE_LEARN);
    const dunlin__telemetry_record *round = find(DUNLIN_TELEMETRY_ROUND);
    const dunlin__telemetry_record *up = find(DUNLIN_TELEMETRY_BYTES_UP);
    cr_assert(learn != NULL && round != NULL && up != NULL);
    cr_expect_eq(learn->count, 3);
    cr_expect_float_eq(learn->value, 2100.0, 0);
    cr_expect_eq(round->count, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_geq(up->value, (double)sizeof w.server.update);
    cr_expect_null(find(DUNLIN_TELEMETRY_FAILURE));
    for (uint32_t phase = DUNLIN_PHASE_ENROL; phase < DUNLIN_PHASE_ABORT; phase++) {
        cr_expect_not_null(find(phase), "%u", phase);
    }
    cr_expect_geq(strlen(w.server.telemetry.batch_id), 32);
    int n_records = w.server.n_telemetry_records;
    run(DUNLIN_OK);
    cr_expect_eq(w.server.n_telemetry_records, 2 * n_records - 1, "no second enrolment");
    end();
}

Test(telemetry, how_a_plan_had_it_stored_is_told)
{
    begin(true);
    run(DUNLIN_OK);
    cr_expect_null(find(DUNLIN_TELEMETRY_STORAGE));
    w.server.plan.storage = DUNLIN_V1_STORAGE_INT8;
    w.server.required_feature = DUNLIN_V1_FEATURE_STORAGE;
    run(DUNLIN_OK);
    const dunlin__telemetry_record *storage = find(DUNLIN_TELEMETRY_STORAGE);
    cr_assert_not_null(storage);
    cr_expect_eq(storage->count, 1);
    cr_expect_float_eq(storage->value, (double)DUNLIN_TASK_STORAGE_INT8, 0);
    end();
}

/* The bytes of telemetry are none of a round's, whose limits are hard lines. */
Test(telemetry, is_not_counted_among_a_rounds_bytes)
{
    uint64_t sent[2];
    for (int i = 0; i < 2; i++) {
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        begin(i == 1);
        run(DUNLIN_OK);
        cr_assert_eq(dunlin_client_run_round(w.client, &report), DUNLIN_OK);
        sent[i] = report.body_bytes_sent;
        end();
    }
    /* Numbers in the commit differ by their digits alone. */
    cr_expect_leq(sent[1] > sent[0] ? sent[1] - sent[0] : sent[0] - sent[1], 40);
}

/* Whatever is lost, a batch is sent again as the same request, and counted once. */
Test(telemetry, a_lost_answer_is_not_counted_twice)
{
    static const fake_spoil SPOILS[] = {FAKE_LOST_REQUEST, FAKE_LOST_REPLY, FAKE_BROKEN, FAKE_BUSY,
                                        FAKE_RUBBISH};
    for (size_t i = 0; i < sizeof SPOILS / sizeof SPOILS[0]; i++) {
        begin(true);
        w.server.spoil_call = DUNLIN_CALL_TELEMETRY;
        w.server.spoil = SPOILS[i];
        w.server.spoil_times = 1;
        run(DUNLIN_OK);
        for (int k = 0; k < 4; k++) {
            run(DUNLIN_OK);
        }
        /* 11 of the first round, 10 of each that follows: no second enrolment. */
        cr_expect_eq(w.server.n_telemetry_records, 11 + 4 * 10, "%d: %d", (int)SPOILS[i],
                     w.server.n_telemetry_records);
        cr_expect_eq(w.server.n_contributions, 5);
        end();
    }
}

Test(telemetry, a_failure_is_noted_and_nothing_waits_without_end)
{
    begin(true);
    w.learner.fit_status = DUNLIN_NUMERIC;
    for (int i = 0; i < 60; i++) {
        run(DUNLIN_NUMERIC);
    }
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_TELEMETRY], 0, "not after a failure");
    w.learner.fit_status = DUNLIN_OK;
    int n_rounds = 0;
    while (n_rounds < 60 && (n_rounds == 0 || w.server.telemetry.records_count == 32)) {
        run(DUNLIN_OK);
        n_rounds++;
    }
    cr_expect_not_null(find(DUNLIN_TELEMETRY_ROUND));
    cr_expect_leq(w.server.n_telemetry_records, DUNLIN_TELEMETRY_WAITING + n_rounds * 10);
    cr_expect_geq(w.server.n_telemetry_records, DUNLIN_TELEMETRY_WAITING - 13);
    end();
}

Test(telemetry, withdrawn_consent_removes_what_waits)
{
    begin(true);
    w.server.spoil_call = DUNLIN_CALL_TELEMETRY;
    w.server.spoil = FAKE_LOST_REQUEST;
    w.server.spoil_times = -1;
    run(DUNLIN_OK);
    cr_assert(has_file());
    cr_assert_eq(dunlin_client_set_telemetry(w.client, false), DUNLIN_OK);
    w.server.spoil = FAKE_FINE;
    run(DUNLIN_OK);
    cr_assert_eq(dunlin_client_set_telemetry(w.client, true), DUNLIN_OK);
    run(DUNLIN_OK);
    cr_expect_eq(w.server.n_telemetry_records, 10, "the last round's alone: %d",
                 w.server.n_telemetry_records);
    /* The same for a client that is opened without it. */
    w.server.spoil = FAKE_LOST_REQUEST;
    run(DUNLIN_OK);
    fake_world_close(&w);
    w.options.sends_telemetry = false;
    fake_world_open(&w);
    fake_world_close(&w);
    w.options.sends_telemetry = true;
    w.server.spoil = FAKE_FINE;
    fake_world_open(&w);
    run(DUNLIN_OK);
    cr_expect_eq(w.server.n_telemetry_records, 20);
    end();
}
