/*
 * test_run_over.c - what a device is told when all rounds are over: signed, for it alone, with the
 * model that is left; and what an older device is told.
 */
#include "server/device.h"

#include <criterion/criterion.h>

#include <string.h>

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static test_server fixture;
static test_device devices[2];
static dunlin__checkin_response answer;

static void take_round(void)
{
    dunlin__put_response put;
    dunlin__commit_response commit;
    cr_assert(test_take_work(&devices[0]));
    cr_assert_eq(test_put(&devices[0], ones, &put), 200);
    test_send_chunks(&devices[0], ones);
    cr_assert_eq(test_commit(&devices[0], 1, NULL, &commit), 200);
    dunlin__server_tick(&fixture.server);
}

static void begin(void)
{
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 2, \"cohort\": 1", 0);
    for (int i = 0; i < 2; i++) {
        test_device_make(&devices[i], &fixture);
        cr_assert_eq(test_enrol(&devices[i], -1), 200);
        devices[i].knows_end = true;
    }
}

static void end(void)
{
    test_server_close(&fixture);
    test_server_end(&fixture);
}

/* What the statement is when the server's own key has signed it. */
static dunlin__run_over open_statement(const test_device *device)
{
    dunlin__run_over statement;
    dunlin_error error = {0};
    dunlin__trusted_key key = {0};
    strcpy(key.key_id, fixture.server.certs.key_id);
    memcpy(key.public_key, fixture.server.certs.signing_public, sizeof key.public_key);
    cr_assert(answer.has_run_over);
    cr_assert_eq(dunlin__run_over_open(&answer.run_over, &key, 1, &statement, &error), DUNLIN_OK,
                 "%s", error.text);
    cr_expect_str_eq(statement.population, TEST_POPULATION);
    cr_expect_str_eq(statement.task, "sums");
    cr_expect_str_eq(statement.device_id, device->id);
    cr_expect_eq(statement.run_epoch, (uint64_t)fixture.server.run_epoch);
    return statement;
}

Test(run_over, is_told_to_each_device_after_the_last_round_and_not_before)
{
    begin();
    take_round();
    cr_assert_eq(test_checkin(&devices[1], &answer), 200);
    cr_expect_not(answer.has_run_over);
    cr_assert_eq(test_decline(&devices[1]), 200);
    take_round();
    dunlin__server_tick(&fixture.server);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(test_checkin(&devices[i], &answer), 200);
        cr_assert_eq(answer.rejection, DUNLIN_V1_REJECTION_NO_WORK);
        const dunlin__run_over statement = open_statement(&devices[i]);
        cr_expect_eq(statement.round, 2);
        cr_expect_eq(memcmp(statement.model_manifest_sha256,
                            fixture.server.models[0].manifest_sha256, DUNLIN_SHA256_BYTES),
                     0);
        cr_expect_eq(fixture.server.models[0].round, 3);
        cr_expect_eq(statement.model_manifest_bytes, fixture.server.models[0].n_manifest_bytes);
        cr_expect_eq(statement.window.min_ms, 3600000);
        cr_expect_eq(answer.rejected_window.min_ms, 200, "what an older client reads");
    }
    end();
}

Test(run_over, its_wait_is_the_operators)
{
    begin();
    fixture.server.options.over_ms = 5000;
    take_round();
    take_round();
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(test_checkin(&devices[1], &answer), 200);
    cr_expect_eq(open_statement(&devices[1]).window.min_ms, 5000);
    end();
}

Test(run_over, an_older_device_reads_what_it_always_did)
{
    begin();
    take_round();
    take_round();
    dunlin__server_tick(&fixture.server);
    devices[1].knows_end = false;
    cr_assert_eq(test_checkin(&devices[1], &answer), 200);
    cr_expect_not(answer.has_run_over);
    cr_expect_eq(answer.rejection, DUNLIN_V1_REJECTION_NO_WORK);
    end();
}

/* A model that may be taken back yet is not named: not before the server has settled the end. */
Test(run_over, nothing_is_stated_before_the_last_model_is_settled)
{
    begin();
    take_round();
    take_round();
    fixture.server.is_exported = false;
    cr_assert_eq(test_checkin(&devices[1], &answer), 200);
    cr_expect_not(answer.has_run_over);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(test_checkin(&devices[1], &answer), 200);
    cr_expect(answer.has_run_over);
    end();
}
