/*
 * test_clip.c - the server's side of the bound: what it refuses, by which norm, and how the bound
 * moves from round to round.
 */
#include "server/device.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ONE ", \"rounds\": 4, \"cohort\": 1, "

typedef struct site {
    test_server fixture;
    test_device device;
} site;

/* w (2, 3), b (4, a statistic) and another averaged one of 2. */
#define N_VALUES 12

static void site_open(site *at, const char *keys)
{
    memset(at, 0, sizeof *at);
    test_server_folder(&at->fixture);
    test_server_open(&at->fixture, keys, 2);
    test_device_make(&at->device, &at->fixture);
    at->device.can_all = true;
    cr_assert_eq(test_enrol(&at->device, -1), 200);
}

static void site_end(site *at)
{
    test_server_close(&at->fixture);
    test_server_end(&at->fixture);
}

/* One round's contribution; `within` is what its commit says. */
static dunlin__commit_response contribute(site *at, const float *values,
                                          dunlin_v1_within_clip_t within)
{
    dunlin__put_response put;
    dunlin__commit_response commit;
    dunlin__checkin_response answer;
    at->fixture.now_ms += 60000;
    if (test_checkin(&at->device, &answer) != 200) { /* its challenge went with a restart */
        memcpy(at->device.challenge, at->device.status.challenge, sizeof at->device.challenge);
        cr_assert_eq(test_checkin(&at->device, &answer), 200);
    }
    cr_assert_eq(answer.rejection, DUNLIN_V1_REJECTION_NONE);
    cr_assert_eq(test_accept(&at->device), 200);
    at->device.within_clip = within;
    cr_assert_eq(test_put(&at->device, values, &put), 200);
    test_send_chunks(&at->device, values);
    cr_assert_eq(test_commit(&at->device, 4, NULL, &commit), 200);
    dunlin__server_tick(&at->fixture.server);
    return commit;
}

static void expect_refused(const char *keys, const float *values, const char *wanted)
{
    site at;
    site_open(&at, keys);
    const dunlin__commit_response commit = contribute(&at, values, 0);
    if (wanted == NULL) {
        cr_expect_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "%s", commit.text);
    } else {
        cr_expect_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
        cr_expect_not_null(strstr(commit.text, wanted), "%s", commit.text);
    }
    site_end(&at);
}

Test(clip, the_bound_is_of_the_difference_in_both_forms)
{
    float base[N_VALUES];
    float values[N_VALUES];
    site at;
    site_open(&at, ONE "\"update_form\": \"weights\"");
    test_read_model(&at.fixture, 1, base);
    site_end(&at);
    memcpy(values, base, sizeof values);
    values[2] += 3.0F;
    values[4] -= 4.0F;
    values[8] += 100.0F; /* a statistic, which no bound is of */
    const char *whole = ONE "\"update_form\": \"weights\", \"plan\": {\"clip_norm\": 4.99}";
    expect_refused(whole, values, "norm 5 is above the plan's 4.99");
    expect_refused(ONE "\"update_form\": \"weights\", \"plan\": {\"clip_norm\": 5.01}", values,
                   NULL);
    const float close[N_VALUES] = {1.000002F};
    expect_refused(ONE "\"plan\": {\"clip_norm\": 1}", close, "is above the plan's 1");
}

Test(clip, each_tensor_has_its_part_of_the_bound)
{
    const char *keys = ONE "\"plan\": {\"clip_norm\": 2, \"clip_layers\": true}";
    const float one[N_VALUES] = {1.5F}; /* more than 2 / sqrt(2), less than 2 */
    const float both[N_VALUES] = {1.4F, 0, 0, 0, 0, 0, 9, 9, 9, 9, 1.4F};
    expect_refused(keys, one, "the norm 1.5 of tensor w is above the plan's 1.41421 of a tensor");
    expect_refused(keys, both, NULL);
    expect_refused(ONE "\"plan\": {\"clip_norm\": 2}", one, NULL);
}

/* C exp(-rate (bit - quantile)), from round to round and over a restart. */
Test(clip, the_bound_moves_with_the_bits)
{
    const char *keys = ONE "\"plan\": {\"clip_norm\": 2, \"clip_quantile\": 0.25}";
    const float values[N_VALUES] = {0.5F};
    site at;
    site_open(&at, keys);
    double wanted = 2.0;
    for (int i = 0; i < 3; i++) {
        const bool is_within = i != 1;
        const dunlin__commit_response commit = contribute(
            &at, values, is_within ? DUNLIN_V1_WITHIN_CLIP_YES : DUNLIN_V1_WITHIN_CLIP_NO);
        cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "%s", commit.text);
        cr_expect_float_eq((double)at.device.assignment.plan.clip_norm, wanted, 1e-6 * wanted,
                           "round %d", i + 1);
        cr_expect(at.device.assignment.plan.reports_clip);
        wanted *= exp(-0.2 * ((is_within ? 1.0 : 0.0) - 0.25));
        if (i == 1) {
            test_server_close(&at.fixture);
            test_server_open(&at.fixture, keys, 2);
        }
    }
    const dunlin__round_row *row = &at.fixture.server.closed[1];
    cr_expect(row->has_clip_within && row->clip_within == 0.0);
    cr_expect_float_eq(row->clip_norm, 2.0 * exp(-0.15), 1e-6);
    site_end(&at);
}

/* A device that says nothing moves nothing, and one that was not asked is not listened to. */
Test(clip, bits_that_are_not_there_move_nothing)
{
    const float values[N_VALUES] = {0.5F};
    site at;
    site_open(&at, ONE "\"plan\": {\"clip_norm\": 2, \"clip_quantile\": 0.5}");
    (void)contribute(&at, values, DUNLIN_V1_WITHIN_CLIP_UNSPECIFIED);
    (void)contribute(&at, values, DUNLIN_V1_WITHIN_CLIP_YES);
    cr_expect_eq(at.device.assignment.plan.clip_norm, 2.0F);
    site_end(&at);
    site_open(&at, ONE "\"plan\": {\"clip_norm\": 2}");
    (void)contribute(&at, values, DUNLIN_V1_WITHIN_CLIP_NO);
    (void)contribute(&at, values, DUNLIN_V1_WITHIN_CLIP_NO);
    cr_expect_eq(at.device.assignment.plan.clip_norm, 2.0F);
    cr_expect_not(at.fixture.server.closed[0].has_clip_within);
    site_end(&at);
}
