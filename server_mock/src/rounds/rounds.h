/*
 * rounds.h - when a round ends.
 */
#ifndef DUNLIN_SERVER_ROUNDS_H
#define DUNLIN_SERVER_ROUNDS_H

#include "state/context.h"

/* Closes the round if it is time, folds, publishes, opens the next, evaluates. Not locked; one
 * thread. */
void dunlin__server_tick(dunlin__server *server);

#endif
