/*
 * test_aggregate.c - the average is the plain one, to the bit, whichever update arrived first.
 */
#include "server/device.h"

#include <criterion/criterion.h>

#include <math.h>
#include <random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_CLIENTS 5
#define N_MORE 70001u /* two chunks and an odd end */
#define N_VALUES (N_MORE + 10u)

static float updates[N_CLIENTS][N_VALUES];
static float base[N_VALUES];
static float found[N_VALUES];
static float before[N_VALUES];

static const uint64_t weights[N_CLIENTS] = {3, 1000, 17, 64, 5};

static void shuffle(int *order, uint64_t *state)
{
    for (int i = 0; i < N_CLIENTS; i++) {
        order[i] = i;
    }
    for (int i = N_CLIENTS - 1; i > 0; i--) {
        int j = (int)test_random_below(state, (uint64_t)i + 1);
        int held = order[i];
        order[i] = order[j];
        order[j] = held;
    }
}

/* A whole run of one round with contributions in the given order; the model is in `found`. */
static void run(const char *keys, const int *order)
{
    test_server fixture;
    test_device devices[N_CLIENTS];
    test_server_folder(&fixture);
    test_server_open(&fixture, keys, N_MORE);
    dunlin__checkin_response answer;
    for (int i = 0; i < N_CLIENTS; i++) {
        test_device_make(&devices[order[i]], &fixture);
        cr_assert_eq(test_enrol(&devices[order[i]], order[i]), 200);
        cr_assert_eq(test_checkin(&devices[order[i]], &answer), 200);
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        cr_assert(test_take_work(&devices[order[i]]));
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        int client = order[N_CLIENTS - 1 - i];
        cr_assert_eq(test_contribute(&devices[client], updates[client], weights[client]),
                     DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    test_read_model(&fixture, 1, base);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.fault.status, DUNLIN_OK, "%s", fixture.server.fault.text);
    cr_assert_eq(fixture.server.round.round, 2);
    test_read_model(&fixture, 2, found);
    test_server_close(&fixture);
    test_server_end(&fixture);
}

#define KEYS ", \"rounds\": 1, \"cohort\": 5, \"clients\": 5, \"weight_cap\": 100"

Test(aggregate, equals_a_plain_average_in_any_order)
{
    uint64_t state = test_seed(1);
    for (int c = 0; c < N_CLIENTS; c++) {
        test_random_fill(updates[c], N_VALUES, -1, 1, &state);
    }
    int n_cases = test_cases(3);
    for (int n = 0; n < n_cases; n++) {
        int order[N_CLIENTS];
        shuffle(order, &state);
        run(KEYS, order);
        for (size_t i = 0; i < N_VALUES; i++) {
            double sum = 0;
            double weight_sum = 0;
            for (int c = 0; c < N_CLIENTS; c++) {
                double weight = weights[c] < 100 ? (double)weights[c] : 100.0;
                sum += weight * (double)updates[c][i];
                weight_sum += weight;
            }
            float wanted = (float)((double)base[i] + sum / weight_sum);
            cr_assert(memcmp(&wanted, &found[i], sizeof wanted) == 0,
                      "case %d, value %zu: %.9g, not %.9g", n, i, (double)found[i], (double)wanted);
        }
        if (n > 0) {
            cr_assert_arr_eq(before, found, sizeof found);
        }
        memcpy(before, found, sizeof found);
    }
}

Test(aggregate, takes_whole_weights_when_asked)
{
    int order[N_CLIENTS] = {0, 1, 2, 3, 4};
    for (int c = 0; c < N_CLIENTS; c++) {
        for (size_t i = 0; i < N_VALUES; i++) {
            updates[c][i] = (float)(c + 1);
        }
    }
    run(", \"rounds\": 1, \"cohort\": 5, \"clients\": 5, \"weight_cap\": 1,"
        " \"update_form\": \"weights\"",
        order);
    for (size_t i = 0; i < N_VALUES; i++) {
        cr_assert_float_eq(found[i], 3.0F, 0.0F);
    }
}

#define ONE ", \"rounds\": 2, \"cohort\": 1"

/* One client's whole round; gives the answer to its commit and the round afterwards. */
static dunlin__commit_response contribute_alone(const char *keys, const float *values,
                                                uint64_t *out_round)
{
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    dunlin__commit_response commit;
    test_server_folder(&fixture);
    test_server_open(&fixture, keys, 0);
    test_device_make(&device, &fixture);
    device.can_all = true;
    cr_assert_eq(test_enrol(&device, -1), 200);
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_put(&device, values, &put), 200);
    test_send_chunks(&device, values);
    cr_assert_eq(test_commit(&device, 4, NULL, &commit), 200);
    dunlin__server_tick(&fixture.server);
    *out_round = fixture.server.round.round;
    test_server_close(&fixture);
    test_server_end(&fixture);
    return commit;
}

Test(aggregate, refuses_what_is_not_finite)
{
    float values[10] = {1, 2, 3, 4, 5, 6, 7, (float)NAN, 9, 10};
    uint64_t round = 0;
    dunlin__commit_response commit = contribute_alone(ONE, values, &round);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
    cr_assert_not_null(strstr(commit.text, "value 7"), "%s", commit.text);
    cr_assert_eq(round, 1);
}

Test(aggregate, refuses_what_is_longer_than_the_plan_allows)
{
    const char *keys = ONE ", \"plan\": {\"clip_norm\": 1}";
    float too_long[10] = {3, 4};
    float fitting[10] = {0.6F, 0.8F};
    uint64_t round = 0;
    dunlin__commit_response commit = contribute_alone(keys, too_long, &round);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
    cr_assert_not_null(strstr(commit.text, "norm 5 is above the plan's 1"), "%s", commit.text);
    cr_assert_eq(round, 1);
    commit = contribute_alone(keys, fitting, &round);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(round, 2);
}

/* What devices send may take a variance below 0, and other values too; only the first stays there.
 */
Test(aggregate, a_variance_never_goes_below_0)
{
    static const bool is_variance[2] = {false, true}; /* w (2, 3), then b (4) */
    const float update[10] = {-1, 2, -3, 4, -5, 6, -0.5F, 0.25F, -1e-9F, 0};
    test_server fixture;
    test_device device;
    float model[10];
    test_server_folder(&fixture);
    test_server_open(&fixture, ONE, 0);
    cr_assert_eq(fixture.server.layout.n_tensors, 2);
    fixture.server.layout.is_variance = is_variance;
    test_join(&device, &fixture, -1);
    cr_assert_eq(test_contribute(&device, update, 5), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    test_read_model(&fixture, 2, model);
    for (int i = 0; i < 10; i++) {
        cr_expect_eq(model[i], i >= 6 && update[i] < 0 ? 0.0F : update[i], "%d: %g", i,
                     (double)model[i]);
    }
    test_server_close(&fixture);
    test_server_end(&fixture);
}

/* All that a plan orders beside the plain training reaches a device that knows it, and no other. */
Test(aggregate, what_is_ordered_goes_to_devices_that_know_it)
{
    static const char *const plans[] = {
        "\"groups\": [{\"roles\": [\"bias\"], \"lr_factor\": 2}]",
        "\"trained\": \"head\"",
        "\"decay_norms\": false",
        "\"schedule\": \"cosine\"",
        "\"warmup\": 5",
        "\"flip\": true",
        "\"random_crop\": 0",
        "\"remainder\": \"join\"",
        "\"remainder\": \"drop\"",
        "\"gradient_clip_norm\": 1",
        "\"gradient_clip_value\": 1",
        "\"ignore_label\": -1",
        "\"optimizer\": \"adam\"",
        "\"cutout\": 8",
        "\"shift\": 3",
        "\"mixup\": 0.2",
        "\"noise\": 0.5",
    };
    static const uint32_t features[] = {10, 10, 10, 11, 11, 12, 12, 13, 13,
                                        14, 14, 15, 16, 17, 17, 17, 17};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        test_server fixture;
        test_device device;
        dunlin__checkin_response answer;
        char keys[256];
        (void)snprintf(keys, sizeof keys, ONE ", \"plan\": {%s}", plans[i]);
        test_server_folder(&fixture);
        test_server_open(&fixture, keys, 0);
        test_device_make(&device, &fixture);
        cr_assert_eq(test_enrol(&device, -1), 200);
        cr_assert_eq(test_checkin(&device, &answer), 200);
        cr_expect_eq(answer.rejection, DUNLIN_V1_REJECTION_NOT_SUITABLE, "%s", plans[i]);
        device.can_all = true;
        cr_assert(test_take_work(&device), "%s", plans[i]);
        cr_assert_eq(device.assignment.required_features_count, 1, "%s", plans[i]);
        cr_expect_eq(device.assignment.required_features[0], features[i], "%s", plans[i]);
        test_server_close(&fixture);
        test_server_end(&fixture);
    }
}

Test(aggregate, a_plan_arrives_as_the_task_file_has_it)
{
    test_server fixture;
    test_device device;
    test_server_folder(&fixture);
    test_server_open(&fixture,
                     ", \"rounds\": 9, \"cohort\": 1, \"plan\": {\"groups\": ["
                     "{\"name\": \"top\", \"patterns\": \"b*\", \"lr_factor\": 0.5},"
                     "{\"roles\": [\"norm_scale\", \"bias\"], \"decay_factor\": 0}],"
                     "\"trained\": \"w,b\", \"frozen\": \"x\", \"decay_norms\": false,"
                     "\"schedule\": \"step\", \"gamma\": 0.25, \"lr_period\": 7, \"warmup\": 3,"
                     "\"random_crop\": 4, \"flip\": true, \"cutout\": 8, \"shift\": 2,"
                     "\"noise\": 0.25, \"remainder\": \"keep\","
                     "\"gradient_clip_norm\": 2, \"ignore_label\": -100}",
                     0);
    test_device_make(&device, &fixture);
    device.can_all = true;
    cr_assert_eq(test_enrol(&device, -1), 200);
    cr_assert(test_take_work(&device));
    const dunlin__training_plan *plan = &device.assignment.plan;
    cr_assert(plan->has_parameters && plan->has_schedule && plan->has_augmentation);
    const dunlin_v1_parameter_choice_t *choice = &plan->parameters;
    cr_assert_eq(choice->groups_count, 2);
    cr_expect_str_eq(choice->groups[0].name, "top");
    cr_expect_str_eq(choice->groups[0].patterns, "b*");
    cr_expect_eq(choice->groups[0].roles, 0);
    cr_expect_eq(choice->groups[0].lr_factor, 0.5F);
    cr_expect_eq(choice->groups[0].decay_factor, 1.0F);
    cr_expect_eq(choice->groups[1].roles,
                 1U << DUNLIN_V1_ROLE_NORM_SCALE | 1U << DUNLIN_V1_ROLE_BIAS);
    cr_expect_eq(choice->groups[1].decay_factor, 0.0F);
    cr_expect_str_eq(choice->trained_prefixes, "w,b");
    cr_expect_str_eq(choice->frozen_prefixes, "x");
    cr_expect(choice->no_norm_decay);
    cr_expect_eq(plan->schedule.kind, DUNLIN_V1_SCHEDULE_KIND_STEP);
    cr_expect_eq(plan->schedule.gamma, 0.25);
    cr_expect_eq(plan->schedule.period_steps, 7);
    cr_expect_eq(plan->schedule.warmup_steps, 3);
    cr_expect_eq(plan->schedule.n_rounds, 9);
    cr_expect(plan->augmentation.flips && plan->augmentation.crops);
    cr_expect_eq(plan->augmentation.crop_padding, 4);
    cr_expect(plan->augmentation.cutout == 8 && plan->augmentation.shift == 2);
    cr_expect(plan->augmentation.noise == 0.25F && plan->augmentation.mixup == 0.0F);
    cr_expect_eq(plan->remainder, DUNLIN_V1_REMAINDER_KEEP);
    cr_expect_eq(plan->gradient_clip_norm, 2.0F);
    cr_expect(plan->ignores_label);
    cr_expect_eq(plan->ignored_label, -100);
    test_server_close(&fixture);
    test_server_end(&fixture);
}

Test(aggregate, offers_nothing_to_a_device_that_cannot_do_it)
{
    test_server fixture;
    test_device device;
    dunlin__checkin_response answer;
    test_server_folder(&fixture);
    test_server_open(&fixture, ONE ", \"algorithm\": \"fedprox:0.1\"", 0);
    test_device_make(&device, &fixture);
    cr_assert_eq(test_enrol(&device, -1), 200);
    cr_assert_eq(test_checkin(&device, &answer), 200);
    cr_assert_eq(answer.rejection, DUNLIN_V1_REJECTION_NOT_SUITABLE);
    device.can_all = true;
    cr_assert(test_take_work(&device));
    cr_assert_eq(device.assignment.plan.algorithm, DUNLIN_V1_ALGORITHM_FEDPROX);
    cr_assert_float_eq(device.assignment.plan.prox_mu, 0.1F, 0.0F);
    test_server_close(&fixture);
    test_server_end(&fixture);
}
