/*
 * test_stays.c - the best model as the devices judge it, and deadlines that differ by round;
 * without a trainer.
 */
#include "rounds/best.h"
#include "server/device.h"
#include "server/told.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <unistd.h>

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void begin(test_server *fixture, test_device *device, const char *keys)
{
    test_server_folder(fixture);
    test_server_open(fixture, keys, 0);
    test_device_make(device, fixture);
    cr_assert_eq(test_enrol(device, -1), 200);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

static void train(test_device *device)
{
    cr_assert(test_take_work(device));
    cr_assert_eq(test_contribute(device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&device->fixture->server);
}

static void evaluate(test_device *device, double loss, double accuracy)
{
    dunlin__commit_response answer;
    cr_assert(test_take_work(device));
    cr_assert_eq(test_commit_evaluation(device, 8, loss, accuracy, &answer), 200);
    cr_assert_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&device->fixture->server);
}

static float first_of_best(test_server *fixture)
{
    char path[512];
    float value = 0;
    (void)snprintf(path, sizeof path, "%s/state/models/best.weights", fixture->folder);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    cr_assert_eq(fread(&value, sizeof value, 1, file), 1);
    (void)fclose(file);
    return value;
}

/* Rounds 2, 4, ... ask the devices how the model of the round before does. */
Test(stays, devices_judge_where_there_is_no_test_set)
{
    const char *keys = ", \"rounds\": 9, \"cohort\": 1, \"evaluate_every\": 2";
    test_server fixture;
    test_device device;
    begin(&fixture, &device, keys);
    train(&device);
    test_expect_in_status(&fixture, "\"best_round\": null");
    test_expect_in_status(&fixture, "\"best_is_kept\": true");
    evaluate(&device, 2, 0.25);
    test_expect_in_status(&fixture, "\"best_round\": 1");
    cr_assert_float_eq(first_of_best(&fixture), 1, 0);
    train(&device);
    evaluate(&device, 1, 0.5);
    test_expect_in_status(&fixture, "\"best_round\": 3");
    cr_assert_float_eq(first_of_best(&fixture), 2, 0);
    train(&device);
    evaluate(&device, 3, 0.375);
    test_expect_in_status(&fixture, "\"best_round\": 3");
    test_server_close(&fixture);
    test_server_open(&fixture, keys, 0);
    test_expect_in_status(&fixture, "\"best_round\": 3");
    test_expect_in_status(&fixture, "\"best_accuracy\": 0.5");
    cr_assert_float_eq(first_of_best(&fixture), 2, 0);
    end(&fixture);
}

Test(stays, nothing_is_kept_where_nobody_judges)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 3, \"cohort\": 1");
    train(&device);
    test_expect_in_status(&fixture, "\"best_is_kept\": false");
    test_expect_in_status(&fixture, "\"best_round\": null");
    end(&fixture);
}

/* ---- deadlines ---- */

#define DEADLINES                                                                                  \
    ", \"rounds\": 9, \"cohort\": 1, \"clients\": 1, \"deadline_s\": [{\"from\": 1, \"s\": 600},"  \
    " {\"from\": 3, \"s\": 120}]"

Test(stays, rounds_have_deadlines_of_their_own)
{
    test_server fixture;
    test_device device;
    test_server_folder(&fixture);
    test_server_open(&fixture, DEADLINES, 0);
    test_join(&device, &fixture, 0);
    test_expect_in_status(&fixture, "\"deadline_s\": 600.0");
    test_expect_in_status(&fixture, "\"left_s\": 600.0");
    for (uint64_t round = 1; round <= 2; round++) {
        cr_assert_eq(fixture.server.round.deadline_ms, fixture.now_ms + 600000, "round %d",
                     (int)round);
        fixture.now_ms += 599999;
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.round.round, round);
        fixture.now_ms += 1;
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.round.round, round + 1);
    }
    cr_assert_eq(fixture.server.round.deadline_ms, fixture.now_ms + 120000);
    test_expect_in_status(&fixture, "\"deadline_s\": 120.0");
    cr_assert(test_take_work(&device));
    cr_assert_eq(device.assignment.deadline_ms, 120000);
    fixture.now_ms += 120000;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 4);
    end(&fixture);
}
