/*
 * test_dp_told.c - what a run with noise tells, what it has promised, and what its log alone gives.
 */
#include "dp_fleet.h"
#include "model/noise.h"
#include "rounds/close.h"
#include "rounds/private.h"
#include "server/must.h"
#include "server/privacy_log.h"
#include "server/told.h"
#include "state/db.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is told ---- */

static void tell(bool is_repeatable)
{
    test_server fixture;
    test_device devices[3];
    float update[DP_VALUES];
    dp_begin(&fixture);
    fixture.has_noise_seed = is_repeatable;
    fixture.noise_seed = 7;
    test_server_open(&fixture, DP("2", "3", "3", "\"noise\": 1"), 0);
    dp_join_all(&fixture, devices, 3);
    dp_fill(update, 0.25F);
    cr_assert_eq(dp_contribute_all(devices, 3, update, 5), 3);
    dp_close_round(&fixture);
    json_t *status = test_status(&fixture);
    const json_t *privacy = json_object_get(status, "privacy");
    const json_t *round = json_array_get(json_object_get(status, "rounds"), 0);
    const json_t *open = json_object_get(status, "open");
    cr_expect_eq(json_is_true(json_object_get(privacy, "private")), !is_repeatable);
    cr_expect_eq(json_is_string(json_object_get(privacy, "note")), is_repeatable);
    cr_expect_eq(json_is_null(json_object_get(round, "participants")), !is_repeatable);
    cr_expect_eq(json_is_null(json_object_get(round, "weight_sum")), !is_repeatable);
    cr_expect_eq(json_is_null(json_object_get(open, "accepted")), !is_repeatable);
    cr_expect_eq(json_is_null(json_object_get(status, "phases")), !is_repeatable);
    cr_expect_eq(json_integer_value(json_object_get(round, "participants")), is_repeatable ? 3 : 0);
    cr_expect(json_is_null(json_object_get(round, "train_loss")), "no loss without noise");
    cr_expect_gt(json_number_value(json_object_get(round, "epsilon")), 0);
    cr_expect_float_eq(json_number_value(json_object_get(round, "epsilon")),
                       json_number_value(json_object_get(privacy, "epsilon")), 0);
    cr_expect_gt(json_number_value(json_object_get(privacy, "epsilon_of_run")),
                 json_number_value(json_object_get(privacy, "epsilon")));
    cr_expect_str_eq(json_string_value(json_object_get(privacy, "unit")), "device");
    cr_expect_not_null(json_string_value(json_object_get(privacy, "neighbours")));
    cr_expect_not_null(json_string_value(json_object_get(privacy, "assumes")));
    json_decref(status);
    dp_end(&fixture);
}

Test(dp_told, the_status_tells_the_cost_and_not_who_came)
{
    tell(false);
    tell(true);
}

Test(dp_told, a_known_seed_repeats_a_fleet)
{
    float models[3][DP_VALUES];
    for (int i = 0; i < 3; i++) {
        test_server fixture;
        test_device devices[6];
        float update[DP_VALUES];
        dp_begin(&fixture);
        fixture.has_noise_seed = true;
        fixture.noise_seed = i < 2 ? 1 : 2;
        test_server_open(&fixture, DP("2", "3", "6", "\"noise\": 1, \"sampling\": \"poisson\""), 0);
        dp_join_all(&fixture, devices, 6);
        dp_fill(update, 0.25F);
        (void)dp_contribute_all(devices, 6, update, 5);
        dp_close_round(&fixture);
        test_read_model(&fixture, 2, models[i]);
        dp_end(&fixture);
    }
    cr_expect_eq(memcmp(models[0], models[1], sizeof models[0]), 0);
    cr_expect_neq(memcmp(models[0], models[2], sizeof models[0]), 0);
}

/* ---- what was promised ---- */

static dunlin_status open_again(test_server *fixture, const char *keys, dunlin_error *error)
{
    static char state[256];
    char text[1024];
    dunlin__server_task task;
    dunlin_log log = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    (void)snprintf(text, sizeof text,
                   "{\"population\": \"%s\", \"task\": \"sums\", \"tensors\": ["
                   "{\"name\": \"w\", \"shape\": [10]}]%s}",
                   TEST_POPULATION, keys);
    const char *path = test_server_write(fixture, "again.json", text);
    DUNLIN_TRY(dunlin__server_task_read(path, &alloc, &task, error));
    (void)snprintf(state, sizeof state, "%s/state", fixture->folder);
    dunlin_server_options options = {
        .host = "127.0.0.1", .state_folder = state, .n_threads = 1, .has_claimed_places = true};
    memset(&fixture->server, 0, sizeof fixture->server);
    return dunlin__server_open(&fixture->server, &options, &task, &log, error);
}

Test(dp_told, a_run_keeps_its_terms)
{
    test_server fixture;
    dunlin_error error = {0};
    dp_begin(&fixture);
    const char *keys = DP("4", "2", "4", "\"noise\": 1, \"sampling\": \"poisson\"");
    MUST(open_again(&fixture, keys, &error));
    fixture.server.is_started = true;
    dunlin__server_close(&fixture.server);
    static const char *const others[] = {
        DP("4", "2", "4", "\"noise\": 1.1, \"sampling\": \"poisson\""),
        DP("4", "1", "4", "\"noise\": 1, \"sampling\": \"poisson\""),
        DP("4", "2", "4", "\"noise\": 1, \"sampling\": \"fixed\""),
        DP("4", "2", "4", "\"noise\": 1, \"sampling\": \"poisson\", \"accountant\": \"pld\""),
        DP("4", "2", "4", "\"noise\": 1"),
        ", \"rounds\": 4, \"cohort\": 2, \"clients\": 4"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        cr_expect_eq(open_again(&fixture, others[i], &error), DUNLIN_MISMATCH, "%s", others[i]);
        cr_expect_not_null(strstr(error.text, "have promised sampling=poisson:0.5"), "%s",
                           error.text);
    }
    MUST(open_again(&fixture, DP("9", "2", "4", "\"noise\": 1, \"sampling\": \"poisson\""),
                    &error)); /* more rounds are of the same terms */
    dp_end(&fixture);
}

Test(dp_told, rounds_without_noise_are_not_made_private)
{
    test_server fixture;
    dunlin_error error = {0};
    dp_begin(&fixture);
    MUST(open_again(&fixture, ", \"rounds\": 4, \"cohort\": 1, \"clients\": 1", &error));
    test_device device;
    float update[DP_VALUES];
    dp_join_all(&fixture, &device, 1);
    dp_fill(update, 1);
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_contribute(&device, update, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.n_closed, 1);
    dunlin__server_close(&fixture.server);
    cr_expect_eq(open_again(&fixture,
                            ", \"rounds\": 4, \"cohort\": 1, \"clients\": 2, \"dp\": {\"clip\": 1, "
                            "\"delta\": 1e-5, \"noise\": 1}",
                            &error),
                 DUNLIN_MISMATCH);
    cr_expect_not_null(strstr(error.text, "1 rounds without noise"), "%s", error.text);
    test_server_end(&fixture);
}

static void expect_cost_of_log(const char *keys, const char *accountant)
{
    test_server fixture;
    test_device devices[4];
    dunlin_error error = {0};
    char state[256];
    char *text = NULL;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dp_begin(&fixture);
    (void)snprintf(state, sizeof state, "%s/state", fixture.folder);
    test_server_open(&fixture, keys, 0);
    cr_expect_eq(dunlin__privacy_log(state, &alloc, &text, &error), DUNLIN_STATE);
    dp_join_all(&fixture, devices, 4);
    for (int i = 0; i < 3; i++) {
        dp_close_round(&fixture);
    }
    const double told = fixture.server.closed[2].epsilon;
    dunlin__server *server = &fixture.server;
    MUST(dunlin__privacy_log(state, &alloc, &text, &error));
    json_t *answer = json_loads(text, 0, NULL);
    free(text);
    cr_expect_float_eq(json_number_value(json_object_get(answer, "epsilon")), told, 1e-9 * told);
    cr_expect_eq(json_integer_value(json_object_get(answer, "rounds")), 3);
    cr_expect_str_eq(json_string_value(json_object_get(answer, "accountant")), accountant);
    cr_expect(json_is_true(json_object_get(answer, "private")));
    json_decref(answer);
    dunlin__privacy_question asked = server->task.dp.question;
    dunlin__privacy_answer cost;
    asked.n_rounds = 3;
    MUST(dunlin__privacy_account(&asked, &alloc, &cost, &error));
    cr_expect_float_eq(cost.epsilon, told, 0);
    /* A row that says less than it cost. */
    dunlin__round_row row = server->closed[2];
    row.epsilon *= 0.9;
    MUST(dunlin__server_save_round(server, &row, &error));
    cr_expect_eq(dunlin__privacy_log(state, &alloc, &text, &error), DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text, "their terms give"), "%s", error.text);
    cr_expect_eq(dunlin__privacy_log("/no/such/folder", &alloc, &text, &error), DUNLIN_IO);
    dp_end(&fixture);
}

Test(dp_told, the_log_alone_gives_the_cost)
{
    expect_cost_of_log(DP("5", "1", "4", "\"noise\": 1.2, \"sampling\": \"poisson\""), "rdp");
    expect_cost_of_log(
        DP("5", "1", "4", "\"noise\": 1.2, \"sampling\": \"poisson\", \"accountant\": \"pld\""),
        "pld");
}
