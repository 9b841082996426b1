/*
 * test_secagg.c - real clients against the real server in rounds with secure aggregation, one
 * thread driving all of them: the model to the bit, kills of a device at each stage, a killed
 * server.
 */
#include "secagg_fleet.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define N FLEET_DEVICES
#define N_VALUES FLEET_VALUES
#define VALUE_LIMIT FLEET_VALUE_LIMIT
#define TASK FLEET_TASK("", ", \"clip\": 1, \"weight_limit\": 1")

static secagg_fleet fleet;

static uint32_t whole(const real_device *d, int64_t i)
{
    const int64_t place = i < 70000 ? i : (i < 70012 ? i - 70000 : i - 70012);
    return (uint32_t)(d->learner.step * (float)(place % 5 + 1) * (float)VALUE_LIMIT);
}

/* The mean of whole numbers of those that are in, to the bit. */
static void expect_model(const bool *is_in, int round)
{
    static float model[N_VALUES];
    int n = 0;
    for (int d = 0; d < N; d++) {
        n += is_in[d] ? 1 : 0;
    }
    server_process_wait_rounds(&fleet.server, round);
    server_process_model(&fleet.server, round + 1, model, N_VALUES);
    for (int64_t i = 0; i < N_VALUES; i++) {
        uint32_t sum = 0;
        for (int d = 0; d < N; d++) {
            sum += is_in[d] ? whole(&fleet.devices[d], i) : 0;
        }
        const float wanted = (float)((double)sum * (1.0 / VALUE_LIMIT * (1.0 / (double)n)));
        cr_assert_eq(memcmp(&model[i], &wanted, sizeof wanted), 0, "value %lld: %.9g, not %.9g",
                     (long long)i, (double)model[i], (double)wanted);
    }
}

Test(secagg, the_model_is_the_mean_to_the_bit)
{
    static const bool all[N] = {true, true, true, true};
    secagg_fleet_begin(&fleet, TASK);
    secagg_fleet_drive(&fleet);
    for (int i = 0; i < N; i++) {
        secagg_fleet_expect_accepted(&fleet.devices[i]);
        cr_expect_eq(fleet.devices[i].report.aggregation, DUNLIN_AGGREGATION_HONEST_BUT_CURIOUS);
        cr_expect_leq(fake_folder_count(fleet.devices[i].store), 3, "the round's files are gone");
    }
    expect_model(all, 1);
    cr_expect_eq(secagg_fleet_came(&fleet, 1, "unmask"), N);
    secagg_fleet_end(&fleet);
}

/* Nothing was agreed yet: it goes on as if nothing had been. */
Test(secagg, a_kill_before_the_keys)
{
    static const bool all[N] = {true, true, true, true};
    secagg_fleet_begin(&fleet, TASK);
    secagg_fleet_drive_until(&fleet, secagg_fleet_has_learned);
    real_device_kill(&fleet.devices[0]);
    secagg_fleet_drive(&fleet);
    secagg_fleet_expect_accepted(&fleet.devices[0]);
    expect_model(all, 1);
    secagg_fleet_end(&fleet);
}

/* Its keys are gone, and there are no second ones: it leaves, and the others go on. */
Test(secagg, a_kill_after_the_keys)
{
    static const bool others[N] = {false, true, true, true};
    secagg_fleet_begin(&fleet, TASK);
    secagg_fleet_drive_until(&fleet, secagg_fleet_has_advertised);
    real_device_kill(&fleet.devices[0]);
    secagg_fleet_drive(&fleet);
    /* Refused by the server, or by itself: the list of keys has not those that it has now. */
    cr_expect(fleet.devices[0].status == DUNLIN_REJECTED ||
                  fleet.devices[0].status == DUNLIN_MISMATCH,
              "%s: %s", dunlin_status_name(fleet.devices[0].status),
              dunlin_client_last_error(fleet.devices[0].client)->text);
    for (int i = 1; i < N; i++) {
        secagg_fleet_expect_accepted(&fleet.devices[i]);
    }
    expect_model(others, 1);
    secagg_fleet_end(&fleet);
}

/* Kills after the vector is masked: the same bytes are sent, and no shares are told. */
static void kill_masked(bool (*reached_fn)(const real_device *d), int n_unmask)
{
    static const bool all[N] = {true, true, true, true};
    secagg_fleet_begin(&fleet, TASK);
    secagg_fleet_drive_until(&fleet, reached_fn);
    real_device_kill(&fleet.devices[0]);
    secagg_fleet_drive(&fleet);
    for (int i = 0; i < N; i++) {
        secagg_fleet_expect_accepted(&fleet.devices[i]);
    }
    expect_model(all, 1);
    cr_expect_eq(secagg_fleet_came(&fleet, 1, "mask"), N);
    cr_expect_eq(secagg_fleet_came(&fleet, 1, "unmask"), n_unmask);
    secagg_fleet_end(&fleet);
}

Test(secagg, a_kill_with_the_masked_vector)
{
    kill_masked(secagg_fleet_has_masked, N - 1);
}

Test(secagg, a_kill_after_the_commit)
{
    kill_masked(secagg_fleet_has_committed, N - 1);
}

Test(secagg, a_kill_before_the_shares_are_told)
{
    kill_masked(secagg_fleet_is_about_to_unmask, N - 1);
}

/* The round is closed as failed, and the devices find the next one. */
Test(secagg, a_killed_server_fails_the_round)
{
    static const bool all[N] = {true, true, true, true};
    secagg_fleet_begin(&fleet, TASK);
    secagg_fleet_drive_until(&fleet, secagg_fleet_has_committed);
    server_process_kill(&fleet.server);
    server_process_restart(&fleet.server);
    secagg_fleet_drive(&fleet); /* late, or refused */
    server_process_wait_rounds(&fleet.server, 1);
    char *text = server_process_status(&fleet.server);
    cr_expect_not_null(strstr(text, "the server was started anew within it"), "%s", text);
    free(text);
    for (int i = 0; i < N; i++) {
        fleet.devices[i].is_over = false;
    }
    secagg_fleet_drive(&fleet);
    for (int i = 0; i < N; i++) {
        secagg_fleet_expect_accepted(&fleet.devices[i]);
        cr_expect_eq(fleet.devices[i].report.round, 2);
    }
    expect_model(all, 2);
    secagg_fleet_end(&fleet);
}
