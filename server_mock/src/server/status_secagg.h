/*
 * status_secagg.h - what a status has of secure aggregation: the set-up and what it is worth, and
 * what became of each step.
 */
#ifndef DUNLIN_SERVER_STATUS_SECAGG_H
#define DUNLIN_SERVER_STATUS_SECAGG_H

#include "state/context.h"

#include <jansson.h>

/* The terms, and what is claimed of them; null where updates are seen one by one. Locked. */
json_t *dunlin__status_secagg(const dunlin__server *server);

/* Devices, drop-outs and time of each step of a round, bytes and the unmasking; null of a round
 * without, or of before the server's start. Locked. */
json_t *dunlin__status_secagg_round(const dunlin__server *server, uint64_t round);

#endif
