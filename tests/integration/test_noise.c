/*
 * test_noise.c - real clients against the real server in rounds with secure aggregation and noise
 * of the devices: the model to the bit, what a device reports, kills.
 */
#include "secagg_fleet.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* No update is longer: the longest is about 137. */
#define CLIP 800.0
#define NOISY                                                                                      \
    FLEET_TASK(", \"dp\": {\"clip\": 800, \"noise\": 2, \"delta\": 0.01, \"separation\": 1, "      \
               "\"noise_by\": \"distributed\"}",                                                   \
               "")
#define NOISE_SCALE 4730 /* 2 x 4096 / sqrt(3), rounded up */
/* Steps that whole 4096ths are whole numbers of, and a quarter of the noise in them: 5 x 137 is
 * below the clip. */
#define SKELLAM                                                                                    \
    FLEET_TASK(", \"dp\": {\"clip\": 800, \"noise\": 0.4, \"delta\": 0.01, \"separation\": 1, "    \
               "\"noise_by\": \"distributed\", \"noise_kind\": \"skellam\"}",                      \
               "")
#define SKELLAM_SCALE 946 /* 0.4 x 4096 / sqrt(3), rounded up */

/* What lies in each device's file of whole numbers once it has trained. */
typedef struct seen_numbers {
    bool is_there;
    uint32_t numbers[FLEET_VALUES + 1];
} seen_numbers;

static seen_numbers seen[FLEET_DEVICES];

/* Reads them when they are final; they are never others afterwards. */
static void watch(secagg_fleet *fleet, int index)
{
    static uint32_t numbers[FLEET_VALUES + 1];
    if (!secagg_fleet_read_numbers(fleet, index, numbers, FLEET_VALUES + 1)) {
        return;
    }
    if (seen[index].is_there) {
        cr_expect_eq(memcmp(seen[index].numbers, numbers, sizeof numbers), 0,
                     "device %d draws its noise once", index);
    }
    seen[index].is_there = true;
    memcpy(seen[index].numbers, numbers, sizeof numbers);
}

static void begin(secagg_fleet *fleet, const char *task)
{
    memset(seen, 0, sizeof seen);
    secagg_fleet_begin(fleet, task);
    fleet->watch_fn = watch;
}

/* The mean of the same whole numbers without masks, to the bit. */
static void expect_model(secagg_fleet *fleet, const bool *is_in)
{
    static float model[FLEET_VALUES];
    int n = 0;
    for (int d = 0; d < FLEET_DEVICES; d++) {
        n += is_in[d] ? 1 : 0;
        cr_assert(!is_in[d] || seen[d].is_there, "device %d", d);
        cr_expect(!is_in[d] || seen[d].numbers[FLEET_VALUES] == 1, "each counts once");
    }
    server_process_wait_rounds(&fleet->server, 1);
    server_process_model(&fleet->server, 2, model, FLEET_VALUES);
    for (int64_t i = 0; i < FLEET_VALUES; i++) {
        uint32_t sum = 0;
        for (int d = 0; d < FLEET_DEVICES; d++) {
            sum += is_in[d] ? seen[d].numbers[i] : 0;
        }
        const float wanted =
            (float)((double)(int32_t)sum * (CLIP / FLEET_VALUE_LIMIT * (1.0 / (double)n)));
        cr_assert_eq(memcmp(&model[i], &wanted, sizeof wanted), 0, "value %lld: %.9g, not %.9g",
                     (long long)i, (double)model[i], (double)wanted);
    }
}

/* What the learner changed is in the numbers, with noise of the scale on it. */
static void expect_noise(const secagg_fleet *fleet, int index, double scale)
{
    const double step = (double)fleet->devices[index].learner.step * FLEET_VALUE_LIMIT / CLIP;
    double sum = 0;
    double square = 0;
    for (int64_t i = 0; i < 70000; i++) {
        const double noise = (double)(int32_t)seen[index].numbers[i] - step * (double)(i % 5 + 1);
        sum += noise;
        square += noise * noise;
    }
    cr_expect_float_eq(sum / 70000, 0, 6 * scale / sqrt(70000.0));
    cr_expect_float_eq(sqrt(square / 70000) / scale, 1, 6 / sqrt(2 * 70000.0));
}

/* A run of all devices, whose noise has this scale. */
static void expect_run(const char *task, double scale, const char *kind)
{
    static secagg_fleet fleet;
    static const bool all[FLEET_DEVICES] = {true, true, true, true};
    begin(&fleet, task);
    secagg_fleet_drive(&fleet);
    for (int i = 0; i < FLEET_DEVICES; i++) {
        secagg_fleet_expect_accepted(&fleet.devices[i]);
        const dunlin_round_report *report = &fleet.devices[i].report;
        cr_expect_eq(report->aggregation, DUNLIN_AGGREGATION_HONEST_BUT_CURIOUS);
        cr_expect_eq(report->epsilon_kind, DUNLIN_EPSILON_PROVED_HERE);
        cr_expect(report->epsilon > 1 && report->epsilon < 40, "%g", report->epsilon);
        expect_noise(&fleet, i, scale);
    }
    expect_model(&fleet, all);
    char *text = server_process_status(&fleet.server);
    cr_expect_not_null(strstr(text, "\"distributed\""), "%s", text);
    cr_expect_not_null(strstr(text, kind), "%s", text);
    free(text);
    secagg_fleet_end(&fleet);
}

Test(noise, the_noisy_model_is_that_of_the_same_numbers_without_masks)
{
    expect_run(NOISY, NOISE_SCALE, "\"gaussian\"");
}

Test(noise, a_model_of_skellam_noise_is_that_of_the_same_numbers)
{
    expect_run(SKELLAM, SKELLAM_SCALE, "\"skellam\"");
}

static void kill_at(bool (*reached_fn)(const real_device *device), bool is_in_sum)
{
    static secagg_fleet fleet;
    const bool is_in[FLEET_DEVICES] = {is_in_sum, true, true, true};
    begin(&fleet, NOISY);
    secagg_fleet_drive_until(&fleet, reached_fn);
    real_device_kill(&fleet.devices[0]);
    secagg_fleet_drive(&fleet);
    for (int i = is_in_sum ? 0 : 1; i < FLEET_DEVICES; i++) {
        secagg_fleet_expect_accepted(&fleet.devices[i]);
    }
    expect_model(&fleet, is_in);
    secagg_fleet_end(&fleet);
}

/* Its noise was drawn, and stays: the file is what is masked. */
Test(noise, a_kill_after_the_noise_was_drawn)
{
    kill_at(secagg_fleet_has_learned, true);
}

Test(noise, a_kill_after_the_keys)
{
    kill_at(secagg_fleet_has_advertised, false);
}

Test(noise, a_kill_with_the_masked_vector)
{
    kill_at(secagg_fleet_has_masked, true);
}
