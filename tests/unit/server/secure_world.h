/*
 * secure_world.h - a server whose rounds have secure aggregation, five devices, and what is
 * expected of their model.
 */
#ifndef DUNLIN_TEST_SECURE_WORLD_H
#define DUNLIN_TEST_SECURE_WORLD_H

#include "server/secure_device.h"

#define SECURE_DEVICES 5
#define SECURE_TASK(more)                                                                          \
    ", \"rounds\": 3, \"cohort\": 5, \"clients\": 5" more                                          \
    ", \"secagg\": {\"neighbours\": 4, \"threshold\": 3, \"corrupt\": 0, \"dropout\": 0,"          \
    " \"least_devices\": 3, \"clip\": 1, \"value_limit\": 1024, \"weight_limit\": 8}"

typedef struct secure_world {
    test_server fixture;
    secure_device devices[SECURE_DEVICES];
} secure_world;

/* A server, and devices that have joined; on the heap, for its size. `keys`: of the task, as
 * test_server_open() takes them. */
secure_world *secure_begin(const char *keys);
/* The same with work for all. */
secure_world *secure_begin_with_work(const char *keys);
void secure_end(secure_world *world);

/* Time passes until the step, and the round if it is the last, is over. */
void secure_end_step(secure_world *world);
void secure_end_advertise(secure_world *world);

/* Round 1 has the model, to the bit, that the same whole numbers give without masks, of the devices
 * in `is_in`. */
void secure_expect_model(secure_world *world, const bool *is_in);
/* Round 1 has failed for this reason, and the model stays. */
void secure_expect_failed(secure_world *world, const char *why);

#endif
