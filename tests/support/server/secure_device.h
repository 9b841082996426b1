/*
 * secure_device.h - devices of a round with secure aggregation, which talk to a server without
 * sockets: the library's own protocol, on vectors of whole numbers.
 */
#ifndef DUNLIN_TEST_SECURE_DEVICE_H
#define DUNLIN_TEST_SECURE_DEVICE_H

#include "device.h"

#include <wire/secagg.h>

#include <secagg/secagg_client.h>

#define SECURE_VALUES 10 /* of the fixture's model */

typedef struct secure_device {
    test_device device;
    dunlin__secagg_client *client; /* NULL: left */
    uint32_t vector[SECURE_VALUES + 1];
    uint8_t packed[(SECURE_VALUES + 1) * 4];
    size_t n_packed;
    uint8_t manifest[512];
    size_t n_manifest;
    uint8_t request[DUNLIN_WIRE_BODY_BYTES]; /* the last message */
    size_t n_request;
    uint32_t step; /* of it */
    uint64_t retry_ms;
} secure_device;

/* Joins as place `index`, with a vector that follows from it: weight index % 3 + 1. The barrier of
 * a task must be passed before work is taken. */
void secure_join(secure_device *one, test_server *fixture, int index);
/* Takes work and opens the device's part in the session. */
void secure_take_work(secure_device *one);
/* A part in the session with other keys, for the same assignment. */
void secure_open(secure_device *one);
void secure_close(secure_device *one);

/* Sends the message of the step that comes next, or one that asks again, and takes the answer: the
 * HTTP code. `retry_ms` is 0 if the step is done. */
uint32_t secure_step(secure_device *one);
/* Sends the last message again, and leaves the answer alone. */
uint32_t secure_send_again(secure_device *one);
/* Masks the vector and names it. */
void secure_mask(secure_device *one);
uint32_t secure_put(secure_device *one);
/* The vector's one chunk. */
void secure_send_vector(secure_device *one);
/* Put, chunk and commit: the outcome. */
dunlin_v1_commit_outcome_t secure_contribute(secure_device *one);

/* Ends advertise and share of all that have a client. */
void secure_agree_all(secure_device *devices, int n);
/* Masks and commits all that have a client. */
void secure_contribute_all(secure_device *devices, int n);
/* From step mask to the end of those that have a client. */
void secure_tell_all(secure_device *devices, int n);

#endif
