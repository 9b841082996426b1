/*
 * real_device.h - clients with stores of their own, as so many devices of a server process.
 */
#ifndef DUNLIN_TESTS_REAL_DEVICE_H
#define DUNLIN_TESTS_REAL_DEVICE_H

#include "client/fake_server.h"
#include "server_process.h"

#include <stdbool.h>

typedef struct real_device {
    const server_process *server;
    fake_learner learner;
    dunlin_learner plug;
    dunlin_runtime *runtime;
    dunlin_client *client;
    dunlin_client_options options;
    char store[192];
    char token[32];
    int64_t due_ms; /* of the next step */
    bool is_over;   /* the round, with... */
    dunlin_status status;
    dunlin_round_report report;
} real_device;

/* Options for place `index` of the server; learner and options may be changed before it is opened.
 */
void real_device_prepare(real_device *device, const server_process *server, int index);
/* Runtime and client, over the store as it lies. */
void real_device_open(real_device *device);
void real_device_close(real_device *device);
/* As after a kill: what was in memory is gone. */
void real_device_kill(real_device *device);

/* One action, if it is due; the round is over when it ended otherwise than by waiting. */
void real_device_step(real_device *device);

void real_rest(int64_t ms);

#endif
