/*
 * test_floor_distributed.c - noise that devices add: what the report says of its epsilon, the
 * separation that it is reckoned by, and assignments that do not say what they ask for.
 */
#include "client/in_world.h"

/* Two rounds of this device in twenty, with noise of twice the clip: epsilon 3.19 at 1e-5. */
static void begin_distributed(double epsilon)
{
    dunlin_client_destroy(w.client);
    w.options.require_secure_aggregation = true;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    w.server.is_secure = true;
    w.server.required_feature = DUNLIN_V1_FEATURE_SECURE_AGGREGATION;
    w.server.assignment_feature = DUNLIN_V1_FEATURE_DISTRIBUTED_NOISE;
    w.server.plan.clip_norm = 1.0F;
    w.server.plan.update_encoding = DUNLIN_V1_ENCODING_MASKED_RING;
    w.server.plan.has_secagg = true;
    w.server.plan.secagg = (dunlin_v1_secagg_plan_t){.session = {.size = 16},
                                                     .n_neighbours = 22,
                                                     .threshold = 12,
                                                     .ring_bits = 32,
                                                     .peer_index = 1,
                                                     .check_consistency = true,
                                                     .version = 2,
                                                     .n_cohort = 100,
                                                     .least_devices = 50,
                                                     .n_values = FAKE_VALUES,
                                                     .clip = 1.0F,
                                                     .value_limit = 7000,
                                                     .weight_limit = 1,
                                                     .noise_kind = DUNLIN_V1_SECAGG_NOISE_GAUSSIAN,
                                                     .noise_scale = 2000,
                                                     .least_honest = 49};
    w.server.has_privacy = true;
    w.server.privacy = (dunlin_v1_privacy_t){.mechanism = DUNLIN_V1_PRIVACY_MECHANISM_GAUSSIAN,
                                             .sampling = DUNLIN_V1_PRIVACY_SAMPLING_ARRIVAL,
                                             .epsilon = epsilon,
                                             .delta = 1e-5,
                                             .noise_multiplier = 2,
                                             .clip_norm = 1,
                                             .n_rounds = 20,
                                             .cohort = 100,
                                             .min_separation_rounds = 10,
                                             .is_distributed = true};
}

/* A round that gets as far as training. */
static dunlin_round_report train(void)
{
    w.learner.fit_status = DUNLIN_DATA;
    return run(DUNLIN_DATA, DUNLIN_OUTCOME_NONE);
}

WORLD_TEST(floor_distributed, what_follows_from_the_noise_is_proved)
{
    begin_distributed(3.2);
    const dunlin_round_report report = train();
    cr_expect_eq(report.epsilon_kind, DUNLIN_EPSILON_PROVED_HERE);
    cr_expect_float_eq(report.epsilon, 3.2, 0);
    cr_expect_float_eq(report.delta, 1e-5, 0);
    cr_expect_eq(report.aggregation, DUNLIN_AGGREGATION_HONEST_BUT_CURIOUS);
}

WORLD_TEST(floor_distributed, less_than_follows_is_stated_alone)
{
    begin_distributed(3);
    const dunlin_round_report report = train();
    cr_expect_eq(report.epsilon_kind, DUNLIN_EPSILON_STATED_BY_SERVER);
}

/* The same numbers with Skellam noise of finer steps than it may have of a thousand: by its own
 * bound, and a scale beyond its most is refused. */
static void ask_for_skellam(dunlin__assignment *assignment)
{
    assignment->plan.secagg.noise_kind = DUNLIN_V1_SECAGG_NOISE_SKELLAM;
    assignment->plan.secagg.noise_scale = 1000;
    assignment->plan.secagg.value_limit = 3500;
}

WORLD_TEST(floor_distributed, skellam_noise_is_proved_by_its_own_bound)
{
    begin_distributed(3.21);
    w.server.edit_assignment_fn = ask_for_skellam;
    const dunlin_round_report report = train();
    cr_expect_eq(report.epsilon_kind, DUNLIN_EPSILON_PROVED_HERE);
}

WORLD_TEST(floor_distributed, less_skellam_noise_is_not)
{
    begin_distributed(3.18);
    w.server.edit_assignment_fn = ask_for_skellam;
    const dunlin_round_report report = train();
    cr_expect_eq(report.epsilon_kind, DUNLIN_EPSILON_STATED_BY_SERVER);
}

/* More rounds than this device would take part in on its own. */
WORLD_TEST(floor_distributed, without_separation_less_is_proved)
{
    begin_distributed(3.2);
    w.server.privacy.min_separation_rounds = 0;
    const dunlin_round_report report = train();
    cr_expect_eq(report.epsilon_kind, DUNLIN_EPSILON_STATED_BY_SERVER);
}

static void ask_for_coarse_steps(dunlin__assignment *assignment)
{
    assignment->plan.secagg.value_limit = 50;
}

WORLD_TEST(floor_distributed, steps_that_rounding_would_fill)
{
    begin_distributed(3.2);
    w.server.edit_assignment_fn = ask_for_coarse_steps;
    (void)run(DUNLIN_ARGUMENT, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "too coarse"), "%s",
                       dunlin_client_last_error(w.client)->text);
    cr_expect_eq(w.learner.n_fits, 0);
}

/* A policy that says nothing of it changes nothing: the second round is ten rounds later. */
WORLD_TEST(floor_distributed, the_separation_is_kept_whatever_the_policy)
{
    begin_distributed(3.2);
    w.server.is_secure = false;
    w.server.plan.has_secagg = false;
    w.server.plan.update_encoding = DUNLIN_V1_ENCODING_F32;
    w.server.required_feature = 0;
    w.server.assignment_feature = 0;
    w.server.privacy.is_distributed = false;
    dunlin_client_destroy(w.client);
    w.options.require_secure_aggregation = false;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    w.server.round += 9;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_DECLINED);
    cr_expect_eq(w.server.decline_reason, DUNLIN_V1_DECLINE_REASON_SEPARATION);
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    w.server.round++;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
}
