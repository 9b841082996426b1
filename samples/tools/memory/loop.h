/*
 * loop.h - a server in this process, which clients of this process reach without a network: the
 * same calls with the same bodies, in simulated time.
 *
 * Left out are sockets, TLS and HTTP, the signatures of requests, and syncs of the storage.
 */
#ifndef SAMPLES_MEMORY_LOOP_H
#define SAMPLES_MEMORY_LOOP_H

#include <dunlin/transport.h>

#include <fleet/fleet.h>

typedef struct loop loop;

/* Opens a server on the folder of the run; `server` gets it, its address and its key. EXIT_OK, or
 * the line has been printed. */
int loop_open(const fleet_flags *flags, const fleet_world *world, fleet_server *server);
/* After the runtime that has its transport; NULL is fine. */
void loop_close(loop *all);

/* Sets the server's clock, in ms since 1970, and does what is due by then. */
void loop_tell(loop *all, int64_t ms);
/* What /v1/status says (a new reference); NULL: no memory. */
json_t *loop_status(loop *all);

/* Whether this build sees what moments of a simulation are made of. */
bool loop_has_moments(void);

/* For one runtime, and calls of one thread at a time; stays the loop's. */
dunlin_transport *loop_transport(loop *all);
/* A runtime over it syncs nothing; with moments its database stays as it was in the last one but
 * for its log. */
dunlin_status loop_relax(dunlin_runtime *runtime, bool has_moments, dunlin_error *error);
/* The same of a runtime over the wire, which still syncs. */
dunlin_status loop_hold(dunlin_runtime *runtime, dunlin_error *error);
/* Writes down what the server has in memory; and, when all else is written, brings its database
 * into one file, and that of a runtime, over the wire or not. */
dunlin_status loop_keep(loop *all, const char *path, dunlin_error *error);
dunlin_status loop_settle(loop *all, dunlin_error *error);
void loop_settle_runtime(dunlin_runtime *runtime);
/* Keys of devices whose signatures nobody looks at. */
dunlin_key_store loop_keys(void);

#endif
