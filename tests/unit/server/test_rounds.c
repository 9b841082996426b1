/*
 * test_rounds.c - which devices get work, when a round ends, and the answers to those who come too
 * late.
 */
#include "rounds/ahead.h"
#include "server/device.h"
#include "server/told.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
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

static dunlin_v1_rejection_t rejection(test_device *device)
{
    dunlin__checkin_response answer;
    cr_assert_eq(test_checkin(device, &answer), 200, "%s", device->status.text);
    return answer.rejection;
}

Test(rounds, goal_ends_a_round_and_the_rest_hear_of_it)
{
    test_server fixture;
    test_device devices[3];
    dunlin__put_response put;
    dunlin__commit_response commit;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 2, \"over_select\": 1.5");
    for (int i = 0; i < 3; i++) {
        test_join(&devices[i], &fixture, -1);
        cr_assert_eq(test_put(&devices[i], ones, &put), 200);
        test_send_chunks(&devices[i], ones);
    }
    test_device late;
    test_device_make(&late, &fixture);
    cr_assert_eq(test_enrol(&late, -1), 200);
    cr_assert_eq(rejection(&late), DUNLIN_V1_REJECTION_ENOUGH_DEVICES);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(test_commit(&devices[i], 1, NULL, &commit), 200);
        cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    cr_assert_eq(test_commit(&devices[2], 1, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_GOAL_REACHED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert_eq(fixture.server.closed[0].n_participants, 2);
    cr_assert_eq(fixture.server.closed[0].reason, DUNLIN_CLOSE_GOAL);
    /* All of them may take part in the next one. */
    cr_assert(test_take_work(&late));
    cr_assert(test_take_work(&devices[2]));
    end(&fixture);
}

Test(rounds, commit_after_the_close_tells_why)
{
    test_server fixture;
    test_device first;
    test_device second;
    dunlin__put_response put;
    dunlin__commit_response commit;
    begin(&fixture, ", \"rounds\": 3, \"cohort\": 1, \"over_select\": 2");
    test_join(&first, &fixture, -1);
    test_join(&second, &fixture, -1);
    cr_assert_eq(test_put(&second, ones, &put), 200);
    test_send_chunks(&second, ones);
    cr_assert_eq(test_contribute(&first, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(test_commit(&second, 1, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_GOAL_REACHED);
    end(&fixture);
}

Test(rounds, deadline_ends_a_round_with_those_who_came)
{
    test_server fixture;
    test_device first;
    test_device second;
    dunlin__put_response put;
    dunlin__commit_response commit;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 2, \"deadline_s\": 10");
    test_join(&first, &fixture, -1);
    test_join(&second, &fixture, -1);
    cr_assert_eq(second.assignment.deadline_ms, 10000);
    cr_assert_eq(test_put(&second, ones, &put), 200);
    test_send_chunks(&second, ones);
    cr_assert_eq(test_contribute(&first, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    fixture.now_ms += 9999;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 1);
    fixture.now_ms += 1;
    cr_assert_eq(test_commit(&second, 1, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_LATE);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert_eq(fixture.server.closed[0].n_participants, 1);
    cr_assert_eq(fixture.server.closed[0].n_dropped, 1);
    cr_assert_eq(fixture.server.closed[0].reason, DUNLIN_CLOSE_DEADLINE);
    float model[10];
    test_read_model(&fixture, 2, model);
    cr_assert_float_eq(model[0], 1.0F, 0.0F, "an accepted update counts");
    cr_assert_eq(test_commit(&second, 1, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_REFUSED, "it was told late before");
    end(&fixture);
}

Test(rounds, too_few_reports_leave_the_model)
{
    test_server fixture;
    test_device device;
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 3, \"min_reports\": 2, \"deadline_s\": 1");
    test_join(&device, &fixture, -1);
    cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    fixture.now_ms += 1000;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert(fixture.server.closed[0].is_failed);
    float model[10];
    test_read_model(&fixture, 2, model);
    cr_assert_float_eq(model[0], 0.0F, 0.0F);
    end(&fixture);
}

Test(rounds, an_abort_frees_the_place)
{
    test_server fixture;
    test_device first;
    test_device second;
    dunlin__commit_response commit;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 1");
    test_join(&first, &fixture, -1);
    test_device_make(&second, &fixture);
    cr_assert_eq(test_enrol(&second, -1), 200);
    cr_assert_eq(rejection(&second), DUNLIN_V1_REJECTION_ENOUGH_DEVICES);
    cr_assert_eq(test_abort(&first), 200);
    cr_assert_eq(rejection(&first), DUNLIN_V1_REJECTION_NO_WORK, "it gave this round up");
    cr_assert(test_take_work(&second));
    memset(first.manifest_sha256, 1, sizeof first.manifest_sha256);
    cr_assert_eq(test_commit(&first, 1, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
    end(&fixture);
}

Test(rounds, a_declined_or_expired_offer_frees_the_place)
{
    test_server fixture;
    test_device first;
    test_device second;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 1");
    test_device_make(&first, &fixture);
    test_device_make(&second, &fixture);
    cr_assert_eq(test_enrol(&first, -1), 200);
    cr_assert_eq(test_enrol(&second, -1), 200);
    cr_assert_eq(rejection(&first), DUNLIN_V1_REJECTION_NONE);
    cr_assert_eq(rejection(&second), DUNLIN_V1_REJECTION_ENOUGH_DEVICES);
    cr_assert_eq(test_decline(&first), 200);
    cr_assert_eq(rejection(&second), DUNLIN_V1_REJECTION_NONE);
    cr_assert_eq(rejection(&first), DUNLIN_V1_REJECTION_ENOUGH_DEVICES);
    fixture.now_ms += 60001;
    cr_assert_eq(test_accept(&second), 410);
    cr_assert_eq(second.status.code, DUNLIN_V1_STATUS_CODE_EXPIRED);
    cr_assert(test_take_work(&first));
    end(&fixture);
}

#define KNOWN ", \"rounds\": 4, \"cohort\": 2, \"clients\": 5, \"seed\": 11"

Test(rounds, barrier_waits_for_all_and_the_cohort_follows_from_the_seed)
{
    test_server fixture;
    test_device devices[5];
    uint64_t chosen[2][4] = {{0}};
    for (int run = 0; run < 2; run++) {
        begin(&fixture, KNOWN);
        for (int i = 0; i < 5; i++) {
            int index = run == 0 ? i : 4 - i; /* another order of arrival */
            test_device_make(&devices[index], &fixture);
            cr_assert_eq(test_enrol(&devices[index], index), 200);
            dunlin_v1_rejection_t answer = rejection(&devices[index]);
            cr_assert(i == 4 || answer == DUNLIN_V1_REJECTION_NO_WORK);
        }
        for (int r = 0; r < 4; r++) {
            int n_working = 0;
            for (int i = 0; i < 5; i++) {
                int index = run == 0 ? i : 4 - i;
                if (test_take_work(&devices[index])) {
                    chosen[run][r] |= UINT64_C(1) << index;
                    n_working++;
                    cr_assert_eq(test_contribute(&devices[index], ones, 1),
                                 DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
                }
            }
            cr_assert_eq(n_working, 2);
            dunlin__server_tick(&fixture.server);
        }
        cr_assert(fixture.server.is_done);
        cr_assert_eq(rejection(&devices[0]), DUNLIN_V1_REJECTION_NO_WORK);
        end(&fixture);
    }
    cr_assert_arr_eq(chosen[0], chosen[1], sizeof chosen[0]);
}

Test(rounds, a_known_cohort_ends_when_nobody_is_left)
{
    test_server fixture;
    test_device devices[3];
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 3, \"clients\": 3");
    for (int i = 0; i < 3; i++) {
        test_device_make(&devices[i], &fixture);
        cr_assert_eq(test_enrol(&devices[i], i), 200);
        (void)rejection(&devices[i]);
    }
    for (int i = 0; i < 3; i++) {
        cr_assert(test_take_work(&devices[i]));
    }
    cr_assert_eq(test_contribute(&devices[0], ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(test_abort(&devices[1]), 200);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 1);
    cr_assert_eq(test_abort(&devices[2]), 200);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert_eq(fixture.server.closed[0].reason, DUNLIN_CLOSE_ALL);
    cr_assert_eq(fixture.server.closed[0].n_dropped, 2);
    end(&fixture);
}

Test(rounds, ranks_spread_the_work_evenly)
{
    enum { CLIENTS = 50, ROUNDS = 400, CHOSEN = 10 };
    int n_times[CLIENTS] = {0};
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (uint64_t i = 0; i < CLIENTS; i++) {
            int n_before = 0;
            for (uint64_t j = 0; j < CLIENTS; j++) {
                n_before += dunlin__server_rank(3, round, j) < dunlin__server_rank(3, round, i);
            }
            n_times[i] += n_before < CHOSEN ? 1 : 0;
        }
    }
    /* Binomial(400, 1/5): mean 80, deviation 8. */
    for (int i = 0; i < CLIENTS; i++) {
        cr_assert(n_times[i] > 40 && n_times[i] < 120, "client %d: %d times", i, n_times[i]);
    }
}

Test(rounds, a_restart_loses_nothing)
{
    test_server fixture;
    test_device first;
    test_device second;
    dunlin__commit_response commit;
    const char *keys = ", \"rounds\": 3, \"cohort\": 2";
    begin(&fixture, keys);
    test_join(&first, &fixture, -1);
    test_join(&second, &fixture, -1);
    cr_assert_eq(test_contribute(&first, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    char key[DUNLIN_WIRE_IDEMPOTENCY_BYTES];
    memcpy(key, first.key, sizeof key);
    test_server_close(&fixture);
    test_server_open(&fixture, keys, 0);
    /* Challenges do not outlive the server: the answer brings a new one. */
    cr_assert_eq(test_commit(&first, 1, key, &commit), 401);
    cr_assert_eq(first.status.code, DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE);
    memcpy(first.challenge, first.status.challenge, sizeof first.challenge);
    cr_assert_eq(test_commit(&first, 1, key, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "the stored answer");
    dunlin__checkin_response answer;
    cr_assert_eq(test_checkin(&second, &answer), 401);
    memcpy(second.challenge, second.status.challenge, sizeof second.challenge);
    cr_assert_eq(test_contribute(&second, ones, 3), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert_eq(fixture.server.closed[0].n_participants, 2);
    float model[10];
    float again[10];
    test_read_model(&fixture, 2, model);
    cr_assert_float_eq(model[9], 1.0F, 0.0F);
    test_server_close(&fixture);
    test_server_open(&fixture, keys, 0);
    cr_assert_eq(fixture.server.n_closed, 1);
    cr_assert_eq(fixture.server.round.round, 2);
    test_read_model(&fixture, 2, again);
    cr_assert_arr_eq(model, again, sizeof model);
    end(&fixture);
}

/* A kill between the accepted commit and the close, and one in the middle of the close. */
Test(rounds, a_kill_while_closing_gives_the_same_model)
{
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    const char *keys = ", \"rounds\": 2, \"cohort\": 1";
    begin(&fixture, keys);
    test_join(&device, &fixture, -1);
    cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    /* What the first half of the close leaves. */
    fixture.server.round.state = DUNLIN_ROUND_CLOSING;
    fixture.server.round.reason = DUNLIN_CLOSE_GOAL;
    cr_assert_eq(dunlin__server_db_put_round(fixture.server.db, &fixture.server.round, &error),
                 DUNLIN_OK);
    (void)test_server_write(&fixture, "state/models/000002.weights.part", "half a model");
    test_server_close(&fixture);
    test_server_open(&fixture, keys, 0);
    cr_assert_eq(fixture.server.round.state, DUNLIN_ROUND_CLOSING);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2, "%s", fixture.server.fault.text);
    float model[10];
    test_read_model(&fixture, 2, model);
    cr_assert_float_eq(model[0], 1.0F, 0.0F);
    end(&fixture);
}

Test(rounds, another_task_may_not_use_the_state)
{
    test_server fixture;
    dunlin_error error = {0};
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 1");
    test_server_close(&fixture);
    const char *path = test_server_write(
        &fixture, "other.json",
        "{\"population\": \"others\", \"task\": \"sums\", \"rounds\": 1, \"cohort\": 1,"
        " \"tensors\": [{\"name\": \"w\", \"shape\": [10]}]}");
    char state[256];
    (void)snprintf(state, sizeof state, "%s/state", fixture.folder);
    dunlin_server_options options = {.host = "127.0.0.1", .state_folder = state};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__server_task task;
    dunlin_log log = {0};
    memset(&fixture.server, 0, sizeof fixture.server);
    cr_assert_eq(dunlin__server_task_read(path, &alloc, &task, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__server_open(&fixture.server, &options, &task, &log, &error),
                 DUNLIN_MISMATCH);
    test_server_end(&fixture);
}

Test(rounds, a_second_server_is_kept_out)
{
    test_server fixture;
    dunlin_error error = {0};
    begin(&fixture, ", \"rounds\": 2, \"cohort\": 1");
    dunlin_server_options options = fixture.server.options;
    dunlin__server_task task = {.rounds = 1};
    dunlin_log log = {0};
    static dunlin__server second;
    cr_assert_eq(dunlin__server_open(&second, &options, &task, &log, &error), DUNLIN_LOCKED);
    end(&fixture);
}

Test(rounds, status_tells_the_figures)
{
    test_server fixture;
    test_device device;
    begin(&fixture, ", \"rounds\": 1, \"cohort\": 1");
    test_join(&device, &fixture, -1);
    cr_assert_eq(test_contribute(&device, ones, 8), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    static const char *const wanted[] = {"\"state\": \"done\"",     "\"participants\": 1",
                                         "\"weight_sum\": 8.0",     "\"train_loss\": 0.5",
                                         "\"accuracy\": null",      "\"params\": 10",
                                         "\"closed_by\": \"goal\"", "\"known\": 1"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        test_expect_in_status(&fixture, wanted[i]);
    }
    end(&fixture);
}
