/*
 * moment.h - what a server has in memory alone, in a file: so that a simulation that was ended goes
 * on as if it had not been.
 *
 * A server that is not simulated needs none of it: its devices learn that a challenge is old, and
 * ask again. In a simulation that would be another run.
 */
#ifndef DUNLIN_SERVER_MOMENT_H
#define DUNLIN_SERVER_MOMENT_H

#include "state/context.h"

/* Writes it, whole or not at all; the database is brought into its one file, and what comes after
 * stays in its log until the next call. Between two calls of the server. */
DUNLIN_NODISCARD dunlin_status dunlin__moment_keep(dunlin__server *server, const char *path,
                                                   dunlin_error *error);
/* Reads it into a server that has just been opened on the state of that moment. DATA: it is of
 * another state, or another build. */
DUNLIN_NODISCARD dunlin_status dunlin__moment_take(dunlin__server *server, const char *path,
                                                   dunlin_error *error);

#endif
