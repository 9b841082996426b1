/*
 * test_taken_back.c - bad models: detected by their evaluation, taken back, and the run continues
 * from the newest good one.
 */
#include "server/device.h"
#include "server/told.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VALUES 61706 /* of lenet5 */

static float zeros[VALUES];
static float huge[VALUES];
static float first[VALUES];
static float model[VALUES];

static void open_keys(test_server *fixture, const char *keys, const char *test_set)
{
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_server_options options = {.n_threads = 1, .test_set = test_set, .host = "127.0.0.1"};
    dunlin__server_task task;
    dunlin_log log = {0};
    dunlin_error error = {0};
    char text[512];
    static char state[256];
    (void)snprintf(text, sizeof text,
                   "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\","
                   " \"test_examples\": 40%s}",
                   keys);
    const char *path = test_server_write(fixture, "task.json", text);
    (void)snprintf(state, sizeof state, "%s/state", fixture->folder);
    options.state_folder = state;
    memset(&fixture->server, 0, sizeof fixture->server);
    cr_assert_eq(dunlin__server_task_read(path, &alloc, &task, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin__server_open(&fixture->server, &options, &task, &log, &error), DUNLIN_OK,
                 "%s", error.text);
    for (int i = 0; i < VALUES; i++) {
        huge[i] = 1e20F;
    }
}

static void begin(test_server *fixture, test_device *device, const char *keys)
{
    test_server_folder(fixture);
    open_keys(fixture, keys, "synthetic");
    test_read_model(fixture, 1, first);
    test_device_make(device, fixture);
    cr_assert_eq(test_enrol(device, -1), 200);
}

/* The server is started again. */
static void restart(test_server *fixture, test_device *device, const char *keys)
{
    dunlin__checkin_response answer;
    test_server_close(fixture);
    open_keys(fixture, keys, "synthetic");
    if (test_checkin(device, &answer) == 401) {
        memcpy(device->challenge, device->status.challenge, sizeof device->challenge);
    }
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

static void contribute(test_device *device, const float *values)
{
    cr_assert(test_take_work(device));
    cr_assert_eq(test_contribute(device, values, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&device->fixture->server);
}

static void expect_model(test_server *fixture, uint64_t round, const float *wanted)
{
    test_read_model(fixture, round, model);
    cr_assert_arr_eq(model, wanted, sizeof model, "base %llu", (unsigned long long)round);
}

/* Case D1 of a field report: weights of 1e20 ended the run for ever. */
Test(taken_back, a_model_that_cannot_be_evaluated_costs_its_round)
{
    const char *keys = ", \"rounds\": 4, \"cohort\": 1";
    test_server fixture;
    test_device device;
    begin(&fixture, &device, keys);
    int64_t epoch = fixture.server.run_epoch;
    contribute(&device, huge);
    cr_assert_eq(fixture.server.fault.status, DUNLIN_OK, "%s", fixture.server.fault.text);
    cr_assert(fixture.server.closed[0].is_taken_back);
    cr_assert(!fixture.server.closed[0].is_evaluated);
    test_expect_in_status(&fixture, "\"taken_back\": 1");
    test_expect_in_status(&fixture, "\"accuracy\": null");
    test_expect_in_status(&fixture, "\"reason\": \"the evaluation is not finite");
    /* The round that was opened from it ends at once; the next begins from the first weights. */
    restart(&fixture, &device, keys);
    cr_assert_eq(fixture.server.round.round, 2);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 3);
    cr_assert_eq(fixture.server.closed[1].reason, DUNLIN_CLOSE_TAKEN_BACK);
    cr_assert_eq(fixture.server.round.base, 0);
    expect_model(&fixture, 3, first);
    contribute(&device, zeros);
    cr_assert(fixture.server.closed[2].is_evaluated);
    /* The last round, too: what is handed out is the newest good model. */
    contribute(&device, huge);
    dunlin__server_tick(&fixture.server);
    cr_assert(fixture.server.is_done);
    cr_assert(fixture.server.closed[3].is_taken_back);
    cr_assert_eq(fixture.server.round.base, 3);
    expect_model(&fixture, 5, first);
    test_expect_in_status(&fixture, "\"state\": \"done\"");
    cr_assert_eq(fixture.server.run_epoch, epoch);
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, "\"final_accuracy\": %.17g",
                   fixture.server.closed[2].accuracy);
    test_expect_in_status(&fixture, wanted);
    end(&fixture);
}

/* Devices may have gone on from it before it was found out. */
Test(taken_back, what_began_from_it_goes_with_it)
{
    const char *keys = ", \"rounds\": 6, \"cohort\": 1";
    test_server fixture;
    test_device device;
    begin(&fixture, &device, keys);
    contribute(&device, zeros);
    /* Round 2 is closed and not evaluated, as if the server were busy. */
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_contribute(&device, huge, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    fixture.server.round.state = DUNLIN_ROUND_CLOSING;
    fixture.server.round.reason = DUNLIN_CLOSE_GOAL;
    dunlin__evaluator *evaluator = fixture.server.evaluator;
    fixture.server.evaluator = NULL;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 3);
    fixture.server.evaluator = evaluator;
    /* In round 3 a device has accepted work and delivers before the evaluation is through. */
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_contribute(&device, zeros, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server); /* closes 3, finds its model not finite */
    dunlin__server_tick(&fixture.server);
    dunlin__server_tick(&fixture.server);
    cr_assert(fixture.server.closed[1].is_taken_back);
    cr_assert(fixture.server.closed[2].is_taken_back);
    cr_assert(!fixture.server.closed[0].is_taken_back);
    cr_assert_eq(fixture.server.round.base, 1);
    expect_model(&fixture, fixture.server.round.round, first);
    cr_assert_eq(fixture.server.fault.status, DUNLIN_OK);
    end(&fixture);
}

#define ROLLBACK ", \"rounds\": 4, \"cohort\": 1, \"rollback\": 0.3"

/* With `rollback` nothing begins from a model before it has been evaluated. */
Test(taken_back, with_rollback_the_next_round_opens_after_the_evaluation)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ROLLBACK);
    contribute(&device, huge);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert_eq(fixture.server.round.base, 0);
    cr_assert(fixture.server.closed[0].is_taken_back);
    expect_model(&fixture, 2, first);
    restart(&fixture, &device, ROLLBACK);
    cr_assert(fixture.server.closed[0].is_taken_back);
    contribute(&device, zeros);
    cr_assert(fixture.server.closed[1].is_evaluated);
    cr_assert_eq(fixture.server.round.base, 2);
    cr_assert_eq(fixture.server.round.round, 3, "no round is lost to the bad model's successor");
    end(&fixture);
}

Test(taken_back, a_model_far_below_the_best_is_taken_back)
{
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    begin(&fixture, &device, ROLLBACK);
    contribute(&device, zeros);
    dunlin__round_row *row = &fixture.server.closed[0];
    cr_assert(row->is_evaluated);
    double real = row->accuracy;
    row->accuracy = real + 0.29; /* as if it had been a better model */
    cr_assert_eq(dunlin__server_db_put_round(fixture.server.db, row, &error), DUNLIN_OK);
    contribute(&device, zeros);
    cr_assert(!fixture.server.closed[1].is_taken_back, "%s", fixture.server.closed[1].why);
    row = &fixture.server.closed[0];
    row->accuracy = real + 0.31;
    cr_assert_eq(dunlin__server_db_put_round(fixture.server.db, row, &error), DUNLIN_OK);
    contribute(&device, zeros);
    cr_assert(fixture.server.closed[2].is_taken_back);
    cr_assert(fixture.server.closed[2].is_evaluated, "its figures are real ones");
    cr_assert_float_eq(fixture.server.closed[2].accuracy, real, 0);
    cr_assert_eq(fixture.server.round.base, 2);
    test_expect_in_status(&fixture, "is below the best");
    restart(&fixture, &device, ROLLBACK);
    cr_assert(fixture.server.closed[2].is_taken_back);
    end(&fixture);
}

/* A kill after the bad model was published, before anything was stored. */
Test(taken_back, a_kill_before_the_verdict_gives_the_same)
{
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    begin(&fixture, &device, ROLLBACK);
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_contribute(&device, huge, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    fixture.server.round.state = DUNLIN_ROUND_CLOSING;
    fixture.server.round.reason = DUNLIN_CLOSE_GOAL;
    cr_assert_eq(dunlin__server_db_put_round(fixture.server.db, &fixture.server.round, &error),
                 DUNLIN_OK);
    (void)test_server_write(&fixture, "state/models/000002.weights", "bad");
    restart(&fixture, &device, ROLLBACK);
    dunlin__server_tick(&fixture.server);
    cr_assert(fixture.server.closed[0].is_taken_back);
    expect_model(&fixture, 2, first);
    end(&fixture);
}

/* The file cannot be read, three times: the figures are null, with the reason; the run goes on. */
Test(taken_back, a_model_that_cannot_be_read_has_no_figures)
{
    test_server fixture;
    test_device device;
    char path[512];
    char aside[512];
    begin(&fixture, &device, ", \"rounds\": 3, \"cohort\": 1");
    contribute(&device, zeros);
    fixture.server.closed[0].is_evaluated = false;
    (void)snprintf(path, sizeof path, "%s/state/models/000002.weights", fixture.folder);
    (void)snprintf(aside, sizeof aside, "%s/aside", fixture.folder);
    cr_assert_eq(rename(path, aside), 0);
    for (int i = 0; i < 4; i++) {
        dunlin__server_tick(&fixture.server);
        fixture.server.retry_ms = 0;
    }
    cr_assert_eq(fixture.server.fault.status, DUNLIN_OK, "%s", fixture.server.fault.text);
    cr_assert(!fixture.server.closed[0].is_evaluated);
    cr_assert(!fixture.server.closed[0].is_taken_back);
    test_expect_in_status(&fixture, "\"reason\": \"the model could not be evaluated");
    cr_assert_eq(rename(aside, path), 0);
    contribute(&device, zeros);
    cr_assert(fixture.server.closed[1].is_evaluated);
    end(&fixture);
}

Test(taken_back, rollback_wants_a_test_set)
{
    test_server fixture;
    dunlin_server_options options = {.n_threads = 1, .host = "127.0.0.1"};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__server_task task;
    dunlin_log log = {0};
    dunlin_error error = {0};
    char state[256];
    test_server_folder(&fixture);
    const char *path = test_server_write(
        &fixture, "task.json",
        "{\"population\": \"p\", \"task\": \"t\", \"model\": \"lenet5\", \"rounds\": 1,"
        " \"cohort\": 1, \"rollback\": 0.05}");
    (void)snprintf(state, sizeof state, "%s/state", fixture.folder);
    options.state_folder = state;
    cr_assert_eq(dunlin__server_task_read(path, &alloc, &task, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__server_open(&fixture.server, &options, &task, &log, &error), DUNLIN_DATA);
    cr_assert_not_null(strstr(error.text, "--test-set"), "%s", error.text);
    test_server_end(&fixture);
}
