/*
 * test_dp_local.c - rounds with noise of a network with running statistics: they stay on the
 * devices, or the task is refused.
 */
#include "dp_fleet.h"
#include "server/must.h"
#include "task/task.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STATISTICS 3
#define VALUES (DP_VALUES + STATISTICS)

static dunlin_status open_with_rule(test_server *fixture, const char *rule, dunlin_error *error)
{
    static char state[256];
    char text[1024];
    dunlin__server_task task;
    dunlin_log log = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    (void)snprintf(text, sizeof text,
                   "{\"population\": \"%s\", \"task\": \"sums\", \"tensors\": ["
                   "{\"name\": \"w\", \"shape\": [%d]}, "
                   "{\"name\": \"bn.running_var\", \"shape\": [%d], \"rule\": \"%s\"}]%s}",
                   TEST_POPULATION, DP_VALUES, STATISTICS, rule, DP("2", "1", "1", "\"noise\": 1"));
    const char *path = test_server_write(fixture, "local.json", text);
    DUNLIN_TRY(dunlin__server_task_read(path, &alloc, &task, error));
    (void)snprintf(state, sizeof state, "%s/state", fixture->folder);
    dunlin_server_options options = {
        .host = "127.0.0.1", .state_folder = state, .n_threads = 1, .has_claimed_places = true};
    memset(&fixture->server, 0, sizeof fixture->server);
    test_server_keep_time(fixture);
    return dunlin__server_open(&fixture->server, &options, &task, &log, error);
}

/* Neither a device's update nor the noise reaches them. */
Test(dp_local, statistics_that_stay_are_in_no_sum)
{
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    float update[DP_VALUES];
    float model[VALUES];
    dp_begin(&fixture);
    MUST(open_with_rule(&fixture, "local", &error));
    cr_assert_eq(fixture.server.layout.n_values, VALUES);
    cr_assert_eq(fixture.server.layout.n_shared_values, DP_VALUES);
    dp_join_all(&fixture, &device, 1);
    dp_fill(update, 0.3F);
    cr_assert_eq(dp_contribute_all(&device, 1, update, 9), 1);
    dp_close_round(&fixture); /* with one update, and */
    dp_close_round(&fixture); /* without any */
    for (uint64_t round = 2; round <= 3; round++) {
        test_read_model(&fixture, round, model);
        for (int i = 0; i < VALUES; i++) {
            cr_expect_eq(fabsf(model[i]) > 0, i < DP_VALUES, "round %d, value %d: %g", (int)round,
                         i, model[i]);
        }
    }
    dp_end(&fixture);
}

Test(dp_local, statistics_that_go_up_are_refused)
{
    test_server fixture;
    dunlin_error error = {0};
    test_server_folder(&fixture);
    cr_expect_eq(open_with_rule(&fixture, "statistic", &error), DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text,
                              "dp does not go with statistics: running statistics go up "
                              "without a bound, but for those that are local"),
                       "%s", error.text);
    test_server_end(&fixture);
}
