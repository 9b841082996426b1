/*
 * test_places.c - a place is proved: tokens, the old key, certificates; what nobody gets without
 * one, and the warnings when a place changes hands.
 */
#include "server/device.h"
#include "state/places.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST "0123456789abcdef0123456789abcdef"
#define SECOND "x9Y_-abcdefghijklmnopq"
#define THIRD "fedcba9876543210fedcba9876543210"

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* All that the server logs. */
static char logged[4096];

static void note(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    (void)ctx;
    (void)level;
    size_t n = strlen(logged);
    (void)snprintf(logged + n, sizeof logged - n, "%s: %s\n", subsystem, text);
}

static void reopen(test_server *fixture, const char *keys, const char *tokens)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s", test_server_write(fixture, "tokens", tokens));
    fixture->tokens = path;
    fixture->log = (dunlin_log){.write_fn = note, .level = DUNLIN_LOG_DEBUG};
    test_server_open(fixture, keys, 0);
}

static void begin(test_server *fixture, const char *keys, const char *tokens)
{
    test_server_folder(fixture);
    logged[0] = 0;
    reopen(fixture, keys, tokens);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
    cr_expect_null(strstr(logged, "0123456789abcdef"), "a token was logged: %s", logged);
    cr_expect_null(strstr(logged, "x9Y_"), "a token was logged: %s", logged);
}

static int64_t place_of(const test_device *device)
{
    const dunlin__server_device *row = dunlin__devices_find(&device->fixture->server, device->id);
    return row != NULL ? row->row.client_index : -1;
}

static void expect_refused(test_device *device, const char *invitation, const char *says)
{
    cr_expect_eq(test_enrol_with(device, invitation), 403, "%s", invitation);
    cr_expect_not_null(strstr(device->status.text, says), "%s", device->status.text);
    cr_expect(invitation[0] == 0 || strstr(device->status.text, invitation) == NULL,
              "the answer repeats the token");
}

/* Case D4 of the field report: a stranger who names a place does not get it, however often. */
Test(places, an_index_is_no_proof)
{
    test_server fixture;
    test_device honest;
    test_device stranger;
    test_server_folder(&fixture);
    fixture.is_open = true;
    test_server_open(&fixture, ", \"rounds\": 1, \"cohort\": 2, \"clients\": 2", 0);
    test_device_make(&honest, &fixture);
    cr_assert_eq(test_enrol(&honest, -1), 200);
    for (int i = 0; i < 44; i++) {
        test_device_make(&stranger, &fixture);
        expect_refused(&stranger, "index:0", "--claimed-places");
    }
    dunlin__checkin_response answer;
    cr_expect_eq(test_checkin(&honest, &answer), 200, "%s", honest.status.text);
    cr_expect_eq(place_of(&honest), 0);
    cr_expect_eq(fixture.server.devices.n_known, 1);
    end(&fixture);
}

Test(places, a_token_gives_its_place_once)
{
    test_server fixture;
    test_device first;
    test_device second;
    test_device thief;
    const char *keys = ", \"rounds\": 2, \"cohort\": 2, \"clients\": 2";
    const char *tokens = "# two places\n" FIRST "\n\n  " SECOND "  1 # the second\n";
    begin(&fixture, keys, tokens);
    test_device_make(&first, &fixture);
    test_device_make(&second, &fixture);
    test_device_make(&thief, &fixture);
    expect_refused(&thief, "", "takes a token");
    expect_refused(&thief, "index:0", "not known");
    expect_refused(&thief, THIRD, "not known");
    cr_assert_eq(test_enrol_with(&second, SECOND), 200, "%s", second.status.text);
    cr_assert_eq(test_enrol_with(&first, FIRST), 200, "%s", first.status.text);
    cr_expect_eq(place_of(&first), 0);
    cr_expect_eq(place_of(&second), 1);
    char id[DUNLIN_WIRE_ID_BYTES];
    memcpy(id, first.id, sizeof id);
    expect_refused(&thief, FIRST, "used by another key");
    /* The answer was lost: the same key asks again, also with the server started anew. */
    cr_assert_eq(test_enrol_with(&first, FIRST), 200);
    cr_expect_str_eq(first.id, id);
    test_server_close(&fixture);
    reopen(&fixture, keys, tokens);
    cr_assert_eq(test_enrol_with(&first, FIRST), 200);
    cr_expect_str_eq(first.id, id);
    expect_refused(&thief, FIRST, "used by another key");
    /* The key alone proves its place. */
    cr_assert_eq(test_enrol_with(&second, ""), 200);
    cr_expect_eq(place_of(&second), 1);
    cr_expect_null(strstr(logged, "changed hands"));
    end(&fixture);
}

/* A lost store: nothing helps but a new token for the place, and the old key is refused with the
 * reason. */
Test(places, a_new_token_moves_a_place_and_both_sides_hear_of_it)
{
    test_server fixture;
    test_device lost;
    test_device anew;
    const char *keys = ", \"rounds\": 2, \"cohort\": 1, \"clients\": 1";
    begin(&fixture, keys, FIRST "\n");
    test_device_make(&lost, &fixture);
    test_device_make(&anew, &fixture);
    cr_assert_eq(test_enrol_with(&lost, FIRST), 200);
    expect_refused(&anew, FIRST, "another key");
    test_server_close(&fixture);
    reopen(&fixture, keys, FIRST "\n" SECOND " 0\n");
    cr_assert_eq(test_enrol_with(&anew, SECOND), 200, "%s", anew.status.text);
    cr_expect_eq(place_of(&anew), 0);
    cr_expect_not_null(strstr(logged, "place 0 changed hands"), "%s", logged);
    dunlin__checkin_response answer;
    cr_expect_eq(test_checkin(&lost, &answer), 403, "it is told, not sent to enrol again");
    cr_expect_not_null(strstr(lost.status.text, "given to another key"), "%s", lost.status.text);
    expect_refused(&lost, FIRST, "newer token");
    test_server_close(&fixture);
    reopen(&fixture, keys, FIRST "\n" SECOND " 0\n");
    cr_expect_eq(test_checkin(&lost, &answer), 403, "also after a restart");
    cr_expect_eq(place_of(&anew), 0);
    end(&fixture);
}

Test(places, allow_replace_lets_a_used_token_be_used_again)
{
    test_server fixture;
    test_device lost;
    test_device anew;
    test_server_folder(&fixture);
    fixture.allows_replace = true;
    logged[0] = 0;
    reopen(&fixture, ", \"rounds\": 2, \"cohort\": 1, \"clients\": 1", FIRST "\n");
    test_device_make(&lost, &fixture);
    test_device_make(&anew, &fixture);
    cr_assert_eq(test_enrol_with(&lost, FIRST), 200);
    cr_assert_eq(test_enrol_with(&anew, FIRST), 200, "%s", anew.status.text);
    cr_expect_eq(place_of(&anew), 0);
    cr_expect_not_null(strstr(logged, "by a token that was used before"), "%s", logged);
    dunlin__checkin_response answer;
    cr_expect_eq(test_checkin(&lost, &answer), 403);
    end(&fixture);
}

/* A device that is forgotten leaves nothing of its key, and its token stays used. */
Test(places, a_forgotten_device_spends_its_token)
{
    test_server fixture;
    test_device device;
    test_device other;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 1, \"clients\": 1", FIRST "\n");
    test_device_make(&device, &fixture);
    cr_assert_eq(test_enrol_with(&device, FIRST), 200);
    dunlin__forget_request request = {.protocol_version = DUNLIN_WIRE_VERSION};
    uint8_t body[64];
    size_t n_body = 0;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__forget_request_encode(&request, body, sizeof body, &n_body, &error),
                 DUNLIN_OK);
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_FORGET, TEST_POPULATION);
    cr_assert_eq(test_send(&device, &route, body, n_body, NULL), 200, "%s", device.status.text);
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin__proof_row proof;
    bool is_found = false;
    cr_assert_eq(dunlin__sha256_of(FIRST, strlen(FIRST), sha256, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__server_db_find_proof(fixture.server.db, sha256, &proof, &is_found, &error),
                 DUNLIN_OK);
    cr_assert(is_found);
    for (size_t i = 0; i < sizeof proof.public_key; i++) {
        cr_expect_eq(proof.public_key[i], 0);
    }
    test_device_make(&other, &fixture);
    expect_refused(&other, FIRST, "used by another key");
    end(&fixture);
}

Test(places, a_certificate_stands_for_a_place)
{
    static const uint8_t certificates[2][DUNLIN_SHA256_BYTES] = {{1}, {2}};
    test_server fixture;
    test_device devices[3];
    test_server_folder(&fixture);
    fixture.is_open = true;
    fixture.has_mtls_places = true;
    test_server_open(&fixture, ", \"rounds\": 2, \"cohort\": 2, \"clients\": 2", 0);
    for (int i = 0; i < 3; i++) {
        test_device_make(&devices[i], &fixture);
        devices[i].certificate_sha256 = certificates[i % 2];
    }
    cr_assert_eq(test_enrol_with(&devices[0], ""), 200);
    cr_assert_eq(test_enrol_with(&devices[1], ""), 200);
    cr_expect_eq(place_of(&devices[1]), 1);
    cr_assert_eq(test_enrol_with(&devices[2], ""), 200, "its store was lost, its certificate not");
    cr_expect_eq(place_of(&devices[2]), 0);
    dunlin__checkin_response answer;
    cr_expect_eq(test_checkin(&devices[0], &answer), 403);
    cr_expect_eq(test_checkin(&devices[1], &answer), 200);
    devices[0].certificate_sha256 = NULL;
    test_device_make(&devices[0], &fixture);
    expect_refused(&devices[0], "", "certificate");
    end(&fixture);
}

Test(places, a_file_of_tokens_is_judged_line_by_line)
{
    static const struct {
        const char *text;
        const char *says;
    } CASES[] = {
        {"", "no token"},
        {"# nothing\n", "no token"},
        {"0123456789abcdef0123456789abcde\n", "line 1: a token has at least 128 bits"},
        {FIRST "\nabcdefghijklmnopqrstu\n", "line 2: a token has at least 128 bits"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", "repeats itself"},
        {"0123456789abcdef 123456789abcdef\n", "128 bits"},
        {FIRST " x\n", "comes its place"},
        {FIRST " -1\n", "comes its place"},
        {FIRST " 2\n", "place 2, but the population has 2 places"},
        {FIRST " 1 1\n", "at most a place"},
        {FIRST "\n" FIRST " 1\n", "have the same token"},
        {"0123456789abcdef!0123456789abcdef\n", "letters, digits"},
        {"sha256:0123\n", "64 lower-case hex digits"},
        {FIRST "\n" SECOND "\n" THIRD "\n", "line 3: place 2, but"},
    };
    test_server fixture;
    dunlin__places places;
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    test_server_folder(&fixture);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        dunlin_error error = {0};
        const char *path = test_server_write(&fixture, "tokens", CASES[i].text);
        cr_expect_eq(dunlin__places_read(path, 2, &alloc, &places, &error), DUNLIN_DATA, "%zu", i);
        cr_expect_not_null(strstr(error.text, CASES[i].says), "%zu: %s", i, error.text);
        cr_expect_null(strstr(error.text, "0123456789abcdef"), "the text shows a token");
        dunlin__places_free(&places, &alloc);
    }
    /* The token itself need not lie here. */
    char text[256];
    char hex[DUNLIN_SHA256_HEX_BYTES];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    size_t number = 9;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__sha256_of(SECOND, strlen(SECOND), sha256, &error), DUNLIN_OK);
    dunlin__hex_encode(sha256, sizeof sha256, hex);
    (void)snprintf(text, sizeof text, FIRST "\nsha256:%s\n", hex);
    const char *path = test_server_write(&fixture, "tokens", text);
    cr_assert_eq(dunlin__places_read(path, 2, &alloc, &places, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_eq(dunlin__places_find(&places, SECOND, &number, &error), DUNLIN_OK);
    cr_expect_eq(number, 1);
    cr_expect_eq(dunlin__places_find(&places, THIRD, &number, &error), DUNLIN_OK);
    cr_expect_eq(number, 2, "nothing is like it");
    dunlin__places_free(&places, &alloc);
    test_server_end(&fixture);
}

/* Case D16 of the field report: keys that take work and do nothing lose their turn to one that
 * works, which comes after them. */
Test(places, devices_that_do_not_deliver_come_last)
{
    enum { N_IDLE = 4, N_ROUNDS = 6 };
    test_server fixture;
    test_device idle[N_IDLE];
    test_device honest;
    int n_taken = 0;
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 100, \"cohort\": 2, \"deadline_s\": 60", 0);
    for (int i = 0; i < N_IDLE; i++) {
        test_device_make(&idle[i], &fixture);
        cr_assert_eq(test_enrol(&idle[i], -1), 200);
    }
    test_device_make(&honest, &fixture);
    cr_assert_eq(test_enrol(&honest, -1), 200);
    for (int round = 0; round < N_ROUNDS; round++) {
        bool is_working = false;
        for (int ask = 0; ask < 40; ask++) { /* all ask every 300 ms, the honest one last */
            for (int i = 0; i < N_IDLE; i++) {
                (void)test_take_work(&idle[i]);
            }
            if (!is_working && test_take_work(&honest)) {
                is_working = true;
                n_taken++;
                cr_assert_eq(test_contribute(&honest, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
            }
            fixture.now_ms += 300;
        }
        fixture.now_ms += 60000;
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.round.round, (uint64_t)round + 2);
    }
    cr_expect_geq(n_taken, N_ROUNDS - 2, "%d of %d rounds", n_taken, N_ROUNDS);
    /* They are not shut out: where nobody else wants the place it is theirs. */
    fixture.now_ms += 30000;
    cr_expect(test_take_work(&idle[0]));
    cr_expect_eq(test_contribute(&idle[0], ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    test_server_close(&fixture);
    test_server_end(&fixture);
}

/* A table whose places were all used up by keys that came and went has room again at once. */
Test(places, removed_devices_give_their_slots_back)
{
    test_server fixture;
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 2, \"cohort\": 2", 0);
    dunlin__server *server = &fixture.server;
    dunlin_error error = {0};
    for (uint32_t i = 0; i < DUNLIN_SERVER_COMPACT; i++) {
        dunlin__device_row row = {.row = (int64_t)i + 1, .client_index = 0};
        dunlin__server_device *device = NULL;
        (void)snprintf(row.id, sizeof row.id, "device-%u", i);
        cr_assert_eq(dunlin__devices_add(server, &row, &device, &error), DUNLIN_OK);
        if (i == 7) {
            dunlin__device_set_part(server, device, DUNLIN_PART_ACCEPTED);
        }
        if (i != 9) {
            dunlin__devices_remove(server, device);
        }
    }
    cr_expect_eq(dunlin__server_count_parts(server, fixture.now_ms).n_accepted, 1);
    test_device device;
    test_device_make(&device, &fixture);
    cr_assert_eq(test_enrol(&device, -1), 200, "%s", device.status.text);
    cr_expect_eq(server->devices.n, 2);
    cr_expect_not_null(dunlin__devices_find(server, "device-9"));
    cr_expect_eq(dunlin__server_count_parts(server, fixture.now_ms).n_accepted, 1,
                 "what was accepted counts");
    test_server_close(&fixture);
    test_server_end(&fixture);
}

Test(places, the_list_of_replaced_devices_is_bounded)
{
    test_server fixture;
    char id[DUNLIN_WIRE_ID_BYTES];
    bool is_found = false;
    dunlin_error error = {0};
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 2, \"cohort\": 2", 0);
    dunlin__server_db *db = fixture.server.db;
    cr_assert_eq(dunlin__server_db_begin(db, false, &error), DUNLIN_OK);
    for (int i = 0; i < 4100; i++) {
        (void)snprintf(id, sizeof id, "gone-%d", i);
        cr_assert_eq(dunlin__server_db_add_replaced(db, id, i, &error), DUNLIN_OK, "%s",
                     error.text);
    }
    cr_assert_eq(dunlin__server_db_commit(db, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__server_db_find_replaced(db, "gone-3", &is_found, &error), DUNLIN_OK);
    cr_expect(!is_found);
    cr_assert_eq(dunlin__server_db_find_replaced(db, "gone-4", &is_found, &error), DUNLIN_OK);
    cr_expect(is_found);
    test_server_close(&fixture);
    test_server_end(&fixture);
}
