/*
 * rounds.h - what the files that end a round share: close.c makes the next base, rounds.c says
 * when.
 *
 * All calls are made under the server's lock; close_round gives it back while it works.
 */
#ifndef DUNLIN_SERVER_ROUNDS_H
#define DUNLIN_SERVER_ROUNDS_H

#include "server.h"

/* Writes one round's row. */
DUNLIN_NODISCARD dunlin_status dunlin__server_save_round(dunlin__server *server,
                                                         const dunlin__round_row *round,
                                                         dunlin_error *error);

/* Folds the round that is closing, publishes the next base and opens the next round. After a
 * failure everything is as before, and the call may be made again. */
DUNLIN_NODISCARD dunlin_status dunlin__server_close_round(dunlin__server *server,
                                                          dunlin_error *error);

/* The same round once more, from the newest good model: for the end of a run whose last model was
 * taken back. */
DUNLIN_NODISCARD dunlin_status dunlin__server_begin_anew(dunlin__server *server,
                                                         dunlin_error *error);

/* Evaluates the model of a file. A failure that will not go away by itself (NUMERIC, or one that
 * has come three times) is an outcome: it goes to `out_failure`, and the call is OK. */
DUNLIN_NODISCARD dunlin_status dunlin__server_evaluate(dunlin__server *server, uint64_t file,
                                                       double *out_accuracy, double *out_loss,
                                                       dunlin_error *out_failure,
                                                       dunlin_error *error);

/* The file of weights that is the base of a round. */
DUNLIN_NODISCARD dunlin_status dunlin__server_weights_path(const dunlin__server *server,
                                                           uint64_t round,
                                                           dunlin__server_path *out_path,
                                                           dunlin_error *error);

#endif
