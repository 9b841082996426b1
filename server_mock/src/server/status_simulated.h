/*
 * status_simulated.h - what a simulation tells the page of its server: a file of its own.
 */
#ifndef DUNLIN_SERVER_STATUS_SIMULATED_H
#define DUNLIN_SERVER_STATUS_SIMULATED_H

#include "state/context.h"

#include <jansson.h>

#define DUNLIN_SERVER_SIMULATED_BYTES ((size_t)1 << 20)

/* The JSON object in the file of the option simulated_file, as it lies there (a new reference).
 * Null without that option, before the file is there, and for a file that is none: longer than
 * DUNLIN_SERVER_SIMULATED_BYTES, or no JSON object. Reads no more than that, and holds no lock. */
json_t *dunlin__status_simulated(const dunlin__server *server);

#endif
