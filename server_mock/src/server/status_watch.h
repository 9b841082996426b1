/*
 * status_watch.h - what /v1/status has for a page that watches a run.
 */
#ifndef DUNLIN_SERVER_STATUS_WATCH_H
#define DUNLIN_SERVER_STATUS_WATCH_H

#include "state/context.h"

#include <jansson.h>

/* "fedavg", "fedprox" or "scaffold". */
const char *dunlin__status_algorithm(const dunlin__server_task *task);
/* Adds `algorithm`, `time`, `uptime_s`, `phases` and `failures` to the status, and more to its
 * `open` and `requests`. Locked. */
void dunlin__status_add_watch(json_t *status, dunlin__server *server);

#endif
