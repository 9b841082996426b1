/*
 * secagg_fleet.h - four real devices of a real server in rounds with secure aggregation, one thread
 * driving all of them.
 */
#ifndef DUNLIN_TESTS_SECAGG_FLEET_H
#define DUNLIN_TESTS_SECAGG_FLEET_H

#include "real_device.h"

#define FLEET_DEVICES 4
#define FLEET_VALUES FAKE_VALUES
#define FLEET_VALUE_LIMIT 4096

/* A task of 2 rounds; `more` is JSON before `secagg`, `keys` inside of it. */
#define FLEET_TASK(more, keys)                                                                     \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 2, \"cohort\": 4, \"clients\": "  \
    "4,"                                                                                           \
    " \"deadline_s\": 150, \"chunk_bytes\": 262144, \"tensors\": ["                                \
    "{\"name\": \"weights\", \"shape\": [70000]}, {\"name\": \"bias\", \"shape\": [3, 4]}, "       \
    "{\"name\": \"mean\", \"shape\": [3]}]" more ", \"secagg\": {\"neighbours\": 3, "              \
    "\"threshold\": 2, \"corrupt\": 0, \"dropout\": 0, \"least_devices\": 3, \"value_limit\": "    \
    "4096, \"step_s\": 12" keys "}}"

typedef struct secagg_fleet {
    server_process server;
    real_device devices[FLEET_DEVICES];
    /* Called after each step of a device; NULL: nothing. */
    void (*watch_fn)(struct secagg_fleet *fleet, int index);
} secagg_fleet;

/* Server and devices. Updates are whole 4096ths, so that no rounding is drawn. */
void secagg_fleet_begin(secagg_fleet *fleet, const char *task);
/* With learners of the test's own: `plugs`, one a device. */
void secagg_fleet_begin_with(secagg_fleet *fleet, const char *task,
                             const dunlin_learner plugs[FLEET_DEVICES]);
void secagg_fleet_end(secagg_fleet *fleet);

/* All devices until their rounds are over. */
void secagg_fleet_drive(secagg_fleet *fleet);
/* All devices until `reached_fn` holds for the first. */
void secagg_fleet_drive_until(secagg_fleet *fleet, bool (*reached_fn)(const real_device *device));

/* How far the first one has come. */
bool secagg_fleet_has_learned(const real_device *device);
bool secagg_fleet_has_advertised(const real_device *device);
bool secagg_fleet_has_masked(const real_device *device);
bool secagg_fleet_has_committed(const real_device *device);
bool secagg_fleet_is_about_to_unmask(const real_device *device);

/* The whole numbers that a device will mask, once they are final: `n` of them, the last one for how
 * much it counts. False: they are not there, or masked by now. */
bool secagg_fleet_read_numbers(const secagg_fleet *fleet, int index, uint32_t *out, size_t n);

/* Its contribution counts. */
void secagg_fleet_expect_accepted(const real_device *device);
/* The step of the status's round: devices that came. */
int secagg_fleet_came(secagg_fleet *fleet, int round, const char *step);

#endif
