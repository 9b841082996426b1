/*
 * buffered.h - rounds that overlap: a device may contribute to a later round than that whose base
 * it began from, and counts for less then. Locked.
 *
 * Nguyen et al., "Federated learning with buffered asynchronous aggregation" (FedBuff), AISTATS
 * 2022, algorithm 1: K updates close a round (the task's cohort), others go on working; one whose
 * base is t rounds older counts (1 + t)^-exponent times, and the sum is divided by the weights
 * without that. Beside it here: updates are weighed by examples, and a device counts once a round.
 *
 * Without `buffered` in the task each round stands by itself, and the calls say so.
 */
#ifndef DUNLIN_SERVER_BUFFERED_H
#define DUNLIN_SERVER_BUFFERED_H

#include "state/context.h"

/* The oldest round whose work is taken in the current one. */
uint64_t dunlin__buffered_first(const dunlin__server *server);
/* Whether work of a round is taken now: chunks, and a commit. */
bool dunlin__buffered_takes(const dunlin__server *server, uint64_t round);
/* Buffered, and enough have come: the round closes at once, and the next one takes what comes. */
bool dunlin__buffered_is_full(dunlin__server *server, int64_t now_ms);
/* The newest round whose work is over with the close of one; 0: none yet. */
uint64_t dunlin__buffered_over(const dunlin__server *server, uint64_t closed_round);

/* What the update of a contribution is multiplied by, 1 unless it is stale. */
DUNLIN_NODISCARD dunlin_status dunlin__buffered_scale(dunlin__server *server,
                                                      const dunlin__contribution_row *row,
                                                      double *out_scale, dunlin_error *error);
/* The same by how many rounds older its base is. */
double dunlin__buffered_factor(const dunlin__server_task *task, uint64_t staleness);
/* Keeps how stale a contribution is, as the round's metric server/staleness. */
DUNLIN_NODISCARD dunlin_status dunlin__buffered_note(dunlin__server *server,
                                                     const dunlin__contribution_row *row,
                                                     uint64_t round, dunlin_error *error);

/* Takes work back whose time is over, or whose base is too old: its place is free. Also without a
 * lock on the database: nothing is stored, an assignment knows its own end. */
void dunlin__buffered_sweep(dunlin__server *server, int64_t now_ms);
/* After a start: who works, and who has contributed to the open round. */
DUNLIN_NODISCARD dunlin_status dunlin__buffered_load(dunlin__server *server, dunlin_error *error);

#endif
