/*
 * test_storage_plan.c - the server's side of a plan that says how steps store what they keep: the
 * key of the task file, what is ordered of whom, and what is refused by name.
 */
#include "rounds/orders.h"
#include "server/device.h"
#include "server/must.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#define START "{\"population\": \"phones\", \"task\": \"t\", \"rounds\": 10, \"cohort\": 1, "
#define TENSORS "\"tensors\": [{\"name\": \"w\", \"shape\": [2, 3]}]"

static dunlin_status read_task(const char *text, dunlin__server_task *out_task, dunlin_error *error)
{
    test_server fixture;
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    test_server_folder(&fixture);
    const char *path = test_server_write(&fixture, "task.json", text);
    const dunlin_status status = dunlin__server_task_read(path, &alloc, out_task, error);
    test_server_end(&fixture);
    return status;
}

Test(storage_plan, the_key_is_an_order_with_its_feature)
{
    static const struct {
        const char *plan;
        dunlin_v1_storage_t storage;
    } rows[] = {{"\"lr\": 0.1", DUNLIN_V1_STORAGE_EXACT},
                {"\"lr\": 0.1, \"storage\": \"exact\"", DUNLIN_V1_STORAGE_EXACT},
                {"\"lr\": 0.1, \"storage\": \"bf16\"", DUNLIN_V1_STORAGE_BF16},
                {"\"lr\": 0.1, \"storage\": \"int8\"", DUNLIN_V1_STORAGE_INT8}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
        dunlin__training_plan plan = {0};
        uint32_t features[DUNLIN_SERVER_FEATURES];
        char text[256];
        bool is_asked = false;
        (void)snprintf(text, sizeof text, START TENSORS ", \"plan\": {%s}}", rows[i].plan);
        cr_assert_eq(read_task(text, &task, &error), DUNLIN_OK, "%s", error.text);
        dunlin__orders_fill(&task, 1, &plan);
        cr_expect_eq(plan.storage, rows[i].storage, "%s", rows[i].plan);
        const size_t n = dunlin__server_features(&task, true, features);
        for (size_t k = 0; k < n; k++) {
            is_asked = is_asked || features[k] == DUNLIN_V1_FEATURE_STORAGE;
        }
        cr_expect_eq(is_asked, rows[i].storage != DUNLIN_V1_STORAGE_EXACT, "%s", rows[i].plan);
        dunlin__server_task_free(&task, &alloc);
    }
}

Test(storage_plan, a_device_that_does_not_know_it_gets_no_work)
{
    test_server fixture;
    test_device knows;
    test_device other;
    test_server_folder(&fixture);
    test_server_open(&fixture,
                     ", \"rounds\": 10, \"cohort\": 1, \"plan\": {\"lr\": 0.1, "
                     "\"storage\": \"int8\"}",
                     0);
    test_device_make(&other, &fixture);
    cr_assert_eq(test_enrol(&other, -1), 200);
    cr_expect_not(test_take_work(&other));
    test_device_make(&knows, &fixture);
    knows.can_all = true;
    cr_assert_eq(test_enrol(&knows, -1), 200);
    cr_assert(test_take_work(&knows));
    cr_expect_eq(knows.assignment.plan.storage, DUNLIN_V1_STORAGE_INT8);
    test_server_close(&fixture);
    test_server_end(&fixture);
}

Test(storage_plan, tasks_that_contradict_themselves_are_refused)
{
    static const struct {
        dunlin_status status;
        const char *plan, *text;
    } cases[] = {
        {DUNLIN_UNSUPPORTED, "\"storage\": \"int4\"", "plan.storage \"int4\" is not in this build"},
        {DUNLIN_DATA, "\"storage\": 8", "plan.storage"},
        {DUNLIN_DATA, "\"storage\": \"int8\", \"precision\": \"niti\"",
         "plan.storage int8 does not go with precision niti"},
        {DUNLIN_DATA, "\"lr\": 0.1, \"storage\": \"bf16\", \"precision\": \"octo\"",
         "plan.storage bf16 does not go with precision octo"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        dunlin__server_task task;
        dunlin_error error = {0};
        (void)snprintf(text, sizeof text, START TENSORS ", \"plan\": {%s}}", cases[i].plan);
        cr_expect_eq(read_task(text, &task, &error), cases[i].status, "%s", cases[i].plan);
        cr_expect_not_null(strstr(error.text, cases[i].text), "%s: %s", cases[i].plan, error.text);
    }
}

#ifdef TEST_HAS_TRAINER
/* A server starts with every network that devices can store so, concatenations among them. */
Test(storage_plan, networks_are_taken_with_a_storage)
{
    static const char *const models[] = {"lenet5", "squeezenet1_1"};
    for (size_t i = 0; i < 2; i++) {
        test_server fixture;
        dunlin__server_task task;
        dunlin_error error = {0};
        dunlin_log log = {0};
        char text[256];
        char state[160];
        dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
        test_server_folder(&fixture);
        (void)snprintf(text, sizeof text,
                       START "\"model\": \"%s\", \"image\": 32, \"plan\": {\"lr\": 0.1, "
                             "\"storage\": \"int8\"}}",
                       models[i]);
        const char *path = test_server_write(&fixture, "task.json", text);
        MUST(dunlin__server_task_read(path, &alloc, &task, &error));
        (void)snprintf(state, sizeof state, "%s/state", fixture.folder);
        const dunlin_server_options options = {.host = "127.0.0.1",
                                               .state_folder = state,
                                               .accept_ms = 100,
                                               .reject_ms = 200,
                                               .n_threads = 1,
                                               .has_claimed_places = true};
        const dunlin_status status =
            dunlin__server_open(&fixture.server, &options, &task, &log, &error);
        cr_assert_eq(status, DUNLIN_OK, "%s: %s", models[i], error.text);
        test_server_close(&fixture);
        test_server_end(&fixture);
    }
}
#endif
