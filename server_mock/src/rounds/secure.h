/*
 * secure.h - rounds with secure aggregation: the session of the current round, its peers and the
 * times of its steps.
 *
 * A round has one session, in memory alone. It begins with the first assignment and ends with the
 * round: a server that was started anew has lost it, and closes the round as failed. The devices'
 * messages are requests/secagg_step.c's, the protocol secagg/secagg_server.h's. All calls are
 * locked, but for dunlin__secure_sum().
 */
#ifndef DUNLIN_SERVER_SECURE_H
#define DUNLIN_SERVER_SECURE_H

#include "secagg/secagg_server.h"
#include "state/context.h"

/* What the session of a round has come to. Index: SecaggStep. */
typedef struct dunlin__secure_figures {
    uint64_t round;
    uint32_t n_assigned;                         /* devices with an index */
    uint32_t came[DUNLIN_WIRE_SECAGG_STEPS + 1]; /* in step mask: vectors in the sum */
    int64_t step_ms[DUNLIN_WIRE_SECAGG_STEPS + 1];
    int64_t unmask_ms; /* processor time of the unmasking */
    uint64_t bytes_up; /* bodies of the steps' calls, without vectors */
    uint64_t bytes_down;
    bool has_sum;
} dunlin__secure_figures;

/* Whether a device can get work in the round: there is an index for it, and it has not advertised.
 */
bool dunlin__secure_has_room(const dunlin__server *server, const dunlin__server_device *device);

/* Gives the device an index, in a session that is begun if there is none; the terms as they go into
 * its assignment. STATE if there is no room; MEMORY; INTERNAL. */
DUNLIN_NODISCARD dunlin_status dunlin__secure_join(dunlin__server *server,
                                                   const dunlin__server_device *device,
                                                   dunlin__secagg_plan *out_plan,
                                                   dunlin_error *error);

/* The terms that an offer states. */
void dunlin__secure_terms(const dunlin__server *server, dunlin_v1_secagg_terms_t *out_terms);

/* The session of the current round, if it runs and the device has an index in it; else NULL. */
dunlin__secagg_server *dunlin__secure_session(const dunlin__server *server,
                                              const dunlin__server_device *device,
                                              uint32_t *out_peer_index);

/* The device has given up: nobody waits for it. */
void dunlin__secure_leave(dunlin__server *server, const dunlin__server_device *device);

/* When a device whose step has not ended is to ask again. */
uint64_t dunlin__secure_retry_ms(const dunlin__server *server);

/* Counts the bodies of a step's call. */
void dunlin__secure_count(dunlin__server *server, size_t n_up, size_t n_down);

/* Ends steps that everybody has come to, or whose time is over. */
void dunlin__secure_advance(dunlin__server *server, int64_t now_ms);

/* Why the round ends now; NONE: it goes on. */
dunlin__close_reason dunlin__secure_reason(const dunlin__server *server, int64_t now_ms);

/* What became of a sum. */
typedef struct dunlin__secure_result {
    uint32_t n_devices; /* whose vectors are in it */
    uint64_t weights;   /* of all of them */
} dunlin__secure_result;

/*
 * The mean of the round's vectors, as float32 values in a file at `path`: the masks are taken off
 * first. Not locked; nobody else touches a session whose round is closing. A second call gives the
 * same file.
 *
 * @return OK; REJECTED, DATA: there is no sum, the text says why; IO, SPACE, MEMORY, INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secure_sum(dunlin__server *server, const char *path,
                                                  dunlin__secure_result *out_result,
                                                  dunlin_error *error);

/* The round is over: its secrets are wiped, its figures stay. */
void dunlin__secure_end(dunlin__server *server);

/* Of a round since the start of the server, the current one too; false: there are none. */
bool dunlin__secure_find(const dunlin__server *server, uint64_t round,
                         dunlin__secure_figures *out_figures);

/* At the end of the server. */
void dunlin__secure_free(dunlin__server *server);

#endif
