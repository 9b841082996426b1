/*
 * test_floor_secagg.c - options.require_secure_aggregation and the numbers beside it: work below
 * the app's floor is declined before anything is fetched, and so is what a masked update cannot be.
 */
#include "client/in_world.h"

static void begin(bool is_required)
{
    dunlin_client_destroy(w.client);
    w.options.require_secure_aggregation = is_required;
    w.options.secagg_min_cohort = 100;
    w.options.secagg_min_devices = 50;
    w.options.secagg_min_threshold = 12;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
}

/* Terms that reach the floor, of the fake server's model. */
static void offer_secure(void)
{
    w.server.is_secure = true;
    w.server.required_feature = DUNLIN_V1_FEATURE_SECURE_AGGREGATION;
    w.server.plan.update_encoding = DUNLIN_V1_ENCODING_MASKED_RING;
    w.server.plan.has_secagg = true;
    w.server.plan.secagg = (dunlin_v1_secagg_plan_t){.session = {.size = 16},
                                                     .n_neighbours = 22,
                                                     .threshold = 12,
                                                     .ring_bits = 32,
                                                     .peer_index = 1,
                                                     .check_consistency = true,
                                                     .version = 1,
                                                     .n_cohort = 100,
                                                     .least_devices = 50,
                                                     .n_values = FAKE_VALUES,
                                                     .clip = 1.0F,
                                                     .value_limit = 1000,
                                                     .weight_limit = 1000};
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

WORLD_TEST(floor_secagg, an_update_that_the_server_would_see)
{
    begin(true);
    expect_declined(DUNLIN_V1_DECLINE_REASON_APPLICATION, "require_secure_aggregation");
}

WORLD_TEST(floor_secagg, without_the_wish_it_is_trained)
{
    begin(false);
    dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(report.aggregation, DUNLIN_AGGREGATION_PLAIN);
}

WORLD_TEST(floor_secagg, numbers_below_it)
{
    begin(false);
    offer_secure();
    w.server.plan.secagg.n_cohort = 99;
    expect_declined(DUNLIN_V1_DECLINE_REASON_APPLICATION,
                    "n_cohort of the secure aggregation is 99");
    w.server.plan.secagg.n_cohort = 100;
    w.server.plan.secagg.least_devices = 49;
    expect_declined(DUNLIN_V1_DECLINE_REASON_APPLICATION, "least_devices");
    w.server.plan.secagg.least_devices = 50;
    w.server.plan.secagg.n_neighbours = 20;
    w.server.plan.secagg.threshold = 11;
    expect_declined(DUNLIN_V1_DECLINE_REASON_APPLICATION, "threshold");
}

static void lower_threshold(dunlin__assignment *assignment)
{
    assignment->plan.secagg.n_neighbours = 20;
    assignment->plan.secagg.threshold = 11;
}

static void make_plain(dunlin__assignment *assignment)
{
    assignment->aggregation = DUNLIN_V1_AGGREGATION_PLAIN;
    assignment->plan.has_secagg = false;
    assignment->plan.update_encoding = DUNLIN_V1_ENCODING_F32;
}

/* What was offered and what is assigned need not be the same; what is signed counts. */
WORLD_TEST(floor_secagg, an_assignment_below_the_offer)
{
    begin(true);
    offer_secure();
    w.server.edit_assignment_fn = lower_threshold;
    (void)run(DUNLIN_LIMIT, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "threshold"), "%s",
                       dunlin_client_last_error(w.client)->text);
    w.server.now_ms += dunlin_client_wait_ms(w.client);
    w.server.edit_assignment_fn = make_plain;
    (void)run(DUNLIN_LIMIT, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(
        strstr(dunlin_client_last_error(w.client)->text, "require_secure_aggregation"), "%s",
        dunlin_client_last_error(w.client)->text);
    cr_expect_eq(w.learner.n_fits, 0);
}

static void ask_for_scaffold(dunlin__assignment *assignment)
{
    assignment->plan.algorithm = DUNLIN_V1_ALGORITHM_SCAFFOLD;
}

static void ask_for_weights(dunlin__assignment *assignment)
{
    assignment->plan.update_form = DUNLIN_V1_UPDATE_FORM_WEIGHTS;
}

static void ask_for_evaluations(dunlin__assignment *assignment)
{
    assignment->plan.evaluates = true;
}

static void ask_for_odd_bits(dunlin__assignment *assignment)
{
    assignment->plan.secagg.ring_bits = 20;
    assignment->plan.secagg.value_limit = 1;
    assignment->plan.secagg.weight_limit = 1;
}

static void ask_for_too_much(dunlin__assignment *assignment)
{
    assignment->plan.secagg.value_limit = 2147483647;
}

WORLD_TEST(floor_secagg, what_a_masked_update_cannot_be)
{
    static const struct {
        void (*edit_fn)(dunlin__assignment *assignment);
        dunlin_status status;
        const char *text;
    } rows[] = {{ask_for_scaffold, DUNLIN_UNSUPPORTED, "a second vector"},
                {ask_for_weights, DUNLIN_UNSUPPORTED, "whole weights"},
                {ask_for_evaluations, DUNLIN_UNSUPPORTED, "single devices"},
                {ask_for_odd_bits, DUNLIN_UNSUPPORTED, "ring_bits"},
                {ask_for_too_much, DUNLIN_ARGUMENT, "value_limit"}};
    begin(true);
    offer_secure();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        w.server.edit_assignment_fn = rows[i].edit_fn;
        (void)run(rows[i].status, DUNLIN_OUTCOME_NONE);
        cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, rows[i].text), "%s",
                           dunlin_client_last_error(w.client)->text);
        w.server.now_ms += dunlin_client_wait_ms(w.client);
    }
    cr_expect_eq(w.learner.n_fits, 0);
}
