/*
 * close.h - closes a round: the next base, the next round.
 *
 * All calls are made under the server's lock; close_round gives it back while it works.
 */
#ifndef DUNLIN_SERVER_CLOSE_H
#define DUNLIN_SERVER_CLOSE_H

#include "state/context.h"

/* Writes one round's row. */
DUNLIN_NODISCARD dunlin_status dunlin__server_save_round(dunlin__server *server,
                                                         const dunlin__round_row *round,
                                                         dunlin_error *error);

/* Aggregates the round that is closing, publishes the next base and opens the next round. After a
 * failure everything is as before, and the call may be repeated. */
DUNLIN_NODISCARD dunlin_status dunlin__server_close_round(dunlin__server *server,
                                                          dunlin_error *error);

/* The same round once more, from the newest good model: for the end of a run whose last model was
 * taken back. */
DUNLIN_NODISCARD dunlin_status dunlin__server_begin_anew(dunlin__server *server,
                                                         dunlin_error *error);

#endif
