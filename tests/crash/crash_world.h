/*
 * crash_world.h - the real server and a real device as processes that are ended at a given
 * operation on their files, by a kill or a power loss, or at a given time; and the result of the
 * undisturbed run.
 */
#ifndef DUNLIN_TESTS_CRASH_WORLD_H
#define DUNLIN_TESTS_CRASH_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CRASH_MAX_ROUNDS 4000
#define CRASH_KILL (-1) /* beside the kinds of power loss */

/* When and how a process ends. */
typedef struct crash_plan {
    long at;    /* before its n-th operation; 0: not */
    int how;    /* CRASH_KILL or a crash_loss */
    int64_t us; /* else so long after its start, by SIGKILL; 0: not */
    uint64_t seed;
    const char *forget; /* syncs of files named so do nothing; NULL: none */
} crash_plan;

typedef struct crash_world {
    char folder[64];
    char state[128];  /* of the server */
    char device[128]; /* holds the store */
    char url[64];
    int port;
    pid_t server;
    bool may_lose_power;  /* the current server, by its plan */
    bool has_model;       /* the device has taken part in a round: its app has one from then on */
    bool is_held;         /* it is stopped, to be released */
    int64_t max_round_ms; /* a round that takes longer has failed */
    int round;            /* the current one */
    int n_ends;           /* so often a process was ended as planned */
    int n_device_runs;    /* of the last round */
    long n_operations;    /* of the last process that ended by itself */
    char complaint[256];  /* "" while all is well */
} crash_world;

/* A world with a server on a free port and a device that has never been seen. */
void crash_world_begin(crash_world *world);
/* Ends the server; removes the folder if all was well. */
void crash_world_end(crash_world *world);

/*
 * One round: the device and the server run, each ended by its plan and started again without, until
 * the next model is published. False, with a complaint, if anything but this comes of it.
 */
bool crash_world_round(crash_world *world, const crash_plan *device, const crash_plan *server);

/* So many rounds by one process that nobody ends; out_models[r] is the number of the model that
 * round r begins with. */
bool crash_world_undisturbed(crash_world *world, int n_rounds, uint64_t *out_models);

/* A number of the model that round `round` begins with, from all its bytes; 0 if it is not there.
 */
uint64_t crash_world_model(const crash_world *world, int round);

/* Every closed round must have one participant, have succeeded and be there once. */
bool crash_world_check_rounds(crash_world *world);

/* Ends the server in good order, for the operations it made since its start, and starts it again.
 */
long crash_world_server_operations(crash_world *world);

#endif
