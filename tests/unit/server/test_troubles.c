/*
 * test_troubles.c - a round may fail, a run may not: storage that is full and later is not, files
 * that are gone, clocks that are set, updates without an average.
 */
#include "server/device.h"
#include "server/told.h"

#include <criterion/criterion.h>

#include <float.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* No file of this process may grow above so many bytes, as on a storage that is full. */
static void limit_files(rlim_t n_bytes)
{
    struct rlimit limit;
    (void)signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n_bytes < limit.rlim_max ? n_bytes : limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The round that could not be closed is closed, with all its updates, once there is room. */
Test(troubles, full_storage_holds_a_round_up_and_no_more)
{
    test_server fixture;
    test_device device;
    dunlin__checkin_response answer;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 1");
    test_join(&device, &fixture, -1);
    cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    limit_files(0);
    for (int i = 0; i < 3; i++) {
        dunlin__server_tick(&fixture.server);
        fixture.now_ms += 40000;
    }
    cr_assert_eq(fixture.server.round.round, 1);
    cr_assert_neq(fixture.server.fault.status, DUNLIN_OK);
    test_expect_in_status(&fixture, "\"state\": \"running\"");
    test_expect_in_status(&fixture, "\"error\": \"");
    cr_assert_geq(test_checkin(&device, &answer), 500, "it is to come again");
    limit_files(RLIM_INFINITY);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2, "%s", fixture.server.fault.text);
    cr_assert_eq(fixture.server.fault.status, DUNLIN_OK);
    cr_assert_eq(fixture.server.closed[0].n_participants, 1);
    test_expect_in_status(&fixture, "\"error\": null");
    if (test_checkin(&device, &answer) == 401) { /* devices were read again, too */
        memcpy(device.challenge, device.status.challenge, sizeof device.challenge);
    }
    cr_assert(test_take_work(&device));
    float model[10];
    test_read_model(&fixture, 2, model);
    cr_assert_float_eq(model[0], 1.0F, 0.0F);
    end(&fixture);
}

/* Tries come after 1, 2, 4 ... seconds, not in a hot loop. */
Test(troubles, what_fails_is_tried_again_later_and_later)
{
    test_server fixture;
    test_device device;
    char path[2048];
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 1");
    test_join(&device, &fixture, -1);
    cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    /* A folder where the next base is to be written. */
    (void)snprintf(path, sizeof path, "%s/models/000002.weights.part", fixture.server.folder.text);
    cr_assert_eq(mkdir(path, 0700), 0);
    static const int64_t waits[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.n_faults, i + 1);
        cr_assert_eq(fixture.server.retry_ms - fixture.now_ms, waits[i]);
        fixture.now_ms += waits[i] - 1;
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.n_faults, i + 1, "it is not time yet");
        fixture.now_ms++;
    }
    cr_assert_eq(rmdir(path), 0);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert_eq(fixture.server.n_faults, 0);
    end(&fixture);
}

/* An accepted update that is gone from the storage, or not whole, is missing in the average. */
Test(troubles, a_lost_update_does_not_end_the_run)
{
    test_server fixture;
    test_device devices[3];
    char path[2048];
    const float threes[10] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 3");
    for (int i = 0; i < 3; i++) {
        test_join(&devices[i], &fixture, -1);
        cr_assert_eq(test_contribute(&devices[i], i == 0 ? threes : ones, 1),
                     DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    for (int i = 1; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/spool/%s.update", fixture.server.folder.text,
                       devices[i].assignment.assignment_id);
        cr_assert_eq(i == 1 ? unlink(path) : truncate(path, 8), 0, "%s", path);
    }
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2, "%s", fixture.server.fault.text);
    cr_assert_eq(fixture.server.closed[0].n_participants, 1);
    cr_assert_eq(fixture.server.closed[0].n_dropped, 2);
    float model[10];
    test_read_model(&fixture, 2, model);
    cr_assert_float_eq(model[0], 3.0F, 0.0F);
    end(&fixture);
}

/* A sum takes values up to 2^97: larger ones fail the round, by name. */
Test(troubles, updates_that_no_sum_takes_fail_their_round)
{
    test_server fixture;
    test_device device;
    float model[10];
    float large[10];
    begin(&fixture, ", \"rounds\": 3, \"cohort\": 1");
    test_join(&device, &fixture, -1);
    for (int i = 0; i < 10; i++) {
        large[i] = 1e29F;
    }
    cr_assert_eq(test_contribute(&device, large, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert(!fixture.server.closed[0].is_failed);
    cr_assert(test_take_work(&device));
    large[7] = FLT_MAX;
    cr_assert_eq(test_contribute(&device, large, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 3, "%s", fixture.server.fault.text);
    cr_assert(fixture.server.closed[1].is_failed);
    test_expect_in_status(&fixture,
                          "\"reason\": \"the updates cannot be summed: value 7 of client 0, "
                          "3.40282e+38 times the weight 1, is not below 1.58456e+29\"");
    test_read_model(&fixture, 3, model);
    cr_assert_float_eq(model[0], 1e29F, 0.0F, "the model stays");
    cr_assert(test_take_work(&device), "and the run goes on");
    end(&fixture);
}

/* The clock went back by a year while the server was down. */
Test(troubles, a_clock_that_went_back_does_not_hold_a_round_open)
{
    const char *keys = ", \"rounds\": 3, \"cohort\": 2, \"clients\": 2, \"deadline_s\": 60";
    test_server fixture;
    test_device devices[2];
    dunlin__checkin_response answer;
    begin(&fixture, keys);
    for (int i = 0; i < 2; i++) {
        test_device_make(&devices[i], &fixture);
        cr_assert_eq(test_enrol(&devices[i], i), 200);
        cr_assert_eq(test_checkin(&devices[i], &answer), 200);
    }
    cr_assert(test_take_work(&devices[0]));
    cr_assert_eq(test_contribute(&devices[0], ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    int64_t epoch = fixture.server.run_epoch;
    test_server_close(&fixture);
    fixture.now_ms -= 365 * INT64_C(86400000);
    test_server_open(&fixture, keys, 0);
    cr_assert_leq(fixture.server.round.deadline_ms, fixture.now_ms + 60000);
    cr_assert_eq(fixture.server.run_epoch, epoch);
    fixture.now_ms += 60000;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert_eq(fixture.server.closed[0].reason, DUNLIN_CLOSE_DEADLINE);
    cr_assert_geq(fixture.server.closed[0].closed_ms, fixture.server.closed[0].opened_ms);
    end(&fixture);
}

/* A round that seems to have lasted for years, because the clock was set in it. */
Test(troubles, times_that_cannot_be_send_nobody_away_for_months)
{
    test_server fixture;
    test_device devices[3];
    dunlin__checkin_response answer;
    begin(&fixture, ", \"rounds\": 9, \"cohort\": 1, \"clients\": 3, \"deadline_s\": 60");
    for (int i = 0; i < 3; i++) {
        test_device_make(&devices[i], &fixture);
        cr_assert_eq(test_enrol(&devices[i], i), 200);
        cr_assert_eq(test_checkin(&devices[i], &answer), 200);
    }
    fixture.now_ms += 60000;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.n_closed, 1);
    static const int64_t lasted[] = {INT64_C(100) * 365 * 86400000, -INT64_C(86400000)};
    for (size_t i = 0; i < 2; i++) {
        fixture.server.closed[0].closed_ms = fixture.server.closed[0].opened_ms + lasted[i];
        for (int d = 0; d < 3; d++) {
            cr_assert_eq(test_checkin(&devices[d], &answer), 200);
            cr_expect_leq(answer.rejected_window.min_ms, 9 * 2 * 60000);
        }
    }
    test_expect_in_status(&fixture, "\"wall_s\": null");
    test_expect_in_status(&fixture, "; the clock went back\"");
    end(&fixture);
}

static void remove_base(test_server *fixture, int round, bool only_cut)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/state/models/%06d.weights", fixture->folder, round);
    cr_assert_eq(only_cut ? truncate(path, 8) : unlink(path), 0, "%s", path);
}

/* The base of the current round is gone, or cut short, when the server starts. */
Test(troubles, a_lost_base_costs_the_round_that_made_it)
{
    const char *keys = ", \"rounds\": 5, \"cohort\": 1";
    for (int only_cut = 0; only_cut < 2; only_cut++) {
        test_server fixture;
        test_device device;
        dunlin__checkin_response answer;
        float model[10];
        begin(&fixture, keys);
        int64_t epoch = fixture.server.run_epoch;
        test_join(&device, &fixture, -1);
        for (int r = 0; r < 2; r++) {
            cr_assert(r == 0 || test_take_work(&device));
            cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
            dunlin__server_tick(&fixture.server);
        }
        test_server_close(&fixture);
        remove_base(&fixture, 3, only_cut != 0);
        test_server_open(&fixture, keys, 0);
        cr_assert(fixture.server.closed[1].is_taken_back);
        test_expect_in_status(&fixture, "\"taken_back\": 1");
        if (test_checkin(&device, &answer) == 401) {
            memcpy(device.challenge, device.status.challenge, sizeof device.challenge);
        }
        cr_assert(!test_take_work(&device), "there is nothing to begin from");
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.round.round, 4, "%s", fixture.server.fault.text);
        cr_assert_eq(fixture.server.run_epoch, epoch);
        test_read_model(&fixture, 4, model);
        cr_assert_float_eq(model[0], 1.0F, 0.0F, "the model of round 1");
        cr_assert(test_take_work(&device));
        end(&fixture);
    }
}

Test(troubles, a_lost_first_base_is_recomputed)
{
    const char *keys = ", \"rounds\": 2, \"cohort\": 1";
    test_server fixture;
    test_device device;
    float model[10];
    begin(&fixture, keys);
    test_server_close(&fixture);
    remove_base(&fixture, 1, false);
    test_server_open(&fixture, keys, 0);
    test_read_model(&fixture, 1, model);
    cr_assert_float_eq(model[3], 0.0F, 0.0F);
    test_join(&device, &fixture, -1);
    end(&fixture);
}

/* What an earlier run, or a kill, left in the folder of models. */
Test(troubles, files_of_an_earlier_run_are_swept)
{
    const char *keys = ", \"rounds\": 2, \"cohort\": 1";
    static const char *const names[] = {
        "state/models/000007.weights", "state/models/000007.manifest",
        "state/models/000009.weights.part", "state/models/000009.weights.new"};
    test_server fixture;
    test_device device;
    begin(&fixture, keys);
    test_server_close(&fixture);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)test_server_write(&fixture, names[i], "of another day");
    }
    test_server_open(&fixture, keys, 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[2048];
        (void)snprintf(path, sizeof path, "%s/%s", fixture.folder, names[i]);
        cr_expect_neq(access(path, F_OK), 0, "%s", path);
    }
    test_join(&device, &fixture, -1);
    end(&fixture);
}

/* The database could not be read: no device is answered as unknown, all may come again. */
Test(troubles, a_state_that_could_not_be_read_is_read_again)
{
    test_server fixture;
    test_device device;
    dunlin__checkin_response answer;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 1");
    test_device_make(&device, &fixture);
    cr_assert_eq(test_enrol(&device, -1), 200);
    /* What a reload leaves that fails half way. */
    dunlin__devices_free(&fixture.server);
    memset(&fixture.server.round, 0, sizeof fixture.server.round);
    fixture.server.is_stale = true;
    dunlin__server_tick(&fixture.server);
    cr_assert(!fixture.server.is_stale);
    cr_assert_eq(fixture.server.round.round, 1);
    dunlin__devices_free(&fixture.server);
    fixture.server.is_stale = true;
    cr_assert_eq(test_checkin(&device, &answer), 401, "a new challenge, of a device that is known");
    cr_assert_eq(device.status.code, DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE);
    end(&fixture);
}
