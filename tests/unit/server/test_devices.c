/*
 * test_devices.c - what devices report about the model: rounds that only evaluate, numbers around a
 * training, their means, and the state of an older program.
 */
#include "server/device.h"
#include "server/told.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void begin(test_server *fixture, const char *keys)
{
    test_server_folder(fixture);
    test_server_open(fixture, keys, 0);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

static void expect_status(test_server *fixture, const char *const *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        test_expect_in_status(fixture, wanted[i]);
    }
}

Test(devices, a_round_of_evaluations_gives_means_and_leaves_the_model)
{
    static const char *const wanted[] = {"\"kind\": \"evaluate\"", "\"loss\": 1.75",
                                         "\"accuracy\": 0.375", "\"train_loss\": null",
                                         "\"weight_sum\": 40.0"};
    test_server fixture;
    test_device devices[2];
    dunlin__put_response put;
    dunlin__commit_response commit;
    float before[10];
    float after[10];
    begin(&fixture, ", \"rounds\": 3, \"cohort\": 2, \"evaluate_every\": 2");
    for (int i = 0; i < 2; i++) {
        test_join(&devices[i], &fixture, -1);
        cr_assert_eq(devices[i].assignment.kind, DUNLIN_V1_KIND_TRAIN);
        cr_assert_eq(test_contribute(&devices[i], ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    dunlin__server_tick(&fixture.server);
    for (int i = 0; i < 2; i++) {
        dunlin__checkin_response offered;
        cr_assert_eq(test_checkin(&devices[i], &offered), 200);
        cr_assert_eq(offered.offers[0].kind, DUNLIN_V1_KIND_EVALUATE);
        cr_assert_eq(offered.offers[0].upload_bytes, 0);
        cr_assert(test_take_work(&devices[i]));
        cr_assert_eq(devices[i].assignment.kind, DUNLIN_V1_KIND_EVALUATE);
    }
    cr_assert_eq(test_put(&devices[0], ones, &put), 400, "no update is wanted");
    memset(devices[0].manifest_sha256, 1, sizeof devices[0].manifest_sha256);
    cr_assert_eq(test_commit(&devices[0], 10, NULL, &commit), 400);
    cr_expect_not_null(strstr(devices[0].status.text, "EVALUATE"));
    cr_assert_eq(test_commit_evaluation(&devices[0], 10, 1.0, 0.0, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(test_commit_evaluation(&devices[1], 30, 2.0, 0.5, &commit), 200);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 3);
    expect_status(&fixture, wanted, sizeof wanted / sizeof wanted[0]);
    test_read_model(&fixture, 2, before);
    test_read_model(&fixture, 3, after);
    cr_assert_arr_eq(before, after, sizeof before);
    /* And the round after it trains again. */
    cr_assert(test_take_work(&devices[0]));
    cr_assert_eq(devices[0].assignment.kind, DUNLIN_V1_KIND_TRAIN);
    cr_assert_eq(test_commit_evaluation(&devices[0], 10, 1.0, 0.0, &commit), 400);
    cr_assert_eq(test_contribute(&devices[0], ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    end(&fixture);
}

Test(devices, an_evaluation_counts_once_and_a_wild_number_is_refused)
{
    test_server fixture;
    test_device device;
    dunlin__commit_response commit;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 2, \"evaluate_every\": 1");
    test_join(&device, &fixture, -1);
    static const struct {
        double loss, accuracy;
        const char *says;
    } WILD[] = {{1e300, 0.5, "metrics[0].value is 1e+300"},
                {-1e31, 0.5, "metrics[0].value is -1e+31"},
                {NAN, 0.5, "metrics[0].value is not a finite"},
                {-INFINITY, 0.5, "metrics[0].value is not a finite"},
                {1.0, 57.0, "metrics[1].value is 57"},
                {1.0, -0.5, "metrics[1].value is -0.5"},
                {1.0, NAN, "metrics[1].value is not a finite"}};
    for (size_t i = 0; i < sizeof WILD / sizeof WILD[0]; i++) {
        cr_assert_eq(test_commit_evaluation(&device, 10, WILD[i].loss, WILD[i].accuracy, &commit),
                     400);
        cr_expect_not_null(strstr(device.status.text, WILD[i].says), "%s", device.status.text);
    }
    cr_assert_eq(test_commit_evaluation(&device, 10, 1.0, 0.5, &commit), 200);
    cr_assert_eq(test_commit_evaluation(&device, 10, 1.0, 0.5, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "the one that counts already");
    fixture.now_ms += 600001;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.n_closed, 1);
    const dunlin__round_row *row = &fixture.server.closed[0];
    cr_expect_eq(row->n_participants, 1);
    cr_expect_float_eq(row->weight_sum, 10.0, 0);
    cr_expect_float_eq(row->metrics.values[DUNLIN_METRIC_LOSS], 1.0, 0);
    cr_expect_float_eq(row->metrics.values[DUNLIN_METRIC_ACCURACY], 0.5, 0);
    end(&fixture);
}

static uint32_t send_telemetry(test_device *device, const dunlin__telemetry_request *batch,
                               const char *key, uint32_t *out_stored)
{
    uint8_t body[DUNLIN_V1_TELEMETRY_REQUEST_SIZE];
    size_t n_body = 0;
    dunlin_error error = {0};
    dunlin__telemetry_response answer = {0};
    cr_assert_eq(dunlin__telemetry_request_encode(batch, body, sizeof body, &n_body, &error),
                 DUNLIN_OK, "%s", error.text);
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_TELEMETRY, NULL);
    uint32_t code = test_send(device, &route, body, n_body, key);
    if (code == 200) {
        cr_assert_eq(dunlin__telemetry_response_decode(device->reply.body, device->reply.n_body,
                                                       &answer, &error),
                     DUNLIN_OK);
    }
    *out_stored = answer.n_stored;
    return code;
}

Test(devices, telemetry_is_summed_bounded_and_counted_once)
{
    static const char *const wanted[] = {"\"telemetry_records\": 259",
                                         "\"n\": 4",
                                         "\"mean\": 1.5",
                                         "\"min\": -3.0",
                                         "\"max\": 5.0",
                                         "\"count\": 18.0"};
    test_server fixture;
    test_device device;
    uint32_t n_stored = 0;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 1");
    test_join(&device, &fixture, -1);
    dunlin__telemetry_request batch = {.batch_id = "0123456789abcdef-a",
                                       .records_count = 4,
                                       .records = {{.event = 5, .count = 3, .value = 1.0},
                                                   {.event = 5, .count = 5, .value = 5.0},
                                                   {.event = 5, .count = 3, .value = -3.0},
                                                   {.event = 5, .count = 7, .value = 3.0}}};
    for (int i = 0; i < 2; i++) { /* the second time it is the stored answer */
        cr_assert_eq(send_telemetry(&device, &batch, "0123456789abcdef0123456789abcdef", &n_stored),
                     200);
        cr_expect_eq(n_stored, 4);
    }
    for (uint32_t event = 100; event < 400; event++) {
        batch.records_count = 1;
        batch.records[0].event = event;
        cr_assert_eq(send_telemetry(&device, &batch, NULL, &n_stored), 200);
        cr_expect_eq(n_stored, event < 355 ? 1 : 0, "%u", event);
    }
    expect_status(&fixture, wanted, sizeof wanted / sizeof wanted[0]);
    test_server_close(&fixture);
    test_server_open(&fixture, ", \"rounds\": 1, \"cohort\": 1", 0);
    expect_status(&fixture, wanted + 1, sizeof wanted / sizeof wanted[0] - 1); /* it is stored */
    end(&fixture);
}

/* A state as schema 1 left it: its rounds stay, and the next ones have what is new. */
Test(devices, an_older_state_is_brought_up)
{
    static const char *const columns[] = {"contributions DROP COLUMN accuracy",
                                          "contributions DROP COLUMN loss_before",
                                          "contributions DROP COLUMN accuracy_before",
                                          "contributions DROP COLUMN loss_after",
                                          "contributions DROP COLUMN accuracy_after",
                                          "rounds DROP COLUMN is_evaluation",
                                          "rounds DROP COLUMN device_accuracy",
                                          "rounds DROP COLUMN loss_before",
                                          "rounds DROP COLUMN accuracy_before",
                                          "rounds DROP COLUMN loss_after",
                                          "rounds DROP COLUMN accuracy_after",
                                          "rounds DROP COLUMN base",
                                          "rounds DROP COLUMN is_taken_back",
                                          "rounds DROP COLUMN n_scaled",
                                          "rounds DROP COLUMN norm_bound",
                                          "rounds DROP COLUMN why",
                                          "contributions DROP COLUMN norm",
                                          "contributions DROP COLUMN within_clip",
                                          "rounds DROP COLUMN clip_norm",
                                          "rounds DROP COLUMN clip_within",
                                          "sessions DROP COLUMN packs",
                                          "sessions DROP COLUMN unpacks",
                                          "assignments DROP COLUMN packs",
                                          "rounds DROP COLUMN epsilon",
                                          "rounds DROP COLUMN draw_seed",
                                          "rounds DROP COLUMN noise_seed",
                                          "devices DROP COLUMN last_round",
                                          "devices DROP COLUMN n_rounds"};
    test_server fixture;
    test_device device;
    char path[2048];
    sqlite3 *db = NULL;
    begin(&fixture, ", \"rounds\": 3, \"cohort\": 1");
    test_join(&device, &fixture, -1);
    cr_assert_eq(test_contribute(&device, ones, 8), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    (void)snprintf(path, sizeof path, "%s/server.db", fixture.server.folder.text);
    test_server_close(&fixture);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        char sql[128];
        (void)snprintf(sql, sizeof sql, "ALTER TABLE %s", columns[i]);
        cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    }
    cr_assert_eq(sqlite3_exec(db,
                              "DROP TABLE telemetry; DROP TABLE proofs; DROP TABLE replaced;"
                              "DROP TABLE app_metrics; DROP TABLE round_metrics;"
                              "DROP TABLE round_metrics_left; DROP TABLE terms",
                              NULL, NULL, NULL),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, "PRAGMA user_version = 1", NULL, NULL, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
    test_server_open(&fixture, ", \"rounds\": 3, \"cohort\": 1, \"evaluate_every\": 3", 0);
    cr_assert_eq(fixture.server.n_closed, 1);
    cr_expect_eq(fixture.server.round.base, 1, "a round of before began from the one before it");
    cr_expect(!fixture.server.closed[0].is_taken_back);
    cr_expect_str_eq(fixture.server.closed[0].why, "");
    cr_expect_float_eq(fixture.server.closed[0].metrics.values[DUNLIN_METRIC_LOSS], 0.5, 0);
    dunlin__checkin_response answer;
    cr_assert_eq(test_checkin(&device, &answer), 401, "challenges do not outlive a server");
    memcpy(device.challenge, device.status.challenge, sizeof device.status.challenge);
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_contribute(&device, ones, 8), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_expect(fixture.server.round.is_evaluation);
    end(&fixture);
}

/* No schema that this program can know: nothing is read, nothing changed. */
Test(devices, a_database_of_no_known_schema_is_refused)
{
    static const struct {
        int schema;
        dunlin_status status;
    } cases[] = {{-1, DUNLIN_DATA},
                 {INT32_MIN, DUNLIN_DATA},
                 {99, DUNLIN_VERSION},
                 {INT32_MAX, DUNLIN_VERSION}};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    test_server fixture;
    char path[2048];
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 1");
    (void)snprintf(path, sizeof path, "%s/other.db", fixture.server.folder.text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char sql[64];
        sqlite3 *file = NULL;
        dunlin__server_db *db = NULL;
        dunlin_error error = {0};
        (void)snprintf(sql, sizeof sql, "PRAGMA user_version = %d", cases[i].schema);
        cr_assert_eq(sqlite3_open(path, &file), SQLITE_OK);
        cr_assert_eq(sqlite3_exec(file, sql, NULL, NULL, NULL), SQLITE_OK);
        cr_assert_eq(sqlite3_close(file), SQLITE_OK);
        (void)snprintf(sql, sizeof sql, "schema %d", cases[i].schema);
        cr_expect_eq(dunlin__server_db_open(path, &alloc, &db, &error), cases[i].status);
        cr_expect_null(db);
        cr_expect_not_null(strstr(error.text, sql), "%s", error.text);
    }
    end(&fixture);
}
