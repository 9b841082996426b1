/*
 * test_simulated_told.c - what a simulation tells of its devices, in the status: as it lies in its
 * file, or nothing.
 */
#include "dp_fleet.h"
#include "server/device.h"
#include "server/must.h"
#include "server/status_simulated.h"
#include "server/told.h"

#include <criterion/criterion.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the status has of a file with these bytes. */
static void expect_told(test_server *fixture, const char *text, const char *profile)
{
    fixture->server.options.simulated_file = test_server_write(fixture, "simulated.json", text);
    json_t *status = test_status(fixture);
    const json_t *simulated = json_object_get(status, "simulated");
    cr_assert_not_null(simulated);
    if (profile == NULL) {
        cr_expect(json_is_null(simulated), "%.60s", text);
    } else {
        cr_expect_str_eq(json_string_value(json_object_get(simulated, "profile")), profile);
    }
    json_decref(status);
}

Test(simulated_told, a_status_has_what_the_simulation_says_or_null)
{
    test_server fixture;
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 2, \"cohort\": 1", 0);
    json_t *status = test_status(&fixture);
    cr_expect(json_is_null(json_object_get(status, "simulated")), "no file was named");
    json_decref(status);
    fixture.server.options.simulated_file = "/nowhere/simulated.json";
    status = test_status(&fixture);
    cr_expect(json_is_null(json_object_get(status, "simulated")), "it is not there yet");
    json_decref(status);
    fixture.server.options.simulated_file = fixture.folder;
    status = test_status(&fixture);
    cr_expect(json_is_null(json_object_get(status, "simulated")), "it is a folder");
    json_decref(status);
    expect_told(&fixture, "{\"profile\": \"mixed\", \"hours\": 1.5}", "mixed");
    expect_told(&fixture, "{\"profile\": \"mi", NULL);
    expect_told(&fixture, "", NULL);
    expect_told(&fixture, "[{\"profile\": \"mixed\"}]", NULL);
    expect_told(&fixture, "{\"profile\": \"a\", \"profile\": \"b\"}", NULL);
    char *large = malloc(DUNLIN_SERVER_SIMULATED_BYTES + 64);
    cr_assert_not_null(large);
    for (size_t more = 0; more < 2; more++) { /* as long as it may be, and a byte longer */
        const int n = sprintf(large, "{\"profile\": \"large\"}");
        memset(large + n, ' ', DUNLIN_SERVER_SIMULATED_BYTES - (size_t)n + more);
        large[DUNLIN_SERVER_SIMULATED_BYTES + more] = '\0';
        expect_told(&fixture, large, more == 0 ? "large" : NULL);
    }
    free(large);
    test_server_close(&fixture);
    test_server_end(&fixture);
}

/* Who took part follows from it: a private run does not tell that. */
Test(simulated_told, a_private_run_tells_nothing_of_its_devices)
{
    for (int is_repeatable = 0; is_repeatable < 2; is_repeatable++) {
        test_server fixture;
        dp_begin(&fixture);
        fixture.has_noise_seed = is_repeatable != 0;
        test_server_open(&fixture, DP("2", "3", "3", "\"noise\": 1"), 0);
        expect_told(&fixture, "{\"profile\": \"mixed\"}", is_repeatable != 0 ? "mixed" : NULL);
        dp_end(&fixture);
    }
}
