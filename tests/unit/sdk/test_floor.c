/*
 * test_floor.c - options.max_update_norm, the least privacy that the app accepts: a task that does
 * not promise to clip updates to at most that norm is not trained.
 */
#include "client/in_world.h"

#include <wire/signature.h>

#include <math.h>

static const float FLOOR = 1.625F;

static void begin(float floor_norm)
{
    dunlin_client_destroy(w.client);
    w.options.max_update_norm = floor_norm;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
}

static void expect_refused(dunlin_status wanted, const char *text)
{
    int n_fits = w.learner.n_fits;
    int n_loads = w.learner.n_loads;
    int n_contributions = w.server.n_contributions;
    (void)run(wanted, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, text), "%s",
                       dunlin_client_last_error(w.client)->text);
    cr_expect_eq(w.learner.n_loads, n_loads);
    cr_expect_eq(w.learner.n_fits, n_fits);
    cr_expect_eq(w.server.n_contributions, n_contributions);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_OBJECT_GET], 0, "the base was fetched all the same");
    expect_no_files();
    w.server.now_ms += dunlin_client_wait_ms(w.client);
}

WORLD_TEST(floor, a_plan_that_does_not_clip)
{
    begin(FLOOR);
    w.server.plan.clip_norm = 0.0F;
    expect_refused(DUNLIN_LIMIT, "at most 1.625");
}

WORLD_TEST(floor, a_plan_that_clips_to_more)
{
    begin(FLOOR);
    w.server.plan.clip_norm = nextafterf(FLOOR, 2.0F);
    expect_refused(DUNLIN_LIMIT, "at most 1.625");
    w.server.plan.clip_norm = 1e6F;
    expect_refused(DUNLIN_LIMIT, "at most 1.625");
}

/* Whole weights say more than a clipped update does, whatever the plan calls clipped. */
WORLD_TEST(floor, whole_weights_in_place_of_updates)
{
    begin(FLOOR);
    w.server.plan.update_form = DUNLIN_V1_UPDATE_FORM_WEIGHTS;
    w.server.plan.clip_norm = 1.0F;
    expect_refused(DUNLIN_LIMIT, "at most 1.625");
    w.server.plan.clip_norm = 0.0F;
    expect_refused(DUNLIN_LIMIT, "at most 1.625");
}

WORLD_TEST(floor, control_variates_are_not_clipped)
{
    begin(FLOOR);
    w.server.plan.algorithm = DUNLIN_V1_ALGORITHM_SCAFFOLD;
    w.server.plan.clip_norm = 0.0F;
    expect_refused(DUNLIN_LIMIT, "SCAFFOLD");
}

/* A bound that our own server would not encode: in the place of FLOOR, with a signature that is
 * right. */
static float hostile_bound;

static void put_bound(dunlin_v1_signed_assignment_t *sealed)
{
    static const char TAG[] = "dunlin.v1.assignment";
    uint8_t message[sizeof TAG + sizeof sealed->assignment.bytes];
    int n_found = 0;
    for (size_t i = 0; i + sizeof FLOOR <= sealed->assignment.size; i++) {
        if (memcmp(sealed->assignment.bytes + i, &FLOOR, sizeof FLOOR) == 0) {
            memcpy(sealed->assignment.bytes + i, &hostile_bound, sizeof hostile_bound);
            n_found++;
        }
    }
    cr_assert_eq(n_found, 1);
    memcpy(message, TAG, sizeof TAG);
    memcpy(message + sizeof TAG, sealed->assignment.bytes, sealed->assignment.size);
    cr_assert_eq(dunlin__sign(w.server.signing_key, message, sizeof TAG + sealed->assignment.size,
                              sealed->signature, NULL),
                 DUNLIN_OK);
}

static void begin_with_bound(float bound)
{
    setup();
    begin(FLOOR);
    w.server.plan.clip_norm = FLOOR;
    w.server.edit_sealed_fn = put_bound;
    hostile_bound = bound;
}

Test(floor, a_bound_that_is_none)
{
    static const float BOUNDS[] = {-1.0F, -0.001F, -INFINITY, INFINITY, NAN};
    for (size_t i = 0; i < sizeof BOUNDS / sizeof BOUNDS[0]; i++) {
        begin_with_bound(BOUNDS[i]);
        expect_refused(DUNLIN_PROTOCOL, "clip_norm");
        teardown();
    }
    /* The signature is right: the same way with a bound that is fine. */
    begin_with_bound(1.5F);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    teardown();
}

WORLD_TEST(floor, what_keeps_to_it_is_trained)
{
    begin(FLOOR);
    w.server.plan.clip_norm = FLOOR;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    w.server.round++;
    w.server.plan.clip_norm = 0.25F;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    double square = 0.0;
    for (int64_t i = 0; i < FAKE_VALUES - 3; i++) { /* the last are a statistic */
        square += (double)w.server.update[i] * (double)w.server.update[i];
    }
    cr_expect_float_eq(sqrt(square), 0.25, 1e-4);
}

/* Nothing of the weights goes up in a round that only evaluates. */
WORLD_TEST(floor, an_evaluation_has_no_update_to_clip)
{
    begin(FLOOR);
    w.server.is_evaluation = true;
    w.server.plan.clip_norm = 0.0F;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

WORLD_TEST(floor, without_one_a_plan_need_not_clip)
{
    begin(0.0F);
    w.server.plan.clip_norm = 0.0F;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}

Test(floor, is_a_number_of_0_or_more)
{
    static const float WRONG[] = {-1.0F, -INFINITY, NAN};
    setup();
    dunlin_client_destroy(w.client);
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        dunlin_error error = {0};
        w.options.max_update_norm = WRONG[i];
        cr_expect_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, &error),
                     DUNLIN_ARGUMENT);
        cr_expect_not_null(strstr(error.text, "max_update_norm"), "%s", error.text);
    }
    w.options.max_update_norm = 0.0F;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    teardown();
}
