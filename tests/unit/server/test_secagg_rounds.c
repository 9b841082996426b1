/*
 * test_secagg_rounds.c - rounds with secure aggregation: the model that comes of them, devices that
 * leave in each step, a server that is started anew, what works beside it.
 */
#include "rounds/secure.h"
#include "secure_world.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

/* ---- what comes of it ---- */

Test(secagg_rounds, the_model_is_that_of_the_same_numbers_without_masks)
{
    static const bool all[SECURE_DEVICES] = {true, true, true, true, true};
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    secure_expect_model(world, all);
    cr_expect_eq(world->fixture.server.closed[0].reason, DUNLIN_CLOSE_GOAL);
    dunlin__secure_figures figures;
    cr_assert(dunlin__secure_find(&world->fixture.server, 1, &figures));
    for (uint32_t step = 1; step <= DUNLIN_WIRE_SECAGG_STEPS; step++) {
        cr_expect_eq(figures.came[step], SECURE_DEVICES, "step %u", step);
    }
    cr_expect(figures.has_sum && figures.bytes_up > 0 && figures.bytes_down > figures.bytes_up);
    secure_end(world);
}

Test(secagg_rounds, without_the_consistency_step)
{
    static const bool all[SECURE_DEVICES] = {true, true, true, true, true};
    secure_world *world = secure_begin_with_work(
        ", \"rounds\": 3, \"cohort\": 5, \"clients\": 5, \"secagg\": {\"neighbours\": 4, "
        "\"threshold\": 3, \"corrupt\": 0, \"dropout\": 0, \"clip\": 1, \"value_limit\": 1024, "
        "\"weight_limit\": 8, \"ring_bits\": 24, \"consistency\": false}");
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    secure_expect_model(world, all);
    secure_end(world);
}

/* Device 1 leaves before its message of a step; the last of `steps` is 6: it stays. */
static void leave_in(uint32_t leaves)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_device *leaver = &world->devices[1];
    bool is_in[SECURE_DEVICES] = {true, true, true, true, true};
    is_in[1] = leaves > (uint32_t)DUNLIN_V1_SECAGG_STEP_MASK;
    if (leaves == (uint32_t)DUNLIN_V1_SECAGG_STEP_ADVERTISE) {
        secure_close(leaver);
        for (int i = 0; i < SECURE_DEVICES; i++) {
            if (i != 1) {
                cr_assert_eq(secure_step(&world->devices[i]), 200);
            }
        }
        secure_end_advertise(world);
        for (int i = 0; i < SECURE_DEVICES; i++) {
            if (i != 1) {
                cr_assert_eq(secure_step(&world->devices[i]), 200);
            }
        }
    } else {
        for (int i = 0; i < SECURE_DEVICES; i++) {
            cr_assert_eq(secure_step(&world->devices[i]), 200);
        }
        for (int i = 0; i < SECURE_DEVICES; i++) {
            if (world->devices[i].retry_ms > 0) {
                cr_assert_eq(secure_step(&world->devices[i]), 200);
            }
        }
    }
    if (leaves == (uint32_t)DUNLIN_V1_SECAGG_STEP_SHARE) {
        secure_close(leaver);
    }
    for (int i = 0; i < SECURE_DEVICES; i++) {
        if (world->devices[i].client != NULL) {
            cr_assert_eq(secure_step(&world->devices[i]), 200, "%s",
                         world->devices[i].device.status.text);
        }
    }
    if (leaves == (uint32_t)DUNLIN_V1_SECAGG_STEP_SHARE) {
        secure_end_step(world);
    }
    for (int i = 0; i < SECURE_DEVICES; i++) {
        if (world->devices[i].client != NULL && world->devices[i].retry_ms > 0) {
            cr_assert_eq(secure_step(&world->devices[i]), 200);
        }
    }
    if (leaves == (uint32_t)DUNLIN_V1_SECAGG_STEP_MASK) {
        secure_close(leaver);
    }
    secure_contribute_all(world->devices, SECURE_DEVICES);
    if (leaves == (uint32_t)DUNLIN_V1_SECAGG_STEP_MASK) {
        secure_end_step(world);
    }
    if (leaves == (uint32_t)DUNLIN_V1_SECAGG_STEP_CONSISTENCY) {
        secure_close(leaver);
    }
    for (uint32_t step = DUNLIN_V1_SECAGG_STEP_MASK; step <= DUNLIN_WIRE_SECAGG_STEPS; step++) {
        if (step == leaves && leaver->client != NULL) {
            secure_close(leaver);
        }
        for (int i = 0; i < SECURE_DEVICES; i++) {
            if (world->devices[i].client != NULL) {
                cr_assert_eq(secure_step(&world->devices[i]), 200, "step %u: %s", step,
                             world->devices[i].device.status.text);
            }
        }
        if (step == leaves && step > (uint32_t)DUNLIN_V1_SECAGG_STEP_MASK) {
            secure_end_step(world);
        }
        for (int i = 0; i < SECURE_DEVICES; i++) {
            if (world->devices[i].client != NULL && world->devices[i].retry_ms > 0) {
                cr_assert_eq(secure_step(&world->devices[i]), 200);
            }
        }
    }
    dunlin__server_tick(&world->fixture.server);
    secure_expect_model(world, is_in);
    secure_end(world);
}

Test(secagg_rounds, one_leaves_before_its_keys)
{
    leave_in(DUNLIN_V1_SECAGG_STEP_ADVERTISE);
}

Test(secagg_rounds, one_leaves_before_its_shares)
{
    leave_in(DUNLIN_V1_SECAGG_STEP_SHARE);
}

Test(secagg_rounds, one_leaves_before_its_vector)
{
    leave_in(DUNLIN_V1_SECAGG_STEP_MASK);
}

Test(secagg_rounds, one_leaves_after_its_vector)
{
    leave_in(DUNLIN_V1_SECAGG_STEP_CONSISTENCY);
}

Test(secagg_rounds, one_tells_no_shares)
{
    leave_in(DUNLIN_V1_SECAGG_STEP_UNMASK);
}

/* Who gives up is not waited for: no time passes in this test. */
Test(secagg_rounds, one_that_gives_up_is_not_awaited)
{
    const bool is_in[SECURE_DEVICES] = {true, true, true, false, true};
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_agree_all(world->devices, SECURE_DEVICES);
    cr_assert_eq(test_abort(&world->devices[3].device), 200);
    secure_close(&world->devices[3]);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    secure_expect_model(world, is_in);
    secure_end(world);
}

Test(secagg_rounds, of_a_cohort_those_that_decline_are_not_awaited)
{
    const bool is_in[SECURE_DEVICES] = {true, true, true, true, false};
    dunlin__checkin_response answer;
    secure_world *world = secure_begin(SECURE_TASK(""));
    cr_assert_eq(test_checkin(&world->devices[4].device, &answer), 200);
    cr_assert_eq(test_decline(&world->devices[4].device), 200);
    for (int i = 0; i < 4; i++) {
        secure_take_work(&world->devices[i]);
    }
    secure_agree_all(world->devices, 4);
    secure_contribute_all(world->devices, 4);
    secure_tell_all(world->devices, 4);
    secure_expect_model(world, is_in);
    secure_end(world);
}

/* ---- no sum ---- */

Test(secagg_rounds, too_few_vectors_fail_the_round)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_agree_all(world->devices, SECURE_DEVICES);
    for (int i = 0; i < 3; i++) {
        secure_close(&world->devices[i]);
    }
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_end_step(world);
    secure_expect_failed(world, "2 vectors came, fewer than the least of a sum, 3");
    cr_expect_eq(world->fixture.server.closed[0].reason, DUNLIN_CLOSE_FAILED);
    cr_expect_eq(secure_step(&world->devices[3]), 410, "nothing more is told");
    dunlin__secure_figures figures;
    cr_assert(dunlin__secure_find(&world->fixture.server, 1, &figures));
    cr_expect(!figures.has_sum);
    secure_end(world);
}

Test(secagg_rounds, too_few_shares_fail_the_round)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    for (int step = 0; step < 2; step++) { /* mask, consistency */
        for (int i = 0; i < SECURE_DEVICES; i++) {
            cr_assert_eq(secure_step(&world->devices[i]), 200);
        }
        dunlin__server_tick(&world->fixture.server);
        for (int i = 0; i < SECURE_DEVICES; i++) {
            if (world->devices[i].retry_ms > 0) {
                cr_assert_eq(secure_step(&world->devices[i]), 200);
            }
        }
    }
    cr_assert_eq(secure_step(&world->devices[0]), 200);
    cr_assert_eq(secure_step(&world->devices[1]), 200);
    secure_end_step(world);
    secure_expect_failed(world, "fewer than the threshold 3");
    secure_end(world);
}

Test(secagg_rounds, nobody_comes)
{
    secure_world *world = secure_begin(SECURE_TASK(""));
    world->fixture.now_ms = world->fixture.server.round.deadline_ms;
    dunlin__server_tick(&world->fixture.server);
    secure_expect_failed(world, "nobody came in time");
    secure_end(world);
}

/* Keys and shares were in memory alone: the round is closed as failed, and the next one begins. */
Test(secagg_rounds, a_server_that_is_started_anew_has_lost_the_session)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_mask(&world->devices[0]);
    cr_assert_eq(secure_contribute(&world->devices[0]), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    test_server_close(&world->fixture);
    test_server_open(&world->fixture, SECURE_TASK(""), 0);
    for (int i = 0; i < SECURE_DEVICES; i++) { /* it has given out no challenge yet */
        dunlin__checkin_response answer;
        cr_assert_eq(test_checkin(&world->devices[i].device, &answer), 401);
        memcpy(world->devices[i].device.challenge, world->devices[i].device.status.challenge,
               sizeof world->devices[i].device.challenge);
    }
    cr_expect_eq(secure_step(&world->devices[0]), 410, "its session is over");
    secure_mask(&world->devices[1]);
    cr_expect_eq(secure_contribute(&world->devices[1]), DUNLIN_V1_COMMIT_OUTCOME_LATE);
    dunlin__server_tick(&world->fixture.server);
    secure_expect_failed(world, "the server was started anew within it");
    /* The next round is as if nothing had been. */
    for (int i = 0; i < SECURE_DEVICES; i++) {
        secure_take_work(&world->devices[i]);
        cr_expect_eq(world->devices[i].device.assignment.round, 2);
    }
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    cr_assert_eq(world->fixture.server.n_closed, 2);
    cr_expect(!world->fixture.server.closed[1].is_failed, "%s",
              world->fixture.server.closed[1].why);
    secure_end(world);
}

/* ---- beside other keys ---- */

/* What else a task may have beside it: the round closes with a model. */
static void works_beside(const char *keys)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   ", \"rounds\": 3, \"cohort\": 5, \"clients\": 5%s, \"secagg\": {\"neighbours\": "
                   "4, \"threshold\": 3, \"corrupt\": 0, \"dropout\": 0, \"clip\": 1, "
                   "\"value_limit\": 1024, \"weight_limit\": 8}",
                   keys);
    secure_world *world = secure_begin_with_work(text);
    float model[SECURE_VALUES];
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    cr_assert_eq(world->fixture.server.n_closed, 1, "%s", keys);
    cr_expect(!world->fixture.server.closed[0].is_failed, "%s: %s", keys,
              world->fixture.server.closed[0].why);
    cr_expect_float_eq(world->fixture.server.closed[0].norm_bound, 0, 0, "the norm bound is off");
    test_read_model(&world->fixture, 2, model);
    cr_expect_neq(model[0], 0.0F, "%s", keys);
    secure_end(world);
}

Test(secagg_rounds, what_works_beside_it)
{
    works_beside(", \"algorithm\": \"fedprox:0.1\"");
    works_beside(", \"strategy\": \"fedadam\"");
    works_beside(", \"strategy\": \"fedavgm\", \"plan\": {\"clip_norm\": 2}");
    works_beside(", \"compress\": {\"down\": \"int8\"}");
    works_beside(", \"plan\": {\"momentum\": 0.5, \"schedule\": \"cosine\"}");
}
