/*
 * dp_fleet.h - a server whose rounds have noise, and devices that take part in them.
 */
#ifndef DUNLIN_TEST_DP_FLEET_H
#define DUNLIN_TEST_DP_FLEET_H

#include "server/device.h"

#define DP_VALUES 10 /* of the fixture's model */
#define DP_CLIP 1.0

/* Keys of a task with known clients; `keys` is the rest of `dp`. */
#define DP(rounds, cohort, clients, keys)                                                          \
    ", \"rounds\": " rounds ", \"cohort\": " cohort ", \"clients\": " clients                      \
    ", \"dp\": {\"clip\": 1, \"delta\": 1e-5, " keys "}"

/* A folder; follow by test_server_open(). */
void dp_begin(test_server *fixture);
void dp_end(test_server *fixture);

/* Enrols n devices and checks them in, so that the run begins. */
void dp_join_all(test_server *fixture, test_device *devices, int n);

/* Each device that is asked sends its update, with another number of examples each; gives how many
 * there were. */
int dp_contribute_all(test_device *devices, int n, const float *update, uint64_t n_examples);

/* Closes the open round after its deadline. */
void dp_close_round(test_server *fixture);

/* Sets each of the update's values. */
void dp_fill(float *update, float value);

#endif
