/*
 * status.h - the answer of /v1/status.
 */
#ifndef DUNLIN_SERVER_STATUS_H
#define DUNLIN_SERVER_STATUS_H

#include "state/context.h"

/* The JSON text, from malloc; NULL when out of memory. Any thread. */
char *dunlin__server_status_text(dunlin__server *server);

#endif
