/*
 * test_noise_rounds.c - rounds with secure aggregation and noise of the devices: the model that
 * comes of them, what they cost, too few devices, a folder that has promised them.
 */
#include "privacy/terms.h"
#include "rounds/secure.h"
#include "secure_world.h"
#include "server/privacy_log.h"
#include "server/told.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define NOISY_TASK(dp)                                                                             \
    ", \"rounds\": 3, \"cohort\": 5, \"clients\": 5, \"dp\": {\"clip\": 1, \"delta\": 1e-3, "      \
    "\"noise_by\": \"distributed\"" dp "}, \"secagg\": {\"neighbours\": 4, \"threshold\": 3, "     \
    "\"corrupt\": 0, \"dropout\": 0, \"least_devices\": 3, \"value_limit\": 4096}"
#define NOISE ", \"noise\": 2"
#define SKELLAM_TASK                                                                               \
    ", \"rounds\": 3, \"cohort\": 5, \"clients\": 5, \"dp\": {\"clip\": 1, \"delta\": 1e-3, "      \
    "\"noise_by\": \"distributed\", \"noise_kind\": \"skellam\", \"noise\": 2}, "                  \
    "\"secagg\": {\"neighbours\": 4, \"threshold\": 3, \"corrupt\": 0, \"dropout\": 0, "           \
    "\"least_devices\": 3, \"value_limit\": 512}"

/* Devices that count once each. */
static secure_world *begin_noisy(const char *keys)
{
    secure_world *world = secure_begin_with_work(keys);
    for (int i = 0; i < SECURE_DEVICES; i++) {
        world->devices[i].vector[SECURE_VALUES] = 1;
    }
    return world;
}

Test(noise_rounds, the_model_is_that_of_the_same_numbers_without_masks)
{
    static const bool all[SECURE_DEVICES] = {true, true, true, true, true};
    secure_world *world = begin_noisy(NOISY_TASK(NOISE));
    const dunlin__server *server = &world->fixture.server;
    const dunlin__assignment *work = &world->devices[0].device.assignment;
    cr_expect_eq(work->plan.secagg.version, 2);
    cr_expect_eq(work->plan.secagg.least_honest, 3);
    cr_expect_eq(work->plan.secagg.noise_scale, 4730); /* 2 x 4096 / sqrt(3), rounded up */
    cr_expect_eq(work->plan.weight_cap, 1);
    cr_expect_float_eq(work->plan.clip_norm, 1, 0);
    cr_expect(work->has_privacy && work->privacy.is_distributed && !work->privacy.is_repeatable);
    cr_expect_geq(work->privacy.noise_multiplier, 2);
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    secure_expect_model(world, all);
    cr_expect(!server->closed[0].noise_seed.is_there, "the server draws nothing");
    cr_expect(server->closed[0].is_private);
    /* Of one round of the three. */
    dunlin__privacy_answer one;
    cr_assert_eq(dunlin__privacy_spent(&server->task.dp.question, 1, &server->alloc, &one, NULL),
                 DUNLIN_OK);
    cr_expect_float_eq(server->closed[0].epsilon, one.epsilon, 0);
    cr_expect_lt(one.epsilon, server->task.dp.cost.epsilon);
    secure_end(world);
}

Test(noise_rounds, skellam_noise_is_kept_and_told_by_its_name)
{
    static const bool all[SECURE_DEVICES] = {true, true, true, true, true};
    secure_world *world = begin_noisy(SKELLAM_TASK);
    const dunlin__server *server = &world->fixture.server;
    const dunlin__assignment *work = &world->devices[0].device.assignment;
    char folder[1024];
    char *text = NULL;
    dunlin_error error = {0};
    cr_expect_eq(work->plan.secagg.version, 2);
    cr_expect_eq(work->plan.secagg.noise_kind, DUNLIN_V1_SECAGG_NOISE_SKELLAM);
    cr_expect_eq(work->plan.secagg.noise_scale, 592); /* 2 x 512 / sqrt(3), rounded up */
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    secure_expect_model(world, all);
    json_t *status = test_status(&world->fixture);
    const json_t *privacy = json_object_get(status, "privacy");
    cr_expect_str_eq(json_string_value(json_object_get(privacy, "noise_kind")), "skellam");
    json_decref(status);
    const double spent = server->closed[0].epsilon;
    (void)snprintf(folder, sizeof folder, "%s", server->folder.text);
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    test_server_close(&world->fixture);
    cr_assert_eq(dunlin__privacy_log(folder, &alloc, &text, &error), DUNLIN_OK, "%s", error.text);
    json_t *answer = json_loads(text, 0, NULL);
    cr_expect_float_eq(json_number_value(json_object_get(answer, "epsilon")), spent, 1e-9);
    cr_expect_str_eq(json_string_value(json_object_get(answer, "kind")), "skellam");
    json_decref(answer);
    free(text);
    test_server_open(&world->fixture, SKELLAM_TASK, 0);
    secure_end(world);
}

Test(noise_rounds, fewer_than_the_noise_counts_on_fail_the_round_and_it_has_cost)
{
    secure_world *world = begin_noisy(NOISY_TASK(NOISE));
    secure_agree_all(world->devices, SECURE_DEVICES);
    for (int i = 0; i < 3; i++) {
        secure_close(&world->devices[i]);
    }
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_end_step(world);
    secure_expect_failed(world, "2 vectors came, fewer than the least of a sum, 3");
    cr_expect_gt(world->fixture.server.closed[0].epsilon, 0);
    secure_end(world);
}

Test(noise_rounds, the_status_says_whose_noise_it_is)
{
    secure_world *world = begin_noisy(NOISY_TASK(NOISE ", \"most\": 1"));
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    json_t *status = test_status(&world->fixture);
    const json_t *privacy = json_object_get(status, "privacy");
    cr_expect_str_eq(json_string_value(json_object_get(privacy, "noise_by")), "distributed");
    cr_expect_str_eq(json_string_value(json_object_get(privacy, "unit")), "device");
    cr_expect_not_null(
        strstr(json_string_value(json_object_get(privacy, "neighbours")), "updates or zeros"));
    cr_expect_not_null(strstr(json_string_value(json_object_get(privacy, "assumes")), "honest"));
    cr_expect_eq(json_integer_value(json_object_get(privacy, "least_honest")), 3);
    cr_expect_eq(json_integer_value(json_object_get(privacy, "noise_scale")), 4730);
    cr_expect_eq(json_integer_value(json_object_get(privacy, "value_limit")), 4096);
    cr_expect(json_is_true(json_object_get(privacy, "private")));
    const json_t *round = json_array_get(json_object_get(status, "rounds"), 0);
    cr_expect_eq(json_integer_value(json_object_get(round, "participants")), SECURE_DEVICES,
                 "who takes part is known");
    cr_expect_float_eq(json_number_value(json_object_get(round, "epsilon")),
                       world->fixture.server.task.dp.cost.epsilon, 1e-9, "each device once");
    json_decref(status);
    secure_end(world);
}

/* The terms are kept in the folder, and the cost follows from it alone. */
Test(noise_rounds, the_folder_keeps_the_terms)
{
    secure_world *world = begin_noisy(NOISY_TASK(NOISE));
    char folder[1024];
    char *text = NULL;
    dunlin_error error = {0};
    secure_agree_all(world->devices, SECURE_DEVICES);
    secure_contribute_all(world->devices, SECURE_DEVICES);
    secure_tell_all(world->devices, SECURE_DEVICES);
    const double spent = world->fixture.server.closed[0].epsilon;
    (void)snprintf(folder, sizeof folder, "%s", world->fixture.server.folder.text);
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    test_server_close(&world->fixture);
    cr_assert_eq(dunlin__privacy_log(folder, &alloc, &text, &error), DUNLIN_OK, "%s", error.text);
    json_t *answer = json_loads(text, 0, NULL);
    cr_expect_float_eq(json_number_value(json_object_get(answer, "epsilon")), spent, 1e-9);
    cr_expect_str_eq(json_string_value(json_object_get(answer, "noise_by")), "distributed");
    json_decref(answer);
    free(text);
    test_server_open(&world->fixture, NOISY_TASK(NOISE), 0);
    secure_end(world);
}
