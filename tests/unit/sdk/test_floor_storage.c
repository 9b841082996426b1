/*
 * test_floor_storage.c - a plan that says how steps store what they keep: what the learner is told,
 * and options.stores_exact, by which an app forbids it.
 */
#include "client/in_world.h"

static void begin(bool stores_exact)
{
    dunlin_client_destroy(w.client);
    w.options.stores_exact = stores_exact;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
}

static void want_storage(dunlin_v1_storage_t storage)
{
    w.server.plan.storage = storage;
    w.server.required_feature = DUNLIN_V1_FEATURE_STORAGE;
}

static bool is_announced(uint32_t feature)
{
    for (pb_size_t i = 0; i < w.server.capabilities.features_count; i++) {
        if (w.server.capabilities.features[i] == feature) {
            return true;
        }
    }
    return false;
}

WORLD_TEST(floor_storage, the_learner_is_told)
{
    static const struct {
        dunlin_v1_storage_t plan;
        dunlin_task_storage task;
    } rows[] = {{DUNLIN_V1_STORAGE_INT8, DUNLIN_TASK_STORAGE_INT8},
                {DUNLIN_V1_STORAGE_BF16, DUNLIN_TASK_STORAGE_BF16}};
    for (int i = 0; i < 2; i++) {
        want_storage(rows[i].plan);
        const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        cr_expect_eq(w.learner.task.storage, rows[i].task);
        cr_expect_eq(report.storage, rows[i].task);
        cr_expect(is_announced(DUNLIN_V1_FEATURE_STORAGE));
        w.server.now_ms += dunlin_client_wait_ms(w.client);
        w.server.round++;
    }
}

WORLD_TEST(floor_storage, a_plan_without_it_tells_of_none)
{
    const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.learner.task.storage, DUNLIN_TASK_STORAGE_EXACT);
    cr_expect_eq(report.storage, DUNLIN_TASK_STORAGE_EXACT);
}

WORLD_TEST(floor_storage, an_app_that_forbids_it_declines_and_says_why)
{
    begin(true);
    want_storage(DUNLIN_V1_STORAGE_BF16);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_DECLINED);
    cr_expect_eq(w.server.decline_reason, DUNLIN_V1_DECLINE_REASON_APPLICATION, "%d",
                 (int)w.server.decline_reason);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "stores_exact"), "%s",
                       dunlin_client_last_error(w.client)->text);
    cr_expect_eq(w.learner.n_loads, 0);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_OBJECT_GET], 0, "nothing is fetched");
    cr_expect_not(is_announced(DUNLIN_V1_FEATURE_STORAGE));
    cr_expect(is_announced(DUNLIN_V1_FEATURE_PRECISION), "the others stay");
}

/* An offer that keeps silent about what its assignment then says. */
WORLD_TEST(floor_storage, an_assignment_that_says_more_than_its_offer_is_refused)
{
    begin(true);
    w.server.plan.storage = DUNLIN_V1_STORAGE_INT8;
    w.server.assignment_feature = DUNLIN_V1_FEATURE_STORAGE;
    (void)run(DUNLIN_LIMIT, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text,
                              "the plan stores what a step keeps in int8; this app has "
                              "stores_exact"),
                       "%s", dunlin_client_last_error(w.client)->text);
    cr_expect_eq(w.learner.n_loads, 0);
    cr_expect_eq(w.server.n_calls[DUNLIN_CALL_OBJECT_GET], 0, "nothing is fetched");
}

/* Evaluations store nothing for a backward pass. */
WORLD_TEST(floor_storage, an_evaluation_is_no_matter_of_it)
{
    begin(true);
    want_storage(DUNLIN_V1_STORAGE_INT8);
    w.server.is_evaluation = true;
    const dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(report.storage, DUNLIN_TASK_STORAGE_EXACT);
    cr_expect_gt(w.learner.n_evaluates, 0);
}

WORLD_TEST(floor_storage, a_learner_that_cannot_ends_the_round)
{
    want_storage(DUNLIN_V1_STORAGE_INT8);
    w.learner.load_status = DUNLIN_UNSUPPORTED;
    (void)run(DUNLIN_UNSUPPORTED, DUNLIN_OUTCOME_NONE);
    cr_expect_eq(w.server.n_contributions, 0);
}
