/*
 * test_calls.c - signatures, counters, idempotency keys, bodies that are not what they should be.
 */
#include "server/device.h"

#include <wire/digest.h>

#include <criterion/criterion.h>

#include <random.h>
#include <stdio.h>
#include <string.h>

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void begin(test_server *fixture, test_device *device)
{
    test_server_folder(fixture);
    test_server_open(fixture, ", \"rounds\": 3, \"cohort\": 2", 0);
    test_device_make(device, fixture);
    cr_assert_eq(test_enrol(device, -1), 200, "%s", device->status.text);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

Test(calls, a_wrong_signature_is_refused)
{
    test_server fixture;
    test_device device;
    dunlin__checkin_response answer;
    begin(&fixture, &device);
    device.private_key[5] ^= 1;
    cr_assert_eq(test_checkin(&device, &answer), 401);
    cr_assert_eq(device.status.code, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED);
    device.private_key[5] ^= 1;
    cr_assert_eq(test_checkin(&device, &answer), 200);
    end(&fixture);
}

Test(calls, an_enrolment_needs_the_key_it_brings)
{
    test_server fixture;
    test_device device;
    test_device other;
    begin(&fixture, &device);
    test_device_make(&other, &fixture);
    memcpy(other.public_key, device.public_key, sizeof other.public_key);
    cr_assert_eq(test_enrol(&other, -1), 401);
    end(&fixture);
}

Test(calls, enrolling_twice_gives_the_same_device)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device);
    char id[DUNLIN_WIRE_ID_BYTES];
    memcpy(id, device.id, sizeof id);
    cr_assert_eq(test_enrol(&device, -1), 200);
    cr_assert_str_eq(id, device.id);
    cr_assert_eq(fixture.server.devices.n_known, 1);
    end(&fixture);
}

Test(calls, an_index_can_be_asked_for_and_taken_over)
{
    test_server fixture;
    test_device first;
    test_device second;
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 3, \"cohort\": 2, \"clients\": 3", 0);
    test_device_make(&first, &fixture);
    cr_assert_eq(test_enrol(&first, 3), 403);
    cr_assert_eq(test_enrol(&first, 2), 200);
    cr_assert_eq(dunlin__devices_find(&fixture.server, first.id)->row.client_index, 2);
    test_device_make(&second, &fixture);
    cr_assert_eq(test_enrol(&second, 2), 200);
    dunlin__checkin_response answer;
    cr_assert_eq(test_checkin(&first, &answer), 403, "its place was taken over");
    cr_assert_eq(test_checkin(&second, &answer), 200);
    test_device more[3];
    for (int i = 0; i < 3; i++) {
        test_device_make(&more[i], &fixture);
        cr_assert_eq(test_enrol(&more[i], -1), i < 2 ? 200 : 403);
    }
    end(&fixture);
}

Test(calls, a_counter_counts_once)
{
    test_server fixture;
    test_device device;
    dunlin__checkin_response answer;
    begin(&fixture, &device);
    cr_assert_eq(test_checkin(&device, &answer), 200);
    device.counter--;
    cr_assert_eq(test_checkin(&device, &answer), 401);
    cr_assert_eq(device.status.code, DUNLIN_V1_STATUS_CODE_REPLAYED);
    cr_assert_str_neq(device.status.challenge, device.challenge);
    memcpy(device.challenge, device.status.challenge, sizeof device.challenge);
    cr_assert_eq(test_checkin(&device, &answer), 200);
    end(&fixture);
}

Test(calls, the_counter_window_is_exact)
{
    uint64_t state = test_seed(3);
    int n_cases = test_cases(50);
    for (int n = 0; n < n_cases; n++) {
        enum { SPAN = 300 };
        dunlin__server_device device = {0};
        bool used[SPAN] = {false};
        uint64_t top = 0;
        for (int i = 0; i < 400; i++) {
            uint64_t counter = test_random_below(&state, SPAN);
            bool is_wanted = counter > 0 && !used[counter] && counter + 64 > top;
            cr_assert_eq(dunlin__device_use_counter(&device, counter), is_wanted,
                         "case %d: counter %d, top %d", n, (int)counter, (int)top);
            used[counter] = used[counter] || is_wanted;
            top = is_wanted && counter > top ? counter : top;
        }
    }
}

Test(calls, a_retry_gets_the_stored_answer)
{
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    dunlin__commit_response commit;
    begin(&fixture, &device);
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_put(&device, ones, &put), 200);
    test_send_chunks(&device, ones);
    const char *key = "0123456789abcdef0123456789abcdef";
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(test_commit(&device, 5, key, &commit), 200, "%s", device.status.text);
        cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    cr_assert_eq(test_commit(&device, 6, key, &commit), 409);
    cr_assert_eq(device.status.code, DUNLIN_V1_STATUS_CODE_IDEMPOTENCY_CONFLICT);
    /* Another key: the answer is the same, and it counts once. */
    cr_assert_eq(test_commit(&device, 5, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(dunlin__server_count_parts(&fixture.server, fixture.now_ms).n_accepted, 1);
    end(&fixture);
}

Test(calls, one_contribution_per_device_and_round)
{
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    dunlin__commit_response commit;
    begin(&fixture, &device);
    cr_assert(test_take_work(&device));
    test_device before = device;
    /* It lost its journal and takes the work again: the older assignment is replaced. */
    cr_assert(test_take_work(&device));
    before.counter = device.counter;
    cr_assert_eq(test_put(&before, ones, &put), 410);
    device.counter = before.counter;
    cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    before.counter = device.counter;
    memcpy(before.manifest_sha256, device.manifest_sha256, sizeof before.manifest_sha256);
    cr_assert_eq(test_commit(&before, 1, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
    device.counter = before.counter;
    cr_assert(!test_take_work(&device));
    end(&fixture);
}

/* It lost its journal after it had contributed, key and all, and comes back by its invitation: what
 * it gave counts, and what it gives again does not; the round ends when the others are done. */
Test(calls, a_lost_journal_does_not_count_twice)
{
    test_server fixture;
    test_device device;
    test_device again;
    test_device other;
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 3, \"cohort\": 2, \"over_select\": 2", 0);
    test_join(&device, &fixture, 0);
    cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    for (int i = 0; i < 3; i++) {
        test_device_make(&again, &fixture);
        cr_assert_eq(test_enrol(&again, 0), 200, "%s", again.status.text);
        if (i == 2) {
            test_server_close(&fixture); /* also after a restart */
            test_server_open(&fixture, ", \"rounds\": 3, \"cohort\": 2, \"over_select\": 2", 0);
            dunlin__checkin_response answer;
            cr_assert_eq(test_checkin(&again, &answer), 401);
            memcpy(again.challenge, again.status.challenge, sizeof again.challenge);
        }
        cr_expect_eq(dunlin__server_count_parts(&fixture.server, fixture.now_ms).n_accepted, 1,
                     "%d: what was accepted counts", i);
        if (test_take_work(&again)) {
            cr_expect_eq(test_contribute(&again, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
        }
        cr_expect_eq(dunlin__server_count_parts(&fixture.server, fixture.now_ms).n_accepted, 1);
    }
    test_join(&other, &fixture, 1);
    cr_assert_eq(test_contribute(&other, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_expect_eq(fixture.server.closed[0].n_participants, 2);
    cr_expect_eq(fixture.server.closed[0].reason, DUNLIN_CLOSE_GOAL);
    end(&fixture);
}

/* The transaction fails after the update was moved: nothing counts, and the retry does. */
Test(calls, a_commit_that_fails_halfway_can_be_made_again)
{
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    dunlin__commit_response commit;
    dunlin_error error = {0};
    begin(&fixture, &device);
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_put(&device, ones, &put), 200);
    test_send_chunks(&device, ones);
    /* The stored answer cannot be written: its key is taken by a row that the look-up misses. */
    dunlin__server_path spool;
    cr_assert_eq(
        dunlin__server_spool_path(&fixture.server, device.assignment.assignment_id, &spool, &error),
        DUNLIN_OK);
    cr_assert_eq(dunlin__server_db_begin(fixture.server.db, false, &error), DUNLIN_OK);
    cr_assert_eq(test_commit(&device, 5, NULL, &commit), 500, "a transaction within a transaction");
    cr_assert_eq(dunlin__server_count_parts(&fixture.server, fixture.now_ms).n_accepted, 0);
    cr_assert_eq(test_commit(&device, 5, NULL, &commit), 401, "challenges were drawn anew");
    memcpy(device.challenge, device.status.challenge, sizeof device.challenge);
    cr_assert_eq(test_commit(&device, 5, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(dunlin__server_file_size(spool.text), (int64_t)sizeof ones);
    end(&fixture);
}

Test(calls, others_work_is_not_theirs)
{
    test_server fixture;
    test_device device;
    test_device other;
    dunlin__commit_response commit;
    begin(&fixture, &device);
    cr_assert(test_take_work(&device));
    test_join(&other, &fixture, -1);
    memcpy(other.assignment.assignment_id, device.assignment.assignment_id,
           sizeof other.assignment.assignment_id);
    memset(other.manifest_sha256, 1, sizeof other.manifest_sha256);
    cr_assert_eq(test_commit(&other, 1, NULL, &commit), 404);
    cr_assert_eq(test_abort(&other), 404);
    memcpy(other.session, device.session, sizeof other.session);
    cr_assert_eq(test_accept(&other), 404);
    end(&fixture);
}

Test(calls, a_commit_without_its_chunks_is_refused)
{
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    dunlin__commit_response commit;
    begin(&fixture, &device);
    cr_assert(test_take_work(&device));
    memset(device.manifest_sha256, 1, sizeof device.manifest_sha256);
    cr_assert_eq(test_commit(&device, 1, NULL, &commit), 400);
    cr_assert_eq(test_put(&device, ones, &put), 200);
    cr_assert_eq(put.n_chunks, 1);
    cr_assert_eq(put.missing.bytes[0], 1);
    cr_assert_eq(test_commit(&device, 1, NULL, &commit), 400);
    cr_assert_not_null(strstr(device.status.text, "has not been sent"), "%s", device.status.text);
    test_send_chunks(&device, ones);
    device.manifest_sha256[DUNLIN_SHA256_BYTES - 1] ^= 1;
    cr_assert_eq(test_commit(&device, 1, NULL, &commit), 400, "a digest wrong in its last byte");
    cr_assert_not_null(strstr(device.status.text, "manifest_sha256"), "%s", device.status.text);
    cr_assert_eq(test_put(&device, ones, &put), 200);
    cr_assert_eq(put.missing.bytes[0], 0);
    const float twos[10] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    test_device copy = device;
    cr_assert_eq(test_put(&copy, twos, &put), 400, "a second manifest");
    end(&fixture);
}

Test(calls, forgetting_takes_all_away)
{
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    begin(&fixture, &device);
    cr_assert(test_take_work(&device));
    dunlin__forget_request request = {.protocol_version = DUNLIN_WIRE_VERSION};
    dunlin__forget_response answer;
    uint8_t body[32];
    size_t n_body = 0;
    cr_assert_eq(dunlin__forget_request_encode(&request, body, sizeof body, &n_body, &error),
                 DUNLIN_OK);
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_FORGET, TEST_POPULATION);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(test_send(&device, &route, body, n_body, NULL), 200);
        cr_assert_eq(
            dunlin__forget_response_decode(device.reply.body, device.reply.n_body, &answer, &error),
            DUNLIN_OK);
        cr_assert_eq(answer.was_known, i == 0);
    }
    dunlin__checkin_response checkin;
    cr_assert_eq(test_checkin(&device, &checkin), 401);
    cr_assert_eq(fixture.server.devices.n_known, 0);
    test_server_close(&fixture);
    test_server_open(&fixture, ", \"rounds\": 3, \"cohort\": 2", 0);
    cr_assert_eq(fixture.server.devices.n_known, 0);
    end(&fixture);
}

Test(calls, wrong_places_are_not_found)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device);
    uint8_t body[4] = {8, 1, 0, 0};
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_FORGET, "elsewhere");
    cr_assert_eq(test_send(&device, &route, body, 2, NULL), 404);
    route = dunlin__route_make(DUNLIN_CALL_SECAGG, "a");
    route.secagg_step = 1;
    cr_assert_eq(test_send(&device, &route, body, 2, NULL), 404);
    /* A refusal, no failure: nobody's challenge is drawn anew for it. */
    dunlin__checkin_response answer;
    cr_assert_eq(test_checkin(&device, &answer), 200, "%s", device.status.text);
    cr_assert_eq(test_send(&device, &route, body, 2, "short"), 400);
    end(&fixture);
}

/* Every call with bytes nobody meant: a status of ours, never a crash, never a success. */
Test(calls, rubbish_is_refused_with_a_status)
{
    static const dunlin__call calls[] = {
        DUNLIN_CALL_ENROL,  DUNLIN_CALL_CHECKIN, DUNLIN_CALL_ACCEPT, DUNLIN_CALL_PUT,
        DUNLIN_CALL_COMMIT, DUNLIN_CALL_ABORT,   DUNLIN_CALL_FORGET, DUNLIN_CALL_TELEMETRY};
    test_server fixture;
    test_device device;
    begin(&fixture, &device);
    cr_assert(test_take_work(&device));
    uint64_t seed = test_seed(5);
    uint64_t state = seed;
    int n_cases = test_cases(150);
    for (int n = 0; n < n_cases; n++) {
        dunlin__call call = calls[test_random_below(&state, sizeof calls / sizeof calls[0])];
        const char *id =
            call == DUNLIN_CALL_ACCEPT ? device.session
            : call == DUNLIN_CALL_PUT || call == DUNLIN_CALL_COMMIT || call == DUNLIN_CALL_ABORT
                ? device.assignment.assignment_id
                : TEST_POPULATION;
        uint8_t body[600];
        size_t n_body = test_random_below(&state, sizeof body);
        for (size_t i = 0; i < n_body; i++) {
            body[i] = (uint8_t)test_random_u64(&state);
        }
        if (n_body == 0) {
            n_body = 1;
            body[0] = 0xff;
        }
        body[0] |= 0x80; /* never a whole message by chance */
        dunlin__route route = dunlin__route_make(call, id);
        uint32_t code = test_send(&device, &route, body, n_body, NULL);
        cr_assert(code >= 400 && code < 500, "seed %llu case %d: call %d gave %u",
                  (unsigned long long)seed, n, (int)call, code);
        cr_assert_neq(device.status.code, DUNLIN_V1_STATUS_CODE_UNSPECIFIED);
    }
    cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    end(&fixture);
}

Test(calls, a_body_beyond_the_limit_is_refused)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device);
    static uint8_t body[DUNLIN_WIRE_BODY_BYTES + 1];
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_CHECKIN, TEST_POPULATION);
    cr_assert_eq(test_send(&device, &route, body, sizeof body, NULL), 413);
    end(&fixture);
}
