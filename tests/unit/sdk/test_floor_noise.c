/*
 * test_floor_noise.c - options.max_epsilon, max_delta and min_cohort: work whose noise is below the
 * app's floor is declined with the reason, and the report says who vouches for an epsilon.
 */
#include "client/in_world.h"

#include <math.h>

static void begin(double max_epsilon, double max_delta, uint32_t min_cohort)
{
    dunlin_client_destroy(w.client);
    w.options.max_epsilon = max_epsilon;
    w.options.max_delta = max_delta;
    w.options.min_cohort = min_cohort;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    w.server.plan.clip_norm = 1.0F;
    w.server.has_privacy = true;
    w.server.privacy = (dunlin_v1_privacy_t){.mechanism = DUNLIN_V1_PRIVACY_MECHANISM_GAUSSIAN,
                                             .sampling = DUNLIN_V1_PRIVACY_SAMPLING_POISSON,
                                             .epsilon = 4,
                                             .delta = 1e-5,
                                             .noise_multiplier = 1.5,
                                             .clip_norm = 1,
                                             .n_rounds = 20,
                                             .cohort = 50};
}

static void expect_declined(dunlin_v1_decline_reason_t reason, const char *text)
{
    const int n_fits = w.learner.n_fits;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_DECLINED);
    cr_expect_eq(w.server.decline_reason, reason, "%d", (int)w.server.decline_reason);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, text), "%s",
                       dunlin_client_last_error(w.client)->text);
    cr_expect_eq(w.learner.n_fits, n_fits);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_OBJECT_GET], 0, "nothing is fetched");
    w.server.now_ms += dunlin_client_wait_ms(w.client);
}

WORLD_TEST(floor_noise, an_epsilon_above_it)
{
    begin(3.9, 0, 0);
    expect_declined(DUNLIN_V1_DECLINE_REASON_PRIVACY, "epsilon is 4 at delta 1e-05");
}

WORLD_TEST(floor_noise, a_delta_above_it)
{
    begin(4, 1e-6, 0);
    expect_declined(DUNLIN_V1_DECLINE_REASON_PRIVACY, "delta is 1e-05");
}

WORLD_TEST(floor_noise, a_cohort_below_it)
{
    begin(0, 0, 51);
    expect_declined(DUNLIN_V1_DECLINE_REASON_PRIVACY, "cohort is 50; this app wants at least 51");
}

WORLD_TEST(floor_noise, noise_that_can_be_repeated)
{
    begin(8, 0, 0);
    w.server.privacy.is_repeatable = true;
    expect_declined(DUNLIN_V1_DECLINE_REASON_PRIVACY, "can be repeated");
}

WORLD_TEST(floor_noise, no_noise_at_all)
{
    begin(8, 0, 0);
    w.server.has_privacy = false;
    expect_declined(DUNLIN_V1_DECLINE_REASON_APPLICATION, "the task has no noise");
}

static void raise_epsilon(dunlin__assignment *assignment)
{
    assignment->privacy.epsilon = 5;
}

/* What was offered and what is assigned need not be the same; what is signed counts. */
WORLD_TEST(floor_noise, an_assignment_that_says_more_than_the_offer)
{
    begin(4, 0, 0);
    w.server.edit_assignment_fn = raise_epsilon;
    (void)run(DUNLIN_LIMIT, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "epsilon is 5"), "%s",
                       dunlin_client_last_error(w.client)->text);
    cr_expect_eq(w.learner.n_fits, 0);
}

WORLD_TEST(floor_noise, what_reaches_it_is_trained_and_reported)
{
    begin(4, 1e-5, 50);
    dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(report.epsilon_kind, DUNLIN_EPSILON_STATED_BY_SERVER);
    cr_expect_float_eq(report.epsilon, 4, 0);
    cr_expect_float_eq(report.delta, 1e-5, 0);
    cr_expect_eq(w.server.commit.metrics_count, 0, "no numbers go up without noise");
    cr_expect_eq(w.server.commit.n_steps, 0);
}

WORLD_TEST(floor_noise, without_noise_nobody_vouches)
{
    begin(0, 0, 0);
    w.server.has_privacy = false;
    dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(report.epsilon_kind, DUNLIN_EPSILON_NONE);
    cr_expect_float_eq(report.epsilon, 0, 0);
}

Test(floor_noise, numbers_of_0_or_more)
{
    static const double wrong[][2] = {{-1, 0}, {NAN, 0}, {1, -1}, {1, NAN}, {0, 1e-5}};
    setup();
    dunlin_client_destroy(w.client);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        dunlin_error error = {0};
        w.options.max_epsilon = wrong[i][0];
        w.options.max_delta = wrong[i][1];
        cr_expect_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, &error),
                     DUNLIN_ARGUMENT);
        cr_expect_not_null(strstr(error.text, "max_delta"), "%s", error.text);
    }
    w.options.max_epsilon = 0;
    w.options.max_delta = 0;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    teardown();
}
