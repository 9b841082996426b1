/*
 * tiers.h - which tier of devices a round asks: their ends, their credits, and the draw. Locked.
 *
 * Chai et al., "TiFL: a tier-based federated learning system", HPDC 2020, algorithm 2.
 */
#ifndef DUNLIN_SERVER_TIERS_H
#define DUNLIN_SERVER_TIERS_H

#include "state/context.h"

/* Fills the server's choice for the round, whose number is in it. `room` is for all devices. */
void dunlin__tiers_begin(dunlin__server *server, double *room);

/* Before the choice of a round that is over gives way: its tier has had a round. */
void dunlin__tiers_spend(dunlin__server *server);

/* With a contribution: the metric server/tier, from 1, the fastest. Within its transaction. */
DUNLIN_NODISCARD dunlin_status dunlin__tiers_note(dunlin__server *server,
                                                  const dunlin__contribution_row *row,
                                                  dunlin_error *error);

/* After a start: what credits were spent, by that metric. Weights begin alike. */
DUNLIN_NODISCARD dunlin_status dunlin__tiers_load(dunlin__server *server, dunlin_error *error);

#endif
