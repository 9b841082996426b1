/*
 * plan.h - what one client of the open round is asked to do. Locked.
 */
#ifndef DUNLIN_SERVER_PLAN_H
#define DUNLIN_SERVER_PLAN_H

#include "state/context.h"

/* The plan of a client; `packs`: it can send packed updates, if the task wants them. */
void dunlin__plan_fill(const dunlin__server *server, int64_t client_index, bool packs,
                       dunlin__training_plan *plan);

#endif
