/*
 * test_secagg_calls.c - the calls of a round with secure aggregation: what is refused, what is
 * taken twice, and what is not looked at.
 */
#include "random.h"
#include "secure_world.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

Test(secagg_calls, no_device_advertises_twice)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    cr_assert_eq(secure_step(&world->devices[0]), 200);
    secure_open(&world->devices[0]); /* other keys, as after a kill */
    cr_expect_eq(secure_step(&world->devices[0]), 403, "%u",
                 (unsigned)world->devices[0].device.reply.http_code);
    cr_expect_not_null(strstr(world->devices[0].device.status.text, "other keys"), "%s",
                       world->devices[0].device.status.text);
    cr_expect(!test_take_work(&world->devices[0].device), "nor by another assignment");
    secure_end(world);
}

Test(secagg_calls, a_device_that_lost_its_assignment_keeps_its_index)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    const uint32_t index = world->devices[2].device.assignment.plan.secagg.peer_index;
    secure_take_work(&world->devices[2]);
    cr_expect_eq(world->devices[2].device.assignment.plan.secagg.peer_index, index);
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    const bool all[SECURE_DEVICES] = {true, true, true, true, true};
    secure_expect_model(world, all);
    secure_end(world);
}

/* An answer was lost: the same message again, also when the step is over. */
Test(secagg_calls, a_message_that_is_sent_twice_changes_nothing)
{
    const bool all[SECURE_DEVICES] = {true, true, true, true, true};
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    cr_assert_eq(secure_step(&world->devices[0]), 200);
    cr_expect_eq(secure_send_again(&world->devices[0]), 200);
    for (int i = 1; i < SECURE_DEVICES; i++) {
        cr_assert_eq(secure_step(&world->devices[i]), 200);
    }
    cr_expect_eq(secure_send_again(&world->devices[0]), 200, "step share has begun");
    cr_expect_gt(world->devices[0].device.reply.n_body, 500, "the neighbours' keys");
    for (int i = 0; i < SECURE_DEVICES; i++) {
        if (world->devices[i].retry_ms > 0) {
            cr_assert_eq(secure_step(&world->devices[i]), 200);
        }
    }
    for (int i = 0; i < SECURE_DEVICES; i++) {
        cr_assert_eq(secure_step(&world->devices[i]), 200);
    }
    for (int i = 0; i < SECURE_DEVICES; i++) {
        if (world->devices[i].retry_ms > 0) {
            cr_assert_eq(secure_step(&world->devices[i]), 200);
        }
    }
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    secure_expect_model(world, all);
    secure_end(world);
}

Test(secagg_calls, a_commit_is_counted_once)
{
    const bool all[SECURE_DEVICES] = {true, true, true, true, true};
    dunlin__commit_response answer;
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_mask(&world->devices[0]);
    cr_assert_eq(secure_contribute(&world->devices[0]), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(test_commit(&world->devices[0].device, 77, NULL, &answer), 200);
    cr_expect_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    secure_contribute_all(world->devices + 1, SECURE_DEVICES - 1);
    secure_tell_all(world->devices, SECURE_DEVICES);
    secure_expect_model(world, all);
    secure_end(world);
}

Test(secagg_calls, a_vector_without_shares_is_late)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_device *late = &world->devices[4];
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_mask(late);
    cr_assert_eq(secure_put(late), 200);
    secure_send_vector(late);
    secure_end_step(world); /* step mask without any vector */
    cr_expect_eq(world->fixture.server.n_closed, 1);
    dunlin__commit_response answer;
    cr_assert_eq(test_commit(&late->device, 1, NULL, &answer), 200);
    cr_expect_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_LATE);
    secure_end(world);
}

Test(secagg_calls, a_vector_that_is_not_whole_is_refused)
{
    dunlin__commit_response answer;
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_mask(&world->devices[0]);
    cr_assert_eq(secure_put(&world->devices[0]), 200);
    cr_expect_eq(test_commit(&world->devices[0].device, 1, NULL, &answer), 400);
    cr_expect_not_null(strstr(world->devices[0].device.status.text, "has not been sent"), "%s",
                       world->devices[0].device.status.text);
    secure_send_vector(&world->devices[0]);
    cr_expect_eq(test_commit(&world->devices[0].device, 1, NULL, &answer), 200);
    cr_expect_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    secure_end(world);
}

Test(secagg_calls, another_kind_of_update_is_refused)
{
    static const float values[SECURE_VALUES] = {0.5F};
    dunlin__put_response put;
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    cr_expect_eq(test_put(&world->devices[0].device, values, &put), 501);
    cr_expect_not_null(strstr(world->devices[0].device.status.text, "MASKED_RING"), "%s",
                       world->devices[0].device.status.text);
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_mask(&world->devices[0]);
    world->devices[0].n_packed -= 4;
    secure_end(world);
}

Test(secagg_calls, what_a_device_says_beside_its_vector_is_dropped)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices,
                          SECURE_DEVICES); /* with 77 examples, 3 steps and a loss */
    secure_tell_all(world->devices, SECURE_DEVICES);
    cr_assert_eq(world->fixture.server.n_closed, 1);
    const dunlin__round_row *row = &world->fixture.server.closed[0];
    for (int m = 0; m < DUNLIN_N_METRICS; m++) {
        cr_expect(!row->metrics.is_there[m]);
    }
    char *status = dunlin__server_status_text(&world->fixture.server);
    cr_expect_not_null(strstr(status, "\"claim\": \"honest_but_curious\""), "%s", status);
    cr_expect_not_null(strstr(status, "\"unmask_s\""), "%s", status);
    cr_expect_null(strstr(status, "77"), "%s", status);
    free(status);
    secure_end(world);
}

Test(secagg_calls, a_step_that_is_not_the_path_s)
{
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    cr_assert_eq(secure_step(&world->devices[0]), 200);
    world->devices[0].step = DUNLIN_V1_SECAGG_STEP_SHARE;
    cr_expect_eq(secure_send_again(&world->devices[0]), 400);
    world->devices[0].n_request = 1;
    cr_expect_eq(secure_send_again(&world->devices[0]), 400);
    secure_end(world);
}

Test(secagg_calls, without_the_task_s_key_there_is_no_session)
{
    static const float values[SECURE_VALUES] = {0.5F};
    secure_world *world = secure_begin(", \"rounds\": 3, \"cohort\": 5, \"clients\": 5");
    cr_assert(test_take_work(&world->devices[0].device));
    cr_expect_not(world->devices[0].device.assignment.plan.has_secagg);
    cr_expect_eq(world->devices[0].device.assignment.aggregation, DUNLIN_V1_AGGREGATION_PLAIN);
    static const uint8_t message[] = {0x08, 0x01, 0x10, 0x01}; /* step advertise, poll */
    memcpy(world->devices[0].request, message, sizeof message);
    world->devices[0].n_request = sizeof message;
    world->devices[0].step = DUNLIN_V1_SECAGG_STEP_ADVERTISE;
    cr_expect_eq(secure_send_again(&world->devices[0]), 410);
    cr_expect_eq(test_contribute(&world->devices[0].device, values, 3),
                 DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    secure_end(world);
}

/* A device that does not know of it gets no offer. */
Test(secagg_calls, who_has_not_the_feature_gets_no_work)
{
    dunlin__checkin_response answer;
    secure_world *world = secure_begin(SECURE_TASK(""));
    world->devices[0].device.can_all = false;
    cr_assert_eq(test_checkin(&world->devices[0].device, &answer), 200);
    cr_expect_eq(answer.rejection, DUNLIN_V1_REJECTION_NOT_SUITABLE);
    world->devices[0].device.can_all = true;
    cr_assert_eq(test_checkin(&world->devices[0].device, &answer), 200);
    cr_assert_eq(answer.offers_count, 1);
    cr_expect_eq(answer.offers[0].aggregation, DUNLIN_V1_AGGREGATION_SECURE);
    cr_expect(answer.offers[0].has_secagg);
    cr_expect_eq(answer.offers[0].secagg.n_cohort, 5);
    cr_expect_eq(answer.offers[0].secagg.threshold, 3);
    secure_end(world);
}

/* Bytes that nobody meant: a status of ours, and the session goes on. */
Test(secagg_calls, rubbish_is_refused_with_a_status)
{
    const bool all[SECURE_DEVICES] = {true, true, true, true, true};
    secure_world *world = secure_begin_with_work(SECURE_TASK(""));
    uint64_t state = 7;
    secure_agree_all(world->devices, SECURE_DEVICES);
    for (int i = 0; i < 300; i++) {
        secure_device *one = &world->devices[i % SECURE_DEVICES];
        one->step = (uint32_t)(1 + i % 5);
        one->n_request = test_random_below(&state, 200);
        for (size_t k = 0; k < one->n_request; k++) {
            one->request[k] = (uint8_t)test_random_u64(&state);
        }
        const uint32_t code = secure_send_again(one);
        cr_assert(code >= 400 && code < 500, "%u", (unsigned)code);
    }
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    secure_expect_model(world, all);
    secure_end(world);
}
